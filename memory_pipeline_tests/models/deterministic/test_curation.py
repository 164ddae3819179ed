"""The rule curator: all candidates are stale, and contents are joined."""

from __future__ import annotations

from datetime import timedelta

from memory_pipeline.domain.memories.deduplication import union
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.domain.memories.consolidating import DAY
from memory_pipeline_tests.domain.memories.histories import ACME, NOON, only, remember

RULES = RuleCurator()


def test_all_candidates_are_stale_with_a_reason() -> None:
    seen, snapshot = (
        only(remember("The lift is slow.", kind="observation")),
        only(remember("The queue has 40 jobs.", is_point_in_time=True)),
    )
    assert RULES.stale(ACME, [seen, snapshot], NOON + timedelta(days=1_031.9), DAY) == {
        seen.id: "observation that nobody confirmed, last heard 1,031 days ago",
        snapshot.id: "a snapshot of one moment, last heard 1,031 days ago",
    }
    assert RULES.stale(ACME, [], NOON, DAY) == {}


def test_contents_are_joined_sentence_by_sentence() -> None:
    assert RULES.merge(ACME, "Tea is hot. It is late.", "tea is HOT! Milk.", DAY) == "Tea is hot. It is late. Milk."
    assert RULES.merge(ACME, "a", "b", DAY) == union("a", "b")


def test_rules_are_the_default_curator() -> None:
    curator = default_models().curator
    assert isinstance(curator, RuleCurator)
    assert (curator.name(ACME), curator.confirms(ACME)) == ("rules-1", False)

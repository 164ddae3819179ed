"""Summaries: a recomputed period keeps its id, any change changes the digest, points can be cited."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.periods import Calendar, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import KeyPoint, Summary, summary_id

SCOPE = Scope("acme", "support")
DAY = Period.parse("daily", "2024-01-15")
POINT = KeyPoint("Anna moved.", ("f1",), datetime(2024, 6, 1, tzinfo=UTC), 0.5, ("Anna",))


def summary() -> Summary:
    start, end = Calendar().bounds(DAY)
    return Summary(
        id=summary_id(SCOPE, DAY),
        scope=SCOPE,
        period=DAY,
        period_start=start,
        period_end=end,
        content="[2024-01-15] Anna moved.",
        key_points=(POINT,),
        entities=("Anna",),
        importance=0.5,
        source_ids=("f1",),
        source_digest="d",
        tokens_in=10,
        tokens_out=5,
        summary_method="m1",
    )


def test_ids_and_digests_never_change() -> None:
    assert summary_id(SCOPE, Period.parse("weekly", "2024-W03")) == "weekly:2024-W03:280b30053480e498e53cf90beeec05c1"
    assert summary().digest == "edc9f453890c717fd4344ce273cabf81"


def test_an_id_depends_on_agent_and_period() -> None:
    scopes = [SCOPE, Scope("acme", "sales"), Scope("other", "support"), Scope("support", "acme")]
    periods = [DAY, DAY.next(), Period.parse("yearly", "2024")]
    assert len({summary_id(scope, period) for scope in scopes for period in periods}) == 12


@pytest.mark.parametrize(
    "changes",
    [
        {"content": "other"},
        {"key_points": ()},
        {"key_points": (replace(POINT, sentence="Anna left."),)},
        {"key_points": (replace(POINT, source_ids=("f2",)),)},
        {"key_points": (replace(POINT, importance=0.6),)},
        {"key_points": (replace(POINT, entities=()),)},
        {"key_points": (replace(POINT, event_at=datetime(2024, 6, 2, tzinfo=UTC)),)},
        {"entities": ()},
        {"importance": 0.6},
        {"source_ids": ("f1", "f2")},
    ],
)
def test_every_change_changes_the_digest(changes: dict[str, object]) -> None:
    assert replace(summary(), **changes).digest != summary().digest  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"source_digest": "e"},
        {"tokens_in": 11},
        {"tokens_out": 6},
        {"summary_method": "m2"},
        {"cost": 0.1, "model": "m", "prompt_version": "p", "fallback": "timeout", "code_version": "9"},
    ],
)
def test_method_and_usage_are_not_in_the_digest_of_a_summary(changes: dict[str, object]) -> None:
    """Otherwise a month would be recomputed because an equal week had another price."""
    assert replace(summary(), **changes).digest == summary().digest  # type: ignore[arg-type]


def test_a_summary_is_a_source_of_the_next_coarser_one() -> None:
    two = replace(summary(), key_points=(POINT, replace(POINT, sentence="Ben stayed.")))
    material = two.material()
    assert [each.text for each in material] == ["Anna moved.", "Ben stayed."]
    assert [Reference.parse(each.id).point for each in material] == [0, 1]
    assert {Reference.parse(each.id).id for each in material} == {two.id}
    assert (material[0].event_at, material[0].importance, material[0].entities) == (POINT.event_at, 0.5, ("Anna",))

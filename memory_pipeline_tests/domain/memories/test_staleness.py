"""Which memories go cold, which are archived, and which never are."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.memories.consolidation import review_due
from memory_pipeline.domain.memories.decay import REVIEW, rot_at
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.permanence import PERMANENT_KINDS
from memory_pipeline.domain.memories.record import DurableMemory, Status, Temperature
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline_tests.domain.memories.consolidating import DAY, SETTINGS, consolidated, day_after, did, end_of
from memory_pipeline_tests.domain.memories.histories import do, only, remember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

SEEN = remember("The lift is slow.", 12, kind="observation", importance=0.9)
SNAPSHOT = remember("The queue has 40 jobs.", 12, is_point_in_time=True, importance=0.9)
FACT = remember("The gate is green.", 12)
#: Days below are counted from these.
assert SEEN.event_at == end_of(DAY)
#: Without an index nothing is hot.
BARE = replace(SETTINGS, hot_entries=0)


class Model(RuleCurator):
    """A curator with a model that finds the given memories stale."""

    def __init__(self, stale: Mapping[str, str] | None = None) -> None:
        self.found = stale
        self.shown: list[list[str]] = []

    def name(self, scope: Scope) -> str:
        return "a model"

    def confirms(self, scope: Scope) -> bool:
        return True

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> dict[str, str]:
        self.shown.append([memory.id for memory in memories])
        if self.found is None:
            raise ModelError("unavailable", "it is down")
        return dict(self.found)


def after(days: float, *events: MemoryEvent, curator: RuleCurator | None = None) -> tuple[list[str], Memories]:
    """Return the verbs of a consolidation some days after the first day, and the memories."""
    done, memories = consolidated(fold_events(events), day_after(days), settings=BARE, curator=curator or RuleCurator())
    assert not done.troubles
    return [event.verb.value for event in done.events], memories


# --- stale -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "days", "expected"),
    [
        (SEEN, 30, []),
        (SEEN, 31, ["COOL"]),
        (SNAPSHOT, 3, []),
        (SNAPSHOT, 4, ["COOL"]),
        (FACT, 31, []),
        (remember("Be brief.", 12, kind="instruction"), 400, []),
        (remember("Be brief.", 12, kind="rule", is_point_in_time=True), 400, []),
        (remember("Tea.", 12, kind="preference"), 400, []),
    ],
)
def test_f8_stale_memories_become_cold(event: MemoryEvent, days: float, expected: list[str]) -> None:
    verbs, memories = after(days, event)
    assert verbs == expected
    [memory] = memories.newest.values()
    assert memory.is_active
    assert (memory.temperature is Temperature.COLD) is bool(expected)


def test_f8_only_strictly_older_memories_are_stale() -> None:
    early = remember("The lift is slow.", 12 - 1 / 3600, kind="observation", importance=0.9)
    assert after(30, early)[0] == ["COOL"]
    assert after(30, SEEN)[0] == []


def test_staleness_has_a_reason() -> None:
    _, memories = after(31, SEEN, SNAPSHOT)
    assert memories.newest[SEEN.memory_id].status_reason == "observation that nobody confirmed, last heard 31 days ago"
    assert memories.newest[SNAPSHOT.memory_id].status_reason == "a snapshot of one moment, last heard 31 days ago"


def test_restating_and_confirming_prevent_staleness_and_using_does_not() -> None:
    assert after(31, SEEN, remember("The lift is slow.", 40, kind="observation"))[0] == []
    assert after(31, SNAPSHOT, do("CONFIRM", SNAPSHOT, 31 * 24))[0] == []
    assert after(31, SEEN, do("ACCESS", SEEN, 31 * 24))[0] == ["COOL"]


def test_hot_cold_and_inactive_memories_are_not_cooled() -> None:
    for verb in ("HEAT", "COOL", "FORGET"):
        done, _ = consolidated(
            fold_events([FACT, do(verb, FACT, 13)]), day_after(100), settings=SETTINGS, curator=Model()
        )
        assert "COOL" not in {event.verb for event in done.events}


def test_a_cold_memory_is_warm_when_it_is_restated() -> None:
    _, memories = after(31, SEEN)
    memories = fold_events([remember("The lift is slow.", 24 * 33, kind="observation")], memories)
    assert memories.newest[SEEN.memory_id].temperature is Temperature.WARM
    assert consolidated(memories, day_after(34), settings=BARE)[0].events == ()


# --- with a model ----------------------------------------------------------------------------------------------------


def test_a_model_decides_which_old_memories_are_stale() -> None:
    plan = remember("Anna plans a trip.", 12, kind="plan", importance=0.9)
    young = remember("New.", 12 + 24 * 20, importance=0.9)
    rule = remember("Be brief.", 12, kind="rule")
    model = Model({plan.memory_id: "the trip is over", young.memory_id: "made up", "memory:none": "made up"})
    verbs, memories = after(31, plan, FACT, SNAPSHOT, young, rule, curator=model)
    assert model.shown == [sorted([plan.memory_id, FACT.memory_id, SNAPSHOT.memory_id])]
    assert sorted(verbs) == ["COOL", "KEEP", "KEEP"]
    assert memories.newest[plan.memory_id].status_reason == "the trip is over"
    assert memories.newest[FACT.memory_id].reviewed_at == end_of(day_after(31))
    assert memories.newest[young.memory_id].is_recalled


def test_a_model_is_not_asked_again_every_day() -> None:
    model = Model({})
    memories = fold_events([FACT])
    for days in range(29, 95):
        _, memories = consolidated(memories, day_after(days), settings=BARE, curator=model)
    assert len(model.shown) == 3  # days 31, 62, 93
    assert memories.newest[FACT.memory_id].is_recalled


def test_a_failing_model_fails_only_its_pass() -> None:
    weak = remember("Weak.", 12, importance=0.05)
    tea, more = remember("tea hot.", 24 * 31 + 1), remember("hot tea!", 24 * 31 + 2)
    done, memories = consolidated([FACT, weak, tea, more], day_after(31), curator=Model(None))
    assert done.troubles == {"staleness": "ModelError: it is down"}
    assert [event.verb.value for event in done.events if event.verb != "HEAT"] == ["MERGE"]
    assert memories.newest[weak.memory_id].is_active


# --- faded and rotten ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importance", "days", "expected"),
    [(0.5, 160, []), (0.5, 161, ["ARCHIVE"]), (0.05, 30, []), (0.05, 31, ["ARCHIVE"])],
)
def test_p13_faded_memories_are_archived(importance: float, days: int, expected: list[str]) -> None:
    used = remember("The gate is green.", 12, importance=importance)
    # Its use on the first day prevents rot; it fades from then on.
    verbs, memories = after(days, used)
    assert verbs == expected
    memory = memories.newest[used.memory_id]
    assert memory.status is (Status.ARCHIVED if expected else Status.ACTIVE)
    assert memory.content == "The gate is green."


def test_p13_importance_fades_from_the_last_use() -> None:
    assert after(161, FACT, do("ACCESS", FACT, 24 * 20))[0] == []
    assert after(181, FACT, do("ACCESS", FACT, 12 + 24 * 20))[0] == ["ARCHIVE"]


@pytest.mark.parametrize(("days", "expected"), [(99, []), (100, ["ARCHIVE"])])
def test_p12_memories_with_high_context_rot_are_archived(days: int, expected: list[str]) -> None:
    worthless = remember("Who knows.", 12, importance=0)
    settings = replace(BARE, archive_below=0)  # only rot decides
    done, memories = consolidated([worthless], day_after(days), settings=settings)
    assert [event.verb.value for event in done.events] == expected
    if expected:
        assert memories.newest[worthless.memory_id].status_reason == "its context rot is 0.9003, 0.9 or more"
    else:
        assert {own: round(rot, 4) for own, rot in done.review.items()} == {worthless.memory_id: 0.8994}


def test_p12_memories_with_high_rot_are_listed_for_review() -> None:
    weak = remember("Weak.", 12, importance=0.1)
    done, _ = consolidated([weak, FACT], day_after(120), settings=replace(BARE, archive_below=0))
    assert {own: round(rot, 4) for own, rot in done.review.items()} == {
        weak.memory_id: 0.885, FACT.memory_id: 0.765
    }  # fmt: skip
    assert not consolidated([FACT, do("FORGET", FACT, 13)], day_after(120))[0].review
    assert not consolidated([remember("Be brief.", 12, kind="rule", importance=0.1)], day_after(300))[0].review


def test_p13_what_lasts_is_neither_archived_nor_listed_for_review() -> None:
    home = remember("Anna lives in Porto.", 12, subject="Anna", predicate="lives_in", object="Porto", importance=0)
    done, memories = consolidated([home], day_after(1_000), settings=BARE)
    assert (done.events, done.review) == ((), {})
    assert memories.newest[home.memory_id].is_recalled


def test_p13_without_decay_only_rot_archives() -> None:
    settings = replace(BARE, decay=False)
    worthless = remember("Who knows.", 12, importance=0)
    for days, expected in ((99, []), (100, ["ARCHIVE"])):
        done, _ = consolidated([FACT, worthless], day_after(days), settings=settings)
        assert [event.verb.value for event in done.events] == expected
    assert consolidated([FACT], day_after(2_000), settings=settings)[0].events == ()


def test_p12_rot_archives_a_memory_that_was_used_before_it_fades() -> None:
    used = remember("The gate is green.", 12, importance=0.3)
    done, _ = consolidated([used, do("ACCESS", used, 12 + 24 * 100)], day_after(160), settings=BARE)
    assert [event.reason for event in done.events] == ["its context rot is 0.9001, 0.9 or more"]


def test_p12_a_memory_is_due_for_review_at_its_first_instant() -> None:
    memories = fold_events([FACT])
    found = review_due(memories, SEEN.event_at)
    assert found is not None
    assert rot_at(memories.newest[FACT.memory_id], found) >= REVIEW
    assert rot_at(memories.newest[FACT.memory_id], found - timedelta(seconds=1)) < REVIEW
    assert review_due(memories, found) is None


def test_the_reason_contains_the_figures() -> None:
    _, memories = after(161, FACT)
    assert memories.newest[FACT.memory_id].status_reason == (
        "its importance of 0.5 has faded to 0.0991, less than 0.1; it was last heard 161 days ago"
    )


def test_cold_memories_are_archived_too_and_hot_or_permanent_ones_are_not() -> None:
    _, memories = after(31, SEEN)
    done, memories = consolidated(memories, day_after(300), settings=BARE)
    assert [event.verb.value for event in done.events] == ["ARCHIVE"]
    hot = only(FACT, do("HEAT", FACT, 13))
    assert hot.temperature is Temperature.HOT
    assert did(consolidated(fold_events([FACT, do("HEAT", FACT, 13)]), day_after(400))[0]) == []
    for kind in PERMANENT_KINDS:
        assert after(1000, remember("So it is.", 12, kind=kind, importance=0.01))[0] == []


def test_an_archived_memory_is_active_when_it_is_restated() -> None:
    _, memories = after(161, FACT)
    later = fold_events([remember("The gate is green.", 12 + 24 * 170)], memories)
    assert later.newest[FACT.memory_id].is_recalled
    assert later.newest[FACT.memory_id].version == 2


def test_archived_memories_are_not_shown_to_a_model() -> None:
    model = Model({})
    assert after(300, FACT, curator=model)[0] == ["ARCHIVE"]
    assert model.shown == []


def test_snapshots_have_their_own_number_of_days() -> None:
    settings = replace(BARE, snapshot_stale_after_days=timedelta(hours=6) / timedelta(days=1))
    early = remember("The queue has 41 jobs.", 5, is_point_in_time=True)
    late = remember("The queue has 42 jobs.", 7, is_point_in_time=True)
    assert did(consolidated([early, late], settings=settings)[0]) == [("COOL", early.memory_id, None)]

"""Whole days of consolidation: invariants, skipped days and failed passes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings, Night, due
from memory_pipeline.domain.memories.deduplication import FeatureCache
from memory_pipeline.domain.memories.events import CONSOLIDATION, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.hot_index import hot_lines, is_eligible
from memory_pipeline.domain.memories.permanence import lasts
from memory_pipeline.domain.memories.record import MemoryKind, Temperature
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline_tests.domain.memories.consolidating import (
    DAY,
    SETTINGS,
    VOCABULARY,
    consolidated,
    day_after,
    did,
    end_of,
    nothing_alike,
    words_alike,
)
from memory_pipeline_tests.domain.memories.histories import NOON, do, remember
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

#: Small limits, so that much happens within weeks.
SMALL = ConsolidationSettings(
    hot_entries=2, hot_tokens=60, similarity=0.8, stale_after_days=9, archive_below=0.3, archive_after_days=12
)
DAYS = 35


class Doubting(RuleCurator):
    """A curator with a model that finds memories stale that were stated in an even hour."""

    def confirms(self, scope: Scope) -> bool:
        return True

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> dict[str, str]:
        return {memory.id: "it is" for memory in memories if memory.created_at.hour % 2 == 0}


# --- invariants ------------------------------------------------------------------------------------------------------


@st.composite
def stories(draw: st.DrawFn) -> list[MemoryEvent]:
    """Draw events of one agent within some weeks, about few subjects."""
    events: list[MemoryEvent] = []
    for number in range(draw(st.integers(1, 12))):
        hours = draw(st.integers(0, 20)) * 24 + draw(st.integers(0, 11))
        said = [event for event in events if event.verb is MemoryVerb.REMEMBER]
        if said and draw(st.integers(0, 3)) == 0:
            verb = draw(st.sampled_from(["FORGET", "CONFIRM", "BOOST", "REDUCE", "ACCESS", "UPDATE"]))
            changes: dict[str, Any] = {}
            if verb == "UPDATE":
                changes = draw(st.sampled_from([{"content": "Anna stays in Porto."}, {"kind": "observation"}]))
            events.append(do(verb, draw(st.sampled_from(said)), hours, turn=number, **changes))
        else:
            who, where = draw(st.sampled_from(["Anna", "Ben"])), draw(st.sampled_from(["Porto", "Faro"]))
            form = draw(st.sampled_from(["{} lives in {}.", "{} still lives in {} now.", "{} never lives in {}."]))
            triple: dict[str, Any] = {"subject": who, "predicate": "lives_in", "object": where}
            events.append(
                remember(
                    form.format(who, where),
                    hours,
                    turn=number,
                    kind=draw(st.sampled_from(["fact", "observation", "observation", "rule", "tool_output"])),
                    importance=draw(st.sampled_from([None, 0.05, 0.9])),
                    is_point_in_time=draw(st.sampled_from([None, None, True])),
                    conversation=draw(st.sampled_from(["c1", "c2", "c3", "c4"])),
                    **(triple if draw(st.booleans()) else {}),
                )
            )
    return events


def simulate_days(
    events: Sequence[MemoryEvent], curator: RuleCurator, *, skipping: bool
) -> Iterator[tuple[Memories, Night, Memories]]:
    """Consolidate all days, or only those with new events, changes on the day before, or a due time.

    Yields:
        The memories before the day, the result of the day, and the memories after it.
    """
    memories, stirred, last = Memories(), False, NOON
    confirms = curator.confirms(events[0].scope)
    for days in range(DAYS):
        day = day_after(days)
        today = [event for event in events if day_after((event.event_at - NOON) / timedelta(days=1)) == day]
        memories = fold_events(today, memories)
        if skipping and not (today or stirred):
            at = due(memories, last, SMALL, confirms=confirms)
            if at is None or at > end_of(day):
                continue
        before = memories
        made, memories = consolidated(before, day, settings=SMALL, curator=curator)
        assert not made.troubles
        stirred, last = bool(made.events), made.at
        yield before, made, memories


@settings(max_examples=examples(30), deadline=None)
@given(stories(), st.booleans())
def test_days_without_a_cause_may_be_skipped(events: list[MemoryEvent], has_model: bool) -> None:
    curator = Doubting() if has_model else RuleCurator()
    each, some = (list(simulate_days(events, curator, skipping=skipping)) for skipping in (False, True))
    done = [event for _, made, _ in each for event in made.events]
    assert [event for _, made, _ in some for event in made.events] == done
    assert some[-1][2] == each[-1][2]
    assert len(each) == DAYS
    # A fold in any order gives the same result.
    assert fold_events([*reversed(done), *events]) == each[-1][2]


@settings(max_examples=examples(40), deadline=None)
@given(stories(), st.booleans())
def test_invariants_hold_after_every_day(events: list[MemoryEvent], has_model: bool) -> None:
    curator = Doubting() if has_model else RuleCurator()
    for before, made, memories in simulate_days(events, curator, skipping=True):
        # No memory or version is lost.
        assert before.newest.keys() == memories.newest.keys()
        for own in before.newest:
            assert memories.history(own)[: len(before.earlier.get(own, ()))] == before.earlier.get(own, ())
        for event in made.events:
            assert (event.editor, event.event_at, bool(event.reason)) == (CONSOLIDATION, made.at, True)
            assert event.id not in memories.ignored
        # The input is unchanged, repetition gives the same result, and a second run has no effect.
        assert consolidated(before, made.day, settings=SMALL, curator=curator) == (made, memories)
        again, after = consolidated(memories, made.day, settings=SMALL, curator=curator)
        assert (again.events, after) == ((), memories)
        check(memories)


def check(memories: Memories) -> None:
    """Check the invariants of memories after a consolidation."""
    recalled = [memory for memory in memories.newest.values() if memory.is_recalled]
    near = {frozenset(pair[:2]) for pair in words_alike(recalled, recalled, SMALL.similarity)}
    for one, other in combinations(recalled, 2):
        if one.kind is other.kind:
            is_alike = frozenset((one.id, other.id)) in near or _triple(one) == _triple(other) != (None, None, None)
            assert not (is_alike and FeatureCache().agree(one, other)), "two active memories are duplicates"
            assert one.content != other.content
        if {one.kind, other.kind} <= {MemoryKind.FACT, MemoryKind.OBSERVATION} and one.object and other.object:
            is_one = _triple(one)[:2] == _triple(other)[:2] and VOCABULARY.holds_one(one.predicate or "")
            is_one = (
                is_one and one.is_point_in_time == other.is_point_in_time
            )  # a point in time does not contradict a lasting state
            assert not is_one or _triple(one) == _triple(other), "two active memories contradict each other"
    hot = [memory for memory in recalled if memory.temperature is Temperature.HOT]
    assert all(is_eligible(memory, SMALL) for memory in hot)
    assert len(hot) <= SMALL.hot_entries
    assert sum(len(line.encode()) + 1 for line in hot_lines(hot)) <= 4 * SMALL.hot_tokens
    for memory in memories.newest.values():
        if lasts(memory):
            assert memory.is_recalled or memory.status in {"superseded", "deprecated"}


def _triple(memory: DurableMemory) -> tuple[str | None, str | None, str | None]:
    if not (memory.subject and memory.predicate and memory.object):
        return None, None, None
    return name_key(memory.subject), memory.predicate, name_key(memory.object)


# --- due times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "after_days", "confirms"),
    [
        ({"kind": "observation"}, 30, False),
        ({"is_point_in_time": True}, 3, False),
        ({"importance": 0.2}, 68.967563, False),  # 0.2 · 0.99^d < 0.1
        ({"importance": 0.01}, 30, False),
        ({}, 30, True),
        ({"kind": "tool_output", "importance": 1.0}, 229.105299, False),
        ({"kind": "rule", "importance": 0.0}, None, True),
    ],
)
def test_due_is_the_first_instant_at_which_time_alone_changes_a_memory(
    changes: Mapping[str, Any], after_days: float | None, confirms: bool
) -> None:
    bare = replace(SETTINGS, hot_entries=0)
    memories = fold_events([remember("The lift is slow.", **changes)])
    found = due(memories, NOON, bare, confirms=confirms)
    if after_days is None:
        assert found is None
        return
    assert found is not None
    assert abs(found - NOON - timedelta(days=after_days)) < timedelta(seconds=1)
    assert due(memories, found - timedelta(microseconds=1), bare, confirms=confirms) == found
    assert due(memories, found, bare, confirms=confirms) == found
    assert due(memories, found + timedelta(days=9), bare, confirms=confirms) == found + timedelta(days=9)


def test_due_is_that_of_the_first_memory_and_ignores_hot_ones() -> None:
    events = [remember(f"Thing {n} is here.", n, kind="observation") for n in range(30)]
    events += [remember("Anna likes tea."), do("HEAT", remember("Anna likes tea."), 1)]
    for order in (events, events[::-1]):
        found = due(fold_events(order), NOON, SETTINGS, confirms=False)
        assert found is not None
        assert abs(found - NOON - timedelta(days=30)) <= timedelta(microseconds=1)
    assert due(fold_events(events[-2:]), NOON, SETTINGS, confirms=True) is None
    assert due(Memories(), NOON, SETTINGS, confirms=True) is None


# --- the passes ------------------------------------------------------------------------------------------------------


def test_each_pass_sees_the_changes_of_earlier_passes() -> None:
    lives: dict[str, Any] = {"subject": "Anna", "predicate": "lives_in"}
    seen = [
        remember("Anna lives in Faro.", n, kind="observation", conversation=f"c{n}", object="Faro", **lives)
        for n in range(3)
    ]
    known = remember("Anna lives there in Faro.", -2, object="Faro", **lives)
    older = remember("Anna lives in Porto.", -1, object="Porto", **lives)
    done, memories = consolidated([*seen, known, older], similar=nothing_alike)
    own = seen[0].memory_id
    assert did(done) == [
        ("PROMOTE", own, None),
        ("MERGE", own, known.memory_id),
        ("SUPERSEDE", older.memory_id, own),
        ("HEAT", own, None),
    ]
    assert [(event.turn, event.place) for event in done.events] == [(1, 0), (2, 0), (3, 0), (5, 0)]
    assert memories.newest[own].kind is MemoryKind.FACT


def test_a_day_without_memories_has_no_events() -> None:
    done, memories = consolidated(Memories())
    assert (done.day, done.at, done.events, done.troubles, done.review) == (DAY, end_of(DAY), (), {}, {})
    assert memories == Memories()


def test_a_failed_pass_has_no_effect_and_the_others_continue() -> None:
    def broken(changed: object, others: object, least: float) -> list[tuple[str, str, float]]:
        raise ModelError("unavailable", "the embedder is down")

    porto = remember("Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto")
    faro = remember("Anna lives in Faro.", 1, subject="Anna", predicate="lives_in", object="Faro")
    tea = [remember("Tea is hot.", 2, kind="observation", conversation=f"c{n}", turn=n) for n in range(3)]
    done, memories = consolidated([porto, faro, *tea], similar=broken)
    assert done.troubles == {"duplicates": "ModelError: the embedder is down"}
    assert Counter(event.verb.value for event in done.events) == {"PROMOTE": 1, "SUPERSEDE": 1, "HEAT": 2}
    # Repeated from the previous state, the pass has its full effect.
    repaired, after = consolidated([porto, faro, *tea])
    assert not repaired.troubles
    assert after.newest.keys() == memories.newest.keys()


def test_a_pass_that_fails_halfway_has_no_effect() -> None:
    class Tired(RuleCurator):
        merged = 0

        def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
            self.merged += 1
            if self.merged > 1:
                raise OSError("the disk is full")
            return super().merge(scope, newer, older, day)

    events = [
        remember(text, n) for n, text in enumerate(["tea is hot", "hot tea is.", "milk was cold", "cold milk was."])
    ]
    curator = Tired()
    done, memories = consolidated(events, curator=curator, settings=replace(SETTINGS, hot_entries=0))
    assert curator.merged == 2
    assert (done.events, done.troubles) == ((), {"duplicates": "OSError: the disk is full"})
    assert memories == fold_events(events)


def test_any_error_of_a_pass_becomes_one_line() -> None:
    def broken(changed: object, others: object, least: float) -> list[tuple[str, str, float]]:
        raise ValueError("a\n\ud800 " + "b" * 10_000)

    [trouble] = consolidated([remember("Tea."), remember("Milk.")], similar=broken)[0].troubles.values()
    assert trouble.startswith("ValueError: a ? bbb")
    assert len(trouble) == 300


def test_a_recomputed_day_has_the_same_ids() -> None:
    events = [remember("tea is hot", 0), remember("hot tea is.", 1)]
    first, second = (consolidated(mixed)[0] for mixed in (events, events[::-1]))
    assert first == second
    assert len({event.id for event in first.events}) == len(first.events) == 2

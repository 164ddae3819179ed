"""The state of an agent's memories: the table, events missing from it, and pending events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb, new_memory_id
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.memories.keeping import (
    MONDAY,
    event,
    fold_memories,
    land,
    minute,
    refold,
    remember,
    state_of,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from memory_pipeline.memories import MemoryOverlay

PORTO, LISBON, TEA = "Anna lives in Porto.", "Anna lives in Lisbon.", "Anna likes tea."
NIGHT = minute(24 * 60)


def known(state: MemoryOverlay, of: Memories) -> Memories:
    """Return a state's memories in the form of the other's."""
    newest = {own: memory for own in of.newest if (memory := state.get(own)) is not None}
    earlier = {own: history[:-1] for own in of.newest if len(history := state.history(own)) > 1}
    return Memories(newest, earlier)


def assert_is(state: MemoryOverlay, wanted: Memories) -> None:
    found = known(state, wanted)
    assert found.newest == wanted.newest
    assert found.earlier == {own: versions for own, versions in wanted.earlier.items() if versions}
    assert len(state.snapshot()) == len(wanted.newest)
    for own in wanted.newest.keys() | wanted.aliases.keys():
        assert state.resolved(own) == wanted.resolved(own)


def test_a_new_event_is_visible_at_once_and_unchanged_by_its_commit(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    state = state_of(lake)
    assert len(state.snapshot()) == 0
    assert state.get(remember(PORTO).memory_id) is None
    events = [remember(PORTO), remember(TEA, minute(1)), remember(PORTO, minute(2))]
    write(lake, *events)
    wanted = fold_events(events)
    assert_is(state, wanted)
    assert_is(state_of(lake), wanted)
    land(lake, *events)  # in the journal and in the tables at once
    assert_is(state, wanted)
    lake.journal.acknowledge(lake.journal.pending())
    assert_is(state, wanted)
    assert_is(state_of(lake), wanted)


def test_a_boost_is_not_counted_twice_wherever_a_run_is_killed(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    told = remember(PORTO, importance=0.5)
    boosts = [event(MemoryVerb.BOOST, minute(number), told.memory_id) for number in (1, 2)]
    land(lake, told)
    state = state_of(lake)
    steps: list[Callable[[], object]] = [
        lambda: write(lake, *boosts),
        lambda: fold_memories(lake, *boosts),
        lambda: refold(lake),
        lambda: lake.journal.acknowledge(lake.journal.pending()),
    ]
    for step in steps:
        step()
        for one in (state, state_of(lake)):
            memory = one.get(told.memory_id)
            assert memory is not None
            assert (memory.importance, memory.version) == (0.7, 1)


def test_pending_events_continue_from_the_rows_they_change(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    first = [remember(f"Fact number {number}.", minute(number)) for number in range(30)]
    land(lake, *first)
    state = state_of(lake)
    later = [
        remember("fact NUMBER 3", minute(40), importance=0.9),
        event(MemoryVerb.UPDATE, minute(41), first[4].memory_id, content="Another thing."),
        event(MemoryVerb.FORGET, minute(42), first[5].memory_id),
        remember("Another thing.", minute(43)),
        remember("Fact number 4.", minute(44)),
        event(MemoryVerb.ACCESS, minute(45), first[6].memory_id),
    ]
    write(lake, *later)
    top = state.snapshot()
    assert not top.is_whole
    assert len(top.above.newest) == 5
    assert_is(state, fold_events([*first, *later]))


def test_a_late_event_is_folded_in_its_place(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    told = remember(PORTO)
    changed = event(MemoryVerb.UPDATE, minute(30), told.memory_id, content=LISBON)
    land(lake, told, changed)
    late = event(MemoryVerb.UPDATE, minute(10), told.memory_id, content=TEA)
    write(lake, late)
    state = state_of(lake)
    assert state.snapshot().is_whole
    assert_is(state, fold_events([told, late, changed]))
    assert [one.content for one in state.history(told.memory_id)] == [PORTO, TEA, LISBON]


def test_events_committed_before_a_kill_count_without_the_table(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    told, more = remember(PORTO), remember(TEA, minute(5))
    land(lake, told)
    state = state_of(lake)
    assert len(state.snapshot()) == 1
    fold_memories(lake, more)
    assert_is(state, fold_events([told, more]))
    refold(lake)
    assert not state.snapshot().is_whole
    assert_is(state, fold_events([told, more]))


def test_pending_events_apply_after_consolidation(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    old, new, snapshot = remember(PORTO), remember(LISBON, minute(1)), remember("12 in stock.", minute(2))
    ids = [one.memory_id for one in (old, new, snapshot)]
    consolidation = [
        event(MemoryVerb.MERGE, NIGHT, ids[1], ids[0], content=f"{LISBON} {PORTO}", reason="they say the same"),
        event(MemoryVerb.COOL, NIGHT, ids[2], reason="31 days old"),
    ]
    consolidation = [replace(one, turn=number, editor="consolidation") for number, one in enumerate(consolidation)]
    land(lake, old, new, snapshot, consolidation=consolidation)
    tail = [event(MemoryVerb.BOOST, NIGHT, ids[0]), remember("12 in stock!", NIGHT + timedelta(minutes=1))]
    write(lake, *tail)
    state = state_of(lake)
    wanted = fold_events([old, new, snapshot, *consolidation, *tail])
    assert not state.snapshot().is_whole
    assert_is(state, wanted)
    assert state.resolved(ids[0]) == ids[1]
    merged, revived = state.get(ids[1]), state.get(ids[2])
    assert merged is not None
    assert merged.importance == 0.6
    assert revived is not None
    assert revived.is_recalled
    assert [one.verb for one in state.events({ids[0]})] == [MemoryVerb.REMEMBER, MemoryVerb.MERGE, MemoryVerb.BOOST]


def test_a_memory_is_found_by_its_words(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    told = remember(PORTO)
    land(lake, told)
    state = state_of(lake)
    for text in (PORTO, "anna LIVES in porto"):
        found = state.find(remember(text).changes)
        assert found is not None
        assert found.id == told.memory_id
    assert state.find(remember(TEA).changes) is None
    write(lake, event(MemoryVerb.UPDATE, minute(1), told.memory_id, content=TEA))
    assert state.find(remember(PORTO).changes) is None
    found = state.find(remember(TEA).changes)
    assert found is not None
    assert (found.id, found.content) == (told.memory_id, TEA)


def test_agents_do_not_see_each_other(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    other = replace(ACME, agent_id="sales")
    land(lake, remember(PORTO))
    land(lake, remember(PORTO, scope=other))
    write(lake, remember(TEA, minute(1), scope=other))
    mine, theirs = state_of(lake), state_of(lake, other)
    assert len(mine.snapshot()) == 1
    assert len(theirs.snapshot()) == 2
    own = new_memory_id(other, remember(PORTO).changes, MONDAY)
    assert mine.get(own) is None
    assert mine.history(own) == ()
    assert mine.events({own}) == []
    assert theirs.get(own) is not None


CONTENTS = [PORTO, LISBON, TEA, "anna lives in porto", "Anna likes the tea"]


@st.composite
def happenings(draw: st.DrawFn) -> list[MemoryEvent]:
    """Return events on few memories at few times, some by consolidation."""
    ids = [remember(content, minute(hour * 60)).memory_id for content in CONTENTS for hour in (0, 1)]
    events: list[MemoryEvent] = []
    for _ in range(draw(st.integers(1, 12))):
        at = minute(draw(st.sampled_from([0, 1, 60, 61, 62, 24 * 60, 24 * 60 + 1])))
        verb = draw(st.sampled_from([MemoryVerb.REMEMBER, MemoryVerb.REMEMBER, *MemoryVerb]))
        content = draw(st.sampled_from(CONTENTS))
        if verb is MemoryVerb.REMEMBER:
            kind = draw(st.sampled_from(["fact", "observation"]))
            events.append(remember(content, at, kind=kind))
            continue
        own, other = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
        other_id = other if verb in {MemoryVerb.MERGE, MemoryVerb.SUPERSEDE} else None
        said = content if verb in {MemoryVerb.UPDATE, MemoryVerb.MERGE} else None
        at = at if verb.is_open else minute(24 * 60)
        events.append(event(verb, at, own, other_id, editor="agent" if verb.is_open else "consolidation", content=said))
    return events


@settings(deadline=None, max_examples=examples(10))
@given(happenings(), st.data())
def test_the_state_is_the_fold_of_all_committed_and_pending_events(
    tmp_path_factory: pytest.TempPathFactory, events: Sequence[MemoryEvent], data: st.DataObject
) -> None:
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    order = sorted(events, key=lambda one: one.order) if data.draw(st.booleans()) else list(events)
    level = data.draw(st.integers(0, len(order)))
    behind = data.draw(st.integers(level, len(order)))
    base = [one for one in order[:level] if not one.is_consolidation]
    consolidation = [one for one in events if one.is_consolidation]
    if base or consolidation:
        land(lake, *base, consolidation=consolidation)
    more = [one for one in order[level:behind] if not one.is_consolidation]
    if more:
        fold_memories(lake, *more)
    pending = [one for one in order[data.draw(st.integers(0, behind)) :] if not one.is_consolidation]
    if pending:
        write(lake, *pending)
    state = state_of(lake)
    assert_is(state, fold_events(events))

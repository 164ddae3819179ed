"""Events on memories that lose the statement behind their id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.erasure import without_note
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.erasure.memories import reassign_events
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.erasure.lakes import done

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE = "The alarm code is 4411."


def said(at: str, content: str = CODE) -> MemoryEvent:
    return done("REMEMBER", at, content=content)


def after(events: Sequence[MemoryEvent], gone: MemoryEvent, *nights: MemoryEvent, **noted: Any) -> list[MemoryEvent]:
    """Return the remaining events after the removal of one."""
    found = reassign_events(events, nights, {gone.id}, noted)
    return [one for event in events if event is not gone for one in found.get(event.id, (event,))]


def standing(events: Sequence[MemoryEvent]) -> dict[str, str]:
    return {memory.content: memory.status.value for memory in fold_events(events).newest.values()}


FIRST, SECOND = said("2024-03-01T08:00"), said("2024-03-02T08:00")


def test_events_of_a_memory_move_to_its_successor() -> None:
    revoked = done("FORGET", "2024-03-05T08:00", to=FIRST.memory_id, editor="bot", reason="it was changed")
    left = after([FIRST, SECOND, revoked], FIRST)
    assert [one.memory_id for one in left] == [SECOND.memory_id] * 2
    assert standing(left) == {CODE: "deprecated"}
    assert (left[1].editor, left[1].reason, left[1].received_at) == ("bot", "it was changed", revoked.received_at)
    changed = done("UPDATE", "2024-03-05T08:00", to=FIRST.memory_id, content="It is 9999.")
    assert standing(after([FIRST, SECOND, changed], FIRST)) == {"It is 9999.": "active"}
    # An id under which it was said again stands for the memory as well.
    named = done("FORGET", "2024-03-05T08:00", to=SECOND.memory_id)
    assert standing(after([FIRST, SECOND, named], SECOND)) == {CODE: "deprecated"}
    assert after([FIRST, SECOND, named], FIRST) == [SECOND, named]


def test_events_without_a_successor_are_removed() -> None:
    revoked = done("FORGET", "2024-03-05T08:00", to=FIRST.memory_id)
    assert after([FIRST, revoked], FIRST) == []
    # A later equal statement is another wish, and other words are another memory.
    changed = done("UPDATE", "2024-03-03T08:00", to=FIRST.memory_id, content="It is 9999.")
    again = said("2024-03-04T08:00")
    assert after([FIRST, changed, again, revoked], FIRST) == [again]
    stranger = done("FORGET", "2024-03-05T08:00", to=done("REMEMBER", content="x").memory_id)
    assert after([FIRST, SECOND, stranger], FIRST) == [SECOND, stranger]


def test_equal_statements_within_an_hour_and_later_are_distinguished() -> None:
    events = [
        said("2024-03-01T08:00"),
        done("UPDATE", "2024-03-01T08:10", to=FIRST.memory_id, content="It is 9999."),
        said("2024-03-01T08:20"),
    ]
    (anew,) = fold_events(events).newest.keys() - {FIRST.memory_id}
    events += [done("FORGET", "2024-03-05T08:00", to=anew)]
    assert standing(events) == {"It is 9999.": "active", CODE: "deprecated"}
    assert standing(after(events, events[0])) == {CODE: "deprecated"}
    assert standing(after(events, events[2])) == {"It is 9999.": "active"}


def test_links_follow_their_memories_or_go_with_them() -> None:
    other = said("2024-03-01T09:00", "The key is at the porter's.")
    for ends in ((FIRST.memory_id, other.memory_id), (other.memory_id, FIRST.memory_id)):
        linked = MemoryEvent.of(
            ACME, MemoryVerb.LINK, SECOND.event_at.replace(day=5), Changes(relation="opens", weight=0.5),
            memory_id=ends[0], other_id=ends[1],
        )  # fmt: skip
        moved = after([FIRST, other, SECOND, linked], FIRST)[-1]
        kept = {FIRST.memory_id: SECOND.memory_id}
        assert (moved.memory_id, moved.other_id) == tuple(kept.get(end, end) for end in ends)
        assert (moved.changes, moved.event_at) == (linked.changes, linked.event_at)
        assert after([FIRST, other, SECOND, linked], SECOND)[-1] == linked
        assert after([FIRST, other, linked], FIRST) == [other]
        assert after([FIRST, other, SECOND, linked], other)[-1] == SECOND


def test_a_merged_memory_is_revoked_completely() -> None:
    tea, cup, mug = (said("2024-03-01T08:00", text) for text in ("Tea at five.", "A cup at five.", "A mug at five."))
    merge = [
        MemoryEvent.of(ACME, MemoryVerb.MERGE, at.event_at.replace(day=2), memory_id=tea.memory_id,
                       other_id=other.memory_id, place=place, reason="the same")
        for place, (at, other) in enumerate([(tea, cup), (tea, mug)])
    ]  # fmt: skip
    events = [tea, cup, mug, done("FORGET", "2024-03-05T08:00", to=tea.memory_id)]
    assert standing(after(events, tea, *merge)) == {"A cup at five.": "deprecated", "A mug at five.": "deprecated"}
    assert standing(after(events, mug, *merge)) == {"Tea at five.": "deprecated", "A cup at five.": "deprecated"}
    boosted = [tea, cup, mug, done("BOOST", "2024-03-05T08:00", to=tea.memory_id)]
    assert len(after(boosted, tea, *merge)) == 3
    early = [tea, cup, mug, done("FORGET", "2024-03-01T09:00", to=tea.memory_id)]
    assert standing(after(early, tea, *merge)) == {"A cup at five.": "active", "A mug at five.": "active"}


def test_notes_are_removed_wherever_the_event_moves() -> None:
    noted = done("FORGET", "2024-03-05T08:00", to=FIRST.memory_id, reason="Anna asked for it")
    found = reassign_events([FIRST, SECOND, noted], (), {FIRST.id}, {noted.id: without_note(noted)})
    ((moved,),) = found.values()
    assert (moved.memory_id, moved.reason) == (SECOND.memory_id, None)
    found = reassign_events([FIRST, SECOND, noted], (), (), {noted.id: without_note(noted)})
    assert found == {noted.id: (without_note(noted),)}

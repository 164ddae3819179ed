"""What becomes of what agents did to memories, once some of what made these memories is removed.

A memory's id is that of the words which were said first. Where these are removed, and others have said the same, the
memory goes on under another id: its heir. What was done to it is done to the heir then, else what was revoked would
count again. What was done to memories that nobody says any more goes: it has no effect, and may repeat what they said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, apply

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: What is done to each of several heirs, into which what a night had made one may fall apart. Of the rest once will do.
_TO_ALL = frozenset([MemoryVerb.FORGET, MemoryVerb.UPDATE])


def resettled(
    events: Iterable[MemoryEvent],
    nights: Iterable[MemoryEvent],
    gone: Collection[str],
    noted: Mapping[str, MemoryEvent],
) -> dict[str, tuple[MemoryEvent, ...]]:
    """Return by what the events of agents are replaced, by their ids; nothing of those that stay as they are, or go.

    Args:
        events: all that make one agent's memories, those that are removed too.
        nights: what the upkeep did with them. It is taken to be undone.
        gone: ids of the events that are removed.
        noted: events that stay without their note, by the ids that they have with it.
    """
    base = list({event.id: event for event in events}.values())
    tellers = _tellers([*base, *nights])
    memories, known_as = Memories(), dict[str, str]()
    found: dict[str, tuple[MemoryEvent, ...]] = {}
    for event in sorted(base, key=lambda event: event.order):
        if event.id in gone:
            continue
        kept = noted.get(event.id, event)
        own: tuple[MemoryEvent, ...] = (kept,)
        if kept.verb is MemoryVerb.REMEMBER:
            known_as[event.id] = memories.said_of(kept)
        elif event.id in tellers:
            told = tellers[event.id]
            heirs = list(dict.fromkeys(memories.resolved(known_as[teller]) for teller in told if teller in known_as))
            is_whole = all(teller in known_as for teller in told)
            own = _done_to(kept, memories.resolved(kept.memory_id), heirs, is_whole=is_whole)
        if own != (event,):
            found[event.id] = own
        for one in own:
            apply(memories, one)
    return found


def _tellers(events: Iterable[MemoryEvent]) -> dict[str, tuple[str, ...]]:
    """Return, of each event done to a memory that there was, the ids of those that had said what the memory says."""
    memories = Memories()
    told: dict[str, list[str]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for event in sorted(events, key=lambda event: event.order):
        if event.verb is MemoryVerb.REMEMBER:
            told.setdefault(memories.said_of(event), []).append(event.id)
        elif not event.is_upkeep:
            memory = memories.newest.get(memories.resolved(event.memory_id))
            if memory is not None:
                parts = (memory.id, *memory.merged_ids)
                found[event.id] = tuple(own for part in parts for own in told.get(part, ()))
        apply(memories, event)
    return found


def _done_to(event: MemoryEvent, own: str, heirs: list[str], *, is_whole: bool) -> tuple[MemoryEvent, ...]:
    """Return an event as it is done to the heirs of its memory, of which this may be one."""
    if is_whole or event.verb not in _TO_ALL:
        heirs = [own] if own in heirs else heirs[:1]
    return tuple(event if heir == own else _moved(event, heir) for heir in heirs)


def _moved(event: MemoryEvent, memory_id: str) -> MemoryEvent:
    """Return an event as if it had been done to another memory."""
    return MemoryEvent.of(
        event.scope, event.verb, event.event_at, event.changes, memory_id=memory_id, turn=event.turn,
        place=event.place, editor=event.editor, reason=event.reason, other_id=event.other_id, evidence=event.evidence,
        conversation_id=event.conversation_id, received_at=event.received_at,
    )  # fmt: skip

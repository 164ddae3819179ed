"""Pass 3: of two memories of which only one can be true, one takes the other's place."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.memory import MemoryKind
from memory_pipeline.domain.durable.night import named
from memory_pipeline.domain.triples import name_key

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.durable.memory import Memory
    from memory_pipeline.domain.durable.night import Draft
    from memory_pipeline.domain.triples import Vocabulary

_KINDS = frozenset([MemoryKind.FACT, MemoryKind.OBSERVATION])


def settle(draft: Draft, vocabulary: Vocabulary) -> None:
    """Supersede what contradicts a fact, or what was said later.

    Two contradict each other if they say different objects of one subject and a predicate that holds one at a time.
    """
    groups: defaultdict[tuple[str, str], list[Memory]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        if memory.kind in _KINDS and memory.is_recalled and memory.subject and memory.predicate and memory.object:
            groups[name_key(memory.subject), memory.predicate].append(memory)
    for (_, predicate), group in sorted(groups.items()):
        if len(group) > 1 and vocabulary.holds_one(predicate):
            winner, *others = sorted(group, key=_strength, reverse=True)
            for loser in others:
                if name_key(loser.object or "") != name_key(winner.object or ""):
                    draft.act(MemoryVerb.SUPERSEDE, loser, _reason(winner, loser, predicate), other=winner)


def _strength(memory: Memory) -> tuple[bool, datetime, str]:
    return memory.kind is MemoryKind.FACT, memory.updated_at, memory.id


def _reason(winner: Memory, loser: Memory, predicate: str) -> str:
    if winner.kind is not loser.kind:
        why = "a fact counts more than an observation"
    elif winner.updated_at != loser.updated_at:
        why = "what was said later counts"
    else:
        why = "both were said at the same time, and one of them has to count"
    return f"{named(winner)} contradicts it, and {predicate} holds one value at a time: {why}"

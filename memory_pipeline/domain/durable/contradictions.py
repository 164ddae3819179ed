"""Pass 3: of two memories of which only one can be true, one takes the other's place."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.memory import ENDED, MemoryKind
from memory_pipeline.domain.durable.night import named
from memory_pipeline.domain.triples import name_key

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.durable.memory import Memory
    from memory_pipeline.domain.durable.night import Draft
    from memory_pipeline.domain.triples import Vocabulary

#: Kinds that can contradict each other, by what they have in common: what is true, what is liked, what is asked for.
RIVALS = {
    MemoryKind.FACT: "fact",
    MemoryKind.OBSERVATION: "fact",
    MemoryKind.PREFERENCE: "preference",
    MemoryKind.INSTRUCTION: "instruction",
}


#: What some predicates assert, or deny.
_LIKING = {"loves": "likes", "dislikes": "likes", "hates": "likes"}
_DENYING = frozenset(["dislikes", "hates"])


def settle(draft: Draft, vocabulary: Vocabulary) -> None:
    """Supersede what contradicts a fact, or what was said later.

    Two contradict each other if they say different objects of one subject and a predicate that holds one at a time, or
    if one says that the other holds no longer. How things stand at one moment does not end what lasts.
    """
    _end(draft)
    groups: defaultdict[tuple[str, str, str], list[Memory]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        if memory.kind in RIVALS and memory.is_recalled and memory.subject and memory.predicate and memory.object:
            groups[name_key(memory.subject), memory.predicate, RIVALS[memory.kind]].append(memory)
    for (_, predicate, _), group in sorted(groups.items()):
        if len(group) > 1 and vocabulary.holds_one(predicate):
            ranked = sorted(group, key=_strength, reverse=True)
            # How things stand for a moment does not end what lasts, which holds again once the moment has gone cold.
            lasting = next((memory for memory in ranked if not memory.is_point_in_time), ranked[0])
            for loser in ranked:
                winner = ranked[0] if loser.is_point_in_time else lasting
                if name_key(loser.object or "") != name_key(winner.object or ""):
                    draft.act(MemoryVerb.SUPERSEDE, loser, _reason(winner, loser, predicate), other=winner)


def _end(draft: Draft) -> None:
    """Supersede what was said to hold no more, and what said so of something that was said again since."""
    said: defaultdict[tuple[str, str, str], list[tuple[Memory, bool]]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        if memory.is_recalled and memory.subject and memory.predicate and memory.object:
            predicate, holds = _stance(memory.predicate)
            said[name_key(memory.subject), predicate, name_key(memory.object)].append((memory, holds))
    for _, group in sorted(said.items(), key=lambda entry: entry[0]):
        last, holds = max(group, key=lambda entry: (entry[0].updated_at, entry[0].id))
        for memory, held in sorted(group, key=lambda entry: entry[0].id):
            if held != holds:
                reason = f"{named(last)} denies it, and what was said later counts"
                draft.act(MemoryVerb.SUPERSEDE, memory, reason, other=last)


def _stance(predicate: str) -> tuple[str, bool]:
    """Return what a predicate asserts or denies, and whether it asserts it."""
    plain = predicate.removeprefix(ENDED)
    holds = (plain in _DENYING) == (plain != predicate)
    return _LIKING.get(plain, plain), holds


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

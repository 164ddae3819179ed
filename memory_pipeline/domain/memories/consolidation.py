"""Consolidation of durable memories: five passes over one agent's memories.

A night is a function of what is remembered, its day, and what the models say: it makes further events, at the instant
that ends the day. Each pass sees what the ones before it did: promotion, duplicates, contradictions, staleness, hot
index. They go round until nothing is left to do, so that a night after one in which nothing happened has nothing to do,
and may be left out.

A pass that fails has done nothing; the others go on, and the night says which one it was and why.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from math import floor
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.decay import REVIEW, ROTTEN, days_between, faded_at, rot_at
from memory_pipeline.domain.memories.deduplication import merge
from memory_pipeline.domain.memories.draft import Draft, Night, UpkeepSettings, named
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.hot_index import heat
from memory_pipeline.domain.memories.record import ENDED, IMPORTANCE, MemoryKind, Temperature, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.memories.draft import Curator, Similar
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period


# Pass 3: of two memories of which only one can be true, one takes the other's place.


#: Kinds that can contradict each other, by what they have in common.
RIVALS = {kind: kind.rivals for kind in MemoryKind if kind.rivals is not None}


#: What some predicates assert, or deny.
_LIKING = {"loves": "likes", "dislikes": "likes", "hates": "likes"}
_DENYING = frozenset(["dislikes", "hates"])


def settle(draft: Draft, vocabulary: Vocabulary) -> None:
    """Supersede what contradicts a fact, or what was said later.

    Two contradict each other if they say different objects of one subject and a predicate that holds one at a time, or
    if one says that the other holds no longer. How things stand at one moment does not end what lasts.
    """
    _end(draft)
    groups: defaultdict[tuple[str, str, str], list[DurableMemory]] = defaultdict(list)
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
    said: defaultdict[tuple[str, str, str], list[tuple[DurableMemory, bool]]] = defaultdict(list)
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


def _strength(memory: DurableMemory) -> tuple[bool, datetime, str]:
    return memory.kind is MemoryKind.FACT, memory.updated_at, memory.id


def _reason(winner: DurableMemory, loser: DurableMemory, predicate: str) -> str:
    if winner.kind is not loser.kind:
        why = "a fact counts more than an observation"
    elif winner.updated_at != loser.updated_at:
        why = "what was said later counts"
    else:
        why = "both were said at the same time, and one of them has to count"
    return f"{named(winner)} contradicts it, and {predicate} holds one value at a time: {why}"


# Pass 4: what nobody has said for long goes cold, and what has faded or is rotten is archived.
#
# A place in the hot index protects from going cold. It protects from fading only what is of ordinary importance at
# least, and from rot nothing.


def cool(draft: Draft, settings: UpkeepSettings, curator: Curator) -> None:
    """Archive what has faded or is rotten; of the rest, cool what is stale.

    What the curator looks at and does not find stale is not shown to it again before as many days are over.

    Raises:
        ModelError: the curator's model did not help.
    """
    confirms = curator.confirms(draft.scope)
    aged = [memory for memory in draft.memories.newest.values() if acts(memory, draft.at, settings, confirms=confirms)]
    candidates: list[DurableMemory] = []
    for memory in sorted(aged, key=lambda memory: memory.id):
        reason = _why_archive(memory, draft.at, settings)
        if reason is None:
            candidates.append(memory)
        else:
            draft.act(MemoryVerb.ARCHIVE, memory, reason)
    if not candidates:
        return
    found = curator.stale(draft.scope, candidates, draft.at, draft.day)
    for memory in candidates:
        if memory.id in found:
            draft.act(MemoryVerb.COOL, memory, found[memory.id])
        else:
            draft.act(MemoryVerb.KEEP, memory, f"{curator.name(draft.scope)} does not find it stale")


def acts(memory: DurableMemory, at: datetime, settings: UpkeepSettings, *, confirms: bool) -> bool:
    """Tell whether the pass would do something about a memory at an instant; once it would, it would ever after."""
    if not memory.is_active or memory.kind.is_permanent:
        return False
    return _is_candidate(memory, at, settings, confirms=confirms) or _why_archive(memory, at, settings) is not None


def _is_candidate(memory: DurableMemory, at: datetime, settings: UpkeepSettings, *, confirms: bool) -> bool:
    """Tell whether a memory is old enough to be stale, and of those that may be."""
    if memory.temperature is not Temperature.WARM:
        return False
    if not (confirms or memory.is_point_in_time or memory.kind is MemoryKind.OBSERVATION):
        return False
    seen = memory.updated_at if memory.reviewed_at is None else max(memory.updated_at, memory.reviewed_at)
    days = settings.snapshot_stale_after_days if memory.is_point_in_time else settings.stale_after_days
    return at - seen > timedelta(days=days)


def _why_archive(memory: DurableMemory, at: datetime, settings: UpkeepSettings) -> str | None:
    """Return why a memory is to be archived; None if it is not."""
    rotten = rot_at(memory, at)
    if rotten >= ROTTEN:
        return f"its context rot is {rotten:.4f}, {ROTTEN} or more"
    if memory.temperature is Temperature.HOT and memory.importance >= IMPORTANCE:
        return None  # every prompt shows it, which is a use that nobody notes
    left = faded_at(memory, at)
    age = days_between(memory.updated_at, at)
    if left < settings.archive_below and age > settings.archive_after_days:
        return (
            f"its importance of {memory.importance:g} has faded to {left:.4f}, less than {settings.archive_below:g}; "
            f"it was last heard {floor(age):,} days ago"
        )
    return None


# Pass 1: what several conversations have said is no longer an observation, but a fact.


def promote(draft: Draft, settings: UpkeepSettings) -> None:
    """Make facts of observations that enough conversations repeat; each stays the same memory."""
    if settings.kinds is not None and MemoryKind.FACT not in settings.kinds:
        return
    enough = 1 + settings.promote_after
    found = [
        memory
        for memory in draft.memories.newest.values()
        if memory.kind is MemoryKind.OBSERVATION and memory.is_active and len(memory.conversation_ids) >= enough
    ]
    for memory in sorted(found, key=lambda memory: memory.id):
        reason = f"it was said in {len(memory.conversation_ids)} conversations: an observation becomes a fact"
        draft.act(MemoryVerb.PROMOTE, memory, reason)


__all__ = ["PASSES", "Night", "UpkeepSettings", "consolidate", "due", "pass_of"]

#: The passes, in their order; a pass that failed is named so.
PASSES = ("promotion", "duplicates", "contradictions", "staleness", "hot index")

#: After these an earlier pass may have something to do: what was merged may be said in enough conversations, or be near
#: to something else; what was hot may be stale.
_STIRRING = frozenset([MemoryVerb.MERGE, MemoryVerb.CHILL])
#: No round undoes what one before did, so there is an end to them; this is only against mistakes.
_MOST_ROUNDS = 50
#: Time alone does something within so many days, or never.
_HORIZON = timedelta(days=36_525)
#: Longest reason why a pass failed, in characters.
_MOST_TOLD = 300
_TICK = timedelta(microseconds=1)


def consolidate(
    memories: Memories,
    scope: Scope,
    day: Period,
    bounds: tuple[datetime, datetime],
    settings: UpkeepSettings,
    vocabulary: Vocabulary,
    similar: Similar,
    curator: Curator,
) -> tuple[Night, Memories]:
    """Make one night of an agent's upkeep.

    Args:
        memories: what is remembered when the day ends: all events before that folded; left as it is.
        scope: whose memories.
        day: the day that ends, in the lake's zone.
        bounds: when it begins and ends, UTC.
        settings: what the upkeep goes by.
        vocabulary: which predicates hold one value at a time.
        similar: finds memories with near vectors.
        curator: merges contents, and says what is stale.

    Returns:
        What was done, and what is remembered after it.
    """
    since, at = bounds
    passes: tuple[Callable[[Draft], None], ...] = (
        lambda draft: promote(draft, settings),
        lambda draft: merge(draft, settings, similar, curator),
        lambda draft: settle(draft, vocabulary),
        lambda draft: cool(draft, settings, curator),
        lambda draft: heat(draft, settings),
    )
    events: list[MemoryEvent] = []
    troubles: dict[str, str] = {}
    turn = 0
    for _ in range(_MOST_ROUNDS):
        before = len(events)
        for name, work in zip(PASSES, passes, strict=True):
            turn += 1
            if name in troubles:
                continue
            draft = Draft(memories.copy(), scope, day, since, at, turn)
            try:
                work(draft)
            except Exception as error:  # noqa: BLE001  # whatever it is, the other passes and agents go on
                troubles[name] = _told(error)
                continue
            memories = draft.memories
            events += draft.events
        if not any(event.verb in _STIRRING for event in events[before:]):
            break
        since = at  # The rest has been compared.
    review = {
        memory.id: rotten
        for memory in memories.newest.values()
        if memory.is_active and not memory.kind.is_permanent and (rotten := rot_at(memory, at)) >= REVIEW
    }
    return Night(day, at, tuple(events), troubles, dict(sorted(review.items()))), memories


def _told(error: Exception) -> str:
    """Return what went wrong on one line that a table can hold."""
    text = shortened(f"{type(error).__name__}: {error}", _MOST_TOLD)
    return text.encode("utf-8", "replace").decode()


def pass_of(event: MemoryEvent) -> str:
    """Return the name of the pass that did something."""
    return PASSES[(event.turn - 1) % len(PASSES)]


def due(memories: Memories, after: datetime, settings: UpkeepSettings, *, confirms: bool) -> datetime | None:
    """Return the first instant from which on time alone gives the upkeep something to do; None if it never does.

    Only staleness depends on the time: see :func:`memory_pipeline.domain.memories.consolidation.acts`.

    Args:
        memories: what is remembered after a night.
        after: when that night was, UTC; the instant is not before it.
        settings: what the upkeep goes by.
        confirms: whether a model says what is stale.
    """
    first = after + _HORIZON
    is_due = False
    for memory in memories.newest.values():
        if not acts(memory, first, settings, confirms=confirms):
            continue
        is_due = True
        # What acts at an instant acts ever after, so the first one is found by halving.
        before = after - _TICK
        while first - before > _TICK:
            middle = before + (first - before) // 2
            if acts(memory, middle, settings, confirms=confirms):
                first = middle
            else:
                before = middle
    return first if is_due else None

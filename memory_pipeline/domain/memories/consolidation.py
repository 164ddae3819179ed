"""Consolidation of durable memories: passes over one agent's memories.

A day of consolidation is a function of the memories, the day and the answers of the models. It returns events at the
instant that ends the day. Each pass sees the effects of the previous ones: promotion, duplicates, contradictions, those
that a model finds, staleness, hot index. The passes repeat until nothing changes, so a following day without events can
be skipped.

A failed pass has no effect. The others continue, and the result names the failed pass and the reason.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from math import floor
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.decay import ROTTEN, days_between, faded_at, needs_review, rot_at
from memory_pipeline.domain.memories.deduplication import merge, recency
from memory_pipeline.domain.memories.draft import ConsolidationSettings, Draft, Night, named
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.hot_index import heat
from memory_pipeline.domain.memories.permanence import lasts, permanence_of
from memory_pipeline.domain.memories.record import ENDED, IMPORTANCE, MemoryClass, MemoryKind, Temperature, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.memories.draft import Curator, Similar
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope


#: Kinds of which several hold at once.
_NO_RIVALS = frozenset(
    [
        MemoryKind.RULE,
        MemoryKind.PROCEDURE,
        MemoryKind.REFLECTION,
        MemoryKind.DECISION,
        MemoryKind.PLAN,
        MemoryKind.TOOL_OUTPUT,
        MemoryKind.CONVERSATION_SUMMARY,
    ]
)
#: Kinds with the same value can contradict each other.
RIVALS = {kind: kind for kind in MemoryKind if kind not in _NO_RIVALS} | {MemoryKind.OBSERVATION: MemoryKind.FACT}


#: Least cosine of memories that a model compares, and most memories that it compares with a changed one.
_RELATED, _COMPARED = 0.2, 5
#: Predicates that assert or deny the same thing as another predicate.
_LIKING = {"loves": "likes", "dislikes": "likes", "hates": "likes"}
_DENYING = frozenset(["dislikes", "hates"])


def settle(draft: Draft, vocabulary: Vocabulary) -> None:
    """Pass 3: supersede memories that contradict a fact or a later memory.

    Two memories contradict each other if they have different objects for the same subject and a single-valued
    predicate, or if one denies the other. A point-in-time memory supersedes only other
    point-in-time memories.
    """
    _resolve_denials(draft)
    groups: defaultdict[tuple[str, str, str], list[DurableMemory]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        triple = _stated(memory)
        if memory.kind in RIVALS and triple is not None:
            groups[triple[0], triple[1], RIVALS[memory.kind]].append(memory)
    for (_, predicate, _), group in sorted(groups.items()):
        if len(group) > 1 and vocabulary.holds_one(predicate):
            candidates = sorted(group, key=_strength, reverse=True)
            # A point-in-time memory soon becomes cold; the best other memory is then valid again.
            best = next((memory for memory in candidates if not memory.is_point_in_time), candidates[0])
            for loser in candidates:
                winner = candidates[0] if loser.is_point_in_time else best
                if name_key(loser.object or "") != name_key(winner.object or ""):
                    draft.act(MemoryVerb.SUPERSEDE, loser, _reason(winner, loser, predicate), other=winner)


def _resolve_denials(draft: Draft) -> None:
    """Supersede memories that a later one denies, and denials that a later memory contradicts."""
    statements: defaultdict[tuple[str, str, str], list[tuple[DurableMemory, bool]]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        triple = _stated(memory)
        if triple is not None:
            predicate, asserts = _stance(triple[1])
            statements[triple[0], predicate, triple[2]].append((memory, asserts))
    for _, group in sorted(statements.items(), key=lambda entry: entry[0]):
        last, last_asserts = max(group, key=lambda entry: (entry[0].updated_at, entry[0].id))
        for memory, asserts in sorted(group, key=lambda entry: entry[0].id):
            if asserts != last_asserts:
                reason = f"{named(last)} denies it, and what was said later counts"
                draft.act(MemoryVerb.SUPERSEDE, memory, reason, other=last)


def _stated(memory: DurableMemory) -> tuple[str, str, str] | None:
    """Return the triple that a memory states, with comparable names.

    An experience states none: it happened. Entries of contexts are changed by those who write them.
    """
    if not (memory.is_recalled and memory.subject and memory.predicate and memory.object):
        return None
    if memory.memory_class is MemoryClass.EXPERIENTIAL or memory.context is not None:
        return None
    return name_key(memory.subject), memory.predicate, name_key(memory.object)


def _stance(predicate: str) -> tuple[str, bool]:
    """Return the asserted or denied predicate, and whether it is asserted."""
    plain = predicate.removeprefix(ENDED)
    asserts = (plain in _DENYING) == (plain != predicate)
    return _LIKING.get(plain, plain), asserts


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


def judge(draft: Draft, similar: Similar, curator: Curator) -> None:
    """Pass 4, for a curator with a model: supersede memories that it finds contradicted by a later one.

    A memory that changed on the day is compared with the few most similar ones that can contradict it, whatever their
    words. Memories about different subjects, of different users, and those that pass 3 leaves alone are not compared.

    Raises:
        ModelError: the call of the curator's model failed.
    """
    pool: defaultdict[tuple[str, str | None], list[DurableMemory]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        if memory.is_recalled and memory.memory_class is MemoryClass.FACTUAL and memory.context is memory.key is None:
            pool[RIVALS.get(memory.kind, memory.kind), memory.user_id].append(memory)
    found = set[tuple[str, str]]()
    for memories in pool.values():
        changed = [memory for memory in memories if memory.changed_at >= draft.since]
        if not changed or len(memories) < 2:
            continue
        known = {memory.id: memory for memory in memories}
        nearest: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for one, other, cosine in similar(changed, memories, _RELATED):
            subjects = {name_key(name) for id_ in (one, other) if (name := known[id_].subject)}
            if one != other and len(subjects) < 2:
                nearest[one][other] = nearest[other][one] = cosine
        for memory in changed:
            near = sorted(nearest[memory.id].items(), key=lambda entry: (-entry[1], entry[0]))
            found |= {(min(memory.id, other), max(memory.id, other)) for other, _ in near[:_COMPARED]}
    newest = draft.memories.newest
    both = [(newest[one], newest[other]) for one, other in sorted(found)]
    pairs = [(min(pair, key=recency), max(pair, key=recency)) for pair in both]
    reasons = curator.contradicted(draft.scope, pairs, draft.day) if pairs else {}
    for number, (older, newer) in enumerate(pairs):
        if number in reasons and newest[older.id].is_recalled:
            draft.act(MemoryVerb.SUPERSEDE, older, f"{named(newer)} contradicts it: {reasons[number]}", other=newer)


def cool(draft: Draft, settings: ConsolidationSettings, curator: Curator) -> None:
    """Pass 5: archive memories that have faded or have high context rot, and cool the stale ones among the others.

    Memories that last are left alone (:mod:`memory_pipeline.domain.memories.permanence`). A hot memory does not become
    cold. It is archived for high context rot; for faded importance only if its set importance is below the default, or
    if it weighs less than a fact, as likes do. Memories that the curator finds not stale are not shown to it again for
    another full period.

    Raises:
        ModelError: the call of the curator's model failed.
    """
    confirms = curator.confirms(draft.scope)
    aged = [
        memory
        for memory in draft.memories.newest.values()
        if _would_change(memory, draft.at, settings, confirms=confirms)
    ]
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


def _would_change(memory: DurableMemory, at: datetime, settings: ConsolidationSettings, *, confirms: bool) -> bool:
    """Return whether the pass would change a memory at an instant. If so, it would at all later instants."""
    if not memory.is_active or lasts(memory):
        return False
    return _is_candidate(memory, at, settings, confirms=confirms) or _why_archive(memory, at, settings) is not None


def _is_candidate(memory: DurableMemory, at: datetime, settings: ConsolidationSettings, *, confirms: bool) -> bool:
    """Return whether a memory is old enough, and of a kind that can become stale."""
    if memory.temperature is not Temperature.WARM:
        return False
    if not (confirms or memory.is_point_in_time or memory.kind is MemoryKind.OBSERVATION):
        return False
    seen = memory.updated_at if memory.reviewed_at is None else max(memory.updated_at, memory.reviewed_at)
    days = settings.snapshot_stale_after_days if memory.is_point_in_time else settings.stale_after_days
    return at - seen > timedelta(days=days)


def _why_archive(memory: DurableMemory, at: datetime, settings: ConsolidationSettings) -> str | None:
    rotten = rot_at(memory, at)
    if rotten >= ROTTEN:
        return f"its context rot is {rotten:.4f}, {ROTTEN} or more"
    weighs = memory.importance >= IMPORTANCE and permanence_of(memory).weight >= 1.0
    if not settings.decay or (memory.temperature is Temperature.HOT and weighs):
        return None  # Every prompt includes the hot index; these uses are not counted.
    left = faded_at(memory, at)
    age = days_between(memory.updated_at, at)
    if left < settings.archive_below and age > settings.archive_after_days:
        return (
            f"its importance of {memory.importance:g} has faded to {left:.4f}, less than {settings.archive_below:g}; "
            f"it was last heard {floor(age):,} days ago"
        )
    return None


def promote(draft: Draft, settings: ConsolidationSettings) -> None:
    """Pass 1: turn observations that enough conversations repeat into facts with the same ids."""
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


__all__ = ["ConsolidationSettings", "Night", "consolidate", "due", "review_due", "reviews"]

#: Events after which an earlier pass may apply again: a merged memory may be promoted or have further duplicates; a
#: formerly hot memory may be stale.
_REPEATING = frozenset([MemoryVerb.MERGE, MemoryVerb.CHILL])
#: A safeguard: no round undoes the previous ones, so they always terminate.
_MOST_ROUNDS = 50
#: Time alone has an effect within a century, or never.
_HORIZON = timedelta(days=36_525)
_MAX_REASON = 300
_TICK = timedelta(microseconds=1)


def consolidate(
    memories: Memories,
    scope: Scope,
    day: Period,
    bounds: tuple[datetime, datetime],
    settings: ConsolidationSettings,
    vocabulary: Vocabulary,
    similar: Similar,
    curator: Curator,
) -> tuple[Night, Memories]:
    """Run one day of an agent's consolidation. Return its result, and the memories after it.

    `memories` is the fold of all events up to the end of the day; it is not changed. `day` is in the lake's time zone;
    `bounds` is its start and end, UTC.
    """
    since, at = bounds
    passes: dict[str, Callable[[Draft], None]] = {
        "promotion": lambda draft: promote(draft, settings),
        "duplicates": lambda draft: merge(draft, settings, similar, curator),
        "contradictions": lambda draft: settle(draft, vocabulary),
        "judgement": lambda draft: judge(draft, similar, curator),
        "staleness": lambda draft: cool(draft, settings, curator),
        "hot index": lambda draft: heat(draft, settings),
    }
    if not curator.confirms(scope):
        del passes["judgement"]
    events: list[MemoryEvent] = []
    troubles: dict[str, str] = {}
    turn = 0
    for _ in range(_MOST_ROUNDS):
        before = len(events)
        for name, work in passes.items():
            turn += 1
            if name in troubles:
                continue
            draft = Draft(memories.copy(), scope, day, since, at, turn)
            try:
                work(draft)
            except Exception as error:  # noqa: BLE001  # the other passes and agents continue after any error
                troubles[name] = _one_line(error)
                continue
            memories = draft.memories
            events += draft.events
        if not any(event.verb in _REPEATING for event in events[before:]):
            break
        since = at  # All earlier changes have been compared.
    return Night(day, at, tuple(events), troubles, reviews(memories, at)), memories


def reviews(memories: Memories, at: datetime) -> dict[str, float]:
    """Return the context rot of the memories that need a review at an instant, by id."""
    newest = memories.newest.values()
    found = {memory.id: rot_at(memory, at) for memory in newest if memory.is_active and needs_review(memory, at)}
    return dict(sorted(found.items()))


def _one_line(error: Exception) -> str:
    """Return an error as one line of valid Unicode, for tables."""
    text = shortened(f"{type(error).__name__}: {error}", _MAX_REASON)
    return text.encode("utf-8", "replace").decode()


def due(memories: Memories, after: datetime, settings: ConsolidationSettings, *, confirms: bool) -> datetime | None:
    """Return the first instant at which the consolidation would act without new events, or None.

    `after` is the end of the last consolidated day, UTC: the earliest possible result. Only staleness depends on the
    time.
    """
    fading = [one for one in memories.newest.values() if one.is_active and not lasts(one)]
    return _first(fading, lambda one, at: _would_change(one, at, settings, confirms=confirms), after)


def review_due(memories: Memories, after: datetime) -> datetime | None:
    """Return the first instant after `after` (UTC) at which another memory needs a review, or None."""
    fresh = [one for one in memories.newest.values() if one.is_active and not needs_review(one, after)]
    return _first(fresh, needs_review, after)


def _first(
    memories: Iterable[DurableMemory], is_so: Callable[[DurableMemory, datetime], bool], after: datetime
) -> datetime | None:
    """Return the first instant from `after` on at which something is so of a memory; once so, it stays so."""
    first = after + _HORIZON
    found = None
    # The oldest is often the first one, and then no other needs a search.
    for memory in sorted(memories, key=lambda one: one.updated_at):
        if not is_so(memory, first):
            continue
        before = after - _TICK
        while first - before > _TICK:
            middle = before + (first - before) // 2
            if is_so(memory, middle):
                first = middle
            else:
                before = middle
        found = first
    return found

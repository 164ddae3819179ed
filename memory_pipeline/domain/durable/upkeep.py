"""The nightly upkeep of durable memories: five passes over what one agent keeps.

A night is a function of what is remembered, its day, and what the models say: it makes further events, at the instant
that ends the day. Each pass sees what the ones before it did: promotion, duplicates, contradictions, staleness, hot
index. They go round until nothing is left to do, so that a night after one in which nothing happened has nothing to do,
and may be left out.

A pass that fails has done nothing; the others go on, and the night says which one it was and why.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.durable.contradictions import settle
from memory_pipeline.domain.durable.duplicates import merge
from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.hot_index import heat
from memory_pipeline.domain.durable.memory import shortened
from memory_pipeline.domain.durable.night import Draft, Night, UpkeepSettings
from memory_pipeline.domain.durable.promotion import promote
from memory_pipeline.domain.durable.scores import REVIEW, rot_at
from memory_pipeline.domain.durable.staleness import acts, cool

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.durable.events import MemoryEvent
    from memory_pipeline.domain.durable.fold import Memories
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Curator, Similar
    from memory_pipeline.domain.triples import Vocabulary

__all__ = ["PASSES", "Night", "UpkeepSettings", "due", "keep", "pass_of"]

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


def keep(
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
        if memory.is_active and not memory.kind.is_standing and (rotten := rot_at(memory, at)) >= REVIEW
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

    Only staleness depends on the time: see :func:`memory_pipeline.domain.durable.staleness.acts`.

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

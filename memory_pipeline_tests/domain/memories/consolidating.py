"""Runs a day of consolidation on given events, vectors and curator."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings, Night, consolidate
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.periods import Calendar, Period
from memory_pipeline.domain.text.words import plain, spaced
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline_tests.domain.memories.histories import ACME, NOON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.domain.memories.draft import Curator, Similar
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.scopes import Scope

DAY = Period.parse("daily", "2024-01-15")
SETTINGS, VOCABULARY, CALENDAR, RULES = ConsolidationSettings(), Vocabulary(), Calendar(), RuleCurator()


def day_after(days: float) -> Period:
    """Return the day a number of days after that of `NOON`."""
    return CALENDAR.period(DAY.grain, NOON + timedelta(days=days))


def end_of(day: Period) -> datetime:
    return CALENDAR.bounds(day)[1]


def words_alike(
    changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
) -> list[tuple[str, str, float]]:
    """Compare contents by their sets of words, whose cosines are easy to compute by hand."""
    found = []
    for one in changed:
        own = _words(one)
        for other in others:
            its = _words(other)
            cosine = len(own & its) / ((len(own) * len(its)) ** 0.5 or 1)
            if one.id != other.id and cosine >= least:
                found.append((one.id, other.id, cosine))
    return found


def nothing_alike(
    changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
) -> list[tuple[str, str, float]]:
    return []


def as_near_as(cosines: Mapping[tuple[str, str], float]) -> Similar:
    """Return a comparison that returns the given cosines for pairs of contents."""

    def similar(
        changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
    ) -> list[tuple[str, str, float]]:
        return [
            (one.id, other.id, cosine)
            for one in changed
            for other in others
            for pair in ((one.content, other.content), (other.content, one.content))
            if (cosine := cosines.get(pair, -1.0)) >= least
        ]

    return similar


def consolidated(
    known: Memories | Iterable[MemoryEvent], day: Period = DAY, *, settings: ConsolidationSettings = SETTINGS,
    vocabulary: Vocabulary = VOCABULARY, similar: Similar = words_alike, curator: Curator = RULES, scope: Scope = ACME,
) -> tuple[Night, Memories]:  # fmt: skip
    """Consolidate one day of the given memories, or of the fold of events."""
    memories = known if isinstance(known, Memories) else fold_events(known)
    return consolidate(memories, scope, day, CALENDAR.bounds(day), settings, vocabulary, similar, curator)


def did(night: Night) -> list[tuple[str, str, str | None]]:
    """Return the verb, memory and other memory of each event."""
    return [(event.verb.value, event.memory_id, event.other_id) for event in night.events]


def _words(memory: DurableMemory) -> frozenset[str]:
    return frozenset(spaced(plain(memory.content)).split())

"""Helpers for tests of durable memories: events, and lakes with committed and pending ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.codec.memories import consolidation_to_rows, events_to_rows, rows_to_events
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, MEMORY_EVENTS
from memory_pipeline.memories import DurableMemories, MemoryOverlay
from memory_pipeline.memories.state import JoinedOverlays
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.steps.fold_memories import project_events, refold_memories
from memory_pipeline_tests.building import ACME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: Default time of a test's first event.
MONDAY = datetime(2024, 1, 15, 8, tzinfo=UTC)


def minute(number: float) -> datetime:
    """Return the time `number` minutes after the first event."""
    return MONDAY + timedelta(minutes=number)


def event(
    verb: MemoryVerb,
    at: datetime,
    memory_id: str | None = None,
    other_id: str | None = None,
    *,
    scope: Scope = ACME,
    editor: str = "agent",
    reason: str | None = None,
    evidence: Sequence[str] = (),
    conversation_id: str | None = None,
    **changes: Any,
) -> MemoryEvent:
    """Return an event. Other keywords are its changes."""
    return MemoryEvent.of(
        scope, verb, at, Changes.of(changes), memory_id=memory_id, other_id=other_id, editor=editor, reason=reason,
        evidence=evidence, conversation_id=conversation_id, received_at=at,
    )  # fmt: skip


def remember(content: str, at: datetime = MONDAY, **changes: Any) -> MemoryEvent:
    return event(MemoryVerb.REMEMBER, at, content=content, **changes)


def write(lake: Lake, *events: MemoryEvent) -> None:
    lake.ensure()
    lake.journal.append(events)


def land(lake: Lake, *events: MemoryEvent, consolidation: Sequence[MemoryEvent] = (), are_edits: bool = True) -> None:
    """Write events to their tables, and fold them."""
    fold_memories(lake, *events, consolidation=consolidation, are_edits=are_edits)
    refold(lake, (*events, *consolidation)[0].scope)


def fold_memories(
    lake: Lake, *events: MemoryEvent, consolidation: Sequence[MemoryEvent] = (), are_edits: bool = True
) -> None:
    """Write events to their tables without a fold."""
    lake.ensure()
    nights = {
        one.event_at: Period.containing(Grain.DAILY, (one.event_at - timedelta(seconds=1)).date())
        for one in consolidation
    }
    for spec, new in (
        (MEMORY_EVENTS, events_to_rows(events, are_edits=are_edits)),
        (CONSOLIDATION_EVENTS, consolidation_to_rows(consolidation, nights)),
    ):
        keys = set(new["period"].to_pylist())
        rows = {row["id"]: row for row in (*lake.tables.read(spec, keys).to_pylist(), *new.to_pylist())}
        lake.tables.replace(spec, keys, pa.Table.from_pylist(list(rows.values()), spec.schema))
        project_events(lake, spec, keys)


def landed(lake: Lake, scope: Scope = ACME) -> list[MemoryEvent]:
    """Return all committed events."""
    return rows_to_events(lake.events.read([scope]))


def refold(lake: Lake, scope: Scope = ACME) -> Memories:
    """Fold an agent's committed events."""
    refold_memories(lake, HashingEmbedder(), [scope])
    return fold_events(landed(lake, scope))


def state_of(lake: Lake, scope: Scope = ACME) -> MemoryOverlay:
    return MemoryOverlay(lake, scope, PendingJournal(lake, scope))


def kept_in(lake: Lake, scope: Scope = ACME) -> DurableMemories:
    state = state_of(lake, scope)
    return DurableMemories(JoinedOverlays(lambda: [state]))


def contents(memories: Sequence[Any]) -> list[str]:
    return [memory.content for memory in memories]


def by_kind(memories: Memories) -> dict[str, list[str]]:
    """Return the contents of active memories by kind."""
    counting = sorted((one for one in memories.newest.values() if one.is_active), key=lambda one: one.kind)
    return {kind: sorted(contents(list(own))) for kind, own in groupby(counting, key=lambda one: one.kind)}

"""Rebuild lost and damaged tables of the projections ``events`` and ``memories``."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake.codec.memories import events_projected
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, EVENTS, MEMORIES, MEMORY_EVENTS
from memory_pipeline.steps.fold_memories import EVENT_ORDER, ORDER_COLUMNS
from memory_pipeline.steps.group import by_scope
from memory_pipeline.steps.memory_folding import folded_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake

_log = logging.getLogger(__name__)


def mend_memories(lake: Lake, embedder: Embedder, *, thoroughly: bool = False) -> list[str]:
    """Restore tables of ``events`` and ``memories`` that are missing or cannot be opened. Return their names.

    With `thoroughly`, read all of their rows.
    """
    damaged = [
        name
        for rows in (lake.events, lake.memory_rows)
        for name in sorted(rows.tables())
        if rows.is_damaged(name, thoroughly=thoroughly)
    ]
    restore_memory_tables(lake, damaged, embedder)
    return damaged


def restore_memory_tables(lake: Lake, names: Collection[str], embedder: Embedder) -> None:
    """Rebuild tables of ``events`` from the records of their scopes, and tables of ``memories`` from their events."""

    def events_of(name: str) -> pa.Table:
        where = lake.events.rows_of(name)
        return pa.concat_tables(
            events_projected(lake.tables.read_sound(spec, where=where))
            for spec in (MEMORY_EVENTS, CONSOLIDATION_EVENTS)
        )

    def memories_of(name: str) -> pa.Table:
        events = lake.events.scan(ORDER_COLUMNS).filter(lake.memory_rows.rows_of(name)).sort_by(EVENT_ORDER)
        # All events are folded: the damaged table must not be read.
        return folded_rows(lake, embedder, by_scope(events), (), {})

    for spec, rows, rows_of in ((EVENTS, lake.events, events_of), (MEMORIES, lake.memory_rows, memories_of)):
        for name in sorted(names):
            if name.startswith(f"{spec.name}-"):
                _log.warning("%s is missing or damaged; rebuilding it", name)
                rows.restore(name, partial(rows_of, name))

"""Rebuild lost and damaged tables of all projections from the records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake.codec.graph import operations_to_project
from memory_pipeline.lake.codec.memories import events_projected
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, GRAPH_OPERATIONS, MEMORY_EVENTS
from memory_pipeline.steps.fold_graph import folded_graphs
from memory_pipeline.steps.fold_memories import folded_memories
from memory_pipeline.steps.index import indexable_rows
from memory_pipeline.steps.scopes import recorded_scopes

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


def restore_projections(lake: Lake, embedder: Embedder, *, thoroughly: bool = False) -> list[str]:
    """Rebuild the tables of projections that are lost or cannot be opened. Return their names.

    With `thoroughly`, read all of their rows. Operations and events come before the graphs and memories folded from
    them.
    """
    if lake.index.roster.tables():
        lake.index.adopt(embedder)
    return [
        name
        for projection, rows_of in (
            (lake.index, partial(indexable_rows, lake, embedder.dimension)),
            (lake.operations, partial(_operations, lake)),
            (lake.graph_rows, partial(folded_graphs, lake)),
            (lake.events, partial(_events, lake)),
            (lake.memory_rows, partial(folded_memories, lake, embedder)),
            (lake.scopes, partial(recorded_scopes, lake)),
        )
        for name in projection.mend(rows_of, thoroughly=thoroughly)
    ]


def _operations(lake: Lake, where: pc.Expression) -> pa.Table:
    return operations_to_project(lake.tables.read(GRAPH_OPERATIONS, where=where, damaged="skip"))


def _events(lake: Lake, where: pc.Expression) -> pa.Table:
    specs = (MEMORY_EVENTS, CONSOLIDATION_EVENTS)
    return pa.concat_tables(events_projected(lake.tables.read(spec, where=where, damaged="skip")) for spec in specs)

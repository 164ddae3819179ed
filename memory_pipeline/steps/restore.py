"""Rebuild lost and damaged tables of all projections from the records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.index.projection import VERSION
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, GRAPH_OPERATIONS, MEMORY_EVENTS
from memory_pipeline.steps.indices import every_index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.sharded_rows import ShardedRows

#: A digest of the tables as they were when none had to be rebuilt.
_SOUND = "state/restored"


def restore_projections(lake: Lake, embedder: Embedder, *, thoroughly: bool = False) -> list[str]:
    """Rebuild the tables of projections that are lost or cannot be opened. Return their names.

    Tables that have not changed since all of them could be opened are not opened again, because that imports LanceDB.
    With `thoroughly`, read all of their rows. Operations and events come before the graphs and memories folded from
    them.
    """
    if lake.index.roster.tables():
        lake.indices.adopt(embedder)
    state = _state(lake).encode()
    if not thoroughly and lake.storage.read(_SOUND) == state:
        return []
    mended = []
    for projection, rows_of in _sources(lake, embedder):
        mended += projection.mend(rows_of, thoroughly=thoroughly)
    if not mended:
        lake.storage.write(_SOUND, state)
    return mended


def _state(lake: Lake) -> str:
    """Return a digest of the tables and their newest manifests, which change with each commit."""
    return digest(
        VERSION, *(projection.manifests() for projection in (*lake.indices.all(), *lake.projections.values()))
    )


def _sources(lake: Lake, embedder: Embedder) -> Sequence[tuple[ShardedRows, Callable[[pc.Expression], pa.Table]]]:
    """Return the projections in the order in which they are rebuilt, with functions that return their rows."""
    from memory_pipeline.steps.fold_graph import folded_graphs  # these import Polars
    from memory_pipeline.steps.fold_memories import folded_memories
    from memory_pipeline.steps.index import indexable_rows
    from memory_pipeline.steps.scopes import recorded_scopes

    return (
        *((index, partial(indexable_rows, lake, index)) for index in every_index(lake)),
        (lake.operations, partial(_operations, lake)),
        (lake.graph_rows, partial(folded_graphs, lake)),
        (lake.events, partial(_events, lake)),
        (lake.memory_rows, partial(folded_memories, lake, embedder)),
        (lake.scopes, partial(recorded_scopes, lake)),
    )


def _operations(lake: Lake, where: pc.Expression) -> pa.Table:
    from memory_pipeline.lake.codec.graph import operations_to_project

    return operations_to_project(lake.tables.read(GRAPH_OPERATIONS, where=where, damaged="skip"))


def _events(lake: Lake, where: pc.Expression) -> pa.Table:
    import pyarrow as pa

    from memory_pipeline.lake.codec.memories import events_projected

    specs = (MEMORY_EVENTS, CONSOLIDATION_EVENTS)
    return pa.concat_tables(events_projected(lake.tables.read(spec, where=where, damaged="skip")) for spec in specs)

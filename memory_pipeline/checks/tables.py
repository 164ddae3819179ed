"""Where the rows of an asset lie, and how checks read them: whole partitions, as many at a time as fit in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from memory_pipeline.domain.grains import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.identity import EVENT
from memory_pipeline.lake.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, table_asset
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
    UPKEEP,
    UPKEEP_EVENTS,
)
from memory_pipeline.steps.nights import UPKEEP_ASSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow.compute as pc

    from memory_pipeline.checks.check import Look
    from memory_pipeline.lake.schemas import TableSpec

#: Files of so many bytes are read at once; compressed, so their columns take several times as much.
_PART_BYTES = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where rows lie.

    Attributes:
        asset: the asset that holds them.
        what: what their ids begin with; None where ids say nothing.
        grain: of the periods that they lie in.
        spec: the table.
        fixed: the values of its partition columns before the last.
        period: the column that names a row's period; empty where rows are of none, and are always looked at.
    """

    asset: str
    what: str | None
    grain: Grain
    spec: TableSpec
    fixed: Mapping[str, str] = field(default_factory=dict)
    period: str = "period"

    @property
    def is_by_period(self) -> bool:
        """Tell whether a partition is a period; those of the graph and of durable memories are agents."""
        return self.spec.partition_by[-1] == "period"


SAID = Place(MESSAGES_ASSET, "message", Grain.WORKING, MESSAGES)
FOUND = Place(table_asset(Grain.WORKING), "working", Grain.WORKING, FACTS)
SUMMARIZED = {
    grain: Place(table_asset(grain), grain.value, grain, SUMMARIES, {"grain": grain.value}) for grain in SUMMARY_GRAINS
}
KNOWN = Place(GRAPH_ASSET, "graph", Grain.WORKING, GRAPH_FACTS, period="source_hour")
OPERATIONS = Place(GRAPH_ASSET, None, Grain.WORKING, GRAPH_OPERATIONS)
#: Durable memories, what they are folded from, what their upkeep decided, and how far it has come.
DURABLE = Place(MEMORIES_ASSET, None, Grain.WORKING, MEMORIES, period="")
HAPPENED = Place(MEMORIES_ASSET, EVENT, Grain.WORKING, MEMORY_EVENTS)
DECIDED = Place(UPKEEP_ASSET, None, Grain.DAILY, UPKEEP_EVENTS, period="night")
KEPT_UP = Place(UPKEEP_ASSET, None, Grain.DAILY, UPKEEP, period="")

#: The rows that a grain consists of.
REMEMBERED = {Grain.WORKING: FOUND, **SUMMARIZED}


def parts_of(
    look: Look,
    place: Place,
    columns: Collection[str],
    keys: Collection[str] | None = None,
    where: pc.Expression | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows at a place that are looked at, some whole partitions at a time, in the partitions' order.

    Args:
        look: says which periods are looked at.
        place: where.
        columns: those that are wanted.
        keys: partitions to read instead of those that are looked at.
        where: a condition on the rows.
    """
    lake = look.lake
    sizes = lake.tables.sizes(place.spec, **place.fixed)
    wanted = look.keys(place.grain) if keys is None and place.is_by_period else keys
    present = sorted(sizes if wanted is None else sizes.keys() & set(wanted))
    own = {place.period} - {""} if keys is None and not place.is_by_period else set()
    names = {*columns, *own}
    batch: list[str] = []
    size = 0
    for key in present:
        batch.append(key)
        size += sizes[key]
        if size >= _PART_BYTES:
            yield _frame(look, place, batch, names, where)
            batch, size = [], 0
    if batch:
        yield _frame(look, place, batch, names, where)


def _frame(
    look: Look, place: Place, keys: list[str], columns: Collection[str], where: pc.Expression | None
) -> pl.DataFrame:
    rows = look.lake.tables.read(place.spec, keys, columns=columns, where=where, **place.fixed)
    frame = pl.DataFrame(pl.from_arrow(rows))
    periods = look.keys(place.grain)
    if periods is not None and not place.is_by_period and place.period in columns:
        frame = frame.filter(pl.col(place.period).is_in(periods))
    return frame


def agent_names(rows: pl.DataFrame, *columns: str) -> list[str]:
    """Return how offenders are named: ``acme/support 2024-01-15``; the named columns follow the agent."""
    return [
        " ".join([f"{workspace_id}/{agent_id}", *map(str, rest)])
        for workspace_id, agent_id, *rest in rows.select("workspace_id", "agent_id", *columns).iter_rows()
    ]

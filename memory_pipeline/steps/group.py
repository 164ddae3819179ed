"""Rows by key: how the steps take a table apart into agents and periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from memory_pipeline.domain.conversations import Scope

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import Period


def by_scope(rows: pa.Table) -> dict[Scope, pa.Table]:
    """Return the rows of each agent, in the rows' order."""
    return {Scope(*key): part for key, part in _grouped(rows, "workspace_id", "agent_id")}


def by_period(rows: pa.Table, periods: list[Period]) -> dict[Period, pa.Table]:
    """Return the rows of each of `periods`, in the rows' order; an empty table where there are none."""
    parts = {key[0]: part for key, part in _grouped(rows, "period")}
    return {period: parts.get(period.key, rows.slice(0, 0)) for period in periods}


def _grouped(rows: pa.Table, *columns: str) -> list[tuple[list[Any], pa.Table]]:
    keys = pl.DataFrame(pl.from_arrow(rows.select(list(columns)))).with_row_index("row")
    groups = keys.group_by(*columns, maintain_order=True).agg("row")
    return [(key, _take(rows, indices)) for *key, indices in groups.iter_rows()]


def _take(rows: pa.Table, indices: list[int]) -> pa.Table:
    """Return rows by their ascending positions; without copying them where they stand together."""
    if indices[-1] - indices[0] + 1 == len(indices):
        return rows.slice(indices[0], len(indices))
    return rows.take(pa.array(indices))

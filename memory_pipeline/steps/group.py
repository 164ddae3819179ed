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
    return [(key, rows.take(pa.array(indices))) for *key, indices in groups.iter_rows()]

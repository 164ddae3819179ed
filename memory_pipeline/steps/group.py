"""Rows by key: how the steps take a table apart into scopes and periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scopes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.domain.periods import Period


def by_scope(rows: pa.Table) -> dict[Scope, pa.Table]:
    """Return the rows of each scope, in the rows' order."""
    return {Scope(*key): part for key, part in _grouped(rows, *SCOPE_COLUMNS)}


def scopes_in(rows: pa.Table) -> set[Scope]:
    """Return the scopes that the rows are of."""
    return set(scopes_of(rows.select(SCOPE_COLUMNS).group_by(SCOPE_COLUMNS).aggregate([])))


def agents_in(rows: pa.Table) -> int:
    """Return how many agents the rows are of."""
    return int(rows.group_by(["workspace_id", "agent_id"]).aggregate([]).num_rows)


def by_period(rows: pa.Table, periods: list[Period]) -> dict[Period, pa.Table]:
    """Return the rows of each of `periods`, in the rows' order; an empty table where there are none."""
    parts = {key[0]: part for key, part in _grouped(rows, "period")}
    return {period: parts.get(period.key, rows.slice(0, 0)) for period in periods}


def _grouped(rows: pa.Table, *columns: str) -> list[tuple[list[Any], pa.Table]]:
    keys = pl.DataFrame(pl.from_arrow(rows.select(list(columns)))).with_row_index("row")
    groups = keys.group_by(*columns, maintain_order=True).agg("row")
    if len(groups) > 1:
        # Brought together once and then sliced: a take for each group costs as much as one for all.
        order = groups["row"].explode()
        rows = rows if order.is_sorted() else rows.take(order.to_arrow())
    parts: list[tuple[list[Any], pa.Table]] = []
    start = 0
    for *key, indices in groups.iter_rows():
        parts.append((key, rows.slice(start, len(indices))))
        start += len(indices)
    return parts

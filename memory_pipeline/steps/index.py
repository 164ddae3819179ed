"""Write facts and summaries, with their vectors, to the search index."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.index.index_rows import rows_to_index
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.results import PartitionResult, content_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

#: The columns that show whose a row is, and whether it has changed.
_MARKS = ("id", *SCOPE_COLUMNS, "period", "digest", "embed_model")
#: Up to so many rows are read at once.
_ROWS_AT_ONCE = 20_000
#: Maximum number of attempts if the table keeps changing.
_ATTEMPTS = 5


def index_periods(
    lake: Lake, grain: Grain, periods: list[Period], dimension: int, shard: int | None = None
) -> list[PartitionResult]:
    """Sync the index of periods with their table, in a few commits for each shard. Return one result per period.

    Contents and vectors are read of new and changed rows only. A concurrent run may replace rows while they are
    indexed, and its newer index might be overwritten, so that another round may be needed.

    Raises:
        CommitConflictError: the rows kept changing; the journal files are not acknowledged.
    """
    written: set[str] = set()
    keys = [period.key for period in periods]
    for _ in range(_ATTEMPTS):
        # A row that is indexed after this belongs to another run.
        removable = lake.index.ids(grain, periods, shard)
        state = lake.tables.state(_table(grain), keys, shard, **_fixed(grain))
        rows = _read(lake, grain, keys, shard, columns=_MARKS)
        project = _projection(lake, grain, rows, dimension, shard)
        written |= lake.index.replace(grain, periods, rows, shard=shard, removable=removable, project=project)
        if lake.tables.state(_table(grain), keys, shard, **_fixed(grain)) == state:
            break
    else:
        raise CommitConflictError(f"{grain} rows of {periods[0]} to {periods[-1]} keep changing; run it again later")
    return [
        PartitionResult(
            asset=index_asset(grain),
            period=period,
            input_digest=marks,
            output_digest=marks,  # the index has the same rows as its table
            rows=part.num_rows,
            agents=agents_in(part),
            changed=period.key in written,
        )
        for period, part in by_period(rows, periods).items()
        for marks in [content_digest(part)]
    ]


def _projection(
    lake: Lake, grain: Grain, rows: pa.Table, dimension: int, shard: int | None
) -> Callable[[pa.Table], pa.Table]:
    """Return the function that reads some of `rows`, with their contents and vectors, as index rows.

    A few rows are read at once, as they go to many tables; many rows are read when they are written, to bound memory.
    """

    def read(ids: pa.Table) -> pa.Table:
        where = pc.field("id").isin(ids["id"].combine_chunks())
        return _read(lake, grain, ids["period"].unique().to_pylist(), shard, where=where)

    @cache
    def all_rows() -> pa.Table:
        return read(rows)

    def project(some: pa.Table) -> pa.Table:
        if rows.num_rows > _ROWS_AT_ONCE:
            return rows_to_index(grain, read(some), dimension)
        found = all_rows()
        return rows_to_index(grain, found.filter(pc.is_in(found["id"], some["id"].combine_chunks())), dimension)

    return project


def indexable_rows(lake: Lake, dimension: int, where: pc.Expression) -> pa.Table:
    """Return the index rows of all facts and summaries that meet a condition.

    Rows with a vector by another embedder than the index's are left out until their periods are recomputed.
    """
    where &= pc.field("embed_model").is_null() | (pc.field("embed_model") == lake.index.made_by)
    tables = (
        lake.tables.read(_table(grain), where=where, shard=None, damaged="skip", **_fixed(grain)) for grain in Grain
    )
    return pa.concat_tables(rows_to_index(grain, rows, dimension) for grain, rows in zip(Grain, tables, strict=True))


def _table(grain: Grain) -> TableSpec:
    return FACTS if grain is Grain.WORKING else SUMMARIES


def _fixed(grain: Grain) -> dict[str, str]:
    return {} if grain is Grain.WORKING else {"grain": grain.value}


def _read(
    lake: Lake,
    grain: Grain,
    keys: list[str],
    shard: int | None,
    columns: Collection[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    return lake.tables.read(_table(grain), keys, columns=columns, where=where, shard=shard, **_fixed(grain))

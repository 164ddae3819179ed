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
from memory_pipeline.lake.schemas import table_of
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.results import PartitionResult, digests_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake

#: The columns that show whose a row is, and whether it has changed.
_COMPARED = ("id", *SCOPE_COLUMNS, "period", "digest", "embed_model")
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
    spec, fixed = table_of(grain)
    for _ in range(_ATTEMPTS):
        # A row that is indexed after this belongs to another run.
        removable = lake.index.ids(grain, periods, shard)
        state = lake.tables.state(spec, keys, shard, **fixed)
        rows = lake.tables.read(spec, keys, columns=_COMPARED, shard=shard, **fixed)
        project = _projection(lake, grain, rows, dimension, shard)
        written |= lake.index.replace(grain, periods, rows, shard=shard, removable=removable, project=project)
        if lake.tables.state(spec, keys, shard, **fixed) == state:
            break
    else:
        raise CommitConflictError(f"{grain} rows of {periods[0]} to {periods[-1]} keep changing; run it again later")
    return [
        PartitionResult(
            asset=index_asset(grain),
            period=period,
            input_digest=combined,
            output_digest=combined,  # the index has the same rows as its table
            rows=part.num_rows,
            agents=agents_in(part),
            changed=period.key in written,
        )
        for period, part in by_period(rows, periods).items()
        for combined in [digests_of(part).combined]
    ]


def _projection(
    lake: Lake, grain: Grain, rows: pa.Table, dimension: int, shard: int | None
) -> Callable[[pa.Table], pa.Table]:
    """Return the function that reads some of `rows`, with their contents and vectors, as index rows.

    A few rows are read at once, as they go to many tables; many rows are read when they are written, to bound memory.
    """

    def read(ids: pa.Table) -> pa.Table:
        (spec, fixed), where = table_of(grain), pc.field("id").isin(ids["id"].combine_chunks())
        return lake.tables.read(spec, ids["period"].unique().to_pylist(), where=where, shard=shard, **fixed)

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
    return pa.concat_tables(
        rows_to_index(grain, lake.tables.read(spec, where=where, shard=None, damaged="skip", **fixed), dimension)
        for grain in Grain
        for spec, fixed in [table_of(grain)]
    )

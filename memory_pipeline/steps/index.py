"""Write facts and summaries, with their vectors, to the search indices."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.schemas import table_of
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.indices import every_index
from memory_pipeline.steps.results import PartitionResult, digests_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import VectorIndex

#: The columns that show whose a row is, and whether it has changed.
_COMPARED = ("id", *SCOPE_COLUMNS, "period", "digest", "embed_model")
#: Up to so many rows are read at once.
_ROWS_AT_ONCE = 20_000
#: Maximum number of attempts if the table keeps changing.
_ATTEMPTS = 5


def index_periods(lake: Lake, grain: Grain, periods: list[Period], shard: int | None = None) -> list[PartitionResult]:
    """Sync all indices with the table of some periods. Return one result per period.

    Raises:
        CommitConflictError: the rows kept changing; the journal files are not acknowledged.
    """
    written: set[str] = set()
    # Listed after the rows were written: an index that is created later is made from them.
    for index in every_index(lake):
        rows, changed = sync_index(lake, index, grain, periods, shard)
        written |= changed
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


def sync_index(
    lake: Lake, index: VectorIndex, grain: Grain, periods: list[Period], shard: int | None = None
) -> tuple[pa.Table, set[str]]:
    """Sync an index with the table of some periods, in a few commits for each shard.

    A row whose stored vector is of another embedder keeps its vector in the index, or else has none. Contents and
    vectors are read of new and changed rows only. A concurrent run may replace rows while they are indexed, and its
    newer index might be overwritten, so that another round may be needed.

    Returns:
        The rows of the table, without contents, and the keys of the periods in which something was written.

    Raises:
        CommitConflictError: the rows kept changing.
    """
    written: set[str] = set()
    keys = [period.key for period in periods]
    spec, fixed = table_of(grain)
    for _ in range(_ATTEMPTS):
        # A row that is indexed after this belongs to another run.
        removable = index.ids(grain, periods, shard)
        state = lake.tables.state(spec, keys, shard, **fixed)
        rows = lake.tables.read(spec, keys, columns=_COMPARED, shard=shard, **fixed)
        project = _projection(lake, index, grain, rows, shard)
        wanted = _as_indexed(index, grain, rows, keys, shard)
        written |= index.replace(grain, periods, wanted, shard=shard, removable=removable, project=project)
        if lake.tables.state(spec, keys, shard, **fixed) == state:
            return rows, written
    raise CommitConflictError(f"{grain} rows of {periods[0]} to {periods[-1]} keep changing; run it again later")


def _as_indexed(index: VectorIndex, grain: Grain, rows: pa.Table, keys: list[str], shard: int | None) -> pa.Table:
    """Return rows with the embedders that they have in the index."""
    models = index.models_of(rows)
    if not models.null_count:
        return rows.set_column(rows.schema.get_field_index("embed_model"), "embed_model", models)
    within = f"grain = '{grain}' AND period IN ({listed(keys)}) AND embed_model IS NOT NULL"
    stored = index.scan(["id", "digest", "embed_model"], within, shard)
    known = pc.binary_join_element_wise(stored["id"], stored["digest"], " ")
    own = pc.binary_join_element_wise(rows["id"], rows["digest"], " ")
    kept = pc.if_else(pc.is_in(own, known.combine_chunks()), index.made_by, pa.scalar(None, pa.string()))
    return rows.set_column(rows.schema.get_field_index("embed_model"), "embed_model", pc.coalesce(models, kept))


def _projection(
    lake: Lake, index: VectorIndex, grain: Grain, rows: pa.Table, shard: int | None
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
            return index.rows_of(grain, read(some))
        found = all_rows()
        return index.rows_of(grain, found.filter(pc.is_in(found["id"], some["id"].combine_chunks())))

    return project


def indexable_rows(lake: Lake, index: VectorIndex, where: pc.Expression) -> pa.Table:
    """Return the rows that an index has of all facts and summaries that meet a condition.

    Rows with a vector by another embedder than the index's have none, until they are embedded.
    """
    return pa.concat_tables(
        index.rows_of(grain, lake.tables.read(spec, where=where, shard=None, damaged="skip", **fixed))
        for grain in Grain
        for spec, fixed in [table_of(grain)]
    )

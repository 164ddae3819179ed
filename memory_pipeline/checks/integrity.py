"""Checks of schemas, of unique ids in the right partition, and of the vector index against the tables."""

from __future__ import annotations

import operator
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.checks.check import (
    AGAIN,
    OPERATION_ROWS,
    PENDING,
    RECOMPUTE,
    ROWS_OF_GRAIN,
    SAMPLE,
    Offences,
    check,
    scope_names,
)
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.index.vector_index import FIRST
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, index_asset, table_asset
from memory_pipeline.steps.fold_graph import stale_scopes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_pipeline.checks.check import Check, CheckContext, Place
    from memory_pipeline.lake.schema_types import TableSpec


_ROWS_PER_BATCH = 65_536
_THREADS = 8


def duplicate_ids(name: str, place: Place, description: str, remedy: str = RECOMPUTE) -> Check:
    """Return the check for duplicate ids, and for ids in another partition than the one they name.

    A scan sees whole partitions, so together the two conditions find an id that is in two partitions.
    """
    key = place.spec.partition_by[-1] if place.spec.partition_by else "scope"
    columns = ("id", *dict.fromkeys(filter(None, [key, place.period])))

    def see(_: CheckContext, part: pl.DataFrame) -> Offences:
        duplicates = part.filter(pl.struct(key, "id").is_duplicated())
        misplaced = part.clear() if place.what is None else part.filter(~_names_its_period(place))
        surplus = len(duplicates) - duplicates.n_unique([key, "id"])
        names = [*duplicates["id"].unique(maintain_order=True).head(SAMPLE), *misplaced["id"].head(SAMPLE)]
        numbers = {"rows": len(part), "rows_too_many": surplus, "rows_astray": len(misplaced)}
        return Offences(surplus + len(misplaced), tuple(names[:SAMPLE]), numbers)

    made = check(name, place.asset, remedy, blocks=True, description=description, place=place, columns=columns)
    return made(see)


def _names_its_period(place: Place) -> pl.Expr:
    return pl.col("id").str.starts_with(pl.concat_str(pl.lit(f"{place.what}:"), pl.col(place.period), pl.lit(":")))


def schema(asset: str, places: Sequence[Place], remedy: str) -> Check:
    """Return the check for missing columns, columns of the wrong type, and missing values.

    An offender is a column of a partition. A nullable column may be missing from a file, because older versions did not
    write it.
    """

    @check("schema", asset, remedy, blocks=True)
    def schema_differences(context: CheckContext) -> Offences:
        """Files have the columns and types of the schema, and required columns have no nulls."""
        return _schema_differences(context, places)

    return schema_differences


def _schema_differences(context: CheckContext, places: Sequence[Place]) -> Offences:
    files = rows = 0
    offenders: Counter[str] = Counter()
    for place in places:
        dataset = context.lake.tables.dataset(place.spec)
        if not isinstance(dataset, ds.FileSystemDataset):
            continue  # no files
        wanted = _wanted(context, place)
        fragments = list(dataset.get_fragments(filter=wanted))
        with ThreadPoolExecutor(_THREADS) as pool:
            schemas = list(pool.map(lambda fragment: fragment.physical_schema, fragments))
        readable_fragments = []
        for fragment, physical in zip(fragments, schemas, strict=True):
            keys = ds.get_partition_keys(fragment.partition_expression)
            reasons = [f"{_partition(place.spec, keys)}, {reason}" for reason in _misfits(place.spec, physical)]
            offenders.update(reasons)
            if not reasons:
                readable_fragments.append(fragment)
        files += len(fragments)
        held = context.lake.tables.rows_held(place.spec) if len(readable_fragments) == len(fragments) else None
        readable = ds.FileSystemDataset(readable_fragments, dataset.schema, dataset.format, dataset.filesystem)
        if held is not None:
            readable = ds.dataset(held.filter(wanted) if wanted is not None else held)
        rows += _count_missing(place.spec, readable, offenders)
    return Offences.of(offenders, {"files": files, "rows": rows})


def _wanted(context: CheckContext, place: Place) -> pc.Expression | None:
    """Return the filter for the files to check. Files of the graph hold all hours of an agent."""
    conditions = [pc.field(column) == value for column, value in place.fixed.items()]
    keys = context.keys(place.grain)
    if keys is not None and place.is_by_period:
        conditions.append(pc.field("period").isin(pa.array(keys, pa.string())))
    return reduce(operator.and_, conditions) if conditions else None


def _misfits(spec: TableSpec, physical: pa.Schema) -> Iterator[str]:
    """Yield the differences between a file's columns and the schema. Files do not store their partition columns."""
    present = {column.name: column.type for column in physical}
    for column in spec.schema:
        if column.name not in present:
            if not column.nullable and column.name not in spec.partition_by:
                yield f"{column.name} is missing"
        elif present[column.name] != column.type:
            yield f"{column.name} is {present[column.name]} and not {column.type}"
    yield from (f"{name} is unknown" for name in present if name not in spec.schema.names)


def _count_missing(spec: TableSpec, dataset: ds.Dataset, offenders: Counter[str]) -> int:
    """Add the required columns with missing values to `offenders`. Return the number of rows."""
    required = [column.name for column in spec.schema if not column.nullable]
    rows = 0
    for batch in dataset.to_batches(columns=required, batch_size=_ROWS_PER_BATCH):
        rows += batch.num_rows
        for name in required:
            if batch[name].null_count:
                keys = batch.select(list(spec.partition_by)).filter(batch[name].is_null()).to_pylist()
                offenders.update(f"{_partition(spec, key)}, {name} has no value" for key in keys)
    return rows


def _partition(spec: TableSpec, keys: Mapping[str, object]) -> str:
    return " ".join([spec.name, *(str(keys[column]) for column in spec.partition_by)])


_COMPARED = ["period", "id", "digest", "embed_model"]


def index_differences(grain: Grain) -> Check:
    """Return the check for periods of agents with missing, extra or outdated rows in the index."""

    def conclude(context: CheckContext, seen: list[pl.DataFrame]) -> Offences:
        rows = pl.concat(seen)
        names, agents = rows.select(*SCOPE_COLUMNS, "period").clear(), rows.select(SCOPE_COLUMNS)
        for index in context.lake.indices.all():
            if index.name != FIRST and not index.is_complete:
                continue  # it is being built
            found = index.scan_all(grain, context.keys(grain), [*SCOPE_COLUMNS, *_COMPARED])
            indexed = pl.DataFrame(pl.from_arrow(found))
            agents = pl.concat([agents, indexed.select(SCOPE_COLUMNS)])
            expected = rows
            if context.lake.indices.are_many:
                # A row that another embedder has embedded may have no vector in this index yet.
                own = indexed.select("id", own="embed_model").unique("id")
                model = pl.when(pl.col("embed_model") == str(index.made_by)).then("embed_model").otherwise("own")
                expected = rows.join(own, on="id", how="left").with_columns(embed_model=model).drop("own")
            names = pl.concat([names, _uneven(expected, indexed, "period")])
        names = names.unique().sort([*SCOPE_COLUMNS, "period"])
        return Offences.of(scope_names(names, "period"), {"rows": len(rows), "agents": agents.unique().height})

    return check(
        "index_level",
        index_asset(grain),
        AGAIN,
        description=f"The index is in sync with {table_asset(grain)}.",
        place=ROWS_OF_GRAIN[grain],
        columns=(*SCOPE_COLUMNS, *_COMPARED),
        conclude=conclude,
    )(_whole)


def _conclude_graph(context: CheckContext, seen: list[pl.DataFrame]) -> Offences:
    rows, keys = pl.concat(seen), context.keys(Grain.WORKING)
    found = pl.DataFrame(pl.from_arrow(context.lake.operations.scan(rows.columns)))
    found = found if keys is None else found.filter(pl.col("period").is_in(keys))
    scopes = {*map(scope_of, *_uneven(rows, found).to_dict(as_series=False).values()), *stale_scopes(context.lake)}
    return Offences.of(sorted(map(str, scopes)), {"rows": len(rows)})


def _whole(_: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
    return part


def _uneven(rows: pl.DataFrame, others: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return the scopes, with `columns`, of rows that are not equally often in both frames."""
    both = pl.concat([rows.with_columns(n=pl.lit(1)), others.select(rows.columns).with_columns(n=pl.lit(-1))])
    uneven = both.group_by(rows.columns).agg(pl.sum("n")).filter(pl.col("n") != 0)
    return uneven.select(*SCOPE_COLUMNS, *columns).unique()


graph_level = check(
    "graph_level",
    GRAPH_ASSET,
    f"{PENDING}, or {RECOMPUTE}",
    description="Operations by scope are in sync with their records, and each graph is the fold of its operations.",
    place=OPERATION_ROWS,
    columns=(*SCOPE_COLUMNS, "period", "id"),
    conclude=_conclude_graph,
)(_whole)

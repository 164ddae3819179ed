"""Partitions of a table: their files, parts and rows, and the comparison of two states.

A list of files comes from the table's log, with columns ``path``, ``size_bytes`` and ``partition.…``.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.lake.layout import keys_of_shard, shard_of
from memory_pipeline.lake.schema_types import PART

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec


#: pyarrow's column with the file of each row.
FILE = "__filename"
#: The rows of a period are stored by shard if they are so many.
LARGE_FROM = 50_000


def in_shard(shard: int, shards: int) -> pc.Expression:
    """Return the condition on the rows of a shard."""
    first, last = keys_of_shard(shard, shards)
    return (pc.field("scope") >= first) & (pc.field("scope") < last)


def part_of(shard: int) -> str:
    """Return the part with the rows of a shard."""
    return f"{shard:03d}"


def by_shard(rows: pa.Table, shards: int) -> pa.Array:
    """Return the part of each row of a period that is stored by shard."""
    keys = rows["scope"].combine_chunks().dictionary_encode()
    parts = pa.array([part_of(shard_of(key, shards)) for key in keys.dictionary.to_pylist()], pa.string())
    return parts.take(keys.indices)


def stored_schema(spec: TableSpec) -> pa.Schema:
    """Return the columns of a Delta table."""
    schema = without_metadata(spec.schema)
    return schema.append(pa.field(PART, pa.string(), nullable=False)) if spec.has_parts else schema


def without_metadata(schema: pa.Schema) -> pa.Schema:
    """Return a schema without comments: a table's log would treat them as part of the types."""
    return pa.schema([field.remove_metadata() for field in schema])


def selected(
    files: pa.Table,
    spec: TableSpec,
    keys: Collection[str] | None = None,
    fixed: Mapping[str, str] | None = None,
    parts: Collection[str] | None = None,
    scopes: Collection[str] | None = None,
) -> pa.Table:
    """Return the files of the partitions with `fixed` values, one of `keys` in the last column, and one of `parts`.

    None means any. Files with no row of `scopes`, as their lowest and highest key say, are left out.
    """
    wanted = {column: [value] for column, value in (fixed or {}).items()}
    for column, values in {**wanted, spec.partition_by[-1]: keys, PART: parts}.items():
        if values is not None:
            files = files.filter(pc.is_in(files.column(f"partition.{column}"), pa.array(list(values), pa.string())))
    if scopes is not None and {"min.scope", "max.scope"} <= set(files.column_names):
        may_hold = pc.is_null(files["min.scope"])
        for scope in scopes:
            is_inside = pc.and_(pc.less_equal(files["min.scope"], scope), pc.greater_equal(files["max.scope"], scope))
            may_hold = pc.or_(may_hold, pc.fill_null(is_inside, fill_value=True))
        files = files.filter(may_hold)
    return files


def keys_of(files: pa.Table, spec: TableSpec) -> list[str]:
    """Return the value of the last partition column for each file."""
    keys: list[str] = files.column(f"partition.{spec.partition_by[-1]}").to_pylist()
    return keys


def location(storage: Storage, spec: TableSpec, path: str) -> str:
    """Return the address of a table's file, as pyarrow expects it."""
    return storage.file_path(f"tables/{spec.name}/{path}")


def dataset(storage: Storage, files: pa.Table, spec: TableSpec) -> ds.Dataset:
    """Return files listed by the log as a dataset. On many partitions, several times faster than to_pyarrow_table()."""
    partitions = [
        reduce(operator.and_, (pc.field(column) == row[f"partition.{column}"] for column in spec.partition_by))
        for row in files.select([f"partition.{column}" for column in spec.partition_by]).to_pylist()
    ]
    return ds.FileSystemDataset.from_paths(
        [location(storage, spec, path) for path in files.column("path").to_pylist()],
        schema=without_metadata(spec.schema),
        format=ds.ParquetFileFormat(),
        filesystem=storage.arrow_filesystem(),
        partitions=partitions,
    )


def read(
    storage: Storage,
    files: pa.Table | None,
    spec: TableSpec,
    columns: Collection[str] | None = None,
    where: pc.Expression | None = None,
    rare: tuple[pc.Expression, Collection[str]] | None = None,
) -> pa.Table:
    """Return the rows of files in the table's schema; none if `files` is None.

    `rare` is a condition that is part of `where`, and its columns, none of them a partition column: of files without
    rows that meet it, no other column is read.

    Raises:
        FileNotFoundError: a file is missing.
    """
    names = [name for name in spec.schema.names if columns is None or name in columns]
    schema = pa.schema([spec.schema.field(name) for name in names])
    if files is not None and files.num_rows and rare is not None:
        files = _with_rows(storage, files, spec, *rare)
    if files is None or not files.num_rows:
        return schema.empty_table()
    return dataset(storage, files, spec).to_table(columns=names, filter=where).cast(schema)


def _with_rows(
    storage: Storage, files: pa.Table, spec: TableSpec, where: pc.Expression, columns: Collection[str]
) -> pa.Table:
    """Return the files with rows that meet a condition on columns. Reads these columns only."""
    paths = [location(storage, spec, path) for path in files["path"].to_pylist()]
    # Of many small files, most of the time goes into each column of the schema and each partition.
    searched = ds.FileSystemDataset.from_paths(
        paths,
        schema=pa.schema([spec.schema.field(name).remove_metadata() for name in columns]),
        format=ds.ParquetFileFormat(),
        filesystem=storage.arrow_filesystem(),
    )
    found = searched.to_table(columns=[FILE], filter=where)[FILE].unique()
    return files.filter(pc.is_in(pa.array(paths, pa.string()), found))


def order_of(rows: pa.Table, spec: TableSpec) -> pa.Array:
    """Return the indices that sort rows as partitions are stored."""
    return pc.sort_indices(rows, [(name, "ascending") for name in (*spec.partition_by, *spec.order_by)])


def sorted_rows(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows in the order in which partitions are stored."""
    return rows.take(order_of(rows, spec)).combine_chunks()


def changed_keys(old: pa.Table, new: pa.Table, spec: TableSpec) -> set[str]:
    """Return the keys of the partitions with different rows."""
    before, after = _split(old, spec), _split(new, spec)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _split(rows: pa.Table, spec: TableSpec) -> dict[str, pa.Table]:
    """Split rows into sorted partitions, without the columns that are not compared."""
    compared = sorted_rows(rows.drop_columns(list(spec.not_compared)).replace_schema_metadata(), spec)
    parts: dict[str, pa.Table] = {}
    start = 0
    for key, end in runs(compared.column(spec.partition_by[-1])):
        parts[key] = compared.slice(start, end - start)
        start = end
    return parts


def runs(column: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Return the value and the end of each run of equal values of a column."""
    if not len(column):
        return []
    encoded = pc.run_end_encode(column.combine_chunks())
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return list(zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True))


def sql_text(value: str) -> str:
    """Return a text as an SQL literal."""
    doubled = value.replace("'", "''")
    return f"'{doubled}'"


def predicate(
    spec: TableSpec, keys: Collection[str], fixed: Mapping[str, str], parts: Collection[str] | None = None
) -> str:
    """Return the SQL condition that selects partitions, or parts of them."""
    terms = [f"{column} = {sql_text(value)}" for column, value in fixed.items()]
    for column, values in ((spec.partition_by[-1], keys), (PART, parts)):
        if values is not None:
            listed = ", ".join(map(sql_text, sorted(values)))
            terms.append(f"{column} IN ({listed})")
    return " AND ".join(terms)

"""Partitions of a table: their files and rows, comparison of two states, and writing of large ones.

A list of files comes from the table's log, with columns ``path``, ``size_bytes`` and ``partition.…``.
"""

from __future__ import annotations

import operator
import tempfile
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec


def without_metadata(schema: pa.Schema) -> pa.Schema:
    """Return a schema without comments: a table's log would treat them as part of the types."""
    return pa.schema([field.remove_metadata() for field in schema])


def selected(
    files: pa.Table, spec: TableSpec, keys: Collection[str] | None = None, fixed: Mapping[str, str] | None = None
) -> pa.Table:
    """Return the files of the partitions with `fixed` values and one of `keys` in the last column; None means any."""
    for column, value in (fixed or {}).items():
        files = files.filter(pc.equal(files.column(f"partition.{column}"), value))
    if keys is not None:
        column = files.column(f"partition.{spec.partition_by[-1]}")
        files = files.filter(pc.is_in(column, pa.array(list(keys), pa.string())))
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
) -> pa.Table:
    """Return the rows of files in the table's schema; none if `files` is None.

    Raises:
        FileNotFoundError: a file is missing.
    """
    names = [name for name in spec.schema.names if columns is None or name in columns]
    schema = pa.schema([spec.schema.field(name) for name in names])
    if files is None or not files.num_rows:
        return schema.empty_table()
    return dataset(storage, files, spec).to_table(columns=names, filter=where).cast(schema)


def sorted_rows(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows in the order in which partitions are stored and compared."""
    return rows.sort_by([(name, "ascending") for name in (*spec.partition_by, *spec.order_by)]).combine_chunks()


def changed_keys(old: pa.Table, new: pa.Table, spec: TableSpec) -> set[str]:
    """Return the keys of the partitions with different rows in two sorted tables."""
    before, after = _split(old, spec), _split(new, spec)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _split(rows: pa.Table, spec: TableSpec) -> dict[str, pa.Table]:
    """Split a sorted table into partitions without copying, and drop the columns that are not compared."""
    compared = rows.drop_columns(list(spec.not_compared)).replace_schema_metadata()
    parts: dict[str, pa.Table] = {}
    start = 0
    for key, end in runs(rows.column(spec.partition_by[-1])):
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


def predicate(spec: TableSpec, keys: Collection[str], fixed: Mapping[str, str]) -> str:
    """Return the SQL condition that selects partitions. Their names come from domain types and contain no quotes."""
    terms = [f"{column} = '{value}'" for column, value in fixed.items()]
    listed = ", ".join(f"'{key}'" for key in sorted(keys))
    terms.append(f"{spec.partition_by[-1]} IN ({listed})")
    return " AND ".join(terms)


# Partitions that do not fit in memory are changed part by part, and still written in one commit. The new rows are
# buffered in an unnamed file on the local disk, which disappears with the process.


#: Rows per batch; with vectors, about a megabyte.
_ROWS = 500


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """A change of partitions part by part.

    Attributes:
        conditions: the parts; every old or new row meets exactly one.
        change: gets the number of a part and its rows, and returns the new rows. It is called for each part in turn,
            and again for all of them after a concurrent commit.
    """

    conditions: Sequence[pc.Expression]
    change: Callable[[int, pa.Table], pa.Table]


class StreamingWrite:
    """New rows of a table, buffered on the local disk.

    Raises:
        LakeError: the disk with temporary files is full.
    """

    def __init__(self, spec: TableSpec, schema: pa.Schema) -> None:
        self._key = spec.partition_by[-1]
        self._schema = schema
        self._name = spec.name

    def __enter__(self) -> Self:
        try:
            self._file = tempfile.TemporaryFile(prefix="memory-pipeline-")
        except OSError as error:
            raise self._full(error) from error
        self._writer = pa.ipc.new_stream(self._file, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: pa.Table) -> None:
        """Append rows.

        Raises:
            LakeError: the disk with temporary files is full.
        """
        try:
            self._writer.write_table(rows.cast(self._schema), max_chunksize=_ROWS)
        except OSError as error:
            raise self._full(error) from error

    def reader(self, keys: Collection[str]) -> pa.RecordBatchReader:
        """Return the rows of partitions, in order. No rows can be added afterwards.

        Raises:
            LakeError: the disk with temporary files is full.
        """
        try:
            self._writer.close()
            self._file.seek(0)
        except OSError as error:
            raise self._full(error) from error
        return pa.RecordBatchReader.from_batches(self._schema, self._batches(pa.array(sorted(keys), pa.string())))

    def _batches(self, keys: pa.Array) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self._file) as stream:
            for batch in stream:
                yield batch.filter(pc.is_in(batch.column(self._key), keys))

    def _full(self, error: OSError) -> LakeError:
        return LakeError(
            f"rows of table {self._name} cannot be buffered in {tempfile.gettempdir()}: "
            f"{error.strerror or error}; free some of it, or set TMPDIR to another folder; nothing was written"
        )

"""Partitions of a table: their files and rows, how two states compare, and how large ones are written.

A list of files is what the table's log says: columns ``path``, ``size_bytes`` and ``partition.…``.
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
    """Return a schema without the comments on its fields, which a table's log would take for part of the type."""
    return pa.schema([field.remove_metadata() for field in schema])


def selected(
    files: pa.Table, spec: TableSpec, keys: Collection[str] | None = None, fixed: Mapping[str, str] | None = None
) -> pa.Table:
    """Return those of a list of files that hold the named partitions.

    Args:
        files: of all partitions.
        spec: their table.
        keys: values of the last partition column; all if not given.
        fixed: the values of partition columns before it.
    """
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
    """Return the address of a file of a table, as pyarrow takes it."""
    return storage.file_path(f"tables/{spec.name}/{path}")


def dataset(storage: Storage, files: pa.Table, spec: TableSpec) -> ds.Dataset:
    """Open files of the log's own list: several times faster than DeltaTable.to_pyarrow_table() on many partitions."""
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
    """Return the rows of files in the table's schema.

    Args:
        storage: where they lie.
        files: which; None for those of a table that does not exist.
        spec: their table.
        columns: the columns to read; all if not given.
        where: a condition on the rows.

    Raises:
        FileNotFoundError: a file is no longer there.
    """
    names = [name for name in spec.schema.names if columns is None or name in columns]
    schema = pa.schema([spec.schema.field(name) for name in names])
    if files is None or not files.num_rows:
        return schema.empty_table()
    return dataset(storage, files, spec).to_table(columns=names, filter=where).cast(schema)


def sorted_rows(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows in the order in which partitions are kept and compared."""
    return rows.sort_by([(name, "ascending") for name in (*spec.partition_by, *spec.order_by)]).combine_chunks()


def changed_keys(old: pa.Table, new: pa.Table, spec: TableSpec) -> set[str]:
    """Return the keys of the partitions whose rows differ between two sorted tables."""
    before, after = _split(old, spec), _split(new, spec)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _split(rows: pa.Table, spec: TableSpec) -> dict[str, pa.Table]:
    """Cut a sorted table into its partitions, without copying, and without the columns that are not compared."""
    compared = rows.drop_columns(list(spec.not_compared)).replace_schema_metadata()
    parts: dict[str, pa.Table] = {}
    start = 0
    for key, end in runs(rows.column(spec.partition_by[-1])):
        parts[key] = compared.slice(start, end - start)
        start = end
    return parts


def runs(column: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Return each run of equal values of a column as the value and where it ends."""
    if not len(column):
        return []
    encoded = pc.run_end_encode(column.combine_chunks())
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return list(zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True))


def predicate(spec: TableSpec, keys: Collection[str], fixed: Mapping[str, str]) -> str:
    """Return the SQL condition that selects partitions; their names come from domain types and hold no quotes."""
    terms = [f"{column} = '{value}'" for column, value in fixed.items()]
    listed = ", ".join(f"'{key}'" for key in sorted(keys))
    terms.append(f"{spec.partition_by[-1]} IN ({listed})")
    return " AND ".join(terms)


# Partitions whose rows do not all fit in memory: changed part by part, and written in one commit all the same.
#
# What the parts become waits on the local disk, in a file without a name, which vanishes with the process however that
# ends. From there it streams into the table.


#: Rows of a batch on the way into a table: with vectors, about a megabyte.
_ROWS = 500


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """How partitions are changed part by part.

    Attributes:
        conditions: the parts; every row that is there, or is to be there, meets exactly one.
        change: gets the number of a part and its rows, and returns those that shall stand in their place. It is called
            for one part after the other, and for all of them again when another writer came first.
    """

    conditions: Sequence[pc.Expression]
    change: Callable[[int, pa.Table], pa.Table]


class StreamingWrite:
    """Rows on their way into a table, on the local disk.

    Args:
        spec: the table.
        schema: of the rows, as they are written.

    Raises:
        LakeError: the disk that holds temporary files takes no more.
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
        """Take rows, after those that are there.

        Raises:
            LakeError: the disk that holds temporary files takes no more.
        """
        try:
            self._writer.write_table(rows.cast(self._schema), max_chunksize=_ROWS)
        except OSError as error:
            raise self._full(error) from error

    def reader(self, keys: Collection[str]) -> pa.RecordBatchReader:
        """Return the rows of partitions, in order. No rows are taken afterwards.

        Raises:
            LakeError: the disk that holds temporary files takes no more.
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
            f"rows of table {self._name} cannot wait in {tempfile.gettempdir()} until they are written: "
            f"{error.strerror or error}; free some of it, or name another folder by TMPDIR; nothing was written"
        )

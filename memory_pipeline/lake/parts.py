"""Partitions whose rows do not all fit in memory: changed part by part, and written in one commit all the same.

What the parts become waits on the local disk, in a file without a name, which vanishes with the process however that
ends. From there it streams into the table.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from memory_pipeline.lake.schema_types import TableSpec

#: Rows of a batch on the way into a table: with vectors, about a megabyte.
_ROWS = 500


@dataclass(frozen=True, slots=True)
class Parts:
    """How partitions are changed part by part.

    Attributes:
        conditions: the parts; every row that is there, or is to be there, meets exactly one.
        change: gets the number of a part and its rows, and returns those that shall stand in their place. It is called
            for one part after the other, and for all of them again when another writer came first.
    """

    conditions: Sequence[pc.Expression]
    change: Callable[[int, pa.Table], pa.Table]


class Spool:
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

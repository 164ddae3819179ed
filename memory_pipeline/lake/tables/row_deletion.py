"""Decides which rows of partitions to delete, and writes replacements for files that keep some rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from posixpath import dirname
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from ulid import ULID

from memory_pipeline.lake.tables.partitions import FILE, dataset, location, runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec

#: Returns for each row whether to delete it.
Gone = Callable[[pa.Table], Any]

#: Number of files examined at once, and number of threads that write them.
_BATCH, _THREADS = 1_024, 4
#: The writer settings of :mod:`~memory_pipeline.lake.tables.tables`.
_WRITING = {"compression": "zstd", "compression_level": 3, "row_group_size": 8_192, "use_dictionary": False}


@dataclass(frozen=True, slots=True)
class Written:
    """A file with the remaining rows: path below the table, size in bytes, and statistics for the log."""

    path: str
    size: int
    statistics: str


@dataclass(frozen=True, slots=True)
class RowDeletion:
    """The deletion in one file: the number of deleted rows, and the replacement file; None if all rows are deleted."""

    gone: int
    instead: Written | None


class DeletionPlan:
    """The deletions in the files of a table. Each file is examined once, because files never change.

    `gone` gets the given columns, with rows of many partitions at once, and returns for each row whether to delete it.
    """

    def __init__(self, storage: Storage, spec: TableSpec, gone: Gone, columns: Collection[str]) -> None:
        self._storage = storage
        self._spec = spec
        self._gone = gone
        self._columns = [name for name in spec.schema.names if name in columns]
        self._verdicts: dict[str, RowDeletion | None] = {}
        self._written: list[Written] = []

    def verdicts(self, files: pa.Table) -> dict[str, RowDeletion]:
        """Return the deletion for each of the given files, by path. Unaffected files are omitted.

        Raises:
            FileNotFoundError: a file is missing.
        """
        paths = files.column("path").to_pylist()
        unknown = [number for number, path in enumerate(paths) if path not in self._verdicts]
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(unknown), _BATCH):
                batch = files.take(unknown[start : start + _BATCH])
                judged = dict(pool.map(self._judged, self._masks(batch)))
                self._verdicts |= {path: judged.get(path) for path in batch.column("path").to_pylist()}
        return {path: verdict for path in paths if (verdict := self._verdicts[path]) is not None}

    def discard(self, kept: Collection[str]) -> None:
        """Delete the written files, except replacements of the files at `kept`.

        Must not be called while a commit of them may still succeed.
        """
        used = {verdict.instead for path in kept if (verdict := self._verdicts[path]) is not None}
        self._storage.delete(
            f"tables/{self._spec.name}/{written.path}" for written in self._written if written not in used
        )

    def _masks(self, files: pa.Table) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        found = dataset(self._storage, files, self._spec).to_table(columns=[*self._columns, FILE])
        gone = np.asarray(self._gone(found.drop_columns([FILE])), np.bool_)
        paths = {location(self._storage, self._spec, path): path for path in files.column("path").to_pylist()}
        start = 0
        for name, end in runs(found.column(FILE)):
            mask = gone[start:end]
            start = end
            if mask.any():
                yield paths[name], mask

    def _judged(self, masked: tuple[str, NDArray[np.bool_]]) -> tuple[str, RowDeletion]:
        path, mask = masked
        count = int(mask.sum())
        return path, RowDeletion(count, None if count == len(mask) else self._rewritten(path, mask))

    def _rewritten(self, path: str, mask: NDArray[np.bool_]) -> Written:
        """Write the remaining rows of a file to a new one in the same folder, with the same order and columns."""
        filesystem = self._storage.arrow_filesystem()
        with filesystem.open_input_file(location(self._storage, self._spec, path)) as file:
            rows = pq.ParquetFile(file).read(use_threads=False).filter(pa.array(~mask))
        target = f"{dirname(path)}/part-{ULID()}.zstd.parquet"
        with filesystem.open_output_stream(location(self._storage, self._spec, target)) as file:
            pq.write_table(rows, file, **_WRITING, write_statistics=list(self._spec.statistics))
            written = Written(target, file.tell(), _statistics(rows))
        self._written.append(written)
        return written


def _statistics(rows: pa.Table) -> str:
    found: dict[str, object] = {"numRecords": rows.num_rows}
    if "scope" in rows.column_names:
        ends = pc.min_max(rows["scope"]).as_py()
        found |= {f"{end}Values": {"scope": ends[end]} for end in ("min", "max")}
    return json.dumps(found)

"""Keep the rows of files in memory, for a check or a step that reads the same files many times.

Most of the time of reading a small file goes into opening it. A file never changes, so rows are known by its path.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memory_pipeline.lake.tables.damage import FAILURES
from memory_pipeline.lake.tables.partitions import keys_of, read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec

#: Compressed bytes of all files that are held. In memory they take several times as much.
_MOST_BYTES = 32_000_000


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows of files, all columns, and the paths of the files by key."""

    paths: dict[str, set[str]]
    bytes: int
    rows: pa.Table


class HeldRows:
    """The rows of the files that were read last, within :meth:`holding`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._held: dict[str, list[_Held]] = {}  # by table
        self._users = 0
        self._lock = threading.Lock()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold what is read until the last user leaves."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._held = {}

    def read(self, spec: TableSpec, files: pa.Table | None, *, is_small: bool = False) -> pa.Table | None:
        """Return all rows of files listed by the log; None outside :meth:`holding`, and if they are not held.

        With `is_small`, files are read now and held, unless they are too large or damaged.
        """
        if not self._users or files is None or not files.num_rows:
            return None
        paths: dict[str, set[str]] = {}
        for key, path in zip(keys_of(files, spec), files["path"].to_pylist(), strict=True):
            paths.setdefault(key, set()).add(path)
        with self._lock:
            for held in self._held.get(spec.name, ()):
                if all(held.paths.get(key) == own for key, own in paths.items()):
                    if len(held.paths) == len(paths):
                        return held.rows
                    return held.rows.filter(pc.is_in(held.rows[spec.partition_by[-1]], pa.array(paths, pa.string())))
        size = pc.sum(files["size_bytes"]).as_py()
        if is_small and size <= _MOST_BYTES:
            with suppress(*FAILURES, ValueError):  # such as a null in a required column
                rows = read(self._storage, files, spec).combine_chunks()  # a scan of many chunks is slow
                self._hold(spec, _Held(paths, size, rows))
                return rows
        return None

    def _hold(self, spec: TableSpec, held: _Held) -> None:
        with self._lock:
            left = _MOST_BYTES - held.bytes
            for name, listed in reversed(self._held.items()):
                self._held[name] = [one for one in listed if (left := left - one.bytes) >= 0]
            own = self._held.pop(spec.name, [])
            if self._users:
                self._held[spec.name] = [held, *own]  # the newest first, in the table that was read last


def rows_of(rows: pa.Table, spec: TableSpec, columns: Collection[str] | None, where: pc.Expression | None) -> pa.Table:
    """Return the rows of files that meet a condition, as :func:`.partitions.read` does."""
    names = [name for name in spec.schema.names if columns is None or name in columns]
    found = ds.dataset(rows).to_table(columns=names, filter=where)
    return found.cast(pa.schema([spec.schema.field(name) for name in names]))

"""Keep the rows of one scope in memory, and for other processes in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.index.scope_cache import CACHED_FROM, CacheEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.index.scoped_rows import ScopedRows

_ROWS = "rows"


class RowsOfScope:
    """The rows of one scope that meet a condition, read again when they have changed. Not safe in several threads.

    Args:
        rows: the projection.
        scope: of the rows.
        columns: those to read, with ``id``.
        where: the condition; None for all rows.
        is_worth: returns whether few rows are cached in a file, too.
    """

    def __init__(
        self,
        rows: ScopedRows,
        scope: Scope,
        columns: Sequence[str],
        where: str | None = None,
        is_worth: Callable[[], bool] = lambda: False,
    ) -> None:
        self._all = rows
        self._scope = scope
        self._columns = list(columns)
        self._where = where
        self._is_worth = is_worth
        self._form = digest("rows", self._columns, where or "")
        self._version: int | None = None
        #: The rows with their digests, and the same without.
        self._known: tuple[pa.Table, pa.Table] | None = None

    def read(self) -> pa.Table:
        """Return the newest rows, and the same object as before if none has changed.

        Raises:
            DamagedError: the table is lost or cannot be read.
        """
        version = self._all.version(self._scope)
        if self._known is None or version != self._version:
            # The table has rows of other scopes, too.
            if self._known is None or _states(self._select(["id", "digest"])) != _states(self._known[0]):
                entry = self._cached(version) if self._known is None else None
                rows = self._read(version) if entry is None else entry
                self._known = rows, rows.select(self._columns)
            self._version = version
        return self._known[1]

    def _cached(self, version: int | None) -> pa.Table | None:
        entry = None if version is None else self._all.cached(self._scope, self._part, self._form)
        return None if entry is None or entry.version != version else entry.tables[_ROWS]

    def _read(self, version: int | None) -> pa.Table:
        rows = self._select([*self._columns, *({"digest"} - set(self._columns))])
        if version is not None and (rows.num_rows >= CACHED_FROM or self._is_worth()):
            self._all.store_cached(self._scope, self._part, self._form, CacheEntry(version, {}, {_ROWS: rows}, {}))
        return rows

    @property
    def _part(self) -> str:
        return f"{_ROWS}-{self._form[:8]}"

    def _select(self, columns: Sequence[str]) -> pa.Table:
        return self._all.read([self._scope], columns, self._where)


def _states(rows: pa.Table) -> set[tuple[str, str]]:
    return set(zip(rows["id"].to_pylist(), rows["digest"].to_pylist(), strict=True))

"""Keep the rows of one scope in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.index.scoped_rows import ScopedRows


class RowsOfScope:
    """The rows of one scope that meet a condition, read again when they have changed. Not safe in several threads.

    Args:
        rows: the projection.
        scope: of the rows.
        columns: those to read, with ``id``.
        where: the condition; None for all rows.
    """

    def __init__(self, rows: ScopedRows, scope: Scope, columns: Sequence[str], where: str | None = None) -> None:
        self._all = rows
        self._scope = scope
        self._columns = list(columns)
        self._where = where
        self._version: int | None = None
        self._known: tuple[set[tuple[str, str]], pa.Table] | None = None

    def read(self) -> pa.Table:
        """Return the newest rows, and the same object as before if none has changed.

        Raises:
            DamagedError: the table is lost or cannot be read.
        """
        version = self._all.version(self._scope)
        if self._known is None or version != self._version:
            # The table has rows of other scopes, too.
            if self._known is None or _states(self._select(["id", "digest"])) != self._known[0]:
                rows = self._select([*self._columns, *({"digest"} - set(self._columns))])
                self._known = _states(rows), rows.select(self._columns)
            self._version = version
        return self._known[1]

    def _select(self, columns: Sequence[str]) -> pa.Table:
        return self._all.read([self._scope], columns, self._where)


def _states(rows: pa.Table) -> set[tuple[str, str]]:
    return set(zip(rows["id"].to_pylist(), rows["digest"].to_pylist(), strict=True))

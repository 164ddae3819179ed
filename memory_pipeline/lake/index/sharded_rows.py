"""The base of all projections by shard, for callers without an event loop."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.errors import DamagedLanceTableError
from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine
from memory_pipeline.lake.index.shard_tables import ShardTables, of_scope
from memory_pipeline.lake.index.table_roster import ROSTER
from memory_pipeline.lake.layout import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow.compute as pc

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.index.projection import Projection

_log = logging.getLogger(__name__)

#: Longer than it takes to rebuild a table. The claim of a killed process on another machine ends then.
_LEASE = timedelta(minutes=10)


class ShardedRows:
    """Reads, maintains and restores the tables of a projection. Safe to use from several threads and processes.

    Args:
        storage: the lake's files.
        projection: its columns and indices.
        shards: the lake's number of shards.
        databases: opens tables. Projections may share it.
    """

    def __init__(
        self,
        storage: Storage,
        projection: Projection,
        shards: int,
        databases: Databases | None = None,
    ) -> None:
        self._databases = Databases(storage) if databases is None else databases
        self._name = projection.name
        self._nothing = projection.schema.empty_table()
        self._tables = ShardTables(storage, self._databases, projection, shards)

    def read(
        self, scopes: Collection[Scope], columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.Table:
        """Return the rows of scopes, unordered; all columns if none are given."""
        nothing = self._nothing.select(list(columns or self._nothing.column_names))
        return pa.concat_tables(
            [nothing, *run_coroutine(self._tables.select_many(scopes, where, nothing.column_names, nothing))]
        )

    def version(self, scope: Scope) -> int | None:
        """Return a number that grows with each commit to a scope's table and each rebuild, or None without a table.

        Raises:
            DamagedError: the table is lost or cannot be read.
        """

        async def find() -> int | None:
            version = await self._tables.version(scope)
            if version is None:
                await self._tables.refuse_lost(self._tables.roster.name_of(scope.key))
            return version

        return run_coroutine(find())

    def delete(self, where: str, scopes: Collection[Scope] | None = None) -> int:
        """Delete rows, from the disk too. Return their number. Searches the tables of `scopes`, or all.

        Tables without such rows are unchanged.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        return run_coroutine(self._tables.delete(self._tables_of(scopes), where))

    def remove_scope(self, scope: Scope) -> int:
        """Delete all rows of a scope. Return their number. They stay on the disk until a purge."""
        return run_coroutine(self._tables.delete(self._tables_of([scope]), of_scope(scope), until_purge=True))

    def purge(self, scopes: Collection[Scope] | None) -> list[str]:
        """Rewrite the tables of scopes, or all, with their indices, so that no earlier version stays on the disk.

        Files left by killed writers stay until they are an hour old.

        Returns:
            The names of the tables.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        names = self._tables_of(scopes)
        run_coroutine(self._tables.purge(names))
        return names

    def _tables_of(self, scopes: Collection[Scope] | None) -> list[str]:
        roster = self._tables.roster
        return sorted(roster.present()) if scopes is None else roster.present_of(scopes)

    def present(self) -> set[str]:
        """Return the names of the existing tables."""
        return self._tables.roster.present()

    def tables(self) -> set[str]:
        """Return the names of the existing tables and the lost ones."""
        return self._tables.roster.tables()

    def rows_of(self, name: str) -> pc.Expression:
        """Return the condition on the records of a table."""
        return self._tables.roster.rows_of(name)

    def damage_of(
        self, name: str, *, thoroughly: bool = True, wanted: Callable[[pa.Table], pa.Table] | None = None
    ) -> str:
        """Return why a table must be rebuilt, or an empty text.

        It is lost, unreadable or of another version, or has rows with other values than were written. Reads all of it,
        or only opens it. `wanted` returns the rows that the table should have, given those it has.
        """
        try:
            rows = run_coroutine(self._tables.whole(name, thoroughly=thoroughly))
        except DamagedLanceTableError as error:
            return str(error).partition("; ")[0].removeprefix("table ").removeprefix(f"{PROJECTIONS}/{name}.lance ")
        return "has rows with other values" if rows is not None and self._is_changed(rows, wanted) else ""

    def _is_changed(self, rows: pa.Table, wanted: Callable[[pa.Table], pa.Table] | None) -> bool:  # noqa: ARG002
        """Return whether rows have other values than were written."""
        return False

    def mend(self, rows_of: Callable[[pc.Expression], pa.Table], *, thoroughly: bool = False) -> list[str]:
        """Rebuild the tables that are damaged. Return their names.

        `rows_of` returns the rows for a condition on records. With `thoroughly`, read all of each table.
        """
        mended = []
        for name in sorted(self.tables()):

            def rows(name: str = name) -> pa.Table:
                return rows_of(self.rows_of(name))

            if damage := self.damage_of(name, thoroughly=thoroughly, wanted=lambda _, rows=rows: rows()):  # type: ignore[misc]
                _log.warning("rebuilding %s: %s", name, damage)
                self.restore(name, rows)
                mended.append(name)
        return mended

    def restore(self, name: str, rows: Callable[[], pa.Table]) -> None:
        """Rebuild a table from `rows`, which returns all of its rows, if it is damaged.

        Of several processes, one rebuilds it, and the others wait. The records are read after the table was dropped:
        who commits a record later finds the table lost, waits, and then writes its row.
        """
        with self._claimed(name):
            if self.damage_of(name, wanted=lambda _: rows()):
                run_coroutine(self._tables.clear(name))
                run_coroutine(self._tables.fill(name, rows()))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other processes and threads that call this."""
        with self._claimed(self._name):
            yield

    @contextmanager
    def _claimed(self, name: str) -> Iterator[None]:
        claim = self._databases.claimed(ROSTER, name, _LEASE)
        run_coroutine(claim.__aenter__())
        try:
            yield
        finally:
            run_coroutine(claim.__aexit__(None, None, None))

    def compact(self) -> tuple[int, int]:
        """Merge small files. Return the number of tables with merged files, and the bytes of the merged rows."""
        written = run_coroutine(self._tables.compact(self._tables_of(None)))
        return sum(map(bool, written)), sum(written)

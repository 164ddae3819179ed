"""Rows by scope in Lance tables: a projection of records that is read and folded one scope at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import BTree, Databases, EventLoop
from memory_pipeline.lake.index.shard_tables import Projection, ShardTables

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow.compute as pc

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.lake.files.storage import Storage


class ScopedRows:
    """Reads and writes a projection whose rows are told apart by their digests. Safe to use from several threads.

    Args:
        storage: the lake's files.
        name: of the projection.
        schema: of its rows, with ``id``, ``scope``, ``workspace_id``, ``agent_id`` and ``digest``. All other columns
            are nullable in the tables.
        shards: the lake's number of shards.
        loop: runs the operations on tables.
        databases: opens tables; its coroutines run in `loop`. Projections may share both.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        schema: pa.Schema,
        shards: int,
        loop: EventLoop | None = None,
        databases: Databases | None = None,
    ) -> None:
        self._loop = EventLoop() if loop is None else loop
        self._databases = Databases(storage) if databases is None else databases
        self._schema = _keyed(schema)
        projection = Projection(
            name,
            compared=("digest",),
            same="target.digest = source.digest",
            shard_indices={name: BTree() for name in ("scope", "period") if name in schema.names},
            scope_indices={name: BTree() for name in ("scope", "period") if name in schema.names},
        )
        self._tables = ShardTables(storage, self._databases, projection, shards)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def read(
        self, scopes: Collection[Scope], columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.Table:
        """Return the rows of scopes, unordered; all columns if none are given."""
        names = list(columns or self._schema.names)
        found = self._loop.run(self._tables.select_many(scopes, where, names, self._schema.empty_table()))
        return pa.concat_tables([self._schema.empty_table().select(names), *found])

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, shard: int | None = None
    ) -> pa.Table:
        """Return the rows of all scopes, or of those in a shard, unordered; all columns if none are given.

        Raises:
            DamagedError: a table is lost or cannot be read.
        """
        names = list(columns or self._schema.names)
        for name in self._tables.roster.listed() - self._tables.roster.present():
            self._loop.run(self._tables.refuse_lost(name))
        found = [rows.select(names) for rows in self._loop.run(self._tables.scan(where, names, shard))]
        return pa.concat_tables([self._schema.empty_table().select(names), *found])

    def replace(
        self, rows: pa.Table, scopes: Collection[Scope] | None, within: str = "true", shard: int | None = None
    ) -> set[str]:
        """Make the rows of scopes equal to `rows`. Return the keys of the scopes in which something was written.

        Args:
            rows: of these scopes, with all columns.
            scopes: those to compare; all if None.
            within: a condition that the compared rows, and all of `rows`, meet.
            shard: the shard to compare; all if not given.
        """
        marks = self._loop.run(self._tables.replace(within, rows.cast(self._schema), scopes, shard))
        return {str(mark[0]) for mark in marks}

    def version(self, scope: Scope) -> int | None:
        """Return a number that grows with each commit to a scope's table, or None without a table.

        Raises:
            DamagedError: the table is lost or cannot be read.
        """
        version = self._loop.run(self._tables.version(scope))
        if version is None:
            self._loop.run(self._tables.refuse_lost_of(scope))
        return version

    def delete(self, where: str, scopes: Collection[Scope] | None = None) -> int:
        """Delete rows, from the disk too. Return their number. Searches all tables if no scopes are given."""
        names = self._tables.roster.present() if scopes is None else self._tables.roster.present_of(scopes)
        return self._loop.run(self._tables.delete(sorted(names), where))

    def purge(self, scopes: Collection[Scope] | None) -> list[str]:
        """Rewrite the tables of scopes, or all, so that no earlier version stays on the disk. Return their names."""
        roster = self._tables.roster
        names = sorted(roster.present()) if scopes is None else roster.present_of(scopes)
        self._loop.run(self._tables.purge(names))
        return names

    def present(self) -> set[str]:
        """Return the names of the existing tables."""
        return self._tables.roster.present()

    def tables(self) -> set[str]:
        """Return the names of the existing tables and the lost ones."""
        return self._tables.roster.tables()

    def rows_of(self, name: str) -> pc.Expression:
        """Return the condition on the records of a table."""
        return self._tables.roster.rows_of(name)

    def is_damaged(self, name: str, *, thoroughly: bool = True) -> bool:
        """Return whether a table is lost or cannot be read. Reads all of it, or only opens it."""
        return self._loop.run(self._tables.is_damaged(name, thoroughly=thoroughly))

    def restore(self, name: str, rows: pa.Table) -> None:
        """Delete a table and rebuild it from `rows`, which are all of its rows."""
        self._loop.run(self._tables.restore(name, rows.cast(self._schema)))

    def compact(self) -> tuple[int, int]:
        """Merge small files. Return the number of tables with merged files, and the bytes of the merged rows."""
        written = self._loop.run(self._tables.compact(sorted(self._tables.roster.present())))
        return sum(map(bool, written)), sum(written)


def _keyed(schema: pa.Schema) -> pa.Schema:
    """Declare `id` as the key: without it, concurrent merges duplicate rows."""
    key = pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"})
    return pa.schema([key if field.name == "id" else field.remove_metadata().with_nullable(True) for field in schema])

"""Rows by scope in Lance tables: a projection of records that is read and folded one scope at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import BTree, Databases, EventLoop
from memory_pipeline.lake.index.shard_tables import Projection, ShardTables

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.lake.files.storage import Storage


class ScopedRows:
    """Reads and writes a projection whose rows are told apart by their digests. Safe to use from several threads.

    Args:
        storage: the lake's files.
        name: of the projection.
        schema: of its rows, with ``id``, ``scope``, ``workspace_id``, ``agent_id`` and ``digest``.
        shards: the lake's number of shards.
    """

    def __init__(self, storage: Storage, name: str, schema: pa.Schema, shards: int) -> None:
        self._loop = EventLoop()
        self._schema = _keyed(schema)
        projection = Projection(
            name,
            compared=("digest",),
            same="target.digest = source.digest",
            shard_indices={"scope": BTree()},
            scope_indices={"scope": BTree()},
        )
        self._tables = ShardTables(storage, Databases(storage), projection, shards)

    def read(
        self, scopes: Collection[Scope], columns: Sequence[str] | None = None, where: str | None = None
    ) -> pa.Table:
        """Return the rows of scopes, unordered; all columns if none are given."""
        names = list(columns or self._schema.names)
        found = self._loop.run(self._tables.select_many(scopes, where, names, self._schema.empty_table()))
        return pa.concat_tables([self._schema.empty_table().select(names), *found])

    def scan(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """Return the rows of all scopes, unordered; all columns if none are given."""
        names = list(columns or self._schema.names)
        found = [rows.select(names) for rows in self._loop.run(self._tables.scan(where, names))]
        return pa.concat_tables([self._schema.empty_table().select(names), *found])

    def replace(self, rows: pa.Table, scopes: Collection[Scope] | None, within: str = "true") -> set[str]:
        """Make the rows of scopes equal to `rows`. Return the keys of the scopes in which something was written.

        Args:
            rows: of these scopes, with all columns.
            scopes: those to compare; all if None.
            within: a condition that the compared rows, and all of `rows`, meet.
        """
        marks = self._loop.run(self._tables.replace(within, rows.cast(self._schema), scopes))
        return {str(mark[0]) for mark in marks}

    def version(self, scope: Scope) -> int | None:
        """Return a number that grows with each commit to a scope's table, or None without a table."""
        return self._loop.run(self._tables.version(scope))

    def delete(self, where: str, scopes: Collection[Scope] | None = None) -> int:
        """Delete rows, from the disk too. Return their number. Searches all tables if no scopes are given."""
        names = self._tables.present()
        if scopes is not None:
            names &= {name for scope in scopes for name in self._tables.names_of(scope)}
        return self._loop.run(self._tables.delete(sorted(names), where))

    def purge(self, scopes: Collection[Scope]) -> list[str]:
        """Rewrite the tables of scopes, so that no byte of earlier versions stays on the disk. Return their names."""
        names = sorted(self._tables.present() & {name for scope in scopes for name in self._tables.names_of(scope)})
        self._loop.run(self._tables.purge(names))
        return names


def _keyed(schema: pa.Schema) -> pa.Schema:
    """Declare `id` as the key: without it, concurrent merges duplicate rows."""
    key = pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"})
    return pa.schema([key if field.name == "id" else field.remove_metadata() for field in schema])

"""Rows by scope in Lance tables: a projection of records that is read and folded one scope at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import IndexKind, run_coroutine
from memory_pipeline.lake.index.projection import Projection
from memory_pipeline.lake.index.sharded_rows import ShardedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.index.lance_tables import Databases


class ScopedRows(ShardedRows):
    """Reads and writes a projection whose rows are told apart by their digests.

    Args:
        storage: the lake's files.
        name: of the projection.
        schema: of its rows, with ``id``, ``scope``, ``workspace_id``, ``agent_id`` and ``digest``. All other columns
            are nullable in the tables.
        shards: the lake's number of shards.
        databases: see :class:`ShardedRows`.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        schema: pa.Schema,
        shards: int,
        databases: Databases | None = None,
    ) -> None:
        indices = {column: IndexKind.VALUES for column in ("scope", "period") if column in schema.names}
        self.schema = _keyed(schema)
        projection = Projection(name, self.schema, ("digest",), "target.digest = source.digest", indices, indices)
        super().__init__(storage, projection, shards, databases)

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, shard: int | None = None
    ) -> pa.Table:
        """Return the rows of all scopes, or of those in a shard, unordered; all columns if none are given.

        Raises:
            DamagedError: a table is lost or cannot be read.
        """
        names = list(columns or self.schema.names)
        for name in self._tables.roster.listed() - self._tables.roster.present():
            run_coroutine(self._tables.refuse_lost(name))
        found = [rows.select(names) for rows in run_coroutine(self._tables.scan(where, names, shard))]
        return pa.concat_tables([self._nothing.select(names), *found])

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
        marks = run_coroutine(self._tables.replace(within, rows.cast(self.schema), scopes, shard))
        return {str(mark[0]) for mark in marks}

    def restore(self, name: str, rows: Callable[[], pa.Table]) -> None:  # noqa: D102
        super().restore(name, lambda: rows().cast(self.schema))


def _keyed(schema: pa.Schema) -> pa.Schema:
    """Declare `id` as the key: without it, concurrent merges duplicate rows."""
    key = pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"})
    return pa.schema([key if field.name == "id" else field.remove_metadata().with_nullable(True) for field in schema])

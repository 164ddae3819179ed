"""A projection's columns and indices, and the maintenance of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import COMPACT_EVERY, IndexKind, drop_old_versions, index_config
from memory_pipeline.lake.index.maintenance import compact, rewrite
from memory_pipeline.lake.layout import PROJECTIONS, scope_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.lake.files.storage import Storage

#: Version of the rows of projections. Increase it if rows are made differently in the same columns: runs then rebuild
#: all tables. A change of columns needs no new version.
VERSION = 1
#: Columns that tables of earlier versions lack. There they read as null, and the next write adds them.
ADDED = frozenset(["ordered_at", "origin"])
#: Key in a table's metadata: the version of its rows. Tables without it have version 1.
_VERSION = b"memory_pipeline.version"
#: From this many vectors on, a table of one scope has an approximate index.
APPROXIMATE_FROM = 50_000
#: Files are merged when a table has more than this many.
_MOST_FILES = 10
#: Rebuild indices when this many rows, and this share, are unindexed: every read scans all of these.
_UNINDEXED, _UNINDEXED_SHARE = 1_000, 0.05
#: The usual number of commits of one write: rows, deletions, an index.
_COMMITS = 3


@dataclass(frozen=True)
class Projection:
    """Columns and indices of a projection's tables.

    Attributes:
        name: of the projection, which begins the names of its tables.
        schema: of its tables. The size of vectors does not count.
        compared: the columns that decide whether a stored row is up to date, without ``scope`` and ``id``.
        same: the condition on ``target`` and ``source`` under which a row is unchanged since it was read.
        shard_indices: by column, of tables with many scopes.
        scope_indices: by column, of tables with one scope.
        vectors: the column that gets an approximate index, in tables with one scope and many vectors.
    """

    name: str
    schema: pa.Schema
    compared: tuple[str, ...]
    same: str
    shard_indices: Mapping[str, IndexKind]
    scope_indices: Mapping[str, IndexKind]
    vectors: str | None = None

    @property
    def compared_columns(self) -> list[str]:
        """The columns by which stored and wanted rows are compared."""
        return ["scope", "id", *self.compared]

    def is_current(self, schema: pa.Schema) -> bool:
        """Return whether a table has the columns and the version of this package."""
        version = int((schema.metadata or {}).get(_VERSION, 1))
        found, expected = _columns(schema), _columns(self.schema)
        wanted = {name: kind for name, kind in expected.items() if name in found or name not in ADDED}
        return version == VERSION and found == wanted

    def versioned(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a new table, which states its version."""
        return schema.with_metadata({_VERSION: str(VERSION)})

    async def maintain(self, storage: Storage, name: str, table: Any, version: int) -> None:
        """Merge files and index rows where there are many; `version` is that of the preceding write."""
        indices = self._indices(name)
        stats = await table.stats()
        if stats["fragment_stats"]["num_fragments"] > _MOST_FILES:
            await compact(table, self.same, 2)
        rows = stats["num_rows"]
        known = await table.index_stats(f"{next(iter(indices))}_idx")
        unindexed = rows if known is None else known.num_unindexed_rows
        is_due = unindexed >= max(_UNINDEXED, rows * _UNINDEXED_SHARE)
        if is_due or (known is None and scope_in(name)):
            for column, kind in indices.items():
                await table.create_index(column, config=index_config(kind), replace=True)
            # Comparing all of a few vectors is faster, and exact.
            if (
                scope_in(name)
                and self.vectors
                and await table.count_rows(f"{self.vectors} IS NOT NULL") >= APPROXIMATE_FROM
            ):
                await table.create_index(self.vectors, config=index_config(IndexKind.VECTORS), replace=True)
        if version % COMPACT_EVERY < _COMMITS:
            await drop_old_versions(storage, f"{PROJECTIONS}/{name}.lance")

    async def rewrite(self, storage: Storage, name: str, table: Any) -> None:
        """Rewrite a table with its existing indices, so that no byte of earlier versions stays on the disk."""
        present = {index.columns[0] for index in await table.list_indices()}
        kinds = dict(self._indices(name))
        if self.vectors:
            kinds[self.vectors] = IndexKind.VECTORS
        indices = {column: index_config(kind) for column, kind in kinds.items() if column in present}
        await rewrite(table, storage, f"{PROJECTIONS}/{name}.lance", self.same, indices)

    def _indices(self, name: str) -> Mapping[str, IndexKind]:
        return self.scope_indices if scope_in(name) else self.shard_indices


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: "vector" if pa.types.is_fixed_size_list(field.type) else str(field.type) for field in schema}

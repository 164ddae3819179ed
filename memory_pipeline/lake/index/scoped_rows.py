"""Rows by scope in Lance tables: a projection of records that is read and folded one scope at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.errors import DamagedLanceTableError
from memory_pipeline.lake.codec.codec import with_digest
from memory_pipeline.lake.index.lance_tables import IndexKind
from memory_pipeline.lake.index.projection import Projection
from memory_pipeline.lake.index.sharded_rows import ShardedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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
        databases: see :class:`ShardTables`.
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
        self._is_digested = name != "scopes"  # whose digest is of some of its columns
        projection = Projection(name, self.schema, ("digest",), "target.digest = source.digest", indices, indices)
        super().__init__(storage, projection, shards, databases)

    def scan(
        self, columns: Collection[str] | None = None, where: str | None = None, shard: int | None = None
    ) -> pa.Table:
        """Return the rows of all scopes, or of those in a shard, unordered; all columns if none are given.

        Raises:
            DamagedError: a table is lost or cannot be read.
        """
        for name in self.roster.listed() - self.roster.present():
            self.whole(name, thoroughly=False)
        return super().scan(columns, where, shard)

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
        states = self.make_equal(within, rows.cast(self.schema), scopes, shard)
        return {str(state[0]) for state in states}

    def digests(self) -> dict[str, str]:
        """Return the digests of the rows that have what was written, by id. Tables that cannot be read are left out."""
        found: dict[str, str] = {}
        for name in sorted(self.roster.present()):
            try:
                rows = self.whole(name)
            except DamagedLanceTableError:
                continue
            if rows is not None and (is_sound := self._are_sound(rows)) is not None:
                sound = rows.filter(is_sound)
                found |= dict(zip(sound["id"].to_pylist(), sound["digest"].to_pylist(), strict=True))
        return found

    def _is_changed(self, rows: pa.Table, wanted: Callable[[pa.Table], pa.Table] | None) -> bool:  # noqa: ARG002
        is_sound = self._are_sound(rows)
        return is_sound is not None and not pc.all(is_sound, min_count=0).as_py()

    def _are_sound(self, rows: pa.Table) -> pa.ChunkedArray | None:
        """Return for each row of a table whether its digest fits; None for a table with other columns or digests."""
        if not self._is_digested or set(rows.column_names) != set(self.schema.names):
            return None
        rows = rows.select(self.schema.names).cast(self.schema)
        is_sound = pc.equal(with_digest(rows)["digest"], rows["digest"])
        if "source_digest" in self.schema.names:  # is the digest of the state of a fold of the graph
            is_sound = pc.or_(is_sound, pc.fill_null(pc.equal(rows["digest"], rows["source_digest"]), False))
        return is_sound

    def fill(self, name: str, rows: pa.Table) -> None:  # noqa: D102
        super().fill(name, rows.cast(self.schema))


def _keyed(schema: pa.Schema) -> pa.Schema:
    """Declare `id` as the key: without it, concurrent merges duplicate rows."""
    key = pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"})
    return pa.schema([key if field.name == "id" else field.remove_metadata().with_nullable(True) for field in schema])

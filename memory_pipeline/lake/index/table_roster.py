"""The tables of a projection: which exist, and which has a scope's rows.

Each table has an empty file in ``state/projections``, so that a lost table is noticed. Scopes whose own table is listed
there are large; all others are in the table of their shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.layout import (
    keys_of_shard,
    scope_in,
    scope_table,
    shard_in,
    shard_of,
    shard_table,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage

#: The folder of the roster. Locks to move a scope are named after it, too.
ROSTER = "state/projections"


class TableRoster:
    """The names of a projection's tables. Methods that access the storage block.

    Args:
        storage: the lake's files.
        projection: its name.
        shards: the lake's number of shards.

    Attributes:
        large: keys of the scopes with tables of their own, as of the last :meth:`refresh`.
    """

    def __init__(self, storage: Storage, projection: str, shards: int) -> None:
        self._storage = storage
        self._projection = projection
        self._shards = shards
        self._added: set[str] = set()
        self.large: frozenset[str] = frozenset()

    def listed(self) -> set[str]:
        """Return the names of tables that were created and not dropped. Some may be lost."""
        names = (entry.path.rpartition("/")[2] for entry in self._storage.list(ROSTER))
        return {name for name in names if name.startswith(f"{self._projection}-")}

    def present(self) -> set[str]:
        """Return the names of existing tables."""
        return tables_of(self._storage, self._projection)

    def tables(self) -> set[str]:
        """Return the names of the existing tables and the lost ones."""
        return self.listed() | self.present()

    def unlisted(self) -> set[str]:
        """Return the names of existing tables of one scope that are not complete, or were left by a killed process."""
        return {name for name in self.present() - self.listed() if scope_in(name)}

    def readable(self) -> set[str]:
        """Return the names of existing tables without the unlisted ones."""
        return self.present() - self.unlisted()

    def is_listed(self, name: str) -> bool:
        """Return whether a table was created and not dropped."""
        return self._storage.is_there(f"{ROSTER}/{name}")

    def refresh(self) -> None:
        """Read which scopes have tables of their own."""
        listed = self.listed()
        self.large = frozenset(key for name in listed if (key := scope_in(name)))
        self._added &= listed  # another process may have dropped a table

    def add(self, name: str) -> None:
        """List a table that exists. Does nothing if this object did so before."""
        if name not in self._added:
            self._storage.create(f"{ROSTER}/{name}", b"", durable=False)
            self._added.add(name)

    def discard(self, name: str) -> None:
        """Remove a table from the list. Call it before the table is dropped, which is otherwise reported as lost."""
        self._added.discard(name)
        self._storage.delete([f"{ROSTER}/{name}"])

    def name_of(self, key: str) -> str:
        """Return the name of the table of a scope's key, as of the last :meth:`refresh`."""
        return self.own_table(key) if key in self.large else self.shard_table(key)

    def own_table(self, key: str) -> str:
        """Return the name that a table of a scope alone has."""
        return scope_table(self._projection, key, self._shards)

    def shard_table(self, key: str) -> str:
        """Return the name of the table of a scope's shard."""
        return shard_table(self._projection, shard_of(key, self._shards))

    def present_of(self, scopes: Iterable[Scope] | None) -> list[str]:
        """Return the names of the existing tables that may have rows of scopes, or of all, sorted."""
        present = self.present()
        if scopes is not None:
            present &= {name(scope.key) for scope in scopes for name in (self.shard_table, self.own_table)}
        return sorted(present)

    def rows_of(self, name: str) -> pc.Expression:
        """Return the condition on records whose projection is in a table: by their column ``scope``."""
        scope = scope_in(name)
        if scope is not None:
            return pc.field("scope") == scope
        first, last = keys_of_shard(shard_in(name), self._shards)
        large = pa.array(sorted(key for other in self.listed() if (key := scope_in(other))), pa.string())
        return (pc.field("scope") >= first) & (pc.field("scope") < last) & ~pc.field("scope").isin(large)

"""Keeps tombstones: what was forgotten, known by salted hashes alone (:mod:`memory_pipeline.domain.erasure`)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.erasure import Forgotten, SubjectKind, Tombstone
from memory_pipeline.lake.schemas import TOMBSTONES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from memory_pipeline.lake.tables import Tables


class Tombstones:
    """Reads and writes a lake's tombstones. Safe to use from several threads and processes.

    They are read again when the table has changed; until then, and where nothing was ever forgotten, asking for them
    costs one look at the table's log.

    Args:
        tables: the lake's.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._read: tuple[int, tuple[Tombstone, ...], Forgotten] = (-1, (), Forgotten())

    def all(self) -> tuple[Tombstone, ...]:
        """Return all tombstones, by kind and id."""
        return self._newest()[1]

    def forgotten(self) -> Forgotten:
        """Return what is forgotten; the same object as long as nothing has changed, for it remembers what it hashed."""
        return self._newest()[2]

    def state(self) -> frozenset[tuple[str, datetime]]:
        """Return what changes whenever more is forgotten, and only then: whether it is done with does not count."""
        return frozenset((tombstone.id, tombstone.forgotten_at) for tombstone in self.all())

    def put(self, tombstones: Iterable[Tombstone]) -> None:
        """Write tombstones, in one commit; one takes the place of that with the same id.

        Raises:
            CommitConflictError: other writers kept changing tombstones of the same kind.
        """
        by_id = {tombstone.id: tombstone for tombstone in tombstones}
        rows = [{**asdict(one), "kind": one.kind.value} for one in by_id.values()]
        new = pa.Table.from_pylist(rows, schema=TOMBSTONES.schema)

        def merged(old: pa.Table) -> pa.Table:
            return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], new["id"].combine_chunks()))), new])

        if rows:
            self._tables.transform(TOMBSTONES, {one.kind.value for one in by_id.values()}, merged)

    def _newest(self) -> tuple[int, tuple[Tombstone, ...], Forgotten]:
        version = self._tables.version(TOMBSTONES)
        if version != self._read[0]:
            rows = self._tables.read(TOMBSTONES).sort_by([("kind", "ascending"), ("id", "ascending")])
            found = tuple(
                Tombstone(**{**row, "kind": SubjectKind(row["kind"]), "hours": tuple(row["hours"])})
                for row in rows.to_pylist()
            )
            # A change of the table, by a purge, may be none of the tombstones.
            forgotten = self._read[2] if found == self._read[1] else Forgotten(found)
            self._read = version, found, forgotten
        return self._read

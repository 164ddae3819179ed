"""The base of all projections by shard: which of their tables are damaged, and how they are rebuilt."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from memory_pipeline.errors import DamagedLanceTableError
from memory_pipeline.lake.index.lance_internals import newest_manifest
from memory_pipeline.lake.index.lance_tables import run_coroutine
from memory_pipeline.lake.index.shard_tables import ShardTables
from memory_pipeline.lake.index.table_roster import ROSTER
from memory_pipeline.lake.layout import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    import pyarrow.compute as pc

_log = logging.getLogger(__name__)

#: Longer than it takes to rebuild a table. The claim of a killed process on another machine ends then.
_LEASE = timedelta(minutes=10)


class ShardedRows(ShardTables):
    """Finds and rebuilds damaged tables of a projection."""

    def damage_of(
        self, name: str, *, thoroughly: bool = True, wanted: Callable[[pa.Table], pa.Table] | None = None
    ) -> str:
        """Return why a table must be rebuilt, or an empty text.

        It is lost, unreadable or of another version, or has rows with other values than were written. Reads all of it,
        or only opens it. `wanted` returns the rows that the table should have, given those it has.
        """
        try:
            rows = self.whole(name, thoroughly=thoroughly)
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
        for name in sorted(self.roster.tables()):

            def rows(name: str = name) -> pa.Table:
                return rows_of(self.roster.rows_of(name))

            if damage := self.damage_of(name, thoroughly=thoroughly, wanted=lambda _, rows=rows: rows()):  # type: ignore[misc]
                _log.warning("rebuilding %s: %s", name, damage)
                self.restore(name, rows)
                mended.append(name)
        return mended

    def manifests(self) -> list[str]:
        """Return what says whether the tables can be opened: their names, newest manifests and expected columns."""
        found = [str(self._projection.schema)]
        for name in sorted(self.roster.tables()):
            folder = f"{PROJECTIONS}/{name}.lance/_versions"
            newest = newest_manifest(self._storage.names(folder))
            manifest = None if newest is None else self._storage.read(f"{folder}/{newest[1]}")
            found += [name, "" if manifest is None else blake2b(manifest).hexdigest()]
        return found

    def restore(self, name: str, rows: Callable[[], pa.Table]) -> None:
        """Rebuild a table from `rows`, which returns all of its rows, if it is damaged.

        Of several processes, one rebuilds it, and the others wait. The records are read after the table was dropped:
        who commits a record later finds the table lost, waits, and then writes its row.
        """
        with self._claimed(name):
            if self.damage_of(name, wanted=lambda _: rows()):
                self.clear(name)
                self.fill(name, rows())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other processes and threads that call this."""
        with self._claimed(self._projection.name):
            yield

    @contextmanager
    def _claimed(self, name: str) -> Iterator[None]:
        claim = self._databases.claimed(ROSTER, name, _LEASE)
        run_coroutine(claim.__aenter__())
        try:
            yield
        finally:
            run_coroutine(claim.__aexit__(None, None, None))

"""Tombstones of erased data, and marks of expired data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.erasure import Forgotten, Tombstone
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.lake.schemas import EXPIRATIONS, TOMBSTONES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake.tables.tables import Tables


class Tombstones:
    """Reads and writes a lake's tombstones. Safe to use from several threads and processes.

    They are read again only after the table has changed; otherwise a query only checks the table's log.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._read: tuple[int, tuple[Tombstone, ...], Forgotten] = (-1, (), Forgotten())

    def all(self) -> tuple[Tombstone, ...]:
        """Return all tombstones, sorted by kind and id."""
        return self._newest()[1]

    def forgotten(self) -> Forgotten:
        """Return the erased data. The object, which caches hashes, stays the same until something changes."""
        return self._newest()[2]

    def state(self) -> frozenset[tuple[str, datetime]]:
        """Return a value that changes exactly when more is erased, not when an erasure is completed."""
        return frozenset((tombstone.id, tombstone.forgotten_at) for tombstone in self.all())

    def put(self, tombstones: Iterable[Tombstone]) -> None:
        """Write tombstones in one commit, replacing those with the same ids.

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
            # A purge changes the table but not its tombstones.
            forgotten = self._read[2] if found == self._read[1] else Forgotten(found)
            self._read = version, found, forgotten
        return self._read


# Expiration marks distinguish expired data from data that was never built. A mark is raised before the rows up to it
# are deleted, and never lowered.


_OWNER = ("workspace_id", "agent_id")


class ExpirationMarks:
    """The expiration marks of all agents: the key of the last expired period, by agent and retention class."""

    def __init__(self, through: Mapping[tuple[Scope, str], str]) -> None:
        self._through: dict[str, dict[Scope, str]] = {}
        for (scope, kept), key in through.items():
            self._through.setdefault(str(kept), {})[scope] = key
        self._latest = {kept: max(keys.values()) for kept, keys in self._through.items()}

    @classmethod
    def of(cls, tables: Tables) -> ExpirationMarks:
        """Read the marks; empty if nothing has ever expired."""
        rows = tables.read(EXPIRATIONS, columns=[*_OWNER, "kept", "through"]).to_pylist()
        return cls({(Scope(row["workspace_id"], row["agent_id"]), row["kept"]): row["through"] for row in rows})

    def __bool__(self) -> bool:
        """Return whether anything has expired."""
        return bool(self._through)

    def __iter__(self) -> Iterator[tuple[Scope, str, str]]:
        """Yield each mark: agent, class, and key of the last expired period."""
        for kept, keys in self._through.items():
            for scope, key in keys.items():
                yield scope, kept, key

    def through(self, scope: Scope, kept: RetentionClass) -> str | None:
        """Return the key of the last expired period, or None."""
        return self._through.get(kept, {}).get(scope.own)

    def has_expired(self, message: Message, calendar: Calendar) -> bool:
        """Return whether a message is older than all that is kept of its time: itself, and every summary of it.

        As long as one summary is kept, a late message is still added to it.
        """
        day = calendar.ancestor(message.hour, Grain.DAILY)
        kept = {RetentionClass(grain): calendar.ancestor(day, grain).key for grain in SUMMARY_GRAINS}
        kept[RetentionClass.CONVERSATIONS] = message.hour.key
        return all(key <= (self.through(message.scope, name) or "") for name, key in kept.items())

    def latest(self, classes: Iterable[RetentionClass]) -> str:
        """Return the key of the latest expired period of any agent for some classes; empty if there is none."""
        return max((self._latest.get(kept, "") for kept in classes), default="")

    def mask(self, rows: pa.Table, kept: RetentionClass) -> NDArray[np.bool_]:
        """Return for each row whether it has expired under the class `kept`.

        The rows have ``workspace_id``, ``agent_id`` and ``period``, a key of the class's grain. Call once per class for
        a table with several classes.
        """
        latest = self._latest.get(kept)
        if latest is None or not rows.num_rows or pc.min(rows["period"]).as_py() > latest:
            return np.zeros(rows.num_rows, np.bool_)
        last_periods = self._through[kept]
        joined = pc.binary_join_element_wise(*(rows[name] for name in _OWNER), "\0")  # which no id contains
        owners = joined.combine_chunks().dictionary_encode()
        scopes = (Scope(*owner.split("\0")) for owner in owners.dictionary.to_pylist())
        marks = pa.array([last_periods.get(scope) for scope in scopes], pa.string()).take(owners.indices)
        expired = pc.fill_null(pc.less_equal(rows["period"], marks), fill_value=False)
        return np.asarray(expired.to_numpy(zero_copy_only=False), np.bool_)


def raise_marks(tables: Tables, through: Mapping[tuple[str, str, RetentionClass], str], at: datetime) -> int:
    """Raise marks in one commit, and return their number. Marks that are as high already are unchanged.

    `through` is the key of the last expired period, by workspace, agent and class. `at` is stored with the raised
    marks.

    Raises:
        CommitConflictError: other writers kept changing marks of the same classes.
    """
    raised: dict[tuple[str, str, str], str] = {}

    def merged(old: pa.Table) -> pa.Table:
        rows = {(row["workspace_id"], row["agent_id"], row["kept"]): row for row in old.to_pylist()}
        raised.clear()
        for (workspace_id, agent_id, kept), key in through.items():
            owner = (workspace_id, agent_id, str(kept))
            if owner not in rows or rows[owner]["through"] < key:
                raised[owner] = key
                rows[owner] = dict(zip(EXPIRATIONS.schema.names, (*owner, key, at), strict=True))
        return pa.Table.from_pylist(list(rows.values()), schema=EXPIRATIONS.schema)

    if through:
        tables.transform(EXPIRATIONS, {str(kept) for _, _, kept in through}, merged)
    return len(raised)

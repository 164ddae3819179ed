"""The log of reads: which agent read or changed the memory of another one, and which memories models were given.

::

    access/pending/{ulid}.jsonl    rows that are not in the table ``access_log`` yet

Rows wait in memory for a few seconds (:mod:`memory_pipeline.lake.waiting_rows`). The pipeline moves the files to the
table.

A *use* is a durable memory that a model was given. The table has one row for each memory and day (UTC), with the number
of uses and the time of the last one. Uses delay the decay of a memory. They are no input of a partition: nothing is
computed again because of them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ulid import ULID

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import waiting_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memory_pipeline.domain.access import AccessLevel
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.journal import Journal
    from memory_pipeline.lake.tables.tables import Tables
    from memory_pipeline.lake.tables.tombstones import Tombstones

_log = logging.getLogger(__name__)

_PENDING: Final = "access/pending"
#: Most ids of results in a row.
_MOST_IDS: Final = 20
_OF_USE: Final = ("result_ids", "called_at", "results")
_KEPT: Final = timedelta(days=365)
_EVER_AGO: Final = datetime.min.replace(tzinfo=UTC)
OK, DENIED = "ok", "denied"
#: The operation of a row of uses.
USE: Final = "use"
#: A use whose time differs less than this from the clock is never one of the past.
_LIVE: Final = timedelta(days=1)


class MemoryUse(NamedTuple):
    """The uses of a memory on one day: their number, and the time of the last one, UTC."""

    scope_key: str
    memory_id: str
    at: datetime
    times: int


class AccessLog:
    """Notes access to the memory of other agents. Safe to use from several threads. Notes never raise an error.

    `tables` and `tombstones` return the tables, and what was erased; `consolidated` the end of the last consolidated
    day, UTC. Unreadable lines go to the quarantine of the journal.
    """

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        tables: Callable[[], Tables],
        tombstones: Callable[[], Tombstones],
        consolidated: Callable[[], datetime],
    ) -> None:
        self._storage = storage
        self._journal = journal
        self._tables = tables
        self._tombstones = tombstones
        self._consolidated = consolidated
        self._uses: tuple[int, list[MemoryUse]] = -1, []

    def note(
        self,
        agent: Scope,
        target: Scope,
        operation: str,
        ids: Sequence[str] = (),
        *,
        results: int | None = None,
        grant_ids: Sequence[str] = (),
        level: AccessLevel | None = None,
    ) -> None:
        """Note that an agent used the memory of another one, or, without a `level`, that this was denied.

        `ids` are those of the results; `results` is their number, by default that of the ids. `level` is the highest of
        the grants.
        """
        self._append(
            {
                **_row(agent, target, operation, datetime.now(UTC)),
                "outcome": DENIED if level is None else OK,
                "results": len(ids) if results is None else results,
                "result_ids": ids[:_MOST_IDS],
                "grant_ids": grant_ids,
                "level": level,
            }
        )

    def note_uses(self, agent: Scope, memories: Iterable[tuple[Scope, str]], at: datetime) -> None:
        """Note that a model of `agent` was given memories at a time, UTC. They are ids with their scopes."""
        for target, memory_id in memories:
            self._append({**_row(agent, target, USE, at), "outcome": OK, "results": 1, "result_ids": [memory_id]})

    def uses(self, scopes: Collection[Scope]) -> list[MemoryUse]:
        """Return the uses of memories of scopes that are in the table, by day."""
        import pyarrow.compute as pc

        from memory_pipeline.lake.schemas import ACCESS_LOG

        version, known = self._tables().version(ACCESS_LOG), self._uses
        if known[0] != version:
            rows = self._tables().read(ACCESS_LOG, columns=("scope", *_OF_USE), where=pc.field("operation") == USE)
            found = [
                MemoryUse(row["scope"], row["result_ids"][0], row["called_at"], row["results"])
                for row in rows.to_pylist()
            ]
            known = self._uses = version, sorted(found, key=lambda one: one.at)
        keys = {scope.key for scope in scopes}
        return [one for one in known[1] if one.scope_key in keys]

    def scopes(self, since: datetime) -> set[Scope]:
        """Return the scopes that were read after a time, also in pending files."""
        import pyarrow.compute as pc

        from memory_pipeline.lake.schemas import ACCESS_LOG

        where = pc.field("called_at") > since
        rows = self._tables().read(ACCESS_LOG, columns=SCOPE_COLUMNS, where=where).to_pylist()
        for _, found, _ in waiting_rows.files_in(self._storage, _PENDING, _parsed):
            rows += [row for row in found if row["called_at"] > since]
        return {Scope(*(row[name] for name in SCOPE_COLUMNS)) for row in rows}

    def _append(self, row: dict[str, object]) -> None:
        waiting_rows.append(self._storage, _PENDING, {"grant_ids": [], "level": None, **row})

    def flush(self) -> None:
        """Write the buffered rows of this process to a file, also those of other objects for this lake."""
        waiting_rows.flush(self._storage, _PENDING)

    def _present(self, path: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of a file without uses of the past. The name of the file has the time of its writing."""
        uses = [row for row in rows if row["operation"] == USE]
        if not uses:
            return rows
        written = ULID.from_str(path.rpartition("/")[2].removesuffix(".jsonl")).datetime
        end = self._consolidated()
        past = {row["id"] for row in uses if row["called_at"] < end and abs(written - row["called_at"]) > _LIVE}
        return [row for row in rows if row["id"] not in past]

    def settle(self, now: datetime | None = None) -> int:
        """Move the pending rows of all processes into the table, and delete those of more than a year before `now`.

        A use on a day that is consolidated was a read of the past, and does not count. Return the number of moved rows.
        Rows about an erased agent or user are dropped, and those from before an erasure of their workspace lose the ids
        of their results. Safe to repeat, to interrupt and to run concurrently; after a kill a use may count twice.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from memory_pipeline.lake.schemas import ACCESS_LOG

        self.flush()
        paths, rows, damaged = list[str](), list[dict[str, Any]](), list[Rejection]()
        for path, found, rejected in waiting_rows.files_in(self._storage, _PENDING, _parsed):
            paths.append(path)
            rows += self._present(path, found)
            damaged += rejected
        if damaged:
            self._journal.set_aside(damaged)
            _log.warning("%d rows of the log of access cannot be read; they are in the quarantine", len(damaged))
        if rows:
            rows = _remembered(rows, self._tombstones())
        if rows:

            def grown(old: pa.Table) -> pa.Table:
                known = old.filter(pc.equal(old["operation"], USE)).to_pylist()
                merged = _added([*known, *(row for row in rows if row["operation"] == USE)])
                others = {row["id"]: row for row in rows if row["operation"] != USE}
                old = old.filter(pc.not_equal(old["operation"], USE))
                new = pa.Table.from_pylist([*others.values(), *merged], schema=old.schema)
                return pa.concat_tables([old, new.filter(pc.invert(pc.is_in(new["id"], old["id"].combine_chunks())))])

            self._tables().transform(ACCESS_LOG, {row["day"] for row in rows}, grown)
        self._storage.delete(paths)
        if now is None:
            return len(rows)
        last = f"{now - _KEPT:%Y-%m-%d}"
        if expired := [day for day in self._tables().keys(ACCESS_LOG) if day < last]:
            self._tables().remove(ACCESS_LOG, expired)
        return len(rows)


def _row(agent: Scope, target: Scope, operation: str, at: datetime) -> dict[str, object]:
    place = dict(zip(SCOPE_COLUMNS, (*target.own.ids, target.identity, target.key), strict=True))
    return {"called_at": at, **place, "asking_agent": agent.agent_id, "operation": operation}


def _added(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each memory and day, with the sum of its uses and the time of the last one."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = digest(USE, row["scope"], row["result_ids"][0], row["day"])
        known = found.setdefault(key, {**row, "id": key, "results": 0})
        known["results"] += row["results"]
        known["called_at"] = max(row["called_at"], known["called_at"])
    return list(found.values())


def ids_in(result: Any) -> tuple[list[str], int]:
    """Return the ids of the results of a method, as far as they have some, and the number of results."""
    if result is None or isinstance(result, int):
        return [], int(result or 0)
    listed: Any = [result]
    if not hasattr(result, "id"):
        found = getattr(result, "parts", getattr(result, "rows", result))  # of injected context, and of SQL
        listed = found if isinstance(found, Collection) and not isinstance(found, str) else listed
    ids = [getattr(getattr(item, "memory", item), "id", None) for item in listed]
    return [one for one in ids if isinstance(one, str)], len(listed)


def _parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the rows of lines. Raise an error if any of them is no row."""
    import pyarrow as pa

    from memory_pipeline.lake.schemas import ACCESS_LOG

    needed = [field.name for field in ACCESS_LOG.schema if not field.nullable]
    rows = []
    for line in lines:
        row: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(row["called_at"]).astimezone(UTC)
        row = {**row, "called_at": at, "day": f"{at:%Y-%m-%d}"}
        _scopes_of(row)
        if row["operation"] == USE and not row["result_ids"]:
            raise InputError("a use names no memory")
        if missing := [name for name in needed if row[name] is None]:
            raise InputError(f"{', '.join(missing)} must have a value")
        rows.append(row)
    pa.Table.from_pylist(rows, schema=ACCESS_LOG.schema)
    return rows


def _scopes_of(row: dict[str, Any]) -> tuple[Scope, Scope]:
    """Return the scope that was used, and the own scope of the agent that used it."""
    return Scope(*(row[name] for name in SCOPE_COLUMNS)), Scope(row["workspace_id"], row["asking_agent"])


def _remembered(rows: list[dict[str, Any]], tombstones: Tombstones) -> list[dict[str, Any]]:
    """Return rows as they may be stored, without those about an erased agent or user."""
    forgotten, last = tombstones.forgotten(), dict[str, datetime]()
    for one in tombstones.all():
        last[one.workspace_id] = max(one.forgotten_at, last.get(one.workspace_id, one.forgotten_at))
    kept = []
    for row in rows:
        workspace_id, at = row["workspace_id"], row["called_at"]
        if not any(forgotten.reaches(scope, at) for scope in _scopes_of(row)):
            # A result may have been erased since.
            is_unsure = at <= last.get(workspace_id, _EVER_AGO)
            if not (is_unsure and row["operation"] == USE):
                kept.append({**row, "result_ids": []} if is_unsure else row)
    return kept

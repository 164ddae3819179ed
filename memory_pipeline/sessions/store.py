"""The entries of session state of one lake, in one table."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.sessions import MAX_VALUE, PROMOTED_FROM, Container, Entry, EntryKind, redacted_value
from memory_pipeline.domain.text.secrets import REMOVES_NONE
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.sessions.database import Database, opened
from memory_pipeline.settings import sessions_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.lake import Lake

#: The folder of the lake with the file of SQLite, and with saved sessions.
FOLDER: Final = "sessions"
FILE: Final = f"{FOLDER}/sessions.db"
#: Says that the sessions of the lake are in a database of their own, without its user and password.
_ELSEWHERE: Final = "state/sessions.json"

_COLUMNS = "id, key, type, value, version, accesses, created_at, updated_at, expires_at"
_OWNER = "container, lake_id, workspace_id, agent_id, identity, kind, space, section"
_IS_ALIVE = "(expires_at IS NULL OR expires_at > :now)"
#: B608 warns of SQL that is put together. Here only constants are put into it; values are parameters.
_ONE = "container = :container AND key = :key"
_INSERT = f"""
    INSERT INTO memory_pipeline_entries AS old ({_OWNER}, {_COLUMNS})
    VALUES (:container, :lake_id, :workspace_id, :agent_id, :identity, :kind, :space, :section,
        :id, :key, :type, :value,
        1 + coalesce((SELECT version FROM memory_pipeline_floors WHERE lake_id = :lake_id), 0),
        :accesses, :created_at, :now, :expires_at)
    ON CONFLICT (container, key) DO UPDATE SET
        type = excluded.type, version = old.version + 1, updated_at = :now, expires_at = excluded.expires_at,
        accesses = CASE WHEN old.expires_at <= :now THEN excluded.accesses ELSE old.accesses END,
        created_at = CASE WHEN old.expires_at <= :now THEN excluded.created_at ELSE old.created_at END,
"""  # nosec B608
_PUT = f"{_INSERT} value = excluded.value RETURNING version"
_CREATE = f"{_INSERT} value = excluded.value WHERE old.expires_at <= :now RETURNING version"
#: Both values are JSON lists: the end of the first and the beginning of the second become a comma.
_APPEND = f"""{_INSERT} value = CASE WHEN old.expires_at <= :now THEN excluded.value
        ELSE substr(old.value, 1, length(old.value) - 1) || ',' || substr(excluded.value, 2) END
    WHERE old.expires_at <= :now OR length(old.value) + length(excluded.value) <= {MAX_VALUE} RETURNING version
"""
_SWAP = f"""
    UPDATE memory_pipeline_entries
    SET value = :value, version = version + 1, updated_at = :now, expires_at = :expires_at
    WHERE {_ONE} AND version = :expected AND {_IS_ALIVE} RETURNING version
"""  # nosec B608
_GET = f"SELECT {_COLUMNS} FROM memory_pipeline_entries WHERE {_ONE} AND {_IS_ALIVE}"  # nosec B608
_TOUCH = f"UPDATE memory_pipeline_entries SET accesses = accesses + 1 WHERE {_ONE} AND {_IS_ALIVE} RETURNING {_COLUMNS}"  # nosec B608
_REFRESH = f"""
    UPDATE memory_pipeline_entries SET expires_at = :expires_at WHERE {_ONE} AND {_IS_ALIVE} RETURNING expires_at
"""  # nosec B608
_ALL = f"SELECT {_COLUMNS} FROM memory_pipeline_entries WHERE container = :container AND {_IS_ALIVE}"  # nosec B608
_LAST = f"{_ALL} ORDER BY key DESC LIMIT 1"
_REMOVE = f"DELETE FROM memory_pipeline_entries WHERE {_ONE} RETURNING expires_at"  # nosec B608
_DISCARD = f"DELETE FROM memory_pipeline_entries WHERE {_ONE} AND version = :version RETURNING 1"  # nosec B608
_CLEAR = "DELETE FROM memory_pipeline_entries WHERE container = :container RETURNING expires_at"
_IS_USED = f"(kind = '{EntryKind.SHORT_TERM}' AND accesses >= {PROMOTED_FROM})"
#: An expired short-term entry that was used waits for its promotion.
_EXPIRED = f"""
    DELETE FROM memory_pipeline_entries WHERE lake_id = :lake_id AND expires_at <= :now AND NOT {_IS_USED} RETURNING 1
"""  # nosec B608
_OVERDUE = """
    SELECT kind, count(*) FROM memory_pipeline_entries WHERE lake_id = :lake_id AND expires_at <= :then GROUP BY kind
"""
_ROWS = f"SELECT {_OWNER}, {_COLUMNS} FROM memory_pipeline_entries WHERE lake_id = :lake_id"  # nosec B608
_USAGE = "count(*), coalesce(sum({size}), 0), coalesce(sum(accesses), 0), coalesce(max(updated_at), 0)"
_USER = "workspace_id, agent_id, identity"
_REPLACE = """
    UPDATE memory_pipeline_entries SET value = :value, version = version + 1
    WHERE lake_id = :lake_id AND id = :id AND version = :version RETURNING 1
"""
_DELETE = """
    DELETE FROM memory_pipeline_entries
    WHERE lake_id = :lake_id AND id = :id AND (:changed = 1 OR version = :version) RETURNING 1
"""


class StoredEntry(NamedTuple):
    """An entry with its container."""

    container: Container
    entry: Entry


class SessionUsage(NamedTuple):
    """The space that entries take, expired ones too.

    Attributes:
        entries: their number.
        bytes: of their values, as JSON.
        accesses: number of reads that count.
        updated_at: the last write; 0 without entries.
    """

    entries: int
    bytes: int
    accesses: int
    updated_at: int


class SessionStore:
    """The session state of one lake. Safe to use from several threads and processes.

    Times are microseconds since 1970, UTC.
    """

    def __init__(
        self, database: Database, lake_id: str, redactor_of: Callable[[str], Redactor] = lambda _: REMOVES_NONE
    ) -> None:
        self.database = database
        self._lake_id = lake_id
        self._redactor_of = redactor_of

    def entries(self, container: Container) -> Entries:
        """Return the entries of a container."""
        return Entries(self.database, container, self._lake_id, self._redactor_of(container.workspace_id))

    def stored(
        self,
        workspace_id: str | None = None,
        identity: str | None = None,
        kind: EntryKind | None = None,
        *,
        is_used: bool = False,
        expired_at: int | None = None,
    ) -> Iterator[StoredEntry]:
        """Yield all entries of the lake, expired ones too; None is any workspace, identity or kind.

        `is_used` selects the short-term entries with enough accesses to be promoted, `expired_at` those that have
        expired at a time.
        """
        fixed = {"workspace_id": workspace_id, "identity": identity, "kind": kind}
        parameters: dict[str, object] = {name: value for name, value in fixed.items() if value is not None}
        conditions = "".join(f" AND {name} = :{name}" for name in parameters)
        conditions += f" AND {_IS_USED}" if is_used else ""
        if expired_at is not None:
            conditions += " AND expires_at <= :expired_at"
            parameters["expired_at"] = expired_at
        for row in self.database.run(f"{_ROWS}{conditions}", {"lake_id": self._lake_id, **parameters}):
            _, _, workspace, agent, owner, stored_kind, space, section, *columns = row
            container = Container(workspace, agent, owner, EntryKind(stored_kind), space, section)
            yield StoredEntry(container, Entry(*columns))

    def usage(self, workspace_id: str | None = None, agent_id: str | None = None) -> SessionUsage:
        """Return what all entries take; None is any workspace or agent."""
        [row] = self._usage("", "", workspace_id, agent_id, {})
        return SessionUsage(*map(int, row))

    def largest(
        self, workspace_id: str | None, agent_id: str | None, limit: int
    ) -> dict[tuple[str, str, str], SessionUsage]:
        """Return the `limit` largest usages by workspace, agent and identity, as in :class:`Container`."""
        tail = f"GROUP BY {_USER} ORDER BY 5 DESC, {_USER} LIMIT :limit"
        rows = self._usage(f"{_USER}, ", tail, workspace_id, agent_id, {"limit": limit})
        return {(row[0], row[1], row[2]): SessionUsage(*map(int, row[3:])) for row in rows}

    def _usage(
        self, columns: str, tail: str, workspace_id: str | None, agent_id: str | None, more: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        # Older versions of SQLite have no octet_length.
        size = "length(CAST(value AS BLOB))" if self.database.is_sqlite else "octet_length(value)"
        fixed = {"workspace_id": workspace_id, "agent_id": agent_id}
        given = {name: value for name, value in fixed.items() if value is not None}
        conditions = "".join(f" AND {name} = :{name}" for name in given)
        statement = f"""
            SELECT {columns}{_USAGE.format(size=size)} FROM memory_pipeline_entries
            WHERE lake_id = :lake_id{conditions} {tail}
        """  # nosec B608
        return self.database.run(statement, {"lake_id": self._lake_id, **given, **more})

    def delete(self, entries: Iterable[Entry], *, changed: bool = True) -> int:
        """Delete entries, also those that were changed since they were read if `changed`; return their number."""
        fixed = {"lake_id": self._lake_id, "changed": int(changed)}
        rows = (self.database.run(_DELETE, {**fixed, "id": one.id, "version": one.version}) for one in entries)
        return sum(map(len, rows))

    def replace(self, entry: Entry, value: str) -> bool:
        """Replace the value of an entry, with a new version; return false if it was changed since it was read."""
        own = {"lake_id": self._lake_id, "id": entry.id, "version": entry.version, "value": value}
        return bool(self.database.run(_REPLACE, own))

    def redact(self, *, dry_run: bool) -> int:
        """Replace the secrets in all entries; return how many had some. With `dry_run`, only count them."""
        count = 0
        for container, entry in list(self.stored()):
            left = redacted_value(self._redactor_of(container.workspace_id), entry.key, entry.value)
            if left != entry.value and (dry_run or self.replace(entry, left)):
                count += 1
        return count

    def overdue(self, then: int) -> dict[EntryKind, int]:
        """Return the number of entries that expired until a time and are still there, by kind."""
        rows = self.database.run(_OVERDUE, {"lake_id": self._lake_id, "then": then})
        return {EntryKind(kind): int(count) for kind, count in rows}

    def delete_expired(self, now: int) -> int:
        """Delete expired entries, except used short-term ones, which are promoted first; return their number."""
        return len(self.database.run(_EXPIRED, {"lake_id": self._lake_id, "now": now}))


class Entries:
    """The entries of one container. Each method is one transaction; expired entries are not there."""

    def __init__(
        self, database: Database, container: Container, lake_id: str, redactor: Redactor = REMOVES_NONE
    ) -> None:
        self._run = database.run
        self._redactor = redactor
        self.key = container.key(lake_id)
        owner = {name: getattr(container, name) for name in Container.__slots__}
        self._owner = {**owner, "container": self.key, "lake_id": lake_id, "kind": container.kind.value}

    def guarded(self, require: Callable[[bool], object]) -> Entries:
        """Call `require` before each operation, with whether it changes something. Return these entries."""
        run = self._run

        def checked(statement: str, parameters: Mapping[str, object]) -> list[Any]:
            require(statement not in {_GET, _TOUCH, _ALL, _LAST})
            return run(statement, parameters)

        self._run = checked
        return self

    def put(
        self,
        key: str,
        value: str,
        expires_at: int | None,
        now: int,
        type: str = "",  # noqa: A002  # as the column
        accesses: int = 0,
        created_at: int | None = None,
    ) -> int:
        """Store an entry in place of the one with its key; return its version.

        A new one has had `accesses`, and was created at `created_at`, by default now.
        """
        own = {"accesses": accesses, "created_at": now if created_at is None else created_at}
        [(version,)] = self._run(_PUT, {**self._row(key, value, expires_at, now, type), **own})
        return int(version)

    def append(self, key: str, item: str, expires_at: int, now: int) -> int | None:
        """Append an item to a list; return its version, or None if the list would be too large."""
        rows = self._run(_APPEND, self._row(key, f"[{item}]", expires_at, now, ""))
        return int(rows[0][0]) if rows else None

    def swap(
        self,
        key: str,
        value: str,
        expected: int,
        expires_at: int | None,
        now: int,
        type: str = "",  # noqa: A002  # as the column
    ) -> int | None:
        """Store a value if the entry has the expected version, 0 for none; return the new version, or None if not."""
        if expected == 0:
            rows = self._run(_CREATE, self._row(key, value, expires_at, now, type))
        else:
            parameters = {
                "container": self.key, "key": key, "value": self._redacted(key, value), "expected": expected,
                "expires_at": expires_at, "now": now,
            }  # fmt: skip
            rows = self._run(_SWAP, parameters)
        return int(rows[0][0]) if rows else None

    def get(self, key: str, now: int) -> Entry | None:
        """Return an entry, or None."""
        rows = self._run(_GET, {"container": self.key, "key": key, "now": now})
        return Entry(*rows[0]) if rows else None

    def touch(self, key: str, now: int) -> Entry | None:
        """Count an access; return the entry, or None."""
        rows = self._run(_TOUCH, {"container": self.key, "key": key, "now": now})
        return Entry(*rows[0]) if rows else None

    def refresh(self, key: str, expires_at: int, now: int) -> bool:
        """Set when an entry expires; return whether it was there."""
        parameters = {"container": self.key, "key": key, "expires_at": expires_at, "now": now}
        return bool(self._run(_REFRESH, parameters))

    def all(self, now: int) -> list[Entry]:
        """Return all entries, sorted by key."""
        rows = self._run(_ALL, {"container": self.key, "now": now})
        return sorted((Entry(*row) for row in rows), key=lambda entry: entry.key)

    def last(self, now: int) -> Entry | None:
        """Return the entry with the last key, or None."""
        rows = self._run(_LAST, {"container": self.key, "now": now})
        return Entry(*rows[0]) if rows else None

    def discard(self, entry: Entry) -> bool:
        """Remove an entry unless it was changed since it was read; return whether it was removed."""
        own = {"container": self.key, "key": entry.key, "version": entry.version}
        return bool(self._run(_DISCARD, own))

    def remove(self, key: str, now: int) -> bool:
        """Remove an entry; return whether it was there."""
        return _alive(self._run(_REMOVE, {"container": self.key, "key": key}), now) > 0

    def clear(self, now: int) -> int:
        """Remove all entries; return how many there were."""
        return _alive(self._run(_CLEAR, {"container": self.key}), now)

    def _row(self, key: str, value: str, expires_at: int | None, now: int, type_: str) -> Mapping[str, object]:
        unique = blake2b(f"{self.key}{now}{key}".encode(), digest_size=16).hexdigest()
        own = {
            "id": unique,
            "key": key,
            "type": type_,
            "value": self._redacted(key, value),
            "expires_at": expires_at,
            "now": now,
        }
        return {**self._owner, "accesses": 0, "created_at": now, **own}

    def _redacted(self, key: str, value: str) -> str:
        return redacted_value(self._redactor, key, value)


def _alive(removed: Iterable[tuple[int | None]], now: int) -> int:
    return sum(expires_at is None or expires_at > now for (expires_at,) in removed)


def session_store(lake: Lake) -> SessionStore:
    """Return the session state of a lake; create lake and database if they do not exist.

    Raises:
        ConfigurationError: the lake is in a bucket and MEMORY_PIPELINE_SESSIONS is not set, it is no address of a
            database, or SQLAlchemy is not installed.
        LakeError: the database cannot be reached, or a newer version of this package migrated it.
    """
    lake.ensure()
    url = sessions_url()
    if url is not None:
        database = opened(url, None)
        known = json.dumps({"database": database.place}).encode()
        if lake.storage.read(_ELSEWHERE) != known:
            lake.storage.write(_ELSEWHERE, known)
        return SessionStore(database, lake.id, lake.redactor_of)
    if not lake.storage.is_local:
        raise ConfigurationError(
            f"the lake at {lake.storage.uri} is in a bucket, where a file of SQLite cannot be; set "
            "MEMORY_PIPELINE_SESSIONS to a database that all machines reach, such as "
            "postgresql://user:password@host/database"
        )
    _refuse_elsewhere(lake)
    return _in_file(lake)


def existing_stores(lake: Lake) -> list[SessionStore]:
    """Return all session state of a lake, without creating any: in the database that is set, and in the lake's folder.

    Raises:
        ConfigurationError: the lake has sessions in a database whose address is not set.
        LakeError: a database cannot be reached.
    """
    if not lake.exists:
        return []
    found = []
    if sessions_url() is None:
        _refuse_elsewhere(lake)
    elif lake.storage.is_there(_ELSEWHERE):
        found.append(session_store(lake))
    if lake.storage.sizes([FILE], FOLDER).get(FILE) and lake.storage.is_local:
        found.append(_in_file(lake))
    return found


def damaged_database(lake: Lake) -> str | None:
    """Return why the file of the database in the lake's folder cannot be read, or None.

    Raises:
        OSError: this process may not open it.
    """
    if not lake.storage.is_local or FILE not in (sizes := lake.storage.sizes([FILE], FOLDER)):
        return None
    if not sizes[FILE]:
        return "it is empty"
    path = Path(lake.storage.locate(FILE)).absolute()
    path.open("rb").close()  # a file that this process may not open is not damaged
    fault = None
    # Without write access, SQLite opens a database only if it may leave out the log beside it.
    for uri in (path.as_uri(), f"{path.as_uri()}?immutable=1"):
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
                [found] = connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return None  # another process writes
            fault = str(error)
        except sqlite3.Error as error:
            return str(error)
        else:
            return None if found == "ok" else found
    return fault


def discard_database(lake: Lake) -> None:
    """Delete the file of the database in the lake's folder. The next session makes a new one."""
    lake.storage.delete(f"{FILE}{ending}" for ending in ("", "-wal", "-shm"))


def _in_file(lake: Lake) -> SessionStore:
    lake.storage.create(FILE, b"")  # with the rights of the lake's files; SQLite fills it
    path = lake.storage.locate(FILE)
    file = os.stat(path)  # noqa: PTH116
    return SessionStore(opened(path, (file.st_dev, file.st_ino)), lake.id, lake.redactor_of)


def _refuse_elsewhere(lake: Lake) -> None:
    known: Any = lake.storage.read(_ELSEWHERE)
    if known is not None:
        raise ConfigurationError(
            f"the sessions of the lake at {lake.storage.uri} are in {json.loads(known)['database']}; set "
            "MEMORY_PIPELINE_SESSIONS to its address"
        )

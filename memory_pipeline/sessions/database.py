"""A SQLite or PostgreSQL database. The only module that imports SQLAlchemy, apart from the migrations.

A statement is SQL with ``:name`` parameters. SQLAlchemy translates it once for the database; then the driver runs it,
because SQLAlchemy's own execution takes longer than the statement. Each statement is a transaction of its own.
"""

from __future__ import annotations

import os
from collections import deque
from functools import cache, lru_cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.errors import ConfigurationError, LakeError, require, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

#: The table of Alembic. A database may also have those of Dagster.
VERSIONS: Final = "memory_pipeline_versions"
#: The newest migration.
NEWEST: Final = "0002"
ACCEPTED: Final = "expected an address such as postgresql://user:password@host/database, or sqlite:////path/file.db"
#: The first version with RETURNING.
_LEAST_SQLITE: Final = (3, 35)
#: Any number that no other program of the database locks.
_MIGRATION_LOCK: Final = 7_310_594_220_935
#: How long a write waits for another process, in seconds.
_PATIENCE: Final = 30
#: An idle connection to a server may be broken. It is tested after so many seconds.
_IDLE: Final = 10.0
#: Connections of the process that this one was forked from. Closing them here would end them there.
_INHERITED: Final[list[Any]] = []


class Database:
    """An open database. Safe to use from several threads, and after a fork."""

    def __init__(self, url: str) -> None:
        require("sessions", "sqlalchemy")
        from sqlalchemy import text

        self._engine = _engine(url)
        #: The address without its password.
        self.address = self._engine.url.render_as_string(hide_password=True)
        #: Where it is, without user and password.
        at = self._engine.url
        self.place = f"{at.get_backend_name()}://{at.host or ''}{f':{at.port}' if at.port else ''}/{at.database}"
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self._errors: Any = self._engine.dialect.loaded_dbapi.Error
        self._free: deque[tuple[Any, float]] = deque()
        self._process = os.getpid()
        self._translated = cache(lambda statement: str(text(statement).compile(dialect=self._engine.dialect)))
        self._migrate()

    def run(self, statement: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows.

        Raises:
            LakeError: the database cannot be reached, or is locked for too long.
        """
        connection = self._take()
        try:
            cursor = connection.cursor()
            cursor.execute(self._translated(statement), parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            cursor.close()
        except self._errors as error:
            if not self.is_sqlite and connection.closed:
                self._free.clear()
            else:
                self._give_back(connection)
            raise self._failure(error) from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return rows

    def compact(self) -> None:
        """Remove deleted rows of SQLite from the disk. PostgreSQL's vacuum does this by itself, later.

        Raises:
            LakeError: another process reads or writes for too long.
        """
        if self.is_sqlite:
            # Rows that SQLite has moved to other pages leave copies in the old ones, which `secure_delete` misses.
            self.run("VACUUM", {})
            [(is_busy, *_)] = self.run("PRAGMA wal_checkpoint(TRUNCATE)", {})
            if is_busy:
                raise LakeError(f"{self.address} is in use for too long; run the command again")

    def _take(self) -> Any:
        if self._process != os.getpid():
            _INHERITED.append(self._free)
            self._free, self._process = deque(), os.getpid()
            self._engine.dispose(close=False)
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                break
            if self.is_sqlite or monotonic() - since < _IDLE or self._answers(connection):
                return connection
        try:
            pooled = self._engine.raw_connection()
        except Exception as error:
            # SQLAlchemy wraps the error of the driver.
            raise self._failure(error.__cause__ or error) from error
        pooled.detach()
        return pooled.dbapi_connection

    def _give_back(self, connection: Any) -> None:
        self._free.append((connection, 0.0 if self.is_sqlite else monotonic()))

    def _answers(self, connection: Any) -> bool:
        try:
            return bool(self._engine.dialect.do_ping(connection))
        except self._errors:
            return False

    def _failure(self, error: BaseException) -> LakeError:
        remedy = (
            f"check the disk, and that no process holds a transaction for {_PATIENCE} seconds"
            if self.is_sqlite
            else "check MEMORY_PIPELINE_SESSIONS and the server; a write may have been done"
        )
        return LakeError(f"session database {self.address}: {shown(' '.join(str(error).split()), 300)}; {remedy}")

    def _migrate(self) -> None:
        """Bring the tables to the newest version. Of several processes, one does it and the others wait."""
        if self._version() == NEWEST:
            return
        require("sessions", "alembic")
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        try:
            with self._engine.connect() as connection:
                # The engine commits nothing by itself: this transaction holds the lock to its end.
                connection.exec_driver_sql("BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN")
                if not self.is_sqlite:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.exec_driver_sql("COMMIT")
        except CommandError:
            raise LakeError(
                f"session database {self.address} was migrated by a newer version of memory-pipeline; install that"
            ) from None
        except Exception as error:
            raise self._failure(error.__cause__ or error) from error

    def _version(self) -> str | None:
        try:
            rows = self.run(f"SELECT version_num FROM {VERSIONS}", {})  # noqa: S608  # nosec B608  # a constant
        except LakeError:  # there is no such table, or no server: migrating will tell
            return None
        return rows[0][0] if rows else None


def _engine(url: str) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError
    from sqlalchemy.pool import NullPool

    try:
        parsed = URL.create("sqlite", database=url) if url.startswith("/") else make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(f"MEMORY_PIPELINE_SESSIONS is not an address of a database; {ACCEPTED}") from None
    backend = parsed.drivername.partition("+")[0]
    if backend not in {"sqlite", "postgresql", "postgres"} or (backend == "sqlite" and not parsed.database):
        raise ConfigurationError(
            f"MEMORY_PIPELINE_SESSIONS {shown(parsed.render_as_string(hide_password=True))} is not accepted; {ACCEPTED}"
        )
    is_sqlite = backend == "sqlite"
    parsed = parsed.set(drivername="sqlite+pysqlite" if is_sqlite else "postgresql+psycopg2")
    options: dict[str, Any] = {"paramstyle": "named"} if is_sqlite else {}
    wait = {"timeout": _PATIENCE, "check_same_thread": False} if is_sqlite else {"connect_timeout": _PATIENCE}
    if not is_sqlite:
        require("sessions", "psycopg2")
    engine = create_engine(parsed, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=wait, **options)
    if is_sqlite:
        found = engine.dialect.loaded_dbapi.sqlite_version
        if tuple(map(int, found.split("."))) < _LEAST_SQLITE:
            raise ConfigurationError(
                f"Python has SQLite {found}, sessions need 3.35; use a newer Python, or set "
                "MEMORY_PIPELINE_SESSIONS to a PostgreSQL database"
            )
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    """Let readers and one writer work at once. A commit survives a killed process; a power cut may lose the last ones.

    Deleted values are overwritten with zeros.
    """
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {setting}").fetchall()


@lru_cache(maxsize=16)
def opened(url: str, file: tuple[int, int] | None) -> Database:  # noqa: ARG001  # a part of the key of the cache
    """Return the database at an address, or in the file at an absolute path, opened once per process.

    `file` identifies the file of SQLite (device and inode), since another one may have taken its place.
    """
    return Database(url)

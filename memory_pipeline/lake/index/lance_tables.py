"""The only module that imports lancedb: opens, creates, drops, reads and commits to tables beside other processes.

A database is a folder under the lake's root: ``projections``, whose tables belong to
:mod:`~memory_pipeline.lake.index.vector_index`, and ``vectordb/{workspace}`` for
:mod:`~memory_pipeline.lake.collections.collection`.

Tables are purged and dropped while others use them. A reader that finds files missing reads again; a writer checks that
its version still exists. A recreated table counts its versions from 1 again, so each table records when it was created.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from datetime import UTC, datetime, timedelta
from enum import StrEnum, auto
from functools import lru_cache, partial, wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow.types as pa_types

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import CommitConflictError, DamagedLanceTableError, one_line, shown
from memory_pipeline.lake.commit_retry import CommitLostError, pauses, retry_async
from memory_pipeline.lake.files.disk import raise_of_disk
from memory_pipeline.lake.files.storage_errors import REMEDY, in_words, is_of_store, store_policy
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.index.lance_client import without_rest_client
from memory_pipeline.lake.index.lance_internals import (
    LONGEST_WRITE,
    has_vanished,
    is_conflict,
    is_damage,
    lance_table,
    metadata_in,
    newest_manifest,
)
from memory_pipeline.lake.index.maintenance import compact
from memory_pipeline.lake.leases import Leases
from memory_pipeline.operating_system import muted_panics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    import pyarrow as pa

    from memory_pipeline.lake.files.storage import Storage


_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")

#: A writer looks for small files to merge when a table's version is a multiple of this.
COMPACT_EVERY = 32
#: Claims for creating tables: LanceDB lets two processes create the same table, and the later may empty it.
_CLAIMS = "state/lance"
#: Time to create an empty table, and the longest pause in seconds before others look again.
_LEASE, _PAUSE = timedelta(minutes=1), 0.02
#: Attempts of a write that lost against another process, and of a read that found files missing.
_ATTEMPTS, _LOOKS = 20, 8
#: Values that are looked up in an index at once.
_LISTED = 1_000
#: Attempts to delete a table's folder while others may write to it.
_DROPS = 10
#: Key in a table's metadata: when it was created, in milliseconds since 1970.
_MADE = b"memory_pipeline.made"
#: More versions than any table has.
_VERSIONS = 2**20
#: For this many seconds, a table with the same version is assumed to be the same table.
_TRUSTED = 1.0
#: The exceptions that lancedb raises.
FAILURES = (RuntimeError, ValueError, OSError)
#: Subject of error messages.
_FAILED = "a table of vectors"


class IndexKind(StrEnum):
    """An index of a column: of single values, of words with their positions, or an approximate one of vectors."""

    VALUES = auto()
    WORDS = auto()
    VECTORS = auto()


def index_config(kind: IndexKind) -> Any:
    """Return the configuration of an index, for lancedb."""
    from lancedb.index import FTS, BTree, IvfRq

    match kind:
        case IndexKind.VALUES:
            return BTree()
        case IndexKind.WORDS:
            return FTS(with_position=True)
        case IndexKind.VECTORS:
            return IvfRq(distance_type="cosine")


def ordering(column: str, *, ascending: bool) -> Any:
    """Return an order of rows by a column, nulls last, for lancedb."""
    from lancedb.query import ColumnOrdering

    return ColumnOrdering(column_name=column, ascending=ascending, nulls_first=False)


class VanishedError(RuntimeError):
    """A table was dropped after it was written to."""

    def __init__(self) -> None:
        super().__init__("the table is not found any more")


def run_coroutine(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Wait for a coroutine, for callers without an event loop. Return or raise its result.

    All coroutines of a process run on one thread. The async API of LanceDB has half the latency of the sync one.

    Raises:
        RuntimeError: the caller is a coroutine itself, and would wait for its own thread.
    """
    loop = _event_loop(os.getpid())
    if asyncio._get_running_loop() is loop:
        coroutine.close()
        raise RuntimeError("a coroutine of the index cannot wait for another one; await it")
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def synchronous(method: Callable[_Arguments, Coroutine[Any, Any, _Result]]) -> Callable[_Arguments, _Result]:
    """Make a coroutine method one that waits for its result; see :func:`run_coroutine`."""

    @wraps(method)
    def waiting(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return run_coroutine(method(*args, **kwargs))

    return waiting


@lru_cache(maxsize=1)
def _event_loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001  # a forked process has no threads of its parent
    # A loop keeps the context in which it was made, and so everything in it. This one lives as long as the process.
    loop = Context().run(asyncio.new_event_loop)
    threading.Thread(target=loop.run_forever, name="memory-index", daemon=True).start()
    return loop


class Databases:
    """Opens and creates the tables of a lake's databases, for coroutines of one event loop.

    A read sees every write that finished before it began.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._options = storage.options
        self._connections: dict[str, Any] = {}
        self._tables: dict[tuple[str, str], Any] = {}
        # By table: version, when it was created, and until when both are trusted to be of the same table.
        self._known: dict[tuple[str, str], tuple[int, int, float]] = {}
        # By database and beginning of a table's name: whether a schema is that of this version of the package.
        self._expected: dict[tuple[str, str], Callable[[pa.Schema], bool]] = {}
        self._claims = Leases(storage, _CLAIMS, lambda: datetime.now(UTC))

    def expect(self, folder: str, projection: str, is_current: Callable[[pa.Schema], bool]) -> None:
        """Refuse the tables of a projection whose schema is another one. Their names are ``{projection}-…``."""
        self._expected[folder, projection] = is_current

    async def table(self, folder: str, name: str) -> Any | None:
        """Return a table, or None.

        Raises:
            DamagedLanceTableError: it cannot be opened, or another version of the package wrote it.
        """
        options = self._storage.options
        if options != self._options:  # credentials were renewed, and open tables have the old ones
            self._options = options
            for opened in (self._connections, self._tables, self._known):
                opened.clear()
        if (folder, name) not in self._tables:
            if await self.version(folder, name) is None:
                return None  # connecting would create the folder
            connection = await self._connection(folder)
            try:
                table = await _without_panic(connection.open_table(name))
                schema = await table.schema()
            except FAILURES as error:
                raise_of_disk(error, self._storage.uri)
                if is_of_store(error):
                    raise in_words(error, _FAILED) from error
                if not has_vanished(error):
                    raise _in_words(error, folder, name) from error
                return None
            is_current = self._expected.get((folder, name.partition("-")[0]))
            if is_current is not None and not is_current(schema):
                raise DamagedLanceTableError(
                    f"table {folder}/{name}.lance was written by another version of memory-pipeline; "
                    "run `memory-pipeline run` to rebuild it from the records"
                )
            if not schema.names:  # Lance reads a manifest of zeros as one without columns and rows
                raise DamagedLanceTableError(f"table {folder}/{name}.lance has no columns; {REMEDY}")
            self._tables[folder, name] = table
        return self._tables[folder, name]

    def forget(self, folder: str, name: str) -> None:
        """Reopen a table on next use."""
        self._tables.pop((folder, name), None)
        self._known.pop((folder, name), None)

    async def read(
        self, folder: str, name: str, read: Callable[[Any], Awaitable[_Result]], nothing: _Result
    ) -> _Result:
        """Return the result of `read`, repeated if files vanish; `nothing` if there is no table."""

        async def attempt() -> _Result:
            table = await self.table(folder, name)
            try:
                return nothing if table is None else await _without_panic(read(table))
            except FAILURES:
                self.forget(folder, name)
                raise

        explain = partial(_in_words, folder=folder, name=name)
        policy = store_policy(_FAILED, _LOOKS, FAILURES, explain, is_lost=has_vanished, place=self._storage.uri)
        return await retry_async(attempt, policy)

    async def whole(self, folder: str, name: str) -> pa.Table | None:
        """Return all rows of a table, or None if there is no table. Its indices are read, too.

        Raises:
            DamagedLanceTableError: the table cannot be read, or an index finds other rows than it has.
        """
        damaged = f"table {folder}/{name}.lance"
        try:
            return await self.read(folder, name, _whole, None)
        except _WrongIndexError as error:
            raise DamagedLanceTableError(f"{damaged}: {error}; {REMEDY}") from error
        except FAILURES as error:  # to read all rows needs nothing but sound files
            raise DamagedLanceTableError(
                f"{damaged} cannot be read: {shown(one_line(error), 160)}; {REMEDY}"
            ) from error

    async def edit(
        self, folder: str, name: str, write: Callable[[Any], Awaitable[_Result]], nothing: _Result
    ) -> _Result:
        """Return the result of a write, retried as by :func:`retry_lance_commit`; `nothing` if there is no table."""

        async def attempt() -> _Result:
            table = await self.table(folder, name)
            return nothing if table is None else await write(table)

        return await retry_lance_commit(attempt, lambda: self.forget(folder, name))

    async def create(self, folder: str, name: str, schema: pa.Schema, rows: pa.Table | None = None) -> Any:
        """Return a table. Create it if necessary, empty or with `rows`; safe under concurrency."""
        connection = await self._connection(folder)
        while (table := await self.table(folder, name)) is None:
            async with self.claimed(folder, name):
                if await self.table(folder, name) is None:  # it may have been created in the meantime
                    made = str(int(datetime.now(UTC).timestamp() * 1000)).encode()
                    schema = schema.with_metadata({**(schema.metadata or {}), _MADE: made})
                    data = None if rows is None else rows.replace_schema_metadata(schema.metadata)
                    created = await connection.create_table(name, data, schema=schema, on_bad_vectors="null")
                    self._tables[folder, name] = created
        return table

    async def drop(self, folder: str, name: str, *, only_if_empty: bool = False) -> bool:
        """Delete a table with all its versions. Return whether it existed.

        Args:
            folder: of the database, below the root.
            name: of the table.
            only_if_empty: keep a table with rows. A write confirmed by :meth:`version_exists` is never lost.

        Raises:
            CommitConflictError: others kept writing to it.
        """
        path = f"{folder}/{name}.lance"
        connection = await self._connection(folder)
        async with self.claimed(folder, name):
            if only_if_empty:
                rows: int = await self.read(folder, name, lambda table: table.count_rows(), 0)
                if rows:
                    return False
            self.forget(folder, name)
            there = await asyncio.to_thread(self._storage.has, path)

            async def attempt() -> None:
                with suppress(*FAILURES):
                    await connection.drop_table(name, ignore_missing=True)
                await asyncio.to_thread(self._storage.remove, path)
                if await asyncio.to_thread(self._storage.has, path):  # concurrent writers put files back
                    raise CommitLostError

            lost = f"{path} cannot be deleted while others keep writing into it; try again"
            policy = store_policy(path, _DROPS, (CommitLostError,), lambda _: CommitConflictError(lost))
            if there:
                await retry_async(attempt, policy)
            return there

    async def version_exists(self, folder: str, name: str, version: int) -> bool:
        """Return whether a committed version still exists: the table may have been dropped as empty."""
        if await asyncio.to_thread(self._storage.read, f"{_CLAIMS}/{digest(folder, name)}.json") is not None:
            async with self.claimed(folder, name):  # under the claim, a drop is either done or will not happen
                pass
        return await self.read(folder, name, lambda table: table.version(), 0) >= version

    async def version(self, folder: str, name: str) -> int | None:
        """Return a number that grows with each commit to a table, and when it is recreated; None if there is no table.

        A table dropped and recreated within a second may have the same number for the rest of that second. LanceDB does
        not know this number, and is not asked: a listing and the newest manifest have it.
        """
        return await asyncio.to_thread(self.newest_version, folder, name)

    def newest_version(self, folder: str, name: str) -> int | None:
        """Return :meth:`version`, for callers that may block."""
        place = f"{folder}/{name}.lance/_versions"
        while True:
            newest = newest_manifest(self._storage.names(place))
            if newest is None:
                self._known.pop((folder, name), None)
                return None
            version, manifest = newest
            known = self._known.get((folder, name))
            if known is not None and known[0] == version and monotonic() < known[2]:
                return known[1] * _VERSIONS + version
            data = self._storage.read(f"{place}/{manifest}")
            if data is not None:  # otherwise it was superseded and deleted, or the table was dropped
                made = int(metadata_in(data, _MADE) or 0)
                self._known[folder, name] = version, made, monotonic() + _TRUSTED
                return made * _VERSIONS + version

    @asynccontextmanager
    async def claimed(self, folder: str, name: str, lease: timedelta = _LEASE) -> AsyncIterator[None]:
        """Hold an exclusive right, such as to create or drop a table, for at most the time of `lease`."""
        key = digest(folder, name)
        for pause in pauses(_PAUSE):
            if await asyncio.to_thread(self._claims.claim, key, lease):
                break
            await asyncio.sleep(pause)
        try:
            yield
        finally:
            await asyncio.to_thread(self._claims.release, key)

    async def commit(
        self,
        folder: str,
        name: str,
        find: Callable[[], Awaitable[Any]],
        write: Callable[[Any], Awaitable[Any]],
        same: str | None,
    ) -> Any:
        """Write to a table with retries, and occasionally compact it. Return the write's result.

        Args:
            folder: of the database, below the root.
            name: of the table.
            find: returns the table.
            write: writes to it.
            same: the condition under which a row is unchanged since it was read; see :func:`compact`.

        Raises:
            CommitConflictError: every attempt lost against other writers; nothing was written.
        """

        async def attempt() -> Any:
            return await write(await find())

        result = await retry_lance_commit(attempt, lambda: self.forget(folder, name))
        if result.version % COMPACT_EVERY == 0:
            # The write is done. If others leave no gap for the compaction, a later round compacts.
            with suppress(CommitConflictError):
                table = await find()
                await retry_lance_commit(lambda: compact(table, same))
                await drop_old_versions(self._storage, f"{folder}/{name}.lance")
        return result

    async def _connection(self, folder: str) -> Any:
        if folder not in self._connections:
            with without_rest_client():
                import lancedb  # takes longer than all other imports together, and an empty lake does without

            uri = self._storage.locate(folder)
            # An interval of zero asks for the newest version at every read: no write is missed.
            self._connections[folder] = await lancedb.connect_async(
                uri, read_consistency_interval=timedelta(0), storage_options=self._options
            )
        return self._connections[folder]


async def retry_lance_commit(
    write: Callable[[], Awaitable[_Result]], renew: Callable[[], object] = lambda: None
) -> _Result:
    """Write, and retry if another process committed first or purged files that were read.

    Args:
        write: must be idempotent.
        renew: called before a retry because of missing files: the table may have been dropped.

    Raises:
        CommitConflictError: every attempt lost against other writers.
        LakeError: requests failed several times.
    """

    async def attempt() -> _Result:
        try:
            return await write()
        except FAILURES as error:
            if is_of_store(error) or has_vanished(error):
                renew()
            raise

    def is_lost(error: Exception) -> bool:
        return has_vanished(error) or is_conflict(error)

    def give_up(error: Exception) -> Exception:
        conflict = CommitConflictError(f"a table of vectors was changed by others {_ATTEMPTS} times; try again")
        return conflict if is_lost(error) else error

    policy = store_policy(_FAILED, _ATTEMPTS, FAILURES, give_up, is_lost=is_lost)
    return await retry_async(attempt, policy)


class _WrongIndexError(Exception):
    """An index does not find the rows of its table."""


async def _whole(table: Any) -> pa.Table:
    rows = await table.query().to_arrow()
    for index in await table.list_indices():
        [column] = index.columns
        values = rows[column].combine_chunks()
        expected = len(values) - values.null_count
        if index.index_type == "FTS":
            await table.query().nearest_to_text("a", columns=column).limit(1).to_arrow()
            continue
        if index.index_type != "BTree":
            await table.query().nearest_to(values.drop_null()[0].as_py()).limit(1).to_arrow()
            continue
        found = 0
        if pa_types.is_string(values.type):
            distinct = values.unique().drop_null().to_pylist()
            for start in range(0, len(distinct), _LISTED):
                found += await table.count_rows(f"{column} IN ({listed(distinct[start : start + _LISTED])})")
        else:
            found = await table.count_rows(f"{column} IS NOT NULL")
        if found != expected:
            raise _WrongIndexError(f"its index of {column} finds {found:,} of {expected:,} rows")
    return rows


async def _without_panic(work: Awaitable[_Result]) -> _Result:
    """Return the result of some work of lancedb. On some damaged files it panics, which is no exception of Python."""
    try:
        with muted_panics():
            return await work
    except BaseException as error:
        if type(error).__name__ not in ("PanicException", "RustPanic"):
            raise
        raise RuntimeError(f"lancedb panicked: {one_line(error)}") from None


def is_of_one_table(one: int, other: int) -> bool:
    """Return whether two results of :meth:`Databases.version` belong to the same table, not a recreated one."""
    return one // _VERSIONS == other // _VERSIONS


def _in_words(error: Exception, folder: str, name: str) -> Exception:
    """Return a DamagedLanceTableError if lancedb reports damage; otherwise the error itself."""
    if not is_damage(error):
        return error
    text = str(error)
    why = shown(text.partition("\n")[0].rpartition(", /")[0] or text, 160)
    return DamagedLanceTableError(f"table {folder}/{name}.lance cannot be read: {why}; {REMEDY}")


async def drop_old_versions(storage: Storage, path: str) -> None:
    """Delete the versions of the table in the folder `path` that were superseded more than an hour ago."""

    def drop() -> None:
        files, now = lance_table(storage, path), datetime.now(UTC)
        if files is not None:
            versions, _ = files.unneeded(storage, now - LONGEST_WRITE, now)
            storage.delete(entry.path for entry in versions)

    await asyncio.to_thread(drop)

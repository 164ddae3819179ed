"""The only door to lancedb: opens and makes tables, and commits beside other processes.

One database for each workspace, ``vectordb/{workspace}`` under the lake's root. Whose tables lie in it, and what is in
them, :mod:`~memory_pipeline.lake.vectors` and :mod:`~memory_pipeline.lake.collection` know.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import lancedb
from lancedb.index import FTS, BTree, IvfRq
from lancedb.query import ColumnOrdering

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.claims import Claims

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import pyarrow as pa

    from memory_pipeline.lake.storage import Storage

__all__ = [
    "COMPACT_EVERY",
    "FTS",
    "BTree",
    "ColumnOrdering",
    "Databases",
    "EventLoop",
    "IvfRq",
    "compact",
    "persistent",
]

_Result = TypeVar("_Result")

#: A table is compacted when its version is a multiple of this.
COMPACT_EVERY = 32
#: Where it is claimed to make a table. LanceDB lets two make the same one, and the later may empty the earlier.
_CLAIMS = "vectordb/_claims"
#: How long one may take to make an empty table, and how long others wait before they look for it again, in seconds.
_LEASE, _PAUSE = timedelta(minutes=1), 0.02
#: How often a write that lost against another process is tried again, and for how many seconds it waits at most.
_ATTEMPTS, _LONGEST_PAUSE = 20, 0.2
#: Old versions stay this long for readers that still use them.
_KEEP_VERSIONS = timedelta(minutes=10)


class EventLoop:
    """A thread that runs coroutines for callers that have no event loop; the async API halves latency.

    It ends when the object is no longer used.
    """

    def __init__(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run_forever, args=(loop,), name="memory-index", daemon=True).start()
        weakref.finalize(self, loop.call_soon_threadsafe, loop.stop).atexit = False

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for a coroutine, and return or raise what it does."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class Databases:
    """Opens and makes the tables of a lake's databases, for coroutines of one event loop.

    A read through a table sees every write that was finished before it began.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._connections: dict[str, Any] = {}
        self._tables: dict[tuple[str, str], Any] = {}
        self._claims = Claims(storage, _CLAIMS, lambda: datetime.now(UTC))

    async def table(self, workspace_id: str, name: str) -> Any | None:
        """Return a table of a workspace; None where there is none."""
        if (workspace_id, name) not in self._tables:
            connection = await self._connection(workspace_id)
            try:
                self._tables[workspace_id, name] = await connection.open_table(name)
            except ValueError as error:
                if "not found" not in str(error).lower():
                    raise
                return None
        return self._tables[workspace_id, name]

    async def create(self, workspace_id: str, name: str, schema: pa.Schema) -> Any:
        """Return a table of a workspace, made empty where there is none, whoever else is making it."""
        connection = await self._connection(workspace_id)
        key = digest(workspace_id, name)
        while (table := await self.table(workspace_id, name)) is None:
            if await asyncio.to_thread(self._claims.claim, key, _LEASE):
                try:
                    if await self.table(workspace_id, name) is None:  # it may have been made since it was looked for
                        await connection.create_table(name, schema=schema)
                finally:
                    await asyncio.to_thread(self._claims.release, key)
            else:
                await asyncio.sleep(_PAUSE)
        return table

    @staticmethod
    async def commit(table: Any, write: Callable[[], Awaitable[Any]]) -> Any:
        """Await a write of a table as :func:`persistent` does, and now and then compact it; return the write's result.

        Raises:
            CommitConflictError: others were first every time; nothing was written.
        """
        result = await persistent(write)
        if result.version % COMPACT_EVERY == 0:
            # What was written stays written: where others leave no gap to compact in, a later round will.
            with suppress(CommitConflictError):
                await persistent(lambda: compact(table))
        return result

    async def _connection(self, workspace_id: str) -> Any:
        if workspace_id not in self._connections:
            uri = self._storage.locate(f"vectordb/{workspace_id}")
            # An interval of zero asks for the newest version at every read: no write is missed.
            self._connections[workspace_id] = await lancedb.connect_async(uri, read_consistency_interval=timedelta(0))
        return self._connections[workspace_id]


async def persistent(write: Callable[[], Awaitable[_Result]]) -> _Result:
    """Await a write, again where another process committed first.

    Args:
        write: one whose result is the same however often it is begun.

    Raises:
        CommitConflictError: others were first every time.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311  # jitter, not a secret
        try:
            return await write()
        except RuntimeError as error:
            if "commit conflict" not in str(error) and "concurrent writers" not in str(error):
                raise
            conflict = error
    raise CommitConflictError(f"a table of vectors was changed by others {_ATTEMPTS} times; try again") from conflict


async def compact(table: Any) -> None:
    """Put a table's small files together, bring its indices up to date and drop versions that nobody reads."""
    await table.checkout_latest()
    await table.optimize(cleanup_older_than=_KEEP_VERSIONS)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()

"""The vector index: the only door to lancedb. A projection of the tables, made again at will.

One database for each workspace, one table for each agent and grain, all periods inside
(docs/decisions/0003-one-index-per-agent-and-grain.md).
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import lancedb
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import FTS, BTree, IvfRq
from lancedb.query import ColumnOrdering

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import ConfigurationError, shown
from memory_pipeline.lake.claims import Claims
from memory_pipeline.lake.schemas import index_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import FactKind
    from memory_pipeline.domain.grains import Grain
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.storage import Storage

_Result = TypeVar("_Result")

#: Says which embedder made the vectors; lies with them, so that deleting the folder forgets both.
_EMBEDDER = "vectordb/_embedder.json"  # no workspace can be called that
#: Where it is claimed to make a table. LanceDB lets two make the same one, and the later may empty the earlier.
_CLAIMS = "vectordb/_claims"
#: How long one may take to make an empty table, and how long others wait before they look for it again, in seconds.
_LEASE, _PAUSE = timedelta(minutes=1), 0.02
#: How many agents' tables are written at once.
_CONCURRENCY = 16
#: A table is compacted when its version is a multiple of this …
_COMPACT_EVERY = 32
#: … and when so many rows are in none of its indices: every search by words reads them all.
_UNINDEXED = 1_000
#: The indices that every table has. That of the content is made last: where it is, the others are.
_INDICES = {"period": BTree(), "ends_at": BTree(), "content": FTS(with_position=True)}
#: How often a write that lost against another process is tried again, and for how many seconds it waits at most.
_ATTEMPTS, _LONGEST_PAUSE = 20, 0.2
#: Old versions stay this long for readers that still use them.
_KEEP_VERSIONS = timedelta(minutes=10)
_MARKS = ("period", "id", "digest", "embed_model")
#: The columns that a search returns.
_FOUND = [name for name in index_schema(0).names if name not in ("digest", "entities", "importance")]
_NOTHING = index_schema(0).empty_table()
_NEWEST = ColumnOrdering(column_name="ends_at", ascending=False, nulls_first=False)
_BY_ID = ColumnOrdering(column_name="id", ascending=True, nulls_first=False)
_TIME = pa.timestamp("us", tz="UTC")
#: From this many rows on a table has an approximate index; below it, comparing all vectors is faster and exact.
_APPROXIMATE_FROM = 50_000


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows to search: those whose `ends_at` lies in [since, until], of one kind; None leaves it open.

    It is built from times and names of this package alone, so nothing can be injected into it.
    """

    since: datetime | None = None
    until: datetime | None = None
    kind: FactKind | None = None

    def sql(self) -> str | None:
        """Return it as LanceDB takes it; None if it lets everything pass."""
        terms = []
        if self.since is not None:
            terms.append(f"ends_at >= {_timestamp(self.since)}")
        if self.until is not None:
            terms.append(f"ends_at <= {_timestamp(self.until)}")
        if self.kind is not None:
            terms.append(f"kind = '{self.kind.value}'")
        return " AND ".join(terms) or None

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a table that pass."""
        kept = pa.repeat(True, rows.num_rows)
        if self.since is not None:
            kept = pc.and_(kept, pc.greater_equal(rows["ends_at"], pa.scalar(self.since, _TIME)))
        if self.until is not None:
            kept = pc.and_(kept, pc.less_equal(rows["ends_at"], pa.scalar(self.until, _TIME)))
        if self.kind is not None:
            kept = pc.and_(kept, pc.equal(rows["kind"], self.kind.value))
        return rows.filter(kept)


def _timestamp(instant: datetime) -> str:
    return f"timestamp '{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"


@dataclass
class _Loop:
    """A thread that runs coroutines for callers that have no event loop; the async API halves latency."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def __post_init__(self) -> None:
        threading.Thread(target=self.loop.run_forever, name="memory-index", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class VectorIndex:
    """Writes and searches the index tables of a lake. Safe to use from several threads and processes.

    A search sees every write that was finished before it began.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._loop = _Loop()
        self._databases: dict[str, Any] = {}
        self._tables: dict[tuple[Scope, Grain], Any] = {}
        self._embedder: dict[str, object] | None = None
        self._claims = Claims(storage, _CLAIMS, lambda: datetime.now(UTC))

    def check(self, embedder: Embedder) -> None:
        """Refuse an embedder that did not make the vectors that are here: they cannot be compared with its own.

        Raises:
            ConfigurationError: the index was made with another model or dimension.
        """
        if self._embedder is None:
            data = self._storage.read(_EMBEDDER)
            self._embedder = None if data is None else json.loads(data)
        mine = _described(embedder)
        if self._embedder is not None and self._embedder != mine:
            raise ConfigurationError(
                f"the vectors of the lake at {self._storage.uri} were made with {shown(self._embedder)}, and would now "
                f"meet those of {shown(mine)}, with which they cannot be compared; set `embedding` in the lake's "
                "config/workspaces.yaml back, or open the reader with that embedder; or, to change it, delete the "
                "lake's vectordb folder and make the whole range again with `memory-pipeline run --from … --to …`"
            )

    def adopt(self, embedder: Embedder) -> None:
        """Write down which embedder makes the vectors, if this is the first one.

        Raises:
            ConfigurationError: the index was made with another model or dimension.
        """
        self.check(embedder)
        if self._embedder is None:
            self._storage.create(_EMBEDDER, json.dumps(_described(embedder)).encode())
            self.check(embedder)  # another process may have been first

    def replace(self, grain: Grain, periods: Collection[Period], rows: Mapping[Scope, pa.Table]) -> set[str]:
        """Make `rows` (in :func:`index_schema`) all that the named agents' tables hold of `periods`.

        An agent whose rows are there already, with equal digests, is not written.

        Returns:
            The names of the periods of which something was written.
        """
        return self._loop.run(self._replace_all(grain, sorted(period.key for period in periods), rows))

    def search(
        self, scope: Scope, grain: Grain, where: Filter, limit: int, vector: Sequence[float] | None, text: str
    ) -> pa.Table:
        """Return the rows nearest to `vector` and those that match `text` best (BM25), up to `limit` of each.

        Without a vector, words decide alone.
        """
        return self._loop.run(self._search(scope, grain, where.sql(), limit, vector, text))

    def newest(self, scope: Scope, grain: Grain, where: Filter, limit: int) -> pa.Table:
        """Return the rows whose `ends_at` is latest, newest first."""
        return self._loop.run(self._newest(scope, grain, where.sql(), limit))

    def scan(self, scope: Scope, grain: Grain) -> pa.Table:
        """Return all rows of an agent's table, in no order."""
        return self._loop.run(self._select(scope, grain, None, None))

    def count(self, scope: Scope, grain: Grain) -> int:
        """Return the number of rows of an agent's table; 0 where there is none."""
        return self._loop.run(self._count(scope, grain))

    async def _database(self, workspace_id: str) -> Any:
        if workspace_id not in self._databases:
            uri = self._storage.locate(f"vectordb/{workspace_id}")
            # An interval of zero asks for the newest version at every read: no write is missed.
            self._databases[workspace_id] = await lancedb.connect_async(uri, read_consistency_interval=timedelta(0))
        return self._databases[workspace_id]

    async def _table(self, scope: Scope, grain: Grain) -> Any | None:
        if (scope, grain) not in self._tables:
            database = await self._database(scope.workspace_id)
            try:
                self._tables[scope, grain] = await database.open_table(_name(scope, grain))
            except ValueError as error:
                if "not found" not in str(error).lower():
                    raise
                return None
        return self._tables[scope, grain]

    async def _create(self, scope: Scope, grain: Grain, rows: pa.Table) -> Any:
        """Make an empty table, or wait for whoever is making it."""
        database = await self._database(scope.workspace_id)
        key = digest(scope.workspace_id, scope.agent_id, grain)
        while (table := await self._table(scope, grain)) is None:
            if await asyncio.to_thread(self._claims.claim, key, _LEASE):
                try:
                    if await self._table(scope, grain) is None:  # it may have been made since it was looked for
                        await database.create_table(_name(scope, grain), schema=rows.schema)
                finally:
                    await asyncio.to_thread(self._claims.release, key)
            else:
                await asyncio.sleep(_PAUSE)
        return table

    async def _replace_all(self, grain: Grain, keys: list[str], rows: Mapping[Scope, pa.Table]) -> set[str]:
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(scope: Scope, part: pa.Table) -> set[str]:
            async with slots:
                return await _persistent(lambda: self._replace(scope, grain, keys, part))

        return set().union(*await asyncio.gather(*(one(scope, part) for scope, part in rows.items())))

    async def _replace(self, scope: Scope, grain: Grain, keys: list[str], rows: pa.Table) -> set[str]:
        table = await self._table(scope, grain)
        if table is None:
            if not rows.num_rows:
                return set()
            table = await self._create(scope, grain, rows)
        listed = ", ".join(f"'{key}'" for key in keys)  # names of periods hold no quotes
        present = await self._select(scope, grain, f"period IN ({listed})", list(_MARKS))
        differing = {period for period, *_ in _marks(present) ^ _marks(rows)}
        if not differing:
            return set()
        # One commit: a delete followed by an insert would let readers see the gap.
        await (
            table.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(f"period IN ({listed})")
            .execute(rows, on_bad_vectors="null")  # rows whose embedding failed have none, and are found by words
        )
        await _persistent(lambda: self._maintain(table))
        return differing

    async def _maintain(self, table: Any) -> None:
        await table.checkout_latest()
        text = await table.index_stats("content_idx")
        if text is None:
            for column, config in _INDICES.items():
                if await table.index_stats(f"{column}_idx") is None:
                    await table.create_index(column, config=config)
        elif await table.version() % _COMPACT_EVERY == 0 or text.num_unindexed_rows >= _UNINDEXED:
            await table.optimize(cleanup_older_than=_KEEP_VERSIONS)
        if await table.count_rows() >= _APPROXIMATE_FROM and await table.index_stats("vector_idx") is None:
            await table.create_index("vector", config=IvfRq(distance_type="cosine"))

    async def _search(
        self, scope: Scope, grain: Grain, where: str | None, limit: int, vector: Sequence[float] | None, text: str
    ) -> pa.Table:
        table = await self._table(scope, grain)
        if table is None:
            return _NOTHING
        queries = [(table.query().nearest_to_text(text, columns="content"), "_score")]
        if vector is not None:
            near = table.query().nearest_to(vector).distance_type("cosine").nprobes(20).refine_factor(5)
            queries.insert(0, (near, "_distance"))
        found = await asyncio.gather(
            *(
                (query.where(where) if where else query).select([*_FOUND, score]).limit(limit).to_arrow()
                for query, score in queries
            )
        )
        return pa.concat_tables([rows.select(_FOUND) for rows in found])

    async def _newest(self, scope: Scope, grain: Grain, where: str | None, limit: int) -> pa.Table:
        table = await self._table(scope, grain)
        if table is None:
            return _NOTHING
        query = table.query().where(where) if where else table.query()
        return await query.order_by([_NEWEST, _BY_ID]).select(_FOUND).limit(limit).to_arrow()

    async def _select(self, scope: Scope, grain: Grain, where: str | None, columns: Sequence[str] | None) -> pa.Table:
        table = await self._table(scope, grain)
        if table is None:
            return _NOTHING
        query = table.query().where(where) if where else table.query()
        return await (query.select(list(columns)) if columns else query).to_arrow()

    async def _count(self, scope: Scope, grain: Grain) -> int:
        table = await self._table(scope, grain)
        return 0 if table is None else int(await table.count_rows())


async def _persistent(write: Callable[[], Awaitable[_Result]]) -> _Result:
    """Await a write, again where another process committed first; writes here look at what is there before they do."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await write()
        except RuntimeError as error:
            if "commit conflict" not in str(error) and "concurrent writers" not in str(error):
                raise
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311  # jitter, not a secret
    return await write()


def _name(scope: Scope, grain: Grain) -> str:
    return f"{scope.agent_id}__{grain}"


def _described(embedder: Embedder) -> dict[str, object]:
    return {"model": embedder.name, "dimension": embedder.dimension}


def _marks(rows: pa.Table) -> set[tuple[str, ...]]:
    """Return what tells whether rows are the same: one whose vector has come at last is another."""
    return set(zip(*(rows[name].to_pylist() for name in _MARKS), strict=True))

"""The vector index of memory. It is derived from the tables and can be rebuilt at any time.

Each workspace has a database, with one table per agent and grain, over all periods
(docs/decisions/0003-one-index-per-agent-and-grain.md).
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError, DamagedError, LakeError, shown
from memory_pipeline.lake.index.filters import DeleteFilter, Filter, condition
from memory_pipeline.lake.index.index_rows import INDICES, index_schema, noted_tables, roster_path, vectors_of
from memory_pipeline.lake.index.lance_tables import (
    COMPACT_EVERY,
    FAILURES,
    ColumnOrdering,
    Databases,
    EventLoop,
    IvfRq,
    VanishedError,
    drop_old_versions,
    retry_lance_commit,
)
from memory_pipeline.lake.index.maintenance import SAME, SAME_ITEM, compact, compact_deletes, rewrite
from memory_pipeline.lake.layout import index_tables, table_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.files.storage import Storage

    _Vector = NDArray[np.float32] | Sequence[float]

__all__ = ["HALVED_FROM", "DeleteFilter", "Loaded", "VectorIndex"]

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)

#: Names the embedder of the vectors. Stored with them, so that deleting the folder forgets both.
_EMBEDDER = "vectordb/_embedder.json"  # not a valid workspace id
#: Version of the columns and of the tokenizer. An index of another format must be rebuilt.
_FORMAT = 3
#: How to rebuild the index. Agents' collections are stored beside it and cannot be rebuilt.
_AFRESH = (
    "delete the lake's vectordb folder except agents' collections (vectordb/*/_*.lance), and recompute the whole range "
    "with `memory-pipeline run --from … --to …`"
)
#: Number of tables that stay open after a write; each takes some 200 kB of memory.
_OPEN = 200
#: Number of agents' tables written concurrently.
_CONCURRENCY = 16
#: Rebuild indices when this many rows, and this share (1/n), are unindexed: every word search reads all of these.
_UNINDEXED, _UNINDEXED_SHARE = 1_000, 20
#: From this many rows on, vectors are loaded in half precision.
HALVED_FROM = 20_000
_MARKS = ("period", "id", "digest", "embed_model")
#: The columns that a search returns.
_FOUND = [name for name in index_schema(0).names if name != "digest"]
_NOTHING = index_schema(0).empty_table()
#: LanceDB's column that identifies a row by file and position.
_NUMBER = "_rowid"
_NUMBERED = _NOTHING.select(_FOUND).append_column(_NUMBER, pa.array([], pa.uint64()))
_NEWEST = ColumnOrdering(column_name="ends_at", ascending=False, nulls_first=False)
_OLDEST = ColumnOrdering(column_name="ends_at", ascending=True, nulls_first=False)
_BY_ID = ColumnOrdering(column_name="id", ascending=True, nulls_first=False)
#: From this many rows on, a table has an approximate index. Below, comparing all vectors is faster and exact.
_APPROXIMATE_FROM = 50_000
_APPROXIMATE = IvfRq(distance_type="cosine")


class Loaded(NamedTuple):
    """Rows of an agent's table.

    Attributes:
        rows: without vectors.
        vectors: in the order of `rows`; NaN where a row has none.
        numbers: row ids; rewriting a row changes its id.
    """

    rows: pa.Table
    vectors: NDArray[np.floating]
    numbers: NDArray[np.uint64]


class VectorIndex:
    """Writes and searches the index tables of a lake. Safe to use from several threads and processes.

    A search sees every write that finished before it began.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._loop = EventLoop()
        self._databases = Databases(storage)
        self._embedder: dict[str, object] | None = None
        self._named: dict[tuple[Scope, Grain], tuple[int, frozenset[str]]] = {}
        self._first_turns: dict[Scope, tuple[int, datetime | None]] = {}

    def check(self, embedder: Embedder) -> None:
        """Refuse an embedder other than the one that made the stored vectors: they are not comparable.

        Raises:
            ConfigurationError: the index was built with another model or dimension.
        """
        if self._embedder is None:
            data = self._storage.read(_EMBEDDER)
            self._embedder = None if data is None else json.loads(data)
        mine = _described(embedder)
        if self._embedder is not None and self._embedder.get("format") != _FORMAT:
            raise ConfigurationError(
                f"the index of the lake at {self._storage.uri} was written by another version of memory-pipeline; "
                f"{_AFRESH}"
            )
        if self._embedder is not None and self._embedder != mine:
            raise ConfigurationError(
                f"the vectors of the lake at {self._storage.uri} were made with {shown(self._embedder)} and cannot be "
                f"compared with those of {shown(mine)}; set `embedding` in the lake's config/workspaces.yaml back, or "
                f"open the reader with the first embedder; or, to change it, {_AFRESH}"
            )

    def adopt(self, embedder: Embedder) -> None:
        """Store which embedder makes the vectors, unless one is stored.

        Raises:
            ConfigurationError: the index was built with another model or dimension.
        """
        self.check(embedder)
        if self._embedder is None:
            self._storage.create(_EMBEDDER, json.dumps(_described(embedder)).encode())
            self.check(embedder)  # another process may have been faster

    def replace(self, grain: Grain, periods: Collection[Period], rows: Mapping[Scope, pa.Table]) -> set[str]:
        """Replace all rows of `periods` in the given agents' tables by `rows` (schema: :func:`index_schema`).

        An agent with equal digests is not written.

        Returns:
            The periods in which something was written.

        Raises:
            DamagedError: a table is damaged or lost. Restoring it takes all rows of its agent, of all periods.
        """
        return self._loop.run(self._replace_all(grain, sorted(period.key for period in periods), rows))

    def search(
        self, scope: Scope, grain: Grain, where: Filter, limit: int, vector: _Vector | None, text: str
    ) -> pa.Table:
        """Return the rows nearest to `vector` and the best matches of `text` (BM25), up to `limit` of each.

        Without a vector, only words count.
        """
        return self._loop.run(self._search(scope, grain, where, limit, vector, text))

    def newest(self, scope: Scope, grain: Grain, where: Filter, limit: int) -> pa.Table:
        """Return the rows with the latest `ends_at`, newest first, of at least `limit` different messages."""
        return self._loop.run(self._newest(scope, grain, where, limit))

    def first_turn(self, scope: Scope) -> datetime | None:
        """Return the time of the earliest turn in an agent's table, or None without turns."""
        return self._loop.run(self._first_turn(scope))

    def scan(self, scope: Scope, grain: Grain, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows of an agent's table, unordered; all columns if none are given."""
        return self._loop.run(self._select(scope, grain, None, columns))

    def load(self, scope: Scope, grain: Grain, dimension: int) -> Loaded:
        """Return all rows of an agent's table.

        Vectors are float32, or float16 from :data:`HALVED_FROM` rows on, which loses 10⁻³ of precision and half of the
        bytes. A large table is never in memory twice.
        """
        return self._loop.run(self._load(scope, grain, dimension))

    def since(
        self, scope: Scope, grain: Grain, dimension: int, numbers: NDArray[np.uint64], most: int
    ) -> tuple[Loaded, NDArray[np.bool_]] | None:
        """Return the changes of an agent's table since some of its rows were loaded.

        Args:
            scope: the agent.
            grain: of the table.
            dimension: of the vectors.
            numbers: ids of the loaded rows.
            most: the maximum number of new rows.

        Returns:
            The new rows, and a mask of `numbers` that are gone. A changed row is in both. None if there are more than
            `most` new rows, as after a compaction: loading everything is then faster.
        """
        return self._loop.run(self._since(scope, grain, dimension, numbers, most))

    def version(self, scope: Scope, grain: Grain) -> int | None:
        """Return a number that grows with each commit to an agent's table and each rebuild, or None without a table.

        Raises:
            DamagedError: the table is damaged or lost.
        """
        version = self._loop.run(self._version(scope, grain))
        if version is None:
            self._refuse_lost(scope, grain)
        return version

    def present(self) -> set[tuple[Scope, Grain]]:
        """Return the existing tables."""
        workspaces = [name for name in self._storage.folders("vectordb") if not name.startswith("_")]
        return {
            (scope, Grain(name.rpartition("__")[2]))
            for workspace_id in workspaces
            for scope, name in index_tables(self._storage, workspace_id)
        }

    def tables(self) -> set[tuple[Scope, Grain]]:
        """Return the existing tables and the lost ones."""
        return self.present() | noted_tables(self._storage)

    def is_damaged(self, scope: Scope, grain: Grain, *, thoroughly: bool = True) -> bool:
        """Return whether a table is lost or cannot be read.

        Args:
            scope: the agent.
            grain: of the table.
            thoroughly: read all of it; otherwise only open it.
        """
        try:
            if self.version(scope, grain) is not None and thoroughly:
                self.scan(scope, grain)
        except DamagedError:
            return True
        return False

    def restore(self, scope: Scope, grain: Grain, rows: pa.Table) -> None:
        """Delete an agent's table and rebuild it from `rows`, which are all of its rows."""
        self._loop.run(self._restore(scope, grain, rows))

    @property
    def made_by(self) -> str | None:
        """The name of the embedder that made the vectors; known after :meth:`check`."""
        return None if self._embedder is None else str(self._embedder["model"])

    def count(self, scope: Scope, grain: Grain, where: Filter | None = None) -> int:
        """Return the number of matching rows of an agent's table; 0 without a table."""
        return self._loop.run(self._count(scope, grain, where))

    def messages(self, scope: Scope, grain: Grain, where: Filter) -> set[tuple[str, ...]]:
        """Return the distinct message ids on which matching rows of an agent's table rest."""
        return self._loop.run(self._messages(scope, grain, where))

    def hours_of(self, scope: Scope, conversations: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the hours (keys) in which an agent's conversations have facts; omit conversations without facts."""
        where = Filter(conversation_id=next(iter(conversations))).sql() if len(conversations) == 1 else None
        rows = self._loop.run(self._select(scope, Grain.WORKING, where, ["period", "conversation_id"]))
        if not rows.num_rows:
            return {}
        wanted = pa.array(sorted(conversations), pa.string())
        found = rows.filter(pc.is_in(rows["conversation_id"], wanted)).group_by("conversation_id")
        listed = found.aggregate([("period", "distinct")]).to_pylist()
        return {row["conversation_id"]: frozenset(row["period_distinct"]) for row in listed}

    def remove(self, grain: Grain, gone: Mapping[Scope, Sequence[DeleteFilter]]) -> dict[Scope, int]:
        """Remove rows of agents' tables, from the disk too. An empty table is dropped.

        Returns:
            The number of removed rows by agent, without zeros. Tables without such rows are not touched.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        return self._loop.run(self._remove_all(grain, gone))

    def remove_agent(self, scope: Scope) -> list[str]:
        """Drop the index and the collections of an agent. Collections cannot be rebuilt.

        Returns:
            The names of the dropped tables.

        Raises:
            CommitConflictError: others kept writing to a table. Safe to retry.
        """
        from memory_pipeline.lake.layout import collections_of  # layout needs the lake, which needs this module

        names = [name for owner, name in index_tables(self._storage, scope.workspace_id) if owner == scope]
        names += [name for owner, name in collections_of(self._storage, scope.workspace_id) if owner == scope]
        return self._loop.run(self._drop_all(scope, names))

    def purge(self, scopes: Collection[Scope], grains: Iterable[Grain] = tuple(Grain)) -> None:
        """Rewrite agents' tables with their indices, so that no byte of earlier versions stays on the disk.

        Files left by killed writers stay until they are an hour old.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        self._loop.run(self._all(self._purge(scope, grain) for scope in scopes for grain in grains))

    def compact(self, tables: Iterable[tuple[str, str]]) -> tuple[int, int]:
        """Merge small files of tables. Return the number of merged tables, and the bytes of the merged rows.

        Args:
            tables: workspace and name of each, collections included.
        """
        written = self._loop.run(self._all(self._compact(*table) for table in tables))
        return sum(map(bool, written)), sum(written)

    def agents(self, workspace_id: str) -> list[Scope]:
        """Return the agents of a workspace that have tables or collections, sorted."""
        from memory_pipeline.lake.layout import collections_of

        owned = [*index_tables(self._storage, workspace_id), *collections_of(self._storage, workspace_id)]
        return sorted({scope for scope, _ in owned}, key=lambda scope: scope.agent_id)

    def scopes(self) -> list[Scope]:
        """Return all agents that have tables or collections, sorted."""
        workspaces = [name for name in self._storage.folders("vectordb") if not name.startswith("_")]
        return [scope for workspace_id in workspaces for scope in self.agents(workspace_id)]

    def _refuse_lost(self, scope: Scope, grain: Grain) -> None:
        name = table_name(scope, grain)
        if self._storage.is_there(roster_path(scope.workspace_id, name)):
            raise DamagedError(
                f"the index of {scope.workspace_id}/{scope.agent_id} is lost: "
                f"vectordb/{scope.workspace_id}/{name}.lance is missing; "
                "run `memory-pipeline run` or `memory-pipeline repair` to rebuild it from the tables"
            )

    async def _note(self, scope: Scope, grain: Grain) -> None:
        path = roster_path(scope.workspace_id, table_name(scope, grain))
        await asyncio.to_thread(self._storage.create, path, b"", durable=False)

    async def _table(self, scope: Scope, grain: Grain) -> Any | None:
        return await self._databases.table(scope.workspace_id, table_name(scope, grain))

    async def _create(self, scope: Scope, grain: Grain, rows: pa.Table) -> Any:
        return await self._databases.create(scope.workspace_id, table_name(scope, grain), rows.schema)

    async def _read(
        self, scope: Scope, grain: Grain, read: Callable[[Any], Awaitable[_Result]], nothing: _Result
    ) -> _Result:
        return await self._databases.read(scope.workspace_id, table_name(scope, grain), read, nothing)

    async def _all(self, works: Iterable[Awaitable[_Result]]) -> list[_Result]:
        """Await operations on agents' tables, a limited number at a time."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(work: Awaitable[_Result]) -> _Result:
            async with slots:
                return await work

        return await asyncio.gather(*map(one, works))

    async def _replace_all(self, grain: Grain, keys: list[str], rows: Mapping[Scope, pa.Table]) -> set[str]:
        def replacing(scope: Scope, part: pa.Table) -> Awaitable[set[str]]:
            forget = partial(self._databases.forget, scope.workspace_id, table_name(scope, grain))
            return retry_lance_commit(lambda: self._replace(scope, grain, keys, part), forget)

        written = set().union(*await self._all(replacing(scope, part) for scope, part in rows.items()))
        self._databases.let_go(_OPEN)
        return written

    async def _remove_all(self, grain: Grain, gone: Mapping[Scope, Sequence[DeleteFilter]]) -> dict[Scope, int]:
        counts = await self._all(self._remove(scope, grain, condition(cuts)) for scope, cuts in gone.items())
        return {scope: count for scope, count in zip(gone, counts, strict=True) if count}

    async def _remove(self, scope: Scope, grain: Grain, where: str) -> int:
        async def delete(table: Any) -> int:
            return int((await table.delete(where)).num_deleted_rows)

        if not await self._read(scope, grain, lambda table: table.count_rows(where), 0):
            return 0
        count = await self._databases.edit(scope.workspace_id, table_name(scope, grain), delete, 0)
        if not await self._read(scope, grain, lambda table: table.count_rows(), 0):
            # Delete the roster entry before the table: a reader in between must not report the table as lost.
            self._storage.delete([roster_path(scope.workspace_id, table_name(scope, grain))])
        if not await self._databases.drop(scope.workspace_id, table_name(scope, grain), only_if_empty=True):
            await self._note(scope, grain)
            await self._reworked(scope, grain, lambda table, path: compact_deletes(table, self._storage, path, SAME))
        return count

    async def _purge(self, scope: Scope, grain: Grain) -> None:
        async def anew(table: Any, path: str) -> None:
            await rewrite(table, self._storage, path, SAME, await _indices(table))

        await self._reworked(scope, grain, anew)

    async def _reworked(self, scope: Scope, grain: Grain, rework: Callable[[Any, str], Awaitable[None]]) -> None:
        """Run `rework` on a table and its folder, if the table exists."""
        name = table_name(scope, grain)
        path = f"vectordb/{scope.workspace_id}/{name}.lance"
        await self._databases.edit(scope.workspace_id, name, lambda table: rework(table, path), None)

    async def _compact(self, workspace_id: str, name: str) -> int:
        is_collection = name.startswith("_")

        async def merge(table: Any) -> int:
            written = await compact(table, SAME_ITEM if is_collection else SAME, COMPACT_EVERY)
            if written and not is_collection and (text := await table.index_stats("content_idx")) is not None:
                await _index_again(table, text)
            return written

        try:
            return await self._databases.edit(workspace_id, name, merge, 0)
        except (
            LakeError,
            *FAILURES,
        ) as error:  # other writers keep writing, or it is damaged: continue with the others
            _log.warning("vectordb/%s/%s.lance is not compacted: %s", workspace_id, name, error)
            return 0

    async def _drop_all(self, scope: Scope, names: Sequence[str]) -> list[str]:
        self._storage.delete(roster_path(scope.workspace_id, table_name(scope, grain)) for grain in Grain)
        there = await self._all(self._databases.drop(scope.workspace_id, name) for name in names)
        return [name for name, was_there in zip(names, there, strict=True) if was_there]

    async def _restore(self, scope: Scope, grain: Grain, rows: pa.Table) -> None:
        name = table_name(scope, grain)
        await self._databases.drop(scope.workspace_id, name)
        if not rows.num_rows:
            self._storage.delete([roster_path(scope.workspace_id, name)])
            return
        # Create it with its rows: if it were empty and this process killed, the missing rows would go unnoticed.
        await self._databases.create(scope.workspace_id, name, rows.schema, rows)
        await self._replace_all(grain, sorted(set(rows["period"].to_pylist())), {scope: rows})
        await self._maintain(scope, grain, await self._table(scope, grain), 1)

    async def _replace(self, scope: Scope, grain: Grain, keys: list[str], rows: pa.Table) -> set[str]:
        table = await self._table(scope, grain)
        if table is None:
            await asyncio.to_thread(self._refuse_lost, scope, grain)
            if not rows.num_rows:
                return set()
            table = await self._create(scope, grain, rows)
        listed = ", ".join(f"'{key}'" for key in keys)  # names of periods contain no quotes
        present = await self._select(scope, grain, f"period IN ({listed})", list(_MARKS))
        differing = {period for period, *_ in _marks(present) ^ _marks(rows)}
        if not differing:
            return set()
        # One commit: readers would see the gap between a delete and an insert.
        merged = await (
            table.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(f"period IN ({listed})")
            .execute(rows, on_bad_vectors="null")  # rows whose embedding failed have no vector, and are found by words
        )
        await retry_lance_commit(lambda: self._maintain(scope, grain, table, merged.version))
        if merged.version % COMPACT_EVERY == 0:
            await drop_old_versions(self._storage, f"vectordb/{scope.workspace_id}/{table_name(scope, grain)}.lance")
        if not await self._databases.version_exists(scope.workspace_id, table_name(scope, grain), merged.version):
            raise VanishedError
        return differing

    async def _maintain(self, scope: Scope, grain: Grain, table: Any, version: int) -> None:
        """Create missing indices of a table and its roster entry; `version` is that of the preceding write.

        Every request to a table first asks the store for the newest version, so requests are few.
        """
        text = await table.index_stats("content_idx")
        if text is None:
            await self._note(scope, grain)
            there = {index.name for index in await table.list_indices()}
            for column, config in INDICES.items():
                if f"{column}_idx" not in there:
                    await table.create_index(column, config=config)
            rows = await table.count_rows()
        else:
            rows = text.num_indexed_rows + text.num_unindexed_rows
            if version % COMPACT_EVERY == 0:
                await compact(table, SAME)
                text = await table.index_stats("content_idx")
            await _index_again(table, text)
        if rows >= _APPROXIMATE_FROM and await table.index_stats("vector_idx") is None:
            await table.create_index("vector", config=_APPROXIMATE)

    async def _sql(self, scope: Scope, grain: Grain, where: Filter | None) -> str | None:
        if where is None:
            return None
        return where.sql(() if where.person is None else await self._names(scope, grain))

    async def _names(self, scope: Scope, grain: Grain) -> frozenset[str]:
        """Return the names of all speakers and entities in a table, read once per version."""
        version = await self._version(scope, grain) or 0
        known = self._named.get((scope, grain))
        if known is None or known[0] != version:
            rows = await self._select(scope, grain, None, ["speaker", "entities"])
            named = pc.list_flatten(rows["entities"])
            names = {*pc.unique(rows["speaker"]).to_pylist(), *pc.unique(named).to_pylist()} - {None}
            known = self._named[scope, grain] = version, frozenset(names)
        return known[1]

    async def _search(
        self, scope: Scope, grain: Grain, filtered: Filter, limit: int, vector: _Vector | None, text: str
    ) -> pa.Table:
        where = await self._sql(scope, grain, filtered)

        async def search(table: Any) -> pa.Table:
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
            rows = pa.concat_tables([rows.select(_FOUND) for rows in found])
            # Rows that both words and vectors find appear twice.
            once = dict(zip(reversed(rows["id"].to_pylist()), range(rows.num_rows - 1, -1, -1), strict=True))
            return rows.take(pa.array(sorted(once.values()), pa.int64()))

        return await self._read(scope, grain, search, _NOTHING)

    async def _newest(self, scope: Scope, grain: Grain, filtered: Filter, limit: int) -> pa.Table:
        where = await self._sql(scope, grain, filtered)

        async def newest(table: Any) -> pa.Table:
            query = table.query().where(where) if where else table.query()
            query = query.order_by([_NEWEST, _BY_ID]).select(_FOUND)
            taken = limit
            while True:
                rows = await query.limit(taken).to_arrow()
                if rows.num_rows < taken or len(_messages(rows)) >= limit:
                    return rows
                taken *= 4

        return await self._read(scope, grain, newest, _NOTHING)

    async def _first_turn(self, scope: Scope) -> datetime | None:
        async def first(table: Any) -> datetime | None:
            query = table.query().where(Filter(kind=FactKind.TURN).sql()).order_by([_OLDEST]).select(["ends_at"])
            times = (await query.limit(1).to_arrow())["ends_at"].to_pylist()
            return times[0] if times else None

        version = await self._version(scope, Grain.WORKING) or 0
        known = self._first_turns.get(scope)
        if known is None or known[0] != version:
            known = self._first_turns[scope] = version, await self._read(scope, Grain.WORKING, first, None)
        return known[1]

    async def _select(self, scope: Scope, grain: Grain, where: str | None, columns: Sequence[str] | None) -> pa.Table:
        async def select(table: Any) -> pa.Table:
            query = table.query().where(where) if where else table.query()
            return await (query.select(list(columns)) if columns else query).to_arrow()

        return await self._read(scope, grain, select, _NOTHING)

    async def _load(self, scope: Scope, grain: Grain, dimension: int) -> Loaded:
        async def load(table: Any) -> Loaded:
            kind = np.float16 if await table.count_rows() >= HALVED_FROM else np.float32
            batches = await table.query().select(_FOUND).with_row_id().to_batches()
            parts = [_loaded(pa.Table.from_batches([batch]), dimension, kind) async for batch in batches]
            return Loaded(*map(_together, zip(*parts, strict=True))) if parts else _loaded(_NUMBERED, dimension)

        return await self._read(scope, grain, load, _loaded(_NUMBERED, dimension))

    async def _since(
        self, scope: Scope, grain: Grain, dimension: int, numbers: NDArray[np.uint64], most: int
    ) -> tuple[Loaded, NDArray[np.bool_]] | None:
        async def look(table: Any) -> tuple[Loaded, NDArray[np.bool_]] | None:
            # Reading only the ids reads no row files. A rewritten row has another id.
            present = (await table.query().select([]).with_row_id().to_arrow())[_NUMBER].to_numpy()
            come, gone = np.setdiff1d(present, numbers), np.isin(numbers, present, invert=True)
            if len(come) > most:
                return None
            rows = _NUMBERED
            if len(come):
                rows = await table.take_row_ids(come.tolist()).select(_FOUND).with_row_id().to_arrow()
            # Fewer if the table has changed between the two reads.
            return (_loaded(rows, dimension), gone) if rows.num_rows == len(come) else None

        nothing = _loaded(_NUMBERED, dimension), np.ones(len(numbers), np.bool_)
        return await self._read(scope, grain, look, nothing)

    async def _version(self, scope: Scope, grain: Grain) -> int | None:
        return await self._databases.version(scope.workspace_id, table_name(scope, grain))

    async def _count(self, scope: Scope, grain: Grain, filtered: Filter | None) -> int:
        where = await self._sql(scope, grain, filtered)
        return await self._read(scope, grain, lambda table: table.count_rows(where), 0)

    async def _messages(self, scope: Scope, grain: Grain, where: Filter) -> set[tuple[str, ...]]:
        return _messages(await self._select(scope, grain, await self._sql(scope, grain, where), ["source_ids"]))


async def _index_again(table: Any, text: Any) -> None:
    """Rebuild the indices of a table if many rows are unindexed, according to its text statistics."""
    rows = text.num_indexed_rows + text.num_unindexed_rows
    if text.num_unindexed_rows >= max(_UNINDEXED, rows // _UNINDEXED_SHARE):
        for column, config in (await _indices(table)).items():
            await table.create_index(column, config=config, replace=True)


async def _indices(table: Any) -> dict[str, Any]:
    """Return the indices of a table, by column."""
    has_vectors = await table.index_stats("vector_idx") is not None
    return {**INDICES, "vector": _APPROXIMATE} if has_vectors else dict(INDICES)


def _loaded(rows: pa.Table, dimension: int, kind: type[np.floating] = np.float32) -> Loaded:
    vectors = vectors_of(rows, dimension).astype(kind, copy=False)
    numbers = rows[_NUMBER].to_numpy().astype(np.uint64, copy=False)
    return Loaded(rows.drop_columns(["vector", _NUMBER]), vectors, numbers)


def _together(parts: Sequence[Any]) -> Any:
    return pa.concat_tables(parts) if isinstance(parts[0], pa.Table) else np.concatenate(parts)


def _messages(rows: pa.Table) -> set[tuple[str, ...]]:
    return set(map(tuple, rows["source_ids"].to_pylist())) if rows.num_rows else set()


def _described(embedder: Embedder) -> dict[str, object]:
    return {"model": embedder.name, "dimension": embedder.dimension, "format": _FORMAT}


def _marks(rows: pa.Table) -> set[tuple[str, ...]]:
    """Return the values that decide whether rows are equal: a vector that arrives later makes a row different."""
    return set(zip(*(rows[name].to_pylist() for name in _MARKS), strict=True))

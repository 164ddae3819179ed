"""The search index of memory, a projection of facts and summaries (docs/decisions/0020-shards.md)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError, LakeError, shown
from memory_pipeline.lake.index.embedder_file import EMBEDDER, EMBEDDERS, EmbedderFile
from memory_pipeline.lake.index.filters import Filter, listed
from memory_pipeline.lake.index.index_rows import (
    COMPUTED,
    DURABLE,
    OWNERS,
    index_schema,
    rows_to_index,
    vectors_column,
    vectors_of,
    with_computed,
    without_computed,
)
from memory_pipeline.lake.index.lance_tables import IndexKind, ordering, run_coroutine, synchronous
from memory_pipeline.lake.index.maintenance import SAME, rewrite_rows
from memory_pipeline.lake.index.projection import Projection
from memory_pipeline.lake.index.shard_tables import of_scope, owned, unchanged
from memory_pipeline.lake.index.sharded_rows import ShardedRows
from memory_pipeline.lake.layout import PROJECTIONS, SHARDS, scope_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.index.lance_tables import Databases
    from memory_pipeline.lake.index.shard_tables import Project

    _Vector = NDArray[np.float32] | Sequence[float]

_Result = TypeVar("_Result")

#: The name of the first index.
FIRST: Final = "index"
#: From this many rows on, vectors are loaded in half precision.
HALVED_FROM: Final = 20_000
#: Rows that are rewritten at once without their vectors.
_STRIPPED: Final = 20_000
#: The columns that a search returns.
_FOUND = [name for name in index_schema(0).names if name not in {*OWNERS, "grain", "digest"}]
#: LanceDB's column that identifies a row by file and position.
_NUMBER = "_rowid"
_NOTHING = index_schema(0).empty_table()
_NUMBERED = _NOTHING.append_column(_NUMBER, pa.array([], pa.uint64()))
_INDEX = Projection(
    "index",
    _NOTHING.schema,
    compared=("period", "digest", "embed_model"),  # a vector that arrives later makes a row different
    same=SAME,
    shard_indices={"scope": IndexKind.VALUES, "period": IndexKind.VALUES},
    scope_indices={"period": IndexKind.VALUES, "ends_at": IndexKind.VALUES, "content": IndexKind.WORDS},
    vectors="vector",
)


class Loaded(NamedTuple):
    """Rows of a scope.

    Attributes:
        rows: without vectors.
        vectors: in the order of `rows`; NaN where a row has none.
        numbers: row ids; rewriting a row changes its id.
    """

    rows: pa.Table
    vectors: NDArray[np.floating]
    numbers: NDArray[np.uint64]


class VectorIndex(ShardedRows, EmbedderFile):
    """Writes and searches the index of a lake. Safe to use from several threads and processes.

    A search sees every write that finished before it began.

    Args:
        storage: the lake's files.
        shards: the lake's number of shards.
        name: of the index; see :mod:`.indices`.
        databases: see :class:`~memory_pipeline.lake.index.shard_tables.ShardTables`.
    """

    def __init__(
        self, storage: Storage, shards: int = SHARDS, name: str = FIRST, databases: Databases | None = None
    ) -> None:
        ShardedRows.__init__(self, storage, replace(_INDEX, name=name), shards, databases)
        EmbedderFile.__init__(self, storage, EMBEDDER if name == FIRST else f"{EMBEDDERS}/{name}.json")
        self._named: dict[tuple[Scope, Grain], tuple[int, frozenset[str]]] = {}
        self._first_turns: dict[Scope, tuple[int, datetime | None]] = {}

    @property
    def name(self) -> str:
        """The beginning of the names of its tables."""
        return self._projection.name

    @property
    def columns(self) -> list[str]:
        """All columns."""
        return [field.name for field in _INDEX.schema]

    def models_of(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row of ``facts`` or ``summaries`` the index's embedder, or null if another one embedded it.

        A vector that depends on the text alone needs no other embedder.
        """
        own = str(self.made_by)
        if own.startswith(COMPUTED):
            return pa.chunked_array([pa.repeat(own, rows.num_rows)], pa.string())
        return pc.if_else(pc.equal(rows["embed_model"], own), rows["embed_model"], pa.scalar(None, pa.string()))

    def rows_of(self, grain: Grain, rows: pa.Table) -> pa.Table:
        """Return rows of ``facts`` or ``summaries`` as rows of this index, without vectors of other embedders."""
        _, dimension = self.embedder() or ("", 1)
        models, place = self.models_of(rows), rows.schema.get_field_index("vector")
        is_own = pc.fill_null(pc.equal(rows["embed_model"], models), False)
        if not pc.all(is_own, min_count=0).as_py():
            field = rows.schema.field(place)
            vectors = pc.if_else(is_own, rows["vector"], pa.scalar(None, field.type))
            rows = rows.set_column(place, field, vectors).set_column(place + 1, rows.schema.field(place + 1), models)
        return rows_to_index(grain, rows, dimension)

    def tables(self) -> list[str]:
        """Return the names of the existing tables."""
        self.roster.refresh()
        return sorted(self.roster.readable())

    @synchronous
    async def waiting(self, name: str, columns: Collection[str] = ("id",), ids: Collection[str] = ()) -> pa.Table:
        """Return the rows of a table that have no vector, or those of them with some ids."""
        where = "embed_model IS NULL" + (f" AND id IN ({listed(ids)})" if ids else "")
        return await self._select(name, where, list(columns), self._nothing.select(list(columns)))

    def memory_vectors(self, scopes: Collection[Scope]) -> dict[str, NDArray[np.float32]]:
        """Return the vectors that the index has of durable memories of scopes, by their contents."""
        if not self.has_memories:
            return {}
        return self._by_content(self.read(scopes, ["content", "vector"], f"grain = '{DURABLE}' AND vector IS NOT NULL"))

    def vectors(self, where: str) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of the rows that meet a condition, by their contents."""
        return self._by_content(self.scan(["content", "vector"], f"vector IS NOT NULL AND ({where})"))

    def _by_content(self, rows: pa.Table) -> dict[str, NDArray[np.float32]]:
        _, dimension = self.embedder() or ("", 1)
        return dict(zip(rows["content"].to_pylist(), vectors_of(rows, dimension), strict=True))

    @synchronous
    async def put_vectors(self, name: str, rows: pa.Table) -> None:
        """Store the vectors of rows of a table, with all columns, that had none, in one commit.

        Rows that were changed or deleted meanwhile stay so.
        """

        async def write(table: Any) -> None:
            if missing := await self._missing(name, table):
                await table.add_columns(missing)
            await rewrite_rows(table, rows, "target.digest = source.digest AND target.embed_model IS NULL")
            await self._projection.maintain(self._storage, name, table, await table.version())

        async with self._uncached(name):
            await self._databases.edit(PROJECTIONS, name, write, None)

    async def _refuse_lost(self, name: str) -> None:
        if await asyncio.to_thread(self.look) and self.is_dropped:
            raise ConfigurationError(
                f"the index of {shown(self.described)} was dropped; open the lake with the embedder that is in use"
            )
        await super()._refuse_lost(name)

    def drop(self) -> None:
        """Delete the index. Readers that still use it get an error. Safe to repeat and to interrupt."""
        if not self.is_dropped:
            # Earlier versions refuse another model, and do not know what else the file says.
            self.describe({"is_dropped": True, "model": f"{self.made_by}, dropped"})
        for name in sorted(self.roster.tables()):
            run_coroutine(self._drop(name))

    def _is_changed(self, rows: pa.Table, wanted: Callable[[pa.Table], pa.Table] | None) -> bool:
        if wanted is None or not rows.num_rows:
            return False
        other = wanted(rows)
        columns = ["id", *_INDEX.compared]
        known = {*zip(*(other[name].to_pylist() for name in columns), strict=True)}
        known &= {*zip(*(rows[name].to_pylist() for name in columns), strict=True)}
        if not known:
            return False
        ids = pa.array(sorted(state[0] for state in known), pa.string())
        # Others may be written just now. The index of the words is made by rules, which may have changed.
        names = [name for name in other.column_names if name != "terms"]
        both = [
            without_computed(part.filter(pc.is_in(part["id"], ids)).sort_by("id").select(names))
            for part in (rows, other)
        ]
        return not both[0].cast(both[1].schema).equals(both[1])

    def replace(
        self,
        grain: Grain,
        periods: Collection[Period],
        rows: pa.Table,
        scopes: Collection[Scope] | None = None,
        *,
        shard: int | None = None,
        removable: Collection[str] | None = None,
        project: Project = unchanged,
    ) -> set[str]:
        """Make the rows of `periods` equal to `rows`, in one or two commits for each shard that differs.

        Args:
            grain: of the periods.
            periods: those to compare.
            rows: of these periods, in the columns of :func:`index_schema`, or as `project` needs them.
            scopes: those to compare; all if not given.
            shard: the shard to compare; all if not given.
            removable: ids that may be deleted; all if not given. Pass those of :meth:`ids`, read before `rows`, so that
                rows that another run adds meanwhile stay.
            project: returns rows in the columns of the index. It is called for new and changed rows, some at a time.

        Returns:
            The keys of the periods in which something was written.

        Raises:
            DamagedError: a table is damaged or lost.
        """
        within = _within(grain, (period.key for period in periods))
        written = self.make_equal(within, rows, scopes, shard, removable, project)
        return {str(state[_INDEX.compared_columns.index("period")]) for state in written}

    def is_large(self, scope: Scope) -> bool:
        """Return whether a scope has a table of its own, with indices for :meth:`search`."""
        run_coroutine(self._version(scope))
        return scope.key in self.roster.large

    @synchronous
    async def search(
        self, scope: Scope, grain: Grain, where: Filter, limit: int, vector: _Vector | None, text: str
    ) -> pa.Table:
        """Return the rows nearest to `vector` and the best matches of `text` (BM25), up to `limit` of each.

        Only for scopes with a table of their own. Without a vector, only words count.
        """
        own = await self._condition(scope, grain, where)
        columns = [*OWNERS, *_FOUND]

        async def search(table: Any) -> pa.Table:
            queries = [(table.query().nearest_to_text(text, columns="content"), "_score")]
            if vector is not None:
                near = table.query().nearest_to(vector).distance_type("cosine").nprobes(20).refine_factor(5)
                queries.insert(0, (near, "_distance"))
            found = await asyncio.gather(
                *(query.where(own).select([*columns, score]).limit(limit).to_arrow() for query, score in queries)
            )
            rows = pa.concat_tables([rows.select(columns) for rows in found])
            # Rows that both words and vectors find appear twice.
            once = dict(zip(reversed(rows["id"].to_pylist()), range(rows.num_rows - 1, -1, -1), strict=True))
            return rows.take(pa.array(sorted(once.values()), pa.int64()))

        return owned(await self._on(scope, search, _NOTHING), scope).select(_FOUND)

    @synchronous
    async def newest(self, scope: Scope, grain: Grain, where: Filter, limit: int) -> pa.Table:
        """Return the rows with the latest `ends_at`, newest first, of at least `limit` different messages."""
        own = await self._condition(scope, grain, where)

        async def newest(table: Any) -> pa.Table:
            order = [ordering("ends_at", ascending=False), ordering("id", ascending=True)]
            query = table.query().where(own).order_by(order).select([*OWNERS, *_FOUND])
            taken = limit
            while True:
                rows = await query.limit(taken).to_arrow()
                if rows.num_rows < taken or len(_messages(rows)) >= limit:
                    return rows
                taken *= 4

        return owned(await self._on(scope, newest, _NOTHING), scope).select(_FOUND)

    @synchronous
    async def first_turn(self, scope: Scope) -> datetime | None:
        """Return the time of the earliest turn of a scope, or None without turns."""
        where = await self._condition(scope, Grain.WORKING, Filter(kind=FactKind.TURN))

        async def first(table: Any) -> datetime | None:
            query = table.query().where(where).order_by([ordering("ends_at", ascending=True)]).select(["ends_at"])
            times = (await query.limit(1).to_arrow())["ends_at"].to_pylist()
            return times[0] if times else None

        version = await self._version(scope) or 0
        known = self._first_turns.get(scope)
        if known is None or known[0] != version:
            known = self._first_turns[scope] = version, await self._on(scope, first, None)
        return known[1]

    def scan_all(self, grain: Grain, periods: Collection[str] | None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of all scopes, unordered; of all periods and all columns if none are given."""
        return self.scan(columns, _within(grain, periods))

    def ids(self, grain: Grain, periods: Collection[Period], shard: int | None = None) -> set[str]:
        """Return the ids of the rows of periods, of all scopes or of those in a shard."""
        return set(self.scan(["id"], _within(grain, (period.key for period in periods)), shard)["id"].to_pylist())

    @synchronous
    async def load(self, scope: Scope, grain: Grain, embedder: Embedder) -> Loaded:
        """Return all rows of a scope. Vectors that `embedder` made, and are not stored, are computed.

        Vectors are float32, or float16 from :data:`HALVED_FROM` rows on, which loses 10⁻³ of precision and half of the
        bytes. A large table is never in memory twice.
        """
        where = await self._condition(scope, grain, None)

        async def load(table: Any) -> Loaded:
            kind = np.float16 if await table.count_rows(where) >= HALVED_FROM else np.float32
            batches = await table.query().where(where).select([*OWNERS, *_FOUND]).with_row_id().to_batches()
            parts = [_loaded(owned(pa.Table.from_batches([batch]), scope), embedder, kind) async for batch in batches]
            return Loaded(*map(_together, zip(*parts, strict=True))) if parts else _loaded(_NUMBERED, embedder)

        return await self._on(scope, load, _loaded(_NUMBERED, embedder))

    async def _converted(self, name: str, table: Any) -> int:
        if scope_in(name) is not None or not str(self.made_by).startswith(COMPUTED):
            return 0
        written = 0
        where = f"vector IS NOT NULL AND embed_model LIKE '{COMPUTED}%'"
        while (rows := await table.query().where(where).limit(_STRIPPED).to_arrow()).num_rows:
            await rewrite_rows(table, without_computed(rows), SAME)
            written += rows.nbytes
        return written

    def _stored(self, name: str, rows: pa.Table) -> pa.Table:
        if scope_in(name) is None:
            return without_computed(rows)
        # Its approximate index needs all of them.
        field = rows.schema.field("vector")
        vectors = with_computed(rows, vectors_of(rows, field.type.list_size), self._checked)
        return rows.set_column(rows.schema.get_field_index("vector"), field, vectors_column(vectors))

    @synchronous
    async def numbers(self, scope: Scope) -> dict[Grain, NDArray[np.uint64]]:
        """Return the row ids of a scope by grain. Reads no row files, and a rewritten row has another id."""

        async def look(table: Any) -> pa.Table:
            return await table.query().where(of_scope(scope)).select(["grain"]).with_row_id().to_arrow()

        rows = await self._on(scope, look, _NUMBERED)
        grains = rows["grain"].combine_chunks().dictionary_encode()
        numbers, codes = rows[_NUMBER].to_numpy().astype(np.uint64, copy=False), grains.indices.to_numpy()
        found = enumerate(grains.dictionary.to_pylist())
        return {Grain(name): numbers[codes == code] for code, name in found if name != DURABLE}

    @synchronous
    async def take(self, scope: Scope, numbers: NDArray[np.uint64], embedder: Embedder) -> Loaded | None:
        """Return the rows with ids from :meth:`numbers`, or None if the table has changed since."""

        async def take(table: Any) -> pa.Table:
            return await table.take_row_ids(numbers.tolist()).select([*OWNERS, *_FOUND]).with_row_id().to_arrow()

        rows = await self._on(scope, take, _NUMBERED) if len(numbers) else _NUMBERED
        try:
            return _loaded(owned(rows, scope), embedder) if rows.num_rows == len(numbers) else None
        except LakeError:  # the table was rewritten, and the ids are of other rows
            return None

    @synchronous
    async def count(self, scope: Scope, grain: Grain, where: Filter | None = None) -> int:
        """Return the number of matching rows of a scope; 0 without a table."""
        own = await self._condition(scope, grain, where)
        return await self._on(scope, lambda table: table.count_rows(own), 0)

    @synchronous
    async def messages(self, scope: Scope, grain: Grain, where: Filter) -> set[tuple[str, ...]]:
        """Return the distinct message ids on which matching rows of a scope rest."""
        own = await self._condition(scope, grain, where)
        return _messages(await self._select_of(scope, own, ["source_ids"]))

    def hours_of(self, scope: Scope, conversations: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the hours (keys) in which a scope's conversations have facts; omit conversations without facts."""
        where = Filter(conversation_id=next(iter(conversations))).sql() if len(conversations) == 1 else None
        rows = run_coroutine(self._of_grain(scope, Grain.WORKING, where, ["period", "conversation_id"]))
        if not rows.num_rows:
            return {}
        wanted = pa.array(sorted(conversations), pa.string())
        found = rows.filter(pc.is_in(rows["conversation_id"], wanted)).group_by("conversation_id")
        listed = found.aggregate([("period", "distinct")]).to_pylist()
        return {row["conversation_id"]: frozenset(row["period_distinct"]) for row in listed}

    async def _condition(self, scope: Scope, grain: Grain, where: Filter | None) -> str:
        names = await self._names(scope, grain) if where is not None and where.person is not None else ()
        own = None if where is None else where.sql(names)
        return of_scope(scope, f"grain = '{grain}'" + (f" AND ({own})" if own else ""))

    async def _names(self, scope: Scope, grain: Grain) -> frozenset[str]:
        """Return the names of all speakers and entities in a scope's rows, read once per version."""
        version = await self._version(scope) or 0
        known = self._named.get((scope, grain))
        if known is None or known[0] != version:
            rows = await self._of_grain(scope, grain, None, ["speaker", "entities"])
            named = pc.list_flatten(rows["entities"])
            names = {*pc.unique(rows["speaker"]).to_pylist(), *pc.unique(named).to_pylist()} - {None}
            known = self._named[scope, grain] = version, frozenset(names)
        return known[1]

    async def _of_grain(self, scope: Scope, grain: Grain, where: str | None, columns: Sequence[str]) -> pa.Table:
        return await self._select_of(scope, f"grain = '{grain}'" + (f" AND ({where})" if where else ""), columns)


def _within(grain: Grain, keys: Iterable[str] | None) -> str:
    """Return the condition that selects rows of a grain, of all periods if no keys are given."""
    where = f"grain = '{grain}'"
    return where if keys is None else f"{where} AND period IN ({listed(keys)})"


def _loaded(rows: pa.Table, embedder: Embedder, kind: type[np.floating] = np.float32) -> Loaded:
    vectors = with_computed(rows, vectors_of(rows, embedder.dimension), embedder).astype(kind, copy=False)
    numbers = rows[_NUMBER].to_numpy().astype(np.uint64, copy=False)
    return Loaded(rows.select([name for name in _FOUND if name != "vector"]), vectors, numbers)


def _together(parts: Sequence[Any]) -> Any:
    return pa.concat_tables(parts) if isinstance(parts[0], pa.Table) else np.concatenate(parts)


def _messages(rows: pa.Table) -> set[tuple[str, ...]]:
    return set(map(tuple, rows["source_ids"].to_pylist())) if rows.num_rows else set()

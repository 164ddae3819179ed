"""Lance tables of a projection: one for each shard of scopes, and one for each scope with many rows.

A projection is derived from records and can be rebuilt. Its rows have ``id`` (the declared primary key) and the columns
of a scope. Only rows that differ are written: new and changed rows are upserted, then the ids that are gone are
deleted. Reads return the rows of one scope and check whose they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.errors import DamagedLanceTableError, LakeError
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.index.index_rows import OWNERS
from memory_pipeline.lake.index.lance_tables import (
    FAILURES,
    Databases,
    VanishedError,
    retry_lance_commit,
    run_coroutine,
    synchronous,
)
from memory_pipeline.lake.index.maintenance import compact, compact_deletes
from memory_pipeline.lake.index.scope_cache import ScopeCache
from memory_pipeline.lake.index.table_roster import ROSTER, TableRoster
from memory_pipeline.lake.layout import PROJECTIONS, scope_in, shard_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.index.projection import Projection
    from memory_pipeline.lake.index.scope_cache import CacheEntry

_Result = TypeVar("_Result")
Project = Callable[[pa.Table], pa.Table]
_State = tuple[Any, ...]

_log = logging.getLogger(__name__)

#: A scope with more rows than this in its shard gets a table of its own.
LARGE_FROM = 50_000
#: Number of tables that are written concurrently.
_CONCURRENCY = 16
#: Tables whose files are merged or rewritten at the same time: all of their rows may be in memory.
_REWRITTEN_AT_ONCE = 2
#: Rows of one upsert, which takes several times their memory.
_UPSERTED = 20_000
#: The version of a table that was created with its rows.
_CREATED = 1
#: Up to this many scopes or ids are listed in a condition.
_LISTED = 1_000


def unchanged(rows: pa.Table) -> pa.Table:
    """Return rows that have the columns of a table already."""
    return rows


class ShardTables:
    """Reads and writes the tables of a projection. Safe to use from several threads and processes.

    Args:
        storage: the lake's files.
        projection: its columns and indices.
        shards: the number of shards of the lake.
        databases: opens tables. Projections may share it.
    """

    def __init__(
        self, storage: Storage, projection: Projection, shards: int, databases: Databases | None = None
    ) -> None:
        self._storage = storage
        self._complete: set[str] = set()  # tables that have all columns
        self._databases = Databases(storage) if databases is None else databases
        self._projection = projection
        self._databases.expect(PROJECTIONS, projection.name, projection.is_current)
        self._nothing = projection.schema.empty_table()
        self._cache = ScopeCache(storage, partial(self._databases.newest_version, PROJECTIONS))
        self.roster = TableRoster(storage, projection.name, shards)
        self._rewriting = asyncio.Semaphore(_REWRITTEN_AT_ONCE)
        # The version of each shard at which the large scopes were read.
        self._listed_at: dict[str, int | None] = {}

    @synchronous
    async def version(self, scope: Scope) -> int | None:
        """Return a number that grows with each commit to a scope's table and each rebuild, or None without a table.

        The table is not opened.

        Raises:
            DamagedError: the table is lost.
        """
        version = await self._version(scope)
        if version is None:
            await self._refuse_lost(self.roster.name_of(scope.key))
        return version

    @synchronous
    async def open(self, scope: Scope) -> None:
        """Open the table of a scope.

        Raises:
            DamagedError: it is lost or cannot be read, or another version of the package wrote it.
        """
        await self._version(scope)
        if await self._databases.table(PROJECTIONS, self.roster.name_of(scope.key)) is None:
            await self._refuse_lost(self.roster.name_of(scope.key))

    def cached(self, scope: Scope, part: str, form: str) -> CacheEntry | None:
        """Return what :meth:`store_cached` has stored of a scope, or None. Call :meth:`version` before."""
        return self._cache.find(self.roster.name_of(scope.key), scope, part, form)

    def store_cached(self, scope: Scope, part: str, form: str, entry: CacheEntry) -> None:
        """Keep what was made of the rows of a scope for other processes; see :mod:`.scope_cache`."""
        self._cache.store(self.roster.name_of(scope.key), scope, part, form, entry)

    def is_cached(self, scope: Scope) -> bool:
        """Return whether something is cached of a scope's newest rows."""
        version = run_coroutine(self._version(scope))
        return version is not None and self._cache.has(self.roster.name_of(scope.key), scope, version)

    def forget_stale(self) -> int:
        """Delete what is cached of earlier versions of all tables. Return the number of deleted files."""
        return self._cache.forget_stale()

    @synchronous
    async def versions(self, scopes: Collection[Scope]) -> dict[str, int | None]:
        """Return the version of each table of scopes; if they are equal later, nothing was written in between."""
        await asyncio.to_thread(self.roster.refresh)
        names = sorted({self.roster.name_of(scope.key) for scope in scopes})
        found = await self._all(self._databases.version(PROJECTIONS, name) for name in names)
        return dict(zip(names, found, strict=True))

    async def _version(self, scope: Scope) -> int | None:
        """Return the version of a scope's table, and update which table that is; None if it is lost, too."""
        while True:
            name = self.roster.name_of(scope.key)
            version = await self._databases.version(PROJECTIONS, name)
            if scope.key in self.roster.large and version is not None:
                return version
            # Rows move to a table of their own by a commit to the shard, or back after the table was dropped.
            if name in self._listed_at and self._listed_at[name] == version and scope.key not in self.roster.large:
                return version
            await asyncio.to_thread(self.roster.refresh)
            self._listed_at[name] = version
            if self.roster.name_of(scope.key) == name:
                return version

    async def _refuse_lost(self, name: str) -> None:
        """Raise a DamagedLanceTableError if a table was created and is missing."""
        is_noted = await asyncio.to_thread(self.roster.is_listed, name)
        # Another process may have created it since the caller looked.
        if is_noted and await self._databases.table(PROJECTIONS, name) is None:
            raise DamagedLanceTableError(
                f"{PROJECTIONS}/{name}.lance is missing; "
                "run `memory-pipeline run` or `memory-pipeline repair` to rebuild it from the tables"
            )

    @synchronous
    async def whole(self, name: str, *, thoroughly: bool = True) -> pa.Table | None:
        """Return all rows of a table, or None without a table. If not `thoroughly`, open it and return None.

        Raises:
            DamagedLanceTableError: it is lost or cannot be read.
        """
        if thoroughly:
            rows = await self._databases.whole(PROJECTIONS, name)
            is_there = rows is not None
        else:
            rows = None
            is_there = await self._databases.read(PROJECTIONS, name, lambda table: table.count_rows(), None) is not None
        if not is_there:
            await self._refuse_lost(name)
        return rows

    async def _on(self, scope: Scope, read: Callable[[Any], Awaitable[_Result]], nothing: _Result) -> _Result:
        """Return the result of `read` on the scope's table; `nothing` if there is none."""
        await self._version(scope)
        return await self._databases.read(PROJECTIONS, self.roster.name_of(scope.key), read, nothing)

    async def _select_of(self, scope: Scope, where: str, columns: Collection[str]) -> pa.Table:
        """Return the rows of a scope that meet a condition, unordered; none if its table is lost."""
        await self._version(scope)
        wanted = _with_owners(columns)
        nothing = self._nothing.select(wanted)
        rows = await self._select(self.roster.name_of(scope.key), of_scope(scope, where), wanted, nothing)
        return owned(rows, scope).select(list(columns))

    @synchronous
    async def read(
        self, scopes: Collection[Scope], columns: Collection[str] | None = None, where: str | None = None
    ) -> pa.Table:
        """Return the rows of scopes that meet a condition, unordered; all columns if none are given.

        Raises:
            DamagedError: a table is lost or cannot be read.
        """
        nothing = self._nothing.select(list(columns or self._nothing.column_names))
        wanted = _with_owners(nothing.column_names)
        by_table: dict[str, list[Scope]] = {}
        await asyncio.to_thread(self.roster.refresh)
        for scope in scopes:
            by_table.setdefault(self.roster.name_of(scope.key), []).append(scope)

        async def select(name: str, own: list[Scope]) -> pa.Table | None:
            condition = f"scope IN ({listed({scope.key for scope in own})})" + (f" AND ({where})" if where else "")
            rows = await self._select(name, condition, wanted)
            if rows is None:
                await self._refuse_lost(name)
                return None
            expected = {_owner(scope) for scope in own}
            found = rows.group_by(list(OWNERS)).aggregate([])
            if not expected.issuperset(zip(*(found[name].to_pylist() for name in OWNERS), strict=True)):
                raise LakeError(f"a read of {PROJECTIONS}/{name}.lance returned rows of another scope")
            return rows.select(nothing.column_names)

        chunks = [
            (name, own[start : start + _LISTED])
            for name, own in by_table.items()
            for start in range(0, len(own), _LISTED)
        ]
        found = await self._all(select(name, own) for name, own in chunks)
        return pa.concat_tables([rows for rows in found if rows is not None] or [nothing])

    @synchronous
    async def scan(
        self, columns: Collection[str] | None = None, where: str | None = None, shard: int | None = None
    ) -> pa.Table:
        """Return the rows of all scopes, or of those in a shard, unordered; all columns if none are given."""
        nothing = self._nothing.select(list(columns or self._nothing.column_names))
        tables = sorted(await asyncio.to_thread(self.roster.readable))
        names = [name for name in tables if shard is None or shard_in(name) == shard]
        found = await self._all(self._select(name, where, nothing.column_names) for name in names)
        return pa.concat_tables([rows.select(nothing.column_names) for rows in found if rows is not None] or [nothing])

    async def _select(self, name: str, where: str | None, columns: list[str], nothing: pa.Table | None = None) -> Any:
        """Return the rows of a table that meet a condition; `nothing` if there is no table."""

        async def select(table: Any) -> Any:
            query = table.query().where(where) if where else table.query()
            missing = [column for column in await self._missing(name, table) if column.name in columns]
            gone = {column.name for column in missing}
            rows = await query.select([column for column in columns if column not in gone]).to_arrow()
            for column in missing:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
            return rows.select(columns) if missing else rows

        return await self._databases.read(PROJECTIONS, name, select, nothing)

    async def _missing(self, name: str, table: Any) -> list[pa.Field]:
        """Return the columns that a table lacks, because an earlier version created it."""
        if name in self._complete:
            return []
        present = (await table.schema()).names
        missing = [column for column in self._projection.schema if column.name not in present]
        if not missing:
            self._complete.add(name)
        return missing

    @synchronous
    async def make_equal(
        self,
        within: str,
        rows: pa.Table,
        scopes: Collection[Scope] | None = None,
        shard: int | None = None,
        removable: Collection[str] | None = None,
        project: Project = unchanged,
    ) -> set[_State]:
        """Make the rows that meet a condition equal to `rows`. Return the states of the rows that were written.

        Args:
            within: the condition; every row of `rows` meets it.
            rows: with the columns of the table, or with those that are compared and what `project` needs.
            scopes: those to compare; all if not given.
            shard: the shard to compare; all if not given.
            removable: ids that may be deleted; all if not given. With the ids that were there before the records were
                read, rows that another run adds meanwhile stay.
            project: returns rows as they are stored. It is called for new and changed rows only, for some at a time.
        """
        written: set[_State] = set()
        await asyncio.to_thread(self.roster.refresh)
        while True:
            large = self.roster.large
            parts = self._by_table(rows, scopes, shard)
            keys = None if scopes is None else {scope.key for scope in scopes}
            written |= set().union(
                *await self._all(
                    self._replaced(name, within, part, keys, removable, project) for name, part in parts.items()
                )
            )
            await self._grow(rows)
            await asyncio.to_thread(self.roster.refresh)
            if self.roster.large == large:
                return written
            # Meanwhile a scope got a table of its own: what was written to its shard may be missing there.
            await self._clear_shards()

    def _by_table(self, rows: pa.Table, scopes: Collection[Scope] | None, shard: int | None) -> dict[str, pa.Table]:
        """Return the rows of each table, in which some may have to be deleted, too."""
        parts = self.roster.tables() if scopes is None else {self.roster.name_of(scope.key) for scope in scopes}
        # Another process may be filling a scope's own table, which is not listed before it is complete.
        parts = {name for name in parts if (key := scope_in(name)) is None or key in self.roster.large}
        tables = dict.fromkeys((name for name in parts if shard is None or shard_in(name) == shard), rows.slice(0, 0))
        keys = rows["scope"].combine_chunks().dictionary_encode()
        names = pa.array(map(self.roster.name_of, keys.dictionary.to_pylist()), pa.string())
        places = names.take(keys.indices)
        found = names.unique().to_pylist()
        return tables | {name: rows if len(found) == 1 else rows.filter(pc.equal(places, name)) for name in found}

    async def _replaced(self, name: str, *how: Any) -> set[_State]:
        forget = partial(self._databases.forget, PROJECTIONS, name)
        return await retry_lance_commit(lambda: self._replace(name, *how), forget)

    async def _replace(
        self,
        name: str,
        within: str,
        rows: pa.Table,
        keys: Collection[str] | None,
        removable: Collection[str] | None = None,
        project: Project = unchanged,
    ) -> set[_State]:
        table = await self._databases.table(PROJECTIONS, name)
        created: set[_State] = set()
        if table is None:
            await self._refuse_lost(name)
            if not rows.num_rows:
                return set()
            # Created with its rows, it has one version, whose manifest is small: a merge lists the keys of its rows.
            first = self._stored(name, project(rows.slice(0, _UPSERTED)))
            table = await self._create(name, first.schema, first)
            created = _states(rows.slice(0, _UPSERTED), self._projection.compared_columns)
        is_listed = keys is not None and len(keys) <= _LISTED
        condition = f"{within} AND scope IN ({listed(keys or ())})" if is_listed else within
        columns = self._projection.compared_columns
        found = await self._select(name, condition, columns, rows.slice(0, 0).select(columns))
        present = _states(found, columns)
        # Another process may have dropped it as empty, which only a read shows. Listed, it would count as lost.
        if scope_in(name) is None and await self._databases.table(PROJECTIONS, name) is not None:
            await asyncio.to_thread(self.roster.add, name)
        if keys is not None and not is_listed:
            present = {state for state in present if state[0] in keys}
        wanted = _states(rows, columns)
        if removable is not None:
            ids = {state[1] for state in wanted}
            present = {state for state in present if state[1] in ids or state[1] in removable}
        differing = (present ^ wanted) | created
        if not differing:
            return set()
        new = {state[1] for state in wanted - present}
        gone = sorted({state[1] for state in present} - {state[1] for state in wanted})
        changed = (
            rows if len(new) == rows.num_rows else rows.filter(pc.is_in(rows["id"], pa.array(sorted(new), pa.string())))
        )
        async with nullcontext() if present <= wanted else self._uncached(name):
            version = await self._write(name, table, changed, gone, project) or _CREATED

        async def maintain() -> bool:
            try:
                await self._projection.maintain(self._storage, name, table, version)
            except FAILURES:  # of a dropped table, each attempt would fail
                if await self._databases.version_exists(PROJECTIONS, name, version):
                    raise
                return False
            return True

        async with self._rewriting:
            is_there = await retry_lance_commit(maintain)
        if not is_there or not await self._databases.version_exists(PROJECTIONS, name, version):
            raise VanishedError
        return differing

    async def _write(self, name: str, table: Any, rows: pa.Table, gone: Sequence[str], project: Project) -> int:
        """Upsert rows, and delete those with the ids `gone`. Return the version; 0 if there was nothing to do."""
        version = 0
        if rows.num_rows and (missing := await self._missing(name, table)):
            await table.add_columns(missing)
        for start in range(0, rows.num_rows, _UPSERTED):
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            # Rows whose embedding failed have no vector, and are found by words.
            part = self._stored(name, project(rows.slice(start, _UPSERTED)))
            version = (await merge.execute(part, on_bad_vectors="null")).version
        for start in range(0, len(gone), _LISTED):
            version = (await table.delete(f"id IN ({listed(gone[start : start + _LISTED])})")).version
        return version

    @asynccontextmanager
    async def _uncached(self, name: str) -> AsyncIterator[None]:
        """Remove or change rows of a table inside, so that none stays in a cache: readers may keep them meanwhile."""
        await asyncio.to_thread(self._cache.forget, name)
        yield
        await asyncio.to_thread(self._cache.forget, name)

    def _stored(self, name: str, rows: pa.Table) -> pa.Table:  # noqa: ARG002
        """Return rows as a table stores them."""
        return rows

    async def _create(self, name: str, schema: pa.Schema, rows: pa.Table | None = None) -> Any:
        table = await self._databases.create(PROJECTIONS, name, self._projection.versioned(schema), rows)
        await asyncio.to_thread(self.roster.add, name)
        return table

    @synchronous
    async def delete(self, where: str, scopes: Collection[Scope] | None = None) -> int:
        """Delete rows, from the disk too. Return their number. Searches the tables of `scopes`, or all.

        Tables without such rows are unchanged. A table of one scope is dropped if it is empty.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        names = await asyncio.to_thread(self.roster.present_of, scopes)
        return sum(await self._all(self._delete(name, where) for name in names))

    async def _delete(self, name: str, where: str) -> int:
        async def delete(table: Any) -> int:
            return int((await table.delete(where)).num_deleted_rows)

        if not await self._databases.read(PROJECTIONS, name, lambda table: table.count_rows(where), 0):
            return 0
        async with self._uncached(name):
            count = await self._databases.edit(PROJECTIONS, name, delete, 0)
            if scope_in(name) and not await self._databases.read(
                PROJECTIONS, name, lambda table: table.count_rows(), 0
            ):
                await self._drop(name, only_if_empty=True)
            path, same = f"{PROJECTIONS}/{name}.lance", self._projection.same
            await self._databases.edit(
                PROJECTIONS, name, lambda table: compact_deletes(table, self._storage, path, same), None
            )
        return count

    async def _drop(self, name: str, *, only_if_empty: bool = False) -> bool:
        await asyncio.to_thread(self.roster.discard, name)
        dropped = await self._databases.drop(PROJECTIONS, name, only_if_empty=only_if_empty)
        if not dropped and only_if_empty and await self._databases.table(PROJECTIONS, name) is not None:
            await asyncio.to_thread(self.roster.add, name)
        await asyncio.to_thread(self._cache.forget, name)
        return dropped

    @synchronous
    async def clear(self, name: str) -> None:
        """Drop a table. It stays listed until it is filled, so that it counts as lost and others do not create it."""
        await asyncio.to_thread(self.roster.add, name)
        await self._databases.drop(PROJECTIONS, name)
        await asyncio.to_thread(self._cache.forget, name)

    @synchronous
    async def fill(self, name: str, rows: pa.Table) -> None:
        """Create a cleared table with all of its rows."""
        if rows.num_rows:
            table = await self._create(name, rows.schema, self._stored(name, rows))
            await self._projection.maintain(self._storage, name, table, 1)
        else:
            await asyncio.to_thread(self.roster.discard, name)

    # A scope with many rows gets a table of its own.

    async def _grow(self, rows: pa.Table) -> None:
        """Move scopes with many new rows to tables of their own."""
        counted = pc.value_counts(rows["scope"])
        keys = [one["values"].as_py() for one in counted if one["counts"].as_py() * 10 >= LARGE_FROM]
        await self._all(self._move(key) for key in keys if key not in self.roster.large)

    async def _move(self, key: str) -> None:
        """Copy a scope with many rows from its shard to a table of its own, which is found once it is complete."""
        shard, own = self.roster.name_of(key), self.roster.own_table(key)
        condition = f"scope = '{key}'"

        async def copy(table: Any) -> tuple[int, set[_State]]:
            await self._databases.drop(PROJECTIONS, own)  # left by a process that was killed here, or by a failed read
            version: int = await table.version()
            target = await self._databases.create(PROJECTIONS, own, await table.schema())
            states: set[_State] = set()
            waiting: list[pa.RecordBatch] = []
            batches = await table.query().where(condition).to_batches()
            async for batch in batches:
                waiting.append(batch)
                if sum(each.num_rows for each in waiting) >= _UPSERTED:
                    states |= await add(target, waiting)
                    waiting = []
            return version, states | await add(target, waiting)

        async def add(target: Any, batches: list[pa.RecordBatch]) -> set[_State]:
            rows = pa.Table.from_batches(batches, await target.schema())
            await target.add(self._stored(own, rows), on_bad_vectors="null")
            return _states(rows, self._projection.compared_columns)

        async def look(table: Any) -> tuple[int, pa.Table]:
            query = table.query().where(condition).select(self._projection.compared_columns)
            return int(await table.version()), await query.to_arrow()

        count = await self._databases.read(PROJECTIONS, shard, lambda table: table.count_rows(condition), 0)
        if count < LARGE_FROM:
            return
        async with self._databases.claimed(ROSTER, own):
            if own in await asyncio.to_thread(self.roster.listed):
                return
            nothing: tuple[int, set[_State]] = (0, set())
            version, before = await self._databases.read(PROJECTIONS, shard, copy, nothing)
            table = await self._databases.table(PROJECTIONS, own)
            await self._projection.maintain(self._storage, own, table, 1)
            await asyncio.to_thread(self.roster.add, own)
            now, states = await self._databases.read(PROJECTIONS, shard, look, (0, pa.table({})))
            if now != version:  # others have written to the shard without knowing of the new table
                changed = {state[1] for state in before ^ _states(states, self._projection.compared_columns)}
                within = f"id IN ({listed(changed)})"
                later = await self._databases.read(
                    PROJECTIONS, shard, lambda table: table.query().where(within).to_arrow(), None
                )
                await self._replaced(own, within, later, None)

    async def _clear_shards(self) -> None:
        """Delete the rows of scopes with tables of their own from their shards."""
        by_shard: dict[str, list[str]] = {}
        for key in sorted(self.roster.large):
            by_shard.setdefault(self.roster.shard_table(key), []).append(key)
        await self._all(self._delete(name, f"scope IN ({listed(keys)})") for name, keys in by_shard.items())

    async def _clear_left_behind(self) -> None:
        """Delete what a killed move of a scope left: rows in the shard, or an unlisted table."""
        await asyncio.to_thread(self.roster.refresh)
        await self._clear_shards()
        for name in sorted(await asyncio.to_thread(self.roster.unlisted)):
            async with self._databases.claimed(ROSTER, name):
                if name in await asyncio.to_thread(self.roster.unlisted):
                    await self._databases.drop(PROJECTIONS, name)

    # Maintenance.

    @synchronous
    async def compact(self) -> tuple[int, int]:
        """Merge small files. Return the number of tables with merged files, and the bytes of the merged rows."""
        names = await asyncio.to_thread(self.roster.present_of, None)
        await self._clear_left_behind()
        written = await self._all(map(self._compact, names))
        await asyncio.to_thread(self.roster.refresh)
        await self._clear_shards()
        return sum(map(bool, written)), sum(written)

    async def _compact(self, name: str) -> int:
        async def merge(table: Any) -> int:
            written = await self._converted(name, table)
            written += await compact(table, self._projection.same, 2)
            await self._projection.maintain(self._storage, name, table, 1)
            return written

        try:
            async with self._rewriting:
                written = await self._databases.edit(PROJECTIONS, name, merge, 0)
            if scope_in(name) is None:  # a scope that grows by a few rows a run is moved here
                rows = await self._select(name, None, ["scope"], pa.table({"scope": []}))
                for one in pc.value_counts(rows["scope"]):
                    if one["counts"].as_py() >= LARGE_FROM and one["values"].as_py() not in self.roster.large:
                        await self._move(one["values"].as_py())
            return written
        except (LakeError, *FAILURES) as error:  # others keep writing, or it is damaged: continue with the other tables
            _log.warning("%s/%s.lance is not compacted: %s", PROJECTIONS, name, error)
            return 0

    async def _converted(self, name: str, table: Any) -> int:  # noqa: ARG002
        """Store the rows of a table as :meth:`_stored` does, if an earlier version wrote them. Return their bytes."""
        return 0

    @synchronous
    async def purge(self, scopes: Collection[Scope] | None) -> None:
        """Rewrite the tables of scopes, or all, with their indices, so that no earlier version stays on the disk.

        Files left by killed writers stay until they are an hour old.

        Raises:
            CommitConflictError: other writers kept changing a table. Safe to retry.
        """
        names = await asyncio.to_thread(self.roster.present_of, scopes)
        await self._clear_left_behind()

        async def purge(name: str) -> None:
            renew = partial(self._projection.rewrite, self._storage, name)
            async with self._uncached(name):
                async with self._rewriting:
                    await self._databases.edit(PROJECTIONS, name, renew, None)
                if not await self._databases.read(PROJECTIONS, name, lambda table: table.count_rows(), 1):
                    await self._drop(name, only_if_empty=True)  # its newest commit may name deleted ids

        await self._all(map(purge, names))

    async def _all(self, works: Iterable[Awaitable[_Result]]) -> list[_Result]:
        """Await operations on tables, a limited number at a time."""
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(work: Awaitable[_Result]) -> _Result:
            async with slots:
                return await work

        return await asyncio.gather(*map(one, works))


def _with_owners(columns: Collection[str]) -> list[str]:
    return [*OWNERS, *(name for name in columns if name not in OWNERS)]


def _owner(scope: Scope) -> tuple[str, ...]:
    """Return the values of the columns `OWNERS`."""
    return scope.key, scope.workspace_id, scope.agent_id, scope.identity


def of_scope(scope: Scope, where: str | None = None) -> str:
    """Return the condition that selects a scope's rows."""
    return f"scope = '{scope.key}'" + (f" AND ({where})" if where else "")


def owned(rows: pa.Table, scope: Scope) -> pa.Table:
    """Return rows after a check that all of them are the scope's.

    Raises:
        LakeError: some are another scope's.
    """
    for name, value in zip(OWNERS, _owner(scope), strict=True):
        if not pc.all(pc.equal(rows[name], value), min_count=0).as_py():
            raise LakeError(f"a read of {scope} returned rows of another scope")
    return rows


def _states(rows: pa.Table, names: Collection[str]) -> set[_State]:
    """Return the values that decide whether rows are equal."""
    return set(zip(*(rows[name].to_pylist() for name in names), strict=True))

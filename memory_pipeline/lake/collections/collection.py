"""Collections: vectors of documents, tools or images that an agent supplies itself. No pipeline builds them.

::

    vectors = VectorCollection.open("./my-lake", workspace_id="acme", agent_id="support", dimension=384)
    vectors.upsert([VectorItem(id="doc-1", vector=[…], content="…", metadata={"page": "3"})])
    for match in vectors.search(query_vector, top_k=10, threshold=0.3):
        print(match.similarity, match.id, match.content)

A collection is a table of its own, ``vectordb/{scope}/{name}.lance``. The file ``scope.json`` beside it says whose it
is, because an agent may have collections and no other memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.conversations import audience_in
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.messages import recorded_scope
from memory_pipeline.domain.values import count_of, number_of
from memory_pipeline.errors import ConfigurationError, DamagedLanceTableError, InputError, LakeError, shown
from memory_pipeline.lake.collections.item import id_of, numbered, row_of, unit_vector
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.index.maintenance import SAME_ITEM, compact
from memory_pipeline.lake.lake import Lake
from memory_pipeline.lake.layout import folder_name, key_in, path_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.lake.collections.item import Row, Value, Vector, VectorItem
    from memory_pipeline.lake.files.storage import Storage


_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: The folder of all collections, and the file in each scope's folder that says whose collections they are.
COLLECTIONS, _SCOPE = "vectordb", "scope.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

#: Number of items per commit, when writing and when deleting.
BATCH, _DELETED_AT_ONCE = 100, 1_000
#: Limits of a vector's dimension and of a search's matches.
MAX_DIMENSION, MAX_TOP_K = 65_536, 1_000
#: The columns that a search returns.
_FOUND = ("id", "content", "metadata")
#: Decimals of a similarity; float32 has no more precision.
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class VectorMatch:
    """An item found by a search, and its cosine similarity to the query, -1 to 1, rounded to six decimals."""

    id: str
    similarity: float
    content: str
    metadata: dict[str, Value]


@dataclass(frozen=True, slots=True)
class CollectionStats:
    """Size of a collection.

    `bytes` does not include older versions that are kept for readers. `versions` is the number of commits: creation,
    writes, deletions and occasional compactions.
    """

    items: int
    dimension: int
    bytes: int
    versions: int


class VectorCollection:
    """A collection of vectors, compared by cosine. Safe to use from several threads and processes.

    The first upsert creates it. A search compares all vectors exactly, and sees every write that finished before it
    began. Collections of other agents and users cannot be reached. The arguments are those of :meth:`open`.

    Raises:
        InputError: the dimension or the name is invalid.
        ConfigurationError: the collection has another dimension.
    """

    def __init__(self, lake: Lake, scope: Scope, dimension: int, name: str = "default") -> None:
        # A heavy import that most callers do not need.
        from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine

        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(
                f"name {shown(name)} is not accepted; expected 1 to 100 ASCII letters, digits, '_', '-', beginning "
                "with a letter or digit"
            )
        self._dimension = count_of("dimension", dimension, 1, MAX_DIMENSION)
        self._scope = scope
        self._storage = lake.storage
        self._redactor = lake.redactor_of(scope.workspace_id)
        self._where = (f"{COLLECTIONS}/{folder_name(scope)}", path_name(name, digest(name)))
        self._called = f"{shown(name)} of {shown(str(scope))}"
        self._run = run_coroutine
        self._databases = Databases(lake.storage)
        self._fits: Any | None = None
        self._run(self._table())

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        *,
        workspace_id: str,
        agent_id: str,
        dimension: int,
        name: str = "default",
        user_id: str | None = None,
        users: Sequence[str] | None = None,
        group_id: str | None = None,
    ) -> VectorCollection:
        """Open a collection in the lake at `uri`. The first upsert creates it.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: the workspace.
            agent_id: the agent who owns it.
            dimension: of the vectors, 1 to 65,536.
            name: of the collection; 1 to 100 letters, digits, ``_``, ``-``.
            user_id: the user who owns it in place of the agent, unless the agent's users share one memory.
            users: users of the group that owns it, in place of `user_id`.
            group_id: the group with this id owns it, whoever its members are.

        Raises:
            InputError: an id, the dimension or the name is invalid.
            ConfigurationError: the address is invalid, or the collection has another dimension.
        """
        lake = Lake(uri)
        audience = audience_in({"user_id": user_id, "users": users, "group_id": group_id}, ())
        return cls(lake, lake.new_scope(workspace_id, agent_id, audience.identity), dimension, name)

    def upsert(self, items: Iterable[VectorItem]) -> int:
        """Insert items, replacing those with the same ids, and return the number of commits, one per 100 items.

        If an id is given twice, the last item counts. All items are validated before any is written.

        Raises:
            InputError: an item is invalid; the message names it and the field. Nothing was written.
            ConfigurationError: the collection was created with another dimension in the meantime.
            CommitConflictError: other writers kept winning. Earlier batches were written. Safe to retry.
        """
        named = (row_of(name, item, self._dimension, self._redactor) for name, item in numbered("items", items))
        rows = list({row.id: row for row in named}.values())
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        for batch in batches:
            self._commit(partial(_merge, _table_of(batch, self._dimension)))
        return len(batches)

    def search(self, vector: Vector, top_k: int = 10, threshold: float | None = None) -> list[VectorMatch]:
        """Return the items most similar to `vector`, best first; ties are sorted by id.

        Args:
            vector: finite numbers, as many as the collection's dimension, not all zero.
            top_k: the maximum number of items, 1 to 1,000.
            threshold: the minimum similarity, -1 to 1, compared at six decimals.

        Raises:
            InputError: an argument is invalid; the message names it.
            ConfigurationError: the collection was created with another dimension in the meantime.
        """
        query = unit_vector("vector", vector, self._dimension)
        count_of("top_k", top_k, 1, MAX_TOP_K)
        least = -1 if threshold is None else round(number_of("threshold", threshold, -1, 1), _DECIMALS)

        async def nearest(table: Any) -> tuple[pa.Table, NDArray[np.float64]]:
            """Return the nearest rows, and all that tie with the last: ties are resolved by id."""
            near = table.query().nearest_to(query).distance_type("cosine").select([*_FOUND, "_distance"])
            limit = top_k + 1
            while True:
                rows = await near.limit(limit).to_arrow()
                distances = rows["_distance"].to_numpy().astype(np.float64)
                similarities = np.clip(np.round(1 - distances, _DECIMALS), -1, 1) + 0.0  # turns -0 into 0
                if len(similarities) < limit or similarities[-1] < similarities[top_k - 1]:
                    return rows, similarities
                limit *= 4

        rows, similarities = self._read(nearest, (_schema(self._dimension).empty_table(), np.empty(0)))
        matches = [
            VectorMatch(row["id"], similarity, row["content"], json.loads(row["metadata"]))
            for row, similarity in zip(rows.to_pylist(), similarities.tolist(), strict=True)
            if similarity >= least
        ]
        return sorted(matches, key=lambda match: (-match.similarity, match.id))[:top_k]

    def delete(self, ids: Iterable[str]) -> int:
        """Delete the items with these ids. Return how many existed.

        Raises:
            InputError: an id is invalid; the message names it. Nothing was deleted.
            ConfigurationError: the collection was created with another dimension in the meantime.
            CommitConflictError: other writers kept winning. Safe to retry.
        """
        unique = list(dict.fromkeys(id_of(name, value) for name, value in numbered("ids", ids)))
        deleted = 0
        for start in range(0, len(unique), _DELETED_AT_ONCE):
            if self._read(methodcaller("version"), 0):
                where = f"id IN ({listed(unique[start : start + _DELETED_AT_ONCE])})"
                deleted += self._commit(methodcaller("delete", where)).num_deleted_rows
        return deleted

    def stats(self) -> CollectionStats:
        """Return the size of the collection; a missing one is empty.

        Raises:
            ConfigurationError: the collection was created with another dimension in the meantime.
        """

        async def stats(table: Any) -> CollectionStats:
            found = await table.stats()
            return CollectionStats(found["num_rows"], self._dimension, found["total_bytes"], await table.version())

        return self._read(stats, CollectionStats(0, self._dimension, 0, 0))

    async def _table(self) -> Any | None:
        table = await self._databases.table(*self._where)
        return None if table is None else await self._fitting(table)

    async def _made_table(self) -> Any:
        ids = {name: getattr(self._scope, name) for name in ("workspace_id", "agent_id", "identity")}
        path = f"{self._where[0]}/{_SCOPE}"
        await asyncio.to_thread(self._storage.create, path, json.dumps(ids).encode())
        return await self._fitting(await self._databases.create(*self._where, _schema(self._dimension)))

    async def _fitting(self, table: Any) -> Any:
        if table is self._fits:
            return table
        made_with = (await table.schema()).field("vector").type.list_size
        if made_with != self._dimension:
            raise ConfigurationError(
                f"dimension {self._dimension:,} does not fit collection {self._called}, which has dimension "
                f"{made_with:,}; open it with that, or choose another name for the collection"
            )
        self._fits = table
        return table

    def _read(self, read: Callable[[Any], Awaitable[_Result]], nothing: _Result) -> _Result:
        async def fitting(table: Any) -> _Result:
            return await read(await self._fitting(table))

        return self._run(self._databases.read(*self._where, fitting, nothing))

    def _commit(self, write: Callable[[Any], Awaitable[Any]]) -> Any:
        return self._run(self._databases.commit(*self._where, self._made_table, write, SAME_ITEM))


async def _merge(rows: pa.Table, table: Any) -> Any:
    return await table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _schema(dimension: int) -> pa.Schema:
    return pa.schema(
        [
            # As in index_schema: without a declared key, concurrent merges duplicate rows.
            pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"}),
            pa.field("content", pa.string()),
            pa.field("metadata", pa.string()),  # a JSON object
            pa.field("vector", pa.list_(pa.float32(), dimension)),  # of unit length
        ]
    )


def _table_of(rows: Sequence[Row], dimension: int) -> pa.Table:
    *texts, vectors = zip(*rows, strict=True)
    lists = pa.FixedSizeListArray.from_arrays(np.concatenate(vectors), dimension)
    return pa.Table.from_arrays([*map(pa.array, texts), lists], schema=_schema(dimension))


def collections_of(lake: Lake) -> Iterator[tuple[Scope, str, list[str]]]:
    """Yield the owner of collections, their folder, and the names of their tables."""
    for name in lake.storage.folders(COLLECTIONS):
        folder = f"{COLLECTIONS}/{name}"
        names = [one.removesuffix(".lance") for one in lake.storage.folders(folder) if one.endswith(".lance")]
        data = lake.storage.read(f"{folder}/{_SCOPE}")
        if data is None and not names:
            continue
        try:
            scope = recorded_scope(parse_json(data or b"{}"), lake.scope)
        except InputError as error:
            _log.warning("%s is left out: its %s is damaged: %s", lake.storage.locate(folder), _SCOPE, error)
            continue
        if scope.key == key_in(name):
            yield scope, folder, names


def damaged_collections(lake: Lake) -> dict[str, str]:
    """Return the files and tables of collections that cannot be read, with the reasons. Reads all of them."""
    from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine

    found: dict[str, str] = {}
    databases = Databases(lake.storage)
    for name in lake.storage.folders(COLLECTIONS):
        folder = f"{COLLECTIONS}/{name}"
        tables = [one.removesuffix(".lance") for one in lake.storage.folders(folder) if one.endswith(".lance")]
        for table in tables:
            try:
                if run_coroutine(databases.whole(folder, table)) is None:
                    found[f"{folder}/{table}.lance"] = "it has no version that can be read"
            except DamagedLanceTableError as error:
                found[f"{folder}/{table}.lance"] = str(error).partition("; run `")[0]
        if tables:
            try:
                scope = recorded_scope(parse_json(lake.storage.read(f"{folder}/{_SCOPE}") or b""), lake.scope)
                if scope.key != key_in(name):
                    found[f"{folder}/{_SCOPE}"] = f"it names {scope}, whose collections are elsewhere"
            except InputError as error:
                found[f"{folder}/{_SCOPE}"] = str(error)
    return found


def drop_collections(lake: Lake, scopes: Collection[Scope]) -> None:
    """Drop all collections of scopes.

    Raises:
        CommitConflictError: others kept writing to a table. Safe to retry.
    """
    from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine

    databases = Databases(lake.storage)
    for scope, folder, tables in collections_of(lake):
        if scope in scopes:
            for name in tables:
                run_coroutine(databases.drop(folder, name))
            lake.storage.delete([f"{folder}/{_SCOPE}"])
    lake.storage.prune(COLLECTIONS)


def redact_items(lake: Lake, folder: str, name: str, redactor: Redactor, *, dry_run: bool) -> int:
    """Replace the secrets in the items of a collection; return how many had some. With `dry_run`, only count them.

    Raises:
        CommitConflictError: others kept writing to the table. Safe to retry.
    """
    from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine
    from memory_pipeline.lake.index.maintenance import rewrite

    async def items(table: Any) -> pa.Table:
        return await table.query().select(["id", "content", "metadata", "vector"]).to_arrow()

    def rewritten(table: Any) -> Awaitable[None]:
        return rewrite(table, lake.storage, f"{folder}/{name}.lance", SAME_ITEM, {})

    databases = Databases(lake.storage)
    rows = run_coroutine(databases.read(folder, name, items, None))
    changed = []
    for row in [] if rows is None else rows.to_pylist():
        stored = json.loads(row["metadata"])
        content, metadata = redactor.text(row["content"]), redactor.value(stored)
        if content is not row["content"] or metadata is not stored:
            changed.append({**row, "content": content, "metadata": json.dumps(metadata, ensure_ascii=False)})
    if changed and not dry_run:
        new = pa.Table.from_pylist(changed, schema=rows.schema)
        run_coroutine(databases.edit(folder, name, partial(_merge, new), None))
        run_coroutine(databases.edit(folder, name, rewritten, None))
    return len(changed)


def compact_collection(storage: Storage, path: str) -> int:
    """Merge the small files of the collection in the folder `path`. Return the bytes of the merged rows."""
    from memory_pipeline.lake.index.lance_tables import FAILURES, Databases, run_coroutine

    folder, _, name = path.removesuffix(".lance").rpartition("/")
    try:
        edit = Databases(storage).edit(folder, name, lambda table: compact(table, SAME_ITEM), 0)
        return run_coroutine(edit)
    except (LakeError, *FAILURES) as error:  # others keep writing, or it is damaged: continue with the other tables
        _log.warning("%s is not compacted: %s", path, error)
        return 0

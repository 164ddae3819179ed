"""The durable memories of a scope at one moment: stored rows, overlaid with pending events.

The rows leave out contents and vectors, which most queries do not need. Memories that pending events change are folded
and replace their rows.
"""

from __future__ import annotations

from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.record import Header
from memory_pipeline.lake.codec.memories import HEADER_COLUMNS, row_to_header, row_to_memory
from memory_pipeline.lake.schemas import MEMORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory


class Rows:
    """The newest versions of memories in the table, with the columns of headers. Contents are read on demand.

    `read` returns whole rows of the given memories, or of all for None.
    """

    def __init__(self, table: pa.Table, read: Callable[[Collection[str] | None], pa.Table]) -> None:
        self.table = table
        self._read = read
        self._whole: tuple[pa.Table, dict[str, int]] | None = None
        self._single: dict[str, DurableMemory] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """Row index by id."""
        return _places(self.table)

    @cached_property
    def successors(self) -> dict[str, str]:
        """The memory that replaced a memory, by its id."""
        replaced = self.table.filter(pc.is_valid(self.table["superseded_by"]))
        return dict(zip(replaced["memory_id"].to_pylist(), replaced["superseded_by"].to_pylist(), strict=True))

    @cached_property
    def newest(self) -> NDArray[np.int64]:
        """Row indices, newest `updated_at` first, then by id."""
        order = pc.sort_indices(self.table, [("updated_at", "descending"), ("memory_id", "ascending")])
        found: NDArray[np.int64] = order.to_numpy().astype(np.int64)
        return found

    def memories(self, memory_ids: Collection[str], *, alone: bool = False) -> dict[str, DurableMemory]:
        """Return memories by id. Ids without a row are left out.

        `alone` reads only these contents, unless all are cached. Otherwise all contents are read and cached.
        """
        if not memory_ids:
            return {}
        if self._whole is None and alone:
            missing = [one for one in memory_ids if one in self.places and one not in self._single]
            if missing:
                read = self._read(missing).to_pylist()
                self._single |= {row["memory_id"]: row_to_memory(row) for row in read}
            return {one: self._single[one] for one in memory_ids if one in self._single}
        if self._whole is None:
            table = self._read(None)
            self._whole = table, _places(table)
        table, places = self._whole
        rows = table.take(pa.array([places[one] for one in memory_ids if one in places], pa.int64()))
        return {row["memory_id"]: row_to_memory(row) for row in rows.to_pylist()}

    def headers(self, memory_ids: Collection[str]) -> dict[str, Header]:
        """Return headers by id. Ids without a row are left out."""
        places = [self.places[one] for one in memory_ids if one in self.places]
        if not places:
            return {}
        rows = self.table.take(pa.array(places, pa.int64()))
        return {row["memory_id"]: row_to_header(row) for row in rows.to_pylist()}

    def equal(self, column: str, value: str | bool) -> NDArray[np.bool_]:
        """Return a mask of the rows with a value in a column."""
        same = pc.fill_null(pc.equal(self.table[column], pa.scalar(value, self.table.schema.field(column).type)), False)
        flags: NDArray[np.bool_] = same.to_numpy(zero_copy_only=False).astype(np.bool_)
        return flags

    def containing(self, column: str, text: str) -> NDArray[np.bool_]:
        """Return a mask of the rows with a text in a column."""
        found: NDArray[np.bool_] = pc.match_substring(self.table[column], text).to_numpy(zero_copy_only=False)
        return found

    def flagged(self, column: str) -> NDArray[np.bool_]:
        """Return a mask of the rows in which a column is true."""
        flags: NDArray[np.bool_] = self.table[column].to_numpy().astype(np.bool_)
        return flags

    def called(self, column: str, key: str) -> NDArray[np.bool_]:
        """Return a mask of the rows with a name in a column; `key` is the compared form."""
        codes, keys = self._called(column)
        return np.isin(codes, keys.get(key, []))

    def since(self, column: str, first: datetime) -> NDArray[np.bool_]:
        """Return a mask of the rows with a time of `first` or later in a column."""
        late: NDArray[np.bool_] = pc.greater_equal(self.table[column], first).to_numpy(zero_copy_only=False)
        return late

    def tagged(self, tag: str) -> NDArray[np.bool_]:
        """Return a mask of the rows with a label."""
        return np.array([tag in tags for tags in self.table["tags"].to_pylist()], np.bool_)

    @cached_property
    def _names(self) -> dict[str, tuple[NDArray[np.int64], dict[str, list[int]]]]:
        return {}

    def _called(self, column: str) -> tuple[NDArray[np.int64], dict[str, list[int]]]:
        """Return the code of each row's name, and the codes of all spellings by compared form."""
        if column not in self._names:
            encoded = self.table[column].combine_chunks().dictionary_encode()
            keys: dict[str, list[int]] = {}
            for code, name in enumerate(encoded.dictionary.to_pylist()):
                keys.setdefault(name_key(name), []).append(code)
            codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            self._names[column] = codes, keys
        return self._names[column]


class MemorySnapshot:
    """All memories of a scope in their newest versions.

    Memories in `above` replace rows or are new. With `is_whole` they are all memories, with their whole history.
    `identity` is that of the scope.
    """

    def __init__(self, rows: Rows, above: Memories, *, is_whole: bool = False, identity: str = "") -> None:
        self.rows = rows
        self.above = above
        self.is_whole = is_whole
        self.identity = identity

    def __len__(self) -> int:
        return int(self.visible.sum()) + len(self.above.newest)

    def __contains__(self, memory_id: object) -> bool:
        return memory_id in self.above.newest or memory_id in self.rows.places

    @cached_property
    def visible(self) -> NDArray[np.bool_]:
        """Mask of the rows that `above` does not replace."""
        mask = np.ones(len(self.rows), np.bool_)
        if len(mask):
            places = self.rows.places
            mask[[places[memory_id] for memory_id in self.above.newest if memory_id in places]] = False
        return mask

    def load(self, memory_ids: Collection[str], *, alone: bool = False) -> dict[str, DurableMemory]:
        """Return memories by id. Unknown ids are left out; `alone` as in :meth:`Rows.memories`."""
        found = {one: memory for one in memory_ids if (memory := self.above.newest.get(one)) is not None}
        return found | self.rows.memories([one for one in memory_ids if one not in found], alone=alone)

    def header(self, memory_id: str) -> Header | None:
        """Return the header of a memory, or None if it is unknown."""
        return self.headers_of([memory_id]).get(memory_id)

    def headers_of(self, memory_ids: Collection[str]) -> dict[str, Header]:
        """Return headers by id. Unknown ids are left out."""
        newest = self.above.newest
        found = {one: Header.of(newest[one]) for one in memory_ids if one in newest}
        return found | self.rows.headers([one for one in memory_ids if one not in found])

    def unaliased(self, memory_id: str) -> str:
        """Return the id of the memory that an id of REMEMBER stands for: itself, or one with the same words."""
        return self.above.aliases.get(memory_id, memory_id)

    def resolved(self, memory_id: str) -> str:
        """Return the id of the memory that a memory was merged into, or its own id."""
        seen = set[str]()
        while memory_id not in seen and (header := self.header(memory_id)) is not None:
            seen.add(memory_id)
            into = None if header.superseded_by is None else self.header(header.superseded_by)
            if into is None or memory_id not in into.merged_ids:
                break
            memory_id = into.id
        return memory_id

    def headers(self, mask: Callable[[Rows], NDArray[np.bool_]], limit: int | None = None) -> list[Header]:
        """Return the headers of matching memories, newest first; `mask` returns a mask of the rows that match."""
        rows = self.rows
        places = rows.newest[(self.visible & mask(rows))[rows.newest]] if len(rows) else np.empty(0, np.int64)
        found = [row_to_header(row) for row in rows.table.take(pa.array(places[:limit])).to_pylist()]
        return _newest_first([*found, *map(Header.of, self._above(mask))])[:limit]

    def ids(self, mask: Callable[[Rows], NDArray[np.bool_]]) -> list[str]:
        """Return the ids of matching memories, in any order; see :meth:`headers`."""
        rows = self.rows
        found: list[str] = rows.table["memory_id"].filter(pa.array(self.visible & mask(rows))).to_pylist()
        return found + [memory.id for memory in self._above(mask)]

    def _above(self, mask: Callable[[Rows], NDArray[np.bool_]]) -> Iterator[DurableMemory]:
        """Return the matching memories of `above`."""
        memories = self.above.newest.values()
        return compress(memories, mask(self._above_rows)) if memories else iter(())

    @cached_property
    def _above_rows(self) -> Rows:
        table = table_of(self.above.newest.values(), HEADER_COLUMNS)
        return Rows(table, lambda _: table)


class JoinedMemories:
    """The memories of some scopes; methods as in :class:`MemorySnapshot`."""

    def __init__(self, parts: Sequence[MemorySnapshot]) -> None:
        self.parts = parts

    def load(self, memory_ids: Collection[str], *, alone: bool = False) -> dict[str, DurableMemory]:
        """Return memories by id."""
        return {one: memory for part in self.parts for one, memory in part.load(memory_ids, alone=alone).items()}

    def headers_of(self, memory_ids: Collection[str]) -> dict[str, Header]:
        """Return headers by id."""
        return {one: header for part in self.parts for one, header in part.headers_of(memory_ids).items()}

    def headers(self, mask: Callable[[Rows], NDArray[np.bool_]], limit: int | None = None) -> list[Header]:
        """Return the headers of matching memories, newest first."""
        return _newest_first([header for part in self.parts for header in part.headers(mask, limit)])[:limit]

    def ids(self, mask: Callable[[Rows], NDArray[np.bool_]]) -> list[str]:
        """Return the ids of matching memories, in any order."""
        return [memory_id for part in self.parts for memory_id in part.ids(mask)]

    def identity_of(self, memory_id: str) -> str:
        """Return the identity of a memory's scope."""
        return next((part.identity for part in self.parts if memory_id in part), "")

    def unaliased(self, memory_id: str) -> str:
        """Return the id of the memory that an id of REMEMBER stands for."""
        found = (part.unaliased(memory_id) for part in self.parts)
        return next((one for one in found if one != memory_id), memory_id)

    def resolved(self, memory_id: str) -> str:
        """Return the id of the memory that a memory was merged into, or its own id."""
        return next((part.resolved(memory_id) for part in self.parts if memory_id in part), memory_id)


def table_of(memories: Collection[DurableMemory], columns: Sequence[str]) -> pa.Table:
    """Return memories that are not stored yet as rows, with some columns."""
    schema = pa.schema([MEMORIES.schema.field(name) for name in columns])
    values = [[getattr(memory, "id" if name == "memory_id" else name) for memory in memories] for name in columns]
    return pa.table(list(map(pa.array, values, schema.types)), schema=schema)


def _newest_first(headers: list[Header]) -> list[Header]:
    headers.sort(key=lambda header: header.id)
    headers.sort(key=lambda header: header.updated_at, reverse=True)
    return headers


def _places(table: pa.Table) -> dict[str, int]:
    return {memory_id: place for place, memory_id in enumerate(table["memory_id"].to_pylist())}

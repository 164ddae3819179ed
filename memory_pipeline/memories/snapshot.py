"""The durable memories of one agent as they stood at one moment: rows of the table, and what hides some of them.

Rows are held without contents and vectors, which most questions do not need. What events of the journal's tail change
lies above them, as the fold made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.record import MemoryKind, Status, Temperature
from memory_pipeline.lake.codec.memories import row_to_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory

#: What a header needs of the table, and what tells how relevant the memory is now.
HEADER_COLUMNS = (
    "memory_id", "version", "kind", "title", "hook", "subject", "predicate", "object", "user_id", "key", "importance",
    "confidence", "decay_rate", "temperature", "status", "superseded_by", "merged_ids", "tags", "created_at",
    "updated_at", "last_accessed_at", "is_point_in_time",
)  # fmt: skip
_COPIED = (
    "title", "hook", "subject", "predicate", "object", "user_id", "key", "importance", "confidence", "superseded_by",
    "created_at", "updated_at", "last_accessed_at", "is_point_in_time",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a memory without reading what it says.

    Attributes:
        id: the memory's.
        version: the newest one.
        kind, title, hook, subject, predicate, object, user_id, key, importance, confidence: as of a
            :class:`~memory_pipeline.domain.memories.record.DurableMemory`, and so are those that follow.
    """

    id: str
    version: int
    kind: MemoryKind
    title: str
    hook: str
    subject: str | None
    predicate: str | None
    object: str | None
    user_id: str | None
    key: str | None
    importance: float
    confidence: float
    temperature: Temperature
    status: Status
    superseded_by: str | None
    merged_ids: tuple[str, ...]
    tags: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    is_point_in_time: bool

    @classmethod
    def of(cls, memory: DurableMemory) -> Header:
        """Return the header of a memory."""
        return cls(**{name: getattr(memory, name) for name in cls.__dataclass_fields__})

    @classmethod
    def read(cls, row: dict[str, Any]) -> Header:
        """Return the header of a row of the table."""
        return cls(
            id=row["memory_id"],
            version=row["version"],
            kind=MemoryKind(row["kind"]),
            temperature=Temperature(row["temperature"]),
            status=Status(row["status"]),
            merged_ids=tuple(row["merged_ids"]),
            tags=tuple(row["tags"]),
            **{name: row[name] for name in _COPIED},
        )

    @property
    def is_recalled(self) -> bool:
        """Tell whether recall may show it: it counts, and is not cold."""
        return self.status is Status.ACTIVE and self.temperature is not Temperature.COLD

    def __str__(self) -> str:
        """Return it as a line: ``Where Anna lives (fact): Anna lives in Porto.``."""
        return f"{self.title} ({self.kind}): {self.hook}"


class Rows:
    """The newest versions of memories that the table holds; what they say is read when it is asked for.

    Args:
        table: of ``memories``, with :data:`HEADER_COLUMNS`: the newest version of each.
        read: returns the rows of some memories, or of all for None, with all that makes a memory, and whether the table
            is still the same.
    """

    def __init__(self, table: pa.Table, read: Callable[[Collection[str] | None], tuple[pa.Table, bool]]) -> None:
        self.table = table
        self._read = read
        self._whole: tuple[pa.Table, dict[str, int]] | None = None
        self._alone: dict[str, DurableMemory] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each memory."""
        return _places(self.table)

    @cached_property
    def newest(self) -> NDArray[np.int64]:
        """The rows, beginning with what was last said, updated or confirmed; of equals in the order of ids."""
        order = pc.sort_indices(self.table, [("updated_at", "descending"), ("memory_id", "ascending")])
        found: NDArray[np.int64] = order.to_numpy().astype(np.int64)
        return found

    def memories(self, memory_ids: Collection[str], *, alone: bool = False) -> dict[str, DurableMemory]:
        """Return memories, by id; those that are not among the rows are left out.

        Args:
            memory_ids: of the memories.
            alone: read the contents of these memories alone, unless all are held. Else all are read, and held.
        """
        if not memory_ids:
            return {}
        held = self._whole
        if held is None and alone:
            return self._read_alone(memory_ids)
        if held is None:
            table, is_same = self._read(None)
            held = table, _places(table)
            if is_same:
                self._whole = held
        table, places = held
        rows = table.take(pa.array([places[one] for one in memory_ids if one in places], pa.int64()))
        return {row["memory_id"]: row_to_memory(row) for row in rows.to_pylist()}

    def _read_alone(self, memory_ids: Collection[str]) -> dict[str, DurableMemory]:
        """Return memories without reading the contents of others."""
        found = {one: self._alone[one] for one in memory_ids if one in self._alone}
        missing = [one for one in memory_ids if one in self.places and one not in found]
        if missing:
            table, is_same = self._read(missing)
            read = {row["memory_id"]: row_to_memory(row) for row in table.to_pylist()}
            if is_same:
                self._alone |= read
            found |= read
        return found

    def headers(self, memory_ids: Collection[str]) -> dict[str, Header]:
        """Return headers, by the ids of their memories; those that are not among the rows are left out."""
        if not memory_ids:
            return {}
        rows = self.table.take(pa.array([self.places[one] for one in memory_ids if one in self.places], pa.int64()))
        return {row["memory_id"]: Header.read(row) for row in rows.to_pylist()}

    def equal(self, column: str, value: str) -> NDArray[np.bool_]:
        """Tell of each row whether a column has a value."""
        same = pc.fill_null(pc.equal(self.table[column], pa.scalar(value, pa.string())), False)
        flags: NDArray[np.bool_] = same.to_numpy(zero_copy_only=False).astype(np.bool_)
        return flags

    def flagged(self, column: str) -> NDArray[np.bool_]:
        """Tell of each row whether a column is true."""
        flags: NDArray[np.bool_] = self.table[column].to_numpy().astype(np.bool_)
        return flags

    def called(self, column: str, key: str) -> NDArray[np.bool_]:
        """Tell of each row whether a column has a name, as names are compared."""
        codes, keys = self._called(column)
        return np.isin(codes, keys.get(key, []))

    def tagged(self, tag: str) -> NDArray[np.bool_]:
        """Tell of each row whether it has a label."""
        return np.array([tag in tags for tags in self.table["tags"].to_pylist()], np.bool_)

    @cached_property
    def _names(self) -> dict[str, tuple[NDArray[np.int64], dict[str, list[int]]]]:
        return {}

    def _called(self, column: str) -> tuple[NDArray[np.int64], dict[str, list[int]]]:
        """Return the number of each row's name, and those of the names that compare alike."""
        if column not in self._names:
            encoded = self.table[column].combine_chunks().dictionary_encode()
            keys: dict[str, list[int]] = {}
            for code, name in enumerate(encoded.dictionary.to_pylist()):
                keys.setdefault(name_key(name), []).append(code)
            codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            self._names[column] = codes, keys
        return self._names[column]


class MemorySnapshot:
    """All memories of an agent, by their newest versions.

    Args:
        rows: what the table holds.
        above: memories that stand in place of some rows, and beside them.
        files: of the tables, which change whenever anything has landed.
        is_whole: whether `above` is all that there is, with its whole history.
    """

    def __init__(
        self, rows: Rows, above: Memories, files: tuple[frozenset[str], ...] = (), *, is_whole: bool = False
    ) -> None:
        self.rows = rows
        self.above = above
        self.files = files
        self.is_whole = is_whole

    def __len__(self) -> int:
        """Return how many memories there are."""
        return int(self.standing.sum()) + len(self.above.newest)

    def __contains__(self, memory_id: object) -> bool:
        """Tell whether there is a memory by this id."""
        return memory_id in self.above.newest or memory_id in self.rows.places

    @cached_property
    def standing(self) -> NDArray[np.bool_]:
        """Of each row whether it stands: nothing above takes its place."""
        kept = np.ones(len(self.rows), np.bool_)
        if len(kept):
            places = self.rows.places
            kept[[places[own] for own in self.above.newest if own in places]] = False
        return kept

    def load(self, memory_ids: Collection[str], *, alone: bool = False) -> dict[str, DurableMemory]:
        """Return memories, by id; those that do not exist are left out; `alone` as of :meth:`Rows.memories`."""
        found = {one: memory for one in memory_ids if (memory := self.above.newest.get(one)) is not None}
        return found | self.rows.memories([one for one in memory_ids if one not in found], alone=alone)

    def header(self, memory_id: str) -> Header | None:
        """Return the header of a memory; None if there is none by this id."""
        return self.headers_of([memory_id]).get(memory_id)

    def headers_of(self, memory_ids: Collection[str]) -> dict[str, Header]:
        """Return headers, by the ids of their memories; those that do not exist are left out."""
        newest = self.above.newest
        found = {one: Header.of(newest[one]) for one in memory_ids if one in newest}
        return found | self.rows.headers([one for one in memory_ids if one not in found])

    def resolved(self, memory_id: str) -> str:
        """Return the id under which a memory goes on: its own, or that of the one that took it in."""
        seen = set[str]()
        while memory_id not in seen and (header := self.header(memory_id)) is not None:
            seen.add(memory_id)
            into = None if header.superseded_by is None else self.header(header.superseded_by)
            if into is None or memory_id not in into.merged_ids:
                break
            memory_id = into.id
        return memory_id

    def headers(
        self,
        mask: Callable[[Rows], NDArray[np.bool_]],
        fits: Callable[[Header], bool],
        limit: int | None = None,
    ) -> list[Header]:
        """Return the headers of memories, newest first.

        Args:
            mask: tells which rows are meant.
            fits: tells the same of a header.
            limit: how many at most; all if not given.
        """
        rows = self.rows
        places = rows.newest[(self.standing & mask(rows))[rows.newest]] if len(rows) else np.empty(0, np.int64)
        found = [Header.read(row) for row in rows.table.take(pa.array(places[:limit])).to_pylist()]
        found += [header for header in map(Header.of, self.above.newest.values()) if fits(header)]
        found.sort(key=lambda header: header.id)
        found.sort(key=lambda header: header.updated_at, reverse=True)
        return found[:limit]


def _places(table: pa.Table) -> dict[str, int]:
    return {memory_id: place for place, memory_id in enumerate(table["memory_id"].to_pylist())}

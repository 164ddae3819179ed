"""Candidates of a search: index rows of one agent, cached in memory, and pending journal entries.

Every search asks the index for its version, so that earlier writes are visible. If the table has changed, the ids of
the agent's rows are read, and only new rows are loaded: many agents share a table. Of a large agent, new rows are laid
out beside the cached ones, and deleted rows are masked. A search waits only for that. Meanwhile a thread rebuilds the
whole layout for later searches. If an agent has more rows than the cache may hold, and a table of its own, that table
is searched on disk, and only the rows found there are ranked.
"""

from __future__ import annotations

import ctypes
import logging
import math
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.codec.facts import facts_to_rows
from memory_pipeline.lake.index.index_rows import facts_to_index
from memory_pipeline.lake.index.lance_tables import is_of_one_table
from memory_pipeline.search import selection
from memory_pipeline.search.row_block import RowBlock, points_of
from memory_pipeline.search.vector_sketch import SKETCHED_FROM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.lake.index.vector_index import Loaded, VectorIndex
    from memory_pipeline.overlay import PendingJournal


class PendingRows:
    """Holds the facts of one agent's pending files as index rows, each embedded once.

    Turns and facts that rules extract have the ids that the pipeline will give them. Therefore a fact that is both
    pending and in the index can be deduplicated. Read pending entries before the index: entries acknowledged in between
    are then found in both, never in neither.
    """

    def __init__(self, pending: PendingJournal, embedder: Embedder) -> None:
        self._pending = pending
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}
        self._segment: RowBlock | None = None
        self._lock = threading.Lock()

    def segment(self) -> RowBlock | None:
        """Return the facts of all pending files, or None."""
        files = self._pending.files()
        with self._lock:
            if files.keys() == self._files.keys():
                return self._segment
            new = {path: file.facts for path, file in files.items() if path not in self._files}
            tables_by_file: dict[str, pa.Table | None] = {
                path: rows for path, rows in self._files.items() if path in files
            }
            tables_by_file |= dict.fromkeys(new)
            tables_by_file |= self._embedded({path: facts for path, facts in new.items() if facts})
            tables = [rows for rows in tables_by_file.values() if rows is not None]
            self._segment = RowBlock.of(pa.concat_tables(tables), self._embedder.dimension) if tables else None
            self._files = tables_by_file
            return self._segment

    def _embedded(self, facts: Mapping[str, Sequence[Fact]]) -> dict[str, pa.Table]:
        """Return facts as index rows by file. One batch computes all vectors."""
        if not facts:
            return {}
        rows_of_all = facts_to_rows([fact for part in facts.values() for fact in part])
        vectors = self._embedder.embed(rows_of_all["content"].to_pylist())
        lists = [None if np.isnan(vector[0]) else vector for vector in vectors]
        at = rows_of_all.schema.get_field_index("vector")
        column = pa.array(lists, rows_of_all.schema.field(at).type)
        names = pa.array([None if vector is None else self._embedder.name for vector in lists], pa.string())
        rows_of_all = rows_of_all.set_column(at, "vector", column).set_column(at + 1, "embed_model", names)
        rows = facts_to_index(rows_of_all, self._embedder.dimension)
        tables, start = {}, 0
        for path, part in facts.items():
            tables[path] = rows.slice(start, len(part))
            start += len(part)
        return tables


_log = logging.getLogger(__name__)

#: Default number of rows that a reader caches, all grains together: about 0.3 GB at 384 dimensions.
DEFAULT_ROWS: Final = 250_000
#: Fewer rows are read whole after a change, which takes no longer than laying out the difference.
_PATCHED_FROM: Final = 1_000
_NO_NUMBERS: Final = np.empty(0, np.uint64)
#: Most rows that are laid out while a search waits.
_MOST_PATCHED: Final = 1_000
#: After a rebuild, the next one waits this many times as long as the last one took.
_IDLE: Final = 10


class CachedRows(NamedTuple):
    """Rows of a table, and a mask of those that are not deleted; None means all."""

    segment: RowBlock
    live: NDArray[np.bool_] | None


@dataclass(slots=True)
class _CachedTable:
    """A table at one version.

    Attributes:
        base: rows of the last full layout.
        numbers: their row numbers in the table, in the order of `base`.
        deleted: mask of the rows deleted since; None if there are none.
        added: rows added since.
        points: points of the summaries, computed on demand.
    """

    version: int
    base: RowBlock
    numbers: NDArray[np.uint64]
    deleted: NDArray[np.bool_] | None = None
    added: RowBlock | None = None
    points: RowBlock | None = None

    @classmethod
    def of(cls, version: int, loaded: Loaded) -> _CachedTable:
        base = RowBlock(loaded.rows, loaded.vectors)
        order = pc.index_in(base.ids, loaded.rows["id"].combine_chunks()).to_numpy(zero_copy_only=False)
        return cls(version, base, loaded.numbers[order])

    def __len__(self) -> int:
        return len(self.base) + (0 if self.added is None else len(self.added))

    @property
    def is_patched(self) -> bool:
        return self.added is not None or self.deleted is not None

    @property
    def parts(self) -> list[CachedRows]:
        newer = [] if self.added is None else [CachedRows(self.added, None)]
        return [*newer, CachedRows(self.base, None if self.deleted is None else ~self.deleted)]


class IndexCache:
    """Caches the index rows of one agent. Safe to use from several threads.

    Args:
        index: the index to read.
        scope: the workspace and agent.
        dimension: length of the vectors.
        most: rows to cache, all grains together; the least recently used grain is evicted. The rows of an agent without
            a table of its own are cached even if they are more.
        calendar: the lake's calendar.
    """

    def __init__(self, index: VectorIndex, scope: Scope, dimension: int, most: int, calendar: Calendar) -> None:
        self._index = index
        self._scope = scope
        self._dimension = dimension
        self._most = most
        self._calendar = calendar
        self._held: dict[Grain, _CachedTable] = {}
        # The row ids by grain, and the version at which they were read.
        self._numbers: tuple[int | None, Mapping[Grain, NDArray[np.uint64]]] = None, {}
        self._lock = threading.Lock()
        # Earliest time of the next rebuild by grain; infinity during a rebuild.
        self._next_rebuild: dict[Grain, float] = {}

    def parts(self, grain: Grain) -> list[CachedRows] | None:
        """Return the newest rows of a grain, in one part or several; None if they are too many to cache."""
        return self._parts(grain, in_one=False)

    def segment(self, grain: Grain) -> RowBlock | None:
        """Return the newest rows of a grain in one part; None if they are too many to cache."""
        parts = self._parts(grain, in_one=True)
        return None if parts is None else parts[0].segment

    def _parts(self, grain: Grain, *, in_one: bool) -> list[CachedRows] | None:
        version = self._index.version(self._scope)
        with self._lock:
            held = self._held.pop(grain, None)
            if held is not None and held.version != version:
                held = self._patched(grain, held, version, in_one=in_one)
            if held is not None and not (in_one and held.is_patched):
                self._held[grain] = held  # now the most recently used
                if held.is_patched:
                    self._start_rebuild(grain)
                    self._make_room()
                return held.parts
            if self._index.count(self._scope, grain) > self._most and self._index.is_large(self._scope):
                return None
            # If the rows are newer than the version, the next search reads them once more.
            held = self._loaded(grain, version)
            if version is not None:
                self._held[grain] = held
                self._make_room()
            return held.parts

    def _loaded(self, grain: Grain, version: int | None) -> _CachedTable:
        held = _CachedTable.of(version or 0, self._index.load(self._scope, grain, self._dimension))
        if len(held) >= SKETCHED_FROM:
            _release_memory()
        return held

    def _patched(self, grain: Grain, held: _CachedTable, version: int | None, *, in_one: bool) -> _CachedTable | None:
        """Return the cached rows with the changes since; None if reading all of them is better."""
        if version is None or not is_of_one_table(held.version, version):
            return None
        if self._numbers[0] != version:
            self._numbers = version, self._index.numbers(self._scope)
        present = self._numbers[1].get(grain, _NO_NUMBERS)
        come = np.setdiff1d(present, held.numbers)
        gone = np.isin(held.numbers, present, invert=True)
        if not (len(come) or gone.any() or held.is_patched):
            held.version = version  # another agent's rows have changed
            return held
        if in_one or len(held.base) < _PATCHED_FROM or len(come) > _MOST_PATCHED:
            return None
        loaded = self._index.take(self._scope, come, self._dimension)
        if loaded is None:
            return None
        new = RowBlock(loaded.rows, loaded.vectors) if len(come) else None
        patched = replace(held, version=version, added=new, deleted=gone if gone.any() else None, points=None)
        return patched if len(patched) <= self._most else None

    def _start_rebuild(self, grain: Grain) -> None:
        """Rebuild the layout of a grain in a thread, unless that is in progress or was done recently."""
        if time.monotonic() >= self._next_rebuild.get(grain, 0.0):
            self._next_rebuild[grain] = math.inf
            threading.Thread(target=self._rebuild, args=(grain,), name="memory-layout").start()

    def _rebuild(self, grain: Grain) -> None:
        started = time.monotonic()
        try:
            version = self._index.version(self._scope)
            rebuilt = self._loaded(grain, version)
            with self._lock:
                held = self._held.get(grain)
                # Rows added during the rebuild are patched in by the next search.
                if held is not None and version is not None and is_of_one_table(held.version, version):
                    self._held[grain] = rebuilt
                    self._make_room()
        except Exception:  # noqa: BLE001  # the cached rows remain correct
            _log.warning("rebuilding the cached %s rows of %s failed", grain, self._scope, exc_info=True)
        finally:
            ended = time.monotonic()
            self._next_rebuild[grain] = ended + _IDLE * (ended - started)

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if these are too many to cache."""
        summaries = self.segment(grain)
        if summaries is None:
            return None
        with self._lock:
            held = self._held.get(grain)
            if held is not None and held.base is summaries and held.points is not None:
                return held.points
            points = points_of(summaries, self._calendar)
            if held is not None and held.base is summaries:
                held.points = points
            return points

    def _make_room(self) -> None:
        while self._held and sum(map(len, self._held.values())) > self._most:
            del self._held[next(iter(self._held))]


def _release_memory() -> None:
    """Return freed memory to the system. Otherwise the process keeps what reading a large table took."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # only glibc has it
        trim(0)


#: Rows that the index returns by vector and by words, per result, if the table is too large to cache.
_OVERFETCH: Final = 5
_TICK: Final = timedelta(microseconds=1)


class FilteredRows(NamedTuple):
    """Blocks of rows, masks of the rows that pass (None: all), and the number of messages that pass."""

    segments: list[RowBlock]
    masks: list[NDArray[np.bool_] | None]
    total: int


class Candidates:
    """Finds the rows of one agent that pass a filter. Safe to use from several threads."""

    def __init__(
        self, lake: Lake, scope: Scope, embedder: Embedder, pending: PendingJournal, resident_rows: int
    ) -> None:
        self._index = lake.index
        self._scope = scope
        self._embedder = embedder
        self._tail = PendingRows(pending, embedder)
        self._resident = IndexCache(lake.index, scope, embedder.dimension, resident_rows, lake.calendar)

    def passing(
        self, grain: Grain, where: Filter, limit: int, query: str | None, *, by_message: bool = False
    ) -> FilteredRows:
        """Return the rows that pass a filter; of a table that is too large to cache, those that the index finds.

        Pending entries are read before the index; see :class:`PendingRows`. `query` is None for the newest.
        `by_message` leaves out facts of messages that have a turn; only without a query.
        """
        tail = self._tail.segment() if grain is Grain.WORKING else None
        held = self._resident.parts(grain)
        parts = (
            [CachedRows(self._found(grain, where, limit, query, by_message=by_message), None)] if held is None else held
        )
        if tail is not None:
            parts = [CachedRows(tail, None), *parts]
        segments = [part.segment for part in parts]
        masks = [_both(part.segment.mask(where), part.live) for part in parts]
        if by_message:
            masks = [_both(mask, part.segment.listed(part.live)) for mask, part in zip(masks, parts, strict=True)]
        if held is not None:
            return FilteredRows(segments, masks, selection.total(segments, masks))
        pending = None if tail is None else tail.rows if masks[0] is None else tail.rows.filter(masks[0])
        return FilteredRows(segments, masks, self._total_on_disk(grain, where, pending))

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if these are too many to cache."""
        return self._resident.points(grain)

    def embedded(self, text: str) -> NDArray[np.float32] | None:
        """Return the vector of a text; None if the embedder failed."""
        vector = self._embedder.embed([text])[0]
        return None if np.isnan(vector[0]) else vector

    def _found(self, grain: Grain, where: Filter, limit: int, query: str | None, *, by_message: bool) -> RowBlock:
        if by_message:
            turns = self._index.newest(self._scope, grain, replace(where, kind=FactKind.TURN), limit)
            rows = pa.concat_tables([turns, self._index.newest(self._scope, grain, self._older(where), limit)])
        elif query is None:
            rows = self._index.newest(self._scope, grain, where, limit)
        else:
            rows = self._index.search(self._scope, grain, where, _OVERFETCH * limit, self.embedded(query), query)
        return RowBlock.of(rows, self._embedder.dimension)

    def _total_on_disk(self, grain: Grain, where: Filter, pending: pa.Table | None) -> int:
        index, scope = self._index, self._scope
        others = set() if pending is None else set(map(tuple, pending["source_ids"].to_pylist()))
        if where.kind not in {None, FactKind.TURN}:
            return len(index.messages(scope, grain, where) | others)
        older: set[tuple[str, ...]] = set()
        if grain is Grain.WORKING:
            # Each message has or had one turn.
            older = index.messages(scope, grain, self._older(where)) if where.kind is None else older
            where = replace(where, kind=FactKind.TURN)
        total = index.count(scope, grain, where) + len(older) + len(others - older)
        if pending is None or not others:
            return total
        # Only messages within the times of the pending ones can be in both.
        span = pc.min_max(pending["ends_at"]).as_py()
        beside = index.messages(scope, grain, replace(where, since=span["min"], until=span["max"]))
        return total - len((beside & others) - older)

    def _older(self, where: Filter) -> Filter:
        """Return the filter for facts from before the first turn, where retention has deleted the turns."""
        first = self._index.first_turn(self._scope)
        if first is None:
            return where
        last = first - _TICK
        return replace(where, ends_until=last if where.ends_until is None else min(where.ends_until, last))


def _both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other

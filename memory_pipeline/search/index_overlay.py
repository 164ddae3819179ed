"""The index rows of a scope in memory, with pending ones: read, patched, laid out again, cached for other processes.

If the table has changed, the ids of the agent's rows are read, and only new rows are loaded: many agents share a table.
Of a large agent, new rows are laid out beside the cached ones, and deleted rows are masked. A search waits only for
that. Meanwhile a thread rebuilds the whole layout for later searches. If an agent has more rows than the cache may
hold, and a table of its own, its rows are used from a mapped file, which a thread makes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.codec.facts import facts_to_rows
from memory_pipeline.lake.index.index_rows import facts_to_index, with_vectors
from memory_pipeline.lake.index.lance_tables import is_of_one_table
from memory_pipeline.lake.index.scope_cache import CACHED_FROM
from memory_pipeline.operating_system import available_memory, release_freed_memory
from memory_pipeline.overlay import Overlay, found_once
from memory_pipeline.search.row_block import RowBlock, points_of
from memory_pipeline.search.vector_sketch import SKETCHED_FROM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import Loaded, VectorIndex
    from memory_pipeline.overlay import PendingFile, PendingJournal


_log = logging.getLogger(__name__)

#: Default number of rows that a reader caches, all grains together: about 0.3 GB at 384 dimensions.
DEFAULT_ROWS: Final = 250_000
#: Fewer rows are read whole after a change, which takes no longer than laying out the difference.
_PATCHED_FROM: Final = 1_000
_NO_NUMBERS: Final = np.empty(0, np.uint64)
#: Most rows that are laid out while a search waits.
_MOST_PATCHED: Final = 1_000
#: The same as a share of the rows, if that is more.
_MOST_PATCHED_SHARE: Final = 0.01
#: Memory that laying out takes, by row.
_BYTES_OF_ROW: Final = 8_000
#: After a rebuild, the next one waits this many times as long as the last one took.
_IDLE: Final = 10
#: Seconds before rows that another process laid out are laid out again, if there are changes since.
_LATER: Final = 10.0
#: Table of the row numbers beside cached rows.
_NUMBERS: Final = "numbers"


class CachedRows(NamedTuple):
    """Rows, and a mask of those that are not deleted; None means all."""

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
        is_mapped: whether `base` is in a file that is mapped, so that the system may free its memory.
    """

    version: int | None
    base: RowBlock
    numbers: NDArray[np.uint64]
    deleted: NDArray[np.bool_] | None = None
    added: RowBlock | None = None
    points: RowBlock | None = None
    is_mapped: bool = False

    @classmethod
    def of(cls, version: int | None, loaded: Loaded, scope: Scope) -> _CachedTable:
        base = RowBlock(loaded.rows, loaded.vectors, scope)
        order = pc.index_in(base.ids, loaded.rows["id"].combine_chunks()).to_numpy(zero_copy_only=False)
        return cls(version, base, loaded.numbers[order])

    def __len__(self) -> int:
        return len(self.base) + (0 if self.added is None else len(self.added))

    @property
    def held(self) -> int:
        """The number of rows that are in memory and in no file."""
        return len(self) - (len(self.base) if self.is_mapped else 0)

    @property
    def patched(self) -> int:
        """The number of rows added or deleted since the last full layout."""
        gone = 0 if self.deleted is None else int(np.count_nonzero(self.deleted))
        return gone + (0 if self.added is None else len(self.added))

    @property
    def parts(self) -> list[CachedRows]:
        newer = [] if self.added is None else [CachedRows(self.added, None)]
        return [*newer, CachedRows(self.base, None if self.deleted is None else ~self.deleted)]

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(
            part.segment.rows if part.live is None else part.segment.rows.filter(pa.array(part.live))
            for part in self.parts
        )


class GrainRows(NamedTuple):
    """The rows of a grain: those of pending files, if any, and those of the index, unless they are too many to cache.

    Turns and facts that rules extract from pending files have the ids that the pipeline will give them, so that a fact
    in both can be deduplicated. Rows of the index that cite an `edited` message no longer count.
    """

    pending: RowBlock | None
    table: _CachedTable | None
    edited: frozenset[str] = frozenset()

    def counted(self, rows: CachedRows) -> CachedRows:
        """Return rows of the index without those that cite an edited message."""
        if not self.edited:
            return rows
        sources = rows.segment.rows["source_ids"].combine_chunks()
        cites = pc.is_in(sources.flatten(), pa.array(sorted(self.edited), pa.string()))
        live = np.ones(len(rows.segment), np.bool_)
        live[pc.list_parent_indices(sources).filter(cites).to_numpy(zero_copy_only=False)] = False
        return CachedRows(rows.segment, both(rows.live, live))


class GrainOverlay(Overlay["_CachedTable | None", pa.Table, GrainRows]):
    """The newest rows of one scope at one grain."""

    def __init__(self, index: IndexOverlay, grain: Grain, pending: PendingJournal | None) -> None:
        super().__init__(pending)
        self._of = index
        self._grain = grain
        #: Earliest time of the next rebuild; infinity during a rebuild.
        self._next_rebuild = 0.0
        #: A version without cached rows that could be used.
        self._not_cached: int | None = None

    def _stored(self, known: _CachedTable | None) -> _CachedTable | None:
        of = self._of
        version = found_once(of, lambda: of.index.version(of.scope))
        if known is not None and known.version != version:
            known = self._patched(known, version)
        elif known is None and version != self._not_cached:
            known = self._cached(version)
            self._not_cached = None if known is not None else version
        if known is None and (count := self._too_many()):
            self._start_rebuild(count)
        elif known is None:
            # If the rows are newer than the version, they are compared once more.
            known = self._loaded(version)
        elif known.patched > (0 if len(known.base) <= of.resident.most else len(known.base) * _MOST_PATCHED_SHARE / 2):
            self._start_rebuild(len(known))
        return known

    def _too_many(self) -> int:
        """Return the number of stored rows if they are too many to load, or else 0."""
        of = self._of
        count = of.index.count(of.scope, self._grain) if of.index.is_large(of.scope) else 0
        return count if count > of.resident.most else 0

    def _recorded(self, files: Sequence[PendingFile]) -> list[pa.Table]:
        """Return facts as index rows. One batch computes all missing vectors."""
        embedder = self._of.embedder
        made = facts_to_rows([fact for file in files for fact in file.facts])
        starts = accumulate((len(file.facts) for file in files), initial=0)
        made = facts_to_index(with_vectors(made, embedder), embedder.dimension)
        return [
            made.slice(start, len(file.facts)) if file.rows is None else self._of_segment(file.rows)
            for start, file in zip(starts, files, strict=False)
        ]

    def _of_segment(self, rows: pa.Table) -> pa.Table:
        """Return stored facts as index rows; the vectors are stored, too, unless they are of another embedder."""
        embedder = self._of.embedder
        if pc.any(pc.not_equal(pc.fill_null(rows["embed_model"], ""), embedder.name)).as_py():
            rows = with_vectors(rows, embedder)
        return facts_to_index(rows, embedder.dimension)

    def _fold(self, base: _CachedTable | None, pending: Mapping[str, pa.Table]) -> GrainRows:
        of = self._of
        if not pending:
            return GrainRows(None, base)
        found = pa.concat_tables(pending.values())
        places = dict(zip(found["id"].to_pylist(), range(len(found)), strict=True))
        if len(places) < len(found):  # a killed process left what it merged beside the segment
            found = found.take(list(places.values()))
        rows = RowBlock.of(found, of.embedder.dimension, of.scope)
        return GrainRows(rows, base, self._edited_in(pending))

    def _is_current(self, sources: object) -> bool:  # noqa: ARG002  # as in the base class
        return True  # the fold reads nothing

    def _loaded(self, version: int | None) -> _CachedTable:
        of = self._of
        loaded = of.index.load(of.scope, self._grain, of.embedder)
        table = _CachedTable.of(version, loaded, of.scope)
        if len(table) >= SKETCHED_FROM:
            _release_memory()
        if len(table) >= CACHED_FROM or of.is_worth():
            entry = table.base.cache_entry(version)
            numbers = {_NUMBERS: pa.table({"number": table.numbers})}
            of.index.store_cached(of.scope, self._grain, of.form, entry._replace(tables={**entry.tables, **numbers}))
        return table

    def _cached(self, version: int | None) -> _CachedTable | None:
        """Return the rows that another process laid out, with the changes since; None without them."""
        of = self._of
        entry = of.index.cached(of.scope, self._grain, of.form)
        if entry is None:
            return None
        numbers = entry.tables[_NUMBERS]["number"].to_numpy()
        table = _CachedTable(entry.version, RowBlock.restored(entry, of.scope), numbers, is_mapped=True)
        # A process that ends before gains nothing from a rebuild.
        self._next_rebuild = max(self._next_rebuild, time.monotonic() + _LATER)
        return table if entry.version == version else self._patched(table, version)

    def _patched(self, known: _CachedTable, version: int | None) -> _CachedTable | None:
        """Return the cached rows with the changes since; None if reading all of them is better."""
        of = self._of
        if version is None or known.version is None or not is_of_one_table(known.version, version):
            return None
        present = of.numbers(version).get(self._grain, _NO_NUMBERS)
        come = np.setdiff1d(present, known.numbers)
        gone = np.isin(known.numbers, present, invert=True)
        if not (len(come) or gone.any() or known.patched):
            known.version = version  # rows of another scope have changed
            return known
        if len(known.base) < _PATCHED_FROM or len(come) > max(_MOST_PATCHED, len(known.base) * _MOST_PATCHED_SHARE):
            return None
        loaded = of.index.take(of.scope, come, of.embedder)
        if loaded is None:
            return None
        new = RowBlock(loaded.rows, loaded.vectors, of.scope) if len(come) else None
        patched = replace(known, version=version, added=new, deleted=gone if gone.any() else None, points=None)
        return patched if patched.held <= of.resident.most else None

    def _start_rebuild(self, rows: int) -> None:
        """Rebuild the layout in a thread, unless that is in progress or was done recently.

        If so many rows are too many to hold, that only makes the file, later and if there is memory for it.
        """
        is_file = rows > self._of.resident.most
        if is_file and not self._next_rebuild:
            self._next_rebuild = time.monotonic() + _LATER
        if is_file and (rows < CACHED_FROM or rows * _BYTES_OF_ROW > available_memory()):
            return
        if time.monotonic() >= self._next_rebuild:
            self._next_rebuild = math.inf
            threading.Thread(target=self._rebuild, name="memory-layout").start()

    def _rebuild(self) -> None:
        started = time.monotonic()
        try:
            version = self._of.index.version(self._of.scope)
            rebuilt = self._loaded(version)
            if len(rebuilt) > self._of.resident.most and self._of.index.is_large(self._of.scope):
                self._not_cached = None
                self.drop()  # the next search maps the file
                return
            with self._lock:
                # Rows added during the rebuild are patched in by the next search.
                if self._base is not None:
                    self._base = rebuilt
        except Exception:  # noqa: BLE001  # the cached rows remain correct
            _log.warning("rebuilding the cached %s rows of %s failed", self._grain, self._of.scope, exc_info=True)
        finally:
            ended = time.monotonic()
            self._next_rebuild = ended + _IDLE * (ended - started)


class ResidentRows:
    """Limits the rows in memory to `most`, all grains and scopes together; rows in mapped files do not count.

    It evicts the least recently used grain of a scope. The rows of a scope without a table of its own are cached even
    if they are more. Safe to use from several threads.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        # Rows by overlay, the most recently used last.
        self._held: dict[GrainOverlay, int] = {}
        self._lock = threading.Lock()

    def use(self, overlay: GrainOverlay, rows: int | None) -> None:
        """Note that an overlay was used and has so many rows in memory; None for rows that are only on disk."""
        with self._lock:
            self._held.pop(overlay, None)
            if rows is not None:
                self._held[overlay] = rows
            evicted = []
            while self._held and sum(self._held.values()) > self.most:
                evicted.append(next(iter(self._held)))
                del self._held[evicted[-1]]
        for one in evicted:
            one.drop()


class IndexOverlay:
    """The newest index rows of one scope, with pending ones. Safe to use from several threads.

    `is_worth` returns whether few rows are cached for other processes, too.
    """

    def __init__(
        self,
        lake: Lake,
        scope: Scope,
        embedder: Embedder,
        pending: PendingJournal,
        resident: ResidentRows,
        is_worth: Callable[[], bool] = lambda: False,
    ) -> None:
        self._indices = lake.indices
        self.is_worth = is_worth
        self.scope = scope
        self.embedder = embedder
        self.resident = resident
        #: How rows are laid out; see :meth:`memory_pipeline.lake.index.scope_cache.ScopeCache.find`.
        self.form = f"{embedder.name} {embedder.dimension}"  # vectors of another embedder are not computed
        self._calendar = lake.calendar
        self._grains = {
            grain: GrainOverlay(self, grain, pending if grain is Grain.WORKING else None) for grain in Grain
        }
        # The row ids by grain, and the version at which they were read.
        self._numbers: tuple[int | None, Mapping[Grain, NDArray[np.uint64]]] = None, {}

    @property
    def index(self) -> VectorIndex:
        """The index of the embedder."""
        return self._indices.of(self.embedder)

    def rows(self, grain: Grain) -> GrainRows:
        """Return the newest rows of a grain."""
        overlay = self._grains[grain]
        found = overlay.snapshot()
        self.resident.use(overlay, None if found.table is None else found.table.held)
        return found

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if these are too many to cache."""
        table = self.rows(grain).table
        if table is not None and table.points is None:
            table.points = points_of(table.rows, self.embedder.dimension, self._calendar, self.scope)
        return None if table is None else table.points

    def numbers(self, version: int) -> Mapping[Grain, NDArray[np.uint64]]:
        """Return the row ids of the index by grain, read once for each version."""
        known = self._numbers
        if known[0] != version:
            known = self._numbers = version, self.index.numbers(self.scope)
        return known[1]


def _release_memory() -> None:
    """Return freed memory to the system. Otherwise the process keeps what reading a large table took."""
    pa.default_memory_pool().release_unused()
    release_freed_memory()


def both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return the rows in both of two masks; None means all rows."""
    if one is None or other is None:
        return other if one is None else one
    return one & other

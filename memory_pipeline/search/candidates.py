"""Candidates of a search: the index rows of one agent, held in memory, and those of the journal's tail.

Every search asks the index for its version, so that a write which was finished before is seen. Of a large table that
has changed, only the rows that have come are read, and laid out beside those that are held; those that have gone are
masked. A search waits for that much and no more: meanwhile a thread lays out the whole anew, and a later search finds
it. A table that has more rows than may be held is searched where it lies, and only what is found there is ranked.
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


# The journal's unprocessed tail: what was written and is not in the index yet, made searchable in memory.


class PendingRows:
    """Keeps the facts of one agent's pending files as rows of the index, each embedded once.

    Turns are those that the pipeline will make, with the same ids, and so are facts where it works by rules too:
    whoever has both a fact of the tail and one of the index has the same fact twice and drops one. Read the tail
    before the index: what is acknowledged in between is then found in both, never in neither.
    """

    def __init__(self, pending: PendingJournal, embedder: Embedder) -> None:
        self._pending = pending
        self._embedder = embedder
        self._files: dict[str, pa.Table | None] = {}
        self._segment: RowBlock | None = None
        self._lock = threading.Lock()

    def segment(self) -> RowBlock | None:
        """Return the facts of all pending files; None if there are none."""
        files = self._pending.files()
        with self._lock:
            if files.keys() == self._files.keys():
                return self._segment
            new = {path: file.facts for path, file in files.items() if path not in self._files}
            kept: dict[str, pa.Table | None] = {path: rows for path, rows in self._files.items() if path in files}
            kept |= dict.fromkeys(new)
            kept |= self._embedded({path: facts for path, facts in new.items() if facts})
            tables = [rows for rows in kept.values() if rows is not None]
            self._segment = RowBlock.of(pa.concat_tables(tables), self._embedder.dimension) if tables else None
            self._files = kept
            return self._segment

    def _embedded(self, facts: Mapping[str, Sequence[Fact]]) -> dict[str, pa.Table]:
        """Return the facts of files as rows of the index, with vectors made in one batch."""
        if not facts:
            return {}
        together = facts_to_rows([fact for part in facts.values() for fact in part])
        vectors = self._embedder.embed(together["content"].to_pylist())
        lists = [None if np.isnan(vector[0]) else vector for vector in vectors]
        at = together.schema.get_field_index("vector")
        column = pa.array(lists, together.schema.field(at).type)
        names = pa.array([None if vector is None else self._embedder.name for vector in lists], pa.string())
        together = together.set_column(at, "vector", column).set_column(at + 1, "embed_model", names)
        rows = facts_to_index(together, self._embedder.dimension)
        tables, start = {}, 0
        for path, part in facts.items():
            tables[path] = rows.slice(start, len(part))
            start += len(part)
        return tables


_log = logging.getLogger(__name__)

#: Rows of all grains together that a reader holds, unless it is told otherwise: about 0.3 GB at 384 dimensions.
DEFAULT_ROWS: Final = 250_000
#: A smaller table is read whole when it has changed: that takes no longer than looking what has.
_PATCHED_FROM: Final = 1_000
#: So many rows are laid out while a search waits.
_MOST_PATCHED: Final = 1_000
#: After a table was laid out anew, it is not again for so many times as long as that took.
_IDLE: Final = 10


class CachedRows(NamedTuple):
    """Some rows of a table, and which of them still count; None: all."""

    segment: RowBlock
    stands: NDArray[np.bool_] | None


@dataclass(slots=True)
class _Held:
    """A table as it was at a version.

    Attributes:
        version: of the table.
        whole: the rows as they were laid out last.
        numbers: theirs, in the order of `whole`.
        gone: which of them have gone since; None if all of them stand.
        come: the rows that have come since.
        points: those of the summaries, once they were asked for.
    """

    version: int
    whole: RowBlock
    numbers: NDArray[np.uint64]
    gone: NDArray[np.bool_] | None = None
    come: RowBlock | None = None
    points: RowBlock | None = None

    @classmethod
    def of(cls, version: int, loaded: Loaded) -> _Held:
        """Lay out a table that was loaded whole."""
        whole = RowBlock(loaded.rows, loaded.vectors)
        order = pc.index_in(whole.ids, loaded.rows["id"].combine_chunks()).to_numpy(zero_copy_only=False)
        return cls(version, whole, loaded.numbers[order])

    def __len__(self) -> int:
        return len(self.whole) + (0 if self.come is None else len(self.come))

    @property
    def is_patched(self) -> bool:
        """Whether rows have come or gone since the whole was laid out."""
        return self.come is not None or self.gone is not None

    @property
    def parts(self) -> list[CachedRows]:
        """What to choose from, the newer first."""
        newer = [] if self.come is None else [CachedRows(self.come, None)]
        return [*newer, CachedRows(self.whole, None if self.gone is None else ~self.gone)]


class IndexCache:
    """Holds the tables of one agent. Safe to use from several threads.

    Args:
        index: where the tables are.
        scope: whose.
        dimension: length of the vectors.
        most: rows of all tables together that are held; the least recently used give way.
        calendar: the lake's.
    """

    def __init__(self, index: VectorIndex, scope: Scope, dimension: int, most: int, calendar: Calendar) -> None:
        self._index = index
        self._scope = scope
        self._dimension = dimension
        self._most = most
        self._calendar = calendar
        self._held: dict[Grain, _Held] = {}
        self._lock = threading.Lock()
        # When the layout of a grain may begin anew; those that are being laid out are not to begin.
        self._again_at: dict[Grain, float] = {}

    def parts(self, grain: Grain) -> list[CachedRows] | None:
        """Return the newest rows of a grain, in one part or several; None if there are more than may be held."""
        return self._parts(grain, in_one=False)

    def segment(self, grain: Grain) -> RowBlock | None:
        """Return the newest rows of a grain in one part; None if there are more than may be held."""
        parts = self._parts(grain, in_one=True)
        return None if parts is None else parts[0].segment

    def _parts(self, grain: Grain, *, in_one: bool) -> list[CachedRows] | None:
        version = self._index.version(self._scope, grain)
        with self._lock:
            held = self._held.pop(grain, None)
            if held is not None and held.version != version:
                held = None if in_one else self._patched(grain, held, version)
            if held is not None and not (in_one and held.is_patched):
                self._held[grain] = held  # now the most recently used
                if held.is_patched:
                    self._begin_anew(grain)
                    self._make_room()
                return held.parts
            if self._index.count(self._scope, grain) > self._most:
                return None
            # The rows may be newer than the version; then the next search reads them once more.
            held = self._loaded(grain, version)
            if version is not None:
                self._held[grain] = held
                self._make_room()
            return held.parts

    def _loaded(self, grain: Grain, version: int | None) -> _Held:
        held = _Held.of(version or 0, self._index.load(self._scope, grain, self._dimension))
        if len(held) >= SKETCHED_FROM:
            _give_back()
        return held

    def _patched(self, grain: Grain, held: _Held, version: int | None) -> _Held | None:
        """Return what is held with what has become of it since; None if it is better read whole."""
        if version is None or len(held.whole) < _PATCHED_FROM or not is_of_one_table(held.version, version):
            return None
        since = self._index.since(self._scope, grain, self._dimension, held.numbers, _MOST_PATCHED)
        if since is None:
            return None
        loaded, gone = since
        come = RowBlock(loaded.rows, loaded.vectors) if len(loaded.numbers) else None
        patched = replace(held, version=version, come=come, gone=gone if gone.any() else None, points=None)
        return patched if len(patched) <= self._most else None

    def _begin_anew(self, grain: Grain) -> None:
        """Lay out a grain anew beside the searches, unless that is under way, or was a moment ago."""
        if time.monotonic() >= self._again_at.get(grain, 0.0):
            self._again_at[grain] = math.inf
            threading.Thread(target=self._lay_out, args=(grain,), name="memory-layout").start()

    def _lay_out(self, grain: Grain) -> None:
        started = time.monotonic()
        try:
            version = self._index.version(self._scope, grain)
            anew = self._loaded(grain, version)
            with self._lock:
                held = self._held.get(grain)
                # Newer rows than these may have come meanwhile: they are patched onto these by the next search.
                if held is not None and version is not None and is_of_one_table(held.version, version):
                    self._held[grain] = anew
                    self._make_room()
        except Exception:  # noqa: BLE001  # whatever it is: what is held is right without it
            _log.warning("%s of %s could not be laid out anew", grain, self._scope, exc_info=True)
        finally:
            ended = time.monotonic()
            self._again_at[grain] = ended + _IDLE * (ended - started)

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if there are more summaries than may be held."""
        summaries = self.segment(grain)
        if summaries is None:
            return None
        with self._lock:
            held = self._held.get(grain)
            if held is not None and held.whole is summaries and held.points is not None:
                return held.points
            points = points_of(summaries, self._calendar)
            if held is not None and held.whole is summaries:
                held.points = points
            return points

    def _make_room(self) -> None:
        while self._held and sum(map(len, self._held.values())) > self._most:
            del self._held[next(iter(self._held))]


def _give_back() -> None:
    """Return freed memory to the system: what reading a large table took would else stay with the process."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc alone has it
        trim(0)


# What a search chooses from: the rows of a grain that are held in memory or found on disk, and the journal's tail.


#: Of a table that is too large to be held: rows taken from the index by vector and by words, for each result.
_OVERFETCH: Final = 5
_TICK: Final = timedelta(microseconds=1)


class FilteredRows(NamedTuple):
    """Rows to choose from, which of them pass (None: all), and how many messages pass in all."""

    segments: list[RowBlock]
    masks: list[NDArray[np.bool_] | None]
    total: int


class Candidates:
    """Finds the rows of one agent that pass a filter. Safe to use from several threads.

    Args:
        lake: where.
        scope: whose.
        embedder: makes the vectors of queries and of the tail.
        pending: the journal's tail.
        resident_rows: how many rows of the index are held in memory.
    """

    def __init__(
        self, lake: Lake, scope: Scope, embedder: Embedder, pending: PendingJournal, resident_rows: int
    ) -> None:
        self._index = lake.index
        self._scope = scope
        self._embedder = embedder
        self._tail = PendingRows(pending, embedder)
        self._resident = IndexCache(lake.index, scope, embedder.dimension, resident_rows, lake.calendar)

    def passing(
        self, grain: Grain, where: Filter, wanted: int, query: str | None, *, by_message: bool = False
    ) -> FilteredRows:
        """Return what to choose from; of a table that is too large to be held, what the index finds.

        The tail is read before the index; see :class:`PendingRows`.

        Args:
            grain: what is searched.
            where: what the rows must fulfil.
            wanted: how many are wanted.
            query: what is asked; None for the newest.
            by_message: leave out the facts of messages whose turns are there; without a query.
        """
        tail = self._tail.segment() if grain is Grain.WORKING else None
        held = self._resident.parts(grain)
        parts = (
            [CachedRows(self._found(grain, where, wanted, query, by_message=by_message), None)]
            if held is None
            else held
        )
        if tail is not None:
            parts = [CachedRows(tail, None), *parts]
        segments = [part.segment for part in parts]
        masks = [_both(part.segment.mask(where), part.stands) for part in parts]
        if by_message:
            masks = [_both(mask, part.segment.listed(part.stands)) for mask, part in zip(masks, parts, strict=True)]
        if held is not None:
            return FilteredRows(segments, masks, selection.total(segments, masks))
        pending = None if tail is None else tail.rows if masks[0] is None else tail.rows.filter(masks[0])
        return FilteredRows(segments, masks, self._total_on_disk(grain, where, pending))

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if there are more summaries than may be held."""
        return self._resident.points(grain)

    def embedded(self, text: str) -> NDArray[np.float32] | None:
        """Return the vector of a text; None if the embedder failed."""
        vector = self._embedder.embed([text])[0]
        return None if np.isnan(vector[0]) else vector

    def _found(self, grain: Grain, where: Filter, wanted: int, query: str | None, *, by_message: bool) -> RowBlock:
        if by_message:
            turns = self._index.newest(self._scope, grain, replace(where, kind=FactKind.TURN), wanted)
            rows = pa.concat_tables([turns, self._index.newest(self._scope, grain, self._older(where), wanted)])
        elif query is None:
            rows = self._index.newest(self._scope, grain, where, wanted)
        else:
            rows = self._index.search(self._scope, grain, where, _OVERFETCH * wanted, self.embedded(query), query)
        return RowBlock.of(rows, self._embedder.dimension)

    def _total_on_disk(self, grain: Grain, where: Filter, pending: pa.Table | None) -> int:
        """Return how many messages rows of the index and of the tail rest on that pass."""
        index, scope = self._index, self._scope
        others = set() if pending is None else set(map(tuple, pending["source_ids"].to_pylist()))
        if where.kind not in {None, FactKind.TURN}:
            return len(index.messages(scope, grain, where) | others)
        older: set[tuple[str, ...]] = set()
        if grain is Grain.WORKING:
            # Each message has one turn, or had one.
            older = index.messages(scope, grain, self._older(where)) if where.kind is None else older
            where = replace(where, kind=FactKind.TURN)
        total = index.count(scope, grain, where) + len(older) + len(others - older)
        if pending is None or not others:
            return total
        # What is in both was said when the tail's messages were.
        span = pc.min_max(pending["ends_at"]).as_py()
        beside = index.messages(scope, grain, replace(where, since=span["min"], until=span["max"]))
        return total - len((beside & others) - older)

    def _older(self, where: Filter) -> Filter:
        """Return the filter for facts of the time before the first turn: retention has taken the turns from there."""
        first = self._index.first_turn(self._scope)
        if first is None:
            return where
        last = first - _TICK
        return replace(where, ends_until=last if where.ends_until is None else min(where.ends_until, last))


def _both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Return where both are true; None is true everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return one & other

"""What a search chooses from: the rows of a grain that are held in memory or found on disk, and the journal's tail."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.reader import selection
from memory_pipeline.reader.resident import CachedRows, IndexCache
from memory_pipeline.reader.segment import RowBlock
from memory_pipeline.reader.tail import PendingRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph.pending import PendingJournal
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter

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

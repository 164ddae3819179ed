"""Candidates of a search: index rows of some scopes, cached in memory, and pending journal entries.

Rows that are too many to cache, and in no file that can be mapped, are searched on disk, and only the rows found there
are ranked.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.search import selection
from memory_pipeline.search.copies import Copies
from memory_pipeline.search.index_overlay import CachedRows, both
from memory_pipeline.search.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.text.ranking import Window
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.lake.index.vector_index import VectorIndex
    from memory_pipeline.search.index_overlay import IndexOverlay


#: Rows that the index returns by vector and by words, per result, if the table is too large to cache.
_OVERFETCH: Final = 5
_TICK: Final = timedelta(microseconds=1)


class FilteredRows(NamedTuple):
    """Blocks of rows, masks of the rows that pass (None: all), and the number of messages that pass."""

    segments: list[RowBlock]
    masks: list[NDArray[np.bool_] | None]
    total: int


class Candidates:
    """Finds the rows of some scopes that pass a filter. Safe to use from several threads.

    `scopes` returns the overlays of the scopes to read.
    """

    def __init__(self, lake: Lake, scopes: Callable[[], Sequence[IndexOverlay]], embedder: Embedder) -> None:
        self._indices = lake.indices
        self._scopes = scopes
        self._embedder = embedder
        self._copies = Copies()

    def passing(
        self,
        grain: Grain,
        where: Filter,
        limit: int,
        query: str | None,
        *,
        by_message: bool = False,
        with_copies: bool = False,
    ) -> FilteredRows:
        """Return the rows that pass a filter; of a table that is too large to cache, those that the index finds.

        `query` is None for the newest. `by_message` leaves out facts of messages that have a turn; only without a
        query. A message in several scopes passes only in the first, unless `with_copies`.
        """
        found = [self._passing(of, grain, where, limit, query, by_message=by_message) for of in self._scopes()]
        segments = [segment for rows, _ in found for segment in rows.segments]
        masks = [mask for rows, _ in found for mask in rows.masks]
        if not with_copies and len(found) > 1:
            masks = self._copies.hidden(segments, masks)
        total, start = 0, 0
        for rows, is_on_disk in found:
            end = start + len(rows.segments)
            total += rows.total if is_on_disk else selection.total(segments[start:end], masks[start:end])
            start = end
        return FilteredRows(segments, masks, total)

    def older(self, grain: Grain, where: Filter, words: Sequence[str | Window] | None) -> int:
        """Return the number of messages that only the start of a filter leaves out, without those on disk.

        With `words`, count those that contain one of them.
        """
        if where.since is None and where.ends_since is None:
            return 0
        count = 0
        for of in self._scopes():
            newest = of.rows(grain)
            pending, table, _ = newest
            parts = [] if pending is None else [CachedRows(pending, None)]
            for segment, live in parts + ([] if table is None else list(map(newest.counted, table.parts))):
                within = segment.mask(where)
                if within is None:
                    continue
                is_older = both(segment.mask(replace(where, since=None, ends_since=None)), live)
                is_older = ~within if is_older is None else is_older & ~within
                if words is not None and is_older.any():
                    has_word = np.zeros(len(segment), np.bool_)
                    for word in words:
                        has_word[segment.holding(word)] = True
                    is_older &= has_word
                count += len(np.unique(segment.message[is_older]))
        return count

    def own_rows(self) -> list[RowBlock]:
        """Return the cached facts of the user's own memory; of the agent's if there is no user."""
        scopes = self._scopes()
        own = next((one for one in scopes if one.scope.identity.startswith("user:")), scopes[0])
        pending, table, _ = own.rows(Grain.WORKING)
        return [*([] if pending is None else [pending]), *(part.segment for part in (table.parts if table else ()))]

    def points(self, grain: Grain) -> list[RowBlock]:
        """Return the points of a grain's summaries, by scope; those that are too many to cache are left out."""
        return [points for of in self._scopes() if (points := of.points(grain)) is not None]

    def without_copies(
        self, segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None]
    ) -> list[NDArray[np.bool_] | None]:
        """Return the masks without copies of points; see :meth:`passing`."""
        return self._copies.hidden(segments, masks)

    def _passing(
        self, of: IndexOverlay, grain: Grain, where: Filter, limit: int, query: str | None, *, by_message: bool
    ) -> tuple[FilteredRows, bool]:
        """Return the rows of one scope that pass, and whether they are on disk. Only then is their total known."""
        newest = of.rows(grain)
        tail, table, _ = newest
        parts = [] if tail is None else [CachedRows(tail, None)]
        if table is None:
            found = self._found(of.scope, grain, where, limit, query, by_message=by_message)
            parts.append(newest.counted(CachedRows(found, None)))
        else:
            parts += map(newest.counted, table.parts)
        segments = [part.segment for part in parts]
        masks = [both(part.segment.mask(where), part.live) for part in parts]
        if by_message:
            masks = [both(mask, part.segment.listed(part.live)) for mask, part in zip(masks, parts, strict=True)]
        if table is not None:
            return FilteredRows(segments, masks, 0), False
        pending = None if tail is None else tail.rows if masks[0] is None else tail.rows.filter(masks[0])
        return FilteredRows(segments, masks, self._total_on_disk(of.scope, grain, where, pending)), True

    @property
    def _index(self) -> VectorIndex:
        return self._indices.of(self._embedder)

    def check(self) -> None:
        """Raise ConfigurationError if the index was built with another embedder."""
        self._indices.of(self._embedder)

    def embedded(self, text: str) -> NDArray[np.float32] | None:
        """Return the vector of a text; None if the embedder failed."""
        vector = self._embedder.embed([text])[0]
        return None if np.isnan(vector[0]) else vector

    def _found(
        self, scope: Scope, grain: Grain, where: Filter, limit: int, query: str | None, *, by_message: bool
    ) -> RowBlock:
        if by_message:
            turns = self._index.newest(scope, grain, replace(where, kind=FactKind.TURN), limit)
            rows = pa.concat_tables([turns, self._index.newest(scope, grain, self._older(scope, where), limit)])
        elif query is None:
            rows = self._index.newest(scope, grain, where, limit)
        else:
            rows = self._index.search(scope, grain, where, _OVERFETCH * limit, self.embedded(query), query)
        return RowBlock.of(rows, self._embedder.dimension, scope)

    def _total_on_disk(self, scope: Scope, grain: Grain, where: Filter, pending: pa.Table | None) -> int:
        index = self._index
        others = set() if pending is None else set(map(tuple, pending["source_ids"].to_pylist()))
        if where.kind not in {None, FactKind.TURN}:
            return len(index.messages(scope, grain, where) | others)
        older: set[tuple[str, ...]] = set()
        if grain is Grain.WORKING:
            # Each message has or had one turn.
            older = index.messages(scope, grain, self._older(scope, where)) if where.kind is None else older
            where = replace(where, kind=FactKind.TURN)
        total = index.count(scope, grain, where) + len(older) + len(others - older)
        if pending is None or not others:
            return total
        # Only messages within the times of the pending ones can be in both.
        span = pc.min_max(pending["ends_at"]).as_py()
        beside = index.messages(scope, grain, replace(where, since=span["min"], until=span["max"]))
        return total - len((beside & others) - older)

    def _older(self, scope: Scope, where: Filter) -> Filter:
        """Return the filter for facts from before the first turn, where retention has deleted the turns."""
        first = self._index.first_turn(scope)
        if first is None:
            return where
        last = first - _TICK
        return replace(where, ends_until=last if where.ends_until is None else min(where.ends_until, last))

"""The rows, graph and memories of each scope of a reader."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.text.ranking import OwnName
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.graph import Graph
from memory_pipeline.graph.state import GraphOverlay, JoinedGraphs
from memory_pipeline.memories.queries import until_of
from memory_pipeline.memories.ranker import MemoryLayouts, MemoryRanker
from memory_pipeline.memories.search import MemorySearch
from memory_pipeline.memories.state import JoinedOverlays, MemoryOverlay
from memory_pipeline.overlay import PendingJournal, found_once
from memory_pipeline.reader.packing.suppression import SuppressionIndex, joined_rules
from memory_pipeline.search.index_overlay import IndexOverlay, ResidentRows
from memory_pipeline.search.searcher import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.domain.ports import Embedder, MemorySelector
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.vector_index import VectorIndex
    from memory_pipeline.reader.packing.suppression import Statement, SuppressionRules


@dataclass(frozen=True, slots=True)
class ScopeState:
    """The rows, the graph and the durable memories of one scope. Nothing is read before it is needed."""

    index: IndexOverlay
    graph: GraphOverlay
    memories: MemoryOverlay
    layouts: MemoryLayouts
    suppression: SuppressionIndex


class ScopeStates:
    """The states of the scopes that a reader may read. Safe to use from several threads.

    `scopes` returns these scopes, the agent's own first. The list may change. A state is kept while its scope is in it.
    `local_calendar` is the calendar of the reader.
    """

    def __init__(
        self,
        lake: Lake,
        scopes: Callable[[], Sequence[Scope]],
        embedder: Embedder,
        resident_rows: int,
        local_calendar: Calendar,
    ) -> None:
        self._lake = lake
        self._local_calendar = local_calendar
        self.scopes = scopes
        self._embedder = embedder
        self._resident = ResidentRows(resident_rows)
        self._known: dict[Scope, ScopeState] = {}
        self._lock = threading.Lock()

    def __call__(self) -> list[ScopeState]:
        """Return the states in the order of the scopes, which are listed once within the same read."""
        return found_once(self, self._current)

    def _current(self) -> list[ScopeState]:
        scopes = self.scopes()
        with self._lock:
            known = self._known
            self._known = {scope: known.get(scope) or self._new(scope) for scope in scopes}
            return list(self._known.values())

    def graph(self, user_id: str | None) -> Graph:
        """Return the graph of all scopes, for the reader of a user."""
        return Graph(JoinedGraphs(lambda: [one.graph for one in self()], user_id), self._local_calendar)

    def own_name(self, user_id: str | None) -> OwnName | None:
        """Return the name of the user who asks. Another person has it if the graph has an entity of this name."""
        if user_id is None:
            return None
        key = name_key(user_id)
        return OwnName.of(user_id, lambda: any(one.graph.snapshot().codes.get(key) is not None for one in self()))

    def searcher(self, own: OwnName | None) -> Searcher:
        """Return the search of facts and summaries of all scopes, for the user of this name."""
        return Searcher(self._lake, lambda: [one.index for one in self()], self._embedder, self._local_calendar, own)

    def memories(
        self,
        graph: Graph,
        selector: Callable[[], MemorySelector | None],
        own: OwnName | None,
        user_id: str | None,
    ) -> MemorySearch:
        """Return the durable memories of all scopes, for the user of this name and id."""
        calendar = self._local_calendar
        state = JoinedOverlays(lambda: [one.memories for one in self()], user_id)
        ranker = MemoryRanker(lambda: [one.layouts for one in self()], self._embedder, calendar)
        return MemorySearch(state, ranker, self._embedder, graph, calendar, selector, own)

    def is_past(self, now: When | None) -> bool:
        """Return whether there are changes of durable memories after `now`."""
        until = until_of(now, self._local_calendar)
        memories = [one.memories for one in self()]
        return until is not None and any(one.snapshot(until) is not one.snapshot() for one in memories)

    def rules(
        self, exclude: Collection[str], shown: Iterable[Statement], now: datetime | None, at: datetime
    ) -> SuppressionRules:
        """Return the rules of all scopes, given the excluded facts and points; see :meth:`SuppressionIndex.of`."""
        return joined_rules([one.suppression.of(exclude, now, at) for one in self()], shown)

    def _new(self, scope: Scope) -> ScopeState:
        pending = PendingJournal(self._lake, scope)
        memories = MemoryOverlay(self._lake, scope, pending, self._is_worth)
        return ScopeState(
            IndexOverlay(self._lake, scope, self._embedder, pending, self._resident, self._is_worth),
            GraphOverlay(self._lake, scope, pending, self._is_worth),
            memories,
            MemoryLayouts(memories, self._embedder, lambda: self._memory_vectors(scope)),
            SuppressionIndex(memories),
        )

    def _is_worth(self) -> bool:
        """Return whether a scope is cached: what is read with it is then cached too, so that no table is opened."""
        index = self._index()
        return index is not None and any(map(index.is_cached, self.scopes()))

    def _memory_vectors(self, scope: Scope) -> Mapping[str, NDArray[np.float32]]:
        index = self._index()
        return {} if index is None else index.memory_vectors([scope])

    def _index(self) -> VectorIndex | None:
        """Return the index of the embedder; None if the lake has only others, as the search of messages tells."""
        try:
            return self._lake.indices.of(self._embedder)
        except ConfigurationError:
            return None

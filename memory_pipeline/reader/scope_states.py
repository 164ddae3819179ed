"""What a reader holds of each scope."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.memories.layouts import MemoryLayouts
from memory_pipeline.memories.state import MemoryOverlay
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.reader.suppression import SuppressionIndex
from memory_pipeline.search.candidates import IndexOverlay, ResidentRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake


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
    """

    def __init__(
        self, lake: Lake, scopes: Callable[[], Sequence[Scope]], embedder: Embedder, resident: ResidentRows
    ) -> None:
        self._lake = lake
        self.scopes = scopes
        self._embedder = embedder
        self._resident = resident
        self._known: dict[Scope, ScopeState] = {}
        self._lock = threading.Lock()

    def __call__(self) -> list[ScopeState]:
        """Return the states in the order of the scopes."""
        scopes = self.scopes()
        with self._lock:
            known = self._known
            self._known = {scope: known.get(scope) or self._new(scope) for scope in scopes}
            return list(self._known.values())

    def _new(self, scope: Scope) -> ScopeState:
        pending = PendingJournal(self._lake, scope)
        memories = MemoryOverlay(self._lake, scope, pending)
        return ScopeState(
            IndexOverlay(self._lake, scope, self._embedder, pending, self._resident),
            GraphOverlay(self._lake, scope, pending),
            memories,
            MemoryLayouts(memories, self._embedder),
            SuppressionIndex(memories),
        )

"""The searches of a reader's memory for what a recall or an injection may show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.recalled_text import LINE
from memory_pipeline.reader.packing.injection import Searches
from memory_pipeline.reader.packing.items import DURABLE, Recalled
from memory_pipeline.reader.packing.recall import candidates, durable_items, forms_shown, graph_item

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.graph import Graph
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.search import MemorySearch
    from memory_pipeline.reader.packing.recall import RecallCandidates
    from memory_pipeline.reader.packing.suppression import SuppressionRules
    from memory_pipeline.reader.scope_states import ScopeStates
    from memory_pipeline.search.searcher import Searcher

#: Least token budget for which facts are searched.
_LEAST_SEARCHED: Final = 1_000


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """The conditions of a recall or an injection.

    Attributes:
        where: filters facts, points and durable memories.
        at: the time from which ages count, UTC.
        as_of: ignore everything after this time, UTC; None for the present.
        exclude: ids of items that were shown before.
        minimum_score: leave out durable memories with a lower score, 0 to 1.
    """

    where: Filter
    at: datetime
    as_of: datetime | None
    exclude: frozenset[str]
    minimum_score: float


class MemorySources:
    """Searches facts, summaries, durable memories and the graph of a reader."""

    def __init__(self, searcher: Searcher, states: ScopeStates, graph: Graph, memories: MemorySearch) -> None:
        self._searcher = searcher
        self._states = states
        self._graph = graph
        self._memories = memories

    def candidates(self, text: str, max_tokens: int, request: RecallRequest) -> RecallCandidates:
        """Return the facts and points for a question; see :func:`~memory_pipeline.reader.packing.recall.candidates`."""
        return candidates(
            self._searcher,
            text,
            max_tokens,
            request.where,
            request.exclude,
            now=request.at,
            rules_for=lambda shown: self._states.rules(request.exclude, shown, request.as_of, request.at),
        )

    def durable(
        self, text: str, most: int, request: RecallRequest, found: RecallCandidates, hops: int
    ) -> list[Recalled]:
        """Return durable memories for a question, each followed by graph facts around its entities."""
        memories = self._memories.fitting(
            text, most, request.exclude, request.as_of, hops=hops, links=hops, where=request.where,
            minimum_score=request.minimum_score, hides=found.rules.hides_memory,
        )  # fmt: skip
        return durable_items(memories, self._searcher.local_calendar, found.hides)

    def searches(
        self, text: str, request: RecallRequest, speaker: str | None, hops: int, *, is_filled: bool
    ) -> Searches:
        """Return the searches of an injection; the last one, of the hot index, is empty unless `is_filled`."""

        @cache
        def rules() -> SuppressionRules:
            shown = forms_shown(self._searcher, text, request.where, request.exclude)
            return self._states.rules(request.exclude, shown, request.as_of, request.at)

        def said(query: str, tokens: int) -> list[Recalled]:
            found = self.candidates(query, max(tokens, _LEAST_SEARCHED), request)
            return [*found.facts, *found.points]

        def facts(query: str, limit: int, names: list[str] | None) -> list[Recalled]:
            limit += len(request.exclude)
            found = self._graph.search(
                query, limit, speaker=speaker, names=names, hops=hops, at=request.as_of, now=request.at
            )
            return [graph_item(one) for one in found if one.id not in request.exclude and not rules().hides_fact(one)]

        def memories(query: str, limit: int) -> list[Recalled]:
            found = self._memories.fitting(
                query, limit, request.exclude, request.as_of, links=hops, minimum_score=request.minimum_score,
                hides=rules().hides_memory,
            )  # fmt: skip
            return durable_items(found, self._searcher.local_calendar)

        def hot_index() -> list[Recalled]:
            return [
                Recalled(entry.id, DURABLE, "", None, str(entry).removeprefix(LINE), said_by=entry.said_by)
                for entry in (self._memories.hot_index(now=request.as_of) if is_filled else ())
                if entry.id not in request.exclude
            ]

        return Searches(said, facts, memories, hot_index)

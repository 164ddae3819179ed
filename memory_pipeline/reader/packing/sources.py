"""The searches of a reader's memory for what a recall or an injection may show."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.recalled_text import LINE
from memory_pipeline.domain.text.thesaurus import related
from memory_pipeline.errors import AccessDeniedError
from memory_pipeline.graph.graph import NamedEntities
from memory_pipeline.memories.search import passes
from memory_pipeline.reader.packing.asked import is_generic, subject_of
from memory_pipeline.reader.packing.injection import Searches
from memory_pipeline.reader.packing.items import DURABLE, Recalled
from memory_pipeline.reader.packing.recall import candidates, durable_item, durable_items, forms_shown, graph_item

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.graph import Graph, GraphFact
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.memories.search import MemorySearch
    from memory_pipeline.reader.packing.recall import RecallCandidates
    from memory_pipeline.reader.packing.suppression import SuppressionRules
    from memory_pipeline.reader.scope_states import ScopeStates
    from memory_pipeline.search.searcher import Searcher

_log = logging.getLogger(__name__)

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

    def searches(self, text: str, request: RecallRequest, speaker: str | None, hops: int) -> Searches:
        """Return the searches for a prompt.

        It is searched without the words that only ask, and with the names of those whom it names by a relation.
        """
        own: list[str] = []
        mentions = nobody = NamedEntities([], [], [])
        try:
            own = [speaker] if speaker else self._searcher.own_names()
            mentions = self._graph.mentions(text, own)
        except AccessDeniedError:
            raise
        except Exception as error:  # noqa: BLE001  # the searches report it, and those that do not fail answer
            _log.warning("nobody is found by name: %s", error)
        subject = subject_of(text)
        words = frozenset(terms(subject))
        topic = words.union(*map(related, words))
        # The user has many facts: those that share no word with the prompt would be noise.
        asks_for_own = bool(mentions.own) and is_generic(words.difference(*map(terms, own)))
        asked = " ".join([subject, *(mentions.own if asks_for_own else mentions.related)])

        @cache
        def read_rules() -> SuppressionRules:
            shown = forms_shown(self._searcher, asked, request.where, request.exclude)
            return self._states.rules(request.exclude, shown, request.as_of, request.at)

        lock = Lock()  # the searches are parallel, and the rules are read once

        def rules() -> SuppressionRules:
            with lock:
                return read_rules()

        def said(tokens: int) -> RecallCandidates:
            budget = max(tokens, _LEAST_SEARCHED)
            return candidates(self._searcher, asked, budget, request.where, request.exclude, rules(), now=request.at)

        def is_on_topic(one: GraphFact) -> bool:
            return not topic.isdisjoint(terms(f"{one.label.replace('_', ' ')} {one.target}"))

        def facts(limit: int, names: list[str] | None) -> list[Recalled]:
            limit += len(request.exclude)
            named = self._graph.mentions(text, own) if mentions is nobody else mentions

            def around(names: list[str]) -> list[GraphFact]:
                return self._graph.around(names, asked, limit, hops=hops, now=request.at, at=request.as_of)

            about_named = around(named.named if names is None else names)
            asks_for_named = is_generic(words.difference(*map(terms, named.named)))
            asked_for = [
                *(one for one in about_named if asks_for_named or is_on_topic(one)),
                *around(named.related),
                *(one for one in around(named.own) if asks_for_own or is_on_topic(one)),
            ]
            asked_ids = {one.id for one in asked_for}
            return [
                graph_item(one, strength=float(one.id in asked_ids))
                for one in {one.id: one for one in (*asked_for, *about_named)}.values()
                if one.id not in request.exclude and not rules().hides_fact(one) and passes(one, request.where)
            ]

        def memories(limit: int) -> list[Recalled]:
            found = self._memories.fitting(
                asked, limit, request.exclude, request.as_of, links=hops, where=request.where,
                minimum_score=request.minimum_score, hides=rules().hides_memory,
            )  # fmt: skip
            return durable_items(found, self._searcher.local_calendar)

        def instructions() -> list[Recalled]:
            return [
                durable_item(one, self._searcher.local_calendar)
                for one in self._memories.instructions(now=request.as_of)
                if one.id not in request.exclude and not rules().hides_memory(one)
            ]

        def hot_index() -> list[Recalled]:
            return [
                Recalled(entry.id, DURABLE, "", None, str(entry).removeprefix(LINE), said_by=entry.said_by)
                for entry in self._memories.hot_index(now=request.as_of)
                if entry.id not in request.exclude
            ]

        return Searches(said, facts, memories, instructions, hot_index)

"""Search durable memories: rank headers, choose among them, then read the chosen ones.

1. A model, if the configuration asks for one, is shown up to 200 headers: the newest and, of a large memory, those that
   share words with the question. No contents and no vectors are read.
2. It chooses some of them. Without a model, and where it fails, those of all memories are taken that fit best by words
   and vectors. This ranking reads the columns of contents and vectors, once for each state of the table.
3. What the chosen ones say is read; where a model chose, of no others. It is told with a warning where it may have
   changed, and with facts of the graph around what they name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.text.ranking import Query
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.errors import InputError, ModelError
from memory_pipeline.graph import MAX_HOPS
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.memories import DurableMemories
from memory_pipeline.memories.ranker import MemoryRanker, Pool, Ranked, RankedMemories, Wanted
from memory_pipeline.search.arguments import MAX_RESULTS, count_of, label_of, validate_ids, validate_query
from memory_pipeline.search.row_block import speaker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.domain.ports import Embedder, MemorySelector
    from memory_pipeline.graph import Graph, GraphFact
    from memory_pipeline.memories.snapshot import MemorySnapshot
    from memory_pipeline.memories.state import MemoryOverlay

_log = logging.getLogger(__name__)

#: So many memories are recalled of a question, unless more are asked for.
CHOSEN: Final = 5
#: Facts of the graph that are told around one memory.
_FACTS: Final = 5


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A durable memory that was found.

    Attributes:
        memory: its newest version, whole.
        score: how well it fits, to compare memories of one search.
        warning: what to tell with it, where it may have changed since; None if nothing.
        facts: of the graph, around what it names, the best first.
    """

    memory: DurableMemory
    score: float
    warning: str | None
    facts: tuple[GraphFact, ...] = ()

    def __str__(self) -> str:
        """Return what it says with its warning, and a line for each fact, all marked as recalled."""
        note = f"; {self.warning}" if self.warning else ""
        said = f"{self.memory.content} ({self.memory.kind}{note})"
        return mark_lines("\n".join([said, *(f"  {fact.line}" for fact in self.facts)]))


class MemorySearch(DurableMemories):
    """What one agent keeps for good, and the search of it.

    Args:
        state: the newest memories of the agent.
        embedder: what the pipeline uses.
        graph: what the agent knows.
        calendar: the lake's; decides when a day begins.
        selector: returns what chooses memories by their headers; None where rules do.
    """

    def __init__(
        self,
        state: MemoryOverlay,
        embedder: Embedder,
        graph: Graph,
        calendar: Calendar,
        selector: Callable[[], MemorySelector | None] = lambda: None,
    ) -> None:
        super().__init__(state)
        self._keeping = MemoryRanker(state, embedder)
        self._embedder = embedder
        self._graph = graph
        self._calendar = calendar
        self._selector = selector

    def search(
        self,
        query: str,
        max_results: int = CHOSEN,
        *,
        kind: MemoryKind | str | None = None,
        tag: str | None = None,
        exclude: Collection[str] = (),
        hops: int = 1,
        now: When | None = None,
    ) -> list[RecalledMemory]:
        """Return the memories that fit a query best, best first; cold ones are in the archive.

        Args:
            query: what to look for, at most 10,000 characters.
            max_results: 1 to 100.
            kind: only of this kind.
            tag: only with this label.
            exclude: ids of memories that are left out: those that were shown before.
            hops: how far around what a memory names the graph is told, 0 (not at all) to 3.
            now: the time until which is remembered, and from which ages count; the clock's if not given.

        Raises:
            InputError: an argument is not accepted.
        """
        count_of("hops", hops, 0, MAX_HOPS)
        wanted = self._wanted(query, max_results, kind, tag, exclude)
        return self.chosen(wanted, query, hops, self._as_of(now))

    def search_archive(
        self,
        query: str,
        max_results: int = 10,
        *,
        kind: MemoryKind | str | None = None,
        tag: str | None = None,
        exclude: Collection[str] = (),
        now: When | None = None,
    ) -> list[RecalledMemory]:
        """Return the cold memories that fit a query best: those that were superseded, archived, or had become stale.

        No other search finds them. What was revoked is not among them: :meth:`history` tells of it. Arguments are those
        of :meth:`search`.

        Raises:
            InputError: an argument is not accepted.
        """
        wanted = self._wanted(query, max_results, kind, tag, exclude)
        as_of = self._as_of(now)
        return self.told(self.ranked(wanted, as_of, Pool.ARCHIVE), as_of)

    def _as_of(self, now: When | None) -> datetime | None:
        return None if now is None else self._calendar.moment("now", now)

    def chosen(self, wanted: Wanted, query: str, hops: int, now: datetime | None) -> list[RecalledMemory]:
        """Return the memories that are recalled of a query: those that a model chooses, or that fit best.

        Args:
            wanted: what is looked for.
            query: the same as a text, for the model.
            hops: as of :meth:`search`.
            now: likewise.
        """
        selector = self._selector()
        found = None if selector is None else self._selected(selector, wanted, query, now)
        return self.told(self.ranked(wanted, now) if found is None else found, now, hops, wanted.where)

    def fitting(
        self,
        query: str,
        most: int,
        exclude: frozenset[str],
        now: datetime | None,
        *,
        hops: int = 0,
        where: Filter | None = None,
        hides: Callable[[DurableMemory], bool] | None = None,
    ) -> list[RecalledMemory]:
        """Return the memories that have to do with a query, in the order of :meth:`search`.

        Args:
            query: what is asked.
            most: how many at most.
            exclude: ids of memories that are left out.
            now: as of :meth:`search`.
            hops: likewise.
            where: what they must fulfil.
            hides: tells of a memory whether it is left out for what it says.
        """
        question, vector = Query.of(query, ()), self.embedded([query])[0]
        wanted = Wanted(question, vector, most, where=where, exclude=exclude, only_fitting=True, hides=hides)
        return self.chosen(wanted, query, hops, now)

    def ranked(self, wanted: Wanted, now: datetime | None, pool: Pool = Pool.RECALLED) -> RankedMemories:
        """Return the memories that fit best, as rules have it."""
        many = wanted if wanted.hides is None else replace(wanted, most=wanted.most + len(wanted.exclude))
        top, found, _ = self._keeping.ranked(many, pool, now)
        return RankedMemories(top, _not_hidden(top, found, wanted)[: wanted.most])

    def told(
        self, ranked: RankedMemories, now: datetime | None, hops: int = 0, where: Filter | None = None
    ) -> list[RecalledMemory]:
        """Return memories that were found, read whole, as they stood at a time.

        Args:
            ranked: what was found, and in which state.
            now: that time; the clock's if not given.
            hops: how far around what they name the graph is told.
            where: what the facts must fulfil; of what only messages and memories have, they have nothing.
        """
        at = datetime.now(UTC) if now is None else now
        memories = ranked.top.load([one.id for one in ranked.memories]) if ranked.read is None else ranked.read
        found = []
        for one in ranked.memories:
            memory = memories.get(one.id)
            if memory is not None:
                facts = self._around(memory, hops, at, is_past=now is not None) if hops else ()
                facts = tuple(fact for fact in facts if where is None or _passes(fact, where))
                found.append(RecalledMemory(memory, round(one.score, 4), warning(memory, at), facts))
        return found

    def embedded(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vectors of texts; None where the embedder failed."""
        return [None if np.isnan(vector[0]) else vector for vector in self._embedder.embed(texts)]

    def _wanted(
        self, query: str, most: int, kind: MemoryKind | str | None, tag: str | None, exclude: Collection[str]
    ) -> Wanted:
        text = validate_query(query, "query")
        if text is None:
            raise InputError("query is blank; expected what to look for, list shows the newest without one")
        count_of("max_results", most, 1, MAX_RESULTS)
        kinds = None if kind is None else frozenset([MemoryKind.parse(kind)])
        label = label_of("tag", tag)
        return Wanted(
            Query.of(text, ()),
            self.embedded([text])[0],
            most,
            kinds,
            where=None if label is None else Filter(tag=" ".join(label.split())),
            exclude=validate_ids("exclude", exclude),
        )

    def _selected(
        self, selector: MemorySelector, wanted: Wanted, query: str, now: datetime | None
    ) -> RankedMemories | None:
        """Return the memories that a model chooses by their headers, which are read whole; None where it fails."""
        top, shown, _ = self._keeping.headers(wanted, now)
        headers = top.headers_of([one.id for one in shown])
        most = min(wanted.most, CHOSEN)
        # Only what it says tells of some that it was shown in another form: then others are needed in its place.
        asked = 2 * most if wanted.hides is not None and wanted.exclude else most
        try:
            places = selector.select(query, [str(headers[one.id]) for one in shown], asked)
        except Exception as error:  # noqa: BLE001  # whatever it is, words and vectors choose too
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            _log.warning("durable memories are chosen without a model: %s", reason)
            return None
        chosen = list(dict.fromkeys(shown[place] for place in places if 0 <= place < len(shown)))[:asked]
        memories = top.load([one.id for one in chosen], alone=True)
        # The model took its time: what was revoked or has cooled meanwhile is not told.
        told = {own: one for own, one in memories.items() if one.is_recalled and not _hides(wanted, one)}
        return RankedMemories(top, [one for one in chosen if one.id in told][:most], told)

    def _around(self, memory: DurableMemory, hops: int, now: datetime, *, is_past: bool) -> tuple[GraphFact, ...]:
        """Return the facts around what a memory names, without what it says itself."""
        names = [name for name in (memory.subject, memory.object) if name]
        facts = self._graph.search(
            memory.content,
            _FACTS + 1,
            speaker=speaker_of(memory.content),
            names=names or None,
            hops=hops,
            at=now if is_past else None,
            now=now,
        )
        own = _triple(memory.subject, memory.predicate, memory.object)
        return tuple(fact for fact in facts if _triple(fact.source, fact.label, fact.target) != own)[:_FACTS]


def _not_hidden(top: MemorySnapshot, found: list[Ranked], wanted: Wanted) -> list[Ranked]:
    """Leave out what says something that is left out."""
    if wanted.hides is None:
        return found
    memories = top.load([one.id for one in found])
    return [one for one in found if one.id in memories and not _hides(wanted, memories[one.id])]


def _hides(wanted: Wanted, memory: DurableMemory) -> bool:
    return wanted.hides is not None and wanted.hides(memory)


def _passes(fact: GraphFact, where: Filter) -> bool:
    others = (where.kind, where.person, where.conversation_id, where.tag, where.minimum_importance)
    return (
        all(term is None for term in others)
        and (where.since is None or where.since <= fact.valid_from)
        and (where.until is None or fact.valid_from <= where.until)
        and (where.ends_until is None or fact.valid_from <= where.ends_until)
    )


def _triple(subject: str | None, predicate: str | None, value: str | None) -> tuple[str, str, str] | None:
    """Return a fact of three terms as it is compared; None where one is missing."""
    return (name_key(subject), predicate, name_key(value)) if subject and predicate and value else None

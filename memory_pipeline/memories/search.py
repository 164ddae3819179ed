"""Search durable memories: rank their headers, select some, then read the selected ones.

1. If the configuration asks for a model, it gets up to 200 headers: the newest and, of a large memory, those that share
   words with the question. Contents and vectors are not read for this.
2. The model selects some of them. Without a model, or if it fails, the memories that fit best by words and vectors are
   selected. This reads contents and vectors, once per version of the table.
3. The selected memories are read whole, each with a warning if it may have changed, and with graph facts around the
   entities it names.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.decay import relevance_at, warning
from memory_pipeline.domain.memories.record import MemoryKind, Status
from memory_pipeline.domain.scopes import optional_label
from memory_pipeline.domain.text.ranking import Query
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.domain.values import count_of, share_of
from memory_pipeline.errors import InputError, ModelError, shown
from memory_pipeline.graph import MAX_HOPS
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.memories import DurableMemories
from memory_pipeline.memories.queries import until_of, values_of
from memory_pipeline.memories.ranker import Pool, Ranked, RankedMemories, Wanted
from memory_pipeline.search.arguments import MAX_RESULTS, question_in, validate_ids, validate_query
from memory_pipeline.search.row_block import speaker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.fields import Origin
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.domain.ports import Embedder, MemorySelector
    from memory_pipeline.domain.text.ranking import OwnName
    from memory_pipeline.graph import Graph, GraphFact
    from memory_pipeline.memories.queries import Found
    from memory_pipeline.memories.ranker import MemoryRanker
    from memory_pipeline.memories.snapshot import JoinedMemories
    from memory_pipeline.memories.state import JoinedOverlays
    from memory_pipeline.search.copies import Block

_log = logging.getLogger(__name__)

#: Number of memories to recall by default.
CHOSEN: Final = 5
#: Strength of a memory at the end of a link of weight 1, relative to the memory at its beginning.
_LINKED: Final = 0.5
#: Found memories beyond those that are wanted, if some may be hidden.
_SPARE: Final = 10
#: Most graph facts that accompany a memory.
_FACTS: Final = 5


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A durable memory that a search found.

    `score` is how well it fits the query, 0 to 1, comparable between searches; 0 if a model selected it. `strength` is
    the sum of the signals by which the memories of one search are ranked. `relevance` is its importance × confidence ×
    e^(−decay rate · days since its last use), at the time of the search. `warning` notes that it may have changed
    since. `facts` are graph facts around the entities it names, best first. `identity` is the user or group whose
    memory it is; empty for the agent's own memory. `said_by` is who said it to the reader.
    """

    memory: DurableMemory
    score: float
    warning: str | None
    facts: tuple[GraphFact, ...] = ()
    identity: str = ""
    strength: float = 0.0
    relevance: float = 0.0
    said_by: Authority = Authority.USER

    def __str__(self) -> str:
        """Return the content with its warning and who said it, and a line for each fact, all marked as recalled."""
        notes = [self.memory.kind.value] if self.said_by.may_instruct else []
        notes += [self.warning] if self.warning else []
        note = f" ({'; '.join(notes)})" if notes else ""
        said = f"{self.said_by.attribution}{self.memory.content}{note}"
        return mark_lines("\n".join([said, *(f"  {fact.line}" for fact in self.facts)]))


class MemorySearch(DurableMemories):
    """The durable memories of some scopes, with search.

    `selector` returns the model that selects memories by their headers, or None to rank by rules. `own` is the name of
    the user who asks.
    """

    def __init__(
        self,
        state: JoinedOverlays,
        ranker: MemoryRanker,
        embedder: Embedder,
        graph: Graph,
        calendar: Calendar,
        selector: Callable[[], MemorySelector | None] = lambda: None,
        own: OwnName | None = None,
    ) -> None:
        self._own = own
        super().__init__(state)
        self._ranker = ranker
        self._embedder = embedder
        self._graph = graph
        self._calendar = calendar
        self._selector = selector

    def about(self, subject: str, *, kind: MemoryKind | str | None = None, limit: int = 100) -> Found:
        """Return the active memories with a subject, in any case, newest first.

        The user's own name means the user too, unless another person has it.

        Args:
            subject: the person or thing.
            kind: only memories of this kind.
            limit: 1 to 10,000.
        """
        found = super().about(subject, kind=kind, limit=limit)
        own = self._own
        if own is None or name_key(subject) != name_key(own.name) or own.is_of_another():
            return found
        for speaker in own.speakers:
            found += super().about(speaker, kind=kind, limit=limit)
        return sorted(found, key=lambda one: one.updated_at, reverse=True)[:limit]

    def search(
        self,
        query: str | Sequence[object],
        max_results: int = CHOSEN,
        *,
        kind: MemoryKind | str | None = None,
        tag: str | None = None,
        exclude: Collection[str] = (),
        hops: int = 1,
        minimum_score: float = 0.0,
        vector: Sequence[float] | None = None,
        now: When | None = None,
        **origin: Unpack[Origin],
    ) -> list[RecalledMemory]:
        """Return the best memories for a query, best first. Cold memories are left out; see :meth:`search_archive`.

        Args:
            query: text to search for, at most 10,000 characters; with a `vector` it may be blank. Or the last messages
                of a conversation, oldest first.
            max_results: maximum number of results, 1 to 100.
            kind: only memories of this kind.
            tag: only memories with this label.
            exclude: ids of memories that were shown before.
            hops: how far to walk the graph from the entities of a memory, 0 (not at all) to 3.
            minimum_score: leave out memories with a lower score, 0 to 1. A model that selects ignores it.
            vector: the vector of the question, from the lake's embedder; by default that of `query`.
            now: ignore everything after this time, and count ages from it; the current time by default.
            origin: see :class:`~memory_pipeline.domain.fields.Origin`.

        Raises:
            InputError: an argument is invalid, or `vector` has another dimension than the lake's embedder.
        """
        count_of("hops", hops, 0, MAX_HOPS)
        text = question_in(query)
        wanted = self._wanted(text, max_results, kind, tag, exclude, origin, vector, minimum_score)
        as_of = self._as_of(now)
        if vector is not None:  # a model would select by the words alone
            return self.load_results(self.ranked(wanted, as_of), as_of, hops)
        return self.chosen(wanted, text or "", hops, as_of)

    def search_archive(
        self,
        query: str,
        max_results: int = 10,
        *,
        kind: MemoryKind | str | None = None,
        tag: str | None = None,
        exclude: Collection[str] = (),
        now: When | None = None,
        **origin: Unpack[Origin],
    ) -> list[RecalledMemory]:
        """Return the best cold memories for a query: superseded, archived or stale. Arguments as in :meth:`search`.

        Revoked memories are left out; :meth:`history` returns them.

        Raises:
            InputError: an argument is invalid.
        """
        wanted = self._wanted(validate_query(query), max_results, kind, tag, exclude, origin)
        as_of = self._as_of(now)
        return self.load_results(self.ranked(wanted, as_of, Pool.ARCHIVE), as_of)

    def _as_of(self, now: When | None) -> datetime | None:
        return None if now is None else self._calendar.moment("now", now)

    def chosen(self, wanted: Wanted, query: str, hops: int, now: datetime | None) -> list[RecalledMemory]:
        """Return the memories for a query that a model selects, or that fit best.

        The model reads `query`; rules read its parsed form in `wanted`. `hops` and `now` as in :meth:`search`.
        """
        selector = self._selector()
        found = None if selector is None else self._selected(selector, wanted, query, now)
        return self.load_results(self.ranked(wanted, now) if found is None else found, now, hops, wanted.where)

    def fitting(
        self,
        query: str,
        most: int,
        exclude: frozenset[str],
        now: datetime | None,
        *,
        links: int = 0,
        where: Filter | None = None,
        minimum_score: float = 0.0,
        hides: Callable[[DurableMemory], bool] | None = None,
    ) -> list[RecalledMemory]:
        """Return at most `most` memories that are related to a query, in the order of :meth:`search`.

        Those that `links` steps along links lead to follow. `where` filters them. Memories with a score below
        `minimum_score` are left out, unless a model selects. `hides` returns whether to leave out a memory because of
        its content.
        """
        question, vector = Query.of(query, (), own=self._own), self.embedded([query])[0]
        wanted = Wanted(
            question, vector, most, where=where, exclude=exclude, only_fitting=True, minimum_score=minimum_score,
            hides=hides,
        )  # fmt: skip
        found = self.chosen(wanted, query, 0, now)
        return [*found, *self._linked(found, wanted, links, now)]

    def instructions(self, *, now: datetime | None) -> list[DurableMemory]:
        """Return the instructions that apply to the reader, the newest first; cold ones are left out."""
        top = self._state.snapshot(until_of(now, self._state.calendar))
        headers = top.headers(
            lambda rows: rows.equal("status", Status.ACTIVE.value) & rows.equal("kind", MemoryKind.INSTRUCTION.value)
        )
        found = top.load([one.id for one in headers])
        return [one for one in found.values() if one.is_recalled and self._said_by(one, top).may_instruct]

    def _linked(
        self, found: Sequence[RecalledMemory], wanted: Wanted, links: int, now: datetime | None
    ) -> Iterator[RecalledMemory]:
        """Yield the memories that up to `links` steps along links lead to, nearest first, the strongest link first."""
        where = wanted.where
        if where is not None and (where.person, where.tag, where.minimum_importance) != (None, None, None):
            return  # a link tells nothing about these
        until, ring = until_of(now, self._state.calendar), list(found)
        seen = {one.memory.id for one in ring} | {one.partition("#")[0] for one in wanted.exclude}
        for _ in range(links):
            origins = {one.memory.id: one for one in ring}
            reached: dict[str, tuple[float, RecalledMemory]] = {}
            for link in self._state.links(list(origins), until) if ring else ():
                for own, other in ((link.source_id, link.target_id), (link.target_id, link.source_id)):
                    if own in origins and other not in seen:
                        reached.setdefault(other, (link.weight, origins[own]))
            top = self._state.snapshot(until)
            known = top.load(list(reached), alone=True)
            fitting = [
                Ranked(own, origin.score, _LINKED * weight * origin.strength)
                for own, (weight, origin) in reached.items()
                if own in known
                and known[own].is_recalled
                and not _hides(wanted, known[own])
                and (where is None or _is_within(where, known[own].updated_at))
            ]
            seen |= reached.keys()
            ring = self.load_results(RankedMemories(top, fitting, known), now)
            yield from ring

    def blocks(self, where: Filter, *, entries: bool | None, now: datetime | None) -> list[Block]:
        """Return the memories that pass a filter, to rank them with what was said; see :class:`MemoryRanker`."""
        return self._ranker.blocks(where, entries=entries, now=now)

    def ranked(self, wanted: Wanted, now: datetime | None, pool: Pool = Pool.RECALLED) -> RankedMemories:
        """Return the memories that fit best by words and vectors."""
        wider = wanted
        if wanted.hides is not None:
            wider = replace(wanted, most=wanted.most + len(wanted.exclude) + _SPARE)
        top, found, _ = self._ranker.ranked(wider, pool, now)
        return RankedMemories(top, _without_hidden(top, found, wanted)[: wanted.most])

    def load_results(
        self, ranked: RankedMemories, now: datetime | None, hops: int = 0, where: Filter | None = None
    ) -> list[RecalledMemory]:
        """Return the found memories whole, as of `now`, with facts up to `hops` steps around their entities.

        `where` filters the facts. Facts have no person, tag or importance and fail such a filter.
        """
        at = datetime.now(UTC) if now is None else now
        memories = ranked.top.load([one.id for one in ranked.memories]) if ranked.read is None else ranked.read
        if any(one.decay_rate for one in memories.values()):
            memories = self._state.with_uses(dict(memories), until_of(now, self._calendar))
        found = []
        for one in ranked.memories:
            memory = memories.get(one.id)
            if memory is not None:
                facts = self._around(memory, hops, at, is_past=now is not None) if hops else ()
                facts = tuple(fact for fact in facts if where is None or passes(fact, where))
                identity = ranked.top.identity_of(memory.id)
                note, score = warning(memory, at), round(one.score, 4)
                relevance = round(relevance_at(memory, at), 4)
                said_by = self._said_by(memory, ranked.top)
                found.append(RecalledMemory(memory, score, note, facts, identity, one.strength, relevance, said_by))
        return found

    def embedded(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vectors of texts; None where the embedder failed."""
        return [None if np.isnan(vector[0]) else vector for vector in self._embedder.embed(texts)]

    def _wanted(
        self,
        text: str | None,
        most: int,
        kind: MemoryKind | str | None,
        tag: str | None,
        exclude: Collection[str],
        origin: Origin,
        vector: Sequence[float] | None = None,
        minimum_score: float = 0.0,
    ) -> Wanted:
        if text is None and vector is None:
            raise InputError("query is blank; expected a text to search for. To list the newest memories, use list")
        count_of("max_results", most, 1, MAX_RESULTS)
        kinds = None if kind is None else frozenset([MemoryKind.parse(kind)])
        label = optional_label("tag", tag)
        return Wanted(
            Query.of(text or "", (), own=self._own),
            self.embedded([text or ""])[0] if vector is None else unit_vector(vector, self._embedder.dimension),
            most,
            kinds,
            values_of(origin),
            where=None if label is None else Filter(tag=" ".join(label.split())),
            exclude=validate_ids("exclude", exclude),
            minimum_score=share_of("minimum_score", minimum_score, 0.0),
        )

    def _selected(
        self, selector: MemorySelector, wanted: Wanted, query: str, now: datetime | None
    ) -> RankedMemories | None:
        """Return the whole memories that a model selects by their headers; None if the model fails."""
        top, shown, _ = self._ranker.headers(wanted, now)
        headers = top.headers_of([one.id for one in shown])
        most = min(wanted.most, CHOSEN)
        # Only the content shows that a memory repeats an excluded item. Select spares.
        count = 2 * most if wanted.hides is not None and wanted.exclude else most
        try:
            places = selector.select(query, [str(headers[one.id]) for one in shown], count)
        except Exception as error:  # noqa: BLE001  # after any error, words and vectors select instead
            reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
            _log.warning("durable memories are chosen without a model: %s", reason)
            return None
        chosen = list(dict.fromkeys(shown[place] for place in places if 0 <= place < len(shown)))[:count]
        memories = top.load([one.id for one in chosen], alone=True)
        # While the model answered, a memory may have been revoked or become cold.
        recalled = {own: one for own, one in memories.items() if one.is_recalled and not _hides(wanted, one)}
        return RankedMemories(top, [one for one in chosen if one.id in recalled][:most], recalled)

    def _around(self, memory: DurableMemory, hops: int, now: datetime, *, is_past: bool) -> tuple[GraphFact, ...]:
        """Return the graph facts around the entities of a memory, except the memory's own triple."""
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
        own_triple = _triple(memory.subject, memory.predicate, memory.object)
        return tuple(fact for fact in facts if _triple(fact.source, fact.label, fact.target) != own_triple)[:_FACTS]


def unit_vector(vector: Sequence[float], dimension: int) -> NDArray[np.float32]:
    """Return the vector of a caller at unit length.

    Raises:
        InputError: it has another dimension, or is no vector of finite numbers other than zero.
    """
    try:
        numbers = np.asarray(vector, np.float32)
    except (TypeError, ValueError):
        raise InputError(f"vector {shown(vector)} is not accepted; expected {dimension} numbers") from None
    if numbers.shape != (dimension,):
        found = " × ".join(map(str, numbers.shape)) or "no"
        raise InputError(f"vector has {found} dimensions; the lake's embedder has {dimension}")
    length = float(np.linalg.norm(numbers))
    if not np.isfinite(length) or not length:
        raise InputError("vector is not accepted; expected finite numbers, not all zero")
    return numbers / np.float32(length)


def _without_hidden(top: JoinedMemories, found: list[Ranked], wanted: Wanted) -> list[Ranked]:
    if wanted.hides is None:
        return found
    memories = top.load([one.id for one in found])
    return [one for one in found if one.id in memories and not _hides(wanted, memories[one.id])]


def _hides(wanted: Wanted, memory: DurableMemory) -> bool:
    return wanted.hides is not None and wanted.hides(memory)


def passes(fact: GraphFact, where: Filter) -> bool:
    """Return whether a graph fact passes a filter. Facts have no person, tag or importance, and fail such a filter."""
    others = (where.kind, where.person, where.conversation_id, where.tag, where.minimum_importance)
    return all(term is None for term in others) and _is_within(where, fact.valid_from)


def _is_within(where: Filter, moment: datetime) -> bool:
    return (
        (where.since is None or where.since <= moment)
        and (where.until is None or moment <= where.until)
        and (where.ends_until is None or moment <= where.ends_until)
    )


def _triple(subject: str | None, predicate: str | None, value: str | None) -> tuple[str, str, str] | None:
    return (name_key(subject), predicate, name_key(value)) if subject and predicate and value else None

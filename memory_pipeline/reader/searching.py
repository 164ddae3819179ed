"""Searches of one agent's grains: what to choose from is found, ranked, and chosen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.identity import MEMORY
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.text.ranking import Named, Query, Window, weights_for
from memory_pipeline.models.deterministic.language.windows import date_ranges
from memory_pipeline.reader import selection
from memory_pipeline.reader.candidates import Candidates
from memory_pipeline.reader.recall import POINTS, choose, considered, excerpted, kept, recalled, together
from memory_pipeline.reader.retelling import Form
from memory_pipeline.reader.scoring import score, sought, words_of
from memory_pipeline.reader.segment import TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph import GraphFact
    from memory_pipeline.graph.pending import PendingJournal
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.reader.memories import RecalledMemory
    from memory_pipeline.reader.recall import Recollection
    from memory_pipeline.reader.retelling import Retelling
    from memory_pipeline.reader.scoring import Scored, Word
    from memory_pipeline.reader.segment import RowBlock
    from memory_pipeline.reader.selection import Choice

    Retell = Callable[[Iterable[Form]], Retelling]
    Keep = Callable[[Retelling], Iterable[RecalledMemory]]

#: So many results are ranked at once; whoever turns to a later page has those before ranked first.
_RANKED_AT_ONCE = 100
_TICK: Final = timedelta(microseconds=1)


class Searcher:
    """Searches facts and summaries. Safe to use from several threads.

    Args:
        lake: where.
        scope: whose.
        embedder: what the pipeline uses.
        pending: the journal's tail.
        resident_rows: how many rows of the index are held in memory.

    Attributes:
        candidates: what is chosen from.
    """

    def __init__(
        self, lake: Lake, scope: Scope, embedder: Embedder, pending: PendingJournal, resident_rows: int
    ) -> None:
        self._calendar = lake.calendar
        self._weights = weights_for(embedder.name)
        self._sees_sense = self._weights.vector == weights_for("").vector
        self.candidates = Candidates(lake, scope, embedder, pending, resident_rows)

    def newest(self, grain: Grain, where: Filter, wanted: int) -> tuple[list[Choice], int]:
        """Return the newest rows of a grain, and how many pass."""
        # Else the sentences of a message would stand beside it.
        by_message = grain is Grain.WORKING and where.kind is None
        segments, masks, total = self.candidates.passing(grain, where, wanted, None, by_message=by_message)
        return selection.newest(segments, masks, wanted), total

    def best(
        self, grain: Grain, where: Filter, wanted: int, query: str, *, now: datetime, explain: bool
    ) -> tuple[list[Choice], int]:
        """Return the best, and how many there are. More of them begin with the fewer, so that pages are of one list.

        How much is compared follows from how much is wanted. So that this changes no earlier page, a list is continued
        by what a wider comparison finds besides.
        """
        chosen: dict[tuple[str, ...], Choice] = {}
        at_once = _RANKED_AT_ONCE
        while True:
            segments, masks, total = self.candidates.passing(grain, where, at_once, query)
            question = _question(segments, query, self._calendar, now)
            words = words_of(question, segments)
            scored = self._ranked(question, words, self.candidates.embedded(question.bare), segments, masks, at_once)
            count = at_once if chosen else min(at_once, max(wanted, selection.COMPARED))
            for choice in selection.best(segments, scored, count, self._weights, explain=explain):
                if len(chosen) < at_once:
                    chosen.setdefault(tuple(choice.row["source_ids"]), choice)
            if at_once >= wanted or len(chosen) >= total:
                found = list(chosen.values())[: max(wanted, selection.COMPARED)]
                if grain is Grain.WORKING:
                    held = sought(words)
                    found = selection.with_later([choice.excerpted(held) for choice in found], held)
                return found[:wanted], total
            at_once *= 2

    def recalled(
        self,
        text: str,
        max_tokens: int,
        where: Filter,
        exclude: Collection[str] = (),
        *,
        now: datetime,
        retell: Retell,
        keep: Keep = lambda _: (),
    ) -> Recollection:
        """Return what all grains remember of a question, with what is kept of it for good.

        Args:
            text: the question.
            max_tokens: what the answer may take.
            where: what all of it must fulfil.
            exclude: ids of what is left out.
            now: the time until which is remembered, UTC.
            retell: returns what is not to be told, of those that are left out beside durable memories.
            keep: returns durable memories that fit the question, and may be told.
        """
        wanted = min(considered(max_tokens) + len(exclude), 1_000)
        facts, masks, _ = self.candidates.passing(Grain.WORKING, where, wanted, text)
        summaries = {grain: part for grain in SUMMARY_GRAINS if (part := self.candidates.points(grain)) is not None}
        segments = [*facts, *summaries.values()]
        masks += [self._points_within(grain, segment, where, now) for grain, segment in summaries.items()]
        question = _question(segments, text, self._calendar, now)
        words = words_of(question, segments)
        ranking = self._ranked(question, words, self.candidates.embedded(question.bare), segments, masks, wanted)
        found = selection.best(facts, ranking[: len(facts)], wanted, self._weights, explain=True)
        fitting = [choice for choice in found if self._fits(choice)]
        # Whether it may be told is decided by all of a message.
        held = sought(words)
        passages = {one.row["id"]: one.excerpted(held) for one in fitting or found}
        said = recalled(Grain.WORKING, fitting or found, self._calendar)
        points = [
            recalled(grain, selection.best([segment], [scored], POINTS, self._weights), self._calendar)
            for (grain, segment), scored in zip(summaries.items(), ranking[len(facts) :], strict=True)
        ]
        retelling = retell(_forms(Grain.WORKING, facts, exclude) + _points(summaries, exclude))
        lists = (said, together(*points))
        said, told = (retelling.told(item for item in items if item.id not in exclude) for items in lists)
        said = [excerpted(item, passages[item.id]) for item in said]
        own, others = _persons(question, segments)

        def hides(fact: GraphFact) -> bool:
            is_of_another = name_key(fact.source) in others and name_key(fact.target) not in own
            return is_of_another or fact.id in exclude or retelling.hides_fact(fact)

        lasting = kept(keep(retelling), self._calendar, hides)
        return choose(said, told, self._calendar, max_tokens, lasting)

    def _points_within(self, grain: Grain, points: RowBlock, where: Filter, now: datetime) -> NDArray[np.bool_]:
        """Tell which points pass: of a summary that there was by `now`, and of times that lie in the range."""
        rows = points.rows
        last = self._calendar.last_closed(grain, now)
        mask = pc.less_equal(rows["period"], last.key)  # names of one grain sort as their times do
        if where.since is not None:
            mask = pc.and_(mask, pc.greater_equal(rows["starts_at"], pa.scalar(where.since, TIME)))
        if where.until is not None:
            # A period ends before its `ends_at`.
            mask = pc.and_(mask, pc.less_equal(rows["ends_at"], pa.scalar(where.until + _TICK, TIME)))
        flags: NDArray[np.bool_] = mask.to_numpy().astype(np.bool_)
        return flags & replace(where, since=None, until=None, ends_since=None, ends_until=None).mask(rows)

    def _fits(self, choice: Choice) -> bool:
        """Tell whether a fact has to do with the question: by words, its own or its neighbours', or by its vector."""
        parts = choice.parts or {}
        is_near = self._sees_sense and parts["vector"] >= self._weights.vector
        return is_near or parts["words"] > 0 or parts["coverage"] > 0 or parts["answers"] > 0

    def shown(self, text: str, where: Filter, exclude: Collection[str]) -> list[Form]:
        """Return those of some ids that are facts or points, as far as they are found by a question."""
        if all(one.startswith(f"{MEMORY}:") for one in exclude):
            return []
        facts, _, _ = self.candidates.passing(Grain.WORKING, where, considered(0) + len(exclude), text)
        summaries = {grain: part for grain in SUMMARY_GRAINS if (part := self.candidates.points(grain)) is not None}
        return _forms(Grain.WORKING, facts, exclude) + _points(summaries, exclude)

    def _ranked(
        self,
        question: Query,
        words: Sequence[Word],
        vector: NDArray[np.float32] | None,
        segments: list[RowBlock],
        masks: list[NDArray[np.bool_] | None],
        wanted: int,
    ) -> list[Scored]:
        return score(question, segments, vector, masks, wanted, self._weights, words)


def _forms(grain: Grain, segments: Iterable[RowBlock], exclude: Collection[str]) -> list[Form]:
    """Return the rows that have one of some ids."""
    if not exclude:
        return []
    ids = pa.array(sorted(exclude), pa.string())
    columns = ["content", "source_ids", "kind"]
    rows = [segment.rows.select(columns).filter(pc.is_in(segment.ids, ids)).to_pylist() for segment in segments]
    return [Form.of(grain, row["content"], row["source_ids"], row["kind"]) for part in rows for row in part]


def _points(summaries: Mapping[Grain, RowBlock], exclude: Collection[str]) -> list[Form]:
    return [form for grain, segment in summaries.items() for form in _forms(grain, [segment], exclude)]


def _persons(question: Query, segments: Iterable[RowBlock]) -> tuple[set[str], set[str]]:
    """Return the one speaker whom a question names, and the others; nobody where it names none, or several."""
    if len(question.about) != 1:
        return set(), set()
    own = set(map(name_key, question.about))
    return own, {name_key(name) for segment in segments for name in segment.speakers if name} - own


def _question(segments: Sequence[RowBlock], query: str, calendar: Calendar, now: datetime) -> Query:
    speakers = dict.fromkeys(name for segment in segments for name in segment.speakers)
    times = [
        Named(
            Window(first, last, calendar.instant("first", first), calendar.instant("last", last, is_end=True)),
            start,
            end,
        )
        for first, last, start, end in date_ranges(query, calendar.day_of(now))
    ]
    return Query.of(
        query,
        speakers,
        times=times,
        is_known=lambda word: any(len(segment.holding(word)) for segment in segments),
    )

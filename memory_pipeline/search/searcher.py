"""Search one agent's facts and summaries: find candidates, rank them, choose, and return hits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.text.ranking import Named, Query, Window, weights_for
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.models.deterministic.language.windows import date_ranges
from memory_pipeline.search import selection
from memory_pipeline.search.candidates import Candidates
from memory_pipeline.search.row_block import TIME
from memory_pipeline.search.scoring import score, sought, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.overlay import PendingJournal
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored, Word
    from memory_pipeline.search.selection import Choice


#: So many results are ranked at once; whoever turns to a later page has those before ranked first.
_RANKED_AT_ONCE = 100
_TICK: Final = timedelta(microseconds=1)
#: So many points of each grain are considered.
POINTS: Final = 40


class RankedMemory(NamedTuple):
    """Facts and points of summaries, ranked together.

    Attributes:
        question: what was asked.
        words: see :func:`~memory_pipeline.search.scoring.sought`.
        facts: the rows that facts were chosen from.
        summaries: the rows that points were chosen from, by grain.
        said: the best facts; those that have nothing to do with the question only where there are no others.
        points: the best points, by grain.
    """

    question: Query
    words: Callable[[str], Mapping[int, float]]
    facts: list[RowBlock]
    summaries: dict[Grain, RowBlock]
    said: list[Choice]
    points: dict[Grain, list[Choice]]


class Searcher:
    """Searches facts and summaries. Safe to use from several threads.

    Args:
        lake: where.
        scope: whose.
        embedder: what the pipeline uses.
        pending: the journal's tail.
        resident_rows: how many rows of the index are held in memory.

    Attributes:
        calendar: of the lake.
        candidates: what is chosen from.
    """

    def __init__(
        self, lake: Lake, scope: Scope, embedder: Embedder, pending: PendingJournal, resident_rows: int
    ) -> None:
        self.calendar = lake.calendar
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
            question = _question(segments, query, self.calendar, now)
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

    def everything(self, text: str, wanted: int, where: Filter, *, now: datetime) -> RankedMemory:
        """Rank facts and the points of all summaries together.

        Args:
            text: the question.
            wanted: how many facts to consider.
            where: what all of it must fulfil.
            now: the time until which is remembered, UTC.
        """
        facts, masks, _ = self.candidates.passing(Grain.WORKING, where, wanted, text)
        summaries = self.summaries()
        segments = [*facts, *summaries.values()]
        masks += [self._points_within(grain, segment, where, now) for grain, segment in summaries.items()]
        question = _question(segments, text, self.calendar, now)
        words = words_of(question, segments)
        ranking = self._ranked(question, words, self.candidates.embedded(question.bare), segments, masks, wanted)
        found = selection.best(facts, ranking[: len(facts)], wanted, self._weights, explain=True)
        points = {
            grain: selection.best([segment], [scored], POINTS, self._weights)
            for (grain, segment), scored in zip(summaries.items(), ranking[len(facts) :], strict=True)
        }
        fitting = [choice for choice in found if self._fits(choice)]
        return RankedMemory(question, sought(words), facts, summaries, fitting or found, points)

    def summaries(self) -> dict[Grain, RowBlock]:
        """Return the points of summaries, by grain."""
        return {grain: part for grain in SUMMARY_GRAINS if (part := self.candidates.points(grain)) is not None}

    def _points_within(self, grain: Grain, points: RowBlock, where: Filter, now: datetime) -> NDArray[np.bool_]:
        """Tell which points pass: of a summary that there was by `now`, and of times that lie in the range."""
        rows = points.rows
        last = self.calendar.last_closed(grain, now)
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


# What a search returns.


class Later(NamedTuple):
    """A later hit of the same search: its id and day."""

    id: str
    date: date


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing remembered.

    Attributes:
        id: of the fact or summary; :meth:`MemoryReader.expand` takes it.
        grain, period: the partition that it lies in; ``durable`` of what is kept for good.
        kind: of a fact (turn, statement, …) or a durable memory (instruction, rule, …), or ``summary``.
        content: the text, beginning with who said it where it is a fact. Of a long message that was searched for, the
            passage that answers, of about 60 words; :meth:`MemoryReader.expand` has all of it.
        starts_at, ends_at: the half-open range that a summary covers, UTC; of a fact, both when it was said; of a
            durable memory, when it was first and last said.
        date: the first day of that range, in the lake's time zone.
        source_ids: what it rests on: messages of a fact, facts or finer summaries of a summary.
        conversation_id: of a fact.
        score: how well it fits the query, to compare hits of one search; 0 where there was no query.
        parts: what each signal adds to the score (:class:`memory_pipeline.domain.text.ranking.Weights`), if it was
        asked
            for; they add up to it.
        is_excerpt: whether the content is a passage of a longer text.
        later: of the ten best hits, a later one in which a user names other numbers for what is asked; None if there
            is none.
    """

    id: str
    grain: Grain | Literal["durable"]
    period: str
    kind: str
    content: str
    starts_at: datetime
    ends_at: datetime
    date: date
    source_ids: tuple[str, ...]
    conversation_id: str | None
    score: float
    parts: Mapping[str, float] | None = None
    is_excerpt: bool = False
    later: Later | None = None

    @property
    def line(self) -> str:
        """Its text with its date: ``[2024-01-15] Anna: I moved to Porto.``; and the day of a later hit."""
        return f"[{self.date}] {self.content}{f' ({self.later_note})' if self.later else ''}"

    @property
    def later_note(self) -> str:
        """The day of the later hit: ``later: 2024-02-01``; empty if there is none."""
        return f"later: {self.later.date}" if self.later else ""

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ [2024-01-15] Anna: I moved to Porto.``."""
        return mark_lines(self.line)


class Hits(list[Hit]):
    """One page of hits, best first (newest first where there was no query).

    Attributes:
        total: how many memories pass the filters, on all pages together; a message with all that was found in it
            counts once.
        offset: how many come before this page.
    """

    def __init__(self, hits: Iterable[Hit] = (), total: int = 0, offset: int = 0) -> None:
        super().__init__(hits)
        self.total = total
        self.offset = offset

"""Search facts and summaries of some scopes: find candidates, score them, select the best."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.attributes import attributes_in
from memory_pipeline.domain.authority import Authority, authority_of
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR, Calibration
from memory_pipeline.domain.text.ranking import Named, Query, Window, weights_for
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.search import scoring, selection
from memory_pipeline.search.candidates import Candidates
from memory_pipeline.search.copies import MADE_OF, Makings
from memory_pipeline.search.evidence import calibration_of, verbatim_in
from memory_pipeline.search.row_block import TIME, speaker_addressed
from memory_pipeline.search.scoring import matcher_of, words_of
from memory_pipeline.search.selection import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.text.ranking import OwnName
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter
    from memory_pipeline.search.copies import Block
    from memory_pipeline.search.index_overlay import IndexOverlay
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored, Word


#: Results that are ranked at once. A later page ranks the pages before it first.
_RANKED_AT_ONCE = 100
#: Most rows that are scanned for an id, if the table is too large to cache.
_LOOKED_THROUGH = 10_000
_TICK: Final = timedelta(microseconds=1)
#: In fewer rows no word is rare, and an answer with other words than its question would be missed.
_FEWEST: Final = 16
POINTS: Final = 40


class Found(NamedTuple):
    """The result of a search.

    Attributes:
        choices: the rows, best first; without a query, newest first.
        total: number of messages or summaries that pass the filter.
        older: number of messages or summaries that would pass if the filter had no start; with a query, of those that
            share a word with it.
        calibration: turns the strength of a choice into a score, which compares between searches; None without a query.
    """

    choices: list[Choice]
    total: int
    older: int = 0
    calibration: Calibration | None = None


class RankedMemory(NamedTuple):
    """Facts and points of summaries, ranked together.

    Attributes:
        score: returns the score of a choice, which compares between searches. A fact that holds the words of the
            question gets at least the default floor.
        words: see :func:`~memory_pipeline.search.scoring.matcher_of`.
        facts, summaries: blocks of rows from which facts and points were selected; points by grain.
        said: the best facts. Facts unrelated to the question are included only if no fact is related.
        points: the best points, by grain.
    """

    question: Query
    score: Callable[[Choice], float]
    words: Callable[[str], Mapping[int, float]]
    facts: list[RowBlock]
    summaries: dict[Grain, list[RowBlock]]
    said: list[Choice]
    points: dict[Grain, list[Choice]]


class Searcher:
    """Searches facts and summaries of the scopes that `scopes` returns. Safe to use from several threads.

    Days in queries are days of `local_calendar`, those of summaries of `calendar`. `own` is the name of the user who
    asks.
    """

    def __init__(
        self,
        lake: Lake,
        scopes: Callable[[], Sequence[IndexOverlay]],
        embedder: Embedder,
        local_calendar: Calendar,
        own: OwnName | None = None,
    ) -> None:
        self._own = own
        self.user_id = None if own is None else own.name
        self.calendar, self.local_calendar = lake.calendar, local_calendar
        self._weights = weights_for(embedder.name)
        self._is_semantic = self._weights.vector == weights_for("").vector
        self.candidates = Candidates(lake, scopes, embedder)
        self._makings = Makings()

    def own_names(self) -> list[str]:
        """Return the names under which memory has what the asking user said: ``User`` or the user's id, and others.

        Without a user, and in the user's own memory, a name is the user's if all users' messages have it.
        """
        names = {name for block in self.candidates.own_rows() for name in block.users}
        own = ["User"] if self._own is None else [*self._own.speakers, self._own.name]
        return list(dict.fromkeys([*own, *(names if len(names) == 1 else ())]))

    def newest(self, grain: Grain, where: Filter, limit: int) -> Found:
        """Return the newest rows of a grain."""
        # Otherwise the sentences of a message would appear beside the message.
        by_message = grain is Grain.WORKING and where.kind is None
        segments, masks, total = self.candidates.passing(grain, where, limit, None, by_message=by_message)
        older = self.candidates.older(grain, where, None)
        return Found(selection.newest(segments, masks, limit), total, older)

    def best(
        self,
        grain: Grain,
        where: Filter,
        limit: int,
        query: str,
        *,
        now: datetime,
        explain: bool,
        beside: Callable[[], Sequence[Block]] = tuple,
        with_turns: bool = True,
    ) -> Found:
        """Return the best rows. A longer list begins with the shorter one, so that pages fit together.

        Memories that `beside` returns are ranked among the rows. A memory that was made of a message that passes is
        left out: the message is found. `with_turns` is False for memories alone.

        The number of rows compared grows with `limit`. To keep earlier pages unchanged, results of a wider comparison
        are appended.
        """
        chosen: dict[tuple[str, ...], Choice] = {}
        at_once = _RANKED_AT_ONCE
        calibration: Calibration | None = None
        self.candidates.check()
        while True:
            segments, masks, total = self.candidates.passing(grain, where, at_once, query)
            if not with_turns:
                masks, total = [np.zeros(len(segment), np.bool_) for segment in segments], 0
            memories = [self._makings.hidden(block, segments, masks) for block in beside()]
            question = _question(segments, query, self.local_calendar, now, self._own, memories)
            segments = [*segments, *(block.segment for block in memories)]
            masks = [*masks, *(block.mask for block in memories)]
            total += sum(int(np.count_nonzero(block.mask)) for block in memories)
            words = words_of(question, segments)
            scored = self._ranked(question, words, self.candidates.embedded(question.bare), segments, masks, at_once)
            calibration = calibration or self._calibration(question, words, segments, scored)
            count = at_once if chosen else min(at_once, max(limit, selection.COMPARED))
            weights = self._weights.for_query(question)
            for choice in selection.best(segments, scored, count, weights, explain=explain):
                if len(chosen) < at_once:
                    chosen.setdefault(tuple(choice.row["source_ids"]), choice)
            if at_once >= limit or len(chosen) >= total:
                found = list(chosen.values())[: max(limit, selection.COMPARED)]
                if grain is Grain.WORKING:
                    matches = matcher_of(words)
                    found = selection.with_later([choice.excerpted(matches) for choice in found], matches)
                older = self.candidates.older(grain, where, [form for word in words for form, _, _ in word.forms])
                return Found(found[:limit], total, older, calibration)
            at_once *= 2

    def find(self, id: str, grain: Grain, where: Filter) -> Choice | None:  # noqa: A002  # as in readers
        """Return the row with an id, or the turn of the message with that id, among the rows that pass a filter."""
        segments, masks, _ = self.candidates.passing(grain, where, _LOOKED_THROUGH, None, with_copies=True)
        for segment, mask in zip(segments, masks, strict=True):
            rows = segment.rows if mask is None else segment.rows.filter(mask)
            for row in rows.to_pylist():
                if id == row["id"] or (row["kind"] == FactKind.TURN and id in row["source_ids"]):
                    return Choice(row | {"identity": segment.identity}, 0.0)
        return None

    def everything(self, text: str, limit: int, where: Filter, *, now: datetime) -> RankedMemory:
        """Rank facts, at most `limit`, and the points of all summaries together. `where` filters both; `now` is UTC."""
        self.candidates.check()
        facts, masks, _ = self.candidates.passing(Grain.WORKING, where, limit, text)
        summaries = self.summaries()
        segments = list(facts)
        for grain, blocks in summaries.items():
            segments += blocks
            within = [self._points_within(grain, block, where, now) for block in blocks]
            masks += self.candidates.without_copies(blocks, within)
        question = _question(segments, text, self.local_calendar, now, self._own)
        words = words_of(question, segments)
        ranking = self._ranked(question, words, self.candidates.embedded(question.bare), segments, masks, limit)
        weights = self._weights.for_query(question)
        found = selection.best(facts, ranking[: len(facts)], limit, weights, explain=True, whole=True)
        scored = iter(ranking[len(facts) :])
        points = {
            grain: selection.best(blocks, list(islice(scored, len(blocks))), POINTS, weights)
            for grain, blocks in summaries.items()
        }
        related = [choice for choice in found if self._is_related(choice)]
        # Points repeat facts. They are judged alone where retention has deleted the facts.
        told = len(facts) if sum(map(len, facts)) else len(segments)
        calibration = self._calibration(question, words, segments[:told], ranking[:told])
        is_verbatim = verbatim_in(text, question, words, sum(map(len, segments[:told])))

        def score(choice: Choice) -> float:
            fits = calibration(choice.score)
            return DEFAULT_FLOOR if fits < DEFAULT_FLOOR and is_verbatim(choice.row["content"]) else fits

        return RankedMemory(question, score, matcher_of(words), facts, summaries, related or found, points)

    def summaries(self) -> dict[Grain, list[RowBlock]]:
        """Return the points of summaries, by grain and scope."""
        return {grain: blocks for grain in SUMMARY_GRAINS if (blocks := self.candidates.points(grain))}

    def _points_within(self, grain: Grain, points: RowBlock, where: Filter, now: datetime) -> NDArray[np.bool_]:
        """Mark the points of summaries that were complete by `now`, with times in the range."""
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

    def _is_related(self, choice: Choice) -> bool:
        """Return whether a fact matches the question by its words, its neighbours' words, or its vector."""
        parts = choice.parts or {}
        is_near = self._is_semantic and parts["vector"] >= self._weights.vector
        return is_near or parts["words"] > 0 or parts["coverage"] > 0 or parts["answers"] > 0

    def _calibration(
        self, question: Query, words: Sequence[Word], segments: Sequence[RowBlock], scored: Sequence[Scored]
    ) -> Calibration:
        return calibration_of(
            question, words, segments, scored, self._weights, is_semantic=self._is_semantic, fewest=_FEWEST
        )

    def _ranked(
        self,
        question: Query,
        words: Sequence[Word],
        vector: NDArray[np.float32] | None,
        segments: list[RowBlock],
        masks: list[NDArray[np.bool_] | None],
        limit: int,
    ) -> list[Scored]:
        return scoring.score(question, segments, vector, masks, limit, self._weights, words)


def _question(
    segments: Sequence[RowBlock],
    query: str,
    calendar: Calendar,
    now: datetime,
    own: OwnName | None,
    memories: Sequence[Block] = (),
) -> Query:
    # Imported late: the rules compile many patterns.
    from memory_pipeline.models.deterministic.language.question_dates import date_ranges

    speakers = dict.fromkeys(name for segment in segments for name in segment.speakers)
    times = [
        Named(
            Window(
                one.day, one.last, calendar.instant("first", one.day), calendar.instant("last", one.last, is_end=True)
            ),
            one.start,
            one.end,
        )
        for one in date_ranges(query, calendar.day_of(now))
    ]
    return Query.of(
        query,
        speakers,
        times=times,
        is_known=lambda word: any(
            len(segment.holding(word)) for segment in (*segments, *(block.segment for block in memories))
        ),
        addressed=lambda name: speaker_addressed(segments, name),
        own=own,
    )


_COPIED: Final = ("id", "period", "kind", "content", "starts_at", "ends_at", "conversation_id", "identity")


class Later(NamedTuple):
    """A later hit of the same search."""

    id: str
    date: date


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result.

    Attributes:
        id: id of the fact, summary or durable memory; :meth:`MemoryReader.expand` accepts it.
        grain, period: the partition of the row; the grain of a durable memory is ``durable``, that of an
            entry of a session or pool ``session``.
        kind: kind of a fact (turn, statement, …) or a durable memory (instruction, rule, …), or ``summary``.
        content: the text; of a fact, it begins with the speaker. A query shortens a long message to the passage that
            answers, about 60 words; :meth:`MemoryReader.expand` returns all of it.
        starts_at, ends_at: of a summary, the half-open range that it covers, UTC; of a fact, both are the time it was
            said; of a durable memory, when it was first and last said.
        date: the day of `starts_at` in the lake's time zone; of a durable memory, the day of `ends_at`.
        source_ids: a fact's messages, or a summary's facts or finer summaries.
        conversation_id: the conversation of a fact.
        score: how well it fits the query, 0 to 1, comparable between searches
            (:mod:`memory_pipeline.domain.text.calibration`); 0 without a query.
        parts: with ``explain``, the contribution of each signal
            (:class:`memory_pipeline.domain.text.ranking.Weights`); hits are ranked by the sum.
        is_excerpt: whether `content` is a passage of a longer text.
        later: a later hit among the ten best in which a user gives other numbers for the same thing, or None.
        identity: the user or group whose memory it is from: ``user:`` or ``group:`` and an id; empty for the agent's
            own memory.
        said_by: who said it, to the user of the reader; None of a summary, which has the words of several, and of an
            entry of a session.
        source: where the conversation of a fact comes from, as its writer said, or None.
        metadata: of the message of a fact, as its writer gave it.
    """

    id: str
    grain: Grain | Literal["durable", "session"]
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
    identity: str = ""
    said_by: Authority | None = None
    source: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, grain: Grain, choice: Choice, calendar: Calendar, score: float = 0.0, reader: str | None = None) -> Hit:
        """Return a row of a grain, or a durable memory that was ranked among them, as a hit for a user who reads."""
        row, later, is_memory = choice.row, choice.later, MADE_OF in choice.row
        if is_memory:
            row = row | {"starts_at": row["created_at"], "source_ids": row[MADE_OF] or ()}
        source, metadata = attributes_in(row["tags"])
        return cls(
            **{name: row[name] for name in _COPIED},
            grain="durable" if is_memory else grain,
            date=calendar.day_of(row["ends_at"] if is_memory else row["starts_at"]),
            source_ids=tuple(row["source_ids"]),
            score=round(score, 4),
            parts=choice.parts,
            is_excerpt=choice.is_excerpt,
            later=None if later is None else Later(later["id"], calendar.day_of(later["starts_at"])),
            said_by=choice.said_by(reader),
            source=source,
            metadata=metadata,
        )

    @classmethod
    def of_memory(
        cls,
        id: str,  # noqa: A002  # the attribute's name
        memory: DurableMemory,
        calendar: Calendar,
        identity: str = "",
        reader: str | None = None,
    ) -> Hit:
        """Return a durable memory as a hit for a user who reads; `id` may name one of its versions."""
        return cls(
            id=id,
            grain="durable",
            period=Reference.parse(memory.id).period.key,
            kind=memory.kind.value,
            content=memory.content,
            starts_at=memory.created_at,
            ends_at=memory.updated_at,
            date=calendar.day_of(memory.updated_at),
            source_ids=memory.source_ids,
            conversation_id=None,
            score=0.0,
            identity=identity,
            said_by=authority_of(memory.source_type, memory.editor, memory.content, identity, reader),
        )

    @property
    def attribution(self) -> str:
        """The words that tell who said it, if its text does not; a message begins with its speaker."""
        speaks = self.grain is Grain.WORKING and self.said_by in {Authority.MEMBER, Authority.ASSISTANT}
        return "" if self.said_by is None or speaks else self.said_by.attribution

    @property
    def line(self) -> str:
        """The text with its date and the day of the later hit: ``[2024-01-15] Anna: I moved to Porto.``."""
        return f"[{self.date}] {self.content}{f' ({self.later_note})' if self.later else ''}"

    @property
    def later_note(self) -> str:
        """The day of the later hit: ``later: 2024-02-01``; empty without one."""
        return f"later: {self.later.date}" if self.later else ""

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ [2024-01-15] Anna: I moved to Porto.``."""
        return mark_lines(self.line)


class Hits(list[Hit]):
    """One page of hits, best first; without a query, newest first.

    Attributes:
        total: number of memories that pass the filters, on all pages. A message counts once, together with its facts.
        offset: number of hits before this page.
        older: number of memories that only the start of the time range leaves out; with a query, of those that share a
            word with it. A table that is searched on disk counts none.
    """

    def __init__(self, hits: Iterable[Hit] = (), total: int = 0, offset: int = 0, older: int = 0) -> None:
        super().__init__(hits)
        self.total = total
        self.offset = offset
        self.older = older

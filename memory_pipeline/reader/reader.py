"""Searches one agent's memory, and walks from a summary down to what was said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.grains import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.ranking import Question, weights_for
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.selection import reading_embedder
from memory_pipeline.reader import selection
from memory_pipeline.reader.arguments import MAX_DAYS_AGO, MAX_OFFSET, MAX_RESULTS, count_of, filter_of, query_of
from memory_pipeline.reader.hits import Hit, Hits
from memory_pipeline.reader.recall import POINTS, Recollection, choose, considered, recalled, together
from memory_pipeline.reader.resident import DEFAULT_ROWS, Resident
from memory_pipeline.reader.scoring import score
from memory_pipeline.reader.segment import Segment
from memory_pipeline.reader.tail import Tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.filters import Filter
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.reader.scoring import Scored
    from memory_pipeline.reader.selection import Choice

#: Of a table that is too large to be held: rows taken from the index by vector and by words, for each result.
_OVERFETCH, _LEAST_CANDIDATES = 5, 200


class MemoryReader:
    """Reads one agent's memory. It cannot reach another agent's: every path it opens is built from its own scope.

    What was written a moment ago is found too: the journal's unprocessed tail is searched with the index. Safe to use
    from several threads; a reader that is kept open answers faster than a new one.

    Args:
        lake: where.
        scope: whose.
        embedder: what the pipeline uses.
        resident_rows: how many rows of the index are held in memory; larger tables are searched on disk.
    """

    def __init__(self, lake: Lake, scope: Scope, embedder: Embedder, *, resident_rows: int = DEFAULT_ROWS) -> None:
        self._lake = lake
        self._scope = scope
        self._embedder = embedder
        self._weights = weights_for(embedder.name)
        self._tail = Tail(lake, scope, embedder)
        self._resident = Resident(lake.index, scope, embedder.dimension, resident_rows, lake.calendar)

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        workspace_id: str,
        agent_id: str,
        embedder: Embedder | None = None,
        resident_rows: int = DEFAULT_ROWS,
    ) -> MemoryReader:
        """Open the memory of one agent in the lake at `uri`. An agent that was never written of has none.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: whose memory.
            agent_id: likewise.
            embedder: what the pipeline uses; the one of the lake's config/workspaces.yaml if not given.
            resident_rows: how many rows of the index are held in memory; larger tables are searched on disk.

        Raises:
            InputError: an id is not accepted.
            ConfigurationError: the address or the lake's configuration is not accepted.
        """
        lake = Lake(uri)
        scope = Scope(workspace_id, agent_id)
        embedder = embedder or reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
        return cls(lake, scope, embedder, resident_rows=resident_rows)

    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query_text: str | None = None,
        *,
        since: date | None = None,
        until: date | None = None,
        person: str | None = None,
        kind: FactKind | str | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        minimum_importance: float | None = None,
        offset: int = 0,
        explain: bool = False,
        now: datetime | None = None,
    ) -> Hits:
        """Return what is remembered at one grain of a range of days.

        With a query, the best matches by words and vectors come first (by words alone if the embedder fails, which the
        log tells); without one, the newest. All filters are applied before anything is counted, and all that are given
        must be fulfilled. A summary's age counts from the end of its period, a fact's from when it was said; both ends
        of the range are included. A message gives at most one hit.

        Args:
            grain: working, daily, weekly, monthly, quarterly or yearly.
            minimum_days_ago: age in days of the newest memory wanted.
            maximum_days_ago: age in days of the oldest memory wanted, at most a century.
            max_results: 1 to 100.
            query_text: what to look for, at most 10,000 characters; None or blank looks for nothing in particular.
            since: the oldest memory wanted, in place of `maximum_days_ago`: a date in the lake's time zone, or a time
                with its zone.
            until: the newest memory wanted, in place of `minimum_days_ago`; a date includes its whole day.
            person: who said it or is named in it; one word of the name is enough, case and accents do not matter.
            kind: of facts: turn, statement, event, plan, preference, instruction or gist.
            conversation_id: the conversation that a fact comes from.
            tag: a tag of that conversation.
            minimum_importance: 0 to 1.
            offset: how many hits to leave out, at most 10,000: 10 is the second page of 10.
            explain: tell of each hit what its score is made of.
            now: the time from which ages count; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; the message names it.
            ConfigurationError: the index was made with another embedder than the reader's.
        """
        grain = Grain.parse(grain)
        where = self._filter(
            minimum_days_ago,
            maximum_days_ago,
            since,
            until,
            kind,
            person,
            conversation_id,
            tag,
            minimum_importance,
            now,
        )
        count_of("max_results", max_results, 1, MAX_RESULTS)
        wanted = count_of("offset", offset, 0, MAX_OFFSET) + max_results
        query = query_of(query_text)
        if query is None and grain is Grain.WORKING and where.kind is None:
            where = replace(where, kind=FactKind.TURN)  # else its sentences would stand beside each message
        if query is not None:
            self._lake.index.check(self._embedder)
        segments, total = self._segments(grain, where, wanted, query)
        masks = [where.mask(segment.rows) for segment in segments]
        if query is None:
            chosen = selection.newest(segments, masks, wanted)
        else:
            scored = self._rank(segments, masks, wanted, query)
            chosen = selection.best(segments, scored, wanted, self._weights, explain=explain)
        hits = [self._hit(grain, choice) for choice in chosen[offset:]]
        return Hits(hits, selection.total(segments, masks) if total is None else total, offset)

    def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        since: date | None = None,
        until: date | None = None,
        person: str | None = None,
        tag: str | None = None,
        minimum_importance: float | None = None,
        now: datetime | None = None,
    ) -> Recollection:
        """Return what all grains remember of a question, best first, within one budget of tokens.

        Nothing is told twice: no summary stands beside something that it was made from. Facts come first, summaries
        tell of what is remembered only there. The same memory gives the same answer.

        Args:
            query: what to look for, at most 10,000 characters.
            max_tokens: what the text of the answer may take, estimated at 4 bytes a token; at most a million.
            since: the oldest memory wanted: a date in the lake's time zone, or a time with its zone.
            until: the newest; a date includes its whole day.
            person: who said it or is named in it.
            tag: of a conversation; summaries have none.
            minimum_importance: 0 to 1.
            now: the time until which is remembered; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; the message names it.
            ConfigurationError: the index was made with another embedder than the reader's.
        """
        text = query_of(query)
        if text is None:
            raise InputError("query is blank; recall needs a question, search_memory shows the newest without one")
        count_of("max_tokens", max_tokens, 1, 1_000_000)
        where = self._filter(0, MAX_DAYS_AGO, since, until, None, person, None, tag, minimum_importance, now)
        self._lake.index.check(self._embedder)
        wanted = considered(max_tokens)
        facts, _ = self._segments(Grain.WORKING, where, wanted, text)
        summaries = {grain: part for grain in SUMMARY_GRAINS if (part := self._resident.points(grain)) is not None}
        segments = [*facts, *summaries.values()]
        ranking = self._rank(segments, [where.mask(segment.rows) for segment in segments], wanted, text)
        calendar, weights = self._lake.calendar, self._weights
        said = selection.best(facts, ranking[: len(facts)], wanted, weights)
        points = [
            recalled(grain, selection.best([segment], [scored], POINTS, weights), calendar)
            for (grain, segment), scored in zip(summaries.items(), ranking[len(facts) :], strict=True)
        ]
        return choose(recalled(Grain.WORKING, said, calendar), together(*points), calendar, max_tokens)

    def expand(self, id: str) -> Node:  # noqa: A002  # the name that every store gives it
        """Return a summary, a fact or a message with all that it rests on, down to the messages.

        Args:
            id: of a hit; or ``{summary id}#{n}``, which follows the summary's n-th point alone.

        Raises:
            InputError: it is no id, or this agent has nothing by that id.
        """
        from memory_pipeline.reader.lineage import expand

        return expand(self._lake, self._scope, id)

    def _filter(
        self,
        minimum_days_ago: float,
        maximum_days_ago: float,
        since: date | None,
        until: date | None,
        kind: FactKind | str | None,
        person: str | None,
        conversation_id: str | None,
        tag: str | None,
        minimum_importance: float | None,
        now: datetime | None,
    ) -> Filter:
        return filter_of(
            self._lake.calendar,
            now or datetime.now(UTC),
            minimum_days_ago,
            maximum_days_ago,
            since,
            until,
            kind=kind,
            labels={"person": person, "conversation_id": conversation_id, "tag": tag},
            minimum_importance=minimum_importance,
        )

    def _segments(
        self, grain: Grain, where: Filter, wanted: int, query: str | None
    ) -> tuple[list[Segment], int | None]:
        """Return what to choose from, and, where that is only a part of what passes, how much passes.

        The tail is read before the index; see :class:`Tail`.
        """
        tail = self._tail.segment() if grain is Grain.WORKING else None
        segments = [] if tail is None else [tail]
        held = self._resident.segment(grain)
        if held is not None:
            return [*segments, held], None
        index, scope = self._lake.index, self._scope
        if query is None:
            found = index.newest(scope, grain, where, wanted)
        else:
            limit = max(_LEAST_CANDIDATES, _OVERFETCH * wanted)
            found = index.search(scope, grain, where, limit, self._embedded(query), query)
        counted = where if grain is not Grain.WORKING or where.kind else replace(where, kind=FactKind.TURN)
        total = index.count(scope, grain, counted) + selection.total(segments, [where.mask(s.rows) for s in segments])
        return [*segments, Segment.of(found, self._embedder.dimension)], total

    def _rank(self, segments: list[Segment], masks: list[NDArray[np.bool_]], wanted: int, query: str) -> list[Scored]:
        question = Question.of(query, dict.fromkeys(name for segment in segments for name in segment.speakers))
        return score(question, segments, self._embedded(question.bare), masks, wanted, self._weights)

    def _embedded(self, text: str) -> NDArray[np.float32] | None:
        vector = self._embedder.embed([text])[0]
        return None if np.isnan(vector[0]) else vector

    def _hit(self, grain: Grain, choice: Choice) -> Hit:
        row = choice.row
        return Hit(
            id=row["id"],
            grain=grain,
            period=row["period"],
            kind=row["kind"],
            content=row["content"],
            starts_at=row["starts_at"],
            ends_at=row["ends_at"],
            date=self._lake.calendar.day_of(row["starts_at"]),
            source_ids=tuple(row["source_ids"]),
            conversation_id=row["conversation_id"],
            score=round(choice.score, 4),
            parts=choice.parts,
        )

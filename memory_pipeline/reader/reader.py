"""Searches one agent's memory, and walks from a summary down to what was said."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_pipeline.domain.conversations import CLOCK_SKEW, Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.ranking import Candidate, scores
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.lake.vectors import Filter
from memory_pipeline.models.selection import reading_embedder
from memory_pipeline.reader.tail import Tail

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.reader.lineage import Node

#: Longest range of days that a search accepts: a century.
MAX_DAYS_AGO = 36_525
#: Most results that a search returns, and longest query text in characters.
MAX_RESULTS, MAX_QUERY = 100, 10_000

#: Candidates taken from the index by vector and by words, for each result that is asked for.
_OVERFETCH, _LEAST_CANDIDATES = 5, 60


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing remembered.

    Attributes:
        id: of the fact or summary; :meth:`MemoryReader.expand` takes it.
        grain, period: the partition that it lies in.
        kind: of a fact (turn, statement, …), or ``summary``.
        content: the text, beginning with who said it where it is a fact.
        starts_at, ends_at: the half-open range that a summary covers, UTC; of a fact, both when it was said.
        date: the first day of that range, in the lake's time zone.
        source_ids: what it rests on: messages of a fact, facts or finer summaries of a summary.
        conversation_id: of a fact.
        score: how well it fits the query, to compare hits of one search; 0 where there was no query.
    """

    id: str
    grain: Grain
    period: str
    kind: str
    content: str
    starts_at: datetime
    ends_at: datetime
    date: date
    source_ids: tuple[str, ...]
    conversation_id: str | None
    score: float

    def __str__(self) -> str:
        """Return the hit as a line: ``[2024-01-15] Anna: I moved to Porto.``."""
        return f"[{self.date}] {self.content}"


class MemoryReader:
    """Reads one agent's memory. It cannot reach another agent's: every path it opens is built from its own scope.

    What was written a moment ago is found too: the journal's unprocessed tail is searched with the index.
    """

    def __init__(self, lake: Lake, scope: Scope, embedder: Embedder) -> None:
        self._lake = lake
        self._scope = scope
        self._embedder = embedder
        self._tail = Tail(lake, scope, embedder)

    @classmethod
    def open(cls, uri: str, *, workspace_id: str, agent_id: str, embedder: Embedder | None = None) -> MemoryReader:
        """Open the memory of one agent in the lake at `uri`. An agent that was never written of has none.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: whose memory.
            agent_id: likewise.
            embedder: what the pipeline uses; the one of the lake's config/workspaces.yaml if not given.

        Raises:
            InputError: an id is not accepted.
            ConfigurationError: the address or the lake's configuration is not accepted.
        """
        lake = Lake(uri)
        scope = Scope(workspace_id, agent_id)
        return cls(lake, scope, embedder or reading_embedder(lake.configuration(), lambda: datetime.now(UTC)))

    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query_text: str | None = None,
        *,
        now: datetime | None = None,
    ) -> list[Hit]:
        """Return what is remembered at one grain of a range of days.

        With a query, the best matches by words and vectors come first (by words alone if the embedder fails, which the
        log tells); without one, the newest. The range is applied
        before anything is counted. A summary's age counts from the end of its period, a fact's from when it was said;
        both ends of the range are included. A message gives at most one hit.

        Args:
            grain: working, daily, weekly, monthly, quarterly or yearly.
            minimum_days_ago: age in days of the newest memory wanted.
            maximum_days_ago: age in days of the oldest memory wanted, at most a century.
            max_results: 1 to 100.
            query_text: what to look for, at most 10,000 characters; None or blank looks for nothing in particular.
            now: the time from which ages count; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; the message names it.
            ConfigurationError: the index was made with another embedder than the reader's.
        """
        grain = Grain.parse(grain)
        where = _filter(minimum_days_ago, maximum_days_ago, now or datetime.now(UTC))
        if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= MAX_RESULTS:
            raise InputError(f"max_results {shown(max_results)} is not accepted; expected 1 to {MAX_RESULTS}")
        query = _query(query_text)
        if query is None and grain is Grain.WORKING:
            where = replace(where, kind=FactKind.TURN)  # else its sentences would stand beside each message

        # The tail first: what is acknowledged in between is then found twice, not missed.
        if query is None:
            tail = self._tail.newest(where, max_results) if grain is Grain.WORKING else []
            rows = _rows([*tail, self._lake.index.newest(self._scope, grain, where, max_results)])
            rows.sort(key=lambda row: (-row["ends_at"].timestamp(), row["id"]))
            return [self._hit(grain, row, 0.0) for row in rows[:max_results]]

        self._lake.index.check(self._embedder)
        embedded = self._embedder.embed([query])[0]
        vector = None if np.isnan(embedded[0]) else embedded
        limit = max(_LEAST_CANDIDATES, _OVERFETCH * max_results)
        tail = self._tail.matching(where, limit, vector, query) if grain is Grain.WORKING else []
        rows = _rows([*tail, self._lake.index.search(self._scope, grain, where, limit, vector, query)])
        if not rows:
            return []
        similarity = _similarity(rows, vector)
        ranked = scores(query, [Candidate(row["content"], near) for row, near in zip(rows, similarity, strict=True)])
        best: dict[tuple[str, ...], tuple[float, dict[str, Any]]] = {}
        for score, row in sorted(zip(ranked, rows, strict=True), key=lambda pair: (-pair[0], pair[1]["id"])):
            best.setdefault(tuple(row["source_ids"]) if grain is Grain.WORKING else (row["id"],), (score, row))
        return [self._hit(grain, row, score) for score, row in list(best.values())[:max_results]]

    def expand(self, id: str) -> Node:  # noqa: A002  # the name that every store gives it
        """Return a summary, a fact or a message with all that it rests on, down to the messages.

        Args:
            id: of a hit; or ``{summary id}#{n}``, which follows the summary's n-th point alone.

        Raises:
            InputError: it is no id, or this agent has nothing by that id.
        """
        from memory_pipeline.reader.lineage import expand

        return expand(self._lake, self._scope, id)

    def _hit(self, grain: Grain, row: dict[str, Any], score: float) -> Hit:
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
            score=round(score, 4),
        )


def _similarity(rows: list[dict[str, Any]], vector: NDArray[np.float32] | None) -> list[float]:
    """Return how near each row is to the query; what has no vector is as near as the others are on average."""
    if vector is None:
        return [0.0] * len(rows)
    absent = [math.nan] * len(vector)
    near = np.array([row["vector"] or absent for row in rows], np.float32) @ vector
    known = near[~np.isnan(near)]
    return [float(value) for value in np.nan_to_num(near, nan=float(known.mean()) if len(known) else 0.0)]


def _rows(tables: list[pa.Table]) -> list[dict[str, Any]]:
    """Return the rows of all tables, each id once."""
    return list({row["id"]: row for table in tables for row in table.to_pylist()}.values())


def _filter(minimum: float, maximum: float, now: datetime) -> Filter:
    if now.tzinfo is None:
        raise InputError(f"now {now.isoformat()} has no time zone")
    for name, days in (("minimum_days_ago", minimum), ("maximum_days_ago", maximum)):
        if isinstance(days, bool) or not isinstance(days, int | float) or not math.isfinite(days):
            raise InputError(f"{name} {shown(days)} is not a number of days")
        if not 0 <= days <= MAX_DAYS_AGO:
            raise InputError(f"{name} {days} is out of range; accepted: 0 to {MAX_DAYS_AGO}")
    if minimum > maximum:
        raise InputError(f"minimum_days_ago {minimum} is greater than maximum_days_ago {maximum}")
    Calendar().hour(now)  # refuses years that nobody remembers
    # What lies a little ahead of this clock is 0 days old.
    until = now - timedelta(days=minimum) if minimum else now + CLOCK_SKEW
    return Filter(since=now - timedelta(days=maximum), until=until)


def _query(text: str | None) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_QUERY:
        raise InputError(
            f"query_text {shown(text)} is not accepted; expected a text of at most {MAX_QUERY:,} characters"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"query_text {shown(text)} is not valid Unicode text") from None
    return text.replace("\x00", " ").strip() or None

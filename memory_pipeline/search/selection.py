"""Select rows from scored ones: each message once, and not all from one talk."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.authority import Authority, authority_of
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.passages import WHOLE_WORDS, excerpt
from memory_pipeline.domain.text.foreign_text import own_text
from memory_pipeline.lake.index.index_rows import SUMMARY
from memory_pipeline.search.copies import MADE_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.text.ranking import Weights
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored

#: Rows of each segment that are considered first, per result and at least; more if needed.
_MARGIN, _LEAST = 4, 60
_SHOWN = [
    "id", "period", "kind", "content", "starts_at", "ends_at", "conversation_id", "speaker", "role", "tags",
    "source_ids",
]  # fmt: skip
#: Columns of durable memories alone.
_OF_MEMORIES = ["created_at", "source_type", "editor", MADE_OF]
#: The whole text of a message that is cut to a passage.
_MESSAGE = "message"
#: Characters of a message that is shown whole.
_SHORT = 120
_DAY = 86_400_000_000  # microseconds
_ADDED_DATE = re.compile(r" \[\d{4}[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Choice:
    """A selected row.

    Attributes:
        row: the columns of the index that are shown and compared, and the identity of the scope.
        parts: the contribution of each signal to the score, if requested.
        is_excerpt: whether the content is cut to the passage that answers.
        later: the row of a later choice with other numbers for the same thing.
    """

    row: dict[str, Any]
    score: float
    parts: Mapping[str, float] | None = None
    is_excerpt: bool = False
    later: Mapping[str, Any] | None = None

    def excerpted(self, matches: Callable[[str], Mapping[int, float]]) -> Choice:
        """Return the choice with the best passage of its text, if the text is long."""
        content = self.row["content"]
        if len(content) <= WHOLE_WORDS:  # even with one letter per word, it is short
            return self
        # A fact from a model may not begin with its speaker.
        speaker = f"{self.row['speaker']}: " if content.startswith(f"{self.row['speaker']}: ") else ""
        text = content.removeprefix(speaker)
        part = excerpt(text, lambda passage: sum(matches(passage).values()))
        if part == text:
            return self
        return replace(self, row=self.row | {"content": f"{speaker}{part}", _MESSAGE: text}, is_excerpt=True)

    def said_by(self, reader: str | None) -> Authority | None:
        """Return who said it, to a user who reads; None for a summary, which has the words of several."""
        row = self.row
        if row["kind"] == SUMMARY:
            return None
        origin = row.get("source_type") or row["role"] or Role.USER  # older rows have no role
        found = authority_of(origin, row.get("editor", ""), row["content"], row["identity"], reader)
        if row["kind"] != FactKind.TURN or found not in {Authority.USER, Authority.MEMBER}:
            return found
        text = row["content"].removeprefix(f"{row['speaker']}: ")
        own = set(own_text(row.get(_MESSAGE, text)).split())
        words = text.split()
        return found if 2 * sum(word in own for word in words) >= len(words) else Authority.PASTED


#: Number of best facts that are compared. Two have the same topic if they share this fraction of the best one's words.
COMPARED, _SAME = 10, 0.7
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")


def with_later(facts: list[Choice], matches: Callable[[str], Mapping[int, float]]) -> list[Choice]:
    """Add to each fact the later fact on the same topic in which a user gives other numbers."""
    with_numbers = [
        (place, one.row, numbers)
        for place, one in enumerate(facts[:COMPARED])
        if one.row["role"] != Role.ASSISTANT and (numbers := _numbers(one.row))
    ]
    later = {
        place: others
        for place, row, numbers in with_numbers
        if (
            others := [
                (other_place, other)
                for other_place, other, named in with_numbers
                if other["starts_at"] > row["starts_at"] and numbers - named and named - numbers
            ]
        )
    }
    if not later:
        return facts
    words = {place: matches(row["content"]) for place, row, _ in with_numbers}
    enough = _SAME * max(sum(each.values()) for each in words.values())
    found = list(facts)
    for place, others in later.items():
        mine = words[place]
        shared, _, latest = max(
            (
                (sum(mine[word] for word in mine.keys() & words[there].keys()), other["starts_at"], other)
                for there, other in others
            ),
            key=lambda each: each[:2],
        )
        if shared >= enough > 0:
            found[place] = replace(found[place], later=latest)
    return found


def _numbers(row: Mapping[str, Any]) -> frozenset[str]:
    """Return the numbers in a text, except in dates that were added to it."""
    content = row["content"]
    return frozenset(_NUMBERS.findall(_ADDED_DATE.sub("", content) if "[" in content else content))


class _Candidate(NamedTuple):
    """A row that may be selected. `place` is its index among the segment's scored rows."""

    score: float
    id: str
    sources: object
    talk: object
    segment: int
    place: int


def best(
    segments: Sequence[RowBlock],
    scored: Sequence[Scored],
    count: int,
    weights: Weights,
    *,
    explain: bool = False,
    whole: bool = False,
) -> list[Choice]:
    """Return up to `count` rows, best first, each message once; if `whole`, a short message instead of a part of it.

    Each hit of a talk lowers the score of the next ones (:attr:`Weights.repeats`). Ties are ordered by id.
    """
    considered = max(_LEAST, _MARGIN * count)
    while True:
        candidates, others = _highest(segments, scored, considered)
        chosen = _taken(candidates, count, weights)
        # Rows not considered yet may be better than ones with a penalty for repeats.
        if others == -np.inf or (len(chosen) == count and chosen[-1][0].score + chosen[-1][1] > others):
            break
        considered *= 4
    rows = _rows(segments, scored, [candidate for candidate, _ in chosen], whole=whole)
    return [
        Choice(
            rows[candidate.id],
            candidate.score + penalty,
            {**scored[candidate.segment].parts(candidate.place, weights), "repeats": penalty} if explain else None,
        )
        for candidate, penalty in chosen
    ]


def _highest(segments: Sequence[RowBlock], scored: Sequence[Scored], count: int) -> tuple[list[_Candidate], float]:
    """Return the best rows of at least `count` messages of each segment, ties included, and the next best score."""
    candidates: list[_Candidate] = []
    others = -np.inf
    alone = len(segments) == 1  # then the segment's codes identify messages and talks
    for number, (segment, part) in enumerate(zip(segments, scored, strict=True)):
        order = np.argsort(-part.totals, kind="stable")
        messages = segment.message[part.rows[order]]
        first = np.empty(segment.messages, np.intp)
        first[messages[::-1]] = np.arange(len(messages))[::-1]
        places = order[first[messages] == np.arange(len(messages))]
        if len(places) > count:
            enough = int(np.count_nonzero(part.totals[places] >= part.totals[places[count - 1]]))
            others = max(others, float(part.totals[places[enough]]) if enough < len(places) else -np.inf)
            places = places[:enough]
        rows = part.rows[places]
        candidates += map(
            _Candidate,
            part.totals[places].tolist(),
            segment.ids.take(pa.array(rows)).to_pylist(),
            segment.message[rows].tolist() if alone else _sources_of(segment, rows),
            segment.talk[segment.slot[rows]].tolist() if alone else _talks(segment, rows),
            [number] * len(places),
            places.tolist(),
        )
    candidates.sort(key=lambda candidate: (-candidate.score, candidate.id))
    # A message can be pending and in the index for a moment.
    unique: dict[object, _Candidate] = {}
    for candidate in candidates:
        unique.setdefault(candidate.sources, candidate)
    return list(unique.values()), others


def _sources_of(segment: RowBlock, rows: NDArray[np.intp]) -> list[tuple[str, ...]]:
    return list(map(tuple, segment.rows["source_ids"].take(pa.array(rows)).to_pylist()))


def _talks(segment: RowBlock, rows: NDArray[np.intp]) -> list[tuple[object, str, int]]:
    """Return scope, conversation and day of each row; a row without a conversation is a talk of its own."""
    taken = segment.rows.select(["id", "conversation_id", "starts_at"]).take(pa.array(rows))
    conversations = pc.coalesce(taken["conversation_id"], taken["id"]).to_pylist()
    days = (taken["starts_at"].cast(pa.int64()).to_numpy() // _DAY).tolist()
    return list(zip(repeat(segment.scope), conversations, days, strict=False))


def _taken(candidates: Sequence[_Candidate], count: int, weights: Weights) -> list[tuple[_Candidate, float]]:
    """Return up to `count` candidates, at each step the best remaining one, with its penalty for repeats."""
    scores = np.array([candidate.score for candidate in candidates])
    codes: dict[object, int] = {}
    talks = np.array([codes.setdefault(candidate.talk, len(codes)) for candidate in candidates])
    chosen: list[tuple[_Candidate, float]] = []
    repeats = np.zeros(len(candidates))
    for _ in range(min(count, len(candidates))):
        at = int(np.argmax(scores + weights.repeats * repeats))
        chosen.append((candidates[at], weights.repeats * float(repeats[at])))
        repeats[talks == talks[at]] += 1
        scores[at] = -np.inf
    return chosen


def _rows(
    segments: Sequence[RowBlock], scored: Sequence[Scored], candidates: Sequence[_Candidate], *, whole: bool
) -> dict[str, dict[str, Any]]:
    """Return the columns of candidates by their ids."""
    rows: dict[str, dict[str, Any]] = {}
    for number, (segment, part) in enumerate(zip(segments, scored, strict=True)):
        own = [candidate for candidate in candidates if candidate.segment == number]
        if own:
            shown = [*_SHOWN, *(name for name in _OF_MEMORIES if name in segment.rows.column_names)]
            columns = segment.rows.select(shown)
            places = part.rows[[candidate.place for candidate in own]]
            found = _read(columns.take(places))
            if whole:
                turns = _read(columns.take(segment.turns_of(places)))
                found = [_whole(row, turn) for row, turn in zip(found, turns, strict=True)]
            rows |= {one.id: row | {"identity": segment.identity} for one, row in zip(own, found, strict=True)}
    return rows


def _whole(row: dict[str, Any], turn: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a fact if it is short, in the same conversation, and holds the words of the fact."""
    text = turn["content"]
    is_whole = (
        turn["kind"] == FactKind.TURN
        and turn["source_ids"] == row["source_ids"]
        and len(text) <= _SHORT
        and _ADDED_DATE.sub("", row["content"].removeprefix(f"{row['speaker']}: ")) in text
    )
    return turn if is_whole else row


def _read(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table; Arrow's own conversion of UTC times would take most of the time."""
    columns = [_times(column) if pa.types.is_timestamp(column.type) else column.to_pylist() for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _times(column: pa.ChunkedArray) -> list[datetime | None]:
    naive = column.cast(pa.timestamp("us")).to_pylist()
    return [None if time is None else time.replace(tzinfo=UTC) for time in naive]


def newest(segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None], count: int) -> list[Choice]:
    """Return up to `count` rows that pass, newest first, ties by id. Each message appears once, preferably its turn."""
    rows: list[dict[str, Any]] = []
    for segment, mask in zip(segments, masks, strict=True):
        found = segment.rows.take(_latest(segment, _passing(segment, mask), count)).to_pylist()
        rows += (row | {"identity": segment.identity} for row in found)
    rows.sort(key=lambda row: (row["kind"] != FactKind.TURN, row["position"] or 0, row["id"]))
    unique: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        unique.setdefault(tuple(row["source_ids"]), row)
    chosen = sorted(unique.values(), key=lambda row: (-row["ends_at"].timestamp(), row["id"]))
    return [Choice(row, 0.0) for row in chosen[:count]]


def _latest(segment: RowBlock, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Return the latest rows of at least `count` messages; rows of one moment are included together."""
    ages = -segment.ends_at[rows]
    taken = count
    while taken < len(rows):
        oldest = np.partition(ages, taken - 1)[taken - 1]
        latest: NDArray[np.intp] = rows[ages <= oldest]
        if len(np.unique(segment.message[latest])) >= count:
            return latest
        taken *= 4
    return rows


def total(segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None]) -> int:
    """Return the number of messages of the rows of one scope that pass."""
    found = sum(_messages(segment, mask) for segment, mask in zip(segments, masks, strict=True))
    fewest_first = sorted(zip(segments, masks, strict=True), key=lambda each: len(each[0]))
    for number, few in enumerate(fewest_first):
        for many in fewest_first[number + 1 :]:
            found -= len(_shared(few, many))
    return found


def _messages(segment: RowBlock, mask: NDArray[np.bool_] | None) -> int:
    if mask is None:
        return segment.messages
    is_present = np.zeros(segment.messages, np.bool_)
    is_present[segment.message[mask]] = True
    return int(np.count_nonzero(is_present))


def _shared(
    few: tuple[RowBlock, NDArray[np.bool_] | None], many: tuple[RowBlock, NDArray[np.bool_] | None]
) -> set[tuple[str, ...]]:
    """Return the messages in both segments; only rows of equal times are compared."""
    (one, mask), (other, others) = few, many
    rows = _passing(one, mask)
    times = one.ends_at[rows]
    if not len(times):
        return set()
    within = (other.ends_at >= times.min()) & (other.ends_at <= times.max())
    beside = np.flatnonzero(within if others is None else within & others)
    beside = beside[np.isin(other.ends_at[beside], times)]
    return set(_sources_of(other, beside)) & set(_sources_of(one, rows)) if len(beside) else set()


def _passing(segment: RowBlock, mask: NDArray[np.bool_] | None) -> NDArray[np.intp]:
    return np.arange(len(segment)) if mask is None else np.flatnonzero(mask)

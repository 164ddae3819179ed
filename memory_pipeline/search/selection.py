"""Chooses rows among those that were scored: each message once, and not all from one talk."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Role
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.passages import WHOLE_WORDS, excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.text.ranking import Weights
    from memory_pipeline.search.row_block import RowBlock
    from memory_pipeline.search.scoring import Scored

#: So many rows of each segment are looked at first, for each that is wanted and at least; others if need be.
_MARGIN, _LEAST = 4, 60
#: What is read of rows that were chosen.
_SHOWN = [
    "id", "period", "kind", "content", "starts_at", "ends_at", "conversation_id", "speaker", "role", "source_ids",
]  # fmt: skip
_UTC = ZoneInfo("UTC")
_DAY = 86_400_000_000  # microseconds
_ADDED_DATE = re.compile(r" \[\d{4}[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Choice:
    """A row that was chosen.

    Attributes:
        row: of the index, what is shown of it and compared.
        score: what it was chosen by.
        parts: what each signal adds to the score, if that was asked for.
        is_excerpt: whether the content is cut to the passage that answers.
        later: the row of another that was said later and names other numbers for what is sought.
    """

    row: dict[str, Any]
    score: float
    parts: Mapping[str, float] | None = None
    is_excerpt: bool = False
    later: Mapping[str, Any] | None = None

    def excerpted(self, held: Callable[[str], Mapping[int, float]]) -> Choice:
        """Return it with the passage of its text that holds most of what is sought, if the text is long."""
        content = self.row["content"]
        if len(content) <= WHOLE_WORDS:  # of one letter each
            return self
        # A fact that a model wrote need not begin with its speaker.
        speaker = f"{self.row['speaker']}: " if content.startswith(f"{self.row['speaker']}: ") else ""
        text = content.removeprefix(speaker)
        part = excerpt(text, lambda passage: sum(held(passage).values()))
        if part == text:
            return self
        return replace(self, row=self.row | {"content": f"{speaker}{part}"}, is_excerpt=True)


#: So many of the best facts are compared. Two speak of the same if they share this much of what the best one holds.
COMPARED, _SAME = 10, 0.7
_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")


def with_later(facts: list[Choice], held: Callable[[str], Mapping[int, float]]) -> list[Choice]:
    """Return facts, each with the later one that shares most of what is sought, where a user names other numbers."""
    said = [
        (place, one.row, numbers)
        for place, one in enumerate(facts[:COMPARED])
        if one.row["role"] != Role.ASSISTANT and (numbers := _numbers(one.row))
    ]
    later = {
        place: others
        for place, row, numbers in said
        if (
            others := [
                (other_place, other)
                for other_place, other, named in said
                if other["starts_at"] > row["starts_at"] and numbers - named and named - numbers
            ]
        )
    }
    if not later:
        return facts
    words = {place: held(row["content"]) for place, row, _ in said}
    enough = _SAME * max(sum(each.values()) for each in words.values())
    found = list(facts)
    for place, others in later.items():
        own = words[place]
        shared, _, latest = max(
            (
                (sum(own[word] for word in own.keys() & words[there].keys()), other["starts_at"], other)
                for there, other in others
            ),
            key=lambda each: each[:2],
        )
        if shared >= enough > 0:
            found[place] = replace(found[place], later=latest)
    return found


def _numbers(row: Mapping[str, Any]) -> frozenset[str]:
    """Return the numbers in a text but those of dates that were added to it."""
    content = row["content"]
    return frozenset(_NUMBERS.findall(_ADDED_DATE.sub("", content) if "[" in content else content))


class _Candidate(NamedTuple):
    """A row that may be chosen: its score and id, its messages and talk, its segment and its place among the scored."""

    score: float
    id: str
    sources: object
    talk: object
    segment: int
    place: int


def best(
    segments: Sequence[RowBlock], scored: Sequence[Scored], count: int, weights: Weights, *, explain: bool = False
) -> list[Choice]:
    """Return up to `count` rows, best first, no two of them resting on the same messages.

    Each hit of a talk makes further ones of it less welcome (:attr:`Weights.repeats`). Equal scores are in the order of
    ids.
    """
    looked_at = max(_LEAST, _MARGIN * count)
    while True:
        candidates, others = _highest(segments, scored, looked_at)
        chosen = _taken(candidates, count, weights)
        # What was not looked at may be better than what repeats made less welcome.
        if others == -np.inf or (len(chosen) == count and chosen[-1][0].score + chosen[-1][1] > others):
            break
        looked_at *= 4
    rows = _rows(segments, scored, [candidate for candidate, _ in chosen])
    return [
        Choice(
            rows[candidate.id],
            candidate.score + lost,
            {**scored[candidate.segment].parts(candidate.place, weights), "repeats": lost} if explain else None,
        )
        for candidate, lost in chosen
    ]


def _highest(segments: Sequence[RowBlock], scored: Sequence[Scored], count: int) -> tuple[list[_Candidate], float]:
    """Return the best rows of at least `count` messages of each segment, best first, and the best score of the others.

    Of rows with equal scores all are looked at, or none.
    """
    candidates: list[_Candidate] = []
    others = -np.inf
    alone = len(segments) == 1  # then its own numbers tell messages and talks apart
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
            segment.message[rows].tolist() if alone else _told(segment, rows),
            segment.talk[segment.slot[rows]].tolist() if alone else _talks(segment, rows),
            [number] * len(places),
            places.tolist(),
        )
    candidates.sort(key=lambda candidate: (-candidate.score, candidate.id))
    # The tail and the index may both hold a message for a moment.
    unique: dict[object, _Candidate] = {}
    for candidate in candidates:
        unique.setdefault(candidate.sources, candidate)
    return list(unique.values()), others


def _told(segment: RowBlock, rows: NDArray[np.intp]) -> list[tuple[str, ...]]:
    """Return the messages that each row rests on."""
    return list(map(tuple, segment.rows["source_ids"].take(pa.array(rows)).to_pylist()))


def _talks(segment: RowBlock, rows: NDArray[np.intp]) -> list[tuple[str, int]]:
    """Return the conversation and the day of each row; what lies in none is a talk of its own."""
    taken = segment.rows.select(["id", "conversation_id", "starts_at"]).take(pa.array(rows))
    conversations = pc.coalesce(taken["conversation_id"], taken["id"]).to_pylist()
    return list(zip(conversations, (taken["starts_at"].cast(pa.int64()).to_numpy() // _DAY).tolist(), strict=True))


def _taken(candidates: Sequence[_Candidate], count: int, weights: Weights) -> list[tuple[_Candidate, float]]:
    """Return up to `count` candidates, the best of those that remain at each step, and what repeats add to each."""
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
    segments: Sequence[RowBlock], scored: Sequence[Scored], candidates: Sequence[_Candidate]
) -> dict[str, dict[str, Any]]:
    """Return the rows of candidates by their ids, each segment read once."""
    rows: dict[str, dict[str, Any]] = {}
    for number, (segment, part) in enumerate(zip(segments, scored, strict=True)):
        places = [candidate.place for candidate in candidates if candidate.segment == number]
        rows |= {row["id"]: row for row in _read(segment.rows.select(_SHOWN).take(part.rows[places]))} if places else {}
    return rows


def _read(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table; its own way of making times of UTC takes longer than all the rest."""
    columns = [_times(column) if pa.types.is_timestamp(column.type) else column.to_pylist() for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _times(column: pa.ChunkedArray) -> list[datetime | None]:
    naive = column.cast(pa.timestamp("us")).to_pylist()
    return [None if time is None else time.replace(tzinfo=_UTC) for time in naive]


def newest(segments: Sequence[RowBlock], masks: Sequence[NDArray[np.bool_] | None], count: int) -> list[Choice]:
    """Return up to `count` rows that pass, each message once, the newest first, in the order of ids where equal.

    A message is told by its turn, if that passes.
    """
    rows: list[dict[str, Any]] = []
    for segment, mask in zip(segments, masks, strict=True):
        rows += segment.rows.take(_latest(segment, _passing(segment, mask), count)).to_pylist()
    rows.sort(key=lambda row: (row["kind"] != FactKind.TURN, row["position"] or 0, row["id"]))
    unique: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        unique.setdefault(tuple(row["source_ids"]), row)
    chosen = sorted(unique.values(), key=lambda row: (-row["ends_at"].timestamp(), row["id"]))
    return [Choice(row, 0.0) for row in chosen[:count]]


def _latest(segment: RowBlock, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Return the latest of some rows, of at least `count` different messages; all of one moment, or none."""
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
    """Return how many different messages rows that pass rest on."""
    found = sum(_messages(segment, mask) for segment, mask in zip(segments, masks, strict=True))
    fewest_first = sorted(zip(segments, masks, strict=True), key=lambda each: len(each[0]))
    for number, few in enumerate(fewest_first):
        for many in fewest_first[number + 1 :]:
            found -= len(_shared(few, many))
    return found


def _messages(segment: RowBlock, mask: NDArray[np.bool_] | None) -> int:
    if mask is None:
        return segment.messages
    met = np.zeros(segment.messages, np.bool_)
    met[segment.message[mask]] = True
    return int(np.count_nonzero(met))


def _shared(
    few: tuple[RowBlock, NDArray[np.bool_] | None], many: tuple[RowBlock, NDArray[np.bool_] | None]
) -> set[tuple[str, ...]]:
    """Return the messages that two segments share; only what was said at the same times is looked at."""
    (one, mask), (other, others) = few, many
    rows = _passing(one, mask)
    times = one.ends_at[rows]
    if not len(times):
        return set()
    within = (other.ends_at >= times.min()) & (other.ends_at <= times.max())
    beside = np.flatnonzero(within if others is None else within & others)
    beside = beside[np.isin(other.ends_at[beside], times)]
    return set(_told(other, beside)) & set(_told(one, rows)) if len(beside) else set()


def _passing(segment: RowBlock, mask: NDArray[np.bool_] | None) -> NDArray[np.intp]:
    return np.arange(len(segment)) if mask is None else np.flatnonzero(mask)

"""Chooses rows among those that were scored: each message once, and not all from one talk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.ranking import Weights
    from memory_pipeline.reader.scoring import Scored
    from memory_pipeline.reader.segment import Segment

#: So many rows of each segment are looked at first, for each that is wanted and at least; others if need be.
_MARGIN, _LEAST = 4, 60
_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Choice:
    """A row that was chosen.

    Attributes:
        row: of the index, without vector and terms.
        score: what it was chosen by.
        parts: what each signal adds to the score, if that was asked for.
    """

    row: dict[str, Any]
    score: float
    parts: Mapping[str, float] | None = None


class _Candidate(NamedTuple):
    """A row that may be chosen: its score and id, its messages and talk, its segment and its place among the scored."""

    score: float
    id: str
    sources: tuple[str, ...]
    talk: tuple[str, int]
    segment: int
    place: int


def best(
    segments: Sequence[Segment], scored: Sequence[Scored], count: int, weights: Weights, *, explain: bool = False
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


def _highest(segments: Sequence[Segment], scored: Sequence[Scored], count: int) -> tuple[list[_Candidate], float]:
    """Return the best rows of at least `count` messages of each segment, best first, and the best score of the others.

    Of rows with equal scores all are looked at, or none.
    """
    candidates: list[_Candidate] = []
    others = -np.inf
    for number, (segment, part) in enumerate(zip(segments, scored, strict=True)):
        order = np.argsort(-part.totals, kind="stable")
        _, first = np.unique(segment.message[part.rows[order]], return_index=True)
        places = order[np.sort(first)]
        if len(places) > count:
            enough = int(np.count_nonzero(part.totals[places] >= part.totals[places[count - 1]]))
            others = max(others, float(part.totals[places[enough]]) if enough < len(places) else -np.inf)
            places = places[:enough]
        taken = segment.rows.select(["id", "source_ids", "conversation_id", "starts_at"]).take(part.rows[places])
        ids = taken["id"].to_pylist()
        days = taken["starts_at"].cast(pa.int64()).to_numpy() // _DAY
        talks = [
            conversation or id_ for conversation, id_ in zip(taken["conversation_id"].to_pylist(), ids, strict=True)
        ]
        candidates += map(
            _Candidate,
            part.totals[places].tolist(),
            ids,
            map(tuple, taken["source_ids"].to_pylist()),
            zip(talks, days.tolist(), strict=True),
            [number] * len(places),
            places.tolist(),
        )
    candidates.sort(key=lambda candidate: (-candidate.score, candidate.id))
    # The tail and the index may both hold a message for a moment.
    unique: dict[tuple[str, ...], _Candidate] = {}
    for candidate in candidates:
        unique.setdefault(candidate.sources, candidate)
    return list(unique.values()), others


def _taken(candidates: Sequence[_Candidate], count: int, weights: Weights) -> list[tuple[_Candidate, float]]:
    """Return up to `count` candidates, the best of those that remain at each step, and what repeats add to each."""
    scores = np.array([candidate.score for candidate in candidates])
    codes: dict[tuple[str, int], int] = {}
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
    segments: Sequence[Segment], scored: Sequence[Scored], candidates: Sequence[_Candidate]
) -> dict[str, dict[str, Any]]:
    """Return the rows of candidates by their ids, each segment read once."""
    rows: dict[str, dict[str, Any]] = {}
    for number, (segment, part) in enumerate(zip(segments, scored, strict=True)):
        places = [candidate.place for candidate in candidates if candidate.segment == number]
        rows |= {row["id"]: row for row in segment.rows.take(part.rows[places]).to_pylist()} if places else {}
    return rows


def newest(segments: Sequence[Segment], masks: Sequence[NDArray[np.bool_]], count: int) -> list[Choice]:
    """Return up to `count` rows that pass, each message once, the newest first, in the order of ids where equal."""
    rows: list[dict[str, Any]] = []
    for segment, mask in zip(segments, masks, strict=True):
        rows += segment.rows.take(_latest(segment, np.flatnonzero(mask), count)).to_pylist()
    rows.sort(key=lambda row: (-row["ends_at"].timestamp(), row["id"]))
    unique: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        unique.setdefault(tuple(row["source_ids"]), row)
    return [Choice(row, 0.0) for row in list(unique.values())[:count]]


def _latest(segment: Segment, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
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


def total(segments: Sequence[Segment], masks: Sequence[NDArray[np.bool_]]) -> int:
    """Return how many different messages rows that pass rest on."""
    found = 0
    for number, (segment, mask) in enumerate(zip(segments, masks, strict=True)):
        met = np.zeros(int(segment.message.max(initial=-1)) + 1, np.bool_)
        met[segment.message[mask]] = True
        found += int(met.sum())
        for earlier, passing in zip(segments[:number], masks, strict=False):
            found -= len(_beside(segment, mask, earlier, passing) & _beside(earlier, passing, segment, mask))
    return found


def _beside(
    segment: Segment, mask: NDArray[np.bool_], other: Segment, others: NDArray[np.bool_]
) -> set[tuple[str, ...]]:
    """Return the messages of rows that pass, of times at which rows of another segment pass too: seldom any."""
    times = other.ends_at[others]
    if not len(times):
        return set()
    rows = np.flatnonzero(mask & (segment.ends_at >= times.min()) & (segment.ends_at <= times.max()))
    rows = rows[np.isin(segment.ends_at[rows], times)]
    return set(map(tuple, segment.rows["source_ids"].take(rows).to_pylist()))

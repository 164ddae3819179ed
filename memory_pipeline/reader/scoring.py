"""Scores rows for a question: the signals of :class:`memory_pipeline.domain.ranking.Weights`, added up.

Two stages keep it fast while memory grows. Words, talks and signals that need only postings are worked out for all
rows that share a word with the question; the best of these, and the rows nearest by vector, are the candidates, and
these alone are compared exactly.

Statistics (how rare a word is, how long texts are, how near is usual) are those of all segments together, whatever is
filtered: a filter never changes a score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.ranking import K1, NEARBY, RELATED, WEIGHTS, B, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.ranking import Question
    from memory_pipeline.reader.segment import Segment

#: Candidates by words, and by vector, at least.
_CANDIDATES = 400
#: A word of more rows than this share tells nothing apart, if they are more than so many.
_TOO_COMMON, _COMMON_ROWS = 0.25, 2_000
SIGNALS = tuple(field.name for field in fields(Weights) if field.name != "repeats")


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates of one segment.

    Attributes:
        rows: their places in the segment, ascending.
        signals: of each row, before weighting; shape (signals, rows), in the order of :data:`SIGNALS`.
        totals: their scores, without what repeats take away.
    """

    rows: NDArray[np.intp]
    signals: NDArray[np.float32]
    totals: NDArray[np.float32]

    def parts(self, place: int, weights: Weights = WEIGHTS) -> Mapping[str, float]:
        """Return what each signal adds to the score of the candidate at `place`."""
        return {
            name: round(float(getattr(weights, name) * value), 4)
            for name, value in zip(SIGNALS, self.signals[:, place], strict=True)
        }


def score(
    question: Question,
    segments: Sequence[Segment],
    vector: NDArray[np.float32] | None,
    allowed: Sequence[NDArray[np.bool_] | None],
    least: int,
    weights: Weights = WEIGHTS,
) -> list[Scored]:
    """Return the best rows of each segment with their scores.

    Args:
        question: what is asked.
        segments: the rows of one agent.
        vector: of the question; None compares by words alone.
        allowed: for each segment which rows may be candidates; None for all.
        least: how many candidates are needed.
        weights: what each signal counts.
    """
    words = _words(question, segments)
    scorers = [_SegmentScorer(question, segment, words, segments) for segment in segments]
    best_talk = max((float(scorer.talk.max(initial=0.0)) for scorer in scorers), default=0.0)
    usual = _usual(segments, vector)
    return [
        scorer.scored(vector, usual, best_talk, mask, max(_CANDIDATES, 4 * least), weights)
        for scorer, mask in zip(scorers, allowed, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the question.

    Attributes:
        forms: it and the words that may stand for it, with what each counts.
        rarity: of the word itself, among rows.
        talk_rarity: likewise, among talks.
    """

    forms: tuple[tuple[str, float, float], ...]
    rarity: float


def _words(question: Question, segments: Sequence[Segment]) -> list[_Word]:
    total = sum(map(len, segments))
    too_common = max(_TOO_COMMON * total, _COMMON_ROWS)

    def held(word: str) -> int:
        return sum(len(segment.holding(word)) for segment in segments)

    words = []
    for term in question.terms:
        others = {other for segment in segments for other in question.alternatives(term, segment.vocabulary)}
        counts = {term: held(term), **{other: held(other) for other in sorted(others)}}
        forms = tuple(
            (form, 1.0 if form == term else RELATED, _rarity(count, total))
            for form, count in counts.items()
            if 0 < count <= too_common
        )
        if forms:
            rarity = forms[0][2] if forms[0][0] == term else RELATED * max(rarity for _, _, rarity in forms)
            words.append(_Word(forms, rarity))
    return words


def _rarity(holding: int, total: int) -> float:
    """Return the inverse document frequency of BM25, which is never negative."""
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def _usual(segments: Sequence[Segment], vector: NDArray[np.float32] | None) -> tuple[float, float]:
    """Return mean and standard deviation of how near rows are to a vector."""
    if vector is None:
        return 0.0, 1.0
    samples = [(segment.vectors.sample(vector), segment.vectors.present) for segment in segments]
    total = sum(present for _, present in samples)
    if not total:
        return 0.0, 1.0
    # However few rows of a segment are looked at, they stand for all of it.
    mean = sum(float(near.mean()) * present for near, present in samples if present) / total
    squares = sum(float(np.square(near - mean).mean()) * present for near, present in samples if present)
    spread = math.sqrt(squares / total)
    return mean, spread if spread > 1e-6 else 1.0


class _SegmentScorer:
    """Works out the signals of one segment's rows."""

    def __init__(
        self, question: Question, segment: Segment, words: Sequence[_Word], segments: Sequence[Segment]
    ) -> None:
        self._question = question
        self._segment = segment
        self._mean_length = sum(float(s.lengths.sum()) for s in segments) / max(sum(map(len, segments)), 1) or 1.0
        self._speaking = {speaker for s in segments for speaker in s.speakers}
        most = sum(word.rarity for word in words) or 1.0
        rows, slots = len(segment), segment.slots
        self.words = np.zeros(rows, np.float32)
        self.coverage = np.zeros(slots, np.float32)
        self.talk = np.zeros(segment.talks, np.float32)
        for word in words:
            self._add(word, most, sum(s.talks for s in segments), segments)

    def _add(self, word: _Word, most: float, talks: int, segments: Sequence[Segment]) -> None:
        """Add what one word of the question gives."""
        segment = self._segment
        found = np.zeros(len(segment), np.float32)
        strength = np.zeros(segment.slots, np.float32)
        in_talks = np.zeros(segment.talks, np.float32)
        for form, weight, rarity in word.forms:
            rows = segment.holding(form)
            if not len(rows):
                continue
            times = segment.times(form).astype(np.float32)
            damped = K1 * (1 - B + B * segment.lengths[rows] / self._mean_length)
            found[rows] = np.maximum(found[rows], weight * rarity * (K1 + 1) * times / (times + damped))
            slots = segment.slot[rows]
            strength[slots] = np.maximum(strength[slots], np.float32(weight))
            counts = np.bincount(segment.talk[slots], minlength=segment.talks).astype(np.float32)
            spoken = np.flatnonzero(counts)
            rare = _rarity(sum(s.talks_holding(form) for s in segments), talks)
            in_talks[spoken] = np.maximum(
                in_talks[spoken], weight * rare * (K1 + 1) * counts[spoken] / (counts[spoken] + K1)
            )
        self.words += found / most
        self.talk += in_talks
        holding = np.flatnonzero(strength)
        covered = strength.copy()
        for distance, share in enumerate(NEARBY, start=1):
            for step in (-distance, distance):
                whose, there = segment.neighbours(holding, step)
                covered[there] = np.maximum(covered[there], share * strength[holding[whose]])
        self.coverage += covered * (word.rarity / most)

    def scored(
        self,
        vector: NDArray[np.float32] | None,
        usual: tuple[float, float],
        best_talk: float,
        allowed: NDArray[np.bool_] | None,
        least: int,
        weights: Weights,
    ) -> Scored:
        """Return the best rows with all their signals."""
        segment = self._segment
        factors = np.array([getattr(weights, name) for name in SIGNALS], np.float32)
        rows = self._candidates(vector, allowed, least, weights)
        signals = self._signals(rows, vector, usual, best_talk)
        totals = factors @ signals
        if vector is not None:
            if len(rows) > least:
                kept = np.sort(np.argpartition(-totals, least)[:least])
                rows, signals = rows[kept], signals[:, kept]
            signals[SIGNALS.index("nearby")] = self._nearby(segment.slot[rows], vector, usual)
            totals = factors @ signals
        return Scored(rows, signals, totals)

    def _signals(
        self, rows: NDArray[np.intp], vector: NDArray[np.float32] | None, usual: tuple[float, float], best_talk: float
    ) -> NDArray[np.float32]:
        """Return all signals of `rows` but `nearby`."""
        segment = self._segment
        signals = np.zeros((len(SIGNALS), len(rows)), np.float32)
        given = dict(zip(SIGNALS, signals, strict=True))
        slots = segment.slot[rows]
        given["coverage"][:] = self.coverage[slots]
        given["words"][:] = self.words[rows]
        given["talk"][:] = self.talk[segment.talk[slots]] / (best_talk or 1.0)
        given["importance"][:] = segment.importance[rows]
        given["asks"][:] = segment.asks[rows]
        given["dated"][:] = segment.dated[rows] & self._question.asks_when
        given["counted"][:] = segment.counted[rows] & self._question.asks_how_many
        given["speaker"][:] = self._agreement()[segment.speaker[rows]]
        whose, before = segment.neighbours(slots, -1)
        given["answers"][whose] = np.where(segment.slot_asks[before], self._best_words(before), 0)
        if vector is not None:
            given["vector"][:] = self._near(rows, vector, usual)
        return signals

    def _near(
        self, rows: NDArray[np.intp], vector: NDArray[np.float32], usual: tuple[float, float]
    ) -> NDArray[np.float32]:
        """Return how much nearer rows are to a vector than usual; 0 where a row has none."""
        mean, spread = usual
        near = (self._segment.vectors.nearness(vector, rows) - np.float32(mean)) / np.float32(spread)
        return np.where(np.isnan(near), np.float32(0), near)

    def _nearby(
        self, slots: NDArray[np.int32], vector: NDArray[np.float32], usual: tuple[float, float]
    ) -> NDArray[np.float32]:
        """Return of each slot how near the nearest of its neighbours is."""
        segment = self._segment
        steps = [
            (share, *segment.neighbours(slots, step))
            for distance, share in enumerate(NEARBY, start=1)
            for step in (-distance, distance)
        ]
        wanted = np.unique(np.concatenate([there for _, _, there in steps]))
        rows, bounds = segment.rows_of(wanted)
        nearest = np.zeros(segment.slots, np.float32)
        if len(wanted):
            nearest[wanted] = np.maximum.reduceat(self._near(rows, vector, usual), bounds)
        found = np.zeros(len(slots), np.float32)
        for share, whose, there in steps:
            found[whose] = np.maximum(found[whose], share * nearest[there])
        return found

    def _candidates(
        self, vector: NDArray[np.float32] | None, allowed: NDArray[np.bool_] | None, least: int, weights: Weights
    ) -> NDArray[np.intp]:
        segment = self._segment
        if len(segment) <= least:
            chosen = np.arange(len(segment))
        else:
            rough = weights.coverage * self.coverage[segment.slot] + weights.words * self.words
            rough += weights.speaker * self._agreement()[segment.speaker] + weights.importance * segment.importance
            if allowed is not None:
                rough[~allowed] = -np.inf
            by_words = np.argpartition(-rough, least)[:least]
            by_vector = segment.vectors.nearest(vector, least, allowed) if vector is not None else by_words[:0]
            chosen = np.union1d(by_words, by_vector)
        return chosen if allowed is None else chosen[allowed[chosen]]

    def _agreement(self) -> NDArray[np.float32]:
        """Return for each speaker whether the question is about them; the last place is for rows without one."""
        about, speakers = self._question.about, self._segment.speakers
        if not about or len(self._speaking) < 2:
            return np.zeros(len(speakers) + 1, np.float32)
        if self._speaking.issubset(about):
            return np.array([0.5 if speaker == about[0] else -0.5 for speaker in speakers] + [0], np.float32)
        return np.array([1 if speaker in about else -1 for speaker in speakers] + [0], np.float32)

    def _best_words(self, slots: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the greatest BM25 among the rows of each slot."""
        segment = self._segment
        rows, bounds = segment.rows_of(slots)
        found: NDArray[np.float32] = np.maximum.reduceat(self.words[rows], bounds) if len(slots) else self.words[:0]
        return found

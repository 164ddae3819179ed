"""Score rows for a question: the sum of the signals of :class:`memory_pipeline.domain.text.ranking.Weights`.

Two stages keep this fast for a large memory. Words, talks and other signals from postings are computed for all rows
that share a word with the question. The best of these rows and the nearest by vector are the candidates; only they are
compared exactly.

Statistics (rarity of words, lengths of texts, usual nearness) cover all segments without filters: a filter never
changes a score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory_pipeline.domain.text.ranking import COVERAGE_POWER, K1, NEARBY, WEIGHTS, Weights, terms
from memory_pipeline.domain.text.spelling import pieces_of
from memory_pipeline.search.copies import MADE_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.text.ranking import Query, Window
    from memory_pipeline.search.row_block import RowBlock

_CANDIDATES = 600
#: Slots per candidate, the best by coverage and talk, that are compared by all signals except vectors.
_SLOTS = 8
#: Whole arrays are added, which is faster, if more than one place in this many is affected.
_DENSE = 10
#: Above this many values, a sample of the second size bounds the search for the highest.
_MANY, _SAMPLE = 50_000, 5_000
#: A word in more than this share of the rows is ignored, if the rows are more than the second number.
_TOO_COMMON, _COMMON_ROWS = 0.25, 2_000
SIGNALS = tuple(field.name for field in fields(Weights) if field.name != "repeats")


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates of one segment.

    Attributes:
        rows: their indices in the segment, ascending.
        signals: unweighted, shape (signals, rows), in the order of :data:`SIGNALS`.
        totals: sums of the weighted signals, without the penalty for repeats.
    """

    rows: NDArray[np.intp]
    signals: NDArray[np.float32]
    totals: NDArray[np.float32]

    def parts(self, place: int, weights: Weights = WEIGHTS) -> Mapping[str, float]:
        """Return the contribution of each signal to the score of the candidate at `place`."""
        return {
            name: round(float(getattr(weights, name) * value), 4)
            for name, value in zip(SIGNALS, self.signals[:, place], strict=True)
        }


def score(
    question: Query,
    segments: Sequence[RowBlock],
    vector: NDArray[np.float32] | None,
    allowed: Sequence[NDArray[np.bool_] | None],
    least: int,
    weights: Weights = WEIGHTS,
    words: Sequence[Word] | None = None,
) -> list[Scored]:
    """Return the best rows of each segment with their scores.

    `vector` None compares by words only. `allowed` has a mask of candidates for each segment; None allows all. `least`
    is the number of candidates needed.
    """
    words = words_of(question, segments) if words is None else words
    scorers = [_SegmentScorer(question, segment, words, segments) for segment in segments]
    best_talk = max((float(scorer.talk.max(initial=0.0)) for scorer in scorers), default=0.0)
    usual = _usual_nearness(segments, vector)
    return [
        scorer.scored(vector, usual, best_talk, mask, max(_CANDIDATES, 4 * least), weights)
        for scorer, mask in zip(scorers, allowed, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the question, or a time that it names, which counts like a word of all rows from that time.

    Attributes:
        forms: the word and its alternatives in memory, each with its weight and its rarity among rows; empty for an
            unknown word.
        rarity: rarity of the word itself among rows.
        term: the word; None for a time.
        count: number of rows that hold the word itself.
    """

    forms: tuple[tuple[str | Window, float, float], ...]
    rarity: float
    term: str | None = None
    count: int = 0

    @property
    def weight(self) -> float:
        """Its weight in the coverage of a question."""
        return float(self.rarity**COVERAGE_POWER)


def words_of(question: Query, segments: Sequence[RowBlock]) -> list[Word]:
    """Return the words of a question with their forms in memory, and the times that it names."""
    total = sum(map(len, segments))
    too_common = max(_TOO_COMMON * total, _COMMON_ROWS)

    def count_of(word: str | Window) -> int:
        return sum(len(segment.holding(word)) for segment in segments)

    words = []
    for term in question.terms:
        weights = {term: 1.0, **question.alternatives(term, [segment.vocabulary for segment in segments])}
        counts = {form: count_of(form) for form in weights}
        forms = tuple(
            (form, weights[form], _rarity(count, total)) for form, count in counts.items() if 0 < count <= too_common
        )
        if forms:
            rarity = forms[0][2] if forms[0][0] == term else max(weight * rarity for _, weight, rarity in forms)
            words.append(Word(forms, rarity, term, counts[term]))
        elif not any(counts.values()):
            words.append(Word((), _rarity(0, total), term))
    for window in question.windows:
        if 0 < (count := count_of(window)) <= too_common:
            rarity = _rarity(count, total)
            words.append(Word(((window, 1.0, rarity),), rarity))
    return words


def matcher_of(words: Sequence[Word]) -> Callable[[str], Mapping[int, float]]:
    """Return a function that finds the question's words in a text. Its result maps their indices to weights."""
    worths = [{form: weight * rarity for form, weight, rarity in word.forms if isinstance(form, str)} for word in words]
    known = frozenset(chain.from_iterable(worths))

    def matches(text: str) -> Mapping[int, float]:
        present = known.intersection(chain.from_iterable(map(pieces_of, terms(text))))
        if not present:
            return {}
        found = {number: [forms[form] for form in present.intersection(forms)] for number, forms in enumerate(worths)}
        return {number: max(values) for number, values in found.items() if values}

    return matches


def _rarity(rows_holding: int, total: int) -> float:
    """Return the inverse document frequency of BM25, which is never negative."""
    return math.log(1 + (total - rows_holding + 0.5) / (rows_holding + 0.5))


def _talks_holding(form: str | Window, segments: Sequence[RowBlock]) -> int:
    return sum(segment.talks_holding(form) for segment in segments)


def _usual_nearness(segments: Sequence[RowBlock], vector: NDArray[np.float32] | None) -> tuple[float, float]:
    """Return mean and standard deviation of the rows' nearness to a vector."""
    if vector is None:
        return 0.0, 1.0
    samples = [(segment.vectors.sample(vector), segment.vectors.present) for segment in segments]
    total = sum(present for _, present in samples)
    if not total:
        return 0.0, 1.0
    # A segment's sample represents all its rows, however small it is.
    mean = sum(float(near.mean()) * present for near, present in samples if present) / total
    squares = sum(float(np.square(near - mean).mean()) * present for near, present in samples if present)
    spread = math.sqrt(squares / total)
    return mean, spread if spread > 1e-6 else 1.0


class _OfWord(NamedTuple):
    """Scores of one word: similarity of rows, strength by :attr:`RowBlock.place`, BM25 of talks."""

    rows: NDArray[np.float32]
    places: NDArray[np.float32]
    talks: NDArray[np.float32]


def _move(source: NDArray[np.float32], places: NDArray[np.integer], target: NDArray[np.float32], worth: float) -> None:
    """Add a source to a target at some places, which may repeat, and set the source to zero there."""
    if _DENSE * len(places) > len(source):
        target += source * np.float32(worth)
        source[:] = 0
    else:
        target[places] = target[places] + source[places] * np.float32(worth)
        source[places] = 0


def _first_of_runs(values: NDArray[np.integer], starts: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the starts of runs of equal values in concatenated lists that begin at `starts`."""
    begins = np.empty(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    begins[starts] = True
    return np.flatnonzero(begins)


def _runs(
    talks: NDArray[np.int32], starts: NDArray[np.integer]
) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.float32]]:
    """Return starts, talks and lengths of the runs of equal talks; see :func:`_first_of_runs`."""
    first = _first_of_runs(talks, starts)
    lengths = np.empty(len(first), np.float32)
    np.subtract(first[1:], first[:-1], out=lengths[:-1], casting="unsafe")
    lengths[-1] = len(talks) - first[-1]
    return first, talks[first], lengths


def _of_talks(rarity: np.float32 | NDArray[np.float32], said: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return BM25 of talks from the number of times they contain a word."""
    found: NDArray[np.float32] = rarity * np.float32(K1 + 1) * said / (said + np.float32(K1))
    return found


#: Offsets of a slot's neighbours, negative before it, and their weights.
_STEPS = np.array([step for distance in range(1, len(NEARBY) + 1) for step in (-distance, distance)])
_SHARES = np.repeat(np.array(NEARBY, np.float32), 2)


def _from_neighbours(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return for each :attr:`RowBlock.place` the maximum weighted value of its neighbours, at least 0."""
    found = np.zeros(len(values), np.float32)
    for distance, share in enumerate(NEARBY, start=1):
        weighted = values * np.float32(share)
        np.maximum(found[distance:], weighted[:-distance], out=found[distance:])
        np.maximum(found[:-distance], weighted[distance:], out=found[:-distance])
    return found


class _SegmentScorer:
    """Computes the signals of one segment's rows.

    A word adds to arrays as long as the segment, but only at the rows that contain it and their neighbours. The cost
    grows with the matches, not with the memory.
    """

    def __init__(self, question: Query, segment: RowBlock, words: Sequence[Word], segments: Sequence[RowBlock]) -> None:
        self._question = question
        self._segment = segment
        self._speaking = {speaker for s in segments if MADE_OF not in s.rows.column_names for speaker in s.speakers}
        self.words = np.zeros(len(segment), np.float32)
        self.talk = np.zeros(segment.talks, np.float32)
        self._most = sum(word.weight for word in words) or 1.0
        self._length = math.sqrt(sum(word.rarity**2 for word in words)) or 1.0
        # Long texts contain many words by chance.
        self._reach = segment.brevity
        if question.asks_the_assistant:
            self._reach = np.where(segment.slot_is_reply, np.float32(1), segment.brevity)
        self._covered = np.zeros(segment.places, np.float32)
        # Maximum over the forms of one word. Zero again before the next word.
        of_word = _OfWord(*(np.zeros(len(each), np.float32) for each in (self.words, self._covered, self.talk)))
        for word in words:
            self._add(word, sum(s.talks for s in segments), segments, of_word)
        self.coverage = self._covered[segment.place]
        self._answers = segment.answers(self.words)
        self._agreement = self._agreement_of_speakers()

    def _add(self, word: Word, talks: int, segments: Sequence[RowBlock], best: _OfWord) -> None:
        segment = self._segment
        forms = [form for form in word.forms if len(segment.holding(form[0]))]
        if not forms:
            return
        rare = [weight * _rarity(_talks_holding(form, segments), talks) for form, weight, _ in forms]
        per_length = np.float32(1 / self._length)
        if len(forms) == 1:
            ((form, weight, rarity),) = forms
            rows = segment.holding(form)
            slots = segment.slot[rows]
            self.words[rows] += np.float32(weight * rarity) * segment.strengths(form) / segment.norms[rows] * per_length
            best.places[segment.place[slots]] = np.float32(weight) * self._reach[slots]
            starts = np.zeros(1, np.intp)
            spoken, said = _runs(segment.talk[slots], starts)[1:]
            self.talk[spoken] += _of_talks(np.float32(rare[0]), said)
        else:
            held = [segment.holding(form) for form, _, _ in forms]
            counts = [len(rows) for rows in held]
            rows = np.concatenate(held)
            strengths = np.concatenate([segment.strengths(form) for form, _, _ in forms])
            weights = np.repeat(np.array([weight for _, weight, _ in forms], np.float32), counts)
            worth = np.repeat(np.array([weight * rarity for _, weight, rarity in forms], np.float32), counts)
            np.maximum.at(best.rows, rows, worth * strengths / segment.norms[rows])
            slots = segment.slot[rows]
            np.maximum.at(best.places, segment.place[slots], weights * self._reach[slots])
            starts = np.cumsum([0, *counts[:-1]])
            first, spoken, said = _runs(segment.talk[slots], starts)
            worth = np.array(rare, np.float32)[np.searchsorted(starts, first, "right") - 1]
            np.maximum.at(best.talks, spoken, _of_talks(worth, said))
            _move(best.rows, rows, self.words, 1 / self._length)
            _move(best.talks, spoken, self.talk, 1.0)
        self._spread(best.places, slots, starts, word.weight / self._most)

    def _spread(
        self, strength: NDArray[np.float32], slots: NDArray[np.int32], starts: NDArray[np.intp], worth: float
    ) -> None:
        if _DENSE * len(_SHARES) * len(slots) > len(strength):
            np.maximum(strength, _from_neighbours(strength), out=strength)
            self._covered += strength * np.float32(worth)
            strength[:] = 0
            return
        here = self._segment.place[slots[_first_of_runs(slots, starts)]]
        there = (here[:, None] + _STEPS).ravel()
        np.maximum.at(strength, there, (strength[here][:, None] * _SHARES).ravel())
        _move(strength, np.concatenate([here, there]), self._covered, worth)

    def scored(
        self,
        vector: NDArray[np.float32] | None,
        usual: tuple[float, float],
        best_talk: float,
        allowed: NDArray[np.bool_] | None,
        least: int,
        weights: Weights,
    ) -> Scored:
        segment = self._segment
        factors = np.array([getattr(weights, name) for name in SIGNALS], np.float32)
        rows = self._candidates(vector, best_talk or 1.0, allowed, least, weights)
        signals = self._signals(rows, vector, usual, best_talk)
        totals = factors @ signals
        if vector is not None:
            if len(rows) > least:
                best = np.sort(np.argpartition(-totals, least)[:least])
                rows, signals = rows[best], signals[:, best]
            signals[SIGNALS.index("nearby")] = self._nearby(segment.slot[rows], vector, usual)
            totals = factors @ signals
        return Scored(rows, signals, totals)

    def _signals(
        self, rows: NDArray[np.intp], vector: NDArray[np.float32] | None, usual: tuple[float, float], best_talk: float
    ) -> NDArray[np.float32]:
        """Return all signals of `rows` except `nearby`."""
        segment = self._segment
        signals = np.zeros((len(SIGNALS), len(rows)), np.float32)
        by_name = dict(zip(SIGNALS, signals, strict=True))
        slots = segment.slot[rows]
        by_name["coverage"][:] = self.coverage[slots]
        by_name["words"][:] = self.words[rows]
        by_name["talk"][:] = self.talk[segment.talk[slots]] / (best_talk or 1.0)
        by_name["importance"][:] = segment.importance[rows]
        if not self._question.asks_the_assistant:
            by_name["replies"][:] = segment.slot_wordy[slots]
        by_name["instructs"][:] = segment.slot_instructs[slots]
        by_name["prefers"][:] = segment.slot_prefers[slots] & self._question.seeks_advice
        by_name["counted"][:] = segment.counted[rows] & self._question.asks_how_many
        by_name["speaker"][:] = self._agreement[segment.speaker[rows]]
        by_name["answers"][:] = self._answers[slots]
        if vector is not None:
            by_name["vector"][:] = self._near(rows, vector, usual)
        return signals

    def _near(
        self, rows: NDArray[np.intp], vector: NDArray[np.float32], usual: tuple[float, float]
    ) -> NDArray[np.float32]:
        """Return how many standard deviations nearer to a vector than usual rows are; 0 without a vector."""
        mean, spread = usual
        near = (self._segment.vectors.nearness(vector, rows) - np.float32(mean)) / np.float32(spread)
        return np.where(np.isnan(near), np.float32(0), near)

    def _nearby(
        self, slots: NDArray[np.int32], vector: NDArray[np.float32], usual: tuple[float, float]
    ) -> NDArray[np.float32]:
        segment = self._segment
        neighbours = segment.place[slots][:, None] + _STEPS
        is_neighbour = np.zeros(segment.places, np.bool_)
        is_neighbour[neighbours] = True
        around = np.flatnonzero(is_neighbour[segment.place])
        nearest = np.zeros(segment.places, np.float32)
        if len(around):
            rows, bounds = segment.rows_of(around)
            nearest[segment.place[around]] = np.maximum.reduceat(self._near(rows, vector, usual), bounds)
        found: NDArray[np.float32] = (nearest[neighbours] * _SHARES).max(axis=1, initial=0)
        return found

    def _candidates(
        self,
        vector: NDArray[np.float32] | None,
        best_talk: float,
        allowed: NDArray[np.bool_] | None,
        least: int,
        weights: Weights,
    ) -> NDArray[np.intp]:
        """Return the best rows by all signals without vectors, and the nearest by vector."""
        segment = self._segment
        if len(segment) <= least:
            chosen = np.arange(len(segment))
            return chosen if allowed is None else chosen[allowed]
        slots = np.flatnonzero(self.coverage)
        rough = weights.coverage * self.coverage[slots] + weights.talk / best_talk * self.talk[segment.talk[slots]]
        slots = slots[_highest(rough, _SLOTS * least)]
        rows, _ = segment.rows_of(slots)
        rows = rows if allowed is None else rows[allowed[rows]]
        if len(rows) < least:  # every question finds something
            rows = np.arange(len(segment)) if allowed is None else np.flatnonzero(allowed)
        by_words = rows[_highest(self._rough(rows, best_talk, weights), least)]
        if vector is None:
            return np.sort(by_words)
        is_chosen = np.zeros(len(segment), np.bool_)
        is_chosen[by_words] = True
        is_chosen[segment.vectors.nearest(vector, least, allowed)] = True
        return np.flatnonzero(is_chosen if allowed is None else is_chosen & allowed)

    def _rough(self, rows: NDArray[np.intp], best_talk: float, weights: Weights) -> NDArray[np.float32]:
        """Return the scores of rows without vectors, dates and numbers."""
        segment = self._segment
        slots = segment.slot[rows]
        rough: NDArray[np.float32] = weights.coverage * self.coverage[slots] + weights.words * self.words[rows]
        rough += (
            weights.talk / best_talk * self.talk[segment.talk[slots]] + weights.importance * segment.importance[rows]
        )
        rough += weights.speaker * self._agreement[segment.speaker[rows]] + weights.answers * self._answers[slots]
        if not self._question.asks_the_assistant:
            rough += weights.replies * segment.slot_wordy[slots]
        rough += weights.instructs * segment.slot_instructs[slots]
        if self._question.seeks_advice:
            rough += weights.prefers * segment.slot_prefers[slots]
        return rough

    def _agreement_of_speakers(self) -> NDArray[np.float32]:
        """Return for each speaker whether the question is about them; the last entry is for rows without a speaker."""
        about, speakers = self._question.about, self._segment.speakers
        if not about or len(self._speaking) < 2:
            return np.zeros(len(speakers) + 1, np.float32)
        if self._speaking.issubset(about):
            return np.array([0.5 if speaker == about[0] else -0.5 for speaker in speakers] + [0], np.float32)
        # What a memory calls a speaker ("Note: …") may be none.
        return np.array(
            [1 if speaker in about else -1 if speaker in self._speaking else 0 for speaker in speakers] + [0],
            np.float32,
        )


def _highest(values: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    if len(values) <= count:
        return np.arange(len(values))
    places = np.arange(len(values))
    if len(values) > _MANY:
        # Most values are far below the highest: a sample gives a safe lower bound.
        sample = values[:: len(values) // _SAMPLE]
        rank = min(len(sample) - 1, 2 * count * len(sample) // len(values) + 20)
        above = np.flatnonzero(values >= np.partition(sample, -rank)[-rank])
        places = above if len(above) > count else places
    return places[np.argpartition(-values[places], count)[:count]]

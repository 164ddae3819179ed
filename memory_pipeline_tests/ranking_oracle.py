"""The score of a memory as ``domain.text.ranking.Weights`` defines it, in slow plain Python."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.ranking import COVERAGE_POWER, K1, NEARBY, WEIGHTS
from memory_pipeline.domain.text.spelling import Spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.text.ranking import Query, Weights
    from memory_pipeline_tests.index_rows import Row

Signals = dict[str, float]
#: A message among its neighbours: its rows, and its place in its talk.
Moment = list["Row"]

_NUMBERS = "one two three four five six seven eight nine ten eleven twelve dozen hundred thousand once twice half"
_NUMBER = re.compile(rf"[0-9]|(?<![a-z0-9_])({_NUMBERS.replace(' ', '|')})(?![a-z0-9_])", re.IGNORECASE)
_CLOSING = " \t\n\"'”’)]"


def exact_signals(rows: Sequence[Row], question: Query, vector: Sequence[float] | None) -> dict[str, Signals]:
    """Return all signals of all rows by id, unweighted."""
    talks = _talks(rows)
    words = _Words(rows, talks, question)
    near = _nearness(rows, vector)
    best_talk = max((words.of_talk(talk) for talk in talks), default=0.0) or 1.0
    speakers = {row["speaker"] for row in rows} - {None}
    found: dict[str, Signals] = {}
    for talk in talks:
        with_assistant = any(map(_is_reply, (row for moment in talk for row in moment)))
        for place, moment in enumerate(talk):
            before = talk[place - 1] if place else []
            around = [
                (share, talk[other])
                for distance, share in enumerate(NEARBY, start=1)
                for other in (place - distance, place + distance)
                if 0 <= other < len(talk)
            ]
            is_reply = any(map(_is_reply, moment))
            tells = with_assistant and not is_reply
            asked = bool(before) and any(map(_asks, before)) and not is_reply
            for row in moment:
                found[row["id"]] = {
                    "coverage": words.coverage(moment, around),
                    "words": words.of_row(row),
                    "vector": near(row),
                    "nearby": max([0.0, *(share * max(map(near, other)) for share, other in around)]),
                    "talk": words.of_talk(talk) / best_talk,
                    "speaker": _agreement(row["speaker"], question.about, speakers),
                    "importance": row["importance"],
                    "answers": max(map(words.of_row, before)) * _brevity(before) if asked else 0.0,
                    "replies": 1 - _brevity(moment) if is_reply and not question.asks_the_assistant else 0.0,
                    "instructs": float(tells and any(map(_instructs, moment))),
                    "prefers": float(question.seeks_advice and tells and any(map(_prefers, moment))),
                    "counted": float(question.asks_how_many and bool(_NUMBER.search(row["content"]))),
                }
    return found


def exact_scores(
    rows: Sequence[Row], question: Query, vector: Sequence[float] | None, weights: Weights = WEIGHTS
) -> dict[str, float]:
    """Return the scores of all rows by id, without the penalty for repeats."""
    factors = asdict(weights)
    return {
        id: sum(factors[name] * value for name, value in signals.items())
        for id, signals in exact_signals(rows, question, vector).items()
    }


def _talks(rows: Sequence[Row]) -> list[list[Moment]]:
    """Return the talks: messages of one conversation on one day, in order."""
    talks: defaultdict[tuple[str, object], defaultdict[tuple[object, int], Moment]]
    talks = defaultdict(lambda: defaultdict(list))
    for row in rows:
        talk = talks[row["conversation_id"] or row["id"], row["starts_at"].date()]
        talk[row["starts_at"], row["turn"] or 0].append(row)
    return [[talk[moment] for moment in sorted(talk)] for talk in talks.values()]


def _rarity(holding: int, total: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def _is_reply(row: Row) -> bool:
    return bool(row["role"] == "assistant")


def _instructs(row: Row) -> bool:
    return bool(row["kind"] == "instruction" and row["importance"] >= 0.7)


def _prefers(row: Row) -> bool:
    return bool(row["kind"] == "preference")


def _brevity(moment: Moment) -> float:
    longest = max(len(row["terms"]) for row in moment)
    return float(min(1, 30 / max(longest, 1)) ** 0.6)


class _Words:
    """Similarity of rows to the question, BM25 of talks, and coverage of the question."""

    def __init__(self, rows: Sequence[Row], talks: list[list[Moment]], question: Query) -> None:
        self._rows = rows
        self._talks = talks
        self._asks_the_assistant = question.asks_the_assistant
        self._row_rarity, self._talk_rarity = cache(self._row_rarity_of), cache(self._talk_rarity_of)
        vocabulary = sorted({term for row in rows for term in row["terms"]})
        #: For each word of the question: its forms in memory with their weights, and its rarity.
        self._words: list[tuple[dict[str, float], float]] = []
        for term in question.terms:
            forms = {term: 1.0, **question.alternatives(term, [Spellings(vocabulary)])}
            held = {form: weight for form, weight in forms.items() if form in vocabulary}
            if term in held:
                self._words.append((held, self._row_rarity(term)))
            elif held:
                self._words.append((held, max(weight * self._row_rarity(form) for form, weight in held.items())))
            else:
                self._words.append(({}, _rarity(0, len(rows))))
        self._most = sum(rarity**COVERAGE_POWER for _, rarity in self._words) or 1.0
        self._length = math.sqrt(sum(rarity**2 for _, rarity in self._words)) or 1.0

    def _row_rarity_of(self, form: str) -> float:
        return _rarity(sum(form in row["terms"] for row in self._rows), len(self._rows))

    def _talk_rarity_of(self, form: str) -> float:
        holding = sum(any(form in row["terms"] for moment in talk for row in moment) for talk in self._talks)
        return _rarity(holding, len(self._talks))

    def of_row(self, row: Row) -> float:
        counts = Counter[str](row["terms"])
        length = max(math.sqrt(sum((1 + math.log(times)) ** 2 for times in counts.values())), 1.0)

        def strength(form: str, weight: float) -> float:
            return weight * self._row_rarity(form) * (1 + math.log(counts[form])) / length if counts[form] else 0.0

        total = sum(max([0.0, *(strength(*form) for form in forms.items())]) for forms, _ in self._words)
        return total / self._length

    def of_talk(self, talk: list[Moment]) -> float:
        def strength(form: str, weight: float) -> float:
            rows = sum(form in row["terms"] for moment in talk for row in moment)
            return weight * self._talk_rarity(form) * (K1 + 1) * rows / (rows + K1)

        return sum(max([0.0, *(strength(*form) for form in forms.items())]) for forms, _ in self._words)

    def coverage(self, moment: Moment, around: list[tuple[float, Moment]]) -> float:
        def held(forms: dict[str, float], there: Moment) -> float:
            reach = 1.0 if self._asks_the_assistant and any(map(_is_reply, there)) else _brevity(there)
            weights = [weight for form, weight in forms.items() for row in there if form in row["terms"]]
            return reach * max([0.0, *weights])

        moments = [(1.0, moment), *around]
        found = sum(
            rarity**COVERAGE_POWER * max(share * held(forms, there) for share, there in moments)
            for forms, rarity in self._words
        )
        return float(found / self._most)


def _nearness(rows: Sequence[Row], vector: Sequence[float] | None) -> Callable[[Row], float]:
    """Return a function for how many standard deviations nearer than usual a row is; 0 without a vector."""

    def cosine(row: Row) -> float:
        return math.fsum(one * other for one, other in zip(row["vector"], vector or (), strict=True))

    usual = [] if vector is None else [cosine(row) for row in rows if row["vector"] is not None]
    if not usual:
        return lambda row: 0.0
    mean = math.fsum(usual) / len(usual)
    spread = math.sqrt(math.fsum((near - mean) ** 2 for near in usual) / len(usual))
    return lambda row: 0.0 if row["vector"] is None else (cosine(row) - mean) / (spread if spread > 1e-6 else 1.0)


def _agreement(speaker: str | None, about: Sequence[str], speakers: set[str]) -> float:
    if speaker is None or not about or len(speakers) < 2:
        return 0.0
    if speakers <= set(about):
        return 0.5 if speaker == about[0] else -0.5
    return 1.0 if speaker in about else -1.0


def _asks(row: Row) -> bool:
    """Return whether a row ends with a question mark, before closing quotes or a note in brackets."""
    said = row["content"].rstrip()
    if said.endswith("]") and "[" in said:
        without_note = said[: said.rindex("[")].rstrip(_CLOSING)
        if without_note.endswith(("?", "？", "؟")):
            return True
    return str(said).rstrip(_CLOSING).endswith(("?", "？", "؟"))

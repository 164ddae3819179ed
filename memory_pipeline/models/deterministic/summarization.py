"""Extractive summaries: choose the sentences that together say the most within a budget of characters.

A sentence is worth its importance times the dates, numbers, names and words in it. Each of them counts in full the
first time and half as much each time after, so new content is preferred to repetition. This sum is a monotone
submodular function of the chosen sentences. Repeatedly taking the sentence with the largest gain per character is near
the optimum (Lin and Bilmes, "Multi-document summarization via budgeted maximization of submodular functions", 2010).
Gains never increase, so few are recomputed (Minoux, 1978).

Worths are integers, so that every machine makes the same choice.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.summaries import Assignment, Condensation, KeyPoint, Material, material_of
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.words import stem, word_set
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.deterministic.language import lexicon

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Summarizer

#: Most characters of a summary. Each point costs its sentence plus :data:`POINT_OVERHEAD`.
DEFAULT_BUDGETS: Final[Mapping[Grain, int]] = MappingProxyType(
    {Grain.DAILY: 1600, Grain.WEEKLY: 4800, Grain.MONTHLY: 8000, Grain.QUARTERLY: 8800, Grain.YEARLY: 9600}
)
#: Characters of a point besides its sentence: its date and a line break.
POINT_OVERHEAD: Final = 14
#: A smaller budget cannot hold a sentence.
SMALLEST_BUDGET: Final = 100

#: Cosine from which two texts with the same numbers, names and negations are duplicates.
_SAME: Final = 0.95
#: Number of the most important texts that are compared pairwise; the time is quadratic.
_MOST: Final = 5000
_BLOCK: Final = 1000

#: Worth of a date, number or name, in words: people ask for them later, and they are seldom repeated.
_CONCRETE: Final = 8
#: Smallest cost of a point: a fragment is unclear without its context.
_FRAGMENT: Final = 50
#: Least importance of a point; below it, only the text with the most content is chosen, if there is no other.
#: Months and longer periods hold what still matters then.
_LEAST: Final = MappingProxyType({Grain.DAILY: 0.5, Grain.WEEKLY: 0.5})
_LEAST_LATER: Final = 0.55
#: Most characters of sentences that are joined.
_LONGEST_JOINED: Final = 320
#: Factor on worths, so that halving them a few times leaves no fraction.
_HALVES: Final = 64
#: Texts of at least this importance are chosen first: no amount of detail replaces a turning point.
_MILESTONE: Final = 0.8

_NUMBER = re.compile(
    r"[0-9]+(?:[.,:][0-9]+)*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|twice)\b"
)
_LABEL = re.compile(r"\[([0-9]{4}[-/0-9W]*)\]")
_PHATIC = frozenset(map(stem, lexicon.PHATIC))
_NUMBER_WORDS = frozenset(map(stem, word_set("two three four five six seven eight nine ten eleven twelve")))
_NEGATION = re.compile(r"n['’]t\b|\b(?:no|not|never|none|nobody|nothing|without)\b")


class ExtractiveSummarizer:
    """Choose the most informative texts, verbatim; a :class:`memory_pipeline.domain.summaries.Summarizer`.

    On a day, consecutive sentences of a message are joined, up to 320 characters. Texts with an importance below 0.5
    (of months and longer periods 0.55) are left out; if all are, the one with the most content is the summary.
    Duplicates are merged into the oldest one, which then cites all sources. If the rest fits the budget, it is the
    summary. Otherwise texts are chosen one by one, each time the one with the largest gain that still fits:

        importance² · worth / characters

    A word is worth 1. A date, a number, a name, and the day of the text (so that no single day takes all) are worth 8.
    Stop words, politeness and applause are worth 0. Texts with an importance of 0.8 or more come first. Texts shorter
    than 50 characters, date included, count as 50, since fragments are unclear without their context.

    `embedder` finds duplicates; by default the hashing embedder. `budgets` are characters per grain, at least 100;
    other grains use :data:`DEFAULT_BUDGETS`.
    """

    def __init__(self, embedder: Embedder | None = None, budgets: Mapping[Grain, int] | None = None) -> None:
        self._embedder: Embedder = embedder or HashingEmbedder()
        self._budgets = {**DEFAULT_BUDGETS, **(budgets or {})}
        for grain, budget in self._budgets.items():
            if grain not in SUMMARY_GRAINS or budget < SMALLEST_BUDGET:
                accepted = ", ".join(SUMMARY_GRAINS)
                raise ConfigurationError(
                    f"budget {budget} for {grain} is not valid; expected at least {SMALLEST_BUDGET} characters "
                    f"for one of {accepted}"
                )

    @property
    def name(self) -> str:
        """Name and version, plus eight digits of a hash of settings that are not the default."""
        if self._budgets == DEFAULT_BUDGETS and self._embedder.name == HashingEmbedder().name:
            return "extractive-4"
        settings = {grain.value: budget for grain, budget in self._budgets.items()}
        return f"extractive-4-{digest(settings, self._embedder.name)[:8]}"

    def method(self, scope: Scope, grain: Grain) -> str:
        """Return the name of the rules, the same for all agents and grains."""
        del scope, grain
        return self.name

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return the summary of each assignment."""
        return [self.condense(assignment) for assignment in assignments]

    def condense(self, assignment: Assignment) -> Condensation:
        """Return the summary of one assignment."""
        points = self.points_of(assignment.period, assignment.material)
        return Condensation(
            points=points,
            method=self.name,
            tokens_in=sum(count_tokens(item.text) for item in assignment.material),
            tokens_out=sum(count_tokens(point.sentence) for point in points),
        )

    def points_of(self, period: Period, material: Sequence[Material]) -> tuple[KeyPoint, ...]:
        """Return the chosen points, oldest first. The result does not depend on the order of `material`.

        A text longer than a third of the budget is cut at a blank and ends with "…".

        Raises:
            InputError: the period is an hour; hours have no summaries.
        """
        if period.grain not in self._budgets:
            raise InputError(f"period {period} is an hour; expected one of: {', '.join(SUMMARY_GRAINS)}")
        budget = self._budgets[period.grain]
        # `position` before `id`: among texts of one instant, point #2 of a finer summary comes before #10.
        ordered = sorted(material, key=lambda item: (item.event_at, item.position, item.id))
        points = _merged_texts(_joined(ordered) if period.grain is Grain.DAILY else [*map(_point, ordered)])
        # What the summary itself said before may be the only copy.
        own = f"{period.grain}:{period}:"
        least = _LEAST.get(period.grain, _LEAST_LATER)
        worthy = [one for one in points if one.importance >= least or one.source_ids[0].startswith(own)]
        points = worthy or sorted(points, key=lambda one: (one.sentence.endswith("?"), -_content(one)))[:1]
        if not points:
            return ()
        if len(points) > _MOST:
            order = sorted(range(len(points)), key=lambda place: (-points[place].importance, place))
            points = [points[place] for place in sorted(order[:_MOST])]
        vectors = self._embedder.embed([point.sentence for point in points])
        points = _merged_meanings(points, vectors)
        points = [replace(point, sentence=_trimmed(point.sentence, budget // 3)) for point in points]
        if sum(map(_cost, points)) > budget:
            points = [points[place] for place in sorted(_chosen(points, budget))]
        return tuple(points)


def _cost(point: KeyPoint) -> int:
    return len(point.sentence) + POINT_OVERHEAD


def _trimmed(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    cut = head.rfind(" ", limit // 2)
    return head[: cut if cut > 0 else None].rstrip(" ,;:–-") + "…"


def _point(item: Material) -> KeyPoint:
    return KeyPoint(item.text, (item.id,), item.event_at, item.importance, tuple(sorted(set(item.entities))))


def _joined(material: Sequence[Material]) -> list[KeyPoint]:
    """Return a point for each run of sentences of a message, as far as they are short."""
    points: list[KeyPoint] = []
    last: Material | None = None
    for item in material:
        speaker, _, said = item.text.partition(": ")
        before = points[-1].sentence if points else ""
        follows = last is not None and (last.event_at, last.position + 1) == (item.event_at, item.position)
        if follows and before.startswith(f"{speaker}: ") and len(before) + len(said) <= _LONGEST_JOINED:
            text = f"{before}{'' if before[-1] in '.!?…。！？' else '.'} {said}"
            points[-1] = replace(_merged(points[-1], _point(item)), sentence=text)
        else:
            points.append(_point(item))
        last = item
    return points


def _merged_texts(found: Sequence[KeyPoint]) -> list[KeyPoint]:
    """Merge points with the same words, in the order of the oldest."""
    points: dict[str, KeyPoint] = {}
    for point in found:
        key = " ".join(point.sentence.casefold().split()).rstrip(".!… ")
        points[key] = _merged(points[key], point) if key in points else point
    return list(points.values())


def _merged(older: KeyPoint, newer: KeyPoint) -> KeyPoint:
    return replace(
        older,
        source_ids=tuple(sorted({*older.source_ids, *newer.source_ids})),
        importance=max(older.importance, newer.importance),
        entities=tuple(sorted({*older.entities, *newer.entities})),
    )


def _merged_meanings(points: Sequence[KeyPoint], vectors: NDArray[np.float32]) -> list[KeyPoint]:
    marks = [_mark(point) for point in points]
    merged: dict[int, KeyPoint] = {}
    for first in range(0, len(points), _BLOCK):
        last = min(first + _BLOCK, len(points))
        # Rounded, so that the order of additions on another machine changes no decision.
        alike = np.round(vectors[first:last] @ vectors[:last].T, 4) >= _SAME
        for place in range(first, last):
            older = np.flatnonzero(alike[place - first, :place]).tolist()
            same = next((other for other in older if other in merged and marks[other] == marks[place]), None)
            if same is None:
                merged[place] = points[place]
            else:
                merged[same] = _merged(merged[same], points[place])
    return list(merged.values())


def _mark(point: KeyPoint) -> tuple[object, ...]:
    """Return numbers, parity of negations, and names, which must be equal in duplicates."""
    text = point.sentence.casefold()
    names = sorted(name.casefold() for name in point.entities)
    return sorted(_NUMBER.findall(text)), len(_NEGATION.findall(text)) % 2, names


def _chosen(points: Sequence[KeyPoint], budget: int) -> list[int]:
    """Return the positions of the chosen points, best first; at least one, if one fits."""
    things = [_things(point) for point in points]
    weights = [round(100 * point.importance**2) for point in points]
    seen: Counter[_Thing] = Counter()

    def rank(place: int) -> tuple[float, float, int]:
        added = sum(worth >> seen[thing] for thing, worth in things[place].items())
        importance = points[place].importance
        milestone = importance if importance >= _MILESTONE else 0.0
        return -milestone, -weights[place] * added / max(_cost(points[place]), _FRAGMENT), place

    heap = [rank(place) for place in range(len(points))]
    heapify(heap)
    chosen: list[int] = []
    while heap:
        place = heap[0][-1]
        if _cost(points[place]) > budget:
            heappop(heap)
        elif (current := rank(place)) > heap[0]:
            heapreplace(heap, current)  # its gain has fallen since it was ranked
        else:
            heappop(heap)
            chosen.append(place)
            budget -= _cost(points[place])
            seen.update(things[place].keys())
    return chosen


def _content(point: KeyPoint) -> float:
    return point.importance * sum(_things(point).values())


#: An item of content: its sort (day, word, date or name) and its value.
_Thing = tuple[str, str]


def _things(point: KeyPoint) -> dict[_Thing, int]:
    things: dict[_Thing, int] = {("day", point.event_at.date().isoformat()): _CONCRETE}
    for word in terms(_LABEL.sub(" ", point.sentence)):
        if word not in _PHATIC:
            things["word", word] = _CONCRETE if word[0].isdigit() or word in _NUMBER_WORDS else 1
    things.update({("date", label): _CONCRETE for label in _LABEL.findall(point.sentence)})
    things.update({("name", name.casefold()): _CONCRETE for name in point.entities})
    return {thing: worth * _HALVES for thing, worth in things.items()}


def summary_of(messages: Sequence[Message], calendar: Calendar, summarizer: Summarizer) -> dict[str, object]:
    """Return a message that summarizes `messages` of one agent, at least one, in order, as `summarizer` does for a day.

    Its role is system, so that it never becomes memory itself. If the model must wait for a budget, rules summarize.
    """
    last = messages[-1]
    material = tuple(material_of(DeterministicExtractor(calendar.timezone).facts_of(messages)))
    assignment = Assignment(last.scope, calendar.period(Grain.DAILY, last.sent_at), material)
    [condensed] = summarizer.summarize([assignment])
    points: tuple[KeyPoint, ...] = (condensed or ExtractiveSummarizer().condense(assignment)).points
    lines = [f"- {calendar.day_of(point.event_at)} {point.sentence}" for point in points]
    head = f"Summary of the {len(messages)} messages before, from memory; nobody has said this:"
    return {"role": "system", "content": "\n".join([head, *lines]), "timestamp": last.sent_at.isoformat()}

"""Summaries that choose sentences and write none: within a budget, what matters, is typical, new and spread out.

Choosing one by one, each time the best that is unlike what was chosen, is maximal marginal relevance (Carbonell and
Goldstein, 1998); being typical is measured by nearness to the rest, as in centroid summaries (Radev et al., 2004).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from memory_pipeline.domain.calls import count_tokens
from memory_pipeline.domain.grains import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.summaries import Condensation, KeyPoint, Material
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.models.deterministic.embedding import HashingEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.summaries import Assignment

#: Characters that a summary may have. Each point costs its sentence and :data:`POINT_OVERHEAD`.
DEFAULT_BUDGETS: Final[Mapping[Grain, int]] = MappingProxyType(
    {Grain.DAILY: 1600, Grain.WEEKLY: 2400, Grain.MONTHLY: 3200, Grain.QUARTERLY: 4000, Grain.YEARLY: 4800}
)
#: Characters that a point takes besides its sentence: its date and a line break.
POINT_OVERHEAD: Final = 14
#: A smaller budget could not hold a sentence.
SMALLEST_BUDGET: Final = 100

#: Two texts at least so near (cosine), with the same numbers, names and negations, say the same.
_SAME: Final = 0.95
#: So many of the most important texts are compared with each other; with more, time would grow with their square.
_MOST: Final = 5000
_BLOCK: Final = 1000

#: What a sentence's salience adds up from; each term lies between 0 and 1.
_IMPORTANCE: Final = 1.0
_CENTRALITY: Final = 0.15  # how near it is to all others, compared to the nearest
_CONCRETENESS: Final = 0.15  # it has a number, a date, a name
_NEW_NAMES: Final = 0.2  # it has names that no chosen sentence has
_REPETITION: Final = 0.6  # subtracted, squared: how near it is to the nearest chosen sentence
_CROWDING: Final = 0.4  # subtracted: the share of chosen sentences that lie in its part of the period

#: Into how many parts a period is cut, so that not all sentences come from one.
_PARTS: Final = {Grain.DAILY: 8, Grain.WEEKLY: 7, Grain.MONTHLY: 5, Grain.QUARTERLY: 6, Grain.YEARLY: 12}

_NUMBER = re.compile(
    r"[0-9]+(?:[.,:][0-9]+)*|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|twice)\b"
)
_NEGATION = re.compile(r"n['’]t\b|\b(?:no|not|never|none|nobody|nothing|without)\b")


class ExtractiveSummarizer:
    """Keeps the most telling texts, verbatim; a :class:`memory_pipeline.domain.summaries.Summarizer`.

    Texts that say the same are merged into the oldest of them, which then cites all. If the rest fits the budget, it
    is all kept. Otherwise texts are chosen one by one, each time the one with the greatest salience that still fits:

        importance + 0.15 centrality + 0.15 concreteness + 0.2 new names − 0.6 repetition² − 0.4 crowding

    Args:
        embedder: measures how alike texts are; the hashing embedder by default.
        budgets: characters per grain, at least 100; grains left out have :data:`DEFAULT_BUDGETS`.
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
        """Name and version, and eight digits of a hash of the settings if they are not the default ones."""
        if self._budgets == DEFAULT_BUDGETS and self._embedder.name == HashingEmbedder().name:
            return "extractive-1"
        settings = {grain.value: budget for grain, budget in self._budgets.items()}
        return f"extractive-1-{digest(settings, self._embedder.name)[:8]}"

    def method(self, scope: Scope, grain: Grain) -> str:
        """Name the rules; they are the same for everybody."""
        del scope, grain
        return self.name

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return what remains of each of `assignments`."""
        return [self.condense(assignment) for assignment in assignments]

    def condense(self, assignment: Assignment) -> Condensation:
        """Return what remains of one assignment."""
        points = self.points_of(assignment.period, assignment.material)
        return Condensation(
            points=points,
            method=self.name,
            tokens_in=sum(count_tokens(item.text) for item in assignment.material),
            tokens_out=sum(count_tokens(point.sentence) for point in points),
        )

    def points_of(self, period: Period, material: Sequence[Material]) -> tuple[KeyPoint, ...]:
        """Return the points to keep, oldest first; their order and choice do not depend on the order of `material`.

        A text longer than a third of the budget is cut at a blank and ends with "…".

        Raises:
            InputError: the period is an hour; there are no summaries of hours.
        """
        if period.grain not in self._budgets:
            raise InputError(f"period {period} is an hour; expected one of: {', '.join(SUMMARY_GRAINS)}")
        budget = self._budgets[period.grain]
        # By the length of the id first: of what was said at once, point #2 of a finer summary comes before #10.
        points = _merged_texts(sorted(material, key=lambda item: (item.event_at, item.position, item.id)))
        if not points:
            return ()
        if len(points) > _MOST:
            order = sorted(range(len(points)), key=lambda place: (-points[place].importance, place))
            points = [points[place] for place in sorted(order[:_MOST])]
        vectors = self._embedder.embed([point.sentence for point in points])
        kept, points = _merged_meanings(points, vectors)
        points = [replace(point, sentence=_trimmed(point.sentence, budget // 3)) for point in points]
        if sum(map(_cost, points)) > budget:
            chosen = _Choice(period, points, vectors[kept]).choose(budget)
            points = [points[place] for place in sorted(chosen)]
        return tuple(points)


def _cost(point: KeyPoint) -> int:
    return len(point.sentence) + POINT_OVERHEAD


def _trimmed(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    cut = head.rfind(" ", limit // 2)
    return head[: cut if cut > 0 else None].rstrip(" ,;:–-") + "…"


def _merged_texts(material: Sequence[Material]) -> list[KeyPoint]:
    """Make points of texts, those with the same words into one, in the order of the oldest."""
    points: dict[str, KeyPoint] = {}
    for item in material:
        key = " ".join(item.text.casefold().split()).rstrip(".!… ")
        point = KeyPoint(item.text, (item.id,), item.event_at, item.importance, tuple(sorted(set(item.entities))))
        points[key] = _merged(points[key], point) if key in points else point
    return list(points.values())


def _merged(older: KeyPoint, newer: KeyPoint) -> KeyPoint:
    return replace(
        older,
        source_ids=tuple(sorted({*older.source_ids, *newer.source_ids})),
        importance=max(older.importance, newer.importance),
        entities=tuple(sorted({*older.entities, *newer.entities})),
    )


def _merged_meanings(points: Sequence[KeyPoint], vectors: NDArray[np.float32]) -> tuple[list[int], list[KeyPoint]]:
    """Merge points that say the same into the oldest; return where the remaining ones stood, and them."""
    marks = [_mark(point) for point in points]
    merged: dict[int, KeyPoint] = {}
    for first in range(0, len(points), _BLOCK):
        last = min(first + _BLOCK, len(points))
        # Rounded, so that another machine's order of additions cannot tip a case.
        alike = np.round(vectors[first:last] @ vectors[:last].T, 4) >= _SAME
        for place in range(first, last):
            older = np.flatnonzero(alike[place - first, :place]).tolist()
            same = next((other for other in older if other in merged and marks[other] == marks[place]), None)
            if same is None:
                merged[place] = points[place]
            else:
                merged[same] = _merged(merged[same], points[place])
    return list(merged), list(merged.values())


def _mark(point: KeyPoint) -> tuple[object, ...]:
    """Return what must be equal in two texts that say the same, however near they are."""
    text = point.sentence.casefold()
    names = sorted(name.casefold() for name in point.entities)
    return sorted(_NUMBER.findall(text)), len(_NEGATION.findall(text)) % 2, names


@dataclass
class _Choice:
    """The choice of points of one period."""

    period: Period
    points: Sequence[KeyPoint]
    vectors: NDArray[np.float32]

    def choose(self, budget: int) -> list[int]:
        """Return the places of the chosen points, best first; at least one."""
        count = len(self.points)
        costs = np.array([_cost(point) for point in self.points])
        base = self._base()
        parts = self._parts()
        chosen_in_part = np.zeros(_PARTS[self.period.grain])
        nearest = np.zeros(count)
        new_names, holders = self._names()
        available = np.ones(count, dtype=np.bool_)
        chosen: list[int] = []
        while True:
            available &= costs <= budget
            if not available.any():
                return chosen
            salience = (
                base
                + _NEW_NAMES * np.minimum(new_names, 2) / 2
                - _REPETITION * nearest**2
                - _CROWDING * chosen_in_part[parts] / max(len(chosen), 1)
            )
            # Rounded, so that noise decides nothing; of equals argmax takes the first, which is the oldest.
            best = int(np.argmax(np.where(available, np.round(salience, 4), -np.inf)))
            chosen.append(best)
            available[best] = False
            budget -= int(costs[best])
            chosen_in_part[parts[best]] += 1
            nearest = np.maximum(nearest, self.vectors @ self.vectors[best])
            for name in {name.casefold() for name in self.points[best].entities}:
                for holder in holders.pop(name, ()):
                    new_names[holder] -= 1

    def _base(self) -> NDArray[np.float64]:
        """Return what does not depend on what is chosen."""
        vectors = self.vectors.astype(np.float64)
        # The mean cosine to the others, by way of their sum: n·d steps rather than n²·d.
        centrality = (vectors @ vectors.sum(axis=0) - 1) / max(len(vectors) - 1, 1)
        centrality = np.clip(centrality, 0, None) / max(float(centrality.max()), 1e-9)
        importance = np.array([point.importance for point in self.points])
        concreteness = np.array(
            [bool(_NUMBER.search(point.sentence)) * 0.5 + min(len(point.entities), 2) * 0.25 for point in self.points]
        )
        base: NDArray[np.float64] = _IMPORTANCE * importance + _CENTRALITY * centrality + _CONCRETENESS * concreteness
        return base

    def _parts(self) -> NDArray[np.int64]:
        """Return the part of the period in which each point lies."""
        count = _PARTS[self.period.grain]
        start = self.period.first_day.toordinal()
        length = self.period.end_day.toordinal() - start
        days = [
            point.event_at.toordinal() - start + (point.event_at.hour * 60 + point.event_at.minute) / 1440
            for point in self.points
        ]
        # Time zones and weeks reach over a period's edges.
        return np.clip((np.array(days) * count / length).astype(np.int64), 0, count - 1)

    def _names(self) -> tuple[NDArray[np.int64], defaultdict[str, list[int]]]:
        """Return how many names each point has, and which points have each name."""
        holders: defaultdict[str, list[int]] = defaultdict(list)
        counts = np.zeros(len(self.points), dtype=np.int64)
        for place, point in enumerate(self.points):
            for name in {name.casefold() for name in point.entities}:
                holders[name].append(place)
                counts[place] += 1
        return counts, holders

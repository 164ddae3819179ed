"""Measures of rankings with binary relevance, for one question and over many. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

#: How deep nDCG looks.
NDCG_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a search returned for one question.

    Attributes:
        relevant: ids of the turns that answer it, at least one.
        turns: ids of the turns found, best first, each once.
        within_budget: the same, of those that fit into the token budget.
    """

    relevant: frozenset[str]
    turns: tuple[str, ...]
    within_budget: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the evidence was found, over many questions.

    Attributes:
        any: questions of which at least one turn of the evidence was found.
        all: questions of which all of it was found.
        recall: mean share of a question's evidence that was found, 0 to 1; 0 if there are no questions.
    """

    any: int
    all: int
    recall: float


@dataclass(frozen=True, slots=True)
class Scores:
    """The measures of a set of questions.

    Attributes:
        questions: how many there are; with none, all measures are 0.
        at: coverage by the first k turns, for each k.
        mrr: mean of 1 / rank of the first relevant turn, 0 where none was found.
        ndcg: mean nDCG of the first :data:`NDCG_DEPTH` turns.
        within_budget: coverage by the turns that fit into the token budget.
    """

    questions: int
    at: dict[int, Coverage]
    mrr: float
    ndcg: float
    within_budget: Coverage

    @classmethod
    def of(cls, rankings: Sequence[Ranking], depths: Iterable[int]) -> Scores:
        """Measure `rankings`, their coverage at each of `depths`."""
        return cls(
            questions=len(rankings),
            at={depth: _coverage((each.relevant, each.turns[:depth]) for each in rankings) for depth in depths},
            mrr=_mean(reciprocal_rank(each.relevant, each.turns) for each in rankings),
            ndcg=_mean(ndcg_at(NDCG_DEPTH, each.relevant, each.turns) for each in rankings),
            within_budget=_coverage((each.relevant, each.within_budget) for each in rankings),
        )


def any_of(relevant: Collection[str], found: Iterable[str]) -> bool:
    """Tell whether at least one relevant turn was found."""
    return not set(relevant).isdisjoint(found)


def all_of(relevant: Collection[str], found: Iterable[str]) -> bool:
    """Tell whether every relevant turn was found."""
    return set(relevant).issubset(found)


def recall(relevant: Collection[str], found: Iterable[str]) -> float:
    """Return the share of the relevant turns that were found, 0 to 1; there must be a relevant one."""
    return len(set(relevant).intersection(found)) / len(set(relevant))


def reciprocal_rank(relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return 1 / the rank of the first relevant turn; 0 if there is none."""
    return next((1 / rank for rank, turn in enumerate(ranked, start=1) if turn in relevant), 0.0)


def ndcg_at(depth: int, relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return the normalised discounted cumulative gain of the first `depth` turns, 0 to 1.

    A relevant turn gains 1 / log2(rank + 1); the sum is divided by that of the best order there could be.
    """
    gain = math.fsum(_discount(rank) for rank, turn in enumerate(ranked[:depth], start=1) if turn in relevant)
    return gain / math.fsum(_discount(rank) for rank in range(1, min(depth, len(set(relevant))) + 1))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` (0 to 1) of them do not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _coverage(pairs: Iterable[tuple[Collection[str], Collection[str]]]) -> Coverage:
    """Return how much of each question's relevant turns is among those found."""
    listed = list(pairs)
    return Coverage(
        any=sum(any_of(relevant, found) for relevant, found in listed),
        all=sum(all_of(relevant, found) for relevant, found in listed),
        recall=_mean(recall(relevant, found) for relevant, found in listed),
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fmean(listed) if listed else 0.0


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)

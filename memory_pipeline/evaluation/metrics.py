"""Metrics of rankings with binary relevance. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

#: The depth k of nDCG@k.
NDCG_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Ranking:
    """The turns found for one question, best first, without duplicates.

    `relevant` has the ids of the evidence, at least one; `within_budget` the turns that fit into the token budget.
    """

    relevant: frozenset[str]
    turns: tuple[str, ...]
    within_budget: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many questions have any and all of their relevant turns found.

    `recall` is the mean share of a question's relevant turns that were found, 0 to 1; 0 without questions.
    """

    any: int
    all: int
    recall: float


@dataclass(frozen=True, slots=True)
class Scores:
    """The metrics of a set of questions; without any, all are 0.

    Attributes:
        at: coverage of the first k turns, by k.
        mrr: mean of 1 / rank of the first relevant turn, 0 if none was found.
        ndcg: mean nDCG of the first :data:`NDCG_DEPTH` turns.
        within_budget: coverage of the turns that fit into the token budget.
    """

    questions: int
    at: dict[int, Coverage]
    mrr: float
    ndcg: float
    within_budget: Coverage

    @classmethod
    def of(cls, rankings: Sequence[Ranking], depths: Iterable[int]) -> Scores:
        """Compute the metrics of `rankings`, with coverage at each of `depths`."""
        return cls(
            questions=len(rankings),
            at={depth: _coverage((each.relevant, each.turns[:depth]) for each in rankings) for depth in depths},
            mrr=_mean(reciprocal_rank(each.relevant, each.turns) for each in rankings),
            ndcg=_mean(ndcg_at(NDCG_DEPTH, each.relevant, each.turns) for each in rankings),
            within_budget=_coverage((each.relevant, each.within_budget) for each in rankings),
        )


def any_of(relevant: Collection[str], found: Iterable[str]) -> bool:
    """Return whether at least one relevant turn was found."""
    return not set(relevant).isdisjoint(found)


def all_of(relevant: Collection[str], found: Iterable[str]) -> bool:
    """Return whether every relevant turn was found."""
    return set(relevant).issubset(found)


def recall(relevant: Collection[str], found: Iterable[str]) -> float:
    """Return the share of relevant turns that were found, 0 to 1. `relevant` must not be empty."""
    return len(set(relevant).intersection(found)) / len(set(relevant))


def reciprocal_rank(relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return 1 / rank of the first relevant turn; 0 if none was found."""
    return next((1 / rank for rank, turn in enumerate(ranked, start=1) if turn in relevant), 0.0)


def ndcg_at(depth: int, relevant: Collection[str], ranked: Sequence[str]) -> float:
    """Return the normalised discounted cumulative gain of the first `depth` turns, 0 to 1.

    A relevant turn gains 1 / log2(rank + 1); the sum is divided by that of the ideal order.
    """
    gain = math.fsum(_discount(rank) for rank, turn in enumerate(ranked[:depth], start=1) if turn in relevant)
    return gain / math.fsum(_discount(rank) for rank in range(1, min(depth, len(set(relevant))) + 1))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a `share` (0 to 1) of `values` does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _coverage(pairs: Iterable[tuple[Collection[str], Collection[str]]]) -> Coverage:
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

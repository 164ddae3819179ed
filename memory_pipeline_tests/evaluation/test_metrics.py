"""Metrics of rankings: examples by hand, and properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.evaluation.metrics import (
    Coverage,
    Ranking,
    Scores,
    all_of,
    any_of,
    ndcg_at,
    percentile,
    recall,
    reciprocal_rank,
)

TURNS = [f"t{number}" for number in range(30)]
RELEVANT = st.frozensets(st.sampled_from(TURNS), min_size=1, max_size=12)
RANKED = st.lists(st.sampled_from(TURNS), unique=True, max_size=30).map(tuple)


@pytest.mark.parametrize(
    ("relevant", "ranked", "at_2", "at_4", "rr"),
    [
        ("b", "abcd", (1, 1, 1.0), (1, 1, 1.0), 1 / 2),
        ("bd", "abcd", (1, 0, 0.5), (1, 1, 1.0), 1 / 2),
        ("cdz", "abcd", (0, 0, 0.0), (1, 0, 2 / 3), 1 / 3),
        ("z", "abcd", (0, 0, 0.0), (0, 0, 0.0), 0.0),
        ("a", "", (0, 0, 0.0), (0, 0, 0.0), 0.0),
    ],
)
def test_coverage_and_reciprocal_rank(
    relevant: str, ranked: str, at_2: tuple[int, int, float], at_4: tuple[int, int, float], rr: float
) -> None:
    scores = Scores.of([Ranking(frozenset(relevant), tuple(ranked), tuple(ranked[:2]))], (2, 4))
    assert scores.at == {2: Coverage(*at_2), 4: Coverage(*at_4)}
    assert scores.within_budget == Coverage(*at_2)
    assert scores.mrr == rr
    assert scores.questions == 1


def test_ndcg_is_discounted_by_the_logarithm_of_the_rank() -> None:
    # Relevant at ranks 1 and 3; the best order has them at 1 and 2.
    assert ndcg_at(10, "ac", "abcd") == pytest.approx((1 + 1 / 2) / (1 + 1 / math.log2(3)))
    # Turns below the depth gain nothing, and do not count in the ideal order.
    assert ndcg_at(2, "cd", "abcd") == 0
    assert ndcg_at(2, "abcd", "abcd") == 1


def test_scores_are_means_over_questions() -> None:
    rankings = [
        Ranking(frozenset("a"), tuple("ab")),
        Ranking(frozenset("bz"), tuple("ab")),
        Ranking(frozenset("z"), ()),
    ]
    scores = Scores.of(rankings, [1, 2])
    assert scores.at == {1: Coverage(1, 1, 1 / 3), 2: Coverage(2, 1, 1 / 2)}
    assert scores.mrr == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert scores.within_budget == Coverage(0, 0, 0.0)


def test_without_questions_all_metrics_are_0() -> None:
    scores = Scores.of([], [1])
    assert (scores.questions, scores.at[1], scores.mrr, scores.ndcg) == (0, Coverage(0, 0, 0.0), 0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([7], 0.95, 7), ([3, 1, 2], 0.5, 2), ([4, 3, 2, 1], 0.5, 2), (range(1, 101), 0.95, 95)],
)
def test_percentiles_are_computed(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


@given(RELEVANT, RANKED, st.integers(1, 30))
def test_all_is_at_most_recall_which_is_at_most_any(relevant: frozenset[str], ranked: tuple[str, ...], k: int) -> None:
    found = ranked[:k]
    assert all_of(relevant, found) <= recall(relevant, found) <= any_of(relevant, found)


@given(RELEVANT, RANKED, st.integers(1, 29))
def test_coverage_grows_with_depth(relevant: frozenset[str], ranked: tuple[str, ...], k: int) -> None:
    scores = Scores.of([Ranking(relevant, ranked)], [k, k + 1])
    assert scores.at[k].any <= scores.at[k + 1].any
    assert scores.at[k].all <= scores.at[k + 1].all
    assert scores.at[k].recall <= scores.at[k + 1].recall


@given(RELEVANT, RANKED, st.integers(1, 30))
def test_ranks_score_between_0_and_1(relevant: frozenset[str], ranked: tuple[str, ...], depth: int) -> None:
    assert 0 <= ndcg_at(depth, relevant, ranked) <= 1
    assert 0 <= reciprocal_rank(relevant, ranked) <= 1
    assert (ndcg_at(depth, relevant, ranked) > 0) == any_of(relevant, ranked[:depth])
    assert (reciprocal_rank(relevant, ranked) > 0) == any_of(relevant, ranked)


@given(RELEVANT, RANKED, st.integers(1, 30))
def test_the_perfect_order_scores_1(relevant: frozenset[str], rest: tuple[str, ...], depth: int) -> None:
    ranked = (*sorted(relevant), *(turn for turn in rest if turn not in relevant))
    assert ndcg_at(depth, relevant, ranked) == pytest.approx(1)
    assert reciprocal_rank(relevant, ranked) == 1
    assert recall(relevant, ranked) == 1


@given(RELEVANT, RANKED, st.data())
def test_a_relevant_turn_that_moves_up_never_scores_less(
    relevant: frozenset[str], ranked: tuple[str, ...], data: st.DataObject
) -> None:
    places = [place for place, turn in enumerate(ranked) if place and turn in relevant]
    if places:
        place = data.draw(st.sampled_from(places))
        better = list(ranked)
        better[place - 1 : place + 1] = reversed(better[place - 1 : place + 1])
        assert ndcg_at(10, relevant, better) >= ndcg_at(10, relevant, ranked) - 1e-12
        assert reciprocal_rank(relevant, better) >= reciprocal_rank(relevant, ranked)

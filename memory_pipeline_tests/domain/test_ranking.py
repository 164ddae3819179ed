"""Ranking: the sum of two standardised scores, words (BM25) and vectors (cosine)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.ranking import Candidate, scores, terms

texts = st.text(alphabet="abcde fgh", max_size=30)
candidate_lists = st.lists(st.builds(Candidate, texts, st.floats(-1, 1, allow_nan=False)), min_size=1, max_size=8)


def best(query: str, *candidates: tuple[str, float]) -> str:
    listed = [Candidate(*candidate) for candidate in candidates]
    ranked = scores(query, listed)
    return listed[ranked.index(max(ranked))].text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cities", "city"),
        ("CAFÉ", "cafe"),
        ("Curaçao", "curacao"),
        ("cafe\u0301", "café"),
        ("moved", "moving"),
        ("Straße", "STRASSE"),
        ("ﬁsh", "fish"),
        ("２０２４", "2024"),
    ],
)
def test_words_are_compared_without_case_accents_and_endings(one: str, other: str) -> None:
    assert terms(one) == terms(other) != []


def test_stop_words_and_punctuation_are_no_terms() -> None:
    assert terms("What did you do there, and why?!") == []
    assert terms("") == []


def test_words_decide_where_vectors_are_alike() -> None:
    assert best("Where is Porto?", ("We ate fish.", 0.5), ("I moved to Porto.", 0.5)) == "I moved to Porto."


def test_vectors_decide_where_words_are_alike() -> None:
    assert best("Where is Porto?", ("We ate fish.", 0.5), ("They swam.", 0.9)) == "They swam."


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    winner = best("violin lesson", ("a lesson", 0.0), ("lesson two", 0.0), ("a violin", 0.0), ("lesson three", 0.0))
    assert winner == "a violin"


def test_of_two_texts_with_the_word_the_short_one_wins() -> None:
    long = "violin " + " ".join(f"word{n}" for n in range(40))
    assert best("violin", (long, 0.0), ("violin", 0.0)) == "violin"


def test_without_candidates_there_are_no_scores() -> None:
    assert scores("Porto", []) == []


@pytest.mark.parametrize("query", ["", "the", "zebra"])
def test_a_query_that_tells_nothing_apart_gives_equal_scores(query: str) -> None:
    assert scores(query, [Candidate("Porto", 0.3), Candidate("Lisbon", 0.3), Candidate("", 0.3)]) == [0, 0, 0]


def test_a_single_candidate_has_nothing_to_compare_with() -> None:
    assert scores("Porto", [Candidate("Porto", 0.9)]) == [0]


@given(query=texts, candidates=candidate_lists)
def test_scores_are_finite_numbers_around_zero(query: str, candidates: list[Candidate]) -> None:
    found = scores(query, candidates)
    assert len(found) == len(candidates)
    assert all(map(math.isfinite, found))
    assert sum(found) == pytest.approx(0, abs=1e-6)


@given(query=texts, candidates=candidate_lists)
def test_the_order_of_the_candidates_does_not_matter(query: str, candidates: list[Candidate]) -> None:
    assert scores(query, candidates[::-1]) == pytest.approx(scores(query, candidates)[::-1], abs=1e-6)


@given(candidates=candidate_lists, lift=st.floats(0.1, 1))
def test_a_nearer_vector_never_ranks_lower(candidates: list[Candidate], lift: float) -> None:
    nearer = [Candidate(candidates[0].text, candidates[0].similarity + lift), *candidates[1:]]

    def place(listed: list[Candidate]) -> int:
        found = scores("", listed)
        return sum(other > found[0] + 1e-9 for other in found)

    assert place(nearer) <= place(candidates)

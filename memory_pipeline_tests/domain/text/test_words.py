"""Contractions, stop words, stems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.text.words import STOP_WORDS, parts_of, stem


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("i'll", ("i", "'ll")),
        ("didn't", ("did", "n't")),
        ("can't", ("can", "n't")),
        ("won't", ("will", "n't")),
        ("elise's", ("elise", "'s")),
        ("plain", ("plain",)),
        ("'", ("'",)),
    ],
)
def test_contractions_are_split(word: str, parts: tuple[str, ...]) -> None:
    assert parts_of(word) == parts


@pytest.mark.parametrize(
    "forms",
    [
        ("city", "cities"),
        ("run", "runs", "running"),
        ("bake", "bakes", "baked", "baking"),
        ("decide", "decided", "deciding"),
        ("call", "calls", "called", "calling"),
        ("box", "boxes"),
        ("adopt", "adopted", "adopting"),
        ("marry", "marries", "married"),
        ("allergy", "allergies"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize(
    "pair", [("cat", "car"), ("sing", "single"), ("bus", "busy"), ("red", "read"), ("glass", "glad")]
)
def test_unrelated_words_have_different_stems(pair: tuple[str, str]) -> None:
    assert stem(pair[0]) != stem(pair[1])


@given(st.text())
def test_a_stem_is_never_longer_and_never_empty(word: str) -> None:
    assert len(stem(word)) <= len(word)
    assert bool(stem(word)) == bool(word)


def test_stop_words_are_lower_case() -> None:
    assert all(word == word.lower() for word in STOP_WORDS)

"""Verbs and tenses."""

from __future__ import annotations

import pytest

from memory_pipeline.models.deterministic.language.grammar import Sentence, Tense, has_verb, tense_of


@pytest.mark.parametrize(
    ("text", "tense"),
    [
        ("I went home", Tense.PAST),
        ("We adopted a dog", Tense.PAST),
        ("I've been there", Tense.PAST),
        ("She has already gone", Tense.PAST),
        ("I'd gone home", Tense.PAST),
        ("I'd sleep better", Tense.PRESENT),
        ("I thought I'd go", Tense.PRESENT),
        ("The shop is closed", Tense.PRESENT),
        ("She works here", Tense.PRESENT),
        ("We need bread", Tense.PRESENT),
        ("I'll go", Tense.FUTURE),
        ("We are going to move", Tense.FUTURE),
        ("I said we will pay", Tense.FUTURE),
        ("I won't go", Tense.FUTURE),
        ("Two sacks", Tense.NONE),
        ("", Tense.NONE),
    ],
)
def test_the_tense_of_a_verb_is_found(text: str, tense: Tense) -> None:
    assert tense_of(Sentence.of(text).parts) is tense


@pytest.mark.parametrize("text", ["I go", "Anna sings", "We're late", "Otto has escaped", "It rang", "they zorp"])
def test_verbs_are_found(text: str) -> None:
    assert has_verb(Sentence.of(text).parts)


@pytest.mark.parametrize("text", ["", "Two sacks of flour", "Under four hours", "My cat", "The hundred"])
def test_fragments_have_no_verb(text: str) -> None:
    assert not has_verb(Sentence.of(text).parts)

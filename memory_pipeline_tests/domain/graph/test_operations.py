"""Parsing of operations on the graph. `test_triples.py` has their effects."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.graph.operations import MAX_TERM, Operation, Verb, snake_case
from memory_pipeline.errors import InputError

AT = datetime(2024, 1, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "verb"),
    [("INSERT", Verb.INSERT), ("add", Verb.INSERT), (" Update\n", Verb.UPDATE), ("dElEtE", Verb.DELETE)],
)
def test_a_verb_is_read_in_any_case(text: str, verb: Verb) -> None:
    assert Verb.parse(text) is verb


@pytest.mark.parametrize("text", ["", "UPSERT", "INSERT ADD", "insert;"])
def test_an_unknown_verb_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InputError, match="accepted: INSERT, ADD, UPDATE, DELETE"):
        Verb.parse(text)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("user", "User"), ("The User", "User"), ("USER", "User"), ("agent", "Agent"), ("the assistant", "Agent"),
        ("Assistant", "Agent"), ("  Anna \n Maria ", "Anna Maria"), ("userland", "userland"),
        ("the agents", "the agents"),
    ],
)  # fmt: skip
def test_subjects_and_objects_have_canonical_names(written: str, name: str) -> None:
    made = Operation.of("ADD", written, "knows", written, confidence=1, message_ids=["m"], event_at=AT)
    assert (made.subject, made.object) == (name, name)


@pytest.mark.parametrize(
    ("written", "predicate"),
    [
        ("lives in", "lives_in"), ("LivesIn", "lives_in"), ("livesIn", "lives_in"), ("Lives-In!", "lives_in"),
        ("__lives__in__", "lives_in"), ("has 2 dogs", "has_2_dogs"), ("wohnt in Köln", "wohnt_in_köln"),
        ("HTTP", "http"), ("lives_in", "lives_in"), ("...", ""),
    ],
)  # fmt: skip
def test_predicates_are_snake_case(written: str, predicate: str) -> None:
    assert snake_case(written) == predicate


@given(st.text(max_size=30))
def test_a_predicate_has_no_capitals_spaces_or_punctuation(text: str) -> None:
    predicate = snake_case(text)
    assert predicate == predicate.lower()
    assert predicate.split() == ([predicate] if predicate else [])
    assert "__" not in predicate
    assert predicate == predicate.strip("_")
    if text.isascii():
        assert snake_case(predicate) == predicate


@pytest.mark.parametrize(
    ("verb", "subject", "predicate", "value"),
    [
        ("ADD", " ", "likes", "tea"),
        ("ADD", "Anna", "?!", "tea"),
        ("ADD", "Anna", "likes", " "),
        ("UPDATE", "Anna", "likes", ""),
        ("DELETE", "", "likes", "tea"),
        ("ADD", "A" * (MAX_TERM + 1), "likes", "tea"),
        ("ADD", "Anna", "l" * (MAX_TERM + 1), "tea"),
        ("DELETE", "Anna", "likes", "t" * (MAX_TERM + 1)),
        ("FORGET", "Anna", "likes", "tea"),
    ],
)
def test_terms_that_are_missing_or_too_long_are_refused(verb: str, subject: str, predicate: str, value: str) -> None:
    with pytest.raises(InputError):
        Operation.of(verb, subject, predicate, value, confidence=1, message_ids=["m"], event_at=AT)


@pytest.mark.parametrize("confidence", [-0.01, 1.01, math.inf, -math.inf, math.nan])
def test_a_confidence_is_between_0_and_1(confidence: float) -> None:
    def sure(share: float) -> Operation:
        return Operation.of("ADD", "Anna", "likes", "tea", confidence=share, message_ids=["m"], event_at=AT)

    with pytest.raises(InputError, match="expected 0 to 1"):
        sure(confidence)
    assert sure(0).confidence == 0


@pytest.mark.parametrize("share", [-0.01, 1.01, math.inf, math.nan, True, "0.5"])
def test_a_weight_is_between_0_and_1_or_absent(share: object) -> None:
    def weighed(weight: object) -> Operation:
        return Operation.of(
            "ADD", "Anna", "likes", "tea", confidence=1, message_ids=["m"], event_at=AT, weight=weight,  # type: ignore[arg-type]
        )  # fmt: skip

    with pytest.raises(InputError, match=r"weight .* expected 0 to 1"):
        weighed(share)
    assert [weighed(weight).weight for weight in (None, 0, 0.5, 1)] == [None, 0, 0.5, 1]


@pytest.mark.parametrize(("one", "other"), [("खाता", "खोता"), ("กิน", "กัน")])
def test_predicates_that_differ_in_a_vowel_sign_are_different(one: str, other: str) -> None:
    assert snake_case(one) != snake_case(other)


def test_a_predicate_is_the_same_in_every_unicode_form() -> None:
    assert snake_case("wohnt in Ko\u0308ln") == snake_case("wohnt in Köln")

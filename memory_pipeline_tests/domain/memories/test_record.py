"""The record: match keys, titles, hooks and status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.record import (
    MAX_HOOK,
    MemoryKind,
    Status,
    Temperature,
    match_key,
    one_line_summary,
    preference_key,
    sentences,
    shortened,
    title_of,
)
from memory_pipeline.errors import InputError
from memory_pipeline_tests.domain.memories.histories import at, only, remember

FACT, RULE = MemoryKind.FACT, MemoryKind.RULE
TEA = only(remember("Anna likes tea. She drinks it cold."))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("Anna likes tea.", "anna LIKES tea", True),
        ("Anna likes the tea", "Anna likes a tea", True),
        ("Café au lait", "cafe  au\nlait!", True),
        ("likes tea", "likes coffee", False),
        ("Anna knows Omar", "Omar knows Anna", False),
        ("Room 12", "Room 1 2", False),
        ("+", "-", False),
        ("", "", True),
        ("the", "a", False),
    ],
)
def test_near_identical_contents_share_a_match_key(one: str, other: str, is_same: bool) -> None:
    assert (match_key(FACT, one) == match_key(FACT, other)) is is_same
    assert match_key(FACT, one) != match_key(RULE, one)


def test_preference_keys_of_different_users_and_names_never_collide() -> None:
    keys = {preference_key(user, key) for user in ("a", "a named b", "b") for key in ("b", "c", "named b")}
    assert len(keys) == 9


@given(st.text(), st.integers(2, 200))
def test_shortened_returns_one_line_of_the_given_length(text: str, length: int) -> None:
    line = shortened(text, length)
    assert len(line) <= length
    assert line == " ".join(line.split())
    if len(" ".join(text.split())) <= length:
        assert line == " ".join(text.split())
    else:
        assert line.endswith("…")


def test_titles_and_hooks_default_to_the_beginning_of_the_content() -> None:
    assert (TEA.title, TEA.hook) == ("Anna likes tea.", "Anna likes tea. She drinks it cold.")
    long = "word " * 100
    assert len(title_of(long)) <= 80
    assert len(one_line_summary(long)) <= MAX_HOOK
    assert one_line_summary(long).endswith("word…")
    assert title_of("\n\n Tea \n time") == "Tea"
    assert len(shortened("x" * 200, 20)) == 20


def test_sentences_end_at_punctuation_and_line_breaks() -> None:
    assert sentences("One. Two! Three? 3.5 is a number\n\nfour") == [
        "One.",
        "Two!",
        "Three?",
        "3.5 is a number",
        "four",
    ]
    assert sentences(" \n ") == []


def test_kinds_are_parsed() -> None:
    assert MemoryKind.parse("tool_output") is MemoryKind.TOOL_OUTPUT
    wrong: list[Any] = ["FACT", "", None, 5, ["fact"], {}]
    for text in wrong:
        with pytest.raises(InputError, match=r"is unknown; accepted: fact, rule, instruction"):
            MemoryKind.parse(text)


def test_recalled_memories_are_active_and_not_cold() -> None:
    assert TEA.is_recalled
    assert not replace(TEA, temperature=Temperature.COLD).is_recalled
    assert not replace(TEA, status=Status.ARCHIVED).is_recalled
    assert replace(TEA, temperature=Temperature.HOT).is_recalled


def test_last_used_is_the_later_of_access_and_update() -> None:
    assert TEA.last_used_at == at(0)
    assert replace(TEA, last_accessed_at=at(3)).last_used_at == at(3)
    assert replace(TEA, last_accessed_at=at(3), updated_at=at(4)).last_used_at == at(4)


def test_a_memory_has_an_id_for_each_version_and_a_line() -> None:
    home = only(remember("Anna lives in Porto."))
    assert home.version_id == f"{home.id}#1"
    assert str(home) == "⁍ Anna lives in Porto."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Anna writes C++.", "Anna writes C#."),
        ("It costs 100 $.", "It costs 100 €."),
        ("Kept at -5 degrees.", "Kept at 5 degrees."),
        ("An order is > 50.", "An order is < 50."),
        ("A dose is 1.5 mg.", "A dose is 1 5 mg."),
        ("Blood type A+.", "Blood type A-."),
    ],
)
def test_f11_texts_that_differ_in_symbols_have_different_keys(one: str, other: str) -> None:
    assert match_key(MemoryKind.FACT, one) != match_key(MemoryKind.FACT, other)

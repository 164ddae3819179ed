"""Chunks of long input."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration.model_settings import ExtractionSettings
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.models.hosted.prompts import Line, chunks_of, room_for

_PART = re.compile(r"\A<\d+> \(part \d+ of \d+\) ")
#: One to four bytes each, so that bytes and characters differ.
_LETTERS = "abcdeüß漢字🥐"


def words_of(rng: random.Random) -> list[str]:
    """Return a few or many words, each shorter than a part."""
    count = rng.choice([0, 1, 5, 50, 200])
    return ["".join(rng.choices(_LETTERS, k=rng.randint(1, 20))) for _ in range(count)]


def lines_of(*texts: str) -> list[Line]:
    return [Line(number, f"<{number}>", text) for number, text in enumerate(texts, start=1)]


@settings(deadline=None)
@given(st.randoms(use_true_random=True), st.integers(120, 600))
def test_chunks_contain_every_word_and_are_not_too_long(rng: random.Random, room: int) -> None:
    texts = [words_of(rng) for _ in range(rng.randint(1, 5))]
    blank = rng.choice([" ", "\n", "\t", " \n ", "\u2003"])
    chunks = chunks_of(lines_of(*map(blank.join, texts)), room)
    assert all(count_tokens(chunk.text) <= room for chunk in chunks)
    for number, words in enumerate(texts, start=1):
        holding = [chunk for chunk in chunks if number in chunk.numbers]
        found = {word for chunk in holding for word in chunk.text.split()}
        assert holding
        assert set(words) <= found
    assert [number for chunk in chunks for number in chunk.numbers] == sorted(
        number for chunk in chunks for number in chunk.numbers
    )


@settings(deadline=None)
@given(st.randoms(use_true_random=True))
def test_the_parts_of_a_line_add_up_to_the_line(rng: random.Random) -> None:
    text = "".join(rng.choices(f"{_LETTERS}{{}}\x00\x85\u2028  \n", k=rng.choice([1, 100, 1_000, 5_000])))
    chunks = chunks_of([Line(7, "<7>", text)], 120)
    if len(chunks) == 1:
        assert chunks[0].text == f"<7> {text}"
    else:
        assert "".join(_PART.sub("", chunk.text) for chunk in chunks) == text
        assert all(_PART.match(chunk.text) and chunk.numbers == (7,) for chunk in chunks)


@pytest.mark.parametrize("blank", [" ", "\n", "\t", "\r\n"])
def test_a_long_line_is_split_between_words(blank: str) -> None:
    words = [f"word{number}" for number in range(500)]
    chunks = chunks_of(lines_of(blank.join(words)), 120)
    assert len(chunks) > 5
    assert [word for chunk in chunks for word in _PART.sub("", chunk.text).split()] == words


def test_a_text_without_blanks_is_split_between_characters() -> None:
    text = "漢" * 5_000
    chunks = chunks_of(lines_of(text), 120)
    assert "".join(_PART.sub("", chunk.text) for chunk in chunks) == text
    assert all(count_tokens(chunk.text) <= 120 for chunk in chunks)


def test_lines_that_fit_stay_in_one_chunk() -> None:
    chunks = chunks_of(lines_of(*["one two three"] * 100), 120)
    assert all(len(chunk.numbers) > 10 for chunk in chunks[:-1])
    assert [line for chunk in chunks for line in chunk.text.split("\n")] == [
        f"<{number}> one two three" for number in range(1, 101)
    ]
    assert chunks_of([], 120) == []


def test_a_line_in_many_parts_is_numbered_once_per_chunk() -> None:
    chunks = chunks_of([Line(1, "<1>", "a"), Line(2, "<2>", "b " * 300), Line(3, "<3>", "c")], 120)
    assert all(len(set(chunk.numbers)) == len(chunk.numbers) for chunk in chunks)
    assert {number for chunk in chunks for number in chunk.numbers} == {1, 2, 3}
    assert chunks[0].numbers[0] == 1
    assert chunks[-1].numbers[-1] == 3


def test_room_is_the_context_minus_instructions_and_answer() -> None:
    endpoint = ExtractionSettings(model="openai/m", context_tokens=10_000, max_output_tokens=2_000)
    assert room_for(endpoint, "") == 6_400
    assert room_for(endpoint, "x" * 4_000) == 5_600
    assert room_for(endpoint, "x" * 400_000) == 400  # the smallest room

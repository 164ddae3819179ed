"""Splitting messages into sentences and words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.models.deterministic.language.grammar import MAX_LENGTH, Sentence, sentences_of

LONG = 200_000


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in sentences_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I moved. It rained!", ["I moved.", "It rained!"]),
        (
            "We met Dr. Meyer at 5 p.m. in St. Gallen. Then we left.",
            ["We met Dr. Meyer at 5 p.m. in St. Gallen.", "Then we left."],
        ),
        ("We met at 5 p.m. Then we left.", ["We met at 5 p.m.", "Then we left."]),
        ("I like fruit, e.g. Apples.", ["I like fruit, e.g. Apples."]),
        ("It settled at 232. The oven is old.", ["It settled at 232.", "The oven is old."]),
        ("It costs 4.20 or 1,350.50 euros.", ["It costs 4.20 or 1,350.50 euros."]),
        ("I vote no. Sunday is mine.", ["I vote no.", "Sunday is mine."]),
        ("See No. 5 on the list.", ["See No. 5 on the list."]),
        ("J. K. Rowling wrote it.", ["J. K. Rowling wrote it."]),
        ("A book by J.K. Rowling.", ["A book by J.K. Rowling."]),
        ("So do I. Then we went.", ["So do I.", "Then we went."]),
        ("See https://example.org/a.b?c=d. It works.", ["See https://example.org/a.b?c=d.", "It works."]),
        ("We hired him 😀 It was fun. 🛹", ["We hired him 😀", "It was fun."]),
        ("Well... maybe. Yes… no", ["Well... maybe.", "Yes… no"]),
        ('"Until Easter, if you can." He left.', ["Until Easter, if you can.", "He left."]),
        ('He said "rustic" twice.', ['He said "rustic" twice.']),
        ("Wait?! No!!! Fine.", ["Wait?!", "No!!!", "Fine."]),
        ("我昨天去了北京。他没去！", ["我昨天去了北京。", "他没去！"]),
        ("هل ذهبت؟ نعم ذهبت.", ["هل ذهبت؟", "نعم ذهبت."]),
        ("", []),
        ("   \n\t ", []),
        ("😀", []),
    ],
)
def test_sentences_are_split(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_lists_headings_and_tables_are_items() -> None:
    text = "# Plan\nI moved to Porto.\n- buy flour\n  and salt\n| a | b |\n**Note:** sign\nWe open in May."
    assert [sentence.text for sentence in sentences_of(text) if not sentence.is_item] == [
        "I moved to Porto.",
        "We open in May.",
    ]


def test_a_caption_is_not_said_and_the_text_of_a_link_is() -> None:
    assert texts("This is Rex. [shares an image: a photo of a dog]") == ["This is Rex."]
    assert texts("See [the opening hours](https://example.org).") == ["See [the opening hours](https://example.org)."]


def test_a_blank_line_ends_a_paragraph() -> None:
    long = "My wife and I have been thinking for a long time about what to do with it"
    assert texts(f"{long}\n\nTom likes chess") == [long, "Tom likes chess"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Plan\n- buy flour\n* call Aldo\n2. sign\n\nThe end", ["Plan", "buy flour", "call Aldo", "sign", "The end"]),
        ("I went to the\nmarket today.", ["I went to the market today."]),
        ("First line\nSecond line", ["First line", "Second line"]),
        ("- one\n- two", ["one", "two"]),
        ("> you said this\nI disagree.", ["I disagree."]),
        ("Before.\n```python\nprint('I paid 5 euros')\n```\nAfter.", ["Before.", "After."]),
        ("Before.\n~~~\nnever closed. I paid.", ["Before."]),
    ],
)
def test_lines_lists_quotes_and_code_are_split(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_a_wrapped_line_continues_the_sentence() -> None:
    line = "This line was wrapped by a mail program because it was too long for\nAnna to read."
    assert texts(line) == [line.replace("\n", " ")]


def test_text_without_punctuation_is_split_at_spaces() -> None:
    pieces = texts("and then we went on " * 100)
    assert len(pieces) > 4
    assert all(len(piece) <= MAX_LENGTH for piece in pieces)
    assert "".join(pieces).replace(" ", "") == "andthenwewenton" * 100


def test_words_keep_numbers_and_contractions_whole() -> None:
    sentence = Sentence.of("I'll pay 1,350.50 at 9:30 for Jean-Luc’s café.")
    assert sentence.words == ("I'll", "pay", "1,350.50", "at", "9:30", "for", "Jean-Luc’s", "café")
    assert sentence.parts == ("i", "'ll", "pay", "1,350.50", "at", "9:30", "for", "jean-luc", "'s", "café")
    assert all(
        sentence.text.startswith(word, start) for word, start in zip(sentence.words, sentence.starts, strict=True)
    )


@pytest.mark.parametrize("text", ["Really?", "Really?!", 'He asked "why?"', "本当？", "هل؟"])
def test_questions_are_recognized(text: str) -> None:
    assert Sentence.of(text).is_question


@given(st.text(alphabet=st.sampled_from("aA .!?\n\"'-*>#`~1😀。,")))
def test_every_sentence_is_a_part_of_its_message(text: str) -> None:
    flat = "".join(text.split())
    for sentence in sentences_of(text):
        assert sentence.text
        assert "\n" not in sentence.text
        assert "".join(sentence.text.split()) in flat


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        ".",
        '!"',
        "a'",
        "a-",
        "\n",
        "x\n",
        '"',
        "我",
        "我去。",
        "😀",
        " ",
        "`",
        "```\n",
        "- ",
        "> \n",
        "1,",
        "_*",
        "e.g. ",
        "?)",
    ],
)
def test_any_long_message_is_split_quickly(unit: str) -> None:
    # Quadratic code takes hours.
    text = unit * (LONG // len(unit))
    began = time.process_time()
    assert len(sentences_of(text)) <= LONG
    assert len(sentences_of(text + "a")) <= LONG
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I have 300 euros a month, can you help me plan?", ["I have 300 euros a month", "can you help me plan?"]),
        (
            "My son Ben is 21 and studies, what would suit him??",
            ["My son Ben is 21 and studies", "what would suit him??"],
        ),
        (
            "We agreed on a budget of $500 - how do I keep to it?",
            ["We agreed on a budget of $500", "how do I keep to it?"],
        ),
        ("I moved to Porto last week, so any tips?", ["I moved to Porto last week", "any tips?"]),
        ("I live in Porto, which is near the sea.", ["I live in Porto, which is near the sea."]),
        ("If I move to Porto, can you help me?", ["If I move to Porto, can you help me?"]),
        ("Hey Anna, can you come?", ["Hey Anna, can you come?"]),
        ("Do you know Porto, and is it nice?", ["Do you know Porto, and is it nice?"]),
    ],
)
def test_a_statement_before_a_question_is_a_sentence_of_its_own(text: str, expected: list[str]) -> None:
    assert [sentence.text for sentence in sentences_of(text)] == expected

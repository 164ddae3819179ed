"""Passages of long texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.passages import BLOCK_WORDS, PASSAGE_WORDS, WHOLE_WORDS, excerpt, passages, word_count

SENTENCE = "The oven in the old bakery at the harbour needs a new door. "
CODE = "```python\n" + "total = price * count\n" * 20 + "```\n"
PIECES = [
    SENTENCE, "word " * 70, "\n", "\n\n", "- item\n",
    "我昨天去了北京。", CODE, "| a | b |\n", "```\n", "x" * 900, "?! ",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def parts(text: str) -> list[str]:
    return [text[start:end] for start, end in passages(text)]


@given(TEXTS | st.text())
def test_passages_contain_all_of_a_text_once_and_in_order(text: str) -> None:
    assert "".join("".join(parts(text)).split()) == "".join(text.split())
    assert all(start < end for start, end in passages(text))


@given(TEXTS)
def test_passages_are_short(text: str) -> None:
    assert all(word_count(part) <= BLOCK_WORDS for part in parts(text))
    assert all(word_count(part) <= PASSAGE_WORDS for part in parts(text.replace("```", "").replace("|", "")))


def test_a_passage_ends_at_the_end_of_a_sentence() -> None:
    assert parts(SENTENCE * 12) == [SENTENCE * 4, SENTENCE * 4, SENTENCE * 4]
    assert word_count(SENTENCE) == 13


def test_code_and_tables_are_not_split() -> None:
    assert parts(f"Run this.\n{CODE}Then rest.") == ["Run this.\n", CODE, "Then rest."]
    table = "| flour | 2 kg |\n" * 10
    assert parts(f"Prices.\n{table}Done.") == ["Prices.\n", table, "Done."]
    assert len(parts(CODE.replace("total", "total\n" * 10))) == 3


def test_the_length_of_chinese_text_is_counted_in_characters() -> None:
    assert word_count("我昨天去了北京。") == 4
    assert [len(part) for part in parts("我昨天去了北京。" * 40)] == [120, 120, 80]


def test_a_long_text_is_cut_to_the_passage_that_answers() -> None:
    text = SENTENCE * 10 + "The flour costs 3 euros. " + SENTENCE * 10
    shown = excerpt(text, lambda passage: passage.count("flour"))
    assert "The flour costs 3 euros." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert word_count(shown) <= PASSAGE_WORDS + 2
    assert excerpt(text, lambda _: 0.0) == f"{(SENTENCE * 4).strip()} …"


def test_a_short_passage_is_shown_with_its_neighbours() -> None:
    text = f"Run this.\n{CODE}It prints the sum.\n{SENTENCE * 3}"
    assert excerpt(text, lambda passage: passage.count("prints")).endswith(SENTENCE.strip())
    assert excerpt(text, lambda passage: passage.count("Run")) == "Run this. …"


def test_a_text_little_longer_than_a_passage_is_shown_whole() -> None:
    text = "word " * WHOLE_WORDS
    assert excerpt(text, lambda _: 0.0) == text

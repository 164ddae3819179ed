"""Long repetitive texts: no rule may take quadratic time.

A test fails if eight times the text takes more than thirty times the time; quadratic code takes sixty-four times.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.graph.operations import snake_case
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.deduplication import figures, union
from memory_pipeline.domain.memories.record import MemoryKind, match_key, one_line_summary, signs, title_of
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.summaries import Material
from memory_pipeline.domain.text.ranking import Query, terms
from memory_pipeline.domain.text.recalled_text import mark, without_recalled
from memory_pipeline.domain.text.words import parts_of, plain, spaced, words_of
from memory_pipeline.graph.entities import _names
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import MOST_SENTENCES, DeterministicExtractor
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.deterministic.language.names import names_in
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.models.deterministic.said import MONDAY, said

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT, LONG = 4_000, 32_000
#: Seconds that are noise.
NOISE = 0.02

EXTRACTOR = DeterministicExtractor()
EMBEDDER = HashingEmbedder()
SUMMARIZER = ExtractiveSummarizer()
DAY = Period.parse("daily", "2023-05-08")


def _summarized(text: str) -> None:
    lines = [text[start : start + 200] for start in range(0, len(text), 200)]
    SUMMARIZER.points_of(DAY, [Material(f"x#{n}", line, MONDAY, n, 0.5, ()) for n, line in enumerate(lines)])


def _returned(text: str) -> None:
    half = len(text) // 2
    without_recalled(f"{text[:half]}{mark(text)}{text[half:]}")


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "extraction": lambda text: EXTRACTOR.facts_of([said(text)]),
    "sentences": sentences_of,
    "names": lambda text: names_in(sentences_of(text), "Anna"),
    "embedding": lambda text: EMBEDDER.embed([text]),
    "summarization": _summarized,
    "curation": lambda text: union(text, f"{text[::-1]} {text}"),
    "duplicates": lambda text: (figures(text), match_key(MemoryKind.FACT, text), signs(text)),
    "titles": lambda text: (title_of(text), one_line_summary(text)),
    "recalled": without_recalled,
    "returned": _returned,
    "words": lambda text: (plain(text), spaced(text), parts_of.__wrapped__(text)),
    "mentions": words_of,
    "terms": terms,
    "questions": lambda text: Query.of(text, ["Anna", "Will", "Bob Smith", "A", "Now"]),
    "entities": _names,
    "keys": lambda text: (name_key.__wrapped__(text), snake_case(text)),
}

UNITS = (
    "I moved to Porto. ", "I ", "a ", "A ", "A.B. ", "Will ", "Anna's sister ", "and ", "I like a, ", '"I like tea." ',
    '"', "“I ", "'", "n't", "a-", "1,", "1. ", "- a\n", "\n", " ", "```\n", "> a\n", "> ", "&amp;", "\\u003c", "\\",
    "on 7 May ", "by the ", "the policy is ", "every a must ", "whenever I ", "maybe ", "remember that I ", "No. ", "é",
    "e\u0301", "不", "가", "😀", "\u200b", "<recalled-memory 3f2a9c01b2d4>", "</recalled-memory 3f2a9c01b2d4>\n",
)  # fmt: skip


def _texts() -> list[str]:
    """Return the repeated pieces: each unit, and some mixtures."""
    mixed = random.Random(1)
    return [*UNITS, *("".join(mixed.sample(UNITS, 3)) for _ in range(400 if IS_THOROUGH else 3))]


def _seconds(function: Callable[[str], object], text: str) -> float:
    begun = time.process_time()
    function(text)
    return time.process_time() - begun


def _is_too_slow(function: Callable[[str], object], unit: str) -> bool:
    long, short = (((unit * length)[:length]) for length in (LONG, SHORT))
    slow = _seconds(function, long)
    # Measured again, in case something else took the time.
    return slow > 30 * NOISE and min(slow, _seconds(function, long)) > 30 * max(_seconds(function, short), NOISE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_is_not_quadratic_in_the_length(name: str) -> None:
    assert [unit for unit in _texts() if _is_too_slow(FUNCTIONS[name], unit)] == []


@pytest.mark.parametrize("piece", ["I moved to Porto. ", "My friend W{0} likes w{0}. ", '"I like w{0}," said W{0}. '])
def test_the_time_for_the_longest_message_is_limited(piece: str) -> None:
    text = "".join(piece.format("".join("abcdefghij"[int(digit)] for digit in str(n))) for n in range(60_000))[
        :1_000_000
    ]
    begun = time.process_time()
    turn, *facts = EXTRACTOR.facts_of([said(text)])
    assert turn.content.endswith(text)
    assert 0 < len(facts) <= MOST_SENTENCES
    assert time.process_time() - begun < 10  # it takes half a second; reading every sentence takes more


def test_a_sentence_that_is_repeated_is_one_fact() -> None:
    turn, *facts = EXTRACTOR.facts_of([said("I moved to Porto. " * 200)])
    assert len(facts) == len(turn.operations) == 1

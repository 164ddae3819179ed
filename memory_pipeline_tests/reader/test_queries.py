"""Unusual queries: each gets an answer or an InputError, in memory, in pending entries and on disk."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.errors import InputError
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.reader.ways import JANUARY, WAYS, Said, keep, readers, talk

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import Hits, MemoryReader
    from memory_pipeline_tests.conftest import SharedFolder

HEBREW, ARABIC = "עברתי לגור בחיפה עם הכלב שלי", "انتقلت إلى بيروت مع كلبي"
TALKS = [
    talk(
        "one",
        "2024-01-15T08:00",
        Said("Anna", "I moved to Porto with my dog."),
        Said("Zoë", "Mein Café heißt Größenwahn."),
        Said("Sean O'Brien", 'He said "hello, world"; then he left.'),
    ),
    talk("bike", "2024-01-16T08:00", Said("Anna", "My bike 🚲 is red.")),
    talk("hebrew", "2024-01-16T09:00", Said("דנה", HEBREW)),
    talk("arabic", "2024-01-16T10:00", Said("ليلى", ARABIC)),
    talk("japanese", "2024-01-16T11:00", Said("花子", "昨日東京へ引っ越しました。")),
    talk("code", "2024-01-16T12:00", Said(None, "SELECT * FROM facts WHERE id = 'x'; DROP TABLE facts; --")),
    talk("last", "2024-01-17T09:00", Said("Anna", "Porto is hilly.")),
]
EVERYTHING = 9
#: Queries that a search by words must accept.
ODD = [
    "the of and a to", "Who is it that was there?", "!!!", "...", "?", "-", "_", "'", '"', "''",
    "\\", "%", "*", "+", "^2", "~", "()", "{}", "[]", "a:b", "AND", "OR NOT", '"unfinished',
    "(porto", "porto AND", "+porto -dog", "porto*", "porto~2", "content:porto",
    "'; DROP TABLE facts; --", "' OR 1=1 --", "1; DELETE FROM x", "${x}", "{{x}}", "<b>",
    "\x01\x02", "\x7f", "a\x00b", "\x00porto\x00", "\ufeff", "\ufffe", "\u200b", "\u202eotroP",
    "🚲", "👩‍👩‍👧", "🇵🇹", "\u0301", "e\u0301\u0301", "日本語", "ﷺ", "שלום", "مرحبا", "\n\r\t.",
    "1e309", "NaN", "null", "None", "😀" * 2_000, "x" * 10_000, "'" * 10_000, "porto " * 1_666,
]  # fmt: skip
BLANK = ["", " ", "\t\r\n", "\x00", "\x00 \x00", "\u2003\u2028", " " * 10_000]


@pytest.fixture(scope="module")
def ways(shared_folder: SharedFolder, models: Models) -> dict[str, MemoryReader]:
    return readers(shared_folder("reader-queries", lambda folder: keep(folder, models, TALKS)), models)


def search(reader: MemoryReader, query: Any, **options: Any) -> Hits:
    return reader.search_memory(query=query, max_results=100, now=JANUARY, **options)


@pytest.fixture(scope="module")
def newest(ways: dict[str, MemoryReader]) -> dict[str, Hits]:
    """The hits without a query."""
    return {way: search(ways[way], None) for way in WAYS}


@pytest.mark.parametrize("query", BLANK, ids=ascii)
def test_a_blank_query_shows_the_newest(ways: dict[str, MemoryReader], newest: dict[str, Hits], query: str) -> None:
    for way in WAYS:
        hits = search(ways[way], query)
        assert hits == newest[way]
        assert hits[0].content == "Anna: Porto is hilly."
        assert len(hits) == hits.total == EVERYTHING


@pytest.mark.parametrize("query", ODD, ids=lambda query: ascii(query[:12]))
def test_any_query_ranks_all_memories(ways: dict[str, MemoryReader], query: str) -> None:
    for way in ("held", "disk and tail"):
        started = time.perf_counter()
        hits = search(ways[way], query)
        assert time.perf_counter() - started < 20
        assert len({hit.id for hit in hits}) == len(hits) == hits.total == EVERYTHING
        assert all(0 <= hit.score <= 1 for hit in hits)
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
    assert ways["held"].recall(query, minimum_score=0, now=JANUARY)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        *[(query, "Mein Café") for query in ("zoe", "ZOE", "Zoë", "ZOË", "Zoe\u0308", "cafe", "CAFÉ", "Cafe\u0301")],
        *[(query, "Mein Café") for query in ("GRÖSSENWAHN", "größenwahn", "grossenwahn", "ｃａｆｅ")],
        *[(query, "He said") for query in ("O'Brien", "O’Brien", "hello, world", '"hello, world"', "HELLO")],
        *[
            (query, "I moved to Porto")
            for query in ("porto dog", "PORTO; dog", "'porto' OR 'dog'", "\x00dog", "dog\x01")
        ],
        *[(query, HEBREW) for query in ("בחיפה", "הכלב שלי", "\u202bבחיפה\u202c", "דנה")],
        *[(query, ARABIC) for query in ("بيروت", "بَيْرُوت", "ليلى")],
        *[(query, "昨日") for query in ("東京", "花子", "東京へ")],
        *[(query, "SELECT") for query in ("'; DROP TABLE facts; --", "select * from facts", "SELECT")],
        ("bike 🚲", "My bike"),
        ("🚲", "My bike"),
    ],
    ids=ascii,
)
def test_words_are_found_in_any_script_case_and_accent(ways: dict[str, MemoryReader], query: str, first: str) -> None:
    for way in ("held", "disk and tail"):
        hits = search(ways[way], query)
        assert (hits[0].content.partition(": ")[2].startswith(first), way) == (True, way)
        assert hits[0].score > hits[1].score


@pytest.mark.parametrize("text", ["x" * 1_000_000, "Where is Bruno? " * 62_500, "\x00" * 1_000_000, "日本" * 500_000])
def test_a_megabyte_is_refused_at_once(ways: dict[str, MemoryReader], text: str) -> None:
    for way in WAYS:
        started = time.perf_counter()
        with pytest.raises(InputError, match="at most 10,000 characters"):
            search(ways[way], text)
        with pytest.raises(InputError, match="at most 10,000 characters"):
            ways[way].recall(text)
        assert time.perf_counter() - started < 20


@pytest.mark.parametrize("text", ["\ud800", "Porto \udfff", "\ude00\ud83d"], ids=ascii)
def test_broken_unicode_is_refused(ways: dict[str, MemoryReader], text: str) -> None:
    for way in WAYS:
        with pytest.raises(InputError, match="not valid Unicode text"):
            search(ways[way], text)


@settings(max_examples=examples(25), deadline=None)
@given(st.text(st.characters(codec=None), max_size=40) | st.text("'\"\\;-*()~^:&|+ %_aporto", max_size=20))
def test_every_query_is_answered_or_rejected(ways: dict[str, MemoryReader], query: str) -> None:
    for way in ("held", "disk and tail"):
        try:
            assert len(search(ways[way], query)) == EVERYTHING
        except InputError:
            assert any("\ud800" <= character <= "\udfff" for character in query)

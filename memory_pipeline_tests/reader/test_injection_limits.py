"""Limits of injection: count and budget are never exceeded, and each source gets its share."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, ReadingModels
from memory_pipeline.reader import MemoryReader
from memory_pipeline.reader.packing.injection import document_parts
from memory_pipeline.reader.packing.items import Recalled, Source, compact
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME, conversation, write
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.reader.injecting import (
    DOCUMENTS,
    JANUARY,
    OTHER,
    PROMPTS,
    SAID,
    TEXTS,
    WORDED,
    Backwards,
    DocumentsFirst,
    ask,
    configure,
    injected,
    recalled,
)

SMALL = [
    "Anna travels to Porto by train because she is afraid of flying.",
    "Anna's sister in Porto is called Clara and bakes bread.",
    "The flat in Porto costs 900 euros a month, heating included.",
]
RERANKS = ("none", "deterministic", "model")


@pytest.fixture
def shared(injected_from: Path) -> str:
    """A lake of two agents with journal entries and tables; tests only read it."""
    return str(injected_from)


@pytest.fixture
def reader(shared: str, models: Models) -> MemoryReader:
    return MemoryReader(Lake(shared), ACME, models.embedder)


# Shares.


@pytest.mark.parametrize("rerank", RERANKS)
@pytest.mark.parametrize("first", [DocumentsFirst(), Backwards()])
def test_many_documents_do_not_displace_memory(rerank: str, first: Any) -> None:
    models = ReadingModels(reranker=first) if rerank == "model" else ReadingModels()
    said = [recalled(f"Anna: {text}", number) for number, text in enumerate(SAID)]
    known = injected(said, DOCUMENTS, rerank=rerank, models=models, most=5)
    assert len(known.of("memory")) >= 1
    assert len(known.of("document")) >= 1
    assert (len(known.parts), known.left_out) == (5, 48)


def test_many_documents_do_not_displace_memory_of_a_lake(lake: Lake, models: Models) -> None:
    with OpenAIServer() as server:
        server.answer = lambda body: {"order": sorted(range(1, 200), key=lambda number: number % 2 == 1), "names": []}
        write(lake, conversation(*SAID))
        for rerank in RERANKS:
            oracle.configure(lake, server, f"\n  injection: {{{{rerank: {rerank}}}}}\n")
            known = ask(MemoryReader(lake, ACME, models.embedder), documents=DOCUMENTS, max_results=5)
            assert known.troubles == {}
            assert len(known.of("memory")) >= 1, rerank
            assert len(known.of("document")) >= 1, rerank
            assert len(known.parts) == 5
        assert server.counts["path chat"] == 1


@pytest.mark.parametrize("document", ["Porto.", "Porto, its trains, its flats and its bread. " * 5])
def test_a_small_budget_is_for_memory_first(lake: Lake, models: Models, document: str) -> None:
    writer = MemoryWriter(lake, ACME)
    for number, text in enumerate(SMALL):
        writer.remember(text, now=JANUARY - timedelta(days=9 + number))
    write(lake, *(conversation(text, scope=OTHER) for text in SMALL))
    for scope, source in ((ACME, Source.DURABLE), (OTHER, Source.MEMORY)):
        reader = MemoryReader(lake, scope, models.embedder)
        for tokens in range(60, 101, 5):
            known = reader.inject_knowledge("What about Porto?", [document] * 50, max_tokens=tokens, now=JANUARY)
            assert known.tokens <= tokens
            assert known.of(source), tokens


def test_a_single_place_is_for_a_fact() -> None:
    for models in (ReadingModels(), ReadingModels(reranker=DocumentsFirst())):
        known = injected([recalled(f"Anna: {SAID[0]}")], DOCUMENTS, models=models, most=1)
        assert [one.source for one in known.parts] == [Source.MEMORY]


def test_a_huge_document_leaves_memory_its_part_of_the_budget() -> None:
    said = [recalled("Anna: " + "I moved to Porto and it was a long way. " * 500)]
    known = injected(said, ["Paragraph " + "of Porto " * 100_000], tokens=500)
    sizes = [len(str(one).encode()) for one in known.parts]
    assert {one.source for one in known.parts} == {Source.MEMORY, Source.DOCUMENT}
    assert min(sizes) > 0.7 * max(sizes)
    assert 450 <= known.tokens <= 500


def test_the_unused_share_of_a_short_item_is_used_by_others() -> None:
    known = injected([recalled("Anna: I moved.")], ["Paragraph " + "of Porto " * 1_000], tokens=500)
    assert "⁍ [2024-01-15] Anna: I moved.\n" in known.block
    assert 450 <= known.tokens <= 500
    known = injected([recalled("Anna: " + "I moved to Porto. " * 500)], ["Paragraph 1"], tokens=500)
    assert "⁍ Paragraph 1\n" in known.block
    assert 450 <= known.tokens <= 500


def test_each_source_returns_its_best_item() -> None:
    said = [recalled(f"Anna: thing {number}", number) for number in range(20)]
    known = injected(said, [f"Paragraph {number}" for number in range(20)], prompt="?", rerank="none", most=4)
    assert [one.content for one in known.parts] == ["Anna: thing 0", "Anna: thing 1", "Paragraph 0", "Paragraph 1"]


def test_rules_prefer_items_that_share_rare_words_with_the_prompt() -> None:
    documents = [f"Paragraph {number} tells of Anna." for number in range(20)] + ["The passport office is shut."]
    asked = "Anna asks: when does the passport office open?"
    for rerank, is_there in (("deterministic", True), ("none", False)):
        known = injected([], documents, prompt=asked, rerank=rerank, most=3)
        assert ("The passport office is shut." in known.block) is is_there


_ORDERS = """
import random
from memory_pipeline.reader.packing.injection import by_words
from memory_pipeline.reader.packing.items import Recalled
words = [f"{one}{two}" for one in "apple boat candle dragon engine forest".split() for two in ("tree", "house")]
orders = []
for seed in range(100):
    rng = random.Random(seed)
    own = rng.sample(words, 8)
    texts = [" ".join(own), " ".join([*own[::-1], "beside", "others"])]
    texts += [" ".join(words[: place + 1]) for place in range(11)]
    parts = [Recalled(str(place), "document", "", None, text) for place, text in enumerate(texts)]
    orders.append([part.id for part in by_words(" ".join(words), parts)])
print(orders)
"""


def test_rules_give_the_same_order_in_every_process() -> None:
    own = io.StringIO()
    with redirect_stdout(own):
        exec(_ORDERS, {})
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # hashes of strings differ there
    other = subprocess.run(
        [sys.executable, "-c", _ORDERS], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    assert other.stdout == own.getvalue() != ""


@pytest.mark.parametrize("text", ["我搬到波尔图了" * 300, "ฉันย้ายไปปอร์โต" * 200, "Ж" * 5_000])
@pytest.mark.parametrize("source", [Source.MEMORY, Source.DOCUMENT])
def test_a_long_text_without_spaces_is_included(text: str, source: Source) -> None:
    text = f"Anna: {text}"
    known = injected([recalled(text)], tokens=300) if source is Source.MEMORY else injected([], [text], tokens=300)
    assert [one.source for one in known.parts] == [source]
    assert 250 <= known.tokens <= 300


def test_blank_lines_before_a_document_take_no_budget() -> None:
    text = "Porto lies at the Douro. " * 200
    assert injected([], ["\n" * 2_000 + text], tokens=300).block == injected([], [text], tokens=300).block


def test_pieces_of_one_document_stay_in_the_order_in_which_they_were_chosen() -> None:
    documents = [{"content": text, "id": name} for text, name in (("one", "a"), ("two", "b"), ("three", "a"))]
    assert [one.content for one in injected([], documents, rerank="none").parts] == ["one", "two", "three"]


# Limits.


@st.composite
def numbered(draw: st.DrawFn, texts: st.SearchStrategy[str], most: int) -> list[str]:
    """Return distinct texts; each begins with its own number."""
    drawn = draw(st.lists(texts, max_size=most))
    return [f"{number}q{draw(st.sampled_from([' ', chr(10)]))}{text}" for number, text in enumerate(drawn)]


def split(texts: list[str], documents: int, summaries: int) -> tuple[list[str], list[Recalled]]:
    """Return the first texts as documents, the others as recalled points and facts."""
    others = texts[documents:]
    grains = [Grain.DAILY] * summaries + [Grain.WORKING] * len(others)
    said = [recalled(text, number, grain) for number, (text, grain) in enumerate(zip(others, grains, strict=False))]
    return texts[:documents], said


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=_QUIET)
@given(
    numbered(TEXTS, 8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 50),
    st.one_of(st.integers(50, 150), st.integers(50, 3_000)),
    st.sampled_from(RERANKS),
    PROMPTS,
)
def test_neither_count_nor_budget_is_ever_exceeded(
    texts: list[str], documents: int, summaries: int, most: int, tokens: int, rerank: str, prompt: str
) -> None:
    given_documents, recollection = split(texts, documents, summaries)
    models = ReadingModels(reranker=Backwards()) if rerank == "model" else ReadingModels()
    known = injected(recollection, given_documents, prompt, rerank=rerank, models=models, most=most, tokens=tokens)
    candidates = [*recollection, *document_parts(given_documents)]
    assert known.troubles == {}
    assert len(known.parts) <= most
    assert count_tokens(known.block) == known.tokens <= tokens
    assert len(known.parts) + known.left_out == len(candidates)
    chosen = Counter((one.source, one.id) for one in known.parts)
    assert set(chosen.values()) <= {1}
    whole = {(one.source, one.id): one for one in candidates}
    for one in known.parts:
        content = whole[one.source, one.id].content
        assert one.content == content or (one.content.endswith("…") and compact(content).startswith(one.content[:-1]))


@settings(max_examples=examples(50), deadline=None, suppress_health_check=_QUIET)
@given(numbered(WORDED, 6), st.integers(0, 6), st.integers(0, 6), st.integers(4, 50), st.integers(250, 900))
def test_memory_and_documents_both_get_a_place(
    texts: list[str], documents: int, summaries: int, most: int, tokens: int
) -> None:
    given_documents, recollection = split(texts, documents, summaries)
    known = injected(recollection, given_documents, most=most, tokens=tokens)
    candidates = [*recollection, *document_parts(given_documents)]
    found, chosen = ({one.source is Source.DOCUMENT for one in items} for items in (candidates, known.parts))
    assert chosen == found


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, max_size=6), st.integers(1, 50), st.integers(50, 600), PROMPTS)
def test_limits_hold_for_a_real_memory_and_any_documents(
    reader: MemoryReader, documents: list[str], most: int, tokens: int, prompt: str
) -> None:
    known = ask(reader, prompt, documents, max_results=most, max_tokens=tokens)
    assert known.troubles == {}
    assert len(known.parts) <= most
    assert count_tokens(known.block) == known.tokens <= tokens
    assert len({(one.source, one.id) for one in known.parts}) == len(known.parts)
    assert without_recalled(known.block) == ""


def test_a_cut_item_keeps_some_text() -> None:
    said = [recalled("Anna: I moved to Porto last week, which took me all day.")]
    documents = [{"content": "Porto lies at the Douro, not far from the sea.", "id": "atlas of Portugal"}]
    point = recalled("Anna planned a journey to Lisbon and Faro.", 1, Grain.MONTHLY)
    for tokens in range(50, 130):
        for one in injected([*said, point], documents, tokens=tokens).parts:
            assert set(one.content.split()) & set(one.text.removesuffix("…").split()), (tokens, one.text)


@pytest.mark.parametrize("scope", [ACME, OTHER])
def test_limits_default_to_the_configuration(lake: Lake, models: Models, scope: Scope) -> None:
    text = "workspaces: {acme: {agents: {support: {injection: {max_results: 2, max_tokens: 90}}}}}"
    configure(lake, text)
    for one in (ACME, OTHER):
        write(lake, conversation(*SAID, scope=one))
    known = ask(MemoryReader(lake, scope, models.embedder), documents=DOCUMENTS)
    limited = scope is ACME
    assert len(known.parts) == (2 if limited else 5)
    assert (known.tokens <= 90) is limited
    more = ask(MemoryReader(lake, scope, models.embedder), documents=DOCUMENTS, max_results=7, max_tokens=900)
    assert len(more.parts) == 7


@pytest.mark.parametrize("count", [50, 1_000])
def test_many_documents_are_handled_in_time(reader: MemoryReader, count: int) -> None:
    started = time.monotonic()
    documents = [f"Paragraph {number} tells of the house in Porto." for number in range(count)]
    known = ask(reader, documents=documents, max_results=50, max_tokens=100_000)
    assert time.monotonic() - started < 20
    assert len(known.parts) == 50
    assert known.left_out >= count + len(SAID) - 50

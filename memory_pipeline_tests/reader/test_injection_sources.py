"""Failures of sources and models during injection, and the switch that disables it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline.graph import Graph
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, ReadingModels
from memory_pipeline.reader import MemoryReader, MemorySearch
from memory_pipeline.reader.packing.items import Recalled, Source
from memory_pipeline.search.searcher import Searcher
from memory_pipeline_tests import index_rows, oracle
from memory_pipeline_tests.building import ACME, conversation, write
from memory_pipeline_tests.openai_server import Fault, OpenAIServer
from memory_pipeline_tests.reader.injecting import (
    DOCUMENTS,
    OTHER,
    SAID,
    ask,
    configure,
    injected,
    recalled,
    write_fact,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def shared(injected_from: Path) -> str:
    """A lake of two agents with journal entries and tables; tests only read it."""
    return str(injected_from)


@pytest.fixture
def reader(shared: str, models: Models) -> MemoryReader:
    return MemoryReader(Lake(shared), ACME, models.embedder)


# Sources that fail.

#: The method that queries each source.
FAILING = {"memory": (Searcher, "everything"), "graph": (Graph, "mentions"), "durable": (MemorySearch, "fitting")}


@pytest.mark.parametrize("error", [InputError("no such thing"), OSError("disk is gone"), RuntimeError("boom")])
@pytest.mark.parametrize("source", FAILING)
def test_a_failed_source_is_reported_and_the_others_answer(
    reader: MemoryReader, monkeypatch: pytest.MonkeyPatch, source: str, error: Exception
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    whole = ask(reader, documents=DOCUMENTS[:2], max_results=10)
    owner, name = FAILING[source]
    monkeypatch.setattr(owner, name, failing)
    known = ask(reader, documents=DOCUMENTS[:2], max_results=10)
    assert set(known.troubles) == {source}
    assert str(error) in known.troubles[source]
    assert known.of(source) == []
    for other in {Source.MEMORY, Source.GRAPH, Source.DOCUMENT} - {Source(source)}:
        expected = {one.text for one in whole.of(other)}
        assert expected  # there may be more facts, of messages that memory did not return
        assert expected <= {one.text for one in known.of(other)}


def test_documents_are_returned_when_all_other_sources_fail(
    reader: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in FAILING.values():
        monkeypatch.setattr(owner, name, lambda *_, **__: 1 // 0)
    known = ask(reader, documents=["Porto lies at the Douro."])
    assert known.block.splitlines()[2:-1] == ["⁍ From documents:", "⁍ Porto lies at the Douro."]
    assert set(known.troubles) == {"memory", "graph", "durable"}
    assert all("ZeroDivisionError" in reason for reason in known.troubles.values())
    assert ask(reader).block == ""


def test_memory_of_another_embedder_is_reported(shared: str) -> None:
    reader = MemoryReader(Lake(shared), ACME, index_rows.Embedder())
    known = ask(reader, documents=["Porto lies at the Douro."], max_results=10)
    assert "memory-pipeline reembed --to MODEL" in known.troubles["memory"]
    assert set(known.troubles) == {"memory"}
    assert "Initech" in known.block
    assert "Douro" in known.block


def test_words_are_compared_if_the_embedder_fails(lake: Lake) -> None:
    write(lake, conversation(*SAID))
    known = ask(MemoryReader(lake, ACME, index_rows.Embedder()))
    assert "Anna: I moved to Porto last week." in known.block
    assert known.troubles == {}


# The switch.


def test_one_agent_is_switched_off_and_another_is_not(lake: Lake, models: Models) -> None:
    configure(lake, "workspaces: {acme: {agents: {support: {injection: {enabled: false}}}}}")
    for scope in (ACME, OTHER):
        write(lake, conversation(*SAID, scope=scope))
    off = ask(MemoryReader(lake, ACME, models.embedder), documents=DOCUMENTS)
    assert (off.block, off.parts, off.left_out) == ("", (), 50)
    assert set(off.troubles) == {"injection"}
    assert "switched off" in off.troubles["injection"]
    on = ask(MemoryReader(lake, OTHER, models.embedder), documents=DOCUMENTS)
    assert len(on.parts) == 5
    assert on.of("memory")
    assert on.troubles == {}


def test_disabled_injection_queries_nothing(lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer() as server:
        oracle.configure(lake, server, oracle.INJECTION.replace("rerank", "enabled: false, rerank"))
        write(lake, conversation(*SAID))
        for owner, name in FAILING.values():
            monkeypatch.setattr(owner, name, lambda *_, **__: pytest.fail("memory was searched"))
        assert ask(MemoryReader(lake, ACME, models.embedder), documents=DOCUMENTS).troubles.keys() == {"injection"}
        assert server.requests == []


# Models.


def asked_of(lake: Lake, server: OpenAIServer, models: Models, injection: str = oracle.INJECTION) -> MemoryReader:
    brief = injection.replace("attempts: 1", "attempts: 1, timeout_seconds: 0.4")
    oracle.configure(lake, server, brief)
    return MemoryReader(Lake(lake.storage.uri), ACME, models.embedder)


def calm(injection: str = oracle.INJECTION) -> str:
    """Return a configuration with long timeouts, for a busy machine."""
    return injection.replace("attempts: 1", "attempts: 2")


def test_a_model_finds_entities_and_sorts_items(lake: Lake, server: OpenAIServer, models: Models) -> None:
    write(lake, conversation(*SAID))
    write_fact(lake.storage.uri, "Initech", "based_in", "Oslo")
    reader = asked_of(lake, server, models, calm())

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if oracle.name_of(body) == "entities":
            return {"names": ["Initech"]}
        lines = body["messages"][1]["content"].splitlines()
        numbers = [line[1:].partition("]") for line in lines if line.startswith("[")]
        return {"order": [int(number) for number, _, text in numbers if "Paragraph 30 " in text]}

    server.answer = answer
    known = ask(reader, "Where is the firm?", DOCUMENTS)
    assert known.troubles == {}
    assert "Initech based_in Oslo" in known.block
    assert known.of("document")[0].text == DOCUMENTS[30] or DOCUMENTS[30] in known.block
    assert server.counts["path chat"] == 2


#: One of each trouble; `test_litellm_client.py` has all faults.
MODEL_FAULTS = ["401", "429", "500", "hang", "bad_content", "context_length"]


@pytest.mark.parametrize("kind", MODEL_FAULTS)
def test_a_failed_model_is_reported_and_keeps_the_order(
    lake: Lake, server: OpenAIServer, models: Models, kind: str
) -> None:
    write(lake, conversation(*SAID))
    configure(lake, "defaults: {injection: {rerank: none}}")
    expected = ask(MemoryReader(lake, ACME, models.embedder), documents=DOCUMENTS, max_results=10)
    waits = kind in {"hang", "dribble"}
    reader = asked_of(lake, server, models, oracle.INJECTION if waits else calm())
    server.faults = [Fault(kind, times=None, retry_after=0.01)]
    started = time.monotonic()
    known = ask(reader, documents=DOCUMENTS, max_results=10)
    assert time.monotonic() - started < 30  # a hang lasts an hour
    assert set(known.troubles) == {"rerank", "entities"}
    assert all(len(reason) > 10 for reason in known.troubles.values())
    assert [one.text for one in known.parts] == [one.text for one in expected.parts]
    assert known.left_out == expected.left_out


def test_a_missing_server_is_reported(lake: Lake, server: OpenAIServer, models: Models) -> None:
    write(lake, conversation(*SAID))
    reader = asked_of(lake, server, models)
    server.stop()
    known = ask(reader, documents=DOCUMENTS)
    assert set(known.troubles) == {"rerank", "entities"}
    assert known.of("memory")
    assert known.of("document")


@pytest.mark.parametrize("failing", ["entities", "rerank"])
def test_one_question_fails_and_the_other_helps(lake: Lake, server: OpenAIServer, models: Models, failing: str) -> None:
    write(lake, conversation(*SAID))
    reader = asked_of(lake, server, models, calm())
    server.faults = [Fault("400", times=None, match=f'"name": ?"{failing}"')]
    assert set(ask(reader, documents=DOCUMENTS).troubles) == {failing}


@pytest.mark.parametrize(
    "order",
    [[], [1] * 60, [0, -1, 10**6, 2, 2], list(range(60, 0, -1)), list(range(1, 10**4))],
    ids=["none", "one again", "no such", "backwards", "too many"],
)
def test_no_order_of_a_model_loses_or_duplicates_items(
    lake: Lake, server: OpenAIServer, models: Models, order: list[int]
) -> None:
    write(lake, conversation(*SAID))
    reader = asked_of(lake, server, models, calm())
    server.answer = lambda body: {"names": [], "order": order}
    known = ask(reader, documents=DOCUMENTS, max_results=50)
    assert len({one.id for one in known.parts}) == len(known.parts) <= 50
    assert len(known.parts) + known.left_out >= len(DOCUMENTS) + len(SAID)


@pytest.mark.parametrize("names", [[""], ["x" * 5_000], ["\ud800"], ["\x00", "Anna"], ["Anna"] * 20, [" "]])
def test_the_graph_accepts_any_names_of_a_model(
    lake: Lake, server: OpenAIServer, models: Models, names: list[str]
) -> None:
    write_fact(lake.storage.uri, "Anna", "works_for", "Initech")
    reader = asked_of(lake, server, models, calm())
    answer = json.dumps({"names": names, "order": []})  # as ASCII: half of a character can be escaped alone
    server.answer = lambda body: answer
    known = ask(reader, documents=["Porto lies at the Douro."])
    assert "Porto lies at the Douro." in known.block
    assert set(known.troubles) <= {"entities"}
    assert ("Initech" in known.block) is ("Anna" in names or "entities" in known.troubles)


def test_a_missing_key_is_reported(
    lake: Lake, server: OpenAIServer, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_OF_NOBODY", raising=False)
    write(lake, conversation(*SAID))
    reader = asked_of(lake, server, models, calm().replace("rerank", "api_key: env:KEY_OF_NOBODY, rerank"))
    known = ask(reader, documents=DOCUMENTS)
    assert set(known.troubles) == {"rerank", "entities"}
    assert "KEY_OF_NOBODY" in known.troubles["rerank"]
    assert known.of("memory")


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError("gone"), ValueError("")])
@pytest.mark.parametrize(("name", "told_as"), [("reranker", "rerank"), ("entity_finder", "entities")])
def test_an_unexpected_error_of_a_model_is_reported(name: str, told_as: str, error: Exception) -> None:
    class Broken:
        def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
            raise error

        def find(self, prompt: str) -> list[str]:
            raise error

    searched: list[object] = []

    def search(limit: int, names: list[str] | None) -> list[Recalled]:
        searched.append(names)
        return []

    said = [recalled(f"Anna: {SAID[0]}")]
    broken: Any = {name: Broken()}
    known = injected(said, DOCUMENTS[:2], models=ReadingModels(**broken), search=search)
    assert len(known.parts) == 3
    assert known.troubles == {told_as: f"{type(error).__name__}: {error}"}
    assert searched == [None]  # without the helper's names, by rules


def test_deterministic_injection_calls_no_model(lake: Lake, server: OpenAIServer, models: Models) -> None:
    write(lake, conversation(*SAID))
    reader = asked_of(lake, server, models, "\n  injection: {{rerank: deterministic}}\n")
    assert ask(reader, documents=DOCUMENTS).parts
    assert server.requests == []

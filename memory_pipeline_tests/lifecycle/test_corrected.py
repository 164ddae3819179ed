"""A false fact that a model wrote into every grain is corrected; another model does not learn it again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, IS_FACT, SUMMARIES
from memory_pipeline_tests import oracle
from memory_pipeline_tests.invoking import call
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.oracle import EMBEDDING, configure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline.lake import Lake

NOW = datetime(2025, 2, 3, 9, tzinfo=UTC)
LATER = NOW + timedelta(days=400)
WRONG, RIGHT = "I moved to Lisbon.", "I moved to Porto."
SAID = [
    {"role": "user", "content": f"I work at Contoso. {WRONG} I like tea."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "My dog is called Bruno."},
]
MESSAGES = [{**one, "timestamp": NOW + timedelta(minutes=place)} for place, one in enumerate(SAID)]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        running.answer = oracle.answer
        yield running


@pytest.fixture
def memory(tmp_path: Path, server: OpenAIServer) -> Memory:
    """Memory that a model has read and summarized, with what it was asked and a context that was handed over."""
    memory = Memory(tmp_path / "lake", user_id="anna")
    memory.writer.write({"conversation_id": "talk", "messages": MESSAGES}, now=NOW + timedelta(hours=1))
    configure(memory.lake, server, EMBEDDING)
    memory = reopened(memory)
    memory.run(now=LATER)
    return memory


def reopened(memory: Memory) -> Memory:
    return Memory(memory.lake.storage.uri, user_id="anna")


def derived(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Return all rows that are made of messages, by place."""
    scopes = Memory(lake.storage.uri, user_id="anna").reader.scopes
    tables = {
        "fact": lake.tables.read(FACTS),
        "operation": lake.tables.read(GRAPH_OPERATIONS),
        "graph": lake.graph_rows.read(scopes, where=IS_FACT),
        "memory": lake.memory_rows.read(scopes),
    }
    tables |= {grain.value: lake.tables.read(SUMMARIES, grain=grain.value) for grain in SUMMARY_GRAINS}
    return {place: rows.to_pylist() for place, rows in tables.items()}


def places_with(memory: Memory, word: str) -> set[str]:
    """Return the places of derived rows with a word, and whether a context has it."""
    rows = derived(memory.lake)
    found = {place for place, listed in rows.items() if word in json.dumps(listed, default=str)}
    queries = ("Where does Anna live?", f"What about {word}?", "Summarise the year 2025.")
    contexts = [str(reopened(memory).context(query, now=LATER + timedelta(days=2))) for query in queries]
    contexts += [str(reopened(memory).reader.recall(query, now=LATER + timedelta(days=2))) for query in queries]
    return found | ({"context"} if any(word in text for text in contexts) else set())


def wrong_fact(memory: Memory) -> str:
    return next(hit.id for hit in memory.search("Where did Anna move to?", now=LATER) if "Lisbon" in hit.content)


def models_of(memory: Memory) -> set[str]:
    return {row["model"] for grain in SUMMARY_GRAINS for row in derived(memory.lake)[grain.value]}


@pytest.mark.parametrize("text", [None, RIGHT])
def test_a_corrected_fact_stays_away_from_another_model_and_a_second_import(
    memory: Memory, server: OpenAIServer, text: str | None
) -> None:
    grains = {grain.value for grain in SUMMARY_GRAINS}
    assert places_with(memory, "Lisbon") >= {"fact", "operation", "graph", "memory", "context", *grains}
    assert models_of(memory) == {"openai/oracle"}
    server.reset()
    done = memory.correct(wrong_fact(memory), text, words="Lisbon", now=LATER)
    assert {one.what for one in done.radius.rests_on} >= {"fact", "graph", "memory", *grains}
    assert done.radius.handed_over

    settings = memory.lake.storage.read(CONFIGURATION) or b""
    memory.lake.storage.write(CONFIGURATION, settings.replace(b"openai/oracle", b"openai/second"))
    again = {"conversation_id": "imported", "source": "import:elsewhere", "messages": MESSAGES}
    reopened(memory).writer.write(again, now=LATER + timedelta(hours=1))
    call("run", "--root", memory.lake.storage.uri, "--from", "2025-01-01", "--to", "2025-12-31", "--fresh")
    reopened(memory).run(now=LATER + timedelta(days=1))

    memory = reopened(memory)
    assert models_of(memory) == {"openai/second"}
    assert {request.model for request in server.requests} >= {"oracle", "second", "vectors"}
    assert [request for request in server.requests if "Lisbon" in json.dumps(request.body)] == []
    assert places_with(memory, "Lisbon") == set()
    assert places_with(memory, "Bruno") >= {"fact", "context", *grains}
    if text is not None:
        assert places_with(memory, "Porto") >= {"fact", "operation", "graph", "memory", "context", *grains}
    # What was said stays in history as it was said.
    assert WRONG in memory.conversations.get("talk")[0].content
    assert memory.check(now=LATER + timedelta(days=1)) == ()

"""Recalled blocks in prompts do not become memory again, even over many rounds."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.recalled_text import LINE
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, IS_FACT, MESSAGES
from memory_pipeline.models.factory import configured_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME, NOW, START, index_rows, table_rows
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.reader.ways import make_hours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader.packing.items import InjectedContext

#: Each shape of answer occurs once, and the first one twice.
ROUNDS = 10 if IS_THOROUGH else 7
BEGINNING = datetime.fromisoformat("2024-01-15T08:00:00+00:00")
#: Time between rounds.
STEP = timedelta(minutes=30)
CITIES = "Porto Lisbon Faro Braga Coimbra Evora Sintra Tomar Aveiro Beja".split()
DOCUMENTS = [
    "Porto lies at the Douro.",
    {"content": "Our office is in Lisbon.\n\nIt is shut on Mondays.", "id": "a.pdf"},
]

#: Shapes of answers from the block and the agent's own words; without a block, only the words.
ANSWERS: dict[str, Callable[[str, str], str]] = {
    "whole": lambda block, own: block,
    "quoted": lambda block, own: f"{own}\n\n" + "\n".join(f"> {line}" for line in block.splitlines()),
    "fenced": lambda block, own: f"{own}\n\n```text\n{block}\n```",
    "before": lambda block, own: f"{block}\n\n{own}",
    "after": lambda block, own: f"{own}\n\n{block}",
    "cut off": lambda block, own: f"{own}\n\n{block[: len(block) * 2 // 3]}",
}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = oracle.answer
        yield server


class Agent:
    """An agent that queries its memory before each answer, and writes its whole context."""

    def __init__(self, root: Path) -> None:
        self.lake = Lake(str(root))
        self.writer = MemoryWriter.open(str(root), workspace_id="acme", agent_id="support")

    @cached_property
    def reader(self) -> MemoryReader:
        """The agent's reader, which stays open."""
        return MemoryReader.open(self.lake.storage.uri, workspace_id="acme", agent_id="support")

    def known(self, prompt: str, number: int) -> InjectedContext:
        now = BEGINNING + number * STEP + timedelta(minutes=25)
        return self.reader.inject_knowledge(prompt, DOCUMENTS, max_results=12, speaker="Anna", now=now)

    def run(self, *grains: Grain) -> None:
        """Run the pending periods of some grains, from fine to coarse."""
        lake = Lake(self.lake.storage.uri)
        models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: NOW)
        for grain in grains:
            list(materialize(lake, models, grain, grain_status(lake, grain, START, NOW).pending))

    def found(self) -> list[Any]:
        """Return everything that readers find: by search, by recall, in the graph."""
        reader = self.reader
        hits = reader.search_memory(max_results=100, now=NOW, maximum_days_ago=1_000)
        asked = reader.search_memory("working", 0, 1_000, 100, "recalled memory Porto Anna", now=NOW)
        told = reader.recall("recalled memory: where did Anna move?", 4_000, now=NOW)
        graph = [fact for name in ("Anna", "User", "Agent") for fact in reader.graph.history(name)]
        return [list(hits), hits.total, list(asked), str(told), graph]


def conversation(number: int, *messages: tuple[str, str]) -> dict[str, Any]:
    """Return a conversation in a separate half hour."""
    begun = BEGINNING + number * STEP
    return {
        "conversation_id": f"talk {number}",
        "messages": [
            {
                "id": f"m{place}",
                "role": role,
                "name": "Anna" if role == "user" else None,
                "content": content,
                "timestamp": (begun + timedelta(minutes=place)).isoformat(),
            }
            for place, (role, content) in enumerate(messages)
            if content
        ],
    }


def said(number: int) -> tuple[str, str, str]:
    """Return the original messages of system, user and agent in a round."""
    city = CITIES[number]
    return (
        "You are a patient agent.",
        f"I moved to {city} and my ticket has number {100 + number}. Where did I live before?",
        f"Noted: ticket {100 + number}. I have asked the office in {city} for its keys.",
    )


def rows(lake: Lake) -> dict[str, Any]:
    return {**table_rows(lake), "index": index_rows(lake, [ACME])}


@pytest.mark.parametrize("model", ["rules", "model"])
def test_recalled_blocks_never_become_memory_over_many_rounds(tmp_path: Path, server: OpenAIServer, model: str) -> None:
    """The pipeline runs between two rounds, so that blocks come from the journal, from tables, and from both."""
    marked, plain = Agent(tmp_path / "marked"), Agent(tmp_path / "plain")
    for agent in (marked, plain):
        if model == "model":
            oracle.configure(agent.lake, server)
    shapes = list(ANSWERS)
    for number in range(ROUNDS):
        system, prompt, own = said(number)
        known = marked.known(prompt, number)
        assert str(plain.known(prompt, number)) == str(known)
        assert known.troubles == {}
        assert number == 0 or f"I moved to {CITIES[number - 1]}" in known.block
        block, shape = known.block, shapes[number % len(shapes)]
        receipt = marked.writer.write(
            conversation(
                number,
                ("system", f"{system}\n\n{block}"),
                ("user", f"{block}\n\n{prompt}" if number % 2 else f"{prompt}\n\n{block}"),
                ("assistant", ANSWERS[shape](block, own)),
            ),
            now=NOW,
        )
        assert receipt.recalled == 3
        silent = shape == "whole"
        plain.writer.write(
            conversation(number, ("system", system), ("user", prompt), ("assistant", "" if silent else own)), now=NOW
        )
        assert marked.found() == plain.found()  # from the journal
        if number == 3:
            marked.run(Grain.WORKING)
            plain.run(Grain.WORKING)
            assert marked.found() == plain.found()
    made = (Grain.WORKING, Grain.DAILY) if model == "model" else tuple(Grain)
    marked.run(*made)
    plain.run(*made)
    left, right = rows(marked.lake), rows(plain.lake)
    for tables in (left, right):
        for name in ("answers", "model_calls"):
            tables[name] = len(tables[name])  # times and ids of calls depend on the clock
    assert left == right
    assert "recalled-memory" not in str(left)
    assert len(left["messages"]) == 3 * ROUNDS - 2  # two answers consisted of the block only
    turns = [row["content"] for row in left["facts"] if row["kind"] == "turn"]
    assert len(turns) == len(set(turns)) == 2 * ROUNDS - 2
    if model == "model":
        homes = [(row["target"], row["valid_to"] is None) for row in left["graph_facts"] if row["label"] == "lives_in"]
        assert sorted(homes) == sorted((city, city == CITIES[ROUNDS - 1]) for city in CITIES[:ROUNDS])


def test_unmarked_blocks_would_become_memory(tmp_path: Path, models: Models) -> None:
    """Otherwise the comparison above could not fail."""
    marked, plain = Agent(tmp_path / "marked"), Agent(tmp_path / "plain")
    for agent in (marked, plain):
        agent.writer.write(conversation(0, ("user", said(0)[1])), now=NOW)
    known = marked.known(said(1)[1], 1)
    body = "\n".join(known.block.splitlines()[1:-1]).replace(LINE, "")
    marked.writer.write(conversation(1, ("user", f"{said(1)[1]}\n\n{body}")), now=NOW)
    plain.writer.write(conversation(1, ("user", said(1)[1])), now=NOW)
    assert marked.found() != plain.found()
    for agent in (marked, plain):
        make_hours(agent.lake.storage.uri, models)
    assert rows(marked.lake) != rows(plain.lake)


def test_a_growing_conversation_written_whole_each_time_keeps_only_what_was_said(tmp_path: Path) -> None:
    """Answers that consist of the block only are between others: dropped messages take no position."""
    marked, plain = Agent(tmp_path / "marked"), Agent(tmp_path / "plain")
    context: list[tuple[str, str]] = []
    own_words: list[tuple[str, str]] = []
    rounds = 4
    for number in range(rounds):
        _, prompt, own = said(number)
        block = marked.known(prompt, 0).block or "Nothing is known yet."
        is_silent = number % 2 == 1
        context += [("user", f"{prompt}\n{block}"), ("assistant", block if is_silent else f"{own} {block}")]
        first = number == 0
        own_words += [("user", f"{prompt}\n{block}" if first else prompt)]
        own_words += [("assistant", "" if is_silent else f"{own} {block}" if first else own)]
        marked.writer.write(conversation(0, *context), now=NOW)
        plain.writer.write(conversation(0, *own_words), now=NOW)
        assert _unplaced(marked.found()) == _unplaced(plain.found())
        if number == 1:
            marked.run(Grain.WORKING)
            plain.run(Grain.WORKING)
    marked.run(Grain.WORKING)
    plain.run(Grain.WORKING)
    for spec in (MESSAGES, FACTS, GRAPH_FACTS):
        columns = [name for name in spec.schema.names if name not in {"turn", "digest", "source_digest"}]
        left, right = (
            sorted(
                agent.lake.tables.read(spec, columns=columns).to_pylist()
                if spec.partition_by
                else agent.lake.graph_rows.scan(columns, IS_FACT).to_pylist(),
                key=str,
            )
            for agent in (marked, plain)
        )
        assert left == right, spec.name
    assert marked.lake.tables.read(MESSAGES).num_rows == 2 * rounds - rounds // 2


def _unplaced(found: list[Any]) -> list[Any]:
    """Return hits without their scores, which depend on the position in the conversation."""
    hits, total, asked, _, graph = found
    return [sorted(hit.content for hit in hits), total, sorted(hit.content for hit in asked), graph]


@pytest.mark.parametrize(
    "wrap",
    [
        json.dumps,
        lambda block: block.replace("<", "&lt;").replace(">", "&gt;"),
    ],
    ids=["JSON", "HTML"],
)
def test_escaped_blocks_are_dropped_too(tmp_path: Path, models: Models, wrap: Any) -> None:
    agent = Agent(tmp_path / "lake")
    agent.writer.write(conversation(0, ("user", said(0)[1])), now=NOW)
    block = wrap(agent.known(said(1)[1], 1).block)
    agent.writer.write(
        conversation(1, ("user", f"{said(1)[1]}\n{block}"), ("tool", block), ("assistant", f"{said(1)[2]}\n{block}")),
        now=NOW,
    )
    make_hours(agent.lake.storage.uri, models)
    turns = {row["content"] for row in agent.lake.tables.read(FACTS).to_pylist() if row["kind"] == "turn"}
    assert turns == {f"Anna: {said(0)[1]}", f"Anna: {said(1)[1]}", f"Agent: {said(1)[2]}"}


def test_no_fact_cites_lines_of_a_block(tmp_path: Path, models: Models) -> None:
    agent = Agent(tmp_path / "lake")
    agent.writer.write(conversation(0, ("user", said(0)[1])), now=NOW)
    agent.writer.remember("Anna of Porto wants short answers.", kind="instruction", now=NOW)
    agent.run(Grain.WORKING)
    reader = agent.reader
    block = agent.known(said(1)[1], 1).block.splitlines()
    hits = reader.search_memory(query="Porto", now=NOW, maximum_days_ago=1_000)
    texts = {
        **{f"{cut} lines are cut": "\n".join(block[cut:]) for cut in range(1, 6)},
        "hits": "\n".join(map(str, hits)),
        "recalled": str(reader.recall("Where did Anna of Porto move?", now=NOW)),
        "memories": "\n".join(map(str, reader.memories.search("Anna of Porto", now=NOW))),
        "graph": str(reader.graph.history("Anna")),
    }
    assert all("Porto" in text for text in texts.values())
    own = {what: f"What about this, {what}?" for what in texts}
    messages = [(role, f"{own[what]}\n\n{text}") for what, text in texts.items() for role in ("user", "assistant")]
    alone = [("assistant", text) for text in texts.values()]
    receipt = agent.writer.write(conversation(1, *messages, *alone), now=NOW)
    assert (receipt.recalled, len(receipt.message_ids)) == (3 * len(texts), 2 * len(texts))
    make_hours(agent.lake.storage.uri, models)
    stored = [row["content"] for row in agent.lake.tables.read(MESSAGES).to_pylist()]
    assert sorted(stored) == sorted([said(0)[1], *own.values(), *own.values()])
    for row in agent.lake.tables.read(FACTS).to_pylist():
        assert row["conversation_id"] == "talk 0" or "Porto" not in row["content"]
    assert {row["conversation_id"] for row in agent.lake.graph_rows.scan(where=IS_FACT).to_pylist()} == {"talk 0"}


def test_injected_summaries_are_not_repeated(tmp_path: Path, models: Models) -> None:
    agent = Agent(tmp_path / "lake")
    for number in range(4):
        agent.writer.write(conversation(number, ("user", said(number)[1])), now=NOW)
    agent.run(Grain.WORKING, Grain.DAILY)
    day = agent.reader.search_memory(Grain.DAILY, 0, 1_000, 1, "Porto", now=NOW)[0]
    known = agent.reader.inject_knowledge(said(4)[1], [day.content, *DOCUMENTS], now=NOW)
    agent.writer.write(conversation(4, ("user", f"{known}\n\n{said(4)[1]}"), ("assistant", str(known))), now=NOW)
    make_hours(agent.lake.storage.uri, models)
    stored = [row["content"] for row in agent.lake.tables.read(MESSAGES).to_pylist()]
    assert sorted(stored) == sorted(said(number)[1] for number in range(5))
    assert not any("Douro" in row["content"] for row in agent.lake.tables.read(FACTS).to_pylist())


def test_blocks_recalled_by_another_agent_are_dropped_too(tmp_path: Path) -> None:
    """A block recalled by one agent and written by another enters the memory of neither."""
    agent = Agent(tmp_path / "lake")
    agent.writer.write(conversation(0, ("user", said(0)[1])), now=NOW)
    block = agent.known(said(1)[1], 1).block
    other = MemoryWriter.open(agent.lake.storage.uri, workspace_id="acme", agent_id="sales")
    receipt = other.write(conversation(1, ("user", f"Support says:\n{block}")), now=NOW)
    assert receipt.recalled == 1
    reader = MemoryReader.open(agent.lake.storage.uri, workspace_id="acme", agent_id="sales")
    hits = reader.search_memory(now=NOW, maximum_days_ago=1_000)
    assert [hit.content for hit in hits] == ["Anna: Support says:"]
    assert CITIES[0] not in reader.inject_knowledge("Where does Anna live?", now=NOW).block

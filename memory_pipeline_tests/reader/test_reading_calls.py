"""Model calls of readers are counted, and stop at the budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import MODEL_CALLS
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.models.factory import Models

CONFIG = """
defaults:
  injection: {{model: openai/m, api_base: "{url}", max_output_tokens: 256, price: {{input: 1.0, output: 2.0}},
              entities: model, attempts: 1, timeout_seconds: 20, rerank: {rerank},
              cross_encoder: {{model: infinity/m, api_base: "{url}", api_key: "env:HOME"}}}}
  memories: {{selection: {others}, imagining: {others}}}
workspaces:
  acme: {{budget: {{{budget}}}}}
"""
QUESTION = "Where does Anna live?"
#: Tokens, and dollars, for about five calls.
TOKENS, DOLLARS = 1_500, 0.0015


def answer(body: dict[str, Any]) -> dict[str, Any]:
    others: dict[str, dict[str, Any]] = {"selection": {"chosen": [1, 2]}, "imagining": {"queries": [QUESTION]}}
    return others.get(oracle.name_of(body)) or oracle.answer(body)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = answer
        yield server


def reader_of(
    root: str, server: OpenAIServer, models: Models, budget: str, *, rerank: str = "none", others: str = "rules"
) -> MemoryReader:
    lake = Lake(root)
    text = CONFIG.format(url=server.base_url, budget=budget, rerank=rerank, others=others)
    lake.storage.write(CONFIGURATION, text.encode())
    return MemoryReader(lake, ACME, models.embedder, user_id="anna")


def troubles_of(reader: MemoryReader, number: int) -> list[str]:
    return list(reader.inject_knowledge(f"{QUESTION} {number}").troubles.values())


def rows_of(root: str) -> list[dict[str, Any]]:
    lake = Lake(root)
    assert lake.calls.settle() == {}, "no partition is charged"
    rows: list[dict[str, Any]] = lake.tables.read(MODEL_CALLS).to_pylist()
    return rows


@pytest.mark.parametrize(("rerank", "version"), [("model", "rerank-2"), ("cross_encoder", None)])
def test_each_kind_of_call_is_a_row_of_its_user(
    root: str, server: OpenAIServer, models: Models, rerank: str, version: str | None
) -> None:
    memory = Memory(root, workspace_id=ACME.workspace_id, agent_id=ACME.agent_id, user_id="anna")
    memory.remember("Anna lives in Riga.")
    memory.remember("Anna works in Riga.")
    reader = reader_of(root, server, models, "tokens_per_month: 100000", rerank=rerank, others="model")
    assert troubles_of(reader, 1) == []
    receipt = reader.receipt(reader.inject_knowledge(f"{QUESTION} 2").receipt_id)
    assert receipt is not None
    names = ["openai/m", *(["infinity/m"] if rerank == "cross_encoder" else [])]
    assert receipt.model == ", ".join(names)
    assert receipt.tokens_in > 0
    assert receipt.cost is not None or rerank == "cross_encoder"
    assert reader.imagine([QUESTION])
    rows = rows_of(root)
    assert len(rows) == len(server.requests)
    assert {row["prompt_version"] for row in rows} == {"entities-2", "selection-2", "imagining-2", version}
    assert {(row["workspace_id"], row["agent_id"], row["identity"]) for row in rows} == {(*ACME.ids[:2], "user:anna")}
    assert {(row["purpose"], row["outcome"], row["tokens_in"] > 0) for row in rows} == {("reading", "ok", True)}


@pytest.mark.parametrize(
    "budget", [f"tokens_per_month: {TOKENS}", f"tokens_per_user: {TOKENS}", f"usd_per_month: {DOLLARS}"]
)
def test_concurrent_readers_overspend_by_at_most_one_call_each(
    lake: Lake, server: OpenAIServer, models: Models, budget: str
) -> None:
    lake.ensure()
    server.latency = 0.05
    readers = [reader_of(lake.storage.uri, server, models, budget) for _ in range(2)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda number: troubles_of(readers[number % 2], number), range(24)))
    troubles = [text for listed in found for text in listed]
    rows = rows_of(lake.storage.uri)
    assert len(rows) == len(server.requests) == 24 - len(troubles)
    assert all("budget" in text for text in troubles)
    spent = [row["cost"] if "usd" in budget else row["tokens_in"] + row["tokens_out"] for row in rows]
    limit = DOLLARS if "usd" in budget else TOKENS
    assert limit / 2 < sum(spent) <= limit + 2 * max(spent)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_reader_that_cannot_write_stops_at_its_own_limit(
    root: str, server: OpenAIServer, models: Models, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(root)
    if is_there:
        lake.ensure()
    reader = reader_of(root, server, models, f"tokens_per_month: {TOKENS}")
    storage, before = reader._lake.storage, {entry.path for entry in lake.storage.list("")}

    def refuse(*_: object, **__: object) -> bool:
        raise ConfigurationError("read-only")

    monkeypatch.setattr(storage, "write", refuse)
    monkeypatch.setattr(storage, "create", refuse)
    troubles = [text for number in range(12) for text in troubles_of(reader, number)]
    assert 0 < len(server.requests) == 12 - len(troubles) < 12
    assert all("budget" in text for text in troubles)
    assert {entry.path for entry in lake.storage.list("")} == before

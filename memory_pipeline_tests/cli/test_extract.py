"""The command `extract`: what a run would learn from a file, without writing a byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import NOW, conversation, run, write
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.openai_server import OpenAIServer

SAID = ("I moved to Porto.", "My dog is called Bruno.", "Never call me before ten.")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    monkeypatch.chdir(tmp_path)


def file_of(*records: dict[str, Any] | str) -> str:
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    Path("talks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return "talks.jsonl"


def bytes_in(root: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def test_it_shows_what_a_run_then_learns_and_writes_nothing(root: str) -> None:
    write(Lake(root), conversation("I live in Rome.", conversation_id="before"))
    run(Lake(root), default_models())
    before = bytes_in(root)
    file = file_of(conversation(*SAID) | {"user_id": "anna"})
    shown = read("extract", "--dry-run", file)
    text = call("extract", file).stdout
    assert bytes_in(root) == before
    read("ingest", file)
    run(Lake(root), default_models())

    def stored(table: Any, *columns: str) -> list[tuple[Any, ...]]:
        rows = [row for row in Lake(root).tables.read(table).to_pylist() if row["conversation_id"] == "c1"]
        return sorted(tuple(row[name] for name in columns) for row in rows)

    facts = stored(FACTS, "kind", "content")
    assert [tuple(row) for row in sorted([one["kind"], one["content"]] for one in shown["facts"])] == facts
    triples = sorted((one["subject"], one["predicate"], one["object"]) for one in shown["triples"])
    assert triples == stored(GRAPH_OPERATIONS, "subject", "predicate", "object")
    contents = {json.loads(row["changes"])["content"] for row in Lake(root).tables.read(MEMORY_EVENTS).to_pylist()}
    assert {one["content"] for one in shown["memories"]} == contents - {"Anna: I live in Rome."}
    assert {one["identity"] for one in shown["facts"]} == {"user:anna"}
    assert "triple  update       Anna | lives_in | Porto" in text
    assert "memory  instruction  Anna: Never call me before ten." in text
    again = read("extract", file)
    assert again["files"][file]["repeated"] == len(SAID)
    assert again["facts"] == []


def test_it_names_what_is_set_aside_or_not_captured(root: str) -> None:
    bad = conversation("No time.", conversation_id="c2")
    del bad["messages"][0]["timestamp"]
    private = conversation("My PIN is 1111.", conversation_id="c3") | {"capture": "none"}
    file = file_of(conversation(*SAID), bad, private, "{broken")
    found = read("extract", file)["files"][file]
    assert (found["accepted"], found["set_aside"], found["not_captured"]) == (3, 2, 1)
    assert [one["where"] for one in found["rejections"]] == [
        "talks.jsonl, line 2, conversation c2, message 1", "talks.jsonl, line 4",
    ]  # fmt: skip
    assert found["left_out"] == ["talks.jsonl, line 3: capture none"]
    result = call("extract", file)
    assert "timestamp None is not a time" in result.stderr
    assert "line 3: capture none" in result.stdout
    assert "1111" not in result.output
    assert not Path(root).exists()


def test_a_configured_model_is_called_only_on_request(root: str) -> None:
    file = file_of(conversation(*SAID))
    with OpenAIServer() as server:
        server.answer = oracle.answer
        oracle.configure(Lake(root), server)
        before = bytes_in(root)
        [expected] = read("extract", file)["estimate"]
        assert (expected["calls"], expected["purpose"]) == (1, "extraction")
        assert expected["cost"] > 0
        assert "facts" not in read("extract", file)
        assert "--call-model" in call("extract", file).stdout
        assert server.requests == []
        found = read("extract", file, "--call-model", "--now", NOW.isoformat())
        assert len(server.requests) == 1
        assert bytes_in(root) == before
        read("ingest", file)
        read("run", "--now", NOW.isoformat())
    contents = sorted(Lake(root).tables.read(FACTS)["content"].to_pylist())
    assert sorted(one["content"] for one in found["facts"]) == contents

"""The source and the metadata of messages reach facts, entities and neighbours of the graph, and are exact filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.attributes import Attributes
from memory_pipeline.errors import InputError
from memory_pipeline_tests.importers.exports import as_lines, written
from memory_pipeline_tests.invoking import read

SAID: dict[str, tuple[str | None, dict[str, Any]]] = {
    "Anna works at Acme.": ("slack", {"ticket": 7, "by": {"team": ["a", 2.0]}}),
    "Ben works at Acme.": ("mail", {"ticket": "7"}),
    "Cleo works at Brick.": (None, {"ticket": 7.0, "urgent": True}),
    "Anna lives in Porto.": (None, {}),
}
WANTED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"Anna works_at", "Ben works_at", "Cleo works_at", "Anna lives_in"}),
    ({"from_source": "slack"}, {"Anna works_at"}),
    ({"from_source": "Slack"}, set()),
    ({"metadata": {"ticket": 7}}, {"Anna works_at", "Cleo works_at"}),
    ({"metadata": {"ticket": "7"}}, {"Ben works_at"}),
    ({"metadata": {"ticket": 7, "urgent": True}}, {"Cleo works_at"}),
    ({"metadata": {"urgent": 1}}, set()),
    ({"metadata": {"by": {"team": ["a", 2]}}}, {"Anna works_at"}),
    ({"from_source": "mail", "metadata": {"ticket": 7}}, set()),
    ({"from_source": "import:mcp-memory"}, set()),
]


@pytest.fixture
def memory(root: str) -> Memory:
    memory = Memory(root, user_id="u1")
    for number, (text, (source, metadata)) in enumerate(SAID.items()):
        message = {"role": "user", "content": text, "timestamp": f"2024-01-1{number}T08:00:00+00:00"}
        memory.add([message | ({"metadata": metadata} if metadata else {})], source=source)
    return memory


@pytest.mark.parametrize("is_loaded", [False, True], ids=["pending", "loaded"])
def test_facts_entities_and_neighbours(memory: Memory, tmp_path: Path, *, is_loaded: bool) -> None:
    if is_loaded:
        memory.run()
    graph = memory.graph
    for filters, wanted in WANTED:
        assert {f"{one.source} {one.label}" for one in graph.facts(**filters)} == wanted, filters
        about = graph.facts_about("Anna", **filters)
        assert {f"{one.source} {one.label}" for one in about} == {one for one in wanted if one.startswith("Anna")}
        assert about.total == len(about)
    assert graph.facts()[0].attributes is None
    [fact] = graph.facts(from_source="slack", attributes=True)
    assert fact.attributes == Attributes(("slack",), {"ticket": 7, "by": {"team": ["a", 2]}})
    acme = graph.entity("Acme", attributes=True)
    assert acme is not None
    assert acme.attributes == Attributes(("slack", "mail"), {"ticket": "7", "by": {"team": ["a", 2]}})
    assert [one.name for one in graph.neighbors("Acme", 2)] == ["Anna", "Ben", "Porto"]
    assert [one.name for one in graph.neighbors("Acme", 2, from_source="slack")] == ["Anna"]
    assert [one.name for one in graph.neighbors("Acme", metadata={"ticket": "7"})] == ["Ben"]
    [anna, ben] = graph.neighbors("Acme", attributes=True)
    assert (anna.attributes, ben.attributes) == (
        Attributes(("slack",), {"ticket": 7, "by": {"team": ["a", 2]}}),
        Attributes(("mail",), {"ticket": "7"}),
    )
    # What is stated again has the attributes of both messages, and what is loaded or pending counts alike.
    again = {"role": "user", "content": "Ben works at Acme.", "timestamp": "2024-02-01T08:00:00+00:00"}
    memory.add([again | {"metadata": {"ticket": 9}}], source="slack")
    [fact] = graph.facts(metadata={"ticket": 9}, attributes=True)
    assert fact.attributes == Attributes(("mail", "slack"), {"ticket": 9})
    assert len(graph.facts(metadata={"ticket": "7"})) == 1
    memory.run()
    [fact] = graph.facts(metadata={"ticket": 9}, attributes=True)
    assert fact.attributes == Attributes(("mail", "slack"), {"ticket": 9})
    assert not graph.facts(from_source="slack", metadata={"ticket": "7"}), "one message has all of them"


def test_what_was_imported_and_what_was_edited(memory: Memory, tmp_path: Path) -> None:
    relation = {"type": "relation", "from": "Dora", "to": "Acme", "relationType": "works_at"}
    memory.import_history(written(tmp_path / "memory.jsonl", as_lines(relation)))
    memory.writer.graph.insert("Emil", "works_at", "Acme")
    for _ in ("pending", "loaded"):
        [fact] = memory.graph.facts(from_source="import:mcp-memory", attributes=True)
        assert (fact.source, fact.attributes) == ("Dora", Attributes(("import:mcp-memory",), {}))
        [emil] = memory.graph.facts_about("Emil", attributes=True)
        assert emil.attributes == Attributes()
        memory.run()


def test_the_command(memory: Memory, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    scope = memory.writer.scope
    options = ("--workspace", scope.workspace_id, "--agent", scope.agent_id, "--user", "u1")
    found = read("graph", "neighbors", "Acme", *options, "--metadata", json.dumps({"ticket": 7}), "--attributes")
    assert [one["name"] for one in found["neighbors"]] == ["Anna"]
    assert found["neighbors"][0]["attributes"]["metadata"]["ticket"] == 7
    assert read("graph", "facts", "Anna", *options, "--from-source", "slack")["total"] == 1


def test_a_filter_that_is_no_filter_is_refused(memory: Memory) -> None:
    for filters in ({"from_source": 7}, {"metadata": [7]}, {"metadata": {"a": {1}}}):
        with pytest.raises(InputError):
            memory.graph.facts(**filters)

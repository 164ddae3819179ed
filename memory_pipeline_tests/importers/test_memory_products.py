"""Memories and graphs of other products: durable memories and facts, each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.importers import import_history
from memory_pipeline.lake import Lake
from memory_pipeline.steps.dry_run import DryRunLake
from memory_pipeline_tests.building import NOW
from memory_pipeline_tests.importers.exports import Read, admission, as_lines, imported, written

MEM0: dict[str, Any] = {
    "results": [
        {"id": "a1", "memory": "Likes green tea", "hash": "x", "user_id": "dev", "categories": ["food"],
         "created_at": "2024-03-01T10:00:00-07:00", "updated_at": None, "metadata": {}},
        {"id": "a2", "memory": "Works at TechCorp", "user_id": "dev", "created_at": "2024-04-01T10:00:00Z"},
        {"id": "a3", "memory": "x" * 20_001, "user_id": "dev", "created_at": "2024-04-01T10:00:00Z"},
        {"id": "a4", "memory": 7, "user_id": "dev"},
    ],
    "relations": [{"source": "dev", "relationship": "works_at", "destination": "TechCorp"}],
}  # fmt: skip
COGX: dict[str, list[dict[str, Any]]] = {
    "episodes.jsonl": [
        {"kind": "episode", "external_system": "zep", "external_id": "ep1", "created_at": "2024-05-01T10:00:00Z",
         "turns": [{"role": "system", "content": "Be kind."},
                   {"role": "user", "content": "I sail.", "occurred_at": "2024-05-01T10:01:00Z"},
                   {"role": "assistant", "content": "Where?"}]},
    ],
    "entities.jsonl": [
        {"kind": "entity", "external_system": "cognee", "external_id": "e1", "name": "Anna", "entity_type": "Person",
         "description": "Sails a lot.", "created_at": "2024-05-01T10:00:00Z"},
    ],
    "facts.jsonl": [
        {"kind": "fact", "external_system": "cognee", "external_id": "f1", "subject_ref": "e1", "predicate": "works_at",
         "object_ref": "Acme", "fact_text": "Anna works at Acme.", "valid_at": "2024-05-01T00:00:00Z"},
        {"kind": "fact", "external_system": "cognee", "external_id": "f2", "subject_ref": "e1", "predicate": "lives_in",
         "object_ref": "Porto", "valid_at": "2023-05-01T00:00:00Z", "invalid_at": "2024-01-01T00:00:00Z"},
        {"kind": "fact", "external_system": "cognee", "external_id": "f3"},
    ],
    "memories.jsonl": [
        {"kind": "memory", "external_system": "mem0", "external_id": "m1", "content": "Likes figs",
         "categories": ["food"], "created_at": "2024-05-02T10:00:00Z", "scope": {"user_id": "other"}},
    ],
    "memory_blocks.jsonl": [
        {"kind": "memory_block", "external_system": "letta", "external_id": "b1", "label": "human", "value": "A nurse.",
         "created_at": "2024-05-02T10:00:00Z"},
    ],
}  # fmt: skip
ZEP = {
    "nodes": [{"uuid": "n1", "name": "Kendra", "labels": ["Entity"]}, {"uuid": "n2", "name": "Adidas", "labels": []}],
    "edges": [
        {"uuid": "e1", "name": "LOVES", "fact": "Kendra loves Adidas.", "source_node_uuid": "n1",
         "target_node_uuid": "n2", "created_at": "2024-05-01T00:00:00Z", "valid_at": "2024-04-01T00:00:00Z",
         "invalid_at": "2024-06-01T00:00:00Z"},
        {"uuid": "e2", "name": "OWNS", "fact": "Kendra owns Adidas shoes.", "source_node_uuid": "n1",
         "target_node_uuid": "n2", "created_at": "2024-05-01T00:00:00Z"},
    ],
}  # fmt: skip
MCP = as_lines(
    {"type": "entity", "name": "Anna", "entityType": "person", "observations": ["Speaks Portuguese", "Anna sails"]},
    {"type": "relation", "from": "Anna", "to": "Acme", "relationType": "works_at"},
)
LANGMEM = [
    {"namespace": ["memories", "u1"], "key": "k1", "value": {"kind": "Memory", "content": {"content": "Likes jazz"}},
     "created_at": "2025-02-07T01:12:14Z", "updated_at": "2025-02-07T01:12:14Z"},
    {"namespace": ["memories", "u1"], "key": "k2", "value": {"kind": "Profile", "content": {"name": "Al", "age": 40}},
     "created_at": "2025-02-07T01:12:14Z"},
]  # fmt: skip
HINDSIGHT = {
    "items": [
        {"id": "h1", "text": "Alice works at Google", "fact_type": "world", "mentioned_at": "2025-01-01T00:00:00Z"},
        {"id": "h2", "text": "Alice was promoted", "fact_type": "experience", "occurred_start": "2025-02-01T00:00:00Z"},
        {"id": "h3", "text": "Wrong", "fact_type": "world", "state": "invalidated"},
    ],
    "total": 3,
}
LETTA = {
    "agents": [{
        "id": "agent-0", "name": "Sam", "block_ids": ["block-0"],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "You are Sam."}]},
            {"role": "user", "created_at": "2025-10-31T10:01:00Z",
             "content": [{"type": "text", "text": '{"type": "user_message", "message": "I moved to Rome."}'}]},
            {"role": "user", "content": '{"type": "heartbeat", "reason": "x"}', "created_at": "2025-10-31T10:01:30Z"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hm."}], "created_at": "2025-10-31T10:02:00Z",
             "tool_calls": [{"function": {"name": "send_message", "arguments": '{"message": "Nice!"}'}}]},
            {"role": "tool", "content": [{"type": "text", "text": "OK"}], "created_at": "2025-10-31T10:03:00Z"},
        ],
    }],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Name: Chad\nLikes sailing"},
        {"id": "block-1", "value": ""},
    ],
}  # fmt: skip


def texts_of(memory: Memory) -> dict[str, str]:
    found = memory.reader.memories.list(limit=100)
    return {one.content: f"{one.kind} {one.created_at:%Y-%m-%d} {one.source_type}" for one in found}


def relations_of(memory: Memory) -> set[tuple[str, str, str]]:
    return {(one.source, one.label, one.target) for one in memory.graph.facts()}


def test_mem0(tmp_path: Path, root: str) -> None:
    path = written(tmp_path / "mem0.json", MEM0)
    report = imported(Lake(root), path)
    assert (report.memories, report.relations, report.ingestion.set_aside) == (2, 1, 2)
    memory = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    assert texts_of(memory) == {
        "Likes green tea": "fact 2024-03-01 import",
        "Works at TechCorp": "fact 2024-04-01 import",
    }
    assert ("dev", "works_at", "TechCorp") in relations_of(memory)
    assert "food" in next(one for one in memory.reader.memories.list() if "tea" in one.content).tags


def test_a_later_export_updates_and_what_was_forgotten_stays_away(tmp_path: Path, root: str) -> None:
    imported(Lake(root), written(tmp_path / "mem0.json", MEM0))
    memory = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    [tea] = [one.id for one in memory.reader.memories.list() if "tea" in one.content]
    memory.writer.forget(tea)
    first, second, *_ = MEM0["results"]
    changed = second | {"memory": "Works at NewCorp", "updated_at": "2024-05-01T10:00:00Z"}
    later = {"results": [first, changed, {"id": "a9", "memory": "Has a dog", "user_id": "dev"}]}
    report = imported(Lake(root), written(tmp_path / "later.json", later))
    assert (report.memories, report.memories_repeated) == (2, 1)
    memory = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    assert set(texts_of(memory)) == {"Works at NewCorp", "Has a dog"}
    memory.run()
    assert imported(Lake(root), written(tmp_path / "later.json", later)).memories_repeated == 3


def test_memory_becomes_that_of_the_users_that_the_export_names(tmp_path: Path, root: str) -> None:
    path, lake = written(tmp_path / "mem0.json", MEM0), Lake(root)
    import_history(lake, path, admission(lake), defaults={"workspace_id": "acme", "agent_id": "support"})
    assert "Works at TechCorp" in texts_of(Memory(root, workspace_id="acme", agent_id="support", user_id="dev"))
    assert not texts_of(Memory(root, workspace_id="acme", agent_id="support", user_id="anna"))


def zep(memory: Memory) -> None:
    assert texts_of(memory) == {"Kendra owns Adidas shoes.": "fact 2024-05-01 import"}
    assert relations_of(memory) == {("Kendra", "owns", "Adidas")}
    assert {one.label: one.valid_to is None for one in memory.graph.history("Kendra")} == {"loves": False, "owns": True}


def mcp(memory: Memory) -> None:
    assert set(texts_of(memory)) == {"Anna: Speaks Portuguese", "Anna sails"}
    assert relations_of(memory) == {("Anna", "is_a", "person"), ("Anna", "works_at", "Acme")}


def langmem(memory: Memory) -> None:
    assert texts_of(memory) == {"Likes jazz": "fact 2025-02-07 import", "name: Al; age: 40": "fact 2025-02-07 import"}


def hindsight(memory: Memory) -> None:
    assert texts_of(memory) == {
        "Alice works at Google": "fact 2025-01-01 import",
        "Alice was promoted": "observation 2025-02-01 import",
    }


def letta(memory: Memory) -> None:
    assert set(texts_of(memory)) == {"human: Name: Chad\nLikes sailing", "User: I moved to Rome."}
    said = [(one.role.value, one.content) for one in memory.conversations.get("letta:Sam")]
    assert said == [("user", "I moved to Rome."), ("assistant", "Nice!"), ("tool", "OK")]


@pytest.mark.parametrize(
    ("content", "check"),
    [(ZEP, zep), (MCP, mcp), (LANGMEM, langmem), ({"items": LANGMEM}, langmem), (HINDSIGHT, hindsight), (LETTA, letta)],
    ids=["zep", "mcp", "langmem", "langmem-items", "hindsight", "letta"],
)
def test_each_product_once(tmp_path: Path, root: str, content: Any, check: Callable[[Memory], None]) -> None:
    path = written(tmp_path / "export.json", content)
    first = imported(Lake(root), path)
    assert not first.ingestion.rejections
    again = imported(Lake(root), path)
    assert (again.memories, again.relations, again.ingestion.accepted) == (0, 0, 0)
    assert again.memories_repeated == first.memories + first.relations
    check(Memory(root, workspace_id="acme", agent_id="support", user_id="anna"))


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    lake = DryRunLake(str(tmp_path / "lake"))
    report = imported(lake, written(tmp_path / "mem0.json", MEM0))
    assert report.samples[0] == "2024-03-01  fact  Likes green tea"
    assert not (tmp_path / "lake").exists()


def test_zep_threads_and_the_first_letta_file(tmp_path: Path) -> None:
    messages = [
        {"uuid": "m1", "role": "Jane", "role_type": "user", "content": "Hi.", "created_at": "2024-05-01T00:00:00Z"},
        {"uuid": "m2", "role": "assistant", "role_type": "assistant", "content": "Hello.",
         "created_at": "2024-05-01T00:01:00Z"},
    ]  # fmt: skip
    found = Read(written(tmp_path / "a" / "thread.json", {"thread_id": "t7", "messages": messages}))
    assert found.said == [("user", "Jane", "Hi."), ("assistant", None, "Hello.")]
    assert found.conversations == ["zep-thread:t7"]
    old = {"agent_type": "memgpt_agent", "name": "Sam", "core_memory": [{"label": "human", "value": "Chad"}],
           "messages": [{"role": "user", "text": "Hi.", "created_at": "2024-05-01T00:00:00+00:00"}]}  # fmt: skip
    first = Read(written(tmp_path / "b" / "agent.af", old))
    assert (first.said, first.report.samples) == ([("user", None, "Hi.")], [f"{NOW:%Y-%m-%d}  fact  human: Chad"])


def test_relations_of_an_export_are_written_together(tmp_path: Path, root: str) -> None:
    lines = [{"type": "relation", "from": "Anna", "to": f"Club {n % 50}", "relationType": "is_in"} for n in range(100)]
    report = imported(Lake(root), written(tmp_path / "memory.jsonl", as_lines(*lines)))
    assert (report.relations, report.memories_repeated) == (50, 50)
    assert len(list(Path(root, "journal", "pending").rglob("*.jsonl*"))) <= 2


def test_cogx(tmp_path: Path, root: str) -> None:
    folder = tmp_path / "cogx"
    for name, records in COGX.items():
        written(folder / name, as_lines(*records))
    written(folder / "manifest.json", {"cogx_version": "0.1", "source_system": "cognee", "counts": {"fact": 3}})
    written(folder / "nodes.jsonl", as_lines({"id": "n1", "type": "Node"}))
    memory = Memory(root, user_id="anna")
    report = memory.import_history(folder)
    assert not report.unread
    assert (report.ingestion.accepted, report.memories, report.relations, report.ingestion.set_aside) == (2, 4, 3, 1)
    said = [(one.role.value, one.content) for one in memory.conversations.get("cogx:ep1")]
    assert said == [("user", "I sail."), ("assistant", "Where?")]
    found = {one.content for one in memory.reader.memories.list(limit=100)}
    assert {"Likes figs", "A nurse.", "Anna: Sails a lot.", "Anna works at Acme."} <= found
    history = {(one.source, one.label, one.target): one.valid_to is None for one in memory.graph.history("Anna")}
    assert history == {
        ("Anna", "is_a", "Person"): True,
        ("Anna", "works_at", "Acme"): True,
        ("Anna", "lives_in", "Porto"): False,
    }
    again = memory.import_history(folder)
    assert (again.ingestion.accepted, again.memories, again.relations) == (0, 0, 0)

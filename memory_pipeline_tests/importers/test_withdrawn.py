"""An import that is erased by its source: nothing of it is left in any file, and all else is as before."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import ErasureReport, verify
from memory_pipeline.erasure.forget import ErasurePreview
from memory_pipeline_tests.building import table_rows
from memory_pipeline_tests.importers.exports import as_lines, chatgpt, written
from memory_pipeline_tests.importers.test_memory_products import MCP, MEM0
from memory_pipeline_tests.invoking import call, read

OTHER = as_lines({"role": "user", "content": "I sail with Quillon.", "timestamp": "2024-01-01T10:00Z"})
WORDS = ("Zanzibarra", "TechCorp", "Portuguese", "Acme", "Qwertzian")


def exports(folder: Path) -> dict[str, Path]:
    broken = chatgpt("Qwertzian secret.", identity="t2")
    broken["mapping"]["n0"]["message"]["author"] = None
    talks = [chatgpt("I moved to Zanzibarra.", "Zanzibarra is warm."), broken]
    return {
        "chatgpt": written(folder / "conversations.json", talks),
        "mem0": written(folder / "mem0.json", MEM0),
        "mcp-memory": written(folder / "memory.jsonl", MCP),
    }


def holding(root: str, *words: str) -> set[tuple[str, str]]:
    """Return files with a word, in their bytes or in their columns."""
    found = set()
    for path in Path(root).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if data[:4] == b"PAR1":
                data += str(pq.read_table(path).to_pylist()).encode()
            found |= {(word, str(path)) for word in words if word.encode() in data}
    return found


@pytest.fixture
def memory(root: str, tmp_path: Path) -> Memory:
    memory = Memory(root, user_id="anna")
    memory.import_history(written(tmp_path / "messages.jsonl", OTHER))
    return memory


@pytest.mark.parametrize("is_loaded", [False, True], ids=["pending", "loaded"])
def test_nothing_of_an_import_is_left(memory: Memory, root: str, tmp_path: Path, *, is_loaded: bool) -> None:
    paths = exports(tmp_path / "exports")
    for path in paths.values():
        memory.import_history(path)
    if is_loaded:
        memory.run()
    assert {word for word, _ in holding(root, *WORDS)} == {*WORDS}
    for name in paths:
        plan = memory.forget(source=f"import:{name}", dry_run=True)
        assert isinstance(plan, ErasurePreview)
        assert plan.counts
        assert holding(root, *WORDS)
        report = memory.forget(source=f"import:{name}")
        assert isinstance(report, ErasureReport)
        assert not verify(memory.lake, report).findings
        assert ErasureReport.from_json(report.to_json()).subject == report.subject
    assert not holding(root, *WORDS)
    memory.run()
    assert not holding(root, *WORDS)
    assert "Quillon" in memory.search("sail")[0].content
    assert not [one for one in memory.reader.memories.list(limit=100) if "Quillon" not in one.content]
    assert not [one for one in memory.graph.facts() if "Quillon" not in (one.source, one.target)]
    before = table_rows(memory.lake)
    for path in paths.values():  # what was erased stays away
        memory.import_history(path)
    memory.run()
    assert table_rows(memory.lake)["messages"] == before["messages"]
    assert not holding(root, "Zanzibarra", "Portuguese", "Acme")


def test_only_the_import_of_this_user(memory: Memory, root: str, tmp_path: Path) -> None:
    ben = Memory(root, user_id="ben")
    path = written(tmp_path / "conversations.json", [chatgpt("I moved to Zanzibarra.")])
    memory.import_history(path)
    ben.import_history(path)
    memory.run()
    memory.forget(source="import:chatgpt")
    assert "Zanzibarra" in ben.search("moved")[0].content
    assert not [hit for hit in memory.search("moved") if "Zanzibarra" in hit.content]


def test_the_command(memory: Memory, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    memory.import_history(exports(tmp_path)["chatgpt"])
    scope = ("--workspace", memory.writer.scope.workspace_id, "--agent", memory.writer.scope.agent_id)
    options = ("forget", *scope, "--source", "import:chatgpt")
    assert read(*options, "--user", "anna", "--dry-run")["found"]["counts"]["journal"] == 2
    assert "import:chatgpt" in call(*options, "--dry-run").stdout
    call(*options, "--yes", "--receipt", str(tmp_path / "receipt.json"))
    assert not holding(root, "Zanzibarra", "Qwertzian")
    assert holding(root, "Quillon")
    call("verify-erasure", str(tmp_path / "receipt.json"))


def test_the_subject_is_read_again() -> None:
    subject = Subject.of_source(Scope("acme", "support"), "import:slack", ["slack:C1"], "anna")
    assert Subject.from_record(subject.to_record()) == subject
    assert subject.conversation_ids == ("import:slack", "slack:C1")

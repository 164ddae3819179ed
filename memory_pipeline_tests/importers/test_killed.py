"""`memory-pipeline import` that is killed at any write and repeated equals one that was not interrupted."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.cli import cli
from memory_pipeline.importers import durable
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.writer import files
from memory_pipeline_tests.building import PROCESSES, table_rows
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.importers.exports import chatgpt, written
from memory_pipeline_tests.importers.test_memory_products import MCP, MEM0

NOW = "2025-06-01T12:00:00+00:00"
PARTS = [number / 24 for number in range(24)] if IS_THOROUGH else [0.1, 0.3, 0.5, 0.7, 0.9]


def exports(folder: Path, *, is_later: bool) -> Path:
    """Write exports of three products to a folder: talks, one of which is longer and edited later, and memories."""
    start = 1_700_000_000.0
    texts = ["I moved to Faro.", "Nice.", "I sail."] if is_later else ["I moved to Porto.", "Nice."]
    talks = [chatgpt(*texts, start=start)]
    talks += [chatgpt(f"I like book {n}.", "Why?", identity=f"t{n}", start=start + 90_000.0 * n) for n in range(2, 6)]
    broken = chatgpt("Broken.", identity="broken")
    broken["mapping"]["n0"]["message"]["author"] = None
    written(folder / "conversations.json", [*talks, broken])
    written(folder / "mem0.json", MEM0)
    written(folder / "memory.jsonl", MCP)
    return folder


def run_import(root: str, path: Path, most: int, done: Any = None) -> None:
    """Import with the command. Kill this process at a change of the lake's files, or report their number."""
    for module, size in ((files, 3), (durable, 1)):
        setattr(module, "_BATCH", size)  # noqa: B010  # one is final
    count = 0

    def counted(name: str) -> None:
        change = getattr(Storage, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > most:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **named)

        setattr(Storage, name, counting)

    for name in ("write", "create", "delete"):
        counted(name)
    options = ("--root", root, "--workspace", "acme", "--agent", "support", "--user", "anna", "--now", NOW)
    cli.main(["import", str(path), *options, "--at", "2024-05-01T00:00:00+00:00"], standalone_mode=False)
    if done is not None:
        done.put(count)


def in_a_process(*arguments: Any) -> int:
    process = PROCESSES.Process(target=run_import, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def rows_of(root: str) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Return all rows after a run, and the reasons in the quarantine."""
    memory = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    memory.run(now=NOW)
    rows = table_rows(memory.lake)
    kept = {name: rows[name] for name in ("messages", "facts", "graph_operations", "memory_events", "summaries")}
    return kept, sorted(one.where for one in Lake(root).journal.quarantined())


@pytest.mark.parametrize("is_later", [False, True], ids=["first", "later"])
def test_killed_at_any_write_it_is_repeated(tmp_path: Path, *, is_later: bool) -> None:
    """Of a first import, and of a later one with new and edited messages."""
    changes = PROCESSES.Queue()
    base, path = str(tmp_path / "lake"), exports(tmp_path / "export", is_later=is_later)
    Lake(base).ensure()
    if is_later:
        assert in_a_process(base, exports(tmp_path / "before", is_later=False), 1_000_000) == 0

    def prepared(name: str) -> str:
        return str(shutil.copytree(base, tmp_path / name))

    whole = prepared("whole")
    assert in_a_process(whole, path, 1_000_000, changes) == 0
    count: int = changes.get()
    assert count > 5
    expected = rows_of(whole)
    assert all(expected[0].values())
    for part in PARTS:
        root = prepared(f"lake {part}")
        assert in_a_process(root, path, int(count * part)) == -signal.SIGKILL
        assert in_a_process(root, path, 1_000_000) == 0
        assert rows_of(root) == expected, part

"""Lists of messages of chat clients, with and without times."""

from __future__ import annotations

import os
from pathlib import Path

from memory_pipeline.lake import Lake
from memory_pipeline_tests.importers.exports import Read, as_lines, imported, written


def test_openai_messages_without_times_get_that_of_the_file(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "1"},
        {"role": "assistant", "content": "Hi."},
    ]
    path = written(tmp_path / "tuning.jsonl", as_lines({"messages": messages}))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    found = Read(path)
    assert [role for role, *_ in found.said] == ["system", "user", "tool", "tool", "assistant"]
    assert set(found.times) == {"2023-11-14T22:13:20+00:00"}
    assert sum(found.report.checks.values()) == 1


def test_a_file_that_was_copied_adds_nothing(tmp_path: Path, root: str) -> None:
    path = written(tmp_path / "tuning.jsonl", as_lines({"messages": [{"role": "user", "content": "Hello."}]}))
    assert imported(Lake(root), path).ingestion.accepted == 1
    os.utime(path, (1_600_000_000, 1_600_000_000))
    again = imported(Lake(root), path).ingestion
    assert (again.accepted, again.repeated, again.set_aside) == (0, 1, 0)


def test_messages_with_times_ids_and_a_list(tmp_path: Path) -> None:
    talk = {"id": "c9", "messages": [{"role": "user", "content": "Hello.", "created_at": 1_700_000_000, "id": "m1"}]}
    found = Read(written(tmp_path / "talks.json", [talk]))
    assert (found.conversations, found.times) == (["openai:c9"], ["2023-11-14T22:13:20+00:00"])
    assert not found.report.checks
    bare = [
        {"role": "user", "content": "Hello.", "timestamp": "2024-01-01T10:00:00+01:00"},
        {"role": "user", "content": "Bye."},
    ]
    found = Read(written(tmp_path / "bare.json", bare))
    assert [text for *_, text in found.said] == ["Hello.", "Bye."]
    assert found.report.files == {"messages": 1}


def test_sharegpt(tmp_path: Path) -> None:
    said = [
        {"from": "system", "value": "Be kind."},
        {"from": "human", "value": "Hello."},
        {"from": "function_call", "value": "f()"},
        {"from": "observation", "value": "1"},
        {"from": "gpt", "value": "Hi."},
    ]
    found = Read(written(tmp_path / "sharegpt.json", [{"id": "x1", "conversations": said}]))
    assert [(role, text) for role, _, text in found.said] == [
        ("system", "Be kind."), ("user", "Hello."), ("tool", "f()"), ("tool", "1"), ("assistant", "Hi."),
    ]  # fmt: skip
    assert found.conversations == ["sharegpt:x1"]

"""Gemini's activities and sessions, and messages of LangChain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_pipeline_tests.importers.exports import Read, as_lines, written


def activity(title: str, time: str, *answers: str, **fields: Any) -> dict[str, Any]:
    html = [{"html": answer} for answer in answers]
    return {"header": "Gemini Apps", "title": title, "time": time, "products": ["Gemini Apps"], "safeHtmlItem": html,
            **fields}  # fmt: skip


def test_gemini_in_takeout(tmp_path: Path) -> None:
    activities = [
        activity("Prompted And Rome?", "2025-06-08T12:37:50.000Z", "<p>A city, <b>too</b>.</p>"),
        activity("Used Gemini Apps", "2025-06-08T12:37:00.000Z") | {"safeHtmlItem": []},
        activity("Prompted What is Porto?", "2025-06-07T12:37:50.123Z", "<p>A city.</p>", imageFile="a.png"),
        {"header": "Search", "title": "Searched for x", "time": "2025-06-07T12:00:00Z", "products": ["Search"]},
    ]
    path = tmp_path / "Takeout" / "My Activity" / "Gemini Apps" / "MyActivity.json"
    found = Read(written(path, activities))
    assert found.said == [
        ("user", None, "What is Porto?\n[image]"),
        ("assistant", None, "A city."),
        ("user", None, "And Rome?"),
        ("assistant", None, "A city, too."),
    ]
    assert found.conversations == ["gemini:2025-06-07", "gemini:2025-06-08"]
    assert found.report.skipped["other activities"] == 2


CLI_HEAD = {"sessionId": "s1", "projectHash": "x", "startTime": "2025-10-18T14:57:00.000Z"}
CLI: list[dict[str, Any]] = [
    {"id": "1", "timestamp": "2025-10-18T14:57:28.974Z", "type": "user", "content": "List files\n--- Content from "
     "referenced files ---\nsecret"},
    {"id": "2", "timestamp": "2025-10-18T14:57:29.974Z", "type": "info", "content": "Update available"},
    {"id": "3", "timestamp": "2025-10-18T14:57:30.974Z", "type": "gemini", "content": "Here.", "thoughts": [{}],
     "toolCalls": [{"id": "c", "name": "ls", "args": {"dir": "."}, "resultDisplay": "a.py"}]},
]  # fmt: skip


@pytest.mark.parametrize("has_lines", [False, True])
def test_gemini_cli(tmp_path: Path, has_lines: bool) -> None:
    content = as_lines(CLI_HEAD, *CLI, CLI[-1]) if has_lines else {**CLI_HEAD, "messages": CLI}
    found = Read(written(tmp_path / "session-1.json", content))
    assert sorted(found.said) == [
        ("assistant", None, "Here."),
        ("tool", None, '[tool call] ls({"dir": "."})\n[tool result] a.py'),
        ("user", None, "List files"),
    ]
    assert found.conversations == ["gemini-cli:s1"]


def message(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "data": {"content": content, "type": kind, "additional_kwargs": {}, **fields}}


def dumped(name: str, content: Any, **fields: Any) -> dict[str, Any]:
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": content, **fields}}


SAVED = [
    message("system", "Be kind."),
    message("human", "Hello.", id="h1"),
    message("ai", "", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
    message("tool", "1", tool_call_id="c"),
    message("ai", [{"type": "text", "text": "Hi."}]),
]
DUMPED = [
    dumped("SystemMessage", "Be kind."),
    dumped("HumanMessage", "Hello.", id="h1", type="human"),
    dumped("AIMessage", "", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
    dumped("ToolMessage", "1"),
    dumped("AIMessageChunk", "Hi."),
]


@pytest.mark.parametrize(
    "content",
    [SAVED, DUMPED, {"messages": DUMPED}, as_lines(*SAVED), {"values": {"messages": SAVED}},
     dumped("ChatPromptValue", "") | {"kwargs": {"messages": SAVED}}],
    ids=["to-dict", "dumpd", "state", "lines", "values", "prompt"],
)  # fmt: skip
def test_langchain(tmp_path: Path, content: Any) -> None:
    found = Read(written(tmp_path / "messages.json", content))
    assert found.report.files == {"langchain": 1}
    assert sorted(found.said) == [
        ("assistant", None, "Hi."),
        ("system", None, "Be kind."),
        ("tool", None, "1"),
        ("tool", None, '[tool call] f({"a": 1})'),
        ("user", None, "Hello."),
    ]

"""Anthropic's memory tool, beside the SDK's own implementation on a folder."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

from memory_pipeline import Memory
from memory_pipeline.adapters.anthropic import MemoryTool
from memory_pipeline.adapters.anthropic_async import AsyncMemoryTool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tool(root: str) -> MemoryTool:
    return MemoryTool(Memory(root, user_id="anna"))


def create(path: str, text: str) -> dict[str, Any]:
    return {"command": "create", "path": path, "file_text": text}


def view(path: str, **options: Any) -> dict[str, Any]:
    return {"command": "view", "path": path, **options}


def replace(path: str, old: str, new: str) -> dict[str, Any]:
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def insert(path: str, line: int, text: str) -> dict[str, Any]:
    return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}


def delete(path: str) -> dict[str, Any]:
    return {"command": "delete", "path": path}


def rename(old: str, new: str) -> dict[str, Any]:
    return {"command": "rename", "old_path": old, "new_path": new}


def answer(tool: BetaAbstractMemoryTool, command: dict[str, Any]) -> str:
    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"error: {error.content}"


SAME = [
    create("/memories/a.md", "one\ntwo\n\n  three \n"),
    create("/memories/a.md", "again"),
    view("/memories/a.md"),
    view("/memories/a.md", view_range=[2, 3]),
    view("/memories/a.md", view_range=[2, -1]),
    view("/memories/b.md"),
    replace("/memories/a.md", "two", "2"),
    replace("/memories/a.md", "seven", "7"),
    replace("/memories/a.md", "e", "E"),
    replace("/memories/b.md", "a", "b"),
    insert("/memories/a.md", 1, "one and a half\n"),
    insert("/memories/a.md", 0, "title"),
    insert("/memories/a.md", 99, "end"),
    insert("/memories/b.md", 0, "end"),
    view("/memories/a.md"),
    create("/memories/deep/er/c.md", "é" * 2_000),
    create("/memories/deep/er/est/d.md", ""),
    view("/memories/deep/er/est/d.md"),
    insert("/memories/deep/er/est/d.md", 0, "first"),
    view("/memories/deep/er/est/d.md"),
    replace("/memories/deep", "a", "b"),
    rename("/memories/deep/er", "/memories/moved"),
    rename("/memories/a.md", "/memories/moved/c.md"),
    rename("/memories/none", "/memories/other"),
    rename("/memories", "/memories/other"),
    view("/memories/moved/c.md", view_range=[1, 1]),
    delete("/memories/none"),
    delete("/memories"),
    delete("/memories/moved"),
    view("/memories/moved"),
    view("/memories/a.md"),
    {"command": "view", "path": "/etc/passwd"},
]  # fmt: skip


def test_answers_and_files_are_those_of_the_sdk(tool: MemoryTool, tmp_path: Path) -> None:
    own = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for command in SAME:
        expected, given = answer(own, command), answer(tool, command)
        if expected.startswith("error: ") or given.startswith("error: "):
            assert given.startswith("error: ") == expected.startswith("error: "), (command, expected, given)
        else:
            assert given == expected, command


def test_a_folder_lists_two_levels_with_sizes(tool: MemoryTool) -> None:
    for path, text in {"b.md": "12345", "f/g/h/deep.md": "1" * 2_048, "f/c.md": "12", ".hidden": "1"}.items():
        tool.call(create(f"/memories/{path}", text))
    assert str(tool.call(view("/memories/"))).split("\n")[1:] == [
        "2.0K\t/memories",
        "5B\t/memories/b.md",
        "2.0K\t/memories/f/",
        "2B\t/memories/f/c.md",
        "2K\t/memories/f/g/",
    ]


@pytest.mark.parametrize(
    "command",
    [
        create("/memories/../x", "1"),
        create("/memoriesx", "1"),
        create("memories/x", "1"),
        create("/memories", "1"),
        create("/memories/a/b", "below a file"),
        create("/memories/" + "k" * 300, "1"),
        create("/memories/long", "x" * 20_001),
        create("/memories/line\nbreak", "1"),
        create("/memories/two  blanks", "1"),
        create("/memories/broken", "\ud800"),
        rename("/memories/a", "/memories/a/b"),
    ],
)
def test_the_model_reads_why_a_command_is_refused(tool: MemoryTool, command: dict[str, Any]) -> None:
    tool.call(create("/memories/a", "1"))
    with pytest.raises(ToolError):
        tool.call(command)
    assert tool.call(view("/memories/a")) == "Here's the content of /memories/a with line numbers:\n     1\t1"


def test_files_are_memories_of_their_user(tool: MemoryTool, root: str) -> None:
    tool.call(create("/memories/family.md", "Anna is allergic to nuts."))
    tool.call(replace("/memories/family.md", "nuts", "shrimps"))
    memory = Memory(root, user_id="anna")
    [entry] = memory.contexts.entries("memories")
    assert [one.content for one in memory.history(entry.id)] == [
        "Anna is allergic to nuts.",
        "Anna is allergic to shrimps.",
    ]
    assert entry.source_type == "assistant"
    assert memory.contexts.search("memories", "What is Anna allergic to?")[0].memory.id == entry.id
    assert "family.md" not in str(MemoryTool(Memory(root, user_id="ben")).call(view("/memories")))
    memory.forget(everything=True)
    again = MemoryTool(Memory(root, user_id="anna"))
    assert "family.md" not in str(again.call(view("/memories")))
    again.call(create("/memories/x", "1"))
    assert again.clear_all_memory() == "All memory cleared"
    assert str(again.call(view("/memories"))).endswith(":\n0B\t/memories")


def answering(requests: list[dict[str, Any]]) -> httpx2.MockTransport:
    """Return an API whose model calls the tool once. The requests are kept."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        use = {"type": "tool_use", "id": "t1", "name": "memory", "input": create("/memories/a.md", "tea")}
        content = [use] if len(requests) == 1 else [{"type": "text", "text": "Done."}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return httpx2.Response(
            200,
            json={
                "id": "m", "type": "message", "role": "assistant", "model": "claude", "content": content,
                "stop_reason": "tool_use" if len(requests) == 1 else "end_turn", "stop_sequence": None, "usage": usage,
            },
        )  # fmt: skip

    return httpx2.MockTransport(respond)


def assert_ran(requests: list[dict[str, Any]], tool: MemoryTool) -> None:
    assert requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    assert requests[1]["messages"][-1]["content"][0]["content"] == "File created successfully at: /memories/a.md"
    assert "tea" in str(tool.call(view("/memories/a.md")))


def test_the_tool_runner_of_the_sdk_runs_it(tool: MemoryTool) -> None:
    """The SDK sends the declaration of the tool, runs the model's call, and sends the result back."""
    requests: list[dict[str, Any]] = []
    client = Anthropic(api_key="none", http_client=httpx2.Client(transport=answering(requests)))
    messages: Any = [{"role": "user", "content": "I like tea."}]
    final = client.beta.messages.tool_runner(
        model="claude", max_tokens=100, messages=messages, tools=[tool]
    ).until_done()
    assert final.content[0].type == "text"
    assert_ran(requests, tool)


def test_the_asynchronous_tool_runner_runs_it(tool: MemoryTool, root: str) -> None:
    requests: list[dict[str, Any]] = []
    messages: Any = [{"role": "user", "content": "I like tea."}]
    own = AsyncMemoryTool(Memory(root, user_id="anna"))

    async def converse() -> Any:
        client = AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=answering(requests)))
        runner = client.beta.messages.tool_runner(model="claude", max_tokens=100, messages=messages, tools=[own])
        return await runner.until_done()

    assert asyncio.run(converse()).content[0].type == "text"
    assert_ran(requests, tool)
    with pytest.raises(ToolError):
        asyncio.run(own.call(create("/memories/a.md", "again")))
    assert asyncio.run(own.clear_all_memory()) == "All memory cleared"

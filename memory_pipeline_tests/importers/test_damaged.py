"""Damaged exports in all formats: what can be read is read, and nothing else than an InputError comes out."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.importers.exports import Read, as_lines, chatgpt, written
from memory_pipeline_tests.importers.test_chat_services import CHAT, discord, slack
from memory_pipeline_tests.importers.test_claude import message, talk
from memory_pipeline_tests.importers.test_coding_agents import META, SESSION, codex_message, item
from memory_pipeline_tests.importers.test_gemini_and_langchain import CLI, CLI_HEAD, DUMPED, SAVED, activity
from memory_pipeline_tests.importers.test_memory_products import HINDSIGHT, LANGMEM, LETTA, MCP, MEM0, ZEP

EXPORTS: dict[str, Any] = {
    "chatgpt": [chatgpt("a", "b", "c"), chatgpt("d", identity="x")],
    "claude": [talk(message("m1", "human", "x", 1), message("m2", "assistant", "y", 2, parent_message_uuid="m1"))],
    "gemini": [activity("Prompted x", "2025-06-08T12:37:50.000Z", "<p>a</p>")],
    "gemini-cli": {**CLI_HEAD, "messages": CLI},
    "slack": [slack("U1", "Hi <@U2>", "1704103200.000100"), slack("U2", "x", "1704103201.0001", files=[{"name": 1}])],
    "discord": {"guild": {"id": "7"}, "channel": {"id": "77"},
                "messages": [discord("1", "a", 1), discord("2", "b", 2)],
                "messageCount": 2},
    "telegram": CHAT,
    "mem0": MEM0, "zep": ZEP, "langmem": LANGMEM, "hindsight": HINDSIGHT, "letta": LETTA,
    "langchain": SAVED, "langchain-dumps": DUMPED,
    "sharegpt": [{"id": "x", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}],
    "openai": [{"messages": [{"role": "user", "content": "a"}]}],
    "claude-code.jsonl": SESSION,
    "codex.jsonl": [META, codex_message("user", "hello", 1), item("function_call", 2, name="x", arguments="{}")],
    "mcp.jsonl": [json.loads(line) for line in MCP.splitlines()],
}  # fmt: skip
WRONG: list[Any] = [
    None, 0, -1, 1e308, "", "x", [], {}, [[]], [None], {"a": None}, True, "2024-13-45T99:99:99Z", "\ud800", 10**30,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list | tuple) else ()
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


@pytest.mark.parametrize("name", EXPORTS)
def test_a_damaged_export_raises_nothing_unexpected(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    for _ in range(200 if IS_THOROUGH else 12):
        value = json.loads(json.dumps(EXPORTS[name]))
        *path, last = chance.choice(list(places(value)))
        parent = value
        for key in path:
            parent = parent[key]
        parent[last] = copy.deepcopy(chance.choice(WRONG))
        text = as_lines(*value) if name.endswith(".jsonl") else json.dumps(value)
        text = text[: chance.randrange(len(text))] if chance.random() < 0.1 else text
        with suppress(InputError):
            Read(written(tmp_path / (name if name.endswith(".jsonl") else "export.json"), text), timezone="UTC")

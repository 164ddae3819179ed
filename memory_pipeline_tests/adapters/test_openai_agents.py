"""Sessions of the OpenAI Agents SDK, beside the SDK's own session in SQLite."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from agents import Agent, Runner, Session, SQLiteSession, function_tool
from agents.items import ModelResponse
from agents.memory import SessionSettings
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from memory_pipeline import Memory
from memory_pipeline.adapters.openai_agents import MemorySession
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ITEMS: list[Any] = [
    {"role": "user", "content": "  I moved to Porto.\n"},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "AbC=="},
    {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"city": "Porto"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "in Portugal 🇵🇹"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Porto is in Portugal.", "annotations": []}]},
]


@pytest.fixture
def memory(root: str, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    return Memory(root, user_id="anna")


async def use(session: Session) -> list[Any]:
    found: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items([])
    await session.add_items(ITEMS[:1])
    await session.add_items(ITEMS[1:])
    found += [await session.get_items(), await session.get_items(2), await session.get_items(limit=99)]
    found += [await session.pop_item(), await session.pop_item(), await session.get_items()]
    await session.add_items(ITEMS[3:])
    found.append(await session.get_items())
    await session.clear_session()
    found += [await session.get_items(), await session.pop_item()]
    return found


def test_a_session_does_what_the_sdks_own_does(memory: Memory) -> None:
    session = MemorySession("c1", memory)
    assert isinstance(session, Session)
    assert asyncio.run(use(session)) == asyncio.run(use(SQLiteSession("c1")))


def test_the_settings_limit_the_items(memory: Memory) -> None:
    session = MemorySession("c1", memory, session_settings=SessionSettings(limit=2))
    asyncio.run(session.add_items(ITEMS))
    assert asyncio.run(session.get_items()) == ITEMS[-2:]
    assert asyncio.run(session.get_items(3)) == ITEMS[-3:]


class Scripted(Model):
    """A model that calls a tool, and then says what it was given."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        given: list[Any] = list(options.get("input", args[1:2] and args[1]))
        self.inputs.append(given)
        if not any(item.get("type") == "function_call_output" for item in given):
            call = ResponseFunctionToolCall(
                arguments="{}", call_id="c1", name="where", type="function_call", id="f1", status="completed"
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = ResponseOutputText(annotations=[], text="You live in Porto.", type="output_text")
        message = ResponseOutputMessage(
            id="__fake_id__", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def test_an_agent_runs_with_it_and_memory_learns_what_was_said(memory: Memory, root: str) -> None:
    def where() -> str:
        """Return where the user lives."""
        return "the depot of Porto"

    model = Scripted()
    agent = Agent(name="guide", model=model, tools=[function_tool(where)])
    for session in (MemorySession("c1", memory), MemorySession("c1", Memory(root, user_id="anna"))):
        result = asyncio.run(Runner.run(agent, "Where do I live?", session=session))
        assert result.final_output == "You live in Porto."
    kinds = [item.get("type", "message") for item in model.inputs[-1]]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    said = [(message.role.value, message.content) for message in memory.conversations.get("c1")]
    assert said == [("user", "Where do I live?"), ("assistant", "You live in Porto.")] * 2
    assert MemorySession("c1", Memory(root, user_id="ben"))._transcript.read() == []
    memory.forget(conversation_id="c1")
    assert asyncio.run(MemorySession("c1", memory).get_items()) == []


def test_without_learning_only_the_session_is_stored(memory: Memory) -> None:
    session = MemorySession("c1", memory, learns=False)
    asyncio.run(session.add_items(ITEMS))
    assert asyncio.run(session.get_items()) == ITEMS
    assert memory.conversations.get("c1") == []


def test_what_cannot_be_remembered_does_not_stop_the_agent(
    memory: Memory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise InputError("too long")

    items = ITEMS[:1]
    monkeypatch.setattr(memory, "add", refuse)
    with caplog.at_level(logging.WARNING):
        asyncio.run(MemorySession("c1", memory).add_items(items))
    assert asyncio.run(MemorySession("c1", memory).get_items()) == items
    assert "is not remembered" in caplog.text

"""Messages of OpenAI's and LiteLLM's chat API: how they are read, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from memory_pipeline.domain.chat_messages import answer_in, is_empty, messages_in
from memory_pipeline.domain.conversations import read_messages
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline_tests.domain.test_conversations import ADMISSION, AT, accepted, conversation, message, refusal

CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Porto"}'}}
CALLED = '[tool call] get_weather({"city": "Porto"})'


class Model(BaseModel):
    """A stand-in for a message of a library."""

    role: str
    content: Any = None
    tool_calls: Any = None
    timestamp: str = AT


def test_parts_of_a_content_become_one_text() -> None:
    parts: list[Any] = [
        {"type": "text", "text": "Look at this."},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "input_text", "text": "It is my dog."},
        "Plain.",
    ]
    [read] = accepted(message(content=parts))
    assert read.content == "Look at this.\n[image]\n[audio]\n[file]\nIt is my dog.\nPlain."


@pytest.mark.parametrize("content", [None, "", " ", []])
@pytest.mark.parametrize("field", [{"tool_calls": [CALL]}, {"function_call": CALL["function"]}])
def test_a_message_of_tool_calls_alone_is_context(content: object, field: dict[str, Any]) -> None:
    [read] = accepted(message(id="m1", role="assistant", name="Ava", content=content, **field))
    assert (read.source_id, read.role, read.name, read.content) == ("m1", Role.TOOL, None, CALLED)
    assert not read.role.is_memorable


def test_tool_calls_beside_a_text_become_a_separate_message() -> None:
    both = message(id="m1", role="assistant", content="I shall look.", tool_calls=[CALL, CALL])
    read = accepted(message(id="m0"), both, message(id="m2", role="tool", content="18 °C", tool_call_id="c1"))
    assert [(each.source_id, each.role.value, each.turn) for each in read] == [
        ("m0", "user", 0),
        ("m1", "assistant", 1),
        (None, "tool", 2),
        ("m2", "tool", 3),
    ]
    assert read[1].content == "I shall look."
    assert read[2].content == f"{CALLED}\n{CALLED}"
    assert accepted(message(id="m0"), both)[:2] == read[:2]


@pytest.mark.parametrize(("role", "read_as"), [("developer", Role.SYSTEM), ("function", Role.TOOL)])
def test_roles_of_the_api_are_mapped(role: str, read_as: Role) -> None:
    assert accepted(message(role=role))[0].role is read_as


def test_a_refusal_replaces_a_missing_text() -> None:
    assert accepted(message(role="assistant", content=None, refusal="I cannot."))[0].content == "I cannot."
    parts = [{"type": "refusal", "refusal": "I cannot."}]
    assert accepted(message(role="assistant", content=parts))[0].content == "I cannot."


def test_custom_tools_and_arguments_that_are_not_text_are_read() -> None:
    calls = [
        {"type": "custom", "custom": {"name": "shell", "input": "ls"}},
        {"function": {"name": "f", "arguments": {}}},
    ]
    [read] = accepted(message(content=None, tool_calls=calls))
    assert read.content == "[tool call] shell(ls)\n[tool call] f({})"


def test_a_parsed_answer_is_read_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    class Parsed(Model):
        parsed: None = None

    answer = Parsed(role="assistant", content="7").model_copy(update={"parsed": Parsed(role="user")})
    assert [read.content for read in accepted(answer)] == ["7"]
    assert recwarn.list == []


def test_pydantic_models_are_read_like_mappings() -> None:
    said = [Model(role="user", content=[{"type": "text", "text": "Hi."}]), Model(role="assistant", tool_calls=[CALL])]
    assert [each.content for each in accepted(*said)] == ["Hi.", CALLED]

    class Conversation(BaseModel):
        workspace_id: str = "acme"
        agent_id: str = "support"
        conversation_id: str = "call"
        messages: list[Model] = said

    assert len(read_messages(Conversation(), ADMISSION).messages) == 2


def test_a_plain_message_is_unchanged() -> None:
    plain = message(tool_calls=None, function_call=None, refusal=None)
    assert messages_in(plain)[0] is plain
    assert Scope("acme", "support") == accepted(plain)[0].scope


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"no type": "and no text"}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": [{"type": "x\ny"}]},
        {"content": [{"type": "x" * 1_000}]},
        {"content": [None]},
        {"content": [[]]},
        {"content": [{"type": "text", "text": " "}]},
        {"content": None, "tool_calls": "f()"},
        {"content": None, "tool_calls": 5},
        {"content": None, "tool_calls": {"function": {"name": "f"}}},
        {"content": None, "tool_calls": [None]},
        {"content": None, "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"content": None, "tool_calls": []},
        {"content": None, "function_call": "f"},
        {"content": None, "refusal": 5},
    ],
)
def test_parts_and_calls_that_cannot_be_read_are_refused(fields: dict[str, Any]) -> None:
    found = refusal(message(role="assistant", **fields))
    assert found.where.endswith("message 1")


CALL_LINE, RESULT_LINE = 'tool [tool call] look({"x": 1})', "tool [tool result] 7"
ARGS = {"x": 1}
TOOL_PART = {"toolCallId": "t1", "toolName": "look"}


@pytest.mark.parametrize(
    ("record", "read"),
    [
        # Gemini
        (
            {"role": "user", "parts": [{"text": "Look."}, {"inline_data": {"data": "AAAA"}}]},
            ["user Look.\n[inline_data]"],
        ),
        ({"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Seven."}]}, ["assistant Seven."]),
        ({"role": "model", "parts": [{"functionCall": {"name": "look", "args": ARGS}}]}, [CALL_LINE]),
        (
            {"role": "user", "parts": [{"function_response": {"name": "look", "response": {"y": 7}}}]},
            ['tool [tool result] {"y": 7}'],
        ),
        # Vercel
        (
            {"role": "user", "parts": [{"type": "text", "text": "Look."}, {"type": "file", "url": "x"}]},
            ["user Look.\n[file]"],
        ),
        (
            {
                "role": "assistant",
                "content": "Seven.",
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "Hm."},
                    {"type": "tool-invocation", "toolInvocation": {**TOOL_PART, "args": ARGS, "result": "7"}},
                    {"type": "text", "text": "Seven."},
                ],
            },
            ["assistant Seven.", f"{CALL_LINE}\n[tool result] 7"],
        ),
        (
            {"role": "assistant", "parts": [{"type": "tool-look", "toolCallId": "t1", "input": ARGS, "output": "7"}]},
            [f"{CALL_LINE}\n[tool result] 7"],
        ),
        ({"role": "assistant", "content": [{"type": "tool-call", "input": ARGS, **TOOL_PART}]}, [CALL_LINE]),
        (
            {
                "role": "tool",
                "content": [{"type": "tool-result", **TOOL_PART, "output": {"type": "text", "value": "7"}}],
            },
            [RESULT_LINE],
        ),
        ({"role": "user", "content": "Look.", "parts": [{"type": "file"}]}, ["user Look.\n[file]"]),
        # Bedrock
        ({"role": "user", "content": [{"text": "Look."}, {"image": {"format": "png"}}]}, ["user Look.\n[image]"]),
        ({"role": "assistant", "content": [{"toolUse": {"name": "look", "input": ARGS}}]}, [CALL_LINE]),
        ({"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": "7"}}]}, [RESULT_LINE]),
        # other keys of the text
        ({"role": "user", "text": "Look."}, ["user Look."]),
        ({"role": "user", "content": "", "value": "Look."}, ["user Look."]),
        ({"role": "user", "data": "Look."}, ["user Look."]),
        ({"from": "gpt", "value": "Seven."}, ["assistant Seven."]),
        ({"type": "human", "data": {"type": "human", "content": "Look.", "id": None}}, ["user Look."]),
        ({"type": "AIMessageChunk", "content": "Seven."}, ["assistant Seven."]),
        ({"role": "user", "content": {"content_type": "text", "parts": ["Look.", "Now."]}}, ["user Look.\nNow."]),
        ({"role": "user", "content": {"type": "text", "text": "Look."}}, ["user Look."]),
        ({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Seven."}}, ["assistant Seven."]),
        # items of the Responses API
        (
            {
                "type": "mcp_call",
                "id": "m",
                "server_label": "s",
                "name": "look",
                "arguments": '{"x": 1}',
                "output": "7",
            },
            [f"{CALL_LINE}\n[tool result] 7"],
        ),
        ({"type": "custom_tool_call", "call_id": "t", "name": "look", "input": '{"x": 1}'}, [CALL_LINE]),
        ({"type": "custom_tool_call_output", "call_id": "t", "output": "7"}, ["tool 7"]),
        (
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "tea"}},
            ['tool [web_search_call] {"action": {"query": "tea"}}'],
        ),
        (
            {"type": "image_generation_call", "id": "i", "result": "A" * 2_000_000},
            ['tool [image_generation_call] {"result": "…"}'],
        ),
        (
            {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "A" * 2_000_000}},
            ["tool [computer_screenshot]"],
        ),
        ({"type": "item_reference", "id": "i"}, ["tool [item_reference]"]),
        ({"type": "not_invented_yet", "a": {"b": [1]}}, ['tool [not_invented_yet] {"a": {"b": [1]}}']),
    ],
)
def test_messages_and_items_of_all_clients_are_read(record: dict[str, Any], read: list[str]) -> None:
    assert not is_empty(record)
    assert [f"{each.role.value} {each.content}" for each in accepted({**record, "timestamp": AT})] == read


@pytest.mark.parametrize(
    ("record", "is_nothing"),
    [
        ({"role": "assistant", "content": None}, True),
        ({"role": "assistant", "content": "", "refusal": None, "tool_calls": [], "audio": None}, True),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}, True),
        ({"type": "reasoning", "id": "rs", "summary": []}, True),
        ({"role": "user"}, False),
        ({"role": "user", "body": "Look."}, False),
        ({"role": "user", "content": 5}, False),
        ({"role": "user", "parts": 5}, False),
        ("Look.", False),
    ],
)
def test_only_a_message_with_an_empty_content_says_nothing(record: Any, is_nothing: bool) -> None:
    assert is_empty(record) is is_nothing


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Seven."}}]},
        {"choices": [{"index": 0, "text": "Seven."}]},
        {"object": "response", "output": [{"type": "message", "role": "assistant", "content": [{"text": "Seven."}]}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Seven."}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Seven."}]}}]},
        {"output": {"message": {"role": "assistant", "content": [{"text": "Seven."}]}}, "stopReason": "end_turn"},
    ],
)
def test_answers_of_all_clients_are_read(answer: dict[str, Any]) -> None:
    found = answer_in(answer)
    assert found is not None
    [read] = accepted(*({**one, "timestamp": AT} for one in found if isinstance(one, dict)))
    assert (read.role, read.content) == (Role.ASSISTANT, "Seven.")
    assert answer_in({"x": 1}) is answer_in("Seven.") is answer_in(None) is answer_in([answer]) is None


def test_circular_arguments_are_rejected() -> None:
    arguments: dict[str, Any] = {}
    arguments["self"] = arguments
    with pytest.raises(InputError, match="JSON"):
        messages_in(message(content=None, tool_calls=[{"function": {"name": "f", "arguments": arguments}}]))


def test_invalid_tool_calls_are_reported_with_their_place_in_the_file() -> None:
    both = message(role="assistant", content="Yes.", tool_calls=[CALL])
    _, [rejected], _ = read_messages(conversation(both, both, message(role="nobody", content="x")), ADMISSION)
    assert rejected.where.endswith("message 3")

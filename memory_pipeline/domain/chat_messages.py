"""Convert messages of OpenAI, LiteLLM, Anthropic and LangChain clients to plain mappings.

Mappings, and pydantic models such as LiteLLM's and LangChain's messages, are accepted.

============================================  ======================================================================
message with                                  becomes
============================================  ======================================================================
``content`` as a list of parts                their texts, one per line; other parts as their kind: ``[image]``
``tool_calls``, with or without text          the text, and a second message of the role ``tool`` with the calls
parts ``tool_use`` and ``tool_result``        the text, and a second message of the role ``tool`` with calls or results
parts ``thinking`` and ``reasoning``          nothing
``content: null`` and a ``refusal``           the refusal
role ``developer``                            role ``system``
role ``function``                             role ``tool``
no role, and a LangChain ``type``             the role: ``human`` is the user, ``ai`` the assistant
no role, and the ``type`` of a function call  role ``tool``, with the call or its output (OpenAI's Responses API)
============================================  ======================================================================

Tool calls are context: they are stored, and never become facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from memory_pipeline.errors import InputError, shown

#: Keys of a message with text, beside the content.
CALL_KEYS: Final = ("tool_calls", "function_call")
TEXT_KEYS: Final = (*CALL_KEYS, "refusal")

_ROLES: Final = {"developer": "system", "function": "tool"}
#: Roles by the type of LangChain's messages.
_LANGCHAIN: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
#: Kinds of parts that a model does not say.
_THOUGHTS: Final = ("thinking", "redacted_thinking", "reasoning")
#: Kinds of parts that are calls of tools, or their results.
_CALL_PARTS: Final = ("tool_use", "server_tool_use")
_RESULT_PARTS: Final = ("tool_result", "web_search_tool_result")
#: Keys of the arguments of a call.
_ARGUMENTS: Final = ("arguments", "input", "args")
#: Longest accepted kind of a part; those of the APIs are far shorter.
_MAX_KIND = 40


def as_mapping(value: object) -> object:
    """Return a pydantic model, such as a LiteLLM message, as a mapping; other values unchanged."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else value


def is_empty(record: Mapping[str, object]) -> bool:
    """Return whether a message says nothing and calls no tool, as some answers of models do."""
    return (
        not any(record.get(key) for key in ("content", "output", *TEXT_KEYS)) and record.get("type") != "function_call"
    )


def messages_in(record: object) -> list[Mapping[str, object]]:
    """Return a message with its content as text, and a second one for its tool calls or results if it has both.

    Raises:
        InputError: `record` is not an object, or a part of its content or a tool call is invalid.
    """
    record = as_mapping(record)
    if not isinstance(record, Mapping):
        raise InputError(f"a message must be an object, not {shown(record)}")
    record = _with_role(record)
    content, role = record.get("content"), record.get("role")
    calls = [line for key in CALL_KEYS for line in _calls(key, record.get(key))]
    if isinstance(role, str) and role in _ROLES:
        record = {**record, "role": _ROLES[role]}
    if isinstance(content, list | tuple) and (content or calls):
        parts = [as_mapping(part) for part in content]
        of_tools = [part for part in parts if _kind_of(part) in (*_CALL_PARTS, *_RESULT_PARTS)]
        # LangChain repeats the calls of these parts as `tool_calls`.
        calls += [_tool_part(part) for part in of_tools if not calls or _kind_of(part) in _RESULT_PARTS]
        said = [part for part in parts if part not in of_tools and _kind_of(part) not in _THOUGHTS]
        record = {**record, "content": "\n".join(map(_part, said))}
    elif content is None and record.get("refusal") is not None:
        record = {**record, "content": record["refusal"]}
    if not calls:
        return [record]
    call = {**record, "role": "tool", "name": None, "content": "\n".join(calls)}
    text = record.get("content")
    if text is None or (isinstance(text, str) and not text.strip()):
        return [call]
    return [record, {**call, "id": None}]


def _with_role(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return a message with its role, if only its type says it."""
    kind = record.get("type")
    if record.get("role") is not None or not isinstance(kind, str):
        return record
    if kind == "function_call":
        return {**record, "role": "tool", "id": None, "name": None, "tool_calls": [record]}
    if kind == "function_call_output":
        return {**record, "role": "tool", "content": _text_of(record.get("output"))}
    return {**record, "role": _LANGCHAIN.get(kind)} if kind in _LANGCHAIN else record


def _kind_of(part: object) -> object:
    return part.get("type") if isinstance(part, Mapping) else None


def _tool_part(part: object) -> str:
    assert isinstance(part, Mapping)  # noqa: S101  # it has a kind
    if _kind_of(part) in _CALL_PARTS:
        [line] = _calls("content", [part])
        return line
    return f"[tool result] {_text_of(part.get('content'))}"


def _text_of(value: object) -> str:
    """Return the output of a tool as text: a text, parts, or any JSON."""
    parts = [as_mapping(part) for part in value] if isinstance(value, list | tuple) else []
    if parts and all(isinstance(_kind_of(part), str) for part in parts):
        return "\n".join(map(_part, parts))
    return _arguments("" if value is None else value)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = _kind_of(part)
    if not isinstance(part, Mapping) or not isinstance(kind, str) or not kind.isprintable() or len(kind) > _MAX_KIND:
        raise InputError(
            f"content part {shown(part)} is not valid; expected an object with a type, such as "
            '{"type": "text", "text": "Hello."}'
        )
    name = kind.removeprefix("input_").removeprefix("output_").removesuffix("_url")
    if name not in ("text", "refusal"):
        return f"[{name}]"
    text = part.get(name)
    if not isinstance(text, str):
        raise InputError(f"{name} of a content part must be a text, not {shown(text)}")
    return text


def _calls(key: str, value: object) -> list[str]:
    """Return tool calls as lines. OpenAI's older format has a single call instead of a list."""
    if not value:
        return []
    calls = [{"function": value}] if key == "function_call" else value
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InputError(f"{key} must be a list of tool calls, not {shown(value)}")
    lines = []
    for each in calls:
        call = as_mapping(each)
        called = as_mapping(call.get("function") or call.get("custom") or call) if isinstance(call, Mapping) else None
        name = called.get("name") if isinstance(called, Mapping) else None
        if not isinstance(called, Mapping) or not isinstance(name, str) or not name.strip():
            raise InputError(f"{key} contains {shown(call)}; expected a function with its name and arguments")
        given = next((called[key] for key in _ARGUMENTS if called.get(key) is not None), None)
        lines.append(f"[tool call] {name}({_arguments(given)})")
    return lines


def _arguments(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError) as error:  # a circular or too deeply nested object
        raise InputError(f"arguments of a tool call cannot be written as JSON: {error}") from None

"""Convert messages in the format of OpenAI's and LiteLLM's chat API, and pydantic models, to plain mappings.

======================================  ============================================================================
message with                            becomes
======================================  ============================================================================
``content`` as a list of parts          their texts, one per line; other parts as their kind: ``[image]``, ``[audio]``
``tool_calls``, with or without text    the text, and a second message of the role ``tool`` with the calls
``content: null`` and a ``refusal``     the refusal
role ``developer``                      role ``system``
role ``function``                       role ``tool``
======================================  ============================================================================

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
#: Longest accepted kind of a part; those of the APIs are far shorter.
_MAX_KIND = 40


def as_mapping(value: object) -> object:
    """Return a pydantic model, such as a LiteLLM message, as a mapping; other values unchanged."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else value


def messages_in(record: object) -> list[Mapping[str, object]]:
    """Return a message with its content as text, and a second one for its tool calls if it has both.

    Raises:
        InputError: `record` is not an object, or a part of its content or a tool call is invalid.
    """
    record = as_mapping(record)
    if not isinstance(record, Mapping):
        raise InputError(f"a message must be an object, not {shown(record)}")
    content, role = record.get("content"), record.get("role")
    calls = [line for key in CALL_KEYS for line in _calls(key, record.get(key))]
    if isinstance(role, str) and role in _ROLES:
        record = {**record, "role": _ROLES[role]}
    if isinstance(content, list | tuple) and (content or calls):
        record = {**record, "content": "\n".join(map(_part, content))}
    elif content is None and record.get("refusal") is not None:
        record = {**record, "content": record["refusal"]}
    if not calls:
        return [record]
    call = {**record, "role": "tool", "name": None, "content": "\n".join(calls)}
    text = record.get("content")
    if text is None or (isinstance(text, str) and not text.strip()):
        return [call]
    return [record, {**call, "id": None}]


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    part = as_mapping(part)
    kind = part.get("type") if isinstance(part, Mapping) else None
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
        called = as_mapping(call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        name = called.get("name") if isinstance(called, Mapping) else None
        if not isinstance(called, Mapping) or not isinstance(name, str) or not name.strip():
            raise InputError(f"{key} contains {shown(call)}; expected a function with its name and arguments")
        lines.append(f"[tool call] {name}({_arguments(called.get('arguments', called.get('input')))})")
    return lines


def _arguments(value: object) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError) as error:  # a circular or too deeply nested object
        raise InputError(f"arguments of a tool call cannot be written as JSON: {error}") from None

"""Reads messages in the format of OpenAI's and LiteLLM's chat API, and what else callers hold in place of a mapping.

======================================  ============================================================================
a message that holds                    is read as
======================================  ============================================================================
``content`` as a list of parts          their texts, a line each; any other part by its kind: ``[image]``, ``[audio]``
``tool_calls``, with or without text    the text, and a second message of the role ``tool`` with the calls
``content: null`` and a ``refusal``     the refusal
role ``developer``                      role ``system``
role ``function``                       role ``tool``
======================================  ============================================================================

Tool calls are context: they can be looked up, and nothing that they hold becomes a fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from memory_pipeline.errors import InputError, shown

#: Keys of a message, beside the content, from which its text is read.
CALL_KEYS: Final = ("tool_calls", "function_call")
TEXT_KEYS: Final = (*CALL_KEYS, "refusal")

_ROLES: Final = {"developer": "system", "function": "tool"}
#: Longest kind of a part that is shown; those of the APIs are far shorter.
_MAX_KIND = 40


def as_mapping(value: object) -> object:
    """Return a pydantic model, such as a message of LiteLLM's, as a mapping; anything else as it is."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) and not isinstance(value, type) else value


def messages_in(record: object) -> list[Mapping[str, object]]:
    """Return a message with its content as text, and one more for its tool calls, if it has both.

    Raises:
        InputError: it is no object, or a part of its content or a tool call cannot be read.
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
    """Return a part of a content as text."""
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
    """Return tool calls as lines; of OpenAI's older format, there is one, and it stands alone."""
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
            raise InputError(f"{key} holds {shown(call)}; expected a function with its name and arguments")
        lines.append(f"[tool call] {name}({_arguments(called.get('arguments', called.get('input')))})")
    return lines


def _arguments(given: object) -> str:
    try:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    except (ValueError, RecursionError) as error:  # an object that holds itself, or is nested too deep
        raise InputError(f"arguments of a tool call cannot be written as JSON: {error}") from None

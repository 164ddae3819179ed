"""Convert messages of OpenAI, LiteLLM, Anthropic, LangChain, Gemini, Bedrock and Vercel clients to plain mappings.

Mappings, and pydantic models such as LiteLLM's and LangChain's messages, are accepted.

============================================  ======================================================================
message with                                  becomes
============================================  ======================================================================
``content`` or ``parts`` as a list            their texts, one per line; other parts as their kind: ``[image]``
no content, and ``text``, ``value``,          the text
``data``, a ``refusal`` or a transcript
``tool_calls``, with or without text          the text, and a second message of the role ``tool`` with the calls
parts with calls of tools, or their results   the text, and a second message of the role ``tool`` with these
parts ``thinking`` and ``reasoning``          nothing
role ``developer``                            role ``system``
role ``function``                             role ``tool``
role ``model``                                role ``assistant``
no role, and a ``type`` or ``from``           the role that it names: ``human`` is the user, ``ai`` the assistant
no role, and another ``type``                 role ``tool``: an item of OpenAI's Responses API, such as ``mcp_call``
============================================  ======================================================================

Tool calls are context: they are stored, and never become facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeGuard

from memory_pipeline.domain.text.words import is_blank
from memory_pipeline.errors import InputError, shown

#: Keys of a message with text, beside the content.
CALL_KEYS: Final = ("tool_calls", "function_call")
TEXT_KEYS: Final = (*CALL_KEYS, "parts", "text", "value", "data", "refusal", "audio")

_ROLES: Final = {"developer": "system", "function": "tool", "model": "assistant"}
#: Roles by the type or the sender of a message.
_SENDERS: Final = {
    **_ROLES, **{role: role for role in ("user", "assistant", "system", "tool")}, "human": "user", "ai": "assistant",
    "gpt": "assistant", "HumanMessageChunk": "user", "AIMessageChunk": "assistant",
}  # fmt: skip
#: Kinds of parts and items that a model does not say.
_SILENT: Final = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "step_start")
#: Endings of the kinds of parts and items that are calls of tools, or their results.
_CALLS: Final = ("tool_use", "tool_call", "function_call", "tool_invocation", "dynamic_tool")
_RESULTS: Final = ("tool_result", "tool_error", "function_response")
_OF_TOOLS: Final = (*_CALLS, *_RESULTS)
#: Keys of the arguments of a call, and of its result.
_ARGUMENTS: Final = ("arguments", "input", "args", "rawInput")
_OUTPUTS: Final = ("output", "result", "response", "content", "error", "errorText")
#: Keys of an item that say nothing.
_HANDLES: Final = ("type", "id", "status", "timestamp", "user_id")
#: Longest accepted kind of a part; those of the APIs are far shorter.
_MAX_KIND = 40
#: Longest field of an item of another kind, as JSON; longer ones are pictures and other data.
_MAX_FIELD = 10_000

#: Names of the time of a message, in lower case and without underscores, the best first.
_TIMES: Final = (
    "createdat", "sentat", "createtime", "createdtime", "createdtimestamp", "timestampms", "datetime", "time", "ts",
    "date", "created", "sent",
)  # fmt: skip
_TIME_WORD: Final = re.compile(r"(?:^|_)(?:at|time|date|datetime|timestamp|ts)(?:$|_)|^(?:created|sent)$")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")
_NUMBER: Final = re.compile(r"[0-9]{9,14}(?:\.[0-9]{1,9})?")
#: Numbers from the first to the second are seconds since 1970, from there to the third milliseconds: 1973 to 5138.
_SECONDS, _MILLISECONDS, _END = 10**8, 10**11, 10**14


def as_mapping(value: object) -> object:
    """Return a pydantic model, such as a LiteLLM message, as a mapping; other values unchanged."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        return value
    # Parsed answers hold objects of the caller's classes, of which pydantic warns.
    return dump(warnings=False) if hasattr(value, "__pydantic_serializer__") else dump()


def answer_in(value: object) -> list[object] | None:
    """Return the messages of a model's answer, or of a message; None for something else.

    The answer is one of OpenAI's chat or Responses API, of LiteLLM, Anthropic, Gemini, Bedrock or Ollama, also
    as mappings.
    """
    if field_of(value, "role") is not None or field_of(value, "type") is not None:
        return [value]
    choices, candidates, output = (field_of(value, name) for name in ("choices", "candidates", "output"))
    if isinstance(choices, list | tuple) and choices:
        message = field_of(choices[0], "message")
        return [{"role": "assistant", "content": field_of(choices[0], "text")} if message is None else message]
    if isinstance(candidates, list | tuple) and candidates:
        return [field_of(candidates[0], "content")]
    if isinstance(output, list | tuple):
        return [*output]
    message = field_of(output, "message") or field_of(value, "message")  # Bedrock's; Ollama's
    return None if field_of(message, "role") is None else [message]


def field_of(value: Any, name: str) -> Any:
    """Return a field of a mapping or an attribute of an object; None if there is none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_empty(record: object) -> bool:
    """Return whether a message says nothing and calls no tool, as some answers of models do.

    A message without any content is not empty: it may have it in an unknown format.
    """
    record = as_mapping(record)
    if not isinstance(record, Mapping) or not (
        record.keys() & {"content", *TEXT_KEYS} or record.get("type") in _SILENT
    ):
        return False
    try:
        contents = [part.get("content") for part in messages_in(record)]
        return all(one in (None, [], ()) or (isinstance(one, str) and is_blank(one)) for one in contents)
    except InputError:
        return False


def messages_in(record: object) -> list[Mapping[str, object]]:
    """Return a message with its content as text, and a second one for its tool calls or results if it has both.

    Raises:
        InputError: `record` is not an object, or a part of its content or a tool call is invalid.
    """
    record = as_mapping(record)
    if not isinstance(record, Mapping):
        raise InputError(f"a message must be an object, not {shown(record)}")
    record = _with_content(_with_role(record))
    content, role = record.get("content"), record.get("role")
    calls = [line for key in CALL_KEYS for line in _calls(key, record.get(key))]
    if isinstance(role, str) and role in _ROLES:
        record = {**record, "role": _ROLES[role]}
    if isinstance(content, list | tuple) and (content or calls):
        parts = [_typed(as_mapping(part)) for part in content]
        # LangChain repeats the calls of these parts as `tool_calls`.
        of_tools = _RESULTS if calls else _OF_TOOLS
        calls += [line for part in parts if _is(part, of_tools) for line in _tool_lines(part)]
        said = [part for part in parts if not _is(part, (*_OF_TOOLS, *_SILENT))]
        record = {**record, "content": "\n".join(map(_part, said))}
    if not calls:
        return [record]
    call = {**record, "role": "tool", "name": None, "content": "\n".join(calls)}
    text = record.get("content")
    if text is None or (isinstance(text, str) and is_blank(text)):
        return [call]
    return [record, {**call, "id": None}]


def readable(messages: Sequence[object]) -> Iterator[Mapping[str, object]]:
    """Yield each text or message as :func:`messages_in` returns it; skip those that it does not accept."""
    for message in messages:
        with suppress(InputError):
            yield from [{"content": message}] if isinstance(message, str) else messages_in(message)


def times_in(record: Mapping[str, object]) -> dict[str, datetime | None]:
    """Return the keys of a message that look like times, without ``timestamp``: the best first, those not read last.

    The value is the time of the message, if the key and its value are unambiguous: ISO 8601 with a zone, or seconds or
    milliseconds since 1970.
    """
    found: dict[str, datetime | None] = {}
    ranks: dict[str, int] = {}
    for key, value in record.items():
        if not isinstance(key, str) or key == "timestamp" or value in (None, ""):
            continue
        name = _CAMEL.sub("_", key).lower()
        plain = name.replace("_", "")
        at = _time_of(value) if plain in _TIMES else None
        if at is not None or _TIME_WORD.search(name):
            found[key], ranks[key] = at, len(_TIMES) if at is None else _TIMES.index(plain)
    return {key: found[key] for key in sorted(found, key=ranks.__getitem__)}


def _time_of(value: object) -> datetime | None:
    try:
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return None if value.tzinfo is None else value
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        number = float(value)
        if _SECONDS <= number < _END:
            return datetime.fromtimestamp(number if number < _MILLISECONDS else number / 1_000, UTC)
    except (ValueError, OverflowError):  # not a time, or out of range
        pass
    return None


def _with_role(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return a message with its role, if only its type or sender says it. An item of another type becomes context."""
    kind = record.get("type")
    if record.get("role") is not None:
        return record
    for name in (kind, record.get("from")):
        if isinstance(name, str) and name in _SENDERS:
            data = record.get("data")
            saved = {**data, "data": None} if isinstance(data, Mapping) else {}  # as LangChain stores messages
            return {**record, **saved, "role": _SENDERS[name]}
    if not _is_kind(kind) or any(isinstance(record.get(key), str) for key in ("content", "text", "value")):
        return record
    if kind in _SILENT:
        return {**record, "role": "assistant", "content": ""}
    if kind.endswith("_output"):
        return {**record, "role": "tool", "content": _text_of(record.get("output"))}
    is_call = kind.endswith("_call") and isinstance(record.get("name"), str)
    lines = _tool_lines(record) if is_call else [_item(kind, record)]
    return {**record, "role": "tool", "id": None, "name": None, "content": "\n".join(lines)}


def _with_content(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return a message with its text or its parts as `content`, if they are elsewhere."""
    content, parts = record.get("content"), record.get("parts")
    if isinstance(content, Mapping) and content:  # a single part, or an object with parts
        parts = content.get("parts") or [content]
        content = None
    if isinstance(parts, list | tuple) and parts:
        # Some clients repeat the text of the parts as the content.
        has_text = any(_kind_of(_typed(as_mapping(part))) in (None, "text") for part in parts)
        return {**record, "content": [*([content] if content and not has_text else []), *parts]}
    if content not in (None, "", [], ()):
        return record
    audio = as_mapping(record.get("audio"))
    spoken = (audio.get("transcript") or "[audio]") if isinstance(audio, Mapping) and audio else None
    texts = (*(record.get(key) for key in ("parts", "text", "value", "data", "refusal")), spoken)
    text = next((text for text in texts if text not in (None, "", [], ())), None)
    return record if text is None else {**record, "content": text}


def _is_kind(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_KIND


def _kind_of(part: object) -> object:
    return part.get("type") if isinstance(part, Mapping) else None


def _is(part: object, kinds: tuple[str, ...]) -> bool:
    kind = _kind_of(part)
    return isinstance(kind, str) and kind.endswith(kinds)


def _typed(part: object) -> object:
    """Return a part with its kind as type. Parts of Gemini and Bedrock have it as a key."""
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if isinstance(kind, str):
        if kind.startswith("tool-") and "toolCallId" in part and "toolName" not in part:  # Vercel's
            return {**part, "type": "tool_call", "name": kind.removeprefix("tool-")}
        nested = part.get("toolInvocation")
        return {**part, **(nested if isinstance(nested, Mapping) else {}), "type": kind.replace("-", "_")}
    if isinstance(part.get("text"), str):
        return {**part, "type": "thinking" if part.get("thought") else "text"}
    for key, value in part.items():
        if isinstance(key, str) and isinstance(as_mapping(value), Mapping):
            return {**as_mapping(value), "type": _CAMEL.sub("_", key).lower()}  # type: ignore[dict-item]  # checked above
    return part


def _tool_lines(part: object) -> list[str]:
    """Return a call of a tool, its result, or both."""
    assert isinstance(part, Mapping)  # noqa: S101  # nosec B101  # it has a kind
    is_result = _is(part, _RESULTS)
    lines = [] if is_result else _calls("content", [part])
    output = next((part[key] for key in _OUTPUTS if part.get(key) is not None), None)
    return [*lines, f"[tool result] {_text_of(output)}"] if is_result or output is not None else lines


def _item(kind: str, record: Mapping[str, object]) -> str:
    """Return an item of a kind that is not known, with its fields. Pictures and other long fields are left out."""
    fields = {key: value for key, value in record.items() if key not in _HANDLES and value not in (None, "", [], {})}
    texts = {key: value if len(_json(value)) <= _MAX_FIELD else "…" for key, value in fields.items()}
    return f"[{kind}] {_json(texts)}" if texts else f"[{kind}]"


def _text_of(value: object) -> str:
    """Return the output of a tool as text: a text, parts, or any JSON."""
    if isinstance(value, Mapping) and isinstance(kind := value.get("type"), str):
        if kind.startswith("computer_"):  # a picture of a screen
            return f"[{kind}]"
        value = value.get("value", value)  # Vercel's
    parts = [as_mapping(part) for part in value] if isinstance(value, list | tuple) else []
    if parts and all(isinstance(_kind_of(part), str) for part in parts):
        return "\n".join(map(_part, parts))
    return _json("" if value is None else value)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = _kind_of(part)
    if not isinstance(part, Mapping) or not _is_kind(kind):
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
        name = (called.get("name") or called.get("toolName")) if isinstance(called, Mapping) else None
        if not isinstance(called, Mapping) or not isinstance(name, str) or not name.strip():
            raise InputError(f"{key} contains {shown(call)}; expected a function with its name and arguments")
        given = next((called[key] for key in _ARGUMENTS if called.get(key) is not None), None)
        lines.append(f"[tool call] {name}({_json(given)})")
    return lines


def _json(value: object) -> str:
    """Return a text as it is, and other values as JSON."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError) as error:  # a circular or too deeply nested object
        raise InputError(f"arguments of a tool call cannot be written as JSON: {error}") from None

"""Letta: an agent file (``.af``) with its memory blocks and messages, and lists of blocks or passages of its API.

Sources: https://docs.letta.com/guides/core-concepts/agent-file and https://github.com/letta-ai/agent-file
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, ImportedMemory, each, items_of, spoken, talks_of, utc_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_LISTS: Final = ("agents", "blocks", "core_memory", "passages", "archival_memory")
_IDS: Final = ("block-", "passage-")


def _matches(file: ExportFile) -> bool:
    value = file.value
    if isinstance(value, dict) and not file.has_lines:
        agents = value.get("agents")
        is_many = isinstance(agents, list) and any(isinstance(one, dict) and "block_ids" in one for one in agents)
        return is_many or ("agent_type" in value and "core_memory" in value)
    return any(str(one.get("id")).startswith(_IDS) and ("value" in one or "text" in one) for one in file.sample)


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def items(where: str, key: str, one: dict[str, Any]) -> Iterator[Item]:
        if key == "agents":
            yield from _messages(one.get("messages") or [], str(one.get("name") or one["id"]), where, file, notes)
            return
        label, text = one.get("label"), str(one.get("value") or one.get("text") or "").strip()
        if not text or one.get("is_template"):
            notes.skip("empty blocks")
            return
        at = utc_of(one.get("updated_at")) or utc_of(one.get("created_at")) or notes.undated(file)
        # A block of the agent file has another id in each export.
        identity = str(label or one.get("id") or text)
        yield ImportedMemory(
            where, identity, f"{label}: {text}" if label else text, at, tags=tuple(one.get("tags") or ())
        )

    yield from items_of(file.objects(*_LISTS), items)
    if isinstance(file.value, dict) and "agent_type" in file.value:  # the first version: one agent
        messages = [record for _, _, record in file.objects("messages")]
        yield from _messages(messages, str(file.value.get("name") or file.path.stem), file.name, file, notes)


def _messages(messages: list[Any], agent: str, where: str, file: ExportFile, notes: Notes) -> Iterator[Item]:
    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        role, at = record["role"], utc_of(record.get("created_at"))
        content = record.get("content") or record.get("text")
        if role == "system":
            notes.skip("system texts")
            return None
        sent = [_sent(call) for call in record.get("tool_calls") or ()]
        if role == "assistant" and any(sent):  # what the agent says is an argument of a tool
            return spoken(role, "\n".join(filter(None, sent)), at, id=record.get("id"))
        if role == "user":
            content = _own(content)
            if not content:
                notes.skip("texts of the program")
                return None
        said = spoken(role, content, at, id=f"{record.get('created_at') or record.get('id')} {role}")
        return said | {"tool_calls": record.get("tool_calls") or None}

    places = ((f"{where}, message {number}", one) for number, one in enumerate(messages, start=1))
    yield from talks_of(each(places, message_in), where, agent, started_at=file.modified)


def _sent(call: dict[str, Any]) -> str | None:
    function = call.get("function") or {}
    if function.get("name") != "send_message":
        return None
    return str(json.loads(function["arguments"]).get("message") or "")


def _own(content: Any) -> Any:
    """Return what the user wrote: Letta wraps it in JSON, and sends events in the same way."""
    if isinstance(content, list):
        parts = [{**one, "text": _own(one["text"])} if isinstance(one.get("text"), str) else one for one in content]
        return [one for one in parts if one.get("text") != ""]
    try:
        wrapped = json.loads(content)
    except (TypeError, ValueError):
        return content
    if not isinstance(wrapped, dict) or "type" not in wrapped:
        return content
    return wrapped.get("message") or "" if wrapped["type"] == "user_message" else ""


LETTA = Format("letta", "Letta", _matches, read=_read)

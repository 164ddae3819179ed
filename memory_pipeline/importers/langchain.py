"""Messages of LangChain and LangGraph: ``messages_to_dict``, ``dumpd`` and ``dumps``, and chat histories in files.

Source: ``langchain_core/messages/utils.py`` and ``langchain_core/load/dump.py`` of
https://github.com/langchain-ai/langchain
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.identity import digest
from memory_pipeline.importers.reading import Format, each, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_ROLES: Final = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool", "developer": "system",
}  # fmt: skip
_LISTS: Final = ("messages", "history", "chat_history")


def _fields(one: Any) -> dict[str, Any] | None:
    """Return the fields of a message in any of the forms; None if it is none."""
    if not isinstance(one, dict):
        return None
    if one.get("lc") is not None and isinstance(one.get("kwargs"), dict) and one.get("id"):
        name = str(one["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return {"type": name, **one["kwargs"]}
    if isinstance(one.get("data"), dict) and str(one.get("type")).removesuffix("MessageChunk").lower() in _ROLES:
        return {**one["data"], "type": one["type"]}
    return None


def _lists(record: dict[str, Any]) -> list[Any]:
    """Return the messages of an object, such as a state of LangGraph, or of a prompt value."""
    inner = record.get("kwargs") if record.get("lc") is not None else record.get("values", record)
    return next((inner[key] for key in _LISTS if isinstance(inner, dict) and isinstance(inner.get(key), list)), [])


def _matches(file: ExportFile) -> bool:
    found = [one for record in file.sample for one in [record, *_lists(record)]]
    return any(_fields(one) is not None and _fields(one) != {} and _is_message(_fields(one)) for one in found)


def _is_message(fields: dict[str, Any] | None) -> bool:
    return fields is not None and "content" in fields


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    start = notes.undated(file)
    if any(_is_message(_fields(one)) for one in file.sample):
        first = [_fields(one) for one in file.sample[:2]]
        messages = each(numbered(file.records()), _message)
        yield from talks_of(messages, file.name, _identity(first), started_at=start)
        return
    for where, record in file.records():
        said = _lists(record) if isinstance(record, dict) else []
        thread = (record.get("config") or record).get("thread_id") if isinstance(record, dict) else None
        identity = str(thread or _identity([_fields(one) for one in said[:2]]))
        places = ((f"{where}, message {number}", one) for number, one in enumerate(said, start=1))
        yield from talks_of(each(numbered(places), _message), where, identity, started_at=start)


def numbered(records: Any) -> Iterator[tuple[str, Any]]:
    """Yield records with their numbers, which are the ids of messages without one."""
    for number, (where, record) in enumerate(records):
        yield where, {**record, "number": number} if isinstance(record, dict) else record


def _identity(first: list[Any]) -> str:
    return digest("talk", [str((one or {}).get("content")) for one in first])


def _message(record: dict[str, Any]) -> ChatMessage:
    fields = _fields(record)
    if fields is None:
        raise TypeError("it is no message of LangChain")
    kind = str(fields["type"]).removesuffix("MessageChunk").lower()
    meta = {**(fields.get("additional_kwargs") or {}), **(fields.get("response_metadata") or {})}
    times = (time_of(meta.get(key)) for key in ("timestamp", "created_at", "created"))
    return {
        "role": _ROLES.get(kind) or _ROLES.get(str(fields.get("role")), str(fields.get("role") or kind)),
        "content": fields.get("content"),
        "tool_calls": fields.get("tool_calls") or None,
        "timestamp": next((at for at in times if at), None),
        "id": fields.get("id") or f"{record['number']}",
        "name": fields.get("name"),
    }


LANGCHAIN = Format("langchain", "LangChain", _matches, read=_read)

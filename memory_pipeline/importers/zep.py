"""Zep and Graphiti: edges of the graph with their facts, nodes for the names, and messages of threads.

A file has ``{"nodes": [...], "edges": [...]}``, or edges alone with ``nodes.json`` beside it.

Source: https://help.getzep.com/v3/sdk-reference/graph/edge/get-edge and https://help.getzep.com/facts
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import (
    Format,
    ImportedMemory,
    ImportedRelation,
    each,
    items_of,
    spoken,
    talks_of,
    utc_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_LISTS: Final = ("edges", "facts")
_ROLES: Final = {"assistant": "assistant", "system": "system", "tool": "tool", "function": "tool"}


def _matches(file: ExportFile) -> bool:
    return any("source_node_uuid" in one and "fact" in one for one in file.inside(*_LISTS))


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    others = file.beside("nodes.json")
    nodes = [*file.objects("nodes"), *(others.objects("nodes") if others is not None else ())]
    names = {one["uuid"]: one.get("name") for _, _, one in nodes if isinstance(one, dict) and "labels" in one}

    def items(where: str, _key: str, one: dict[str, Any]) -> Iterator[Item]:
        if "fact" not in one:
            return
        since = utc_of(one.get("valid_at")) or utc_of(one.get("created_at")) or notes.undated(file)
        until = utc_of(one.get("invalid_at")) or utc_of(one.get("expired_at"))
        source, target = (names.get(one.get(f"{side}_node_uuid")) for side in ("source", "target"))
        if source and target:
            yield ImportedRelation(where, source, str(one["name"]), target, since, until)
        if until is None:
            yield ImportedMemory(where, str(one["uuid"]), one["fact"], utc_of(one.get("created_at")) or since)
        else:
            notes.skip("facts that have ended, as memories")

    yield from items_of(file.objects(*_LISTS), items)


def _is_thread(file: ExportFile) -> bool:
    return any("role_type" in one and "content" in one for one in file.inside("messages"))


def _read_thread(file: ExportFile, _notes: Notes) -> Iterator[Item]:
    def message_in(one: dict[str, Any]) -> ChatMessage:
        role, name = _ROLES.get(str(one["role_type"]), "user"), one.get("name") or one.get("role")
        at = utc_of(one.get("created_at"))
        return spoken(role, one["content"], at, id=one.get("uuid"), name=None if name == one["role_type"] else name)

    value = file.value if isinstance(file.value, dict) else {}
    identity = str(value.get("thread_id") or value.get("session_id") or value.get("uuid") or file.path.stem)
    messages = each(((where, record) for where, _, record in file.objects("messages")), message_in)
    yield from talks_of(messages, file.name, identity, started_at=file.modified)


ZEP = Format("zep", "Zep", _matches, read=_read, companions=("nodes.json",))
ZEP_THREAD = Format("zep-thread", "Zep threads", _is_thread, read=_read_thread)

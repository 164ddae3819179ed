"""Items of a store of LangGraph, in which LangMem keeps memories: ``namespace``, ``key`` and ``value``.

Source: https://langchain-ai.github.io/langmem/guides/extract_semantic_memories/
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, ImportedMemory, ImportedRelation, items_of, utc_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import Item, Notes

_LISTS: Final = ("items", "memories", "results")
_TEXTS: Final = ("content", "memory", "text")


def _matches(file: ExportFile) -> bool:
    return any(
        isinstance(one.get("namespace"), list) and "key" in one and isinstance(one.get("value"), dict)
        for one in file.inside(*_LISTS)
    )


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def items(where: str, _key: str, one: dict[str, Any]) -> Iterator[Item]:
        at = utc_of(one.get("updated_at")) or utc_of(one.get("created_at")) or notes.undated(file)
        namespace = "/".join(map(str, one["namespace"]))
        value = one["value"]
        content = value.get("content") if isinstance(value.get("content"), dict) else value
        if {"subject", "predicate", "object"} <= content.keys():
            yield ImportedRelation(where, content["subject"], content["predicate"], str(content["object"]), at)
            return
        text = next((content[name] for name in _TEXTS if isinstance(content.get(name), str)), None)
        yield ImportedMemory(where, f"{namespace}/{one['key']}", text or _described(content), at, tags=(namespace,))

    yield from items_of(file.objects(*_LISTS), items)


def _described(fields: dict[str, Any]) -> str:
    """Return the fields of a memory with a schema of its own as a text."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return "; ".join(f"{name}: {text}" for name, text in texts.items() if text not in ("", "null"))


LANGMEM = Format("langmem", "LangMem", _matches, read=_read)

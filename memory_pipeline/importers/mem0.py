"""Memories of mem0: what ``get_all`` and its exports return, ``{"results": [...]}``, with relations of its graph.

Source: https://docs.mem0.ai/cookbooks/essentials/exporting-memories
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, ImportedMemory, ImportedRelation, items_of, utc_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import Item, Notes

_LISTS: Final = ("results", "memories", "relations")
_OWN: Final = ("hash", "created_at", "user_id", "agent_id", "run_id", "metadata", "categories")


def _matches(file: ExportFile) -> bool:
    return any(
        isinstance(one.get("memory"), str) and any(key in one for key in _OWN)
        for one in file.inside("results", "memories")
    )


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def items(where: str, key: str, one: dict[str, Any]) -> Iterator[Item]:
        user_id = one.get("user_id") or None
        at = utc_of(one.get("updated_at")) or utc_of(one.get("created_at")) or notes.undated(file)
        if key == "relations":
            relation = one.get("relationship") or one["relation"]
            target = one.get("destination") or one.get("target")
            yield ImportedRelation(where, one["source"], relation, str(target), at, user_id=user_id)
            return
        tags = tuple(str(tag) for tag in one.get("categories") or ())
        yield ImportedMemory(where, str(one.get("id") or one["memory"]), one["memory"], at, tags=tags, user_id=user_id)

    yield from items_of(file.objects(*_LISTS), items)


MEM0 = Format("mem0", "mem0", _matches, read=_read)

"""Memories of Hindsight: what ``memories/list`` and ``recall`` return.

Source: https://hindsight.vectorize.io/developer/api/recall and https://hindsight.vectorize.io/api-reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, ImportedMemory, items_of, utc_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import Item, Notes

_LISTS: Final = ("items", "results", "memories", "memory_units")
#: Kinds of memories by the types of facts.
_KINDS: Final = {
    "world": "fact", "experience": "observation", "bank": "observation", "observation": "observation",
    "opinion": "reflection",
}  # fmt: skip
_TIMES: Final = ("mentioned_at", "occurred_start", "event_date", "date", "created_at")


def _kind(one: dict[str, Any]) -> Any:
    return one.get("fact_type") or one.get("type")


def _matches(file: ExportFile) -> bool:
    return any(
        isinstance(one.get("text"), str) and _kind(one) in _KINDS and any(key in one for key in (*_TIMES, "fact_type"))
        for one in file.inside(*_LISTS)
    )


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def items(where: str, _key: str, one: dict[str, Any]) -> Iterator[Item]:
        if one.get("state") == "invalidated":
            notes.skip("memories that were invalidated")
            return
        at = next((at for name in _TIMES if (at := utc_of(one.get(name)))), None) or notes.undated(file)
        tags = tuple(str(tag) for tag in one.get("tags") or ())
        yield ImportedMemory(where, str(one.get("id") or one["text"]), one["text"], at, _KINDS[_kind(one)], tags)

    yield from items_of(file.objects(*_LISTS), items)


HINDSIGHT = Format("hindsight", "Hindsight", _matches, read=_read)

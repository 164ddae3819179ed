"""The server "memory" of the Model Context Protocol: ``memory.jsonl`` with entities, observations and relations.

Source: https://github.com/modelcontextprotocol/servers/tree/main/src/memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.graph.triples import KIND
from memory_pipeline.domain.identity import digest
from memory_pipeline.importers.reading import Format, ImportedMemory, ImportedRelation, items_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import Item, Notes

_LISTS: Final = ("entities", "relations")


def _matches(file: ExportFile) -> bool:
    return any(
        {"entityType", "observations"} <= one.keys() or {"from", "to", "relationType"} <= one.keys()
        for one in file.inside(*_LISTS)
    )


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    at = notes.undated(file)

    def items(where: str, _key: str, one: dict[str, Any]) -> Iterator[Item]:
        if "relationType" in one:
            yield ImportedRelation(where, one["from"], one["relationType"], one["to"], at)
            return
        name = one["name"]
        yield ImportedRelation(where, name, KIND, one["entityType"], at)
        for observation in one["observations"]:
            text = str(observation)
            said = text if name.casefold() in text.casefold() else f"{name}: {text}"
            yield ImportedMemory(where, f"{name} {digest('observation', text)[:12]}", said, at, "observation")

    yield from items_of(file.objects(*_LISTS), items)


MCP_MEMORY = Format("mcp-memory", "MCP server memory", _matches, read=_read)

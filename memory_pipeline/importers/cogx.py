"""COGX, the exchange format of Cognee: a folder with a file of JSON Lines for each kind of record, version 0.

Source: https://github.com/topoteretes/cognee/blob/main/cognee/modules/migration/COGX.md and
https://docs.cognee.ai/core-concepts/further-concepts/cogx
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.graph.triples import KIND
from memory_pipeline.importers.reading import (
    Format,
    ImportedMemory,
    ImportedRelation,
    ImportedTalk,
    spoken,
    utc_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_KINDS: Final = ("document", "episode", "entity", "fact", "memory", "memory_block")
_ROLES: Final = {"assistant": "assistant", "tool": "tool", "function": "tool"}
#: Where the text of a memory is, by kind.
_TEXTS: Final = {"document": "content", "memory": "content", "memory_block": "value"}


def _matches(file: ExportFile) -> bool:
    return any(one.get("kind") in _KINDS and "external_id" in one and "external_system" in one for one in file.sample)


def _record(record: Mapping[str, Any], where: str, file: ExportFile, notes: Notes) -> Iterator[Item]:
    kind, identity, scope = record["kind"], str(record["external_id"]), record.get("scope") or {}
    created = utc_of(record.get("created_at")) or utc_of(record.get("updated_at"))
    user_id = scope.get("user_id")
    if kind == "episode":
        yield ImportedTalk(where, identity, list(_turns(record["turns"], notes)), created or notes.undated(file))
    elif kind == "fact":
        names = notes.once((file.path.parent, "cogx"), lambda: _names(file.beside("entities.jsonl")))
        ends = [names.get(str(record[f"{end}_ref"]), record[f"{end}_ref"]) for end in ("subject", "object")]
        since, until = (utc_of(record.get(name)) for name in ("valid_at", "invalid_at"))
        since = since or created or notes.undated(file)
        yield ImportedRelation(where, ends[0], record["predicate"], ends[1], since, until, user_id)
        if record.get("fact_text") and until is None:
            yield ImportedMemory(where, identity, record["fact_text"], created or since, user_id=user_id)
    elif kind == "entity":
        at, name = created or notes.undated(file), record["name"]
        if record.get("entity_type"):
            yield ImportedRelation(where, name, KIND, record["entity_type"], at, user_id=user_id)
        if text := record.get("description"):
            said = text if name.casefold() in text.casefold() else f"{name}: {text}"
            yield ImportedMemory(where, identity, said, at, "observation", user_id=user_id)
    elif kind in _TEXTS:
        tags = tuple(map(str, [*(record.get("categories") or ()), *filter(None, [record.get("label")])]))
        at = created or notes.undated(file)
        yield ImportedMemory(where, identity, record[_TEXTS[kind]], at, tags=tags, user_id=user_id)
    else:
        notes.skip("records of other kinds")


def _turns(turns: list[dict[str, Any]], notes: Notes) -> Iterator[ChatMessage]:
    for number, turn in enumerate(turns):
        if turn["role"] in ("system", "developer"):
            notes.skip("system texts")
            continue
        role = _ROLES.get(turn["role"], "user")
        yield spoken(role, turn["content"], utc_of(turn.get("occurred_at")), id=f"turn {number}")


def _names(entities: ExportFile | None) -> dict[str, str]:
    """Return the names of entities by their ids, by which facts may name them."""
    records = () if entities is None else entities.records()
    found = (one for _, one in records if not isinstance(one, Rejection) and isinstance(one, dict))
    return {str(one.get("external_id")): str(one.get("name")) for one in found}


COGX = Format("cogx", "Cognee's COGX", _matches, record=_record, companions=("manifest.json", "nodes.jsonl"))

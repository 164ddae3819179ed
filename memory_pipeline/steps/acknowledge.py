"""The journal's last step: a file is deleted once all of its messages can be found in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES, owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import Contents, JournalFile


def acknowledge(lake: Lake, contents: Mapping[JournalFile, Contents]) -> int:
    """Acknowledge those of the files, which have landed, that memory holds in full; return how many.

    A message counts as held if it is a row of ``messages`` and, where it is memorable, a fact rests on it; an edit if
    it is among the operations of the graph, and what was done to a durable memory if it is among its events. The caller
    has indexed the facts, and folded the rest. Lines that cannot be read were set aside when their file landed. A file
    that came later has not landed, and waits for the next run.
    """
    if not contents:
        return 0
    keys = {file.hour.key for file in contents}
    landed = set(lake.tables.read(MESSAGES, keys, columns=["id"])["id"].to_pylist())
    sources = lake.tables.read(FACTS, keys, columns=["message_ids"])["message_ids"]
    remembered = {identifier for ids in sources.to_pylist() for identifier in ids}
    editors = {owner_of(file.scope) for file, held in contents.items() if held.edits}
    edits = lake.tables.read(GRAPH_OPERATIONS, editors, columns=["evidence_id"]) if editors else None
    folded = set() if edits is None else set(edits["evidence_id"].to_pylist())
    keepers = {owner_of(file.scope) for file, held in contents.items() if held.events}
    events = lake.tables.read(MEMORY_EVENTS, keepers, columns=["id"]) if keepers else None
    folded |= set() if events is None else set(events["id"].to_pylist())
    held = [
        file
        for file, held in contents.items()
        if folded.issuperset([*(edit.id for edit in held.edits), *(event.id for event in held.events)])
        and all(
            message.id in landed and (message.id in remembered or not message.role.is_memorable)
            for message in held.messages
        )
    ]
    lake.journal.acknowledge(held)
    return len(held)

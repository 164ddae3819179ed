"""The journal's last step: an hour of a file is acknowledged once all its messages can be found in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import Contents, JournalFile
    from memory_pipeline.steps.shares import Share


class Held(NamedTuple):
    """What a file holds of some hours that memory is to hold, by ids.

    Attributes:
        messages: all of them.
        memorable: those on which a fact is to rest.
        edits: of the graph.
        events: of durable memories.
    """

    messages: tuple[str, ...]
    memorable: tuple[str, ...]
    edits: tuple[str, ...]
    events: tuple[str, ...]

    @classmethod
    def of(cls, contents: Contents) -> Self:
        """Return the ids of what stands in a file."""
        return cls(
            tuple(message.id for message in contents.messages),
            tuple(message.id for message in contents.messages if message.role.is_memorable),
            tuple(edit.id for edit in contents.edits),
            tuple(event.id for event in contents.events),
        )


def acknowledge(
    lake: Lake, files: Mapping[JournalFile, Held], hours: Collection[Period], share: Share = EVERYBODY
) -> None:
    """Acknowledge hours of files, which have landed, where memory holds all that a file has of them.

    A message counts as held if it is a row of ``messages`` and, where it is memorable, a fact rests on it; an edit if
    it is among the operations of the graph, and what was done to a durable memory if it is among its events. The caller
    has indexed the facts, and folded the rest. Lines that cannot be read were set aside when their file landed. A file
    that came later has not landed, and waits for the next run.

    Args:
        lake: where.
        files: what they hold of the hours; those of others than the share's agents are left alone.
        hours: those that were made.
        share: whose.
    """
    own = {file: held for file, held in files.items() if file.scope in share}
    if not own:
        return
    keys = {hour.key for hour in {hour for file in own for hour in file.pending_hours}.intersection(hours)}
    landed = set(lake.tables.read(MESSAGES, keys, columns=["id"], where=share.where)["id"].to_pylist())
    sources = lake.tables.read(FACTS, keys, columns=["message_ids"], where=share.where)["message_ids"]
    remembered = {identifier for ids in sources.to_pylist() for identifier in ids}
    editors = {owner_of(file.scope) for file, held in own.items() if held.edits}
    edits = lake.tables.read(GRAPH_OPERATIONS, editors, columns=["evidence_id"]) if editors else None
    folded = set() if edits is None else set(edits["evidence_id"].to_pylist())
    keepers = {owner_of(file.scope) for file, held in own.items() if held.events}
    events = lake.tables.read(MEMORY_EVENTS, keepers, columns=["id"]) if keepers else None
    folded |= set() if events is None else set(events["id"].to_pylist())
    done = [
        file
        for file, held in own.items()
        if folded.issuperset([*held.edits, *held.events])
        and landed.issuperset(held.messages)
        and remembered.issuperset(held.memorable)
    ]
    lake.journal.acknowledge(done, hours)

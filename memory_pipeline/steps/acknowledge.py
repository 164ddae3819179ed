"""The journal's last step: a file is deleted once all of its messages can be found in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.lake.schemas import FACTS, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile


def acknowledge(lake: Lake, files: Sequence[JournalFile]) -> int:
    """Acknowledge those of `files`, which have landed, that memory holds in full; return how many.

    A message counts as held if it is a row of ``messages`` and, where it is memorable, a fact rests on it; the caller
    has indexed the facts. Lines that cannot be read were set aside when their file landed. A file that came later has
    not landed, and waits for the next run.
    """
    if not files:
        return 0
    keys = {file.hour.key for file in files}
    landed = set(lake.tables.read(MESSAGES, keys, columns=["id"])["id"].to_pylist())
    sources = lake.tables.read(FACTS, keys, columns=["message_ids"])["message_ids"]
    remembered = {identifier for ids in sources.to_pylist() for identifier in ids}
    held = [
        file
        for file in files
        if all(
            message.id in landed and (message.id in remembered or not message.role.is_memorable)
            for message in lake.journal.read(file)[0]
        )
    ]
    lake.journal.acknowledge(held)
    return len(held)

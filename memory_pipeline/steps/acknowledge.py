"""The journal's last step: a file is deleted once all of its messages can be found in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.lake.schemas import FACTS, MESSAGES

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake


def acknowledge(lake: Lake, hours: list[Period]) -> int:
    """Acknowledge the pending files of `hours` that memory holds in full; return how many.

    A message counts as held if it is a row of ``messages`` and, where it is memorable, a fact rests on it; the caller
    has indexed the facts. A file that came while the hour was being made is held only in part and stays. Lines that
    cannot be read were set aside when the hour landed.
    """
    wanted = set(hours)
    files = [file for file in lake.journal.pending() if file.hour in wanted]
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

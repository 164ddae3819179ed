"""Journal files to what of them may become memory: not what was forgotten, nor what came when its day had expired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import Kept
from memory_pipeline.domain.unread import is_forgotten
from memory_pipeline.lake.journal import Contents
from memory_pipeline.lake.tables.tombstones import Marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memory_pipeline.domain.conversations import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile


_Record = TypeVar("_Record", bound="Message | Edit | MemoryEvent")


@dataclass(frozen=True, slots=True)
class Admitted:
    """What pending files hold that may become memory.

    Attributes:
        contents: of each file; of one that holds nothing else, nothing.
        expired: messages and edits of each hour that came too late: their agent's day has expired. What is done to
            durable memories never does.
        forgotten: those that were forgotten before they were taken.
    """

    contents: dict[JournalFile, Contents]
    expired: Counter[Period]
    forgotten: Counter[Period]


def admit(lake: Lake, hours: Collection[Period], files: Iterable[JournalFile] | None = None) -> Admitted:
    """Read what pending files, or `files` alone, hold of `hours`, and leave out what memory is not to take.

    A message whose hour has expired is taken as long as its day has not: the day is made again with it. Later it could
    not become memory any more, so it is dropped, and counted.
    """
    wanted = set(hours)
    contents = {
        file: lake.journal.read(file, own)
        for file in (lake.journal.pending() if files is None else files)
        if (own := wanted.intersection(file.pending_hours))
    }
    marks, forgotten = Marks.of(lake.tables), lake.tombstones.forgotten()
    admitted = Admitted({}, Counter(), Counter())

    def taken_of(records: Iterable[_Record]) -> list[_Record]:
        found = []
        for record in records:
            taken = forgotten.taken(record)
            if taken is None:
                admitted.forgotten[record.hour] += 1
            elif _has_expired(lake, marks, taken):
                admitted.expired[record.hour] += 1
            else:
                found.append(taken)
        return found

    for file, held in contents.items():
        begins = lake.calendar.bounds(file.hours[0])[0]
        owner = {"workspace_id": file.scope.workspace_id, "agent_id": file.scope.agent_id}
        rejected = [
            one
            for one in held.rejected
            if not forgotten.reaches(file.scope, begins, texts=[str(one.record)])
            and not is_forgotten(forgotten, one.record, owner, begins)
        ]
        admitted.contents[file] = (
            Contents(
                taken_of(held.messages),
                taken_of(held.edits),
                rejected,
                taken_of(held.events),
            )
            if marks or forgotten
            else held
        )
    return admitted


def _has_expired(lake: Lake, marks: Marks, record: Message | Edit | MemoryEvent) -> bool:
    if not marks or isinstance(record, MemoryEvent):
        return False
    if isinstance(record, Edit):
        return record.hour.key <= (marks.through(record.scope, Kept.GRAPH) or "")
    day = lake.calendar.ancestor(record.hour, Grain.DAILY)
    # What is said may be kept for longer than its day: then it is an archive.
    own = marks.through(record.scope, Kept.CONVERSATIONS)
    return day.key <= (marks.through(record.scope, Kept.DAILY) or "") and record.hour.key <= (own or "")

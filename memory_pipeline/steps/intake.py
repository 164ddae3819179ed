"""What the journal has for hours, share by share: of one share it stays in memory, of several their ids alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.steps.acknowledge import Held
from memory_pipeline.steps.admit import admit
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile
    from memory_pipeline.steps.admit import Admitted
    from memory_pipeline.steps.shares import Share


class Intake:
    """Reads the pending files of hours, and knows what of them is to be found before they are acknowledged.

    Attributes:
        held: of each file that was read, the ids of what memory is to take.

    Args:
        lake: where.
        hours: which.
        shares: in which the messages land.
    """

    def __init__(self, lake: Lake, hours: Collection[Period], shares: Sequence[Share]) -> None:
        self._lake = lake
        self._hours = set(hours)
        self.held: dict[JournalFile, Held] = {}
        self._whole: Admitted | None = None
        self._files: list[JournalFile] = []
        if len(shares) == 1:
            self._whole = self._read(None)
        else:
            self._files = [file for file in lake.journal.pending() if not self._hours.isdisjoint(file.pending_hours)]

    def of(self, share: Share) -> Admitted:
        """Return what has come of a share's agents, to land it."""
        if self._whole is not None:
            return self._whole
        return self._read([file for file in self._files if file.scope in share])

    def done_by(self, share: Share) -> tuple[list[Edit], list[MemoryEvent]]:
        """Return what the agents of a share did themselves, once all has landed.

        A file that another run has acknowledged meanwhile holds nothing: that run has folded it.
        """
        admitted = self._whole
        if admitted is None:
            files = [file for file, held in self.held.items() if file.scope in share and (held.edits or held.events)]
            admitted = admit(self._lake, self._hours, files)
        own = [contents for file, contents in admitted.contents.items() if share is EVERYBODY or file.scope in share]
        return [edit for held in own for edit in held.edits], [event for held in own for event in held.events]

    def _read(self, files: Iterable[JournalFile] | None) -> Admitted:
        admitted = admit(self._lake, self._hours, files)
        self.held |= {file: Held.of(contents) for file, contents in admitted.contents.items()}
        return admitted

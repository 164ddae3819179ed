"""Pending journal entries of one agent, extracted by rules: written, but not yet processed by the pipeline."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.models.deterministic import DeterministicExtractor

if TYPE_CHECKING:
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile


@dataclass(frozen=True, slots=True)
class PendingFile:
    """Contents of one journal file: facts of its messages, edits of the graph, and events of durable memories."""

    facts: tuple[Fact, ...]
    edits: tuple[Edit, ...]
    events: tuple[MemoryEvent, ...] = ()

    @property
    def operations(self) -> list[Operation]:
        """All changes of the graph that the file contains."""
        extracted = [operation for fact in self.facts for operation in fact.placed_operations]
        return [*extracted, *(operation for edit in self.edits for operation in edit.operations)]


class PendingJournal:
    """Reads an agent's pending files. Each is extracted once, and again when some of its hours are acknowledged.

    No model is called. Safe to use from several threads.
    """

    def __init__(self, lake: Lake, scope: Scope) -> None:
        self._lake = lake
        self._scope = scope
        self._extractor = DeterministicExtractor(lake.calendar.timezone)
        self._files: dict[str, PendingFile] = {}
        self._lock = threading.Lock()

    def files(self) -> dict[str, PendingFile]:
        """Return the pending contents of each file, by a name that changes when more of the file is acknowledged.

        They are empty if nothing in the file is memorable, or if it was acknowledged after it was listed.
        """
        files = self._lake.journal.pending(self._scope)
        with self._lock:
            current = {}
            new = [file for file in files if _name(file) not in self._files]
            forgotten = self._lake.tombstones.forgotten() if new else None
            for file in files:
                found = self._files.get(_name(file))
                if found is None and forgotten is not None:
                    contents = self._lake.journal.read(file, file.pending_hours)
                    facts = self._extractor.facts_of(forgotten.filter(contents.messages))
                    found = PendingFile(
                        tuple(facts),
                        tuple(forgotten.filter(contents.edits)),
                        tuple(forgotten.filter(contents.events)),
                    )
                if found is not None:
                    current[_name(file)] = found
            self._files = current
            return dict(current)


def _name(file: JournalFile) -> str:
    return f"{file.path} {len(file.pending_hours)}"

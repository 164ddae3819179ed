"""Pending journal entries of a scope: what the rules find in its files, before the pipeline has processed them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from memory_pipeline.domain.corrections import Corrections
from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.corrections import paths_among
from memory_pipeline.overlay.reads import found_once, journal_entries, look_again
from memory_pipeline.overlay.segments import stored_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.messages import TextEdit
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import Contents, JournalFile

_File = TypeVar("_File")
_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class PendingFile:
    """Contents of one journal file: facts of its messages, edits of the graph, and events of durable memories.

    The facts of a segment are `rows` of the ``facts`` table, in place of `facts`: most readers need few of them, so
    they are not decoded. `texts` are the later texts of messages, by their ids: what was derived from earlier texts no
    longer counts.
    """

    facts: tuple[Fact, ...]
    edits: tuple[Edit, ...] = ()
    events: tuple[MemoryEvent, ...] = ()
    texts: Mapping[str, TextEdit] = field(default_factory=dict)
    rows: pa.Table | None = None

    @property
    def durable_facts(self) -> tuple[Fact, ...]:
        """The facts that become durable memories; without a segment, all facts."""
        if self.rows is None:
            return self.facts
        from memory_pipeline.lake.codec.facts import rows_to_facts

        return tuple(rows_to_facts(self.rows.filter(self.rows["durable"].is_valid())))

    @property
    def operations(self) -> list[Operation]:
        """All changes of the graph that the file contains."""
        facts: Sequence[Fact] = self.facts
        if self.rows is not None:
            import pyarrow.compute as pc

            from memory_pipeline.lake.codec.facts import rows_to_facts

            counts = pc.fill_null(pc.list_value_length(self.rows["operations"]), 0)
            facts = rows_to_facts(self.rows.filter(pc.greater(counts, 0)))
        extracted = [operation for fact in facts for operation in fact.placed_operations]
        return [*extracted, *(operation for edit in self.edits for operation in edit.operations)]

    def without(self, messages: frozenset[str]) -> PendingFile:
        """Return the file without the facts that cite one of the messages; itself if there are none."""
        if self.rows is not None:
            import pyarrow as pa
            import pyarrow.compute as pc

            cited = self.rows["message_ids"].combine_chunks()
            is_cited = pc.is_in(cited.flatten(), pa.array(sorted(messages), pa.string()))
            places = pc.unique(pc.list_parent_indices(cited).filter(is_cited))
            if not len(places):
                return self
            every = pa.array(range(self.rows.num_rows), places.type)
            return replace(self, rows=self.rows.filter(pc.invert(pc.is_in(every, places))))
        facts = tuple(fact for fact in self.facts if messages.isdisjoint(fact.message_ids))
        return self if len(facts) == len(self.facts) else replace(self, facts=facts)


class ByFile(Generic[_File, _Record]):
    """Records of pending files, by the files' names; each is made once. Safe to use from several threads."""

    def __init__(self, make: Callable[[Sequence[_File]], Sequence[_Record]]) -> None:
        self._make = make
        self._known: dict[str, _Record] = {}
        self._lock = threading.Lock()

    def of(self, files: Mapping[str, _File]) -> dict[str, _Record]:
        """Return the record of each file; those of other files are forgotten."""
        with self._lock:
            new = [name for name in files if name not in self._known]
            made = self._make([files[name] for name in new]) if new else ()
            known = self._known | dict(zip(new, made, strict=True))
            self._known = {name: known[name] for name in files}
            return self._known


class PendingJournal:
    """Reads an agent's pending files. Each is extracted once, and again when some of its hours are acknowledged.

    No model is called. Safe to use from several threads.
    """

    def __init__(self, lake: Lake, scope: Scope) -> None:
        self._lake = lake
        self._scope = scope
        self._files = ByFile(self._extracted)
        self._gone: set[str] = set()
        self._corrections, self._is_corrected = Corrections(), False

    def files(self) -> Mapping[str, PendingFile]:
        """Return the pending contents of each file, by a name that changes when more of the file is acknowledged.

        They are empty if nothing in the file is memorable, or if it was acknowledged after it was listed.
        """
        return found_once(self, self._newest)

    def _newest(self) -> Mapping[str, PendingFile]:
        before: set[str] | None = None
        while True:
            entries = journal_entries(self._lake, self._scope)
            listed = self._lake.journal.pending(self._scope, entries)
            self._corrections = self._lake.corrections.in_force(entries)
            self._is_corrected = bool(paths_among(entries))
            corrected = f" {digest(paths_among(entries))}" if self._is_corrected else ""
            files = {f"{file.path} {len(file.pending_hours)}{corrected}": file for file in listed}
            found = self._files.of(files)
            self._gone.intersection_update(file.path for file in listed)
            if not self._gone or files.keys() == before:
                return _without_earlier_texts(found)
            # Entries of a file that is gone since it was listed are stored, or in a segment that was not listed.
            before = {*files}
            look_again((self._lake, self._scope.key))

    def _extracted(self, files: Sequence[JournalFile]) -> list[PendingFile]:
        forgotten = self._lake.tombstones.forgotten()
        is_erased = self._scope.workspace_id in forgotten.workspaces
        found = []
        for file in files:
            rows = stored_facts(self._lake, file)
            if rows is not None and not is_erased and not self._is_corrected:
                found.append(PendingFile((), rows=rows))
                continue
            contents = self._contents(file)
            messages = forgotten.filter(contents.messages)
            pending = PendingFile(
                (),
                tuple(forgotten.filter(contents.edits)),
                tuple(forgotten.filter(contents.events)),
                {message.id: message.edits[-1] for message in messages if message.edits},
            )
            if rows is not None and not self._is_corrected:
                gone = frozenset(one.id for one in contents.messages) - {one.id for one in messages}
                found.append(replace(pending, rows=rows).without(gone))
                continue
            # Imported late: the rules compile many patterns.
            from memory_pipeline.models.deterministic.extraction import DeterministicExtractor

            extractor = DeterministicExtractor(self._lake.calendar.timezone)
            evidence = self._lake.as_evidence(messages, self._corrections)
            found.append(replace(pending, facts=tuple(extractor.facts_of(evidence))))
        return found

    def _contents(self, file: JournalFile) -> Contents:
        contents = self._lake.journal.read(file, file.pending_hours)
        is_empty = not any((contents.messages, contents.edits, contents.events, contents.rejected))
        if is_empty and not self._lake.storage.is_there(file.path):
            self._gone.add(file.path)
        return contents


def _without_earlier_texts(files: Mapping[str, PendingFile]) -> Mapping[str, PendingFile]:
    """Leave out the facts of texts that a later one in another file replaces. The name of a changed file changes."""
    latest: dict[str, TextEdit] = {}
    for file in files.values():
        for message_id, text in file.texts.items():
            known = latest.get(message_id, text)
            latest[message_id] = max(known, text, key=lambda one: (one.received_at, one.content))
    if not latest:
        return files
    found: dict[str, PendingFile] = {}
    for name, file in files.items():
        replaced = frozenset(one for one, text in latest.items() if file.texts.get(one) != text)
        changed = file.without(replaced)
        found[name if changed is file else f"{name} {digest(sorted(replaced))}"] = changed
    return found

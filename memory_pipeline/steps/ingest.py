"""Load messages from the journal into the lake: filter, deduplicate, write, and acknowledge the files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memory_pipeline.domain.conversations import Message, Rejection, same_id_other_content
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.unread import is_forgotten
from memory_pipeline.lake.codec.facts import message_digest, messages_to_rows, rows_to_messages
from memory_pipeline.lake.journal import Contents
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.results import PartitionResult, RowDigests, together
from memory_pipeline.steps.shares import EVERYBODY, WHOLE, replace_in_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Self

    import pyarrow as pa

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile
    from memory_pipeline.steps.shares import Share


class JournalFileIds(NamedTuple):
    """The ids of a journal file's entries, in the hours of a run and without filtered ones.

    Attributes:
        messages: all messages.
        memorable: messages that must get a fact.
        edits: of the graph.
        events: of durable memories.
    """

    messages: tuple[str, ...]
    memorable: tuple[str, ...]
    edits: tuple[str, ...]
    events: tuple[str, ...]

    @classmethod
    def of(cls, contents: Contents) -> Self:
        """Return the ids of filtered contents."""
        return cls(
            tuple(message.id for message in contents.messages),
            tuple(message.id for message in contents.messages if message.role.is_memorable),
            tuple(edit.id for edit in contents.edits),
            tuple(event.id for event in contents.events),
        )


def acknowledge(
    lake: Lake, files: Mapping[JournalFile, JournalFileIds], hours: Collection[Period], share: Share = EVERYBODY
) -> None:
    """Acknowledge hours of loaded journal files that are completely stored. Ignore files of agents outside `share`.

    A message is stored if it is a row of ``messages`` and, if memorable, a fact cites it. An edit is stored if it is
    among the graph's operations, and a memory event if it is in ``memory_events``. Call this after indexing the facts
    and folding edits and events. Unreadable lines were set aside when their file was loaded. Files that arrived later
    wait for the next run.
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


_Record = TypeVar("_Record", bound="Message | Edit | MemoryEvent")


@dataclass(frozen=True, slots=True)
class FilteredJournal:
    """The entries of pending files that may become memory.

    Attributes:
        contents: by file; empty for a file without such entries.
        expired: number of messages and edits per hour that came after their agent's day had expired. Memory events do
            not expire.
        forgotten: number of entries per hour that were forgotten before they were loaded.
    """

    contents: dict[JournalFile, Contents]
    expired: Counter[Period]
    forgotten: Counter[Period]


def filter_journal(
    lake: Lake, hours: Collection[Period], files: Iterable[JournalFile] | None = None
) -> FilteredJournal:
    """Read `hours` of pending files, or of `files` only, without forgotten and expired entries.

    A message of an expired hour is accepted until its day expires, since the day is recomputed with it. Later messages
    are dropped and counted.
    """
    wanted = set(hours)
    contents = {
        file: lake.journal.read(file, own)
        for file in (lake.journal.pending() if files is None else files)
        if (own := wanted.intersection(file.pending_hours))
    }
    marks, forgotten = ExpirationMarks.of(lake.tables), lake.tombstones.forgotten()
    filtered = FilteredJournal({}, Counter(), Counter())

    def taken_of(records: Iterable[_Record]) -> list[_Record]:
        found = []
        for record in records:
            taken = forgotten.taken(record)
            if taken is None:
                filtered.forgotten[record.hour] += 1
            elif _has_expired(lake, marks, taken):
                filtered.expired[record.hour] += 1
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
        filtered.contents[file] = (
            Contents(
                taken_of(held.messages),
                taken_of(held.edits),
                rejected,
                taken_of(held.events),
            )
            if marks or forgotten
            else held
        )
    return filtered


def _has_expired(lake: Lake, marks: ExpirationMarks, record: Message | Edit | MemoryEvent) -> bool:
    if not marks or isinstance(record, MemoryEvent):
        return False
    if isinstance(record, Edit):
        return record.hour.key <= (marks.through(record.scope, RetentionClass.GRAPH) or "")
    day = lake.calendar.ancestor(record.hour, Grain.DAILY)
    # Messages may be configured to outlive their daily summary. Then they are accepted as an archive.
    own = marks.through(record.scope, RetentionClass.CONVERSATIONS)
    return day.key <= (marks.through(record.scope, RetentionClass.DAILY) or "") and record.hour.key <= (own or "")


def load_messages(
    lake: Lake, hours: list[Period], filtered: Callable[[Share], FilteredJournal], shares: Sequence[Share] = WHOLE
) -> list[PartitionResult]:
    """Load the messages of journal files into the ``messages`` partitions of `hours`. Return one result per hour.

    Existing messages are not duplicated. If several have one id, the one received first is kept, whatever the order of
    loading; different content under the same id is set aside with its reason. Forgotten messages are removed. Nothing
    is acknowledged here.
    """
    made: dict[Share, list[PartitionResult]] = {}

    def merged(share: Share, old: pa.Table) -> pa.Table:
        incoming: list[Message] = []
        taken = filtered(share)
        for held in taken.contents.values():
            lake.journal.set_aside(held.rejected)
            incoming += held.messages
        kept, contradictions = _merge([*lake.tombstones.forgotten().filter(rows_to_messages(old)), *incoming])
        # Set aside before the commit, which may drop the row of one of them. Repeating it is harmless.
        lake.journal.set_aside(contradictions)
        rows = messages_to_rows(kept)
        made[share] = _made(hours, rows, taken)
        return rows

    changed = replace_in_shares(lake, MESSAGES, [hour.key for hour in hours], shares, merged)
    sizes = lake.tables.sizes(MESSAGES)
    return [
        replace(whole, changed=whole.period.key in changed, bytes=sizes.get(whole.period.key, 0))
        for whole in together([made[share] for share in shares])
    ]


def _made(hours: list[Period], rows: pa.Table, filtered: FilteredJournal) -> list[PartitionResult]:
    by_hour: dict[Period, list[Message]] = {hour: [] for hour in hours}
    for message in rows_to_messages(rows):
        by_hour[message.hour].append(message)
    return [
        PartitionResult(
            asset=MESSAGES_ASSET,
            period=hour,
            input_digest="",
            output_digest=outputs.combined,
            rows=len(messages),
            agents=len({message.scope for message in messages}),
            messages=len(messages),
            expired=filtered.expired[hour],
            forgotten=filtered.forgotten[hour],
            outputs=outputs,
        )
        for hour, messages in by_hour.items()
        for outputs in [RowDigests(map(message_digest, messages))]
    ]


def _merge(messages: Sequence[Message]) -> tuple[list[Message], list[Rejection]]:
    """Keep one message per id. Return the others with different content as rejections."""
    kept: dict[str, Message] = {}
    contradictions = []
    for message in sorted(messages, key=lambda m: (m.received_at, m.turn, json.dumps(m.to_record(), sort_keys=True))):
        first = kept.setdefault(message.id, message)
        if not first.says_the_same_as(message):
            where = f"conversation {message.conversation_id}"
            contradictions.append(Rejection(same_id_other_content(message, first), where, message.to_record()))
    return list(kept.values()), contradictions


class JournalBatch:
    """The pending journal files of some hours, read share by share.

    With one share the contents stay in memory, with several only their ids.

    Attributes:
        held: by file that was read, the ids that must be stored before it is acknowledged.
    """

    def __init__(self, lake: Lake, hours: Collection[Period], shares: Sequence[Share]) -> None:
        self._lake = lake
        self._hours = set(hours)
        self.held: dict[JournalFile, JournalFileIds] = {}
        self._whole: FilteredJournal | None = None
        self._files: list[JournalFile] = []
        if len(shares) == 1:
            self._whole = self._read(None)
        else:
            self._files = [file for file in lake.journal.pending() if not self._hours.isdisjoint(file.pending_hours)]

    def of(self, share: Share) -> FilteredJournal:
        """Return the entries of a share's agents."""
        if self._whole is not None:
            return self._whole
        return self._read([file for file in self._files if file.scope in share])

    def done_by(self, share: Share) -> tuple[list[Edit], list[MemoryEvent]]:
        """Return the edits and memory events of a share's agents, after all messages are loaded.

        A file that a concurrent run has acknowledged returns nothing: that run has folded it.
        """
        filtered = self._whole
        if filtered is None:
            files = [file for file, held in self.held.items() if file.scope in share and (held.edits or held.events)]
            filtered = filter_journal(self._lake, self._hours, files)
        own = [contents for file, contents in filtered.contents.items() if share is EVERYBODY or file.scope in share]
        return [edit for held in own for edit in held.edits], [event for held in own for event in held.events]

    def _read(self, files: Iterable[JournalFile] | None) -> FilteredJournal:
        filtered = filter_journal(self._lake, self._hours, files)
        self.held |= {file: JournalFileIds.of(contents) for file, contents in filtered.contents.items()}
        return filtered

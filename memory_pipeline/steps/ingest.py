"""Load messages from the journal into the lake: filter, deduplicate, write, and acknowledge the files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from memory_pipeline.domain.capture import Capture, Talk
from memory_pipeline.domain.conversations import Rejection, same_id_other_content
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import with_edits
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.unread import is_forgotten
from memory_pipeline.lake.codec.facts import message_digest, messages_to_rows, rows_to_messages
from memory_pipeline.lake.journal import Contents
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.results import NO_ROWS, PartitionResult, RowDigests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Self

    import pyarrow as pa

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile
    from memory_pipeline.lake.schema_types import TableSpec


class JournalFileIds(NamedTuple):
    """The ids of a journal file's accepted entries, in the hours of a run. `memorable` messages must get a fact."""

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
    lake: Lake,
    files: Mapping[JournalFile, JournalFileIds],
    hours: Collection[Period],
    shard: int | None = None,
) -> None:
    """Acknowledge hours of loaded journal files that are completely stored. With `shard`, all files are of its scopes.

    A message is stored if it is in ``messages`` and, if memorable, a fact cites it. Edits must be graph operations, and
    memory events must be in ``memory_events``. Call this after indexing the facts and folding edits and events.
    """
    if not files:
        return
    keys = {hour.key for hour in {hour for file in files for hour in file.pending_hours}.intersection(hours)}

    def column(spec: TableSpec, name: str) -> list[Any]:
        values: list[Any] = lake.tables.read(spec, keys, columns=[name], shard=shard)[name].to_pylist()
        return values

    stored = set(column(MESSAGES, "id"))
    cited = {message_id for message_ids in column(FACTS, "message_ids") for message_id in message_ids}
    folded = set(column(GRAPH_OPERATIONS, "evidence_id")) if any(ids.edits for ids in files.values()) else set()
    folded |= set(column(MEMORY_EVENTS, "id")) if any(ids.events for ids in files.values()) else set()
    done = [
        file
        for file, ids in files.items()
        if folded.issuperset([*ids.edits, *ids.events])
        and stored.issuperset(ids.messages)
        and cited.issuperset(ids.memorable)
    ]
    lake.journal.acknowledge(done, hours)


_Record = TypeVar("_Record", bound="Message | Edit | MemoryEvent")


@dataclass(frozen=True, slots=True)
class FilteredJournal:
    """The accepted entries of pending files, and the number of dropped ones per hour.

    Attributes:
        contents: by file; empty for a file without accepted entries.
        expired: messages that arrived after all summaries of their time had expired, and edits of expired operations.
            Memory events never expire.
        forgotten: entries that were forgotten before they were loaded.
        not_captured: messages of conversations that the configuration no longer captures in full.
    """

    contents: dict[JournalFile, Contents]
    expired: Counter[Period]
    forgotten: Counter[Period]
    not_captured: Counter[Period] = field(default_factory=Counter)

    @property
    def edits(self) -> list[Edit]:
        """The edits of all files."""
        return [edit for each in self.contents.values() for edit in each.edits]

    @property
    def events(self) -> list[MemoryEvent]:
        """The memory events of all files."""
        return [event for each in self.contents.values() for event in each.events]

    @property
    def ids(self) -> dict[JournalFile, JournalFileIds]:
        """The ids that must be stored before each file is acknowledged."""
        return {file: JournalFileIds.of(contents) for file, contents in self.contents.items()}


def filter_journal(
    lake: Lake, hours: Collection[Period], files: Iterable[JournalFile] | None = None
) -> FilteredJournal:
    """Read `hours` of pending files, or of `files` only, without entries that are forgotten, expired or not captured.

    A message of an expired hour is accepted as long as a summary of its time is kept, since it is added to this one.
    """
    requested = set(hours)
    contents = {
        file: lake.journal.read(file, pending)
        for file in (lake.journal.pending() if files is None else files)
        if (pending := requested.intersection(file.pending_hours))
    }
    marks, forgotten = ExpirationMarks.of(lake.tables), lake.tombstones.forgotten()
    filtered = FilteredJournal({}, Counter(), Counter())

    def accepted(records: Iterable[_Record]) -> list[_Record]:
        result = []
        for record in records:
            redacted = forgotten.taken(record)
            if redacted is None:
                filtered.forgotten[record.hour] += 1
            elif _has_expired(lake, marks, redacted):
                filtered.expired[record.hour] += 1
            else:
                result.append(redacted)
        return result

    def captured(messages: list[Message]) -> list[Message]:
        result = []
        for message in messages:
            talk = Talk(message.scope.agent_id, message.conversation_id, message.tags, message.source)
            if lake.capture_of(message.scope.workspace_id, talk) is Capture.FULL:
                result.append(message)
            else:
                filtered.not_captured[message.hour] += 1
        return result

    for file, whole in contents.items():
        entries = whole._replace(messages=captured(whole.messages))
        begins = lake.calendar.bounds(file.hours[0])[0]
        scope = lake.journal.scope_of(file)
        owner = {} if scope is None else {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id}
        rejected = [
            one
            for one in entries.rejected
            if not (scope and forgotten.reaches(scope, begins, texts=[str(one.record)]))
            and not is_forgotten(forgotten, one.record, owner, begins)
        ]
        filtered.contents[file] = (
            Contents(
                accepted(entries.messages),
                accepted(entries.edits),
                rejected,
                accepted(entries.events),
            )
            if marks or forgotten
            else entries
        )
    return filtered


def _has_expired(lake: Lake, marks: ExpirationMarks, record: Message | Edit | MemoryEvent) -> bool:
    if not marks or isinstance(record, MemoryEvent):
        return False
    if isinstance(record, Edit):
        return record.hour.key <= (marks.through(record.scope, RetentionClass.GRAPH) or "")
    return marks.has_expired(record, lake.calendar)


def load_messages(
    lake: Lake, hours: list[Period], filtered: FilteredJournal, shard: int | None = None
) -> list[PartitionResult]:
    """Load the messages of journal files into the ``messages`` partitions of `hours`. Return one result per hour.

    If several messages have one id, the one received first is kept, whatever the order of loading. Those with different
    content are set aside with the reason, except edits, which are folded into their message. Forgotten messages are
    removed. Nothing is acknowledged.
    """
    by_hour: dict[Period, list[Message]] = {}

    def merged(old: pa.Table) -> pa.Table:
        incoming: list[Message] = []
        for entries in filtered.contents.values():
            lake.journal.set_aside(entries.rejected)
            incoming += entries.messages
        messages, contradictions = _merge([*lake.tombstones.forgotten().filter(rows_to_messages(old)), *incoming])
        # Before the commit, which may drop the row of one of them. Repeating it is harmless.
        lake.journal.set_aside(contradictions)
        by_hour.update({hour: [] for hour in hours})
        for message in messages:
            by_hour[message.hour].append(message)
        return messages_to_rows(messages)

    changed = lake.tables.transform(MESSAGES, [hour.key for hour in hours], merged, shard=shard)
    sizes = lake.tables.sizes(MESSAGES)
    return [
        PartitionResult(
            asset=MESSAGES_ASSET,
            period=hour,
            input_digest=NO_ROWS,
            output_digest=RowDigests(map(message_digest, messages)).combined,
            rows=len(messages),
            agents=len({message.scope.own for message in messages}),
            messages=len(messages),
            redacted=sum(bool(message.redactions) for message in messages),
            changed=hour.key in changed,
            bytes=sizes.get(hour.key, 0),
            expired=filtered.expired[hour],
            forgotten=filtered.forgotten[hour],
            not_captured=filtered.not_captured[hour],
        )
        for hour, messages in by_hour.items()
    ]


def _merge(messages: Sequence[Message]) -> tuple[list[Message], list[Rejection]]:
    """Fold messages and edits into one message per id. Return the others with different content as rejections."""
    by_id: dict[str, Message] = {}
    accepted, contradictions = [], []
    for message in sorted(messages, key=lambda m: (m.received_at, m.turn, json.dumps(m.to_record(), sort_keys=True))):
        first = message if message.is_edit else by_id.setdefault(message.id, message)
        if first.says_the_same_as(message):
            accepted.append(message)
        else:
            where = f"conversation {message.conversation_id}"
            contradictions.append(Rejection(same_id_other_content(message, first), where, message.to_record()))
    return with_edits(accepted), contradictions

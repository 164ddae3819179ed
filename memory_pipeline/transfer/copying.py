"""Copy what a lake holds to another lake: all scopes or some, as it is now or by what had been received at a time.

Tables of records and of what was made from them are copied as they are, with the keys that the other lake gives to the
scopes. Ids do not depend on the lake. The ledger, the index and other projections follow: see
:mod:`memory_pipeline.transfer.deriving`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.lake.codec.facts import messages_to_rows, rows_to_messages
from memory_pipeline.lake.schemas import (
    ACCESS_LOG,
    ANSWERS,
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    MODEL_CALLS,
    READ_RECEIPTS,
    SUMMARIES,
)
from memory_pipeline.lake.tables.tombstones import ExpirationMarks, raise_marks
from memory_pipeline.steps.group import scopes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

    Progress = Callable[[str, int, int], None]
    Record = Message | Edit | MemoryEvent

#: The column with the time at which a row became known. Rows of other tables have none.
_KNOWN_AT: Final = {
    FACTS: "received_at",
    SUMMARIES: "period_end",
    GRAPH_OPERATIONS: "received_at",
    MEMORY_EVENTS: "received_at",
    MODEL_CALLS: "called_at",
    ACCESS_LOG: "called_at",
    READ_RECEIPTS: "called_at",
    MESSAGES: "received_at",
}
#: The tables in the order in which they are copied. What rests on messages comes before them, so that none is missing
#: if the lake is written meanwhile. Nights are consolidated again.
COPIED: Final = (
    SUMMARIES,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    ANSWERS,
    MODEL_CALLS,
    ACCESS_LOG,
    READ_RECEIPTS,
    MESSAGES,
)
#: As of a time, answers are looked up in the other lake, which also has their costs, and the receipts of its reads.
_NOT_OF_THE_PAST: Final = (ANSWERS, MODEL_CALLS, READ_RECEIPTS)
_BY_GRAIN: Final = (SUMMARIES, ANSWERS)
#: The tables whose periods are hours of records or facts.
HOURLY: Final = (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS)
_PARTITIONS_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class CopySelection:
    """What to copy.

    Attributes:
        scopes: whose memory; None for everybody's.
        until: only what had been received by this time, UTC; None for everything.
    """

    scopes: frozenset[Scope] | None = None
    until: datetime | None = None

    def has(self, scope: Scope) -> bool:
        """Return whether a scope is selected."""
        return self.scopes is None or scope in self.scopes

    def is_early(self, at: datetime | None) -> bool:
        """Return whether something of a time is selected."""
        return self.until is None or (at is not None and at <= self.until)


#: All scopes, at all times.
EVERYTHING: Final = CopySelection()


@dataclass(slots=True)
class Copied:
    """What was copied.

    Attributes:
        counts: number of rows and records, by table or kind.
        hours: keys of the hours with copied rows.
    """

    counts: Counter[str] = field(default_factory=Counter)
    hours: set[str] = field(default_factory=set)


def copy_lake(source: Lake, target: Lake, selection: CopySelection, progress: Progress = lambda *_: None) -> Copied:
    """Copy what is selected. Safe to repeat, to interrupt, and to run while `source` is written.

    `target` has the time zone of `source`.
    """
    done = Copied()
    copied = done.counts
    copied["pending records"] += _copy_pending(source, target, selection)
    for number, spec in enumerate(COPIED):
        progress(spec.name, number, len(COPIED))
        if selection.until is None or spec not in _NOT_OF_THE_PAST:
            for rows in selected_rows(source, target, spec, selection):
                copied[spec.name] += rows.num_rows
                done.hours |= set(rows["period"].unique().to_pylist()) if spec in HOURLY else set()
                put_rows(target, spec, rows)
    progress("files", len(COPIED), len(COPIED))
    _copy_marks(source, target, selection)
    entries = source.journal.entries()
    for event in source.access.among(entries):
        if selection.has(event.scope) and selection.is_early(event.event_at):
            target.access.add(replace(event, scope=_in(target, event.scope)))
            copied["grants"] += 1
    for correction in source.corrections.among(entries):
        if selection.has(correction.scope) and selection.is_early(correction.at):
            named = replace(correction, scope=_in(target, correction.scope))
            target.corrections.add(named)
            target.corrections.finish(named)
            copied["corrections"] += 1
    since = {(group, user): at for group, user, at in source.members.all() if selection.is_early(at)}
    members = {(_in(target, group), user): at for (group, user), at in since.items() if selection.has(group)}
    target.members.add_since(members)
    return done


def selected_rows(source: Lake, target: Lake, spec: TableSpec, selection: CopySelection) -> Iterator[pa.Table]:
    """Yield the rows of a table that are selected, some partitions at a time, with the scopes' keys in `target`."""
    keys = None if selection.scopes is None else {scope.key for scope in selection.scopes}
    where = None
    if selection.until is not None and spec in _KNOWN_AT:
        where = pc.field(_KNOWN_AT[spec]) <= pa.scalar(selection.until)
    if keys is not None and not spec.has_parts:  # such a table has no statistics of scopes
        is_own = pc.field("scope").isin(pa.array(sorted(keys), pa.string()))
        where, keys = is_own if where is None else where & is_own, None
    for fixed in _partitions(spec):
        partitions = source.tables.keys(spec, **fixed)
        for first in range(0, len(partitions), _PARTITIONS_AT_ONCE):
            part = partitions[first : first + _PARTITIONS_AT_ONCE]
            rows = source.tables.read(spec, part, where=where, shard=None, scopes=keys, **fixed)
            if rows.num_rows and selection.until is not None and spec is MESSAGES:
                rows = _as_of(rows, selection.until)
            if rows.num_rows and selection.until is not None and spec is SUMMARIES:
                rows = _with_expired_sources(source, rows)
            if rows.num_rows:
                yield _with_keys(rows, target)


def put_rows(lake: Lake, spec: TableSpec, rows: pa.Table) -> None:
    """Add rows to a table. Rows with the same ids are replaced."""
    name = "key" if spec is ANSWERS else "id"

    def merged(old: pa.Table) -> pa.Table:
        return pa.concat_tables([old.filter(pc.invert(pc.is_in(old[name], rows[name].combine_chunks()))), rows])

    fixed = {column: rows[column][0].as_py() for column in spec.partition_by[:-1]}
    lake.tables.transform(spec, set(rows[spec.partition_by[-1]].unique().to_pylist()), merged, **fixed)


def pending_records(source: Lake, selection: CopySelection) -> Iterator[Record]:
    """Yield the selected records that are not loaded yet."""
    for file in source.journal.pending():
        contents = source.journal.read(file, file.pending_hours)
        records: list[Record] = [*contents.messages, *contents.edits, *contents.events]
        for record in records:
            if selection.has(record.scope) and selection.is_early(record.received_at):
                yield record


def _partitions(spec: TableSpec) -> Iterable[dict[str, str]]:
    """Return the values of the partition columns before the last one."""
    if spec not in _BY_GRAIN:
        return ({},)
    return ({"grain": grain.value} for grain in Grain if spec is ANSWERS or grain is not Grain.WORKING)


def _copy_pending(source: Lake, target: Lake, selection: CopySelection) -> int:
    records = [replace(record, scope=_in(target, record.scope)) for record in pending_records(source, selection)]
    if records:
        target.ensure(min(said_at(record) for record in records))
        target.members.add(records)
        target.journal.append(records)
    return len(records)


def _copy_marks(source: Lake, target: Lake, selection: CopySelection) -> None:
    """Copy the tombstones, so that nothing comes back that was erased, and the marks of what has expired."""
    target.tombstones.put(source.tombstones.all())
    agents = None if selection.scopes is None else {scope.own for scope in selection.scopes}
    rows = source.tables.read(EXPIRATIONS).to_pylist()
    at = max((row["at"] for row in rows), default=None)
    marks = {
        (scope.workspace_id, scope.agent_id, RetentionClass(kept)): through
        for scope, kept, through in ExpirationMarks.of(source.tables)
        if agents is None or scope in agents
    }
    if at is not None:
        raise_marks(target.tables, marks, at)


def _as_of(rows: pa.Table, until: datetime) -> pa.Table:
    """Return messages with the texts that they had at a time."""
    messages = rows_to_messages(rows)
    if not any(message.edits for message in messages):
        return rows
    return messages_to_rows([one for one in (message.as_of(until) for message in messages) if one is not None])


def _with_expired_sources(source: Lake, rows: pa.Table) -> pa.Table:
    """Return the summaries whose sources may have expired. All others can be made again."""
    marks = ExpirationMarks.of(source.tables)
    grain = Grain(rows["grain"][0].as_py())
    assert grain.finer is not None  # noqa: S101  # nosec B101  # hours have no summaries
    latest = marks.latest([kept for kept in RetentionClass if kept.grain is grain.finer])
    keys = rows["period"].to_pylist()
    first = {key: source.calendar.sources(Period.parse(grain, key))[0].key for key in set(keys)}
    return rows.filter(pa.array([first[key] <= latest for key in keys], pa.bool_()))


def _with_keys(rows: pa.Table, target: Lake) -> pa.Table:
    """Return rows with the keys that another lake gives to their scopes."""
    keys = {scope.key: _in(target, scope).key for scope in scopes_in(rows)}
    if all(old == new for old, new in keys.items()):
        return rows
    new = pa.array([keys[key] for key in rows["scope"].to_pylist()], pa.string())
    place = rows.schema.get_field_index("scope")
    return rows.set_column(place, rows.schema.field(place), new)


def _in(lake: Lake, scope: Scope) -> Scope:
    """Return the scope of a lake with the ids of another lake's."""
    return lake.scope(scope.workspace_id, scope.agent_id, scope.identity)


def said_at(record: Any) -> datetime:
    """Return the time of a record, UTC."""
    at: datetime = record.sent_at if isinstance(record, Message) else record.event_at
    return at

"""Copy records to other scopes: another agent or user, or a lake that divides users otherwise.

Ids name the scope, so records get new ones, and what is made from them is made again. What rests on expired messages
cannot be made again, and stays behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from memory_pipeline.domain.graph.operations import Edit, Operation
from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb, new_memory_id
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scope_columns, scopes_of
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.codec.graph import rows_to_operations
from memory_pipeline.lake.codec.memories import rows_to_events
from memory_pipeline.lake.schemas import ANSWERS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.steps.group import by_scope
from memory_pipeline.transfer.copying import (
    Copied,
    CopySelection,
    pending_records,
    put_rows,
    said_at,
    selected_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memory_pipeline.lake import Lake
    from memory_pipeline.transfer.copying import Progress, Record

    #: Returns the scope of the other lake for a record of a scope, and for a user id in it.
    ScopeFor = Callable[[Scope, str | None], Scope]

#: Records that are written at once.
_AT_ONCE: Final = 10_000


class Renaming:
    """Gives records of a scope the ids that they have in other scopes."""

    def __init__(self, scope_for: ScopeFor) -> None:
        self._scope_for = scope_for
        #: New ids of messages and memories, and the scopes of messages, by old id.
        self.ids: dict[str, str] = {}
        self.scopes: dict[str, Scope] = {}

    def messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the records of which messages are folded: the first text, and each later one."""
        for message in messages:
            scope = self._scope_for(message.scope, message.user_id)
            user_id = scope.user_id if scope.user_id and message.scope.user_id == message.user_id else message.user_id
            first, *edits = message.records()
            named = first.identified(scope=scope, user_id=user_id)
            self.ids[message.id], self.scopes[message.id] = named.id, scope
            yield named
            yield from (replace(edit, id=named.id, scope=scope, user_id=user_id) for edit in edits)

    def edits(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        """Yield edits of the graph."""
        for edit in edits:
            scope = self._scope_for(edit.scope, None)
            yield Edit.from_record(replace(edit, scope=scope).to_record(), lambda *_, own=scope: own)

    def events(self, events: Sequence[MemoryEvent], agents: set[str]) -> Iterator[MemoryEvent]:
        """Yield those of the events of memories whose ids are in `agents`. The others only name memories."""
        for event in events:
            if event.verb is MemoryVerb.REMEMBER:
                scope = self._scope_for(event.scope, event.changes.user_id)
                self.ids[event.memory_id] = new_memory_id(scope, event.changes, event.event_at)
                self.scopes[event.memory_id] = scope
        for event in events:
            if event.id in agents:
                scope = self.scopes.get(event.memory_id) or self._scope_for(event.scope, event.changes.user_id)
                other = event.other_id and self.ids.get(event.other_id, event.other_id)
                yield MemoryEvent.of(
                    scope, event.verb, event.event_at, event.changes,
                    memory_id=self.ids.get(event.memory_id, event.memory_id), turn=event.turn, place=event.place,
                    editor=event.editor, reason=event.reason, other_id=other, conversation_id=event.conversation_id,
                    received_at=event.received_at, ordered_at=event.ordered_at, users=event.users,
                )  # fmt: skip


def copy_renamed(
    source: Lake,
    target: Lake,
    selection: CopySelection,
    scope_for: ScopeFor,
    progress: Progress = lambda *_: None,
    *,
    with_grants: bool = True,
) -> Copied:
    """Write the selected records of a lake to the journal of another one, under the scopes of `scope_for`.

    Messages, edits of the graph, changes of durable memories by agents, grants, corrections and stored answers of
    models are copied. Safe to repeat and to interrupt.
    """
    done = Copied()
    renaming = Renaming(scope_for)
    waiting = list(pending_records(source, selection))

    def write(kind: str, records: Iterable[Record]) -> None:
        listed: list[Record] = list(records)
        for first in range(0, len(listed), _AT_ONCE):
            part = listed[first : first + _AT_ONCE]
            target.ensure(min(map(said_at, part)))
            target.members.add(part)
            target.journal.append(part)
        done.counts[kind] += len(listed)

    progress("messages", 0, 4)
    for rows in selected_rows(source, source, MESSAGES, selection):
        write("messages", renaming.messages(rows_to_messages(rows)))
    write("messages", renaming.messages(one for one in waiting if isinstance(one, Message)))
    progress("graph", 1, 4)
    for rows in selected_rows(source, source, GRAPH_OPERATIONS, selection):
        write("edits of the graph", renaming.edits(_edits(rows.filter(rows["is_edit"]))))
    write("edits of the graph", renaming.edits(one for one in waiting if isinstance(one, Edit)))
    progress("memories", 2, 4)
    pending = [one for one in waiting if isinstance(one, MemoryEvent)]
    events, agents = list(pending), {one.id for one in pending}
    for rows in selected_rows(source, source, MEMORY_EVENTS, selection):
        events += rows_to_events(rows)
        agents |= set(rows.filter(rows["is_edit"])["id"].to_pylist())
    events.sort(key=lambda one: (one.placed_at, one.turn, one.place, one.id))
    write("changes of durable memories", renaming.events(events, agents))
    progress("answers", 3, 4)
    # Nothing tells which answers have words of what was erased.
    for rows in selected_rows(source, source, ANSWERS, selection) if not target.tombstones.all() else ():
        put_rows(target, ANSWERS, _renamed(rows, scope_for))
        done.counts["answers"] += rows.num_rows
    entries = source.journal.entries()
    for event in source.access.among(entries) if with_grants else ():
        if selection.has(event.scope) and selection.is_early(event.event_at):
            target.access.add(replace(event, scope=scope_for(event.scope, None)))
            done.counts["grants"] += 1
    corrections: dict[str, str] = {}
    forgotten = target.tombstones.forgotten()
    for one in sorted(source.corrections.among(entries), key=lambda each: (each.at, each.id)):
        if selection.has(one.scope) and selection.is_early(one.at):
            ids = tuple(renaming.ids.get(message_id, message_id) for message_id in one.message_ids)
            scopes = {renaming.scopes[message_id] for message_id in one.message_ids if message_id in renaming.scopes}
            for scope in scopes or {scope_for(one.scope, None)}:
                if forgotten.reaches(scope, one.at, texts=[*one.quotes, one.text or ""]):
                    continue
                undoes = one.undoes and corrections.get(one.undoes, one.undoes)
                named = replace(one, scope=scope, message_ids=ids, undoes=undoes)
                corrections[one.id] = named.id
                target.corrections.add(named)
                target.corrections.finish(named)
            done.counts["corrections"] += 1
    progress("done", 4, 4)
    return done


def _edits(rows: pa.Table) -> Iterator[Edit]:
    """Yield the edits of which rows of ``graph_operations`` are the operations."""
    for scope, own in by_scope(rows).items():
        users = dict(zip(own["evidence_id"].to_pylist(), own["users"].to_pylist(), strict=True))
        by_edit: dict[str, list[Operation]] = {}
        operations = sorted(rows_to_operations(own), key=lambda one: (one.message_ids, one.place))
        for operation in operations:
            by_edit.setdefault(operation.message_ids[0], []).append(operation)
        for edit_id, parts in by_edit.items():
            if (received_at := parts[0].received_at) is not None:  # as all stored ones have
                yield Edit(edit_id, scope, tuple(parts), received_at, tuple(users[edit_id] or ()))


def _renamed(rows: pa.Table, scope_for: ScopeFor) -> pa.Table:
    """Return rows with other scopes."""
    columns = scope_columns([scope_for(scope, None) for scope in scopes_of(rows)])
    for name in SCOPE_COLUMNS:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(columns[name], pa.string()))
    return rows

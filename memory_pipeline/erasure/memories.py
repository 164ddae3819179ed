"""Erase a subject from durable memories: remove events, then repeat consolidation from the remaining ones.

Consolidation merges contents and words its reasons, so its events may quote anyone. They and the model answers behind
them are removed, and consolidation decides again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.erasure import without_note
from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, apply
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.erasure.removal import drop
from memory_pipeline.lake.codec.codec import scopes_of
from memory_pipeline.lake.codec.memories import events_to_rows, rows_to_events
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, IS_FACT, MEMORIES, MEMORY_EVENTS
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.steps.fold_memories import sync_events

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_pipeline.domain.erasure import Forgotten
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.erasure.scanner import ScanResult
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import Contents, JournalFile


# A memory's id comes from the first statement of its content. If that statement is removed and another one says the
# same, the memory continues under another id: the successor. Events on the memory move to the successor, or a revoked
# memory would become active again. Events on memories without a successor are removed: they have no effect and may
# repeat the removed content.


#: Undoing a merge may leave several successors. These events apply to each of them, the others to the first.
_TO_ALL = frozenset([MemoryVerb.FORGET, MemoryVerb.UPDATE])


def reassign_events(
    events: Iterable[MemoryEvent],
    nights: Iterable[MemoryEvent],
    gone: Collection[str],
    noted: Mapping[str, MemoryEvent],
) -> dict[str, tuple[MemoryEvent, ...]]:
    """Return the replacements of changed events, by id. Unchanged events and those in `gone` are not in the result.

    Args:
        events: all events of one agent, including those in `gone`.
        nights: events of consolidation, which will be undone.
        gone: ids of the events to remove.
        noted: events without their note, by the ids of the originals.
    """
    base = list({event.id: event for event in events}.values())
    sources = _sources_of([*base, *nights])
    memories, known_as = Memories(), dict[str, str]()
    found: dict[str, tuple[MemoryEvent, ...]] = {}
    for event in sorted(base, key=lambda event: event.order):
        if event.id in gone:
            continue
        current = noted.get(event.id, event)
        copies: tuple[MemoryEvent, ...] = (current,)
        if current.verb is MemoryVerb.REMEMBER:
            if current.other_id is not None and memories.resolved(current.other_id) not in memories.newest:
                successors = _successors(memories, known_as, sources.get((event.id, current.other_id), ()))
                current = _moved(current, current.memory_id, next(iter(successors), None))
                copies = (current,)
            known_as[event.id] = memories.memory_id_for(current)
        elif (event.id, event.memory_id) in sources:
            statements = sources[event.id, event.memory_id]
            successors = _successors(memories, known_as, statements)
            is_whole = all(source in known_as for source in statements)
            copies = _copies_for(current, memories.resolved(current.memory_id), successors, is_whole=is_whole)
            if current.other_id is not None and (event.id, current.other_id) in sources:  # the target of a link
                targets = _successors(memories, known_as, sources[event.id, current.other_id])
                target = memories.resolved(current.other_id)
                target = target if target in targets else next(iter(targets), "")
                is_same = target == memories.resolved(current.other_id)
                copies = copies if is_same else tuple(_moved(one, one.memory_id, target) for one in copies if target)
        if copies != (event,):
            found[event.id] = copies
        for one in copies:
            apply(memories, one)
    return found


def _successors(memories: Memories, known_as: Mapping[str, str], statements: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(memories.resolved(known_as[source]) for source in statements if source in known_as))


def _sources_of(events: Iterable[MemoryEvent]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return, for each event and memory that it names, the ids of the `remember` events behind the memory's content."""
    memories = Memories()
    statements: dict[str, list[str]] = {}
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for event in sorted(events, key=lambda event: event.order):
        is_statement = event.verb is MemoryVerb.REMEMBER
        if not event.is_consolidation:
            for one in filter(None, (None if is_statement else event.memory_id, event.other_id)):
                memory = memories.newest.get(memories.resolved(one))
                if memory is not None:
                    parts = (memory.id, *memory.merged_ids)
                    found[event.id, one] = tuple(source for part in parts for source in statements.get(part, ()))
        if is_statement:
            statements.setdefault(memories.memory_id_for(event), []).append(event.id)
        apply(memories, event)
    return found


def _copies_for(
    event: MemoryEvent, memory_id: str, successors: list[str], *, is_whole: bool
) -> tuple[MemoryEvent, ...]:
    """Return copies of an event for the successors of its memory. The memory itself may be among them."""
    if is_whole or event.verb not in _TO_ALL:
        successors = [memory_id] if memory_id in successors else successors[:1]
    return tuple(
        event if successor == memory_id else _moved(event, successor, event.other_id) for successor in successors
    )


def _moved(event: MemoryEvent, memory_id: str, other_id: str | None) -> MemoryEvent:
    return MemoryEvent.of(
        event.scope, event.verb, event.event_at, event.changes, memory_id=memory_id, turn=event.turn,
        place=event.place, editor=event.editor, reason=event.reason, other_id=other_id,
        evidence=event.evidence, conversation_id=event.conversation_id, received_at=event.received_at,
        ordered_at=event.ordered_at, users=event.users,
    )  # fmt: skip


def note_memories(lake: Lake, scopes: Collection[Scope], log: ErasureLog) -> dict[str, frozenset[str]]:
    """Add all durable memories of scopes to the log before they change. Return their ids by owner."""
    rows = lake.memory_rows.read(scopes, [*SCOPE_COLUMNS, "id", "content"], IS_FACT)
    log.note(rows["id"].to_pylist(), rows["content"].to_pylist())
    return _ids_by_owner(rows)


def remove_nights(lake: Lake, scopes: Collection[Scope], log: ErasureLog) -> None:
    """Remove all consolidation events and checkpoints of agents, so that consolidation starts over.

    The ids of the events do not enter the receipt: a later day may make the same decision about remaining memories,
    under the same id.
    """
    # Remove the checkpoints first. After an interruption the next day then consolidates these agents again.
    for spec, column in ((CONSOLIDATION, "id"), (CONSOLIDATION_EVENTS, "scope")):
        log.take(spec.name, "rows", drop(lake, spec, None, column, {scope.key for scope in scopes}))
    lake.events.replace(lake.events.schema.empty_table(), scopes, "is_consolidation")


def find_changed_events(lake: Lake, scopes: Collection[Scope], found: ScanResult, forgotten: Forgotten) -> None:
    """Add to `found` the events of agents that lose a note about the person, or whose memory loses its source.

    Call this before removing the found rows. Events of a memory without a successor are removed. New contents of
    pending journal files are added, too.
    """
    gone = found.ids(MEMORY_EVENTS)
    sync_events(lake, scopes, found.rows.get(MEMORY_EVENTS.name, {}))
    for scope in sorted(scopes, key=str):
        pending_files = {file: lake.journal.read(file) for file in lake.journal.pending(scope)}
        if not (scope in found.durable or found.files.keys() & pending_files):
            continue
        rows = lake.events.read([scope])
        stored, nights = (
            rows_to_events(rows.filter(mask))
            for mask in (pc.invert(rows["is_consolidation"]), rows["is_consolidation"])
        )
        derived = list(_events_of_messages(lake, pending_files.values()))
        noted = {event.id: without_note(event) for event in stored if event.id in found.notes.get(scope, ())}
        lost = {event.id for event in stored if event.id in gone}
        for event in (one for contents in pending_files.values() for one in contents.events):
            remaining = forgotten.taken(event)
            if remaining is None:
                lost.add(event.id)
            elif remaining != event:
                noted[event.id] = remaining
        forgotten_messages = {
            one.id for contents in pending_files.values() for one in contents.messages if forgotten.covers(one)
        }
        lost |= {event.id for event in derived if not forgotten_messages.isdisjoint(event.evidence)}
        pending = [event for contents in pending_files.values() for event in contents.events]
        replaced = reassign_events([*stored, *pending, *derived], nights, lost, noted)
        if old := [event for event in stored if event.id in replaced]:
            found.changed += [(event, replaced[event.id]) for event in old]
            found.durable.add(scope)
            found.hours |= {event.hour.key for event in old}
        for file, contents in pending_files.items():
            _replace_pending(file, contents, found, lost, replaced)


def _events_of_messages(lake: Lake, files: Iterable[Contents]) -> Iterable[MemoryEvent]:
    """Return the memory events of pending messages, as readers see them."""
    messages = [message for contents in files for message in contents.messages]
    if not messages:
        return ()
    facts = DeterministicExtractor(lake.calendar.timezone).facts_of(messages)
    return events_of(facts, lake.configuration().memories)


def replace_events(lake: Lake, changed: Sequence[tuple[MemoryEvent, tuple[MemoryEvent, ...]]], log: ErasureLog) -> None:
    """Replace loaded memory events, each by none, one or several."""
    if not changed:
        return
    old_ids = pa.array([event.id for event, _ in changed], pa.string())

    def updated(old: pa.Table) -> pa.Table:
        unchanged = old.filter(pc.invert(pc.is_in(old["id"], old_ids)))
        if unchanged.num_rows == old.num_rows:
            return old
        members = {event.id: event.users for event in rows_to_events(old)}  # their projection has none
        copies = [replace(one, users=members.get(event.id, ())) for event, copies in changed for one in copies]
        new = events_to_rows(copies, are_edits=True)
        return pa.concat_tables(
            [unchanged, new.filter(pc.invert(pc.is_in(new["id"], unchanged["id"].combine_chunks())))]
        )

    lake.tables.transform(MEMORY_EVENTS, {event.hour.key for event, _ in changed}, updated)
    log.note((event.id for event, _ in changed), (event.changes.content for event, copies in changed if not copies))
    for event, copies in changed:
        what = "rows"
        if copies:
            is_moved = any(one.memory_id != event.memory_id for one in copies)
            what = "rows that moved to another memory" if is_moved else "rows that lost a note"
        log.take(MEMORY_EVENTS.name, what, {event.hour.key: 1})


def _replace_pending(
    file: JournalFile,
    contents: Contents,
    found: ScanResult,
    lost: Collection[str],
    replaced: Mapping[str, tuple[MemoryEvent, ...]],
) -> None:
    if not any(event.id in replaced for event in contents.events):
        return
    remaining = [one for event in contents.events if event.id not in lost for one in replaced.get(event.id, (event,))]
    found.files[file] = found.files.get(file, contents)._replace(events=remaining)
    found.pending += sum(replaced.get(event.id) == () for event in contents.events)


def enter_memories(lake: Lake, scopes: Collection[Scope], before: dict[str, frozenset[str]], log: ErasureLog) -> None:
    """Add the removed versions of memories to the log."""
    rows = lake.memory_rows.read(scopes, [*SCOPE_COLUMNS, "id"], IS_FACT)
    after = _ids_by_owner(rows)
    gone = {owner: len(ids - after.get(owner, frozenset())) for owner, ids in before.items()}
    log.take(MEMORIES.name, "rows", {owner: count for owner, count in gone.items() if count})


def _ids_by_owner(rows: pa.Table) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for scope, identifier in zip(scopes_of(rows), rows["id"].to_pylist(), strict=True):
        found.setdefault(str(scope), set()).add(identifier)
    return {owner: frozenset(ids) for owner, ids in found.items()}

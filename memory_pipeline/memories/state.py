"""Keep one agent's durable memories in sync with the lake: the table, overlaid with pending events.

The table is a fold of all committed events. If it includes all of them, and pending events are younger, the fold
continues from its rows. Otherwise all events are folded again. Both ways give the same memories.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.events import CONVERSATION, MemoryVerb, key_of
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.lake.codec.memories import events_digest, row_to_memory, rows_to_events
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, UPKEEP_EVENTS
from memory_pipeline.memories.snapshot import HEADER_COLUMNS, MemorySnapshot, Rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from memory_pipeline.configuration import MemoriesSettings
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.events import Changes, MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.overlay import PendingJournal

MEMORY_COLUMNS = frozenset(MEMORIES.schema.names) - {"vector", "embed_model", "source_digest"}
_EVENT_COLUMNS = ("id", "verb", "memory_id", "event_at", "turn", "place")
_NO_IDS = pa.array([], pa.string())
_NEWEST = pc.field("is_newest")
_ATTEMPTS = 10

_Order = tuple["datetime", bool, int, int, str]


@dataclass(frozen=True, slots=True)
class _Base:
    """The committed state.

    Attributes:
        files: files of the tables, which change with every commit.
        events: ids of all events.
        aliases: ids of REMEMBER events that matched a memory with another id.
        last: the order of the last event.
        is_current: whether the rows include all events.
    """

    files: tuple[frozenset[str], ...]
    rows: Rows
    events: pa.Array
    aliases: frozenset[str]
    last: _Order | None
    is_current: bool


@dataclass(slots=True)
class _Past:
    """All events in order, the key of their sources, and the snapshot after some number of them."""

    key: tuple[tuple[frozenset[str], ...], frozenset[str] | None]
    events: list[MemoryEvent]
    cached: tuple[int, MemorySnapshot] | None = None


class MemoryOverlay:
    """The newest memories of an agent. Safe to use from several threads."""

    def __init__(self, lake: Lake, scope: Scope, pending: PendingJournal) -> None:
        self._lake = lake
        self._scope = scope
        self._pending = pending
        self._owners = [owner_of(scope)]
        self._lock = threading.RLock()
        self._base: _Base | None = None
        self._pending_ids: frozenset[str] | None = None
        self._top: MemorySnapshot | None = None
        self._matches: tuple[frozenset[str], dict[str, str]] | None = None
        self._aliases: tuple[tuple[frozenset[str], ...], dict[str, str]] | None = None
        self._past: _Past | None = None
        self._events: dict[str, tuple[MemoryEvent, ...]] = {}

    @property
    def calendar(self) -> Calendar:
        """The lake's calendar."""
        return self._lake.calendar

    def snapshot(self, until: datetime | None = None) -> MemorySnapshot:
        """Return all memories, newest or at `until`, UTC.

        Pending events are read before the table: events committed in between count once.

        Raises:
            RuntimeError: the table changed during every attempt, which takes a commit every few milliseconds.
        """
        for _ in range(_ATTEMPTS):
            pending = self._pending_events()
            files = self._files()
            with self._lock:
                before = self._top
                if self._base is None or self._base.files != files:
                    self._base, self._top = self._read_base(files), None
                if self._top is None or pending.keys() != self._pending_ids:
                    self._top = self._overlaid(self._base, list(pending.values()))
                    self._pending_ids = frozenset(pending)
                top = self._top
                if until is not None and self._is_later(self._base, pending.values(), until):
                    top = self._at(until, self._base, list(pending.values()))
                if top is before or self._files() == files:
                    return top
                self._base = self._top = None
        raise RuntimeError(
            f"the durable memories of {self._scope} changed {_ATTEMPTS} times during the read; retry later"
        )

    def is_of(self, top: MemorySnapshot) -> bool:
        """Return whether the tables are unchanged since a snapshot, so that rows read now belong to it."""
        return top.files == self._files()

    def get(self, memory_id: str, until: datetime | None = None) -> DurableMemory | None:
        """Return the newest version of a memory, or that at `until`, UTC; None if it is unknown.

        A merged memory is returned as it was; :meth:`resolved` returns the id of the memory it was merged into.
        """
        snapshot = self.snapshot(until)
        current_id = self._current_id(snapshot, memory_id)
        return snapshot.load([current_id]).get(current_id)

    def resolved(self, memory_id: str, until: datetime | None = None) -> str:
        """Return the id of the memory that a memory was merged into, or its own id; see :meth:`get`."""
        snapshot = self.snapshot(until)
        return snapshot.resolved(self._current_id(snapshot, memory_id))

    def find(self, changes: Changes) -> DurableMemory | None:
        """Return the memory with the match key of a text to remember, or None."""
        snapshot = self.snapshot()
        is_above = snapshot.is_whole or bool(snapshot.above.newest)
        known = (snapshot.above.matches if is_above else self._ids_by_key()).get(key_of(changes))
        return None if known is None else self.get(known)

    def history(self, memory_id: str, until: datetime | None = None) -> tuple[DurableMemory, ...]:
        """Return all versions of a memory, oldest first; see :meth:`get`."""
        snapshot = self.snapshot(until)
        memory_id = self._current_id(snapshot, memory_id)
        newest = snapshot.above.newest.get(memory_id)
        overlaid = (*snapshot.above.earlier.get(memory_id, ()), *([] if newest is None else [newest]))
        if snapshot.is_whole:
            return overlaid
        where = pc.field("memory_id") == pa.scalar(memory_id)
        before = {one.version: one for one in map(row_to_memory, self.rows(where).to_pylist())}
        # Events can change the newest version in the table without adding a version.
        return tuple(version for _, version in sorted((before | {one.version: one for one in overlaid}).items()))

    def events(self, memory_ids: Collection[str] | None = None) -> list[MemoryEvent]:
        """Return the events of some memories, or of all, in order."""
        pending = self._pending_events()
        where = None
        if memory_ids is not None:
            wanted = pa.array(sorted(memory_ids), pa.string())
            where = pc.field("memory_id").isin(wanted) | pc.field("other_id").isin(wanted)
        found = self._all_events(where)
        ids = {event.id for event in found}
        fresh = self._unreplaced([event for event in pending.values() if event.id not in ids])
        if memory_ids is not None:
            fresh = [one for one in fresh if one.memory_id in memory_ids or one.other_id in memory_ids]
        return sorted([*found, *fresh], key=lambda event: event.order)

    def _files(self) -> tuple[frozenset[str], ...]:
        return tuple(self._lake.tables.state(spec, self._owners) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS, MEMORIES))

    def _read_base(self, files: tuple[frozenset[str], ...]) -> _Base:
        """Read the committed state, without contents and vectors."""
        rows = self._lake.tables.read(MEMORIES, self._owners, columns={*HEADER_COLUMNS, "source_digest"}, where=_NEWEST)
        parts = {
            spec: self._lake.tables.read(spec, self._owners, columns=_EVENT_COLUMNS)
            for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)
        }
        ids = pa.concat_arrays([chunk for part in parts.values() for chunk in part["id"].chunks] or [_NO_IDS])
        orders = [order for spec, part in parts.items() if (order := _last_order(part, spec)) is not None]
        known = rows["source_digest"][0].as_py() if rows.num_rows else None
        is_current = known == events_digest(ids.to_pylist()) if len(ids) else not rows.num_rows
        events = parts[MEMORY_EVENTS]
        remembered = events["memory_id"].filter(pc.equal(events["verb"], MemoryVerb.REMEMBER.value))
        aliases = remembered.filter(pc.invert(pc.is_in(remembered, rows["memory_id"].combine_chunks())))
        return _Base(
            files,
            Rows(rows.drop_columns(["source_digest"]), lambda ids: (self._whole(ids), self._files() == files)),
            ids,
            frozenset(aliases.to_pylist()),
            max(orders, default=None),
            is_current,
        )

    def _overlaid(self, base: _Base, pending: list[MemoryEvent]) -> MemorySnapshot:
        new = self._new(base, pending)
        if not base.is_current or any(base.last is not None and event.order < base.last for event in new):
            return MemorySnapshot(_NO_ROWS, fold_events([*self._all_events(), *new]), base.files, is_whole=True)
        if not new:
            return MemorySnapshot(base.rows, Memories(), base.files)
        return MemorySnapshot(base.rows, fold_events(new, self._affected(base, new)), base.files)

    def _is_later(self, base: _Base, pending: Iterable[MemoryEvent], until: datetime) -> bool:
        return (base.last is not None and base.last[0] > until) or any(event.event_at > until for event in pending)

    def _at(self, until: datetime, base: _Base, pending: list[MemoryEvent]) -> MemorySnapshot:
        """Return the memories at a time; the last result is cached."""
        key = (base.files, self._pending_ids)
        if self._past is None or self._past.key != key:
            events = [*self._all_events(), *self._new(base, pending)]
            self._past = _Past(key, sorted(events, key=lambda event: event.order))
        past = self._past
        count = bisect_right(past.events, until, key=lambda event: event.event_at)
        if past.cached is None or past.cached[0] != count:
            memories = fold_events(past.events[:count])
            past.cached = count, MemorySnapshot(_NO_ROWS, memories, base.files, is_whole=True)
        return past.cached[1]

    def _affected(self, base: _Base, new: Iterable[MemoryEvent]) -> Memories:
        """Return the committed memories that events may change."""
        below = MemorySnapshot(base.rows, Memories(), base.files)
        matches = self._ids_by_key()
        aliases: dict[str, str] = {}
        named = set[str]()
        for event in new:
            named |= {one for one in (event.memory_id, event.other_id) if one is not None}
            if event.verb is MemoryVerb.REMEMBER and (known := matches.get(key_of(event.changes))) is not None:
                named.add(known)
        for one in named & base.aliases:
            aliases[one] = self._aliases_of(base)[one]
        named |= set(aliases.values())
        for one in list(named):
            # Memories on the way from an id to the memory it was merged into.
            at, goal = one, below.resolved(one)
            while at != goal and (header := below.header(at)) is not None and header.superseded_by is not None:
                at = header.superseded_by
                named.add(at)
        return Memories(newest=base.rows.memories(named, alone=True), matches=dict(matches), aliases=aliases)

    def _current_id(self, top: MemorySnapshot, memory_id: str) -> str:
        """Return the id of a memory: the given one, or that of an earlier memory with the same words."""
        if memory_id in top or memory_id in top.above.aliases:
            return memory_id if memory_id in top else top.above.aliases[memory_id]
        with self._lock:
            base = self._base
            if top.is_whole or base is None or memory_id not in base.aliases:
                return memory_id
            return self._aliases_of(base).get(memory_id, memory_id)

    def _aliases_of(self, base: _Base) -> dict[str, str]:
        """Return the memory by alias; this folds all events."""
        if self._aliases is None or self._aliases[0] != base.files:
            self._aliases = base.files, fold_events(self._all_events()).aliases
        return self._aliases[1]

    def _ids_by_key(self) -> dict[str, str]:
        """Return the id of the committed memory by match key."""
        files = self._lake.tables.state(MEMORIES, self._owners)
        with self._lock:
            if self._matches is None or self._matches[0] != files:
                rows = self._lake.tables.read(
                    MEMORIES, self._owners, columns=["memory_id", "match_keys"], where=_NEWEST
                )
                keys = pc.list_flatten(rows["match_keys"])
                owners = rows["memory_id"].take(pc.list_parent_indices(rows["match_keys"]))
                self._matches = files, dict(zip(keys.to_pylist(), owners.to_pylist(), strict=True))
            return self._matches[1]

    def _whole(self, memory_ids: Collection[str] | None) -> pa.Table:
        if memory_ids is None:
            return self.rows(_NEWEST)
        return self.rows(_NEWEST & pc.field("memory_id").isin(pa.array(sorted(memory_ids), pa.string())))

    def rows(self, where: pc.Expression, columns: Collection[str] = MEMORY_COLUMNS) -> pa.Table:
        """Return committed rows of the table of memories."""
        return self._lake.tables.read(MEMORIES, self._owners, columns=columns, where=where)

    def _all_events(self, where: pc.Expression | None = None) -> list[MemoryEvent]:
        parts = [self._lake.tables.read(spec, self._owners, where=where) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)]
        return [event for part in parts for event in rows_to_events(part)]

    def _new(self, base: _Base, pending: list[MemoryEvent]) -> list[MemoryEvent]:
        """Return the pending events that are not committed yet."""
        if not pending:
            return []
        committed = pc.is_in(pa.array([event.id for event in pending], pa.string()), base.events).to_pylist()
        return self._unreplaced([event for event, is_there in zip(pending, committed, strict=True) if not is_there])

    def _unreplaced(self, events: list[MemoryEvent]) -> list[MemoryEvent]:
        """Leave out events that rules derived from a message if those of a model are committed."""
        hours = {event.hour.key for event in events if event.editor == CONVERSATION}
        if not hours:
            return events
        where = pc.field("period").isin(sorted(hours)) & ~pc.field("is_edit")
        rows = self._lake.tables.read(MEMORY_EVENTS, self._owners, columns=["evidence"], where=where)
        processed = set(pc.list_flatten(rows["evidence"]).to_pylist())
        return [event for event in events if event.editor != CONVERSATION or processed.isdisjoint(event.evidence)]

    def _pending_events(self) -> dict[str, MemoryEvent]:
        """Return the events of pending files by id, including those that rules derive from messages."""
        files = self._pending.files()
        with self._lock:
            events = {}
            for path, file in files.items():
                known = self._events.get(path)
                events[path] = (
                    (*file.events, *events_of(file.facts, lambda _: self.settings)) if known is None else known
                )
            self._events = events
            return {event.id: event for path in sorted(events) for event in events[path]}

    @cached_property
    def settings(self) -> MemoriesSettings:
        """The agent's configuration of durable memories."""
        return self._lake.configuration().memories(self._scope)


def _no_rows() -> Rows:
    table = MEMORIES.schema.empty_table()
    return Rows(table, lambda _: (table, True))


_NO_ROWS = _no_rows()


def _last_order(rows: pa.Table, spec: TableSpec) -> _Order | None:
    if not rows.num_rows:
        return None
    latest = rows.filter(pc.equal(rows["event_at"], pc.max(rows["event_at"]))).to_pylist()
    return max((row["event_at"], spec is not UPKEEP_EVENTS, row["turn"], row["place"], row["id"]) for row in latest)

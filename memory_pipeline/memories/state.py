"""Keep one agent's durable memories in sync with the lake: the stored rows, overlaid with pending events.

The rows are a fold of all committed events. If they include all of them, and pending events are younger, the fold
continues from them. Otherwise all events are folded again. Both ways give the same memories.
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
from memory_pipeline.lake.codec.memories import (
    IS_VERSION,
    STATE_COLUMNS,
    events_digest,
    fold_states,
    row_to_memory,
    rows_digest,
    rows_to_events,
)
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.schemas import MEMORIES
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
    from memory_pipeline.overlay import PendingJournal

MEMORY_COLUMNS = frozenset(MEMORIES.schema.names) - {"vector", "embed_model", "source_digest", "digest"}
_EVENT_COLUMNS = ("id", "verb", "memory_id", "event_at", "is_consolidation", "turn", "place")
#: The condition on the newest versions.
_NEWEST = "is_newest"
_BY_VERSION = [("memory_id", "ascending"), ("version", "ascending")]
_ATTEMPTS = 10

_Order = tuple["datetime", bool, int, int, str]


@dataclass(frozen=True, slots=True)
class _Base:
    """The committed state.

    Attributes:
        key: digests of the events and rows; changes exactly when they do.
        events: ids of all events.
        aliases: ids of REMEMBER events that matched a memory with another id.
        last: the order of the last event.
        is_current: whether the rows include all events.
    """

    key: tuple[str, str]
    rows: Rows
    events: pa.Array
    aliases: frozenset[str]
    last: _Order | None
    is_current: bool


@dataclass(slots=True)
class _Past:
    """All events in order, the key of their sources, and the snapshot after some number of them."""

    key: tuple[tuple[str, str], frozenset[str] | None]
    events: list[MemoryEvent]
    cached: tuple[int, MemorySnapshot] | None = None


class MemoryOverlay:
    """The newest memories of an agent. Safe to use from several threads."""

    def __init__(self, lake: Lake, scope: Scope, pending: PendingJournal) -> None:
        self._lake = lake
        self._scope = scope
        self._pending = pending
        self._lock = threading.RLock()
        self._base: _Base | None = None
        self._pending_ids: frozenset[str] | None = None
        self._top: MemorySnapshot | None = None
        self._matches: tuple[tuple[str, str], dict[str, str]] | None = None
        self._aliases: tuple[tuple[str, str], dict[str, str]] | None = None
        self._seen: tuple[tuple[int | None, ...], tuple[str, str]] | None = None
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
            key = self._key()
            with self._lock:
                before = self._top
                if self._base is None or self._base.key != key:
                    self._base, self._top = self._read_base(key), None
                if self._top is None or pending.keys() != self._pending_ids:
                    self._top = self._overlaid(self._base, list(pending.values()))
                    self._pending_ids = frozenset(pending)
                top = self._top
                if until is not None and self._is_later(self._base, pending.values(), until):
                    top = self._at(until, self._base, list(pending.values()))
                if top is before or self._key() == key:
                    return top
                self._base = self._top = None
        raise RuntimeError(
            f"the durable memories of {self._scope} changed {_ATTEMPTS} times during the read; retry later"
        )

    def is_of(self, top: MemorySnapshot) -> bool:
        """Return whether the rows are unchanged since a snapshot, so that rows read now belong to it."""
        return top.key == self._key()

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
        where = f"memory_id = {quoted(memory_id)}"
        before = {one.version: one for one in map(row_to_memory, self.rows(where).to_pylist())}
        # Events can change the newest version in the table without adding a version.
        return tuple(version for _, version in sorted((before | {one.version: one for one in overlaid}).items()))

    def events(self, memory_ids: Collection[str] | None = None) -> list[MemoryEvent]:
        """Return the events of some memories, or of all, in order."""
        pending = self._pending_events()
        where = None
        if memory_ids is not None:
            wanted = _listed(memory_ids)
            where = f"memory_id IN ({wanted}) OR other_id IN ({wanted})"
        found = self._all_events(where)
        ids = {event.id for event in found}
        fresh = self._unreplaced([event for event in pending.values() if event.id not in ids])
        if memory_ids is not None:
            fresh = [one for one in fresh if one.memory_id in memory_ids or one.other_id in memory_ids]
        return sorted([*found, *fresh], key=lambda event: event.order)

    def _key(self) -> tuple[str, str]:
        """Return digests of the scope's events and rows. Reads them only if a table of the shard has changed."""
        versions = (self._lake.events.version(self._scope), self._lake.memory_rows.version(self._scope))
        with self._lock:
            if self._seen is None or self._seen[0] != versions:
                ids = self._lake.events.read([self._scope], ("id",))["id"].to_pylist()
                digests = self._lake.memory_rows.read([self._scope], ("digest",))["digest"].to_pylist()
                self._seen = versions, (events_digest(ids), rows_digest(digests))
            return self._seen[1]

    def _read_base(self, key: tuple[str, str]) -> _Base:
        """Read the committed state, without contents and vectors."""
        marks = self._lake.memory_rows.read([self._scope], ("version", "digest", *STATE_COLUMNS))
        state = fold_states(marks.filter(pc.equal(marks["version"], 0))).get(self._scope)
        versions = marks.filter(pc.greater(marks["version"], 0))
        rows = self.rows(_NEWEST, HEADER_COLUMNS)
        events = self._lake.events.read([self._scope], _EVENT_COLUMNS)
        ids = events["id"].to_pylist()
        if state is None:
            is_current = not ids and not versions.num_rows
        else:
            found = events_digest(ids), rows_digest(versions["digest"].to_pylist())
            is_current = (state.events, state.rows) == found
        remembered = events["memory_id"].filter(pc.equal(events["verb"], MemoryVerb.REMEMBER.value))
        aliases = remembered.filter(pc.invert(pc.is_in(remembered, rows["memory_id"].combine_chunks())))
        return _Base(
            key,
            Rows(rows, lambda ids: (self._whole(ids), self._key() == key)),
            events["id"].combine_chunks(),
            frozenset(aliases.to_pylist()),
            _last_order(events),
            is_current,
        )

    def _overlaid(self, base: _Base, pending: list[MemoryEvent]) -> MemorySnapshot:
        new = self._new(base, pending)
        if not base.is_current or any(base.last is not None and event.order < base.last for event in new):
            return MemorySnapshot(_NO_ROWS, fold_events([*self._all_events(), *new]), base.key, is_whole=True)
        if not new:
            return MemorySnapshot(base.rows, Memories(), base.key)
        return MemorySnapshot(base.rows, fold_events(new, self._affected(base, new)), base.key)

    def _is_later(self, base: _Base, pending: Iterable[MemoryEvent], until: datetime) -> bool:
        return (base.last is not None and base.last[0] > until) or any(event.event_at > until for event in pending)

    def _at(self, until: datetime, base: _Base, pending: list[MemoryEvent]) -> MemorySnapshot:
        """Return the memories at a time; the last result is cached."""
        key = (base.key, self._pending_ids)
        if self._past is None or self._past.key != key:
            events = [*self._all_events(), *self._new(base, pending)]
            self._past = _Past(key, sorted(events, key=lambda event: event.order))
        past = self._past
        count = bisect_right(past.events, until, key=lambda event: event.event_at)
        if past.cached is None or past.cached[0] != count:
            memories = fold_events(past.events[:count])
            past.cached = count, MemorySnapshot(_NO_ROWS, memories, base.key, is_whole=True)
        return past.cached[1]

    def _affected(self, base: _Base, new: Iterable[MemoryEvent]) -> Memories:
        """Return the committed memories that events may change."""
        below = MemorySnapshot(base.rows, Memories(), base.key)
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
        if self._aliases is None or self._aliases[0] != base.key:
            self._aliases = base.key, fold_events(self._all_events()).aliases
        return self._aliases[1]

    def _ids_by_key(self) -> dict[str, str]:
        """Return the id of the committed memory by match key."""
        current = self._key()
        with self._lock:
            if self._matches is None or self._matches[0] != current:
                rows = self.rows(_NEWEST, ("memory_id", "match_keys"))
                keys = pc.list_flatten(rows["match_keys"])
                owners = rows["memory_id"].take(pc.list_parent_indices(rows["match_keys"]))
                self._matches = current, dict(zip(keys.to_pylist(), owners.to_pylist(), strict=True))
            return self._matches[1]

    def _whole(self, memory_ids: Collection[str] | None) -> pa.Table:
        if memory_ids is None:
            return self.rows(_NEWEST)
        return self.rows(f"{_NEWEST} AND memory_id IN ({_listed(memory_ids)})")

    def rows(self, where: str, columns: Collection[str] = MEMORY_COLUMNS) -> pa.Table:
        """Return committed versions of memories that meet a condition, by memory and version."""
        names = [*columns, *(name for name, _ in _BY_VERSION if name not in columns)]
        rows = self._lake.memory_rows.read([self._scope], names, f"{IS_VERSION} AND ({where})")
        return rows.sort_by(_BY_VERSION).select(list(columns))

    def _all_events(self, where: str | None = None) -> list[MemoryEvent]:
        return rows_to_events(self._lake.events.read([self._scope], where=where))

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
        where = f"period IN ({_listed(hours)}) AND NOT is_edit"
        rows = self._lake.events.read([self._scope], ["evidence"], where)
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


def _listed(values: Collection[str]) -> str:
    return ", ".join(map(quoted, sorted(values))) or "''"


def _last_order(rows: pa.Table) -> _Order | None:
    if not rows.num_rows:
        return None
    latest = rows.filter(pc.equal(rows["event_at"], pc.max(rows["event_at"]))).to_pylist()
    return max((row["event_at"], not row["is_consolidation"], row["turn"], row["place"], row["id"]) for row in latest)

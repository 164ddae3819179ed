"""Keep the durable memories of a scope in sync with the lake: the stored rows, overlaid with pending events.

The rows are a fold of all committed events. If they include all of them, and pending events are younger, the fold
continues from them. Otherwise all events are folded again. Both ways give the same memories.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.deduplication import is_similar, longest_word, recency
from memory_pipeline.domain.memories.events import CONVERSATION, MemoryVerb, key_of
from memory_pipeline.domain.memories.fold import Memories, changed_by, fold_events, used
from memory_pipeline.domain.memories.links import LINKING, fold_links
from memory_pipeline.domain.memories.record import MemoryClass, MemoryKind, Status
from memory_pipeline.lake.codec.memories import (
    HEADER_COLUMNS,
    IS_VERSION,
    STATE_COLUMNS,
    events_digest,
    fold_states,
    row_to_memory,
    rows_digest,
    rows_to_events,
)
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.index.rows_of_scope import RowsOfScope
from memory_pipeline.lake.index.scope_cache import CACHED_FROM
from memory_pipeline.lake.schemas import MEMORIES
from memory_pipeline.memories.snapshot import JoinedMemories, MemorySnapshot, Rows
from memory_pipeline.overlay import Derived, Overlay
from memory_pipeline.search.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.configuration import MemoriesSettings
    from memory_pipeline.domain.authority import Authority
    from memory_pipeline.domain.memories.events import Changes, MemoryEvent
    from memory_pipeline.domain.memories.links import Link
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.overlay import PendingFile, PendingJournal, Sources

MEMORY_COLUMNS = frozenset(MEMORIES.schema.names) - {"vector", "embed_model", "source_digest", "digest"}
_BASE_COLUMNS = sorted({"id", "digest", "is_newest", *HEADER_COLUMNS, *STATE_COLUMNS})
_EVENT_COLUMNS = ("id", "verb", "memory_id", "event_at", "ordered_at", "is_consolidation", "turn", "place")
#: The condition on the newest versions.
_NEWEST = "is_newest"
_BY_VERSION = [("memory_id", "ascending"), ("version", "ascending")]

_Order = tuple["datetime", bool, int, int, str]
_Events = tuple["MemoryEvent", ...]


@dataclass(slots=True)
class _StoredMemories:
    """The committed state.

    Attributes:
        tables: the events, and all rows of memories, without contents and vectors.
        events: ids of all events.
        alias_ids: ids of REMEMBER events that matched a memory with another id.
        last: the order of the last event.
        is_current: whether the rows include all events.
        matches: the id of the memory by match key, read on demand.
        aliases: the id of the memory by alias, folded on demand.
    """

    tables: tuple[pa.Table, pa.Table]
    rows: Rows
    events: pa.Array
    alias_ids: frozenset[str]
    last: _Order | None
    is_current: bool
    matches: dict[str, str] | None = None
    aliases: dict[str, str] | None = None


@dataclass(slots=True)
class _Past:
    """All events in order, and the snapshot after some of them."""

    events: list[MemoryEvent]
    identity: str
    cached: tuple[list[MemoryEvent], MemorySnapshot] | None = None

    def at(self, until: datetime, time_of: Callable[[MemoryEvent], datetime]) -> MemorySnapshot:
        events, cached = [event for event in self.events if time_of(event) <= until], self.cached
        if cached is None or cached[0] != events:
            snapshot = MemorySnapshot(_NO_ROWS, fold_events(events), is_whole=True, identity=self.identity)
            cached = self.cached = events, snapshot
        return cached[1]


class MemoryOverlay(Overlay[_StoredMemories, "_Events", MemorySnapshot]):
    """The newest memories of a scope. `is_worth` returns whether few rows are cached for other processes, too."""

    def __init__(
        self, lake: Lake, scope: Scope, pending: PendingJournal, is_worth: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(pending)
        self._lake = lake
        self._scope = scope
        self._is_worth = is_worth
        self._event_rows = RowsOfScope(lake.events, scope, _EVENT_COLUMNS, None, is_worth)
        self._memory_rows = RowsOfScope(lake.memory_rows, scope, _BASE_COLUMNS, None, is_worth)
        newest = f"{IS_VERSION} AND ({_NEWEST})"
        self._newest_rows = RowsOfScope(lake.memory_rows, scope, sorted(MEMORY_COLUMNS), newest, is_worth)
        self._past = Derived(self._read_past, self._is_current)

    @property
    def calendar(self) -> Calendar:
        """The lake's calendar."""
        return self._lake.calendar

    @property
    def scope(self) -> Scope:
        """The scope."""
        return self._scope

    def snapshot(self, until: datetime | None = None) -> MemorySnapshot:
        """Return all memories, newest or at `until`, UTC."""
        (base, pending), top = self._current()
        last = base.last
        if until is None or not (
            (last is not None and last[0] > until) or any(event.event_at > until for event in _events_in(pending))
        ):
            return top
        return self._past.of(lambda: self._current()[0])[1].at(until, attrgetter("event_at"))

    def snapshot_placed(self, until: datetime) -> MemorySnapshot:
        """Return all memories after the events that are placed up to `until`, UTC, in the order of events."""
        return self._past.of(lambda: self._current()[0])[1].at(until, attrgetter("placed_at"))

    def placed_from(self, at: datetime) -> dict[str, datetime]:
        """Return the place of the last event of each memory that has one at or after `at`, by the id in the event.

        Clocks differ, so the writer of a new event may have seen such events.
        """
        (base, pending), _ = self._current()
        found = {event.memory_id: event.placed_at for event in sorted(_events_in(pending), key=attrgetter("order"))}
        rows = base.tables[0]
        if base.last is not None and base.last[0] >= at:
            placed = pc.coalesce(rows["ordered_at"], rows["event_at"])
            is_ahead = pc.greater_equal(placed, pa.scalar(at, placed.type))
            names, places = (column.filter(is_ahead).to_pylist() for column in (rows["memory_id"], placed))
            for memory_id, place in zip(names, places, strict=True):
                found[memory_id] = max(place, found.get(memory_id, place))
        return {memory_id: place for memory_id, place in found.items() if place >= at}

    def is_of(self, top: MemorySnapshot) -> bool:
        """Return whether the stored rows are unchanged since a snapshot, so that rows read now belong to it."""
        return self._is_newest(not len(top.rows) or self._refreshed().rows is top.rows)

    def get(self, memory_id: str, until: datetime | None = None) -> DurableMemory | None:
        """Return the newest version of a memory, or that at `until`, UTC; None if it is unknown.

        A merged memory is returned as it was; :meth:`resolved` returns the id of the memory it was merged into.
        """
        snapshot = self.snapshot(until)
        current_id = self._current_id(snapshot, memory_id)
        return self.with_uses(snapshot.load([current_id]), until).get(current_id)

    def with_uses(self, memories: dict[str, DurableMemory], until: datetime | None = None) -> dict[str, DurableMemory]:
        """Return memories with the uses up to `until`, UTC, that the last run counted."""
        if not memories or not self._lake.exists:
            return memories
        for use in self._lake.access_log.uses([self._scope]):
            memory = memories.get(use.memory_id)
            if memory is not None and (until is None or use.at <= until):
                memories[memory.id] = used(memory, use.times, use.at)
        return memories

    def resolved(self, memory_id: str, until: datetime | None = None) -> str:
        """Return the id of the memory that a memory was merged into, or its own id; see :meth:`get`."""
        snapshot = self.snapshot(until)
        return snapshot.resolved(self._current_id(snapshot, memory_id))

    def find(self, changes: Changes) -> DurableMemory | None:
        """Return the memory with the match key of a text to remember, or None."""
        (base, _), snapshot = self._current()
        is_above = snapshot.is_whole or bool(snapshot.above.newest)
        known = (snapshot.above.matches if is_above else self._ids_by_key(base)).get(key_of(changes))
        return None if known is None else self.get(known)

    def similar(self, changes: Changes, said_by: Authority) -> DurableMemory | None:
        """Return the memory of a person that says nearly the same as a text to remember, or None.

        Only words are compared, so that a save needs neither a vector nor a model. Preferences and entries of contexts
        have keys instead.
        """
        top, word = self.snapshot(), longest_word(changes.content or "")[1:]  # without its first letter: any case
        if changes.context is not None or changes.key is not None or not word:
            return None
        status, kind = Status.ACTIVE.value, (changes.kind or MemoryKind.FACT).value
        rows = top.rows
        is_near = top.visible & rows.containing("hook", word)
        if is_near.any():
            is_near &= rows.equal("status", status) & rows.equal("kind", kind)
        near = rows.table["memory_id"].filter(pa.array(is_near)).to_pylist()
        near += [one.id for one in top.above.newest.values() if word in one.hook]
        setting = (None, None, changes.memory_class or MemoryClass.FACTUAL, changes.outcome_success)
        found = [
            memory
            for memory in top.load(near, alone=True).values()
            if memory.is_recalled
            and (memory.kind.value, memory.said_by, memory.context, memory.setting) == (kind, said_by, None, setting)
            and is_similar(changes, memory)
        ]
        return max(found, key=recency, default=None)

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

    def links(self, memory_ids: Collection[str], until: datetime | None = None) -> list[Link]:
        """Return the links of some memories in both directions, strongest first; see :meth:`get`."""
        (base, pending), _ = self._current()
        verbs = pc.is_in(base.tables[0]["verb"], pa.array(sorted(LINKING)))
        if not pc.any(verbs).as_py() and all(event.verb not in LINKING for event in _events_in(pending)):
            return []
        snapshot = self.snapshot(until)

        @cache
        def resolved(one: str) -> str:
            return snapshot.resolved(self._current_id(snapshot, one))

        def is_linked(one: str) -> bool:
            header = snapshot.header(one)
            return header is not None and header.status is not Status.DEPRECATED

        events = [event for event in self.events(verbs=LINKING) if until is None or event.event_at <= until]
        own = set(map(resolved, memory_ids))
        return [link for link in fold_links(events, resolved, is_linked) if own & {link.source_id, link.target_id}]

    def events(
        self, memory_ids: Collection[str] | None = None, verbs: Collection[MemoryVerb] | None = None
    ) -> list[MemoryEvent]:
        """Return the events of some memories, or of all, or those with some verbs, in order."""
        files = self._pending()
        pending = [event for event in _events_in(files) if verbs is None or event.verb in verbs]
        where = None if verbs is None else f"verb IN ({_listed(verbs)})"
        if memory_ids is not None:
            wanted = _listed(memory_ids)
            where = f"memory_id IN ({wanted}) OR other_id IN ({wanted})"
        edited = self._edited_in(files)
        found = _without(self._all_events(where), edited)
        ids = {event.id for event in found}
        fresh = self._unreplaced([event for event in pending if event.id not in ids], edited)
        if memory_ids is not None:
            fresh = [one for one in fresh if one.memory_id in memory_ids or one.other_id in memory_ids]
        return sorted([*found, *fresh], key=lambda event: event.order)

    def aliases(self, memory_ids: Collection[str]) -> set[str]:
        """Return the ids of the REMEMBER events that repeated some memories in another hour."""
        (base, _), top = self._current()
        known = dict(top.above.aliases)
        if not top.is_whole and base.alias_ids:
            known = self._aliases_of(base) | known
        return {alias for alias, memory_id in known.items() if memory_id in memory_ids}

    def _stored(self, known: _StoredMemories | None) -> _StoredMemories:
        events, rows = self._event_rows.read(), self._memory_rows.read()
        if known is not None and known.tables[0] is events and known.tables[1] is rows:
            return known
        state = fold_states(rows.filter(pc.equal(rows["version"], 0))).get(self._scope)
        versions = rows.filter(pc.greater(rows["version"], 0))
        newest = versions.filter(versions[_NEWEST]).sort_by("memory_id").select(HEADER_COLUMNS)
        ids = events["id"].to_pylist()
        if state is None:
            is_current = not ids and not versions.num_rows
        else:
            found = events_digest(ids), rows_digest(versions["digest"].to_pylist())
            is_current = (state.events, state.rows) == found
        remembered = events["memory_id"].filter(pc.equal(events["verb"], MemoryVerb.REMEMBER.value))
        aliases = remembered.filter(pc.invert(pc.is_in(remembered, newest["memory_id"].combine_chunks())))
        return _StoredMemories(
            (events, rows),
            Rows(newest, self._whole),
            events["id"].combine_chunks(),
            frozenset(aliases.to_pylist()),
            _last_order(events),
            is_current,
        )

    def _recorded(self, files: Sequence[PendingFile]) -> list[_Events]:
        return [(*file.events, *events_of(file.durable_facts, lambda _: self.settings)) for file in files]

    def _fold(self, base: _StoredMemories, pending: Mapping[str, _Events]) -> MemorySnapshot:
        new = self._new(base, pending)
        edited = self._edited_in(pending)
        if edited or not base.is_current or any(base.last is not None and event.order < base.last for event in new):
            memories = fold_events([*_without(self._all_events(), edited), *new])
            return MemorySnapshot(_NO_ROWS, memories, is_whole=True, identity=self._scope.identity)
        memories = fold_events(new, self._affected(base, new)) if new else Memories()
        return MemorySnapshot(base.rows, memories, identity=self._scope.identity)

    def _read_past(self, sources: Sources[_StoredMemories, _Events]) -> _Past:
        events = [*_without(self._all_events(), self._edited_in(sources.pending)), *self._new(*sources)]
        return _Past(sorted(events, key=lambda event: event.order), self._scope.identity)

    def _affected(self, base: _StoredMemories, new: Iterable[MemoryEvent]) -> Memories:
        """Return the committed memories that events may change."""
        matches, aliases = self._ids_by_key(base), dict[str, str]()

        def unaliased(one: str) -> str:
            if one in base.alias_ids:
                aliases[one] = self._aliases_of(base)[one]
            return aliases.get(one, one)

        named = changed_by(new, matches, base.rows.successors, unaliased)
        return Memories(newest=base.rows.memories(named, alone=True), matches=dict(matches), aliases=aliases)

    def _current_id(self, top: MemorySnapshot, memory_id: str) -> str:
        """Return the id of a memory: the given one, or that of an earlier memory with the same words."""
        if memory_id in top or memory_id in top.above.aliases:
            return memory_id if memory_id in top else top.above.aliases[memory_id]
        base = self._base
        if top.is_whole or base is None or memory_id not in base.alias_ids:
            return memory_id
        return self._aliases_of(base).get(memory_id, memory_id)

    def _aliases_of(self, base: _StoredMemories) -> dict[str, str]:
        """Return the memory by alias; this folds all events."""
        if base.aliases is None:
            base.aliases = fold_events(self._all_events()).aliases
        return base.aliases

    def _ids_by_key(self, base: _StoredMemories) -> dict[str, str]:
        """Return the id of the committed memory by match key."""
        if base.matches is None:
            rows = self.rows(_NEWEST, ("memory_id", "match_keys"))
            keys = pc.list_flatten(rows["match_keys"])
            owners = rows["memory_id"].take(pc.list_parent_indices(rows["match_keys"]))
            base.matches = dict(zip(keys.to_pylist(), owners.to_pylist(), strict=True))
        return base.matches

    def _whole(self, memory_ids: Collection[str] | None) -> pa.Table:
        if memory_ids is None:
            return self._newest_rows.read()
        return self.rows(f"{_NEWEST} AND memory_id IN ({_listed(memory_ids)})")

    def rows(self, where: str, columns: Collection[str] = MEMORY_COLUMNS) -> pa.Table:
        """Return committed versions of memories that meet a condition, by memory and version."""
        names = [*columns, *(name for name, _ in _BY_VERSION if name not in columns)]
        rows = self._lake.memory_rows.read([self._scope], names, f"{IS_VERSION} AND ({where})")
        return rows.sort_by(_BY_VERSION).select(list(columns))

    def laid_out(self, part: str, form: str, lay_out: Callable[[], RowBlock]) -> RowBlock:
        """Return a layout of stored rows: one that another process cached, or else a new one.

        `part` names the rows. `form` tells what else they depend on: a layout of another form is not used.
        """
        rows = self._lake.memory_rows
        version = rows.version(self._scope)
        entry = rows.cached(self._scope, part, form)
        if entry is not None and entry.version == version:
            return RowBlock.restored(entry, self._scope)
        block = lay_out()
        if len(block) >= CACHED_FROM or self._is_worth():
            rows.store_cached(self._scope, part, form, block.cache_entry(version))
        return block

    def _all_events(self, where: str | None = None) -> list[MemoryEvent]:
        return rows_to_events(self._lake.events.read([self._scope], where=where))

    def _new(self, base: _StoredMemories, pending: Mapping[str, _Events]) -> list[MemoryEvent]:
        """Return the pending events that are not committed yet."""
        events = _events_in(pending)
        edited = self._edited_in(pending)
        committed = pc.is_in(pa.array([event.id for event in events], pa.string()), base.events).to_pylist()
        # Committed events of an edited message no longer count, so its pending ones are new.
        known = [is_there and not _is_of(event, edited) for event, is_there in zip(events, committed, strict=True)]
        return self._unreplaced([event for event, is_known in zip(events, known, strict=True) if not is_known], edited)

    def _unreplaced(self, events: list[MemoryEvent], edited: Collection[str]) -> list[MemoryEvent]:
        """Leave out events that rules derived from a message if those of a model are committed."""
        hours = {event.hour.key for event in events if event.editor == CONVERSATION}
        if not hours:
            return events
        where = f"period IN ({_listed(hours)}) AND NOT is_edit"
        rows = self._lake.events.read([self._scope], ["evidence"], where)
        processed = set(pc.list_flatten(rows["evidence"]).to_pylist()).difference(edited)
        return [event for event in events if event.editor != CONVERSATION or processed.isdisjoint(event.evidence)]

    @cached_property
    def settings(self) -> MemoriesSettings:
        """The agent's configuration of durable memories."""
        return self._lake.configuration().memories(self._scope)


class JoinedOverlays:
    """The newest memories of the scopes that `scopes` returns; methods as in :class:`MemoryOverlay`.

    The ids of memories are unique over scopes. So the scopes are asked for an id in turn. `user_id` is the user for
    whom they are read, if any.
    """

    def __init__(self, scopes: Callable[[], Sequence[MemoryOverlay]], user_id: str | None = None) -> None:
        self._scopes = scopes
        self.user_id = user_id

    @property
    def calendar(self) -> Calendar:
        """The lake's calendar."""
        return self._scopes()[0].calendar

    @property
    def settings(self) -> MemoriesSettings:
        """The agent's configuration of durable memories."""
        return self._scopes()[0].settings

    def snapshot(self, until: datetime | None = None) -> JoinedMemories:
        """Return all memories, newest or at `until`, UTC."""
        return JoinedMemories([scope.snapshot(until) for scope in self._scopes()])

    def get(self, memory_id: str, until: datetime | None = None) -> DurableMemory | None:
        """Return the newest version of a memory, or that at `until`, UTC; None if it is unknown."""
        found = (scope.get(memory_id, until) for scope in self._scopes())
        return next((memory for memory in found if memory is not None), None)

    def with_uses(self, memories: dict[str, DurableMemory], until: datetime | None = None) -> dict[str, DurableMemory]:
        """Return memories with the uses up to `until`, UTC, that the last run counted."""
        for scope in self._scopes():
            memories = scope.with_uses(memories, until)
        return memories

    def resolved(self, memory_id: str, until: datetime | None = None) -> str:
        """Return the id of the memory that a memory was merged into, or its own id."""
        found = (scope.resolved(memory_id, until) for scope in self._scopes())
        return next((other for other in found if other != memory_id), memory_id)

    def history(self, memory_id: str, until: datetime | None = None) -> tuple[DurableMemory, ...]:
        """Return all versions of a memory, oldest first."""
        return next((found for scope in self._scopes() if (found := scope.history(memory_id, until))), ())

    def links(self, memory_ids: Collection[str], until: datetime | None = None) -> list[Link]:
        """Return the links of some memories, strongest first in each scope. They do not leave their scope."""
        return [link for scope in self._scopes() for link in scope.links(memory_ids, until)]

    def aliases(self, memory_ids: Collection[str]) -> set[str]:
        """Return the ids of the REMEMBER events that repeated some memories in another hour."""
        return {alias for scope in self._scopes() for alias in scope.aliases(memory_ids)}

    def events(self, memory_ids: Collection[str] | None = None) -> list[MemoryEvent]:
        """Return the events of some memories, or of all, in order."""
        found = [event for scope in self._scopes() for event in scope.events(memory_ids)]
        return sorted(found, key=lambda event: event.order)


_NO_ROWS = Rows(MEMORIES.schema.empty_table(), lambda _: MEMORIES.schema.empty_table())


def _events_in(pending: Mapping[str, _Events]) -> list[MemoryEvent]:
    """Return pending events, including those that rules derive from messages, each once."""
    return list({event.id: event for events in pending.values() for event in events}.values())


def _is_of(event: MemoryEvent, edited: Collection[str]) -> bool:
    return event.editor == CONVERSATION and any(source in edited for source in event.evidence)


def _without(events: list[MemoryEvent], edited: Collection[str]) -> list[MemoryEvent]:
    """Leave out events that were derived from messages with a later text."""
    return [event for event in events if not _is_of(event, edited)] if edited else events


def _listed(values: Collection[str]) -> str:
    return ", ".join(map(quoted, sorted(values))) or "''"


def _last_order(rows: pa.Table) -> _Order | None:
    if not rows.num_rows:
        return None
    placed = pc.coalesce(rows["ordered_at"], rows["event_at"])
    last = pc.max(placed)
    latest = rows.filter(pc.equal(placed, last)).to_pylist()
    return max((last.as_py(), not row["is_consolidation"], row["turn"], row["place"], row["id"]) for row in latest)

"""Contexts: named containers of durable memories in one scope, with snapshots.

A context is a durable memory itself, and so are its entries, which carry its name. A snapshot is a name for a point in
time, an UPDATE of the context's memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from memory_pipeline.domain.access import EVERYONE, POOL, AccessLevel
from memory_pipeline.domain.memories.events import AGENT, Changes, MemoryVerb
from memory_pipeline.domain.memories.record import CONTEXTS, ContextScope, ContextType, DurableMemory, Status
from memory_pipeline.domain.scopes import label_of
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.memories.queries import until_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import When
    from memory_pipeline.lake import Lake
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory
    from memory_pipeline.memories.snapshot import MemorySnapshot
    from memory_pipeline.memories.state import MemoryOverlay

    # Inside of the class, `list` is its method.
    Listed = list["Context"]
    Entries = list[DurableMemory]
    Matches = list[RecalledMemory]

#: What a restore brings back.
RESTORED: Final = (
    "content", "value", "title", "hook", "kind", "subject", "predicate", "object", "importance", "confidence",
    "decay_rate", "is_point_in_time", "memory_class", "outcome_success", "tags",
)  # fmt: skip


_Method = TypeVar("_Method", bound="Callable[..., Any]")


def _reading(method: _Method) -> _Method:
    """Ask for the grant to read a context before a method of :class:`Contexts`, and log its results."""

    @wraps(method)
    def call(self: Contexts, *args: Any, **options: Any) -> Any:
        operation, name = f"contexts.{method.__name__}", args[0] if args else options.get("name")
        if args or "name" in options:
            label_of("name", name)
        grant = self._require(operation, AccessLevel.READ, name)
        result = method(self, *args, **options)
        self._log(operation, grant, result)
        return result

    return cast("_Method", call)


@dataclass(frozen=True, slots=True)
class Context:
    """A context.

    Attributes:
        type: agent_memory, knowledge_base, shared_context, tool_cache or project_context.
        scope: ``global`` if all agents of the workspace may read it, ``team`` if a team may, else ``agent``. Grants
            of the context decide.
    """

    name: str
    type: ContextType
    description: str
    is_archived: bool
    created_at: datetime
    scope: ContextScope


class Contexts:
    """The contexts of a scope. Take it from :attr:`Memory.contexts`, or for another agent from :meth:`Memory.of_agent`.

    The consolidation leaves entries alone: it neither merges nor archives them. They are searched and listed with
    other memories, or alone. All methods raise InputError if an argument is invalid, or the context unknown. `now` is
    the time of the change; the current time by default.

    For another agent, each call needs a grant of the context or of the whole memory: of the level ``read`` to read, of
    ``write`` to change it. Without one it raises AccessDeniedError.
    """

    def __init__(
        self,
        lake: Lake,
        state: MemoryOverlay,
        change: Callable[[Sequence[object], When | None, str], Sequence[str]],
        require: Callable[[str, AccessLevel, str | None], AccessEvent | None],
        log: Callable[[str, AccessEvent | None, object], None],
        share: Callable[[str, str | None, When | None], None],
    ) -> None:
        """`change` writes changes at a time to entries of a context, or to the context itself.

        `require` returns the grant of an operation, or raises AccessDeniedError if the memory is another agent's and no
        grant of a level opens the whole memory, or a context. `log` logs what an operation returned. `share` lets a
        team, or all agents of the workspace, read a context.
        """
        self._lake = lake
        self._state = state
        self._change = change
        self._require = require
        self._log = log
        self._share = share

    def create(
        self,
        name: str,
        type: ContextType | str = ContextType.AGENT_MEMORY,  # noqa: A002  # its usual name
        description: str | None = None,
        *,
        scope: ContextScope | str = ContextScope.AGENT,
        team: str | None = None,
        now: When | None = None,
    ) -> Context:
        """Create a context, or return it if it exists. For another agent, a new one needs the whole memory.

        Args:
            name: the name.
            type: its purpose.
            description: a sentence about its contents.
            scope: who reads it: ``agent``, its own agent alone; ``team``, a team too; or ``global``, all agents of the
                workspace. It is a grant of the context; see :meth:`Memory.grant`.
            team: the team, for its scope.
            now: the time of the change.

        Raises:
            InputError: it exists with another type, or an argument is invalid.
        """
        reach = one_of(ContextScope, "scope", scope)
        if (reach is ContextScope.TEAM) is (team is None):
            raise InputError(
                f"team {shown(team)} does not fit the scope {reach}; the scope team needs one, no other takes"
            )
        self._may_write("create", name)
        kind, known = one_of(ContextType, "type", type), self._memory(name)
        if name == CONTEXTS or name.startswith(POOL):
            raise InputError(f"name {shown(name)} is reserved; choose another one")
        if not isinstance(description, str | None):
            raise InputError(f"description {shown(description)} is not a text")
        if known is None:
            self._require("contexts.create", AccessLevel.WRITE, None)  # a grant may be left of one that was forgotten
            content = description or f"Context {name} ({kind.value.replace('_', ' ')})"
            record = {"content": content, "title": name, "context": CONTEXTS, "key": name, "tags": [kind.value]}
            self._change([{"memory": MemoryVerb.REMEMBER.value, **record}], now, name)
        elif known.tags != (kind.value,):
            raise InputError(f"context {shown(name)} exists and has the type {known.tags[0]}, not {kind.value}")
        if reach is not ContextScope.AGENT:
            self._share(name, team, now)
        return self._described([self._known(name)])[0]

    @_reading
    def list(self, *, now: When | None = None) -> Listed:
        """Return all contexts by name, archived ones too. For another agent, this needs the whole memory."""
        found = self._in(CONTEXTS, until_of(now, self._state.calendar)).values()
        contexts = self._described([one for one in found if one.status is not Status.DEPRECATED])
        return sorted(contexts, key=lambda context: context.name)

    def put(
        self, name: str, key: str, text: str, value: object = None, *, editor: str = AGENT, now: When | None = None
    ) -> str:
        """Write an entry: new, or the next version of the one with that key; return its id.

        Args:
            name: the context.
            key: the key.
            text: what searches read.
            value: any JSON; without it, that of an earlier version stays.
            editor: the author of the change.
            now: the time of the change.
        """
        label_of("key", key)
        self._may_write("put", name)
        entry: dict[str, object] = {"content": text, "context": name, "key": key, "editor": editor}
        entry |= {} if value is None else {"value": value}
        return self._change([{"memory": MemoryVerb.REMEMBER.value, **entry}], now, name)[0]

    def remove(self, name: str, key: str, *, editor: str = AGENT, now: When | None = None) -> bool:
        """Revoke an entry, and keep its history; return whether there was one."""
        self._may_write("remove", name)
        self._unarchived(name)
        found = self._entry(name, key)
        if found is not None:
            change = {"memory": MemoryVerb.FORGET.value, "memory_id": found.id, "editor": editor}
            self._change([change], now, name)
        return found is not None

    @_reading
    def get(self, name: str, key: str) -> DurableMemory | None:
        """Return the newest version of an entry; None if it is unknown, or the context is archived."""
        self._known(name)
        return self._entry(name, key)

    @_reading
    def entries(self, name: str, *, now: When | None = None) -> Entries:
        """Return the entries of a context, by key; none of an archived context."""
        found = self._in(self._name(name), until_of(now, self._state.calendar)).values()
        return sorted((one for one in found if one.is_active), key=lambda entry: (entry.key or "", entry.id))

    @_reading
    def search(self, name: str, query: str, max_results: int = 5) -> Matches:
        """Return the best entries of a context for a query, best first; none of an archived context.

        Args:
            name: the context.
            query: text to search for.
            max_results: maximum number of results, 1 to 100.
        """
        return self._search.search(query, max_results, context=self._name(name), hops=0)

    def archive(self, name: str, *, now: When | None = None) -> int:
        """Take the entries of a context out of all searches but that of the archive; return their number.

        Until :meth:`unarchive`, nothing can be put, removed or named by a snapshot.
        """
        self._may_write("archive", name)
        record, reason = self._known(name), f"context {name} is archived"
        active = {own for own, one in self._in(record.key or name, None).items() if one.is_active}
        return self._switch(record, active, MemoryVerb.DEACTIVATE, reason, now) if record.is_active else 0

    def unarchive(self, name: str, *, now: When | None = None) -> int:
        """Bring back the entries of an archived context; return their number."""
        self._may_write("unarchive", name)
        record = self._known(name)
        archived = {
            own
            for own, one in self._in(record.key or name, None).items()
            if one.status is Status.ARCHIVED and one.status_reason == record.status_reason
        }
        reason = f"context {name} is no longer archived"
        return 0 if record.is_active else self._switch(record, archived, MemoryVerb.REACTIVATE, reason, now)

    def delete(self, name: str, *, now: When | None = None) -> int:
        """Revoke a context and its entries, archived ones too; return their number. The history keeps them.

        A context that is created with the same name begins empty. It has the snapshots of the deleted one, and its
        grants unless they are revoked.
        """
        self._may_write("delete", name)
        record = self._known(name)
        entries = {
            own
            for own, one in self._in(record.key or name, None).items()
            if one.is_active or one.status is Status.ARCHIVED
        }
        return self._switch(record, entries, MemoryVerb.FORGET, f"context {name} is deleted", now)

    def snapshot(self, name: str, label: str, *, now: When | None = None) -> None:
        """Name the present state of a context, to restore it later. The last snapshot with a label counts."""
        self._may_write("snapshot", name)
        record = self._unarchived(name)
        change = {"memory": MemoryVerb.UPDATE.value, "memory_id": record.id, "value": label_of("label", label)}
        self._change([change], now, name)

    @_reading
    def snapshots(self, name: str) -> dict[str, datetime]:
        """Return the snapshots of a context: the time of each, UTC, by its label."""
        return {label: event.event_at for label, event in self._snapshots(name).items()}

    def _snapshots(self, name: str) -> dict[str, MemoryEvent]:
        events = self._state.events({self._known(name).id})
        return {str(json.loads(one.changes.value)): one for one in events if one.changes.value is not None}

    def restore(self, name: str, label: str, *, editor: str = AGENT, now: When | None = None) -> int:
        """Bring the entries of a context back to what they were at a snapshot; return the number of changed ones.

        It writes new versions, and revokes entries that are newer: the history keeps everything.
        """
        self._may_write("restore", name)
        name, known = self._name(name), self._snapshots(name)
        label_of("label", label)
        if label not in known:
            raise InputError(
                f"context {shown(name)} has no snapshot {shown(label)}; it has: {', '.join(known) or 'none'}"
            )
        then = _entries_of(self._state.snapshot_placed(known[label].placed_at), name)
        before = {own: one for own, one in then.items() if one.is_active}
        current = self._in(name, None)
        who = {"editor": editor, "reason": f"restored from snapshot {label}"}
        changes: list[dict[str, Any]] = [
            {"memory": MemoryVerb.FORGET.value, "memory_id": own, **who}
            for own, one in current.items()
            if one.is_active and own not in before
        ]
        for own, old in before.items():
            fields, present = _restored(old), _restored(current[own])
            if fields != present or not current[own].is_active:
                cleared = [name for name in present if fields[name] is None and present[name] is not None]
                if fields["value"] == present["value"]:
                    del fields["value"]
                fields["cleared"] = cleared or None
                changes.append({"memory": MemoryVerb.UPDATE.value, "memory_id": own, **fields, **who})
        self._change(changes, now, name)
        return len(changes)

    def _switch(self, record: DurableMemory, entries: set[str], verb: MemoryVerb, reason: str, now: When | None) -> int:
        changes = [{"memory": verb.value, "memory_id": own, "reason": reason} for own in (record.id, *entries)]
        self._change(changes, now, record.key or "")
        return len(entries)

    def _described(self, found: Entries) -> Listed:
        grants = self._lake.access.state(self._state.scope).grants
        everyone = {one.context for one in grants if one.to_agent == EVERYONE}
        teams = {one.context for one in grants if one.to_team is not None}
        return [
            Context(
                name := one.key or "",
                ContextType(one.tags[0]),
                one.content,
                one.status is Status.ARCHIVED,
                one.created_at,
                ContextScope.GLOBAL if name in everyone else ContextScope.TEAM if name in teams else ContextScope.AGENT,
            )
            for one in found
        ]

    def _may_write(self, operation: str, name: str) -> None:
        label_of("name", name)
        self._require(f"contexts.{operation}", AccessLevel.WRITE, name)

    @cached_property
    def _search(self) -> MemorySearch:
        # Imported late: most programs search contexts with other memories, by a reader.
        from memory_pipeline.graph import Graph
        from memory_pipeline.graph.state import JoinedGraphs
        from memory_pipeline.memories.ranker import MemoryLayouts, MemoryRanker
        from memory_pipeline.memories.search import MemorySearch
        from memory_pipeline.memories.state import JoinedOverlays
        from memory_pipeline.models.factory import reading_embedder

        state, calendar = self._state, self._state.calendar
        embedder = reading_embedder(self._lake.configuration(), lambda: datetime.now(UTC))
        layouts = MemoryLayouts(state, embedder)
        ranker = MemoryRanker(lambda: [layouts], embedder, calendar)
        graph = Graph(JoinedGraphs(list, None), calendar)
        return MemorySearch(JoinedOverlays(lambda: [state]), ranker, embedder, graph, calendar)

    def _entry(self, name: str, key: str) -> DurableMemory | None:
        found = self._state.find(Changes.of({"context": name, "key": key}))
        return found if found is not None and found.is_active else None

    def _name(self, name: str) -> str:
        """Return the name of a context as it is stored."""
        return self._known(name).key or name

    def _memory(self, name: str) -> DurableMemory | None:
        found = self._state.find(Changes.of({"context": CONTEXTS, "key": name}))
        return None if found is None or found.status is Status.DEPRECATED else found

    def _known(self, name: str) -> DurableMemory:
        if (found := self._memory(name)) is None:
            raise InputError(f"context {shown(name)} is unknown; create it first")
        return found

    def _unarchived(self, name: str) -> DurableMemory:
        if not (found := self._known(name)).is_active:
            raise InputError(f"context {shown(name)} is archived; unarchive it first")
        return found

    def _in(self, name: str, until: datetime | None) -> dict[str, DurableMemory]:
        """Return the entries of a context by id, whatever their status, at `until`, UTC."""
        return _entries_of(self._state.snapshot(until), name)


def _entries_of(top: MemorySnapshot, name: str) -> dict[str, DurableMemory]:
    """Return the entries of a context by id, whatever their status."""
    headers = top.headers(lambda rows: rows.equal("context", name))
    return top.load([header.id for header in headers])


def _restored(memory: DurableMemory) -> dict[str, Any]:
    return {field: getattr(memory, field) for field in RESTORED} | {"value": json.loads(memory.value or "null")}

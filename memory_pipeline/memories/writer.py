"""Write changes of durable memories, as events in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.access import AccessLevel
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.fields import MemoryFields, MemoryFilters, NewMemoryFields, check_names
from memory_pipeline.domain.memories.events import AGENT, STEP, MemoryVerb, key_of
from memory_pipeline.domain.memories.record import CONTEXTS, MemoryKind, Status
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.event_clock import TOLERANCE, EventClock
from memory_pipeline.memories.change_events import ChangeValidator, as_stored
from memory_pipeline.overlay import one_read
from memory_pipeline.telemetry import observed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date
    from typing import Unpack

    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.memories import MemoryOverlay
    from memory_pipeline.memories.contexts import Contexts
    from memory_pipeline.memories.snapshot import MemorySnapshot
    from memory_pipeline.overlay import PendingJournal

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class MemoryEventWriter:
    """Changes one agent's durable memories. A change is durable and visible to readers when the method returns.

    Nothing is destroyed: changed and revoked content stays in the memory's history. A change follows all changes of the
    same memory, or of the same context, that its writer sees, whatever their clocks said. One with a `now` more than
    five minutes before them is about the past, as is one with a ``timestamp``. Of two changes that do not know of each
    other, the later time wins. Changes of one writer at the same time are ordered by added microseconds. The id of a
    merged memory stays valid and refers to the memory it was merged into.

    In all methods `editor` is the author of the change, `reason` has at most 500 characters, and `now` is the time of
    the change, by default the current time. `start` is the first accepted day, by default the lake's. `users` are the
    members of the group, if the scope is a group's. `conversation_id` is that of the session of which it is written.
    """

    def __init__(
        self,
        lake: Lake,
        scope: Scope,
        start: date | None = None,
        users: Sequence[str] = (),
        conversation_id: str | None = None,
    ) -> None:
        self._lake = lake
        self._scope = scope
        self._users = users
        self._conversation_id = conversation_id
        self._start = start or lake.accepts_from
        self._clock = EventClock()

    @observed("create_memory")
    def remember(
        self,
        content: str,
        kind: MemoryKind | str = MemoryKind.FACT,
        *,
        editor: str = AGENT,
        now: When | None = None,
        **fields: Unpack[NewMemoryFields],
    ) -> str:
        """Remember something durably; return the id of the memory.

        Write a self-contained sentence, with names and dates. Content that is known already in the same words, apart
        from case, punctuation and articles, is not added again. Instead that memory gets a new version, and becomes
        active again if it was revoked. An active memory with nearly the same words gets a new version too, with the
        longer of both texts; numbers, names, negations and the order of words must be the same.

        Args:
            content: text that can be understood by itself, at most 20,000 characters.
            kind: what sort of memory it is: fact, rule, instruction, observation, preference, procedure, reflection,
                decision, plan, tool_output or conversation_summary.
            editor: the author of the change.
            now: the time of the change; the current time by default.
            fields: see :class:`~memory_pipeline.domain.fields.NewMemoryFields`.

        Raises:
            InputError: an argument is invalid, or the configuration does not allow this agent to keep that kind.
                Nothing was written.
        """
        check_names(fields, NewMemoryFields)
        # The tags are always part of the event, and so of its id.
        tags = fields.get("tags")
        changes = {"content": content, "kind": kind, **fields, "tags": () if tags is None else tags}
        return self._one(MemoryVerb.REMEMBER, None, changes, editor, None, now)

    @observed("update_memory")
    def update(
        self,
        id: str,  # noqa: A002  # the same name as in the reader
        content: str | None = None,
        *,
        kind: MemoryKind | str | None = None,
        editor: str = AGENT,
        reason: str | None = None,
        now: When | None = None,
        **fields: Unpack[MemoryFields],
    ) -> str:
        """Write a new version of a memory; return its id. Old versions stay in the history.

        What is not given stays as it is. New content derives title, hook, subject, predicate and object again, or
        removes them, unless they are given too. A revoked memory becomes active again. A memory that becomes factual
        loses its outcome.

        Args:
            id: the id of the memory.
            content: the new content.
            kind: the new kind.
            editor: the author of the change.
            reason: why, at most 500 characters; shown with the history.
            now: the time of the change; the current time by default.
            fields: see :class:`~memory_pipeline.domain.fields.MemoryFields`. Tags replace all tags.

        Raises:
            InputError: an argument is invalid, no change is given, the configuration does not allow this agent to keep
                that kind, or this agent has no such memory. Nothing was written.
        """
        check_names(fields, MemoryFields)
        return self._one(MemoryVerb.UPDATE, id, {"content": content, "kind": kind, **fields}, editor, reason, now)

    @observed("delete_memory")
    def forget(
        self,
        id: str | None = None,  # noqa: A002  # as above
        *,
        editor: str = AGENT,
        reason: str | None = None,
        now: When | None = None,
        **filters: Unpack[MemoryFilters],
    ) -> int:
        """Revoke one memory, or all that match every filter; return the number.

        Revoked memories stay in the history. No search of memories finds them, not even of the archive, and recall
        leaves out sentences with the same words. Recall still finds a message that says more, and other searches of
        conversations find all messages. To erase what someone said from disk, use ``memory-pipeline forget``.

        Args:
            id: the id of a memory; or give filters, which are combined with AND.
            editor: the author of the change.
            reason: why, at most 500 characters; shown with the history.
            now: the time of the change; the current time by default.
            filters: see :class:`~memory_pipeline.domain.fields.MemoryFilters`.

        Raises:
            InputError: neither an id nor a filter is given, or both are; an argument is invalid; or this agent has no
                such memory. Nothing was written.
        """
        check_names(filters, MemoryFilters)
        filters = {**filters, "user_id": as_stored(filters.get("user_id")), "key": as_stored(filters.get("key"))}
        self._require_grant("forget")
        has_filter = any(value is not None for value in filters.values())
        if (id is None) is not has_filter:
            problem = "both are given" if has_filter else "neither is given"
            accepted = ", ".join(MemoryFilters.__annotations__)
            raise InputError(f"forget takes an id, or a filter of {accepted}; {problem}")
        if id is None:
            found = self._validator.passing(filters)
        else:
            known = self._validator.header(id)
            found = [] if known.status is Status.DEPRECATED else [known.id]
        self._write([_record(MemoryVerb.FORGET, one, {}, editor, reason) for one in found], now)
        return len(found)

    def boost(self, id: str, amount: float = STEP, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Raise a memory's importance, up to 1; return its id.

        Args:
            id: the id of the memory.
            amount: how much, 0 to 1.
            now: the time of the change.

        Raises:
            InputError: `amount` is not from 0 to 1, or this agent has no such memory. Nothing was written.
        """
        return self._one(MemoryVerb.BOOST, id, {"amount": amount}, AGENT, None, now)

    def reduce(self, id: str, amount: float = STEP, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Lower a memory's importance, down to 0; return its id.

        Args:
            id: the id of the memory.
            amount: how much, 0 to 1.
            now: the time of the change.

        Raises:
            InputError: `amount` is not from 0 to 1, or this agent has no such memory. Nothing was written.
        """
        return self._one(MemoryVerb.REDUCE, id, {"amount": amount}, AGENT, None, now)

    def confirm(
        self,
        id: str,  # noqa: A002  # as above
        *,
        editor: str = AGENT,
        reason: str | None = None,
        now: When | None = None,
    ) -> str:
        """Confirm that a memory is still valid; return its id.

        The memory counts as stated now, and its confidence rises by 0.1. An observation becomes a fact with the same
        id.

        Raises:
            InputError: an argument is invalid, the configuration does not allow this agent to keep that kind, or this
                agent has no such memory. Nothing was written.
        """
        return self._one(MemoryVerb.CONFIRM, id, {}, editor, reason, now)

    def touch(self, ids: Iterable[str], *, now: When | None = None) -> int:
        """Record that memories were used, which keeps them from fading; return their number, without duplicates.

        Raises:
            InputError: this agent has no memory with one of the ids. Nothing was written.
        """
        if isinstance(ids, str | bytes):
            raise InputError(f"ids {shown(ids)} is not accepted; expected a list of ids")
        self._require_grant("touch")
        found = list(dict.fromkeys(self._validator.header(one).id for one in ids))
        self._write([_record(MemoryVerb.ACCESS, one) for one in found], now)
        return len(found)

    def link(
        self, source_id: str, target_id: str, relation: str, weight: float = 1.0, *, now: When | None = None
    ) -> str:
        """Link a memory to another one, or change the weight of the link; return the id of the source.

        Args:
            source_id: the memory from which the link leads.
            target_id: the memory to which it leads.
            relation: a name such as ``supports`` or ``caused_by``; two memories may have links of several relations.
            weight: strength of the relationship, 0 to 1.
            now: the time of the change.

        Raises:
            InputError: an argument is invalid, or this agent has no such memories. Nothing was written.
        """
        fields = {"other_id": target_id, "relation": relation, "weight": weight}
        return self._one(MemoryVerb.LINK, source_id, fields, AGENT, None, now)

    def unlink(self, source_id: str, target_id: str, relation: str, *, now: When | None = None) -> str:
        """Remove the link from a memory to another one, if there is one; return the id of the source.

        Raises:
            InputError: an argument is invalid, or this agent has no such memories. Nothing was written.
        """
        fields = {"other_id": target_id, "relation": relation}
        return self._one(MemoryVerb.UNLINK, source_id, fields, AGENT, None, now)

    def set_preference(
        self, user_id: str, key: str, value: object, *, editor: str = AGENT, now: When | None = None
    ) -> str:
        """Set a user's preference in place of the old value; return the id of the memory.

        A preference never fades or expires. It is valid until it is set again or deleted. `user_id` and `key`, its
        name, have at most 256 characters. `value` is any JSON (None, a boolean, a number, a text, a list or a mapping)
        of at most 20,000 characters.

        Raises:
            InputError: an argument is invalid, or the configuration does not allow this agent to keep preferences.
                Nothing was written.
        """
        fields = {"kind": MemoryKind.PREFERENCE, "user_id": user_id, "key": key, "value": value}
        return self._one(MemoryVerb.REMEMBER, None, fields, editor, None, now)

    def delete_preference(self, user_id: str, key: str, *, reason: str | None = None, now: When | None = None) -> bool:
        """Revoke a preference; return whether there was one. It stays in the history.

        Raises:
            InputError: an argument is invalid.
        """
        if user_id is None or key is None:
            # `forget` would ignore a filter of None and revoke more.
            raise InputError(f"user_id {shown(user_id)} and key {shown(key)} are not accepted; expected two texts")
        return bool(self.forget(kind=MemoryKind.PREFERENCE, user_id=user_id, key=key, reason=reason, now=now))

    def change_memories(self, changes: Sequence[Mapping[str, object]], *, now: When | None = None) -> list[str]:
        """Make many changes with one write; return the ids of the memories, in order. All are validated first.

        A change is a mapping with ``memory`` (REMEMBER, UPDATE, FORGET, BOOST, REDUCE, CONFIRM, ACCESS, LINK,
        UNLINK, or DEACTIVATE and REACTIVATE to archive it), the arguments of the method of that name, and ``memory_id``
        for all but REMEMBER; of a link, ``memory_id`` is the source and ``other_id`` the target. Optional: ``editor``,
        ``reason``, ``timestamp`` (a time with its zone, in place of `now`), and ``conversation_id`` (of an import: its
        source). ``cleared`` lists the fields that an
        UPDATE empties: subject, predicate, object, value or outcome_success. A preference is a REMEMBER with
        ``user_id``, ``key`` and ``value``, any JSON.

        Raises:
            InputError: a change is invalid; the message says which. Nothing was written.
        """
        if isinstance(changes, str | bytes | Mapping) or not isinstance(changes, Sequence):
            raise InputError(f"changes {shown(changes)} is not accepted; expected a list of mappings")
        return self._write(changes, now)

    def _require_grant(
        self,
        operation: str,  # noqa: ARG002  # here and below: of a writer for another agent
        level: AccessLevel = AccessLevel.WRITE,  # noqa: ARG002
        context: str | None = None,  # noqa: ARG002
    ) -> AccessEvent | None:
        """Return the grant of an operation if this memory is another agent's: of the whole memory, or of a context.

        Raises:
            AccessDeniedError: there is none. Call this before anything is read.
        """
        return None

    def _log_use(self, operation: str, grant: AccessEvent | None, result: object) -> None:
        """Log what an operation returned, or the ids of what it changed, if this memory is another agent's."""

    @cached_property
    def contexts(self) -> Contexts:
        """The contexts of this scope: named containers of durable memories, with snapshots."""
        from memory_pipeline.memories.contexts import Contexts

        return Contexts(self._lake, self._state, self._write, self._require_grant, self._log_use, self._share_context)

    def _share_context(self, context: str, team: str | None, now: When | None) -> None:
        """Let a team, or all agents of the workspace, read a context."""
        del team, now  # of a writer of an agent
        raise InputError(f"this writer cannot share context {shown(context)}; use Memory.contexts")

    @cached_property
    def _pending(self) -> PendingJournal:
        # Imported late, to keep opening a writer fast.
        from memory_pipeline.overlay import PendingJournal

        return PendingJournal(self._lake, self._scope)

    @cached_property
    def _state(self) -> MemoryOverlay:
        from memory_pipeline.memories import MemoryOverlay

        return MemoryOverlay(self._lake, self._scope, self._pending)

    @cached_property
    def _validator(self) -> ChangeValidator:
        settings = self._lake.configuration().memories(self._scope)
        return ChangeValidator(self._scope, self._state, settings, self._users, self._conversation_id)

    def _one(
        self,
        verb: MemoryVerb,
        memory_id: object,
        fields: Mapping[str, object],
        editor: str,
        reason: str | None,
        now: When | None,
    ) -> str:
        [identifier] = self._write([_record(verb, memory_id, fields, editor, reason)], now)
        return identifier

    def _write(
        self,
        changes: Sequence[object],
        now: When | None,
        context: str | None = None,
    ) -> list[str]:
        """Write all changes or nothing; return the ids of the memories, in order.

        All are of a `context` if given. Only its methods may change the memory that describes it.
        """
        received_at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        if not changes:
            return []
        changes = self._lake.redactor_of(self._scope.workspace_id).value(changes)
        admission = Admission(self._start, received_at, self._lake.calendar)
        events = []
        within = timedelta.max if now is None else TOLERANCE
        with self._clock.at(received_at) as take, one_read():
            snapshot = self._state.snapshot()
            for turn, change in enumerate(changes):
                try:
                    if context is None and isinstance(change, Mapping) and change.get("context") == CONTEXTS:
                        raise InputError(f"context {shown(CONTEXTS)} is reserved; use contexts.create")
                    event = self._validator.event(change, turn, snapshot, received_at, take, within)
                    admission.check(event.event_at)
                except InputError as error:
                    where = f"change {turn + 1}: " if len(changes) > 1 else ""
                    raise InputError(f"{where}{error}; nothing was written") from None
                events.append(event)
            accepted = self._lake.tombstones.forgotten().filter(events)
            self._lake.ensure(min((event.event_at for event in accepted), default=None))
            self._lake.members.add(accepted)
            self._lake.journal.append(accepted)
        # The fold decides whether a remembered text belongs to an existing memory.
        snapshot = self._state.snapshot()
        return [self._changed(event, snapshot) for event in events]

    def _changed(self, event: MemoryEvent, snapshot: MemorySnapshot) -> str:
        """Return the id of the created or changed memory."""
        if event.verb is not MemoryVerb.REMEMBER:
            return (
                snapshot.resolved(event.memory_id)
                if event.memory_id in snapshot
                else self._state.resolved(event.memory_id)
            )
        known = snapshot.above.matches.get(key_of(event.changes))
        if known is None and (memory := self._state.find(event.changes)) is not None:
            known = memory.id  # the pipeline has processed the event in the meantime
        return known or event.memory_id


def _record(
    verb: MemoryVerb,
    memory_id: object,
    fields: Mapping[str, object] = _NOTHING,
    editor: str = AGENT,
    reason: str | None = None,
) -> dict[str, object]:
    return {"memory": verb.value, "memory_id": memory_id, **fields, "editor": editor, "reason": reason}

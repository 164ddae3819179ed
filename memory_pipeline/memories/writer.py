"""Write changes of durable memories, as events in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.memories.events import AGENT, STEP, MemoryVerb, key_of
from memory_pipeline.domain.memories.record import MemoryKind, Status
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.journal import EventClock
from memory_pipeline.memories.change_events import ChangeValidator, Filters, as_stored

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import When
    from memory_pipeline.lake import Lake
    from memory_pipeline.memories import MemoryOverlay
    from memory_pipeline.memories.snapshot import MemorySnapshot
    from memory_pipeline.overlay import PendingJournal

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class MemoryEventWriter:
    """Changes one agent's durable memories. A change is durable when a method returns, and readers see it at once.

    Nothing is ever destroyed: what is changed or revoked stays in the memory's history. Of two changes the later one
    counts, whatever order they land in; those that one writer makes at one time are told apart by microseconds. A
    memory that was merged into another goes on in that one: its id stands for it.

    Args:
        lake: where.
        scope: whose.
        start: the first day that is accepted; what the lake accepts if not given.
    """

    def __init__(self, lake: Lake, scope: Scope, start: date | None = None) -> None:
        self._lake = lake
        self._scope = scope
        self._start = start or lake.accepts_from
        self._moments = EventClock()

    def remember(
        self,
        content: str,
        kind: str = MemoryKind.FACT,
        *,
        title: str | None = None,
        hook: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,  # noqa: A002  # the term's own name
        importance: float | None = None,
        confidence: float | None = None,
        decay_rate: float | None = None,
        is_point_in_time: bool | None = None,
        tags: Sequence[str] | None = None,
        editor: str = AGENT,
        now: When | None = None,
    ) -> str:
        """Remember something for good; return the id of the memory.

        What is known already by the same words, but for case, punctuation and articles, is not added again: that
        memory gets a further version, and counts again if it had been forgotten.

        Args:
            content: what to remember, at most 20,000 characters, to be understood by itself.
            kind: fact, rule, instruction, observation, preference, procedure, reflection, decision, plan or
                tool_output.
            title: what it is about; its first sentence if not given.
            hook: a line of at most 120 characters for the hot index; its beginning if not given.
            subject: whom or what it is about: a name; if not given, the name that `content` begins with, if it does;
            predicate: such as ``lives_in``, where it is a fact of three terms;
            object: a name or a value, likewise.
            importance: 0 to 1; 0.5 if not given.
            confidence: 0 to 1, how sure it is; 1 if not given.
            decay_rate: how fast its relevance fades, per day since it was last used; 0 if not given.
            is_point_in_time: whether it says how things stand at this moment, which is soon no longer so; as the
                configuration says if not given.
            tags: labels.
            editor: who says so.
            now: when; the clock's if not given.

        Raises:
            InputError: an argument is not accepted, or the configuration does not let this agent keep that kind;
                nothing was written.
        """
        said = {
            "content": content, "kind": kind, "title": title, "hook": hook, "subject": subject, "predicate": predicate,
            "object": object, "importance": importance, "confidence": confidence, "decay_rate": decay_rate,
            "is_point_in_time": is_point_in_time, "tags": tags,
        }  # fmt: skip
        return self._one(MemoryVerb.REMEMBER, None, said, editor, None, now)

    def update(
        self,
        id: str,  # noqa: A002  # the name that every reader gives it
        content: str | None = None,
        *,
        kind: str | None = None,
        title: str | None = None,
        hook: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,  # noqa: A002  # the term's own name
        importance: float | None = None,
        confidence: float | None = None,
        decay_rate: float | None = None,
        is_point_in_time: bool | None = None,
        tags: Sequence[str] | None = None,
        editor: str = AGENT,
        reason: str | None = None,
        now: When | None = None,
    ) -> str:
        """Make a further version of a memory; return its id. One that had been forgotten counts again.

        Args:
            id: of the memory.
            content: what it says from now on; a title, a hook and three terms that are not given with it are made
                anew, or end.
            kind: as for :meth:`remember`, like all up to `tags`; what is not given stays as it is.
            title: likewise.
            hook: likewise.
            subject: likewise.
            predicate: likewise.
            object: likewise.
            importance: likewise.
            confidence: likewise.
            decay_rate: likewise.
            is_point_in_time: likewise.
            tags: all of them; none of the old ones stay.
            editor: who does it.
            reason: why, at most 500 characters.
            now: when; the clock's if not given.

        Raises:
            InputError: an argument is not accepted, nothing is to be changed, or this agent has no such memory;
                nothing was written.
        """
        said = {
            "content": content, "kind": kind, "title": title, "hook": hook, "subject": subject, "predicate": predicate,
            "object": object, "importance": importance, "confidence": confidence, "decay_rate": decay_rate,
            "is_point_in_time": is_point_in_time, "tags": tags,
        }  # fmt: skip
        return self._one(MemoryVerb.UPDATE, id, said, editor, reason, now)

    def forget(
        self,
        id: str | None = None,  # noqa: A002  # as above
        *,
        kind: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,  # noqa: A002  # as above
        tag: str | None = None,
        user_id: str | None = None,
        key: str | None = None,
        editor: str = AGENT,
        reason: str | None = None,
        now: When | None = None,
    ) -> int:
        """Revoke a memory, or all that pass a filter; return how many.

        They stay in the history, and are no longer kept for good: no search of memories finds them, not even of the
        archive, nor does recall find what was said in the same words. A message that says more, and other searches of
        conversations, still tell it; to remove somebody's words is what ``memory-pipeline forget`` is for.

        Args:
            id: of the memory.
            kind: in place of an id, like all up to `key`: of this kind;
            subject: about this one, in any case;
            predicate: with this predicate;
            object: with this object, in any case;
            tag: with this label;
            user_id: preferences of this user;
            key: preferences of this name. All that is given must hold.
            editor: who does it.
            reason: why, at most 500 characters.
            now: when; the clock's if not given.

        Raises:
            InputError: neither an id nor a filter is given, or both; an argument is not accepted; or this agent has
                no memory by that id. Nothing was written.
        """
        filters = Filters(
            kind=kind,
            subject=subject,
            predicate=predicate,
            object=object,
            tag=tag,
            user_id=as_stored(user_id),
            key=as_stored(key),
        )
        is_given = any(value is not None for value in filters.values())
        if (id is None) is not is_given:
            what = "both are given" if is_given else "neither is given"
            raise InputError(f"forget takes an id, or a filter of {', '.join(filters)}; {what}")
        if id is None:
            found = self._door.passing(filters)
        else:
            known = self._door.header(id)
            found = [] if known.status is Status.DEPRECATED else [known.id]
        self._write([_record(MemoryVerb.FORGET, one, {}, editor, reason) for one in found], now)
        return len(found)

    def boost(self, id: str, amount: float = STEP, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Make a memory more important, by `amount`, up to 1; return its id.

        Raises:
            InputError: `amount` is not from 0 to 1, or this agent has no such memory; nothing was written.
        """
        return self._one(MemoryVerb.BOOST, id, {"amount": amount}, AGENT, None, now)

    def reduce(self, id: str, amount: float = STEP, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Make a memory less important, by `amount`, down to 0; return its id.

        Raises:
            InputError: `amount` is not from 0 to 1, or this agent has no such memory; nothing was written.
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
        """Say that a memory is still so; return its id.

        It counts as said now, 0.1 surer than before. An observation becomes a fact, and stays the same memory.

        Args:
            id: of the memory.
            editor: who says so.
            reason: why, at most 500 characters.
            now: when; the clock's if not given.

        Raises:
            InputError: an argument is not accepted, or this agent has no such memory; nothing was written.
        """
        return self._one(MemoryVerb.CONFIRM, id, {}, editor, reason, now)

    def touch(self, ids: Iterable[str], *, now: When | None = None) -> int:
        """Note that memories were of use, which keeps them from fading; return how many. Each counts once.

        Raises:
            InputError: this agent has no memory by one of the ids; nothing was written.
        """
        if isinstance(ids, str | bytes):
            raise InputError(f"ids {shown(ids)} is not accepted; expected a list of ids")
        found = list(dict.fromkeys(self._door.header(one).id for one in ids))
        self._write([_record(MemoryVerb.ACCESS, one) for one in found], now)
        return len(found)

    def set_preference(
        self, user_id: str, key: str, value: object, *, editor: str = AGENT, now: When | None = None
    ) -> str:
        """Set what a user wants, in place of what was set before; return the id of the memory.

        It holds until it is set anew or deleted: nothing lets it fade or expire.

        Args:
            user_id: whose, at most 100 characters.
            key: its name, likewise.
            value: any JSON: None, a truth value, a number, a text, a list, a mapping; at most 20,000 characters.
            editor: who says so.
            now: when; the clock's if not given.

        Raises:
            InputError: an argument is not accepted, or the configuration does not let this agent keep preferences;
                nothing was written.
        """
        said = {"kind": MemoryKind.PREFERENCE, "user_id": user_id, "key": key, "value": value}
        return self._one(MemoryVerb.REMEMBER, None, said, editor, None, now)

    def delete_preference(self, user_id: str, key: str, *, reason: str | None = None, now: When | None = None) -> bool:
        """Revoke a preference; tell whether there was one. It stays in the history.

        Raises:
            InputError: an argument is not accepted.
        """
        if user_id is None or key is None:
            # Left out they would pass for a filter that does not mind them.
            raise InputError(f"user_id {shown(user_id)} and key {shown(key)} are not accepted; expected two texts")
        return bool(self.forget(kind=MemoryKind.PREFERENCE, user_id=user_id, key=key, reason=reason, now=now))

    def change_memories(self, changes: Sequence[Mapping[str, object]], *, now: When | None = None) -> list[str]:
        """Make many changes of durable memories with one write; return the memories' ids, in their order.

        They are all checked before the first is written.

        Args:
            changes: each with ``memory`` (REMEMBER, UPDATE, FORGET, BOOST, REDUCE, CONFIRM or ACCESS); all but REMEMBER
                with ``memory_id``; with what the method of that name takes; and where wanted with ``editor``,
                ``reason``, and ``timestamp`` (a time with its zone, in place of `now`). A preference is a REMEMBER with
                ``user_id``, ``key`` and ``value``, any JSON.
            now: the time at which they are made; the clock's if not given.

        Raises:
            InputError: one of them is not accepted; the message says which.
        """
        if isinstance(changes, str | bytes | Mapping) or not isinstance(changes, Sequence):
            raise InputError(f"changes {shown(changes)} is not accepted; expected a list of mappings")
        return self._write(changes, now)

    @cached_property
    def _pending(self) -> PendingJournal:
        """What the journal holds of this agent."""
        # Imported here, so that opening a writer stays light.
        from memory_pipeline.overlay import PendingJournal

        return PendingJournal(self._lake, self._scope)

    @cached_property
    def _state(self) -> MemoryOverlay:
        from memory_pipeline.memories import MemoryOverlay

        return MemoryOverlay(self._lake, self._scope, self._pending)

    @cached_property
    def _door(self) -> ChangeValidator:
        return ChangeValidator(self._scope, self._state, self._lake.configuration().memories(self._scope))

    def _one(
        self,
        verb: MemoryVerb,
        memory_id: object,
        said: Mapping[str, object],
        editor: str,
        reason: str | None,
        now: When | None,
    ) -> str:
        [identifier] = self._write([_record(verb, memory_id, said, editor, reason)], now)
        return identifier

    def _write(self, changes: Sequence[object], now: When | None) -> list[str]:
        """Write changes, all or none; return the ids of the memories, in their order."""
        received_at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        if not changes:
            return []
        admission = Admission(self._start, received_at, self._lake.calendar)
        events = []
        with self._moments.at(received_at) as take:
            top = self._state.snapshot()
            for turn, change in enumerate(changes):
                try:
                    event = self._door.event(change, turn, top, received_at, take)
                    admission.check(event.event_at)
                except InputError as error:
                    where = f"change {turn + 1}: " if len(changes) > 1 else ""
                    raise InputError(f"{where}{error}; nothing was written") from None
                events.append(event)
            taken = self._lake.tombstones.forgotten().filter(events)
            self._lake.ensure(min((event.event_at for event in taken), default=None))
            self._lake.journal.append(taken)
        # Which memory a text was found to be of, if any, the fold has decided.
        top = self._state.snapshot()
        return [self._changed(event, top) for event in events]

    def _changed(self, event: MemoryEvent, top: MemorySnapshot) -> str:
        """Return the id of the memory that an event has made or changed."""
        if event.verb is not MemoryVerb.REMEMBER:
            return top.resolved(event.memory_id) if event.memory_id in top else self._state.resolved(event.memory_id)
        known = top.above.matches.get(key_of(event.changes))
        if known is None and (memory := self._state.find(event.changes)) is not None:
            known = memory.id  # it has landed in the meantime
        return known or event.memory_id


def _record(
    verb: MemoryVerb,
    memory_id: object,
    said: Mapping[str, object] = _NOTHING,
    editor: str = AGENT,
    reason: str | None = None,
) -> dict[str, object]:
    return {"memory": verb.value, "memory_id": memory_id, **said, "editor": editor, "reason": reason}

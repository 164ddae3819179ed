"""Validate changes of durable memories, and turn each into an event or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict

from memory_pipeline.domain.conversations import timestamp_of
from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.events import (
    NOTHING_SAID,
    Changes,
    MemoryEvent,
    MemoryVerb,
    check_terms,
    memory_reference,
)
from memory_pipeline.domain.memories.record import MAX_VALUE, MemoryKind, Status, shortened
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.files.strict_json import MAX_DEPTH, depth_of
from memory_pipeline.lake.journal import moment_after

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from memory_pipeline.configuration import MemoriesSettings
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories import Header, MemoryOverlay
    from memory_pipeline.memories.snapshot import MemorySnapshot

#: Keys of a change that do not describe the memory.
_OWN = frozenset(["memory", "memory_id", "editor", "reason", "timestamp"])
_SAID = frozenset(Changes.__dataclass_fields__)
#: Keys that each verb accepts.
_ACCEPTED: Final[Mapping[MemoryVerb, frozenset[str]]] = {
    MemoryVerb.REMEMBER: _SAID - {"amount"},
    MemoryVerb.UPDATE: _SAID - {"amount", "user_id", "key", "value"},
    MemoryVerb.FORGET: frozenset(),
    MemoryVerb.BOOST: frozenset(["amount"]),
    MemoryVerb.REDUCE: frozenset(["amount"]),
    MemoryVerb.CONFIRM: frozenset(),
    MemoryVerb.ACCESS: frozenset(),
}
_TERMS = ("subject", "predicate", "object")
#: Characters of a preference's value in its content.
_SAID_OF_VALUE = 2_000
_CONTROL = re.compile(r"[\x7f-\x9f]")


class Filters(TypedDict):
    """Filters that select memories; None matches any."""

    kind: str | None
    subject: str | None
    predicate: str | None
    object: str | None
    tag: str | None
    user_id: str | None
    key: str | None


class ChangeValidator:
    """Validates changes of one agent's memories.

    Args:
        scope: the workspace and agent.
        state: the agent's memories.
        settings: the kinds that the agent may keep.
    """

    def __init__(self, scope: Scope, state: MemoryOverlay, settings: MemoriesSettings) -> None:
        self._own = {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id}
        self._state = state
        self._settings = settings

    def header(self, memory_id: object) -> Header:
        """Return the header of a memory, or of the memory it was merged into.

        Raises:
            InputError: `memory_id` is not the id of a memory, or the agent has no such memory.
        """
        top = self._state.snapshot()
        return _known(top, self._state.resolved(memory_reference(memory_id)))

    def passing(self, filters: Filters) -> list[str]:
        """Return the ids of all memories that match filters, without revoked and merged ones.

        Raises:
            InputError: a filter is invalid.
        """
        from memory_pipeline.memories import DurableMemories

        top = self._state.snapshot()
        found = DurableMemories(self._state).matching(**filters, status=None)
        kept = [one for one in found if one.status is not Status.DEPRECATED and top.resolved(one.id) == one.id]
        return sorted(one.id for one in kept)

    def event(
        self, change: object, turn: int, top: MemorySnapshot, received_at: datetime, take: Callable[[], datetime]
    ) -> MemoryEvent:
        """Validate a change and return its event.

        Args:
            change: as accepted by ``MemoryWriter.change_memories``.
            turn: the index of the change.
            top: the current memories.
            received_at: the time of writing.
            take: returns the time for a change without a timestamp.

        Raises:
            InputError: the change is invalid.
        """
        if not isinstance(change, Mapping):
            raise InputError(f"{shown(change)} is not a mapping")
        verb = _verb(change.get("memory"))
        given = {**change, "value": _json_of(change["value"])} if "value" in change else change
        given = {name: value for name, value in given.items() if value is not None}
        accepted = _OWN | _ACCEPTED[verb]
        unknown = sorted(str(name) for name in given.keys() - accepted)
        if unknown:
            names = ", ".join(map(shown, unknown))
            raise InputError(f"{names} is unknown with {verb}; accepted: {', '.join(sorted(accepted))}")
        said = Changes.of({name: value for name, value in given.items() if name in _SAID})
        at = given.get("timestamp")
        moment = take() if at is None else timestamp_of("timestamp", at)
        if verb is MemoryVerb.REMEMBER:
            said = self._completed(said)
            said = self._allowed(said, said.kind or MemoryKind.FACT)
            known = self._state.find(said) if said.content is not None and len(top) else None
            said = _with_subject(said, None if known is None else known.subject)
            if at is not None:
                known = None
            elif known is not None and known.is_active and known.updated_at == moment:
                known = None  # one event is enough for two equal changes at the same time
        else:
            known = self._named(given.get("memory_id"), verb, said, top, moment)
            if said.content is not None and said.content != known.content:
                said = _with_subject(said)
        if known is not None and at is None:
            moment = moment_after(moment, max(known.last_used_at, known.changed_at))
        record = {"memory": verb.value, "memory_id": given.get("memory_id"), "changes": said.to_record(), "turn": turn}
        who = {name: given[name] for name in ("editor", "reason") if name in given}
        return MemoryEvent.from_record({**record, **self._own, **who, "timestamp": moment, "received_at": received_at})

    def _named(
        self, identifier: object, verb: MemoryVerb, said: Changes, top: MemorySnapshot, moment: datetime
    ) -> DurableMemory:
        """Return the memory that a change names, if it allows that change at that time."""
        own = memory_reference(identifier)
        named = top.header(own) or _known(top, self._state.resolved(own))
        if moment < named.created_at:
            raise InputError(
                f"{moment.isoformat()} is before memory {shown(named.id)} was first said, at "
                f"{named.created_at.isoformat()}"
            )
        memory = self._state.get(top.resolved(named.id))
        if memory is None:  # pragma: no cover  # erased a moment ago
            raise _unknown(identifier)
        if verb is MemoryVerb.UPDATE:
            if said == NOTHING_SAID:
                raise InputError(f"no change is given; expected one of {', '.join(sorted(_ACCEPTED[verb]))}")
            if memory.key is not None and (said.content or said.kind or said.subject):
                raise InputError(
                    f"memory {shown(memory.id)} is preference {shown(memory.key)} of {shown(memory.user_id)}; "
                    "use set_preference to change it"
                )
            _check_terms(memory, said)
            if said.kind is not None:
                self._allowed(said, said.kind)
        return memory

    def _completed(self, said: Changes) -> Changes:
        """Add the defaults of a new memory."""
        if said.key is not None:
            if said.kind not in {None, MemoryKind.PREFERENCE}:
                raise InputError(f"kind {said.kind} does not accept key {shown(said.key)}; expected kind preference")
            said = replace(said, kind=MemoryKind.PREFERENCE)
        if said.content is None and said.user_id is not None and said.key is not None and said.value is not None:
            value = json.loads(said.value)
            text = value if isinstance(value, str) and value.strip() and value.isprintable() else said.value
            content = f"Preference of {said.user_id}: {said.key} is {shortened(text, _SAID_OF_VALUE)}"
            title = said.title or f"{said.key} of {said.user_id}"
            said = replace(said, content=content, title=title)
        if said.is_point_in_time is None and self._settings.point_in_time and said.key is None:
            said = replace(said, is_point_in_time=True)
        return said

    def _allowed(self, said: Changes, kind: MemoryKind) -> Changes:
        """Return the change if the configuration allows the agent to keep that kind."""
        kinds = self._settings.kinds
        if kind not in kinds:
            accepted = ", ".join(one for one in MemoryKind if one in kinds)
            raise InputError(f"the configuration of this agent forbids kind {shown(kind.value)}; accepted: {accepted}")
        return said


def _with_subject(said: Changes, known: str | None = None) -> Changes:
    """Set the subject to the name at the beginning of the content, unless a term is given.

    Args:
        said: the change.
        known: the current subject, which a different name does not replace.
    """
    # Imported late, to keep opening a writer fast.
    from memory_pipeline.models.deterministic.language.names import subject_of

    if said.content is None or said.key is not None or any(getattr(said, name) for name in _TERMS):
        return said
    subject = subject_of(said.content)
    if subject is None or len(subject) > MAX_TERM or (known is not None and name_key(known) != name_key(subject)):
        return said
    return replace(said, subject=subject)


def as_stored(value: str | None) -> str | None:
    """Return a name as it is stored, on one line. Other types are returned unchanged."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _verb(value: object) -> MemoryVerb:
    verb = next((one for one in _ACCEPTED if one.value == value), None)
    if verb is None:
        accepted = ", ".join(one.value for one in _ACCEPTED)
        raise InputError(f"memory {shown(value)} is unknown; accepted: {accepted}")
    return verb


def _known(top: MemorySnapshot, memory_id: str) -> Header:
    header = top.header(memory_id)
    if header is None:
        raise _unknown(memory_id)
    return header


def _unknown(memory_id: object) -> InputError:
    return InputError(f"memory {shown(memory_id)} is unknown to this agent; expected the id of one of its memories")


def _check_terms(memory: DurableMemory, said: Changes) -> None:
    """Reject an update that would leave only some of subject, predicate and object."""
    is_new = said.content is not None and said.content != memory.content
    check_terms(*(getattr(said, name) or (None if is_new else getattr(memory, name)) for name in _TERMS))


def _json_of(value: object) -> str:
    """Return a preference's value as JSON.

    Raises:
        InputError: the value has no JSON form, is too long, or is nested too deeply.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise InputError(f"value is nested more than {MAX_DEPTH} levels deep") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"value {shown(value)} is not accepted; expected a JSON value: {error}") from None
    if len(text) > MAX_VALUE:
        raise InputError(f"value has {len(text):,} characters as JSON; expected at most {MAX_VALUE:,}")
    if depth_of(json.loads(text)) > MAX_DEPTH:
        raise InputError(f"value is nested more than {MAX_DEPTH} levels deep")
    # JSON allows these control characters unescaped, stored text does not.
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

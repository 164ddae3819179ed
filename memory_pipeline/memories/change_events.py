"""Validate changes of durable memories, and turn each into an event or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.authority import authority_of
from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.deduplication import rewritten
from memory_pipeline.domain.memories.draft import named
from memory_pipeline.domain.memories.events import (
    AGENT,
    NOTHING_SAID,
    Changes,
    MemoryEvent,
    MemoryVerb,
    check_terms,
    memory_reference,
)
from memory_pipeline.domain.memories.record import (
    CONTEXTS,
    MAX_VALUE,
    ContextType,
    MemoryKind,
    SourceType,
    Status,
    shortened,
)
from memory_pipeline.domain.messages import timestamp_of
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.event_clock import placed_after
from memory_pipeline.lake.files.strict_json import MAX_DEPTH, depth_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from memory_pipeline.configuration import MemoriesSettings
    from memory_pipeline.domain.fields import MemoryFilters
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.memories import Header, MemoryOverlay
    from memory_pipeline.memories.snapshot import MemorySnapshot

#: Keys of a change that do not describe the memory.
_CHANGE_KEYS = frozenset(["memory", "memory_id", "other_id", "editor", "reason", "timestamp", "conversation_id"])
_MEMORY_KEYS = frozenset(Changes.__dataclass_fields__)
_NOT_OF_MEMORY = frozenset(["amount", "relation", "weight"])
_ACCEPTED: Final[Mapping[MemoryVerb, frozenset[str]]] = {
    MemoryVerb.REMEMBER: _MEMORY_KEYS - _NOT_OF_MEMORY - {"cleared"},
    MemoryVerb.UPDATE: _MEMORY_KEYS - _NOT_OF_MEMORY - {"user_id", "key", "context"},
    MemoryVerb.FORGET: frozenset(),
    MemoryVerb.BOOST: frozenset(["amount"]),
    MemoryVerb.REDUCE: frozenset(["amount"]),
    MemoryVerb.CONFIRM: frozenset(),
    MemoryVerb.ACCESS: frozenset(),
    MemoryVerb.DEACTIVATE: frozenset(),
    MemoryVerb.REACTIVATE: frozenset(),
    MemoryVerb.LINK: frozenset(["relation", "weight"]),
    MemoryVerb.UNLINK: frozenset(["relation"]),
}
_TERMS = ("subject", "predicate", "object")
#: Characters of a preference's value in its content.
_VALUE_LENGTH = 2_000
_CONTROL = re.compile(r"[\x7f-\x9f]")


class ChangeValidator:
    """Validates changes of one agent's memories."""

    def __init__(
        self,
        scope: Scope,
        state: MemoryOverlay,
        settings: MemoriesSettings,
        users: Sequence[str] = (),
        conversation_id: str | None = None,
    ) -> None:
        self._scope = scope
        self._users = users
        self._conversation_id = conversation_id
        self._state = state
        self._settings = settings

    def header(self, memory_id: object) -> Header:
        """Return the header of a memory, or of the memory it was merged into.

        Raises:
            InputError: `memory_id` is not the id of a memory, or the agent has no such memory.
        """
        snapshot = self._state.snapshot()
        return _header_of(snapshot, self._state.resolved(memory_reference(memory_id)))

    def passing(self, filters: MemoryFilters) -> list[str]:
        """Return the ids of all memories that match filters, without revoked and merged ones.

        Raises:
            InputError: a filter is invalid.
        """
        from memory_pipeline.memories import DurableMemories
        from memory_pipeline.memories.state import JoinedOverlays

        snapshot = self._state.snapshot()
        found = DurableMemories(JoinedOverlays(lambda: [self._state])).matching(**filters, status=None)
        active = [one for one in found if one.status is not Status.DEPRECATED and snapshot.resolved(one.id) == one.id]
        return sorted(one.id for one in active)

    def event(
        self,
        change: object,
        turn: int,
        snapshot: MemorySnapshot,
        received_at: datetime,
        take: Callable[[], datetime],
        within: timedelta,
    ) -> MemoryEvent:
        """Validate a change of ``MemoryWriter.change_memories``, number `turn`, and return its event.

        `take` returns the time for a change without a timestamp. It follows events that are at most `within` later.

        Raises:
            InputError: the change is invalid.
        """
        if not isinstance(change, Mapping):
            raise InputError(f"{shown(change)} is not accepted; expected a mapping")
        verb = _verb(change.get("memory"))
        known: DurableMemory | None
        fields = {**change, "value": stored_json("value", change["value"])} if "value" in change else change
        fields = {name: value for name, value in fields.items() if value is not None}
        accepted = _CHANGE_KEYS | _ACCEPTED[verb]
        unknown = sorted(str(name) for name in fields.keys() - accepted)
        if unknown:
            names = ", ".join(map(shown, unknown))
            raise InputError(f"{names} is unknown with {verb}; accepted: {', '.join(sorted(accepted))}")
        changes = Changes.of({name: value for name, value in fields.items() if name in _MEMORY_KEYS})
        at = fields.get("timestamp")
        moment = take() if at is None else timestamp_of("timestamp", at)
        if verb is MemoryVerb.REMEMBER:
            changes = self._with_defaults(changes)
            self._check_kind(verb, changes.kind or MemoryKind.FACT, changes.context)
            self._check_context(changes.context, changes.tags)
            known = self._state.find(changes) if changes.content is not None and len(snapshot) else None
            fields = {name: value for name, value in fields.items() if name != "other_id"}
            if known is None and changes.content is not None and len(snapshot):
                source = changes.source_type or SourceType.AGENT
                by = authority_of(source, str(fields.get("editor", AGENT)), changes.content)
                known = self._state.similar(changes, by)
                if known is not None:
                    own = rewritten(known, changes.content)
                    changes = replace(changes, title=changes.title or own.title, hook=changes.hook or own.hook)
                    fields = {"reason": f"it says what {named(known)} says", **fields, "other_id": known.id}
            changes = _with_terms(changes, self._scope, moment, None if known is None else known.subject)
        else:
            when = (moment, within if at is None else timedelta(0))
            known = self._changed_memory(fields.get("memory_id"), verb, changes, snapshot, when)
            if fields.get("other_id") is not None:
                self._changed_memory(fields["other_id"], verb, changes, snapshot, when)
            if changes.content is not None and changes.content != known.content and known.key is None:
                changes = _with_terms(changes, self._scope, moment, kind=known.kind)
        record = {
            "memory": verb.value,
            "memory_id": fields.get("memory_id"),
            "other_id": fields.get("other_id"),
            "changes": changes.to_record(),
            "turn": turn,
        }
        who = {name: fields[name] for name in ("editor", "reason") if name in fields}
        record |= {
            **who,
            "users": self._users,
            "conversation_id": fields.get("conversation_id", self._conversation_id),
            "timestamp": moment,
            "received_at": received_at,
        }
        event = MemoryEvent.from_record(record, lambda *_: self._scope)
        if at is not None or (known is not None and known.is_active and known.event_id == event.id):
            return event  # the second of two equal changes at the same time is no event of its own
        place = placed_after(moment, self._seen(known, changes.context, moment), within)
        return (
            event if place is None else MemoryEvent.from_record({**record, "ordered_at": place}, lambda *_: self._scope)
        )

    def _seen(self, known: DurableMemory | None, context: str | None, moment: datetime) -> list[datetime]:
        """Return the last places of a memory that are not before `moment`; of a context, those of all of its entries.

        Entries are placed after the snapshots of their context that their writer saw, and the other way round.
        """
        ahead = self._state.placed_from(moment)
        if known is not None:
            context = known.key if known.context == CONTEXTS else known.context
        if not ahead or (known is None and context in {None, CONTEXTS}):
            return []
        ids = set() if known is None else {known.id, *known.merged_ids}
        top = self._state.snapshot()
        if context is not None:
            entries = top.headers(lambda rows: rows.equal("context", context))
            described = self._state.find(Changes(context=CONTEXTS, key=context))
            ids |= {header.id for header in entries} | (set() if described is None else {described.id})
        if any(one not in top for one in ahead):
            ids |= self._state.aliases(ids)
        return [ahead[one] for one in ids if one in ahead]

    def _changed_memory(
        self,
        identifier: object,
        verb: MemoryVerb,
        changes: Changes,
        snapshot: MemorySnapshot,
        when: tuple[datetime, timedelta],
    ) -> DurableMemory:
        """Return the memory of a change, if it allows that change, and is not more than a tolerance younger."""
        memory_id = memory_reference(identifier)
        named = snapshot.header(memory_id) or _header_of(snapshot, self._state.resolved(memory_id))
        moment, within = when
        if named.created_at - moment > within:
            raise InputError(
                f"{moment.isoformat()} is before memory {shown(named.id)} was first stated, at "
                f"{named.created_at.isoformat()}; use a later time"
            )
        memory = self._state.get(snapshot.resolved(named.id))
        if memory is None:  # pragma: no cover  # erased a moment ago
            raise _unknown(identifier)
        if verb in {MemoryVerb.UPDATE, MemoryVerb.CONFIRM}:  # both reactivate it
            self._check_kind(verb, changes.kind or memory.kind, memory.context)
            self._check_context(memory.context, memory.tags if changes.tags is None else changes.tags)
        if verb is MemoryVerb.UPDATE:
            if changes == NOTHING_SAID:
                raise InputError(f"no change is given; expected one of {', '.join(sorted(_ACCEPTED[verb]))}")
            if memory.user_id is not None and (changes.content or changes.kind or changes.subject or changes.value):
                raise InputError(
                    f"memory {shown(memory.id)} is preference {shown(memory.key)} of {shown(memory.user_id)}; "
                    "use set_preference to change it"
                )
            _check_terms(memory, changes)
        return memory

    def _check_context(self, name: str | None, tags: Sequence[str] | None) -> None:
        """Reject an entry of an unknown or archived context, and a context without a type."""
        if name == CONTEXTS:
            one_of(ContextType, "type", next(iter(tags or ()), None))
        elif name is not None:
            context = self._state.find(Changes(context=CONTEXTS, key=name))
            if context is None or not context.is_active:
                is_archived = context is not None and context.status is Status.ARCHIVED
                problem = "archived; unarchive" if is_archived else "unknown; create"
                raise InputError(f"context {shown(name)} is {problem} it first")

    def _with_defaults(self, changes: Changes) -> Changes:
        if changes.user_id is not None and changes.key is not None:
            if changes.kind not in {None, MemoryKind.PREFERENCE}:
                raise InputError(
                    f"kind {changes.kind} does not accept key {shown(changes.key)}; expected kind preference"
                )
            changes = replace(changes, kind=MemoryKind.PREFERENCE)
        if (
            changes.content is None
            and changes.user_id is not None
            and changes.key is not None
            and changes.value is not None
        ):
            value = json.loads(changes.value)
            text = value if isinstance(value, str) and value.strip() and value.isprintable() else changes.value
            content = f"Preference of {changes.user_id}: {changes.key} is {shortened(text, _VALUE_LENGTH)}"
            title = changes.title or f"{changes.key} of {changes.user_id}"
            changes = replace(changes, content=content, title=title)
        if changes.is_point_in_time is None and self._settings.point_in_time and changes.key is None:
            changes = replace(changes, is_point_in_time=True)
        return changes

    def _check_kind(self, verb: MemoryVerb, kind: MemoryKind, context: str | None) -> None:
        """Reject a change that states a memory of a kind that the configuration forbids.

        Contexts, and entries without another kind, are stored as facts, but are none.
        """
        if verb is MemoryVerb.CONFIRM and kind is MemoryKind.OBSERVATION:
            kind = MemoryKind.FACT  # a confirmed observation becomes one
        kinds = self._settings.kinds
        if kind in kinds or (context is not None and kind is MemoryKind.FACT):
            return
        accepted = ", ".join(one for one in MemoryKind if one in kinds)
        raise InputError(f"the configuration of this agent forbids kind {shown(kind.value)}; accepted: {accepted}")


def _with_terms(
    changes: Changes, scope: Scope, at: datetime, known: str | None = None, kind: MemoryKind = MemoryKind.FACT
) -> Changes:
    """Set the terms that the content of a fact states, or the subject to the name at its beginning.

    A term that is given excludes this. `known` is the current subject, which a different name does not replace. `kind`
    is that of the memory, unless the changes set it.
    """
    # Imported late, to keep opening a writer fast.
    from memory_pipeline.models.deterministic.extraction import triple_of
    from memory_pipeline.models.deterministic.language.names import subject_of

    if changes.content is None or changes.key is not None or any(getattr(changes, name) for name in _TERMS):
        return changes
    subject = subject_of(changes.content)
    triple = triple_of(changes.content, scope, at) if (changes.kind or kind) is MemoryKind.FACT else None
    if triple is not None and name_key(subject or triple[0]) != name_key(triple[0]):
        triple = None  # "Ben is Anna's brother" is about Ben
    subject = subject if triple is None else triple[0]
    if subject is None or len(subject) > MAX_TERM or (known is not None and name_key(known) != name_key(subject)):
        return changes
    _, predicate, value = triple or (subject, None, None)
    return replace(changes, subject=subject, predicate=predicate, object=value)


def as_stored(value: str | None) -> str | None:
    """Return a text as one line, as names are stored. Other types are unchanged."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _verb(value: object) -> MemoryVerb:
    verb = next((one for one in _ACCEPTED if one.value == value), None)
    if verb is None:
        accepted = ", ".join(one.value for one in _ACCEPTED)
        raise InputError(f"memory {shown(value)} is unknown; accepted: {accepted}")
    return verb


def _header_of(snapshot: MemorySnapshot, memory_id: str) -> Header:
    header = snapshot.header(memory_id)
    if header is None:
        raise _unknown(memory_id)
    return header


def _unknown(memory_id: object) -> InputError:
    return InputError(f"memory {shown(memory_id)} is unknown to this agent; expected the id of one of its memories")


def _check_terms(memory: DurableMemory, changes: Changes) -> None:
    """Reject an update that would leave only some of subject, predicate and object."""
    is_new = changes.content is not None and changes.content != memory.content
    gone = _TERMS if is_new else changes.cleared or ()
    check_terms(*(getattr(changes, name) or (None if name in gone else getattr(memory, name)) for name in _TERMS))


def stored_json(name: str, value: object) -> str:
    """Return a value as the JSON that is stored; `name` is for the message.

    Raises:
        InputError: it is no JSON value, too long, or nested too deep.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        is_deep = depth_of(json.loads(text)) > MAX_DEPTH
    except RecursionError:
        is_deep, text = True, ""
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} {shown(value)} is not accepted; expected a JSON value: {error}") from None
    if is_deep:
        raise InputError(f"{name} is nested more than {MAX_DEPTH} levels deep")
    if len(text) > MAX_VALUE:
        raise InputError(
            f"{name} has {len(text):,} characters as JSON; expected at most {MAX_VALUE:,}. Store long documents "
            "elsewhere, and their address here"
        )
    # JSON allows these control characters unescaped, stored text does not.
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

"""Events that change durable memories, from agents, conversations and the consolidation.

In the journal an event is a line::

    {"memory": "REMEMBER", "workspace_id": "acme", "agent_id": "support", "memory_id": null, "other_id": null,
     "changes": {"kind": "fact", "content": "Anna lives in Porto."}, "editor": "agent", "reason": null, "turn": 0,
     "timestamp": "2024-01-15T07:03:00+00:00", "received_at": "2024-01-15T07:03:00+00:00"}
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.domain.identity import EVENT, MEMORY, Reference, digest, make_id
from memory_pipeline.domain.memories.record import (
    MAX_CONTENT,
    MAX_HOOK,
    MAX_TITLE,
    MAX_VALUE,
    DurableMemory,
    MemoryClass,
    MemoryKind,
    SourceType,
    match_key,
    preference_key,
)
from memory_pipeline.domain.messages import members_fields, ordered_at_in, recorded_scope, timestamp_of, users_in
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import MAX_ID, Scope, label_of, optional_label
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.secrets import without_private
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.domain.values import MAX_TURN, count_of, number_of, one_of, share_of
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import ScopeOf

#: `editor` of events from conversations, from the consolidation, and from agents by default.
CONVERSATION, CONSOLIDATION, AGENT = "conversation", "consolidation", "agent"
#: Default amount of BOOST and REDUCE.
STEP = 0.1

_MAX_NAME, _MAX_TAGS, _MAX_REASON = 100, 50, 500
_MAX_EDITOR = MAX_ID + len(f"{AGENT}:")
#: Maximum characters of texts with several lines, and below of texts on one line.
_LONG = {"content": MAX_CONTENT, "value": MAX_VALUE}
_SHORT = {
    "title": MAX_TITLE,
    "hook": MAX_HOOK,
    "subject": MAX_TERM,
    "predicate": MAX_TERM,
    "object": MAX_TERM,
    "key": MAX_ID,
    "context": MAX_ID,
    "relation": MAX_TERM,
}
_CLEARABLE = ("subject", "predicate", "object", "value", "outcome_success")
#: Highest decay per day: no relevance is left after a few hours.
_MAX_RATE = 100.0


class MemoryVerb(StrEnum):
    """The action of an event. Only the consolidation may use those after REACTIVATE."""

    REMEMBER = "REMEMBER"
    UPDATE = "UPDATE"
    FORGET = "FORGET"
    BOOST = "BOOST"
    REDUCE = "REDUCE"
    CONFIRM = "CONFIRM"
    ACCESS = "ACCESS"
    LINK = "LINK"
    UNLINK = "UNLINK"
    DEACTIVATE = "DEACTIVATE"
    REACTIVATE = "REACTIVATE"
    PROMOTE = "PROMOTE"
    MERGE = "MERGE"
    SUPERSEDE = "SUPERSEDE"
    COOL = "COOL"
    KEEP = "KEEP"
    ARCHIVE = "ARCHIVE"
    HEAT = "HEAT"
    CHILL = "CHILL"

    @property
    def is_open(self) -> bool:
        """Whether agents may use it."""
        return self in _OPEN


_OPEN = frozenset(list(MemoryVerb)[:11])
_LINKING = frozenset([MemoryVerb.LINK, MemoryVerb.UNLINK])


@dataclass(frozen=True, slots=True)
class Changes:
    """The fields that an event sets. None leaves a field unchanged, or at its default for a new memory.

    The fields are those of :class:`~memory_pipeline.domain.memories.record.DurableMemory`; `amount` is for BOOST and
    REDUCE, `value` is JSON, `relation` and `weight` are for LINK and UNLINK, and `cleared` names fields that an UPDATE
    empties: subject, predicate, object, value or outcome_success.
    """

    kind: MemoryKind | None = None
    title: str | None = None
    hook: str | None = None
    content: str | None = None
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    user_id: str | None = None
    key: str | None = None
    value: str | None = None
    importance: float | None = None
    confidence: float | None = None
    decay_rate: float | None = None
    is_point_in_time: bool | None = None
    tags: tuple[str, ...] | None = None
    amount: float | None = None
    memory_class: MemoryClass | None = None
    outcome_success: bool | None = None
    source_type: SourceType | None = None
    context: str | None = None
    relation: str | None = None
    weight: float | None = None
    cleared: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Changes:
        """Validate a mapping. None counts as missing. Recalled memory is removed from the content.

        A memory with an outcome is experiential.

        Raises:
            InputError: a key is unknown or a value is invalid; the message names it.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"changes {shown(values)} is not accepted; expected a mapping")
        names = {field.name for field in fields(cls)}
        unknown = sorted(str(name) for name in values.keys() - names)
        if unknown:
            raise InputError(f"{', '.join(map(shown, unknown))} is unknown; accepted: {', '.join(sorted(names))}")
        validated = {name: _READ[name](name, value) for name, value in values.items() if value is not None}
        tried = MemoryClass.EXPERIENTIAL
        if "outcome_success" in validated and validated.setdefault("memory_class", tried) is not tried:
            raise InputError("outcome_success is of experiences; expected memory_class experiential, not factual")
        return cls(**validated)

    def to_record(self) -> dict[str, Any]:
        """Return the fields that are set as a JSON object."""
        found: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
            if value is not None
        }


NOTHING_SAID = Changes()


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """One validated event.

    Attributes:
        memory_id: the changed memory; for REMEMBER the new memory, unless a known one has the same match key.
        event_at: time, UTC; for the consolidation the end of its day.
        turn: order among events of one time: position of the message in the conversation, position of the event in its
            write, or number of the pass.
        place: position within the message or the pass.
        editor: author of the change.
        other_id: for MERGE the memory that is merged into this one, for SUPERSEDE the one that replaces it,
            for LINK and UNLINK the target, for REMEMBER one that says nearly the same, and takes it up.
        evidence: ids of the source messages; empty for direct changes by an agent.
        received_at: when the journal received it or its source, UTC; None for the consolidation.
        speaker: name of the speaker of the source; None for other events.
        ordered_at: place in the order of events, UTC, if its writer saw a later event of the same memory or context;
            None if the place is `event_at`.
        users: the members of the group, if the scope is a group's, of an agent's own event.
    """

    id: str
    scope: Scope
    verb: MemoryVerb
    memory_id: str
    changes: Changes
    event_at: datetime
    turn: int = 0
    place: int = 0
    editor: str = AGENT
    reason: str | None = None
    other_id: str | None = None
    evidence: tuple[str, ...] = ()
    conversation_id: str | None = None
    received_at: datetime | None = None
    speaker: str | None = None
    ordered_at: datetime | None = None
    users: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        scope: Scope,
        verb: MemoryVerb,
        event_at: datetime,
        changes: Changes = NOTHING_SAID,
        *,
        memory_id: str | None = None,
        turn: int = 0,
        place: int = 0,
        editor: str = AGENT,
        reason: str | None = None,
        other_id: str | None = None,
        evidence: Sequence[str] = (),
        conversation_id: str | None = None,
        received_at: datetime | None = None,
        speaker: str | None = None,
        ordered_at: datetime | None = None,
        users: tuple[str, ...] = (),
    ) -> MemoryEvent:
        """Create an event; compute its id, and the id of a new memory."""
        if memory_id is None:
            memory_id = new_memory_id(scope, changes, event_at)
        event_id = make_id(
            EVENT, hour_of(event_at), *scope.ids, verb.value, memory_id, other_id,
            changes.to_record(), event_at.isoformat(), turn, place, editor, reason, list(evidence),
            *([] if ordered_at is None else [ordered_at.isoformat()]),
        )  # fmt: skip
        return cls(
            event_id, scope, verb, memory_id, changes, event_at, turn, place, editor, reason, other_id, tuple(evidence),
            conversation_id, received_at, speaker, ordered_at, users,
        )  # fmt: skip

    @classmethod
    def from_record(cls, record: Mapping[str, object], scope_of: ScopeOf = Scope) -> MemoryEvent:
        """Parse and validate the form of :meth:`to_record`. The ids are always computed.

        `scope_of` is needed for scopes of users and groups.

        Raises:
            InputError: a field is missing or invalid; the message names it.
        """
        scope = recorded_scope(record, scope_of)
        action = record.get("memory")
        verb = next((one for one in _OPEN if one.value == action), None)
        if verb is None:
            accepted = ", ".join(one.value for one in MemoryVerb if one.is_open)
            raise InputError(f"memory {shown(action)} is unknown; accepted: {accepted}")
        changed = record.get("changes")
        changes = Changes.of({} if changed is None else changed)  # type: ignore[arg-type]  # of() checks it
        memory_id = record.get("memory_id")
        if verb is MemoryVerb.REMEMBER:
            changes = _complete_memory(changes)
            memory_id = None
        else:
            memory_id = memory_reference(memory_id)
        other_id, other = None, record.get("other_id")
        if verb in _LINKING or (verb is MemoryVerb.REMEMBER and other is not None):
            other_id = memory_reference(other)
        if verb in _LINKING and (changes.relation is None or other_id == memory_id):
            raise InputError(f"a link has a relation and two memories; found {shown(changes.relation)} to itself")
        turn = count_of("turn", record.get("turn", 0), 0, MAX_TURN)
        editor, reason = record.get("editor", AGENT), record.get("reason")
        editor = _line("editor", editor, _MAX_EDITOR)
        if editor in {CONSOLIDATION, CONVERSATION}:
            raise InputError(f"editor {shown(editor)} is reserved for the pipeline; choose another name")
        return cls.of(
            scope,
            verb,
            timestamp_of("timestamp", record.get("timestamp")),
            changes,
            memory_id=memory_id,
            turn=turn,
            editor=editor,
            reason=None if reason is None else _line("reason", reason, _MAX_REASON),
            other_id=other_id,
            conversation_id=optional_label("conversation_id", record.get("conversation_id")),
            received_at=timestamp_of("received_at", record.get("received_at")),
            ordered_at=ordered_at_in(record),
            users=users_in(record),
        )

    def to_record(self) -> dict[str, object]:
        """Return the event of an agent as a flat JSON object, as stored in the journal."""
        return {
            "memory": self.verb.value,
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            **members_fields(self.scope, self.users),
            **({} if self.conversation_id is None else {"conversation_id": self.conversation_id}),
            "memory_id": self.memory_id,
            "other_id": self.other_id,
            "changes": self.changes.to_record(),
            "editor": self.editor,
            "reason": self.reason,
            "turn": self.turn,
            "timestamp": self.event_at.isoformat(),
            **({} if self.ordered_at is None else {"ordered_at": self.ordered_at.isoformat()}),
            "received_at": None if self.received_at is None else self.received_at.isoformat(),
        }

    @property
    def hour(self) -> Period:
        """The partition of the event."""
        return hour_of(self.event_at)

    @property
    def is_consolidation(self) -> bool:
        """Whether it comes from the consolidation."""
        return not self.verb.is_open

    @property
    def placed_at(self) -> datetime:
        """Its place in the order of events, UTC."""
        return self.ordered_at or self.event_at

    @property
    def order(self) -> tuple[datetime, bool, int, int, str]:
        """The sort key. The consolidation of a day precedes other events at the instant that ends the day."""
        return (self.placed_at, not self.is_consolidation, self.turn, self.place, self.id)


def memory_reference(text: object) -> str:
    """Return the id of a memory, without a version number.

    Raises:
        InputError: `text` is not the id of a memory.
    """
    reference = Reference.parse(text)
    if reference.what != MEMORY:
        raise InputError(
            f"id {shown(text)} is not the id of a durable memory; expected memory:2024-01-15T08:<32 hex digits>"
        )
    return reference.id


def new_memory_id(scope: Scope, changes: Changes, event_at: datetime) -> str:
    """Return the id of a new memory: a hash of scope, hour and match key."""
    return make_id(MEMORY, hour_of(event_at), *scope.ids, key_of(changes))


def key_of(said: Changes | DurableMemory) -> str:
    """Return the match key of a memory, or of a new one.

    Entries of a context match only others of it, by their keys if they have one. Experiences match only those with the
    same outcome.
    """
    if said.context is not None and said.key is not None:
        return digest("entry", said.context, said.key)
    if said.user_id is not None and said.key is not None:
        return preference_key(said.user_id, said.key)
    key = match_key(said.kind or MemoryKind.FACT, said.content or "")
    is_experience = said.memory_class is MemoryClass.EXPERIENTIAL
    is_plain = said.context is None and not is_experience
    return key if is_plain else digest(key, said.context, is_experience, said.outcome_success)


def _complete_memory(changes: Changes) -> Changes:
    if changes.content is None:
        raise InputError("content is missing; expected the text to remember")
    if changes.context is not None and changes.user_id is not None:
        raise InputError("user_id is of a preference, which belongs to no context; leave out user_id or context")
    if changes.context is None and (changes.user_id is None) != (changes.key is None):
        raise InputError(
            "user_id and key belong together; set both for a preference, context and key for an entry of a context, "
            "or none of them"
        )
    if changes.user_id is not None and changes.value is None:
        raise InputError(f"value of preference {shown(changes.key)} is missing; expected JSON")
    if changes.amount is not None:
        raise InputError("amount is for BOOST and REDUCE; set importance instead")
    check_terms(changes.subject, changes.predicate, changes.object)
    return changes


def check_terms(subject: str | None, predicate: str | None, value: str | None) -> None:
    """Reject a predicate without a subject, and an object without a predicate. A subject alone is valid.

    Raises:
        InputError: a term is missing.
    """
    if (predicate is not None and subject is None) or (value is not None and predicate is None):
        missing = "subject" if subject is None else "predicate"
        raise InputError(f"{missing} is missing; a predicate needs a subject, and an object needs both")


def _text(name: str, value: object) -> str:
    """Return a text of one or more lines."""
    longest = _LONG[name]
    if not isinstance(value, str) or not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not a text")
    if not value.strip() or len(value) > longest:
        raise InputError(f"{name} {shown(value)} is not accepted; expected 1 to {longest:,} characters")
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in value):
        raise InputError(f"{name} {shown(value)} is not valid; control characters are not accepted")
    return value.strip()


def _content(name: str, value: object) -> str:
    content = without_private(without_recalled(_text(name, value))).strip()
    if not content:
        raise InputError(f"{name} {shown(value)} contains only recalled memory, which is stored, or private text")
    return content


def _json(name: str, value: object) -> str:
    text = _text(name, value)
    try:
        parsed = json.dumps(json.loads(text, parse_constant=_no_number), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} {shown(value)} is not JSON: {shown(str(error))}") from None
    if not is_unicode(parsed):
        raise InputError(f"{name} {shown(value)} is not valid Unicode text")
    return text


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _short(name: str, value: object) -> str:
    return _line(name, value, _SHORT[name])


def _predicate(name: str, value: object) -> str:
    predicate = snake_case(_short(name, value))
    if not predicate:
        raise InputError(f"{name} {shown(value)} has no letter or digit")
    return predicate


def _line(name: str, value: object, longest: int) -> str:
    """Return a text as one line."""
    if not isinstance(value, str) or not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not a text")
    line = " ".join(value.split())
    if not line or len(line) > longest:
        raise InputError(f"{name} {shown(value)} is not accepted; expected 1 to {longest:,} characters")
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise InputError(f"{name} {shown(value)} is not valid; control characters are not accepted")
    return line


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} {shown(value)} is not accepted; expected true or false")
    return value


def _tags(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise InputError(f"{name} {shown(value)} is not accepted; expected a list of texts")
    if len(value) > _MAX_TAGS:
        raise InputError(f"{name} has {len(value)} entries; expected at most {_MAX_TAGS}")
    return tuple(sorted({_line(name, tag, _MAX_NAME) for tag in value}))


def _cleared(name: str, value: object) -> tuple[str, ...]:
    names = _tags(name, value)
    if unknown := [one for one in names if one not in _CLEARABLE]:
        raise InputError(f"{name} {shown(unknown[0])} is not accepted; expected {', '.join(_CLEARABLE)}")
    return names


_READ: dict[str, Callable[[str, object], Any]] = {
    **dict.fromkeys(_SHORT, _short),
    "user_id": label_of,
    "kind": partial(one_of, MemoryKind),
    "content": _content,
    "value": _json,
    "predicate": _predicate,
    "relation": _predicate,
    **dict.fromkeys(("weight", "importance", "confidence", "amount"), share_of),
    "decay_rate": lambda name, value: number_of(name, value, 0, _MAX_RATE, " per day"),
    "is_point_in_time": _flag,
    "tags": _tags,
    "memory_class": partial(one_of, MemoryClass),
    "source_type": partial(one_of, SourceType),
    "outcome_success": _flag,
    "cleared": _cleared,
}

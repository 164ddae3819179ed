"""Messages: what one speaker said at one time, and the fields that all records of the journal share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.identity import MESSAGE, Reference, make_id
from memory_pipeline.domain.periods import Period, hour_of
from memory_pipeline.domain.scopes import Scope, label_of, optional_label, user_identity
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.secrets import without_private
from memory_pipeline.domain.text.words import composed, is_blank, is_unicode
from memory_pipeline.domain.values import MAX_TURN, count_of, one_of
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from datetime import tzinfo

    from memory_pipeline.domain.scopes import ScopeOf
    from memory_pipeline.domain.text.secrets import Redactor

#: Longest text of one message, in characters.
MAX_CONTENT = 1_000_000
#: Maximum number of tags of a conversation; every message is stored with all of them.
MAX_TAGS = 100
#: Maximum number of users of a conversation; every message is stored with all members of a group.
MAX_USERS = 1_000
#: Longest metadata of a message, in characters of JSON, and its levels of objects and lists.
MAX_METADATA, _MAX_LEVELS = 8_192, 10
#: A name that is the label of a user.
_LABEL = re.compile(r"\s*user\s*(:|$)", re.IGNORECASE)
#: Largest offset from UTC, in minutes. Those of time zones are within 14 hours.
_MAX_OFFSET = 1_439


class NothingSaidError(InputError):
    """A message contains only recalled memory, or only private text. Drop it; this is not an error of the message."""


class Role(StrEnum):
    """The role of a speaker."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"

    @property
    def is_memorable(self) -> bool:
        """Whether messages of this role become memory; tool and system messages are only context."""
        return self in (Role.USER, Role.ASSISTANT)


class TextEdit(NamedTuple):
    """A later text of a message, and when the journal received it, UTC."""

    content: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """One validated message of a conversation.

    Attributes:
        user_id: the user who speaks, or whose conversation it is.
        users: the members of the group, if the scope is a group's.
        source_id: the id from the client, if any.
        turn: position, from 0, in the conversation as first written.
        sent_at: timestamp of the message, UTC.
        utc_offset: the speaker's offset from UTC in minutes, east positive; None if the timestamp does not say it.
        source: where the conversation comes from, such as ``slack`` or ``cron:nightly``, if stated.
        metadata: the writer's own JSON object as text with sorted keys, if any.
        redactions: what the writer removed from the content, such as ``api_key``.
        received_at: when the journal received it, UTC.
        occurrence: n, for the n-th message of its conversation with the same role, name, time and text; None for the
            first.
        original: the first text of an edited message; None if it was not edited, or if only an edit of it is known.
        edits: its later texts, oldest first. The last one is its content.
    """

    id: str
    scope: Scope
    conversation_id: str
    user_id: str | None
    tags: tuple[str, ...]
    source_id: str | None
    turn: int
    role: Role
    name: str | None
    content: str
    sent_at: datetime
    received_at: datetime
    users: tuple[str, ...] = ()
    utc_offset: int | None = None
    source: str | None = None
    metadata: str | None = None
    redactions: tuple[str, ...] = ()
    occurrence: int | None = None
    original: str | None = None
    edits: tuple[TextEdit, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, object], scope_of: ScopeOf = Scope) -> Message:
        """Parse and validate the flat form of :meth:`to_record`. The row id is computed, except of an edit.

        `scope_of` is needed for scopes of users and groups.

        Raises:
            NothingSaidError: the content is only recalled memory, even if other fields are invalid.
            InputError: a field is missing or invalid; the message names it.
        """
        remaining = _without_recalled(record.get("content"))
        scope = recorded_scope(record, scope_of)
        conversation_id = label_of("conversation_id", record.get("conversation_id"))
        source_id = optional_label("id", record.get("id"))
        role = one_of(Role, "role", record.get("role"))
        name = optional_label("name", record.get("name"))
        content = _text(remaining)
        sent_at = timestamp_of("timestamp", record.get("timestamp"))
        turn = count_of("turn", record.get("turn"), 0, MAX_TURN)
        occurrence = record.get("occurrence")
        occurrence = None if occurrence is None else count_of("occurrence", occurrence, 2, MAX_TURN)
        received_at = timestamp_of("received_at", record.get("received_at"))
        target = None if record.get("edit_of") is None else _target(record["edit_of"], sent_at)
        return cls(
            id=target or _id_of(scope, conversation_id, source_id, role, name, content, sent_at, occurrence),
            scope=scope,
            conversation_id=conversation_id,
            user_id=optional_label("user_id", record.get("user_id")),
            tags=labels_of("tags", record.get("tags") or ()),
            source_id=source_id,
            turn=turn,
            role=role,
            name=name,
            content=content,
            sent_at=sent_at,
            received_at=received_at,
            users=users_in(record),
            utc_offset=_offset_of(record),
            source=optional_label("source", record.get("source")),
            metadata=_metadata_text(record.get("metadata")),
            redactions=labels_of("redactions", record.get("redactions") or ()),
            occurrence=occurrence,
            edits=(TextEdit(content, received_at),) if target else (),
        )

    def to_record(self) -> dict[str, object]:
        """Return the message as a flat JSON object, as stored in the journal."""
        return {
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            **members_fields(self.scope, self.users),
            "conversation_id": self.conversation_id,
            "user_id": self.user_id,
            "tags": list(self.tags),
            "id": self.source_id,
            "turn": self.turn,
            "role": self.role.value,
            "name": self.name,
            "content": self.content,
            "timestamp": self.sent_at.isoformat(),
            **({} if self.utc_offset is None else {"utc_offset": self.utc_offset}),
            **({} if self.source is None else {"source": self.source}),
            **({} if self.metadata is None else {"metadata": json.loads(self.metadata)}),
            **({"redactions": list(self.redactions)} if self.redactions else {}),
            **({} if self.occurrence is None else {"occurrence": self.occurrence}),
            **({"edit_of": self.id} if self.is_edit else {}),
            "received_at": self.received_at.isoformat(),
        }

    @property
    def hour(self) -> Period:
        """The partition of the message."""
        return hour_of(self.sent_at)

    def said_at(self, zone: tzinfo) -> datetime:
        """Return the time of the message on the speaker's clock, or in `zone` if the speaker's is unknown."""
        return self.sent_at.astimezone(
            zone if self.utc_offset is None else timezone(timedelta(minutes=self.utc_offset))
        )

    @property
    def speaker(self) -> str:
        """The person's name, or a label of the role."""
        if self.role is Role.USER:
            return self.user
        return self.name or ("Agent" if self.role is Role.ASSISTANT else self.role.title())

    @property
    def user(self) -> str:
        """The name of the user who speaks, or a label; where several users speak, it has the user's id.

        A name that looks like a label is ignored, so that nobody can speak as another user.
        """
        if self.name and not _LABEL.match(self.name):
            return self.name
        is_shared = self.user_id is not None and self.scope.user_id is None
        return user_identity(self.user_id) if is_shared and self.user_id else "User"

    @property
    def text(self) -> str:
        """The content in Unicode's composed form (NFC), to compare it."""
        return composed(self.content)

    @property
    def identity(self) -> tuple[object, ...]:
        """What identifies the message, with its occurrence: its id from the client, or else who said what and when."""
        if self.source_id:
            return self.scope, self.conversation_id, self.source_id
        return self.scope, self.conversation_id, self.role, self.name, self.sent_at, self.first_text

    @property
    def first_text(self) -> str:
        """The text before all edits, in Unicode's composed form."""
        return self.text if self.original is None else composed(self.original)

    @property
    def is_edit(self) -> bool:
        """Whether this is the record of an edit, without the first text of its message."""
        return bool(self.edits) and self.original is None

    def edit(self, content: str, received_at: datetime) -> Message:
        """Return the record of an edit: a later text of this message. It is later than the edits that are known."""
        known = [self.received_at, *(edit.received_at for edit in self.edits)]
        at = max(received_at, max(known) + timedelta(microseconds=1))
        return replace(self, content=content, received_at=at, original=None, edits=(TextEdit(content, at),))

    def edited(self, edits: Iterable[TextEdit]) -> Message:
        """Return the message with all of its edits, at least one, and the text of the last one."""
        ordered = tuple(sorted(edits, key=lambda edit: (edit.received_at, edit.content)))
        original = self.original if self.edits else self.content
        return replace(self, content=ordered[-1].content, original=original, edits=ordered)

    def records(self) -> Iterator[Message]:
        """Yield the records of which the message is the fold: its first text, if it is known, and each edit."""
        if not self.edits or self.original is not None:
            yield replace(
                self, content=self.content if self.original is None else self.original, original=None, edits=()
            )
        for edit in self.edits:
            yield replace(self, content=edit.content, received_at=edit.received_at, original=None, edits=(edit,))

    def as_of(self, at: datetime) -> Message | None:
        """Return the message with the text that it had at a time, UTC; None if it was not received yet."""
        edits = tuple(edit for edit in self.edits if edit.received_at <= at)
        if len(edits) == len(self.edits):
            return self if self.received_at <= at else None
        if edits:
            return replace(self, content=edits[-1].content, edits=edits)
        return None if self.original is None else replace(self, content=self.original, original=None, edits=())

    def redacted(self, redactor: Redactor) -> Message:
        """Return the message with all of its texts redacted; itself if they have no secrets. It keeps its id."""
        texts = (self.content, self.original, *(edit.content for edit in self.edits))
        left = [None if text is None else redactor.text(text) for text in texts]
        metadata = self.metadata
        if metadata is not None:
            whole = json.loads(metadata)
            found = redactor.value(whole)
            metadata = metadata if found == whole else json.dumps(found, ensure_ascii=False, sort_keys=True)
        if metadata is self.metadata and all(new is old for new, old in zip(left, texts, strict=True)):
            return self
        edits = tuple(edit._replace(content=text or "") for edit, text in zip(self.edits, left[2:], strict=True))
        return replace(self, content=left[0] or "", original=left[1], edits=edits, metadata=metadata)

    def says_the_same_as(self, other: Message) -> bool:
        """Return whether two messages have the same role, name and time, and a text in common."""
        mine, theirs = ((m.role, m.name, m.sent_at) for m in (self, other))
        return mine == theirs and bool({self.text, self.first_text} & {other.text, other.first_text})

    def identified(self, **changes: Any) -> Message:
        """Return the message with other fields, and the id that it then has."""
        one = replace(self, **changes)
        identity = one.source_id, one.role, one.name, one.content, one.sent_at, one.occurrence
        return replace(one, id=_id_of(one.scope, one.conversation_id, *identity))


def _id_of(
    scope: Scope,
    conversation_id: str,
    source_id: str | None,
    role: Role,
    name: str | None,
    content: str,
    sent_at: datetime,
    occurrence: int | None,
) -> str:
    said = role, name, sent_at.isoformat(), content
    identity = (source_id,) if source_id else said if occurrence is None else (*said, occurrence)
    return make_id(MESSAGE, hour_of(sent_at), *scope.ids, conversation_id, source_id is not None, identity)


def _target(value: object, sent_at: datetime) -> str:
    reference = Reference.parse(value)
    if reference.what != MESSAGE or reference.point is not None or reference.period != hour_of(sent_at):
        raise InputError(f"edit_of {shown(value)} is not valid; expected the id of a message of the same hour")
    return reference.id


def with_edits(messages: Iterable[Message]) -> list[Message]:
    """Return messages, each once, with the last of its texts: the fold of messages and their edits, in any order.

    An edit without its message stands for it.
    """
    by_id: dict[tuple[Scope, str], list[Message]] = {}
    for message in messages:
        by_id.setdefault((message.scope, message.id), []).append(message)
    folded = []
    for records in by_id.values():
        first = next((one for one in records if not one.is_edit), records[0])
        edits = {edit for one in records for edit in one.edits}
        folded.append(first.edited(edits) if edits else first)
    return folded


def recorded_scope(record: Mapping[str, object], scope_of: ScopeOf) -> Scope:
    """Return the scope of a record of the journal.

    Raises:
        InputError: an id is invalid.
    """
    identity = record.get("identity")
    return scope_of(record.get("workspace_id"), record.get("agent_id"), "" if identity is None else identity)  # type: ignore[arg-type]  # Scope checks


def users_in(record: Mapping[str, object]) -> tuple[str, ...]:
    """Return the members of the group in a record of the journal, sorted.

    Raises:
        InputError: an id is invalid.
    """
    return labels_of("users", record.get("users") or (), MAX_USERS)


def members_fields(scope: Scope, users: Sequence[str]) -> dict[str, object]:
    """Return the fields of a record of the journal that the agent's own memory does not need."""
    own: dict[str, object] = {"identity": scope.identity} if scope.identity else {}
    return own | {"users": list(users)} if users else own


def labels_of(name: str, values: object, most: int = MAX_TAGS) -> tuple[str, ...]:
    """Return a list of ids, tags or other labels, sorted, each once.

    Raises:
        InputError: it is not a list, has more than `most` entries, or one is invalid; the message calls it `name`.
    """
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InputError(f"{name} must be a list of texts, not {shown(values)}")
    if len(values) > most:
        raise InputError(f"{name} has {len(values):,} entries; at most {most:,} are accepted")
    return tuple(sorted({label_of(name, value) for value in values}))


def _without_recalled(value: object) -> object:
    """Return a content without recalled memory; other types are left to :func:`_text`."""
    if not isinstance(value, str):
        return value
    remaining = without_private(without_recalled(value))
    if remaining is not value and not remaining.strip():
        raise NothingSaidError("content contains only recalled memory or private text; leave the message out")
    return remaining


def _text(value: object) -> str:
    if value is None:
        raise InputError("content is missing; expected a text that is not blank")
    if not isinstance(value, str) or is_blank(value):
        raise InputError(f"content {shown(value)} is not valid; expected a text that is not blank")
    if len(value) > MAX_CONTENT:
        raise InputError(f"content has {len(value):,} characters; accepted: up to {MAX_CONTENT:,} in one message")
    if "\x00" in value or not is_unicode(value):
        raise InputError(f"content {shown(value)} is not valid Unicode text")
    return value


def _metadata_text(value: object) -> str | None:
    metadata = metadata_of(value)
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True) if metadata else None


def metadata_of(value: object) -> Mapping[str, Any] | None:
    """Return metadata of a message. Raise InputError if it is no JSON object, or too large."""
    if value is None:
        return None
    expected = f"expected a JSON object, up to {MAX_METADATA:,} characters and {_MAX_LEVELS} levels deep"
    if not isinstance(value, Mapping) or not _is_json(value, _MAX_LEVELS):
        raise InputError(f"metadata {shown(value)} is not valid; {expected}")
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(text) > MAX_METADATA:
        raise InputError(f"metadata has {len(text):,} characters; {expected}")
    return value


def _is_json(value: object, levels: int) -> bool:
    """Return whether a value can be stored as JSON, at most so many levels deep."""
    if isinstance(value, str):
        return "\x00" not in value and is_unicode(value)
    if value is None or isinstance(value, bool | int | float):
        return not isinstance(value, float) or isfinite(value)
    if not levels:
        return False
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(key, 0) for key in value) and all(
            _is_json(item, levels - 1) for item in value.values()
        )
    return isinstance(value, list | tuple) and all(_is_json(item, levels - 1) for item in value)


def _offset_of(record: Mapping[str, object]) -> int | None:
    """Return the offset from UTC, in minutes, that a message states, or that of its timestamp.

    An offset of zero in a timestamp says nothing about the speaker: programs write the times of all speakers in UTC.
    """
    stated = record.get("utc_offset")
    if stated is not None:
        return count_of("utc_offset", stated, -_MAX_OFFSET, _MAX_OFFSET, " minutes east of UTC")
    at = record.get("timestamp")
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return (isinstance(at, datetime) and offset_at(at)) or None


def offset_at(at: datetime) -> int:
    """Return the offset of a time from UTC in minutes."""
    return round((at.utcoffset() or timedelta()) / timedelta(minutes=1))


def ordered_at_in(record: Mapping[str, object]) -> datetime | None:
    """Return the place of an event in the order of events, if it is not the time of the event.

    Raises:
        InputError: it is no time.
    """
    value = record.get("ordered_at")
    return None if value is None else timestamp_of("ordered_at", value)


def timestamp_of(name: str, value: object) -> datetime:
    """Convert ISO 8601 text or an aware datetime to UTC.

    Raises:
        InputError: `value` is neither, has no zone, or is out of range; the message calls it `name`.
    """
    expected = "expected an ISO 8601 time with its zone, such as 2024-01-15T08:30:00+01:00"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(f"{name} {shown(value)} cannot be read; {expected}") from None
    if not isinstance(value, datetime):
        raise InputError(f"{name} {shown(value)} is not a time; {expected}")
    if value.tzinfo is None:
        raise InputError(f"{name} {value.isoformat()} has no time zone; {expected}")
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        raise InputError(f"{name} {value.isoformat()} is out of range; {expected}") from None
    hour_of(instant)
    return instant

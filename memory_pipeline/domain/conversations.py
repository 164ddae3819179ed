"""Conversations from agents, and their validation.

A conversation is a JSON object::

    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "2024-01-15-call", "user_id": "u-17",
     "tags": ["phone"],
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}

``user_id``, ``tags``, and a message's ``id`` and ``name`` are optional. Words such as "yesterday" are resolved on the
speaker's clock: by the message's ``utc_offset`` (minutes east of UTC), else the offset of its timestamp, else the
``timezone`` of the conversation, which is the user's, such as ``Asia/Tokyo``.

A message without an id is identified by its conversation, role, name, time and text. A conversation may be sent again
with the same timestamps: an id with another time or text is rejected.

Messages in the format of OpenAI's and LiteLLM's chat API are accepted too
(:mod:`memory_pipeline.domain.chat_messages`), if each has a ``timestamp``.

Text that memory itself injected into a prompt (:mod:`memory_pipeline.domain.text.recalled_text`) is removed from every
message first. A message without other text is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.chat_messages import as_mapping, messages_in
from memory_pipeline.domain.identity import MESSAGE, make_id
from memory_pipeline.domain.periods import EARLIEST, Calendar, Period
from memory_pipeline.domain.scopes import Audience, Scope, audience_of, label_of, optional_label, user_identity
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import ConfigurationError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from memory_pipeline.domain.scopes import ScopeOf

#: Longest text of one message, in characters.
MAX_CONTENT = 1_000_000
#: Maximum number of tags of a conversation; every message is stored with all of them.
MAX_TAGS = 100
#: Maximum number of users of a conversation; every message is stored with all members of a group.
MAX_USERS = 1_000
#: A message further ahead of the clock is rejected as a mistake.
CLOCK_SKEW = timedelta(hours=24)
#: A name that is the label of a user.
_LABEL = re.compile(r"\s*user\s*(:|$)", re.IGNORECASE)
#: Largest offset from UTC, in minutes. Those of time zones are within 14 hours.
_MAX_OFFSET = 1_439

HEADER = ("workspace_id", "agent_id", "conversation_id", "user_id", "users", "group_id", "tags", "timezone")


class NothingSaidError(InputError):
    """A message contains only recalled memory. Drop it; this is not an error of the message."""


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
        received_at: when the journal received it, UTC.
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

    @classmethod
    def from_record(cls, record: Mapping[str, object], scope_of: ScopeOf = Scope) -> Message:
        """Parse and validate the flat form of :meth:`to_record`. The row id is always computed.

        `scope_of` is needed for scopes of users and groups.

        Raises:
            NothingSaidError: the content is only recalled memory, even if other fields are invalid.
            InputError: a field is missing or invalid; the message names it.
        """
        remaining = _without_recalled(record.get("content"))
        scope = recorded_scope(record, scope_of)
        conversation_id = label_of("conversation_id", record.get("conversation_id"))
        source_id = optional_label("id", record.get("id"))
        role = _role(record.get("role"))
        name = optional_label("name", record.get("name"))
        content = _text(remaining)
        sent_at = timestamp_of("timestamp", record.get("timestamp"))
        turn = record.get("turn")
        if not isinstance(turn, int) or not 0 <= turn < 2**31:
            raise InputError(f"turn {shown(turn)} is not valid; expected a position from 0")
        identity = (source_id,) if source_id else (role, name, sent_at.isoformat(), content)
        hour = Calendar().hour(sent_at)
        return cls(
            id=make_id(MESSAGE, hour, *scope.ids, conversation_id, source_id is not None, identity),
            scope=scope,
            conversation_id=conversation_id,
            user_id=optional_label("user_id", record.get("user_id")),
            tags=_labels("tags", record.get("tags") or ()),
            source_id=source_id,
            turn=turn,
            role=role,
            name=name,
            content=content,
            sent_at=sent_at,
            received_at=timestamp_of("received_at", record.get("received_at")),
            users=users_in(record),
            utc_offset=_offset_of(record),
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
            "received_at": self.received_at.isoformat(),
        }

    @property
    def hour(self) -> Period:
        """The partition of the message."""
        return Calendar().hour(self.sent_at)

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

    def says_the_same_as(self, other: Message) -> bool:
        """Return whether two messages have the same role, name, content and time."""
        mine, theirs = ((m.role, m.name, m.content, m.sent_at) for m in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected record, the reason, and its place."""

    reason: str
    where: str
    record: object


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of accepted timestamps: not before `start`, not after `now`."""

    start: date
    now: datetime
    calendar: Calendar = field(default_factory=Calendar)

    def check(self, sent_at: datetime) -> None:
        """Raise InputError if a message of this time is not accepted."""
        hour = self.calendar.hour(sent_at)
        if self.calendar.bounds(hour)[0] < self.calendar.bounds(Period.parse("daily", self.start.isoformat()))[0]:
            remedy = (
                "unset MEMORY_PIPELINE_START, or set it to an earlier 1 January that is a Monday, such as 2018-01-01"
                if self.start > EARLIEST
                else "no memory can start earlier"
            )
            raise InputError(
                f"timestamp {sent_at.isoformat()} is before the first day of this memory, {self.start}; {remedy}"
            )
        if sent_at > self.now + CLOCK_SKEW:
            raise InputError(
                f"timestamp {sent_at.isoformat()} is in the future (now is {self.now.isoformat()}); "
                f"accepted: up to {CLOCK_SKEW // timedelta(hours=1)} hours ahead"
            )


class ParsedConversation(NamedTuple):
    """A validated conversation: accepted messages and rejected records.

    `recalled` counts the messages from which recalled memory was removed. Those without other text are neither accepted
    nor rejected.
    """

    messages: list[Message]
    rejected: list[Rejection]
    recalled: int


def read_messages(
    conversation: object,
    admission: Admission,
    scope_of: ScopeOf = Scope,
    zone_of: Callable[[Scope], str | None] = lambda _: None,
) -> ParsedConversation:
    """Validate an untrusted conversation: a mapping as in this module's docstring, or a pydantic model of one.

    `scope_of` returns the scope of its audience, `zone_of` the time zone of speakers who state none.

    An invalid conversation (its ids) is rejected as a whole; an invalid message is rejected alone. Of two messages with
    the same id and different content the second is rejected; an exact duplicate is dropped.
    """
    where = "conversation"
    conversation = as_mapping(conversation)
    try:
        if not isinstance(conversation, Mapping):
            raise InputError(f"a conversation must be an object, not {shown(conversation)}")
        header: dict[str, Any] = {key: conversation.get(key) for key in HEADER}
        Scope(header["workspace_id"], header["agent_id"])
        where = f"conversation {label_of('conversation_id', header['conversation_id'])}"
        _labels("tags", header["tags"] or ())
        records = conversation.get("messages")
        if not isinstance(records, Sequence) or isinstance(records, str | bytes) or not records:
            raise InputError(f"messages must be a list of at least one message, not {shown(records)}")
        conversation = with_users(conversation)
        header["users"] = conversation.get("users")
        audience = audience_in(header, _speakers(records))
        scope = scope_of(header["workspace_id"], header["agent_id"], audience.identity)
        zone = _zone(zone_of(scope) if header["timezone"] is None else header["timezone"])
    except InputError as error:
        return ParsedConversation([], [Rejection(str(error), where, conversation)], 0)

    accepted: dict[str, Message] = {}
    rejected: list[Rejection] = []
    recalled = 0
    turn = 0
    for number, record in enumerate(records, start=1):
        try:
            for part in messages_in(record):
                own = {"user_id": part.get("user_id") or header["user_id"], "turn": turn, "received_at": admission.now}
                entry = {**part, **header, **own, "users": audience.users if scope.is_group else ()}
                turn += 1
                try:
                    message = Message.from_record(entry, lambda *_: scope)
                except NothingSaidError:
                    recalled += 1
                    continue
                admission.check(message.sent_at)
                if message.utc_offset is None and zone is not None:
                    message = replace(message, utc_offset=_offset_at(message.sent_at.astimezone(zone)))
                known = accepted.setdefault(message.source_id or message.id, message)
                if not known.says_the_same_as(message):
                    raise InputError(same_id_other_content(message, known))
                recalled += message.content != part["content"]
        except InputError as error:
            rejected.append(Rejection(str(error), f"{where}, message {number}", alone(conversation, record)))
    return ParsedConversation(list(accepted.values()), rejected, recalled)


def with_users(conversation: Mapping[str, object]) -> Mapping[str, object]:
    """Return a conversation that names its users, if only its messages do: these may be sent again one by one."""
    records = conversation.get("messages")
    if any(conversation.get(name) is not None for name in ("user_id", "users")) or not isinstance(records, Sequence):
        return conversation
    speakers = _speakers(records)
    return {**conversation, "users": speakers} if speakers else conversation


def _speakers(records: Sequence[object]) -> list[object]:
    named = [one.get("user_id") for one in map(as_mapping, records) if isinstance(one, Mapping)]
    invalid = [one for one in named if one is not None and not isinstance(one, str)]
    return [*sorted({one for one in named if isinstance(one, str)}), *invalid[:1]]


def audience_in(fields: Mapping[str, Any], speakers: Sequence[object]) -> Audience:
    """Return the audience that a conversation's ``user_id``, ``users`` and ``group_id`` name, or its speakers.

    Raises:
        InputError: an id is invalid, or they contradict each other.
    """
    users = None if fields["users"] is None else _labels("users", fields["users"], MAX_USERS)
    user_id, group_id = (optional_label(name, fields[name]) for name in ("user_id", "group_id"))
    return audience_of(user_id, users, group_id, {label_of("user_id", speaker) for speaker in speakers})


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
    return _labels("users", record.get("users") or (), MAX_USERS)


def members_fields(scope: Scope, users: Sequence[str]) -> dict[str, object]:
    """Return the fields of a record of the journal that the agent's own memory does not need."""
    own: dict[str, object] = {"identity": scope.identity} if scope.identity else {}
    return own | {"users": list(users)} if users else own


def alone(conversation: Mapping[str, object], record: object) -> dict[str, object]:
    """Return a conversation with only one message, for the list of rejected records.

    It has the conversation's ids and tags. Other fields are not repeated for every rejected message.
    """
    return {name: conversation[name] for name in HEADER if name in conversation} | {"messages": [record]}


def same_id_other_content(message: Message, known: Message) -> str:
    """Return the error for a known message id with other content or another time."""
    label = f"message id {shown(message.source_id)} of conversation {shown(message.conversation_id)}"
    if (message.role, message.name, message.content) == (known.role, known.name, known.content):
        return (
            f"{label} was already sent with the time {known.sent_at.isoformat()}, not {message.sent_at.isoformat()}; "
            "resend a message with its original time, and give a new message a new id"
        )
    return f"{label} was already used for other content; messages cannot be changed, give the new message a new id"


def _role(value: object) -> Role:
    try:
        return Role(value)  # type: ignore[arg-type]  # other values raise ValueError
    except ValueError:
        raise InputError(f"role {shown(value)} is unknown; accepted: {', '.join(Role)}") from None


def _labels(name: str, values: object, most: int = MAX_TAGS) -> tuple[str, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InputError(f"{name} must be a list of texts, not {shown(values)}")
    if len(values) > most:
        raise InputError(f"{name} has {len(values):,} entries; at most {most:,} are accepted")
    return tuple(sorted({label_of(name, value) for value in values}))


def _without_recalled(value: object) -> object:
    """Return a content without recalled memory; other types are left to :func:`_text`."""
    if not isinstance(value, str):
        return value
    remaining = without_recalled(value)
    if remaining is not value and not remaining.strip():
        raise NothingSaidError("content contains only recalled memory; leave the message out")
    return remaining


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"content {shown(value)} is not valid; expected a text that is not blank")
    if len(value) > MAX_CONTENT:
        raise InputError(f"content has {len(value):,} characters; accepted: up to {MAX_CONTENT:,} in one message")
    if "\x00" in value or not is_unicode(value):
        raise InputError(f"content {shown(value)} is not valid Unicode text")
    return value


def _offset_of(record: Mapping[str, object]) -> int | None:
    """Return the offset from UTC, in minutes, that a message states, or that of its timestamp.

    An offset of zero in a timestamp says nothing about the speaker: programs write the times of all speakers in UTC.
    """
    stated = record.get("utc_offset")
    if stated is not None:
        if isinstance(stated, bool) or not isinstance(stated, int) or abs(stated) > _MAX_OFFSET:
            raise InputError(
                f"utc_offset {shown(stated)} is not valid; expected minutes east of UTC, up to {_MAX_OFFSET}"
            )
        return stated
    at = record.get("timestamp")
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return (isinstance(at, datetime) and _offset_at(at)) or None


def _offset_at(at: datetime) -> int:
    """Return the offset of a time from UTC in minutes."""
    return round((at.utcoffset() or timedelta()) / timedelta(minutes=1))


def _zone(name: object) -> tzinfo | None:
    if name is None:
        return None
    try:
        return Calendar(name).zone  # type: ignore[arg-type]  # Calendar checks
    except (ConfigurationError, TypeError):
        raise InputError(
            f"timezone {shown(name)} is unknown; expected an IANA name such as Europe/Berlin, of the user"
        ) from None


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
    Calendar().hour(instant)
    return instant

"""Conversations as agents write them, and what is accepted at the door.

A conversation is a JSON object::

    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "2024-01-15-call", "user_id": "u-17",
     "tags": ["phone"],
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}

``user_id``, ``tags``, and a message's ``id`` and ``name`` may be left out. A message without an id is identified by
its conversation, role, name, time and text. A conversation that is sent again must have each message with the time it
had: an id that was used before is refused with another time or text.

Messages in the format of OpenAI's and LiteLLM's chat API are accepted as well
(:mod:`memory_pipeline.domain.chat_messages`), given that each has its ``timestamp``.

What memory itself gave to a prompt (:mod:`memory_pipeline.domain.text.recalled_text`) is dropped from every message,
before anything else looks at its content. A message that holds nothing else is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from memory_pipeline.domain.chat_messages import as_mapping, messages_in
from memory_pipeline.domain.identity import MESSAGE, make_id
from memory_pipeline.domain.periods import EARLIEST, Calendar, Period
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.errors import InputError, shown

#: Longest text of one message, in characters.
MAX_CONTENT = 1_000_000
#: Longest id, name or tag, in characters.
MAX_ID = 256
#: Most tags of a conversation; each of its messages is stored with all of them.
MAX_TAGS = 100
#: How far a message may lie ahead of the clock before it is taken for a mistake.
CLOCK_SKEW = timedelta(hours=24)

_SCOPE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEADER = ("workspace_id", "agent_id", "conversation_id", "user_id", "tags")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\"'`/\\]|\.\.")


class NothingSaidError(InputError):
    """A message holds nothing but what memory recalled. It is no fault of the message, which is to be left out."""


class Role(StrEnum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"

    @property
    def is_memorable(self) -> bool:
        """True where what is said becomes memory; tool and system messages are context, never facts."""
        return self in (Role.USER, Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory: one agent of one workspace. Both ids are safe as parts of a path."""

    workspace_id: str
    agent_id: str

    def __post_init__(self) -> None:
        for name in ("workspace_id", "agent_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not _SCOPE_ID.fullmatch(value) or ".." in value:
                raise InputError(
                    f"{name} {shown(value)} is not valid; accepted: 1 to 100 ASCII letters, digits, '.', '_', '-', "
                    "beginning with a letter or digit, without '..'"
                )


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, checked.

    Attributes:
        id: the row's id; see :mod:`memory_pipeline.domain.identity`.
        source_id: the id that the writer gave it, if any.
        turn: its position, from 0, in the conversation as it was first written.
        sent_at: when it was said, UTC.
        received_at: when the journal took it, UTC.
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

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Message:
        """Read and check the flat form that :meth:`to_record` gives; the id is worked out, never believed.

        Raises:
            NothingSaidError: the content is nothing but recalled memory, whatever the other fields are.
            InputError: a field is missing or not acceptable; the message names it.
        """
        said = _said(record.get("content"))
        scope = Scope(record.get("workspace_id"), record.get("agent_id"))  # type: ignore[arg-type]  # Scope checks
        conversation_id = _label("conversation_id", record.get("conversation_id"))
        source_id = _optional_label("id", record.get("id"))
        role = _role(record.get("role"))
        name = _name(record.get("name"))
        content = _text(said)
        sent_at = timestamp_of("timestamp", record.get("timestamp"))
        turn = record.get("turn")
        if not isinstance(turn, int) or not 0 <= turn < 2**31:
            raise InputError(f"turn {shown(turn)} is not valid; expected a position from 0")
        identity = (source_id,) if source_id else (role, name, sent_at.isoformat(), content)
        hour = Calendar().hour(sent_at)
        return cls(
            id=make_id(
                MESSAGE, hour, scope.workspace_id, scope.agent_id, conversation_id, source_id is not None, identity
            ),
            scope=scope,
            conversation_id=conversation_id,
            user_id=_optional_label("user_id", record.get("user_id")),
            tags=_labels("tags", record.get("tags") or ()),
            source_id=source_id,
            turn=turn,
            role=role,
            name=name,
            content=content,
            sent_at=sent_at,
            received_at=timestamp_of("received_at", record.get("received_at")),
        )

    def to_record(self) -> dict[str, object]:
        """Return the message as a flat JSON object, the form in which the journal keeps it."""
        return {
            "workspace_id": self.scope.workspace_id,
            "agent_id": self.scope.agent_id,
            "conversation_id": self.conversation_id,
            "user_id": self.user_id,
            "tags": list(self.tags),
            "id": self.source_id,
            "turn": self.turn,
            "role": self.role.value,
            "name": self.name,
            "content": self.content,
            "timestamp": self.sent_at.isoformat(),
            "received_at": self.received_at.isoformat(),
        }

    @property
    def hour(self) -> Period:
        """The partition that the message belongs to."""
        return Calendar().hour(self.sent_at)

    @property
    def speaker(self) -> str:
        """The name to print before the text: the person's, or the role's canonical name."""
        return self.name or {"user": "User", "assistant": "Agent"}.get(self.role, self.role.title())

    def says_the_same_as(self, other: Message) -> bool:
        """Tell whether two messages with one id agree in all that was said."""
        mine, theirs = ((m.role, m.name, m.content, m.sent_at) for m in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that was not accepted: why, where it stood, and the record itself."""

    reason: str
    where: str
    record: object


@dataclass(frozen=True, slots=True)
class Admission:
    """What the door asks of messages: not older than `start`, not from the future as of `now`."""

    start: date
    now: datetime
    calendar: Calendar = field(default_factory=Calendar)

    def check(self, sent_at: datetime) -> None:
        """Raise InputError if a message of this time cannot be kept."""
        hour = self.calendar.hour(sent_at)
        if self.calendar.bounds(hour)[0] < self.calendar.bounds(Period.parse("daily", self.start.isoformat()))[0]:
            remedy = (
                "unset MEMORY_PIPELINE_START, or set it to an earlier 1 January that is a Monday, such as 2018-01-01"
                if self.start > EARLIEST
                else "no memory begins earlier"
            )
            raise InputError(
                f"timestamp {sent_at.isoformat()} is before the first day of this memory, {self.start}; {remedy}"
            )
        if sent_at > self.now + CLOCK_SKEW:
            raise InputError(f"timestamp {sent_at.isoformat()} lies in the future (now is {self.now.isoformat()})")


class ParsedConversation(NamedTuple):
    """What the door made of a conversation.

    Attributes:
        messages: what was accepted.
        rejected: the records that were not, each with its reason.
        recalled: how many messages came with recalled memory in them, which was dropped; of these, the ones that held
            nothing else are neither accepted nor rejected.
    """

    messages: list[Message]
    rejected: list[Rejection]
    recalled: int


def read_messages(conversation: object, admission: Admission) -> ParsedConversation:
    """Check a conversation and return its messages and the records that were not accepted, each with its reason.

    A fault of the conversation itself (its ids) rejects it whole; a fault of a message rejects that message.
    Of two messages with one id and different content the second is rejected; an exact repetition is dropped.

    Args:
        conversation: a mapping as in this module's docstring, or a pydantic model of one; from anywhere.
        admission: the times that are accepted.
    """
    where = "conversation"
    conversation = as_mapping(conversation)
    try:
        if not isinstance(conversation, Mapping):
            raise InputError(f"a conversation must be an object, not {shown(conversation)}")
        header: dict[str, Any] = {key: conversation.get(key) for key in _HEADER}
        Scope(header["workspace_id"], header["agent_id"])
        where = f"conversation {_label('conversation_id', header['conversation_id'])}"
        _optional_label("user_id", header["user_id"])
        _labels("tags", header["tags"] or ())
        records = conversation.get("messages")
        if not isinstance(records, Sequence) or isinstance(records, str | bytes) or not records:
            raise InputError(f"messages must be a list of at least one message, not {shown(records)}")
    except InputError as error:
        return ParsedConversation([], [Rejection(str(error), where, conversation)], 0)

    accepted: dict[str, Message] = {}
    rejected: list[Rejection] = []
    recalled = 0
    turn = 0
    for number, record in enumerate(records, start=1):
        try:
            for part in messages_in(record):
                entry = {**part, **header, "turn": turn, "received_at": admission.now}
                turn += 1
                try:
                    message = Message.from_record(entry)
                except NothingSaidError:
                    recalled += 1
                    continue
                admission.check(message.sent_at)
                known = accepted.setdefault(message.source_id or message.id, message)
                if not known.says_the_same_as(message):
                    raise InputError(same_id_other_content(message, known))
                recalled += message.content != part["content"]
        except InputError as error:
            rejected.append(Rejection(str(error), f"{where}, message {number}", alone(conversation, record)))
    return ParsedConversation(list(accepted.values()), rejected, recalled)


def alone(conversation: Mapping[str, object], record: object) -> dict[str, object]:
    """Return one message of a conversation as it is set aside: a conversation of that message alone.

    It has the conversation's ids and tags, which are short. Whatever else the conversation came with is not repeated
    for each of its bad messages.
    """
    return {name: conversation[name] for name in _HEADER if name in conversation} | {"messages": [record]}


def same_id_other_content(message: Message, known: Message) -> str:
    """Say that a message's id is taken by a known message, which says something else or at another time."""
    own = f"message id {shown(message.source_id)} of conversation {shown(message.conversation_id)}"
    if (message.role, message.name, message.content) == (known.role, known.name, known.content):
        return (
            f"{own} was already sent with the time {known.sent_at.isoformat()}, not {message.sent_at.isoformat()}; "
            "send a message again with the time that it had, and give a new message a new id"
        )
    return f"{own} was already used for other content; what was said cannot be changed, give the new message a new id"


def _role(value: object) -> Role:
    try:
        return Role(value)  # type: ignore[arg-type]  # whatever is no member raises ValueError
    except ValueError:
        raise InputError(f"role {shown(value)} is unknown; accepted: {', '.join(Role)}") from None


def _label(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID:
        raise InputError(f"{name} {shown(value)} is not valid; expected a text of 1 to {MAX_ID} characters")
    if _FORBIDDEN.search(value) or value.startswith(".") or not is_unicode(value):
        raise InputError(
            f"{name} {shown(value)} is not valid; quotes, slashes, '..', a leading '.', control characters and "
            "broken Unicode are not accepted"
        )
    return value


def _name(value: object) -> str | None:
    """Check the name of a person, who may be called O'Brien; it never becomes a part of a path or a query."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID:
        raise InputError(f"name {shown(value)} is not valid; expected a text of 1 to {MAX_ID} characters")
    if _CONTROL.search(value) or not is_unicode(value):
        raise InputError(f"name {shown(value)} is not valid; control characters and broken Unicode are not accepted")
    return value


def _optional_label(name: str, value: object) -> str | None:
    return None if value is None else _label(name, value)


def _labels(name: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InputError(f"{name} must be a list of texts, not {shown(values)}")
    if len(values) > MAX_TAGS:
        raise InputError(f"{name} has {len(values):,} entries; at most {MAX_TAGS} are accepted")
    return tuple(sorted({_label(name, value) for value in values}))


def _said(value: object) -> object:
    """Return a content without what memory recalled; one that is no text is left to :func:`_text`."""
    if not isinstance(value, str):
        return value
    said = without_recalled(value)
    if said is not value and not said.strip():
        raise NothingSaidError("content holds nothing but what memory recalled; nobody has said it")
    return said


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"content must be a text that is not blank, not {shown(value)}")
    if len(value) > MAX_CONTENT:
        raise InputError(f"content has {len(value):,} characters; at most {MAX_CONTENT:,} are accepted in one message")
    if "\x00" in value or not is_unicode(value):
        raise InputError(f"content {shown(value)} is not valid Unicode text")
    return value


def timestamp_of(name: str, value: object) -> datetime:
    """Return a time in UTC; from a text in ISO 8601, or a datetime.

    Raises:
        InputError: `value`, which the caller knows as `name`, is neither, has no zone, or is out of range.
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

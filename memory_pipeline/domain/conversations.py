"""Conversations from agents, and their validation.

A conversation is a JSON object::

    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "2024-01-15-call", "user_id": "u-17",
     "tags": ["phone"],
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}

``user_id``, ``tags``, and a message's ``id`` and ``name`` are optional. So are the ``source`` of the conversation, such
as ``cron:nightly``, its ``capture`` (:mod:`memory_pipeline.domain.capture`), and of a message the ``metadata``, a JSON
object, and ``redactions``, the names of what was removed from its text. Words such as "yesterday" are resolved on the
speaker's clock: by the message's ``utc_offset`` (minutes east of UTC), else the offset of its timestamp, else the
``timezone`` of the conversation, which is the user's, such as ``Asia/Tokyo``.

A message without an id is identified by its conversation, role, name, time and text; of several equal ones in a list,
also by their number. A conversation may be sent again with the same timestamps: an id with another time or text is
rejected. Texts are stored in Unicode's composed form (NFC).

Messages in the formats of chat clients are accepted too (:mod:`memory_pipeline.domain.chat_messages`), if each has a
``timestamp``, or its time as ``created_at``, ``date``, ``ts`` and the like: ISO 8601 with a zone, or seconds or
milliseconds since 1970.

Text that memory itself injected into a prompt (:mod:`memory_pipeline.domain.text.recalled_text`) is removed from every
message first. A message without other text is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.chat_messages import as_mapping, is_empty, messages_in, times_in
from memory_pipeline.domain.messages import (
    MAX_USERS,
    Message,
    NothingSaidError,
    labels_of,
    offset_at,
)
from memory_pipeline.domain.periods import EARLIEST, Calendar, Period, hour_of
from memory_pipeline.domain.scopes import Audience, Scope, audience_of, label_of, optional_label
from memory_pipeline.domain.text.secrets import kinds_in
from memory_pipeline.domain.text.words import composed
from memory_pipeline.errors import ConfigurationError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import tzinfo

    from memory_pipeline.domain.scopes import ScopeOf

#: A message further ahead of the clock is rejected as a mistake.
CLOCK_SKEW = timedelta(hours=24)

#: Texts that are stored in Unicode's composed form, so that "é" is one character, however it was typed.
_TEXTS = ("name", "content")

HEADER = (
    "workspace_id", "agent_id", "conversation_id", "user_id", "users", "group_id", "tags", "timezone", "source",
    "capture",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected record, the reason, and its place.

    `owner` has the ids of the workspace, agent and user for whom an unreadable record was written, as far as known.
    """

    reason: str
    where: str
    record: object
    owner: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of a write.

    Attributes:
        accepted: ids of the messages that were written.
        repeated: ids of the messages that were stored before.
        files: new journal files.
        edited: ids of the stored messages whose text was replaced.
        recalled: number of messages from which recalled text was dropped.
        forgotten: number of messages that were dropped because their subject was erased later.
        expired: number of messages that were dropped because all that was kept of their time has expired.
        not_captured: number of messages that were not stored, because their conversation is not captured in full.
        empty: number of messages that were left out, because they say nothing.
        unread_times: keys of messages that look like times and were not read, because they may mean something else.
        conversation_id: the conversation, as :meth:`Memory.add` returns it.
    """

    accepted: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    recalled: int = 0
    forgotten: int = 0
    expired: int = 0
    not_captured: int = 0
    empty: int = 0
    unread_times: tuple[str, ...] = ()
    conversation_id: str = ""

    edited: tuple[str, ...] = ()

    @property
    def message_ids(self) -> tuple[str, ...]:
        """Ids of all messages that are stored now."""
        return (*self.accepted, *self.repeated, *self.edited)


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of accepted timestamps: not before `start`, not after `now`."""

    start: date
    now: datetime
    calendar: Calendar = field(default_factory=Calendar)

    def check(self, sent_at: datetime) -> None:
        """Raise InputError if a message of this time is not accepted."""
        hour = hour_of(sent_at)
        if self.calendar.bounds(hour)[0] < _beginning(self.calendar, self.start):
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

    def admits(self, sent_at: datetime) -> bool:
        """Return whether a message of this time is accepted."""
        try:
            self.check(sent_at)
        except InputError:
            return False
        return True


@lru_cache(maxsize=16)
def _beginning(calendar: Calendar, day: date) -> datetime:
    return calendar.bounds(Period.parse("daily", day.isoformat()))[0]


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
    *,
    skips_empty: bool = False,
) -> ParsedConversation:
    """Validate an untrusted conversation: a mapping as in this module's docstring, or a pydantic model of one.

    `scope_of` returns the scope of its audience, `zone_of` the time zone of speakers who state none.

    An invalid conversation (its ids) is rejected as a whole; an invalid message is rejected alone. Of two messages with
    the same id and different content the second is rejected, an exact duplicate is dropped. Without ids, two equal
    messages of one time are two messages. A message that says nothing is rejected too, or left out with `skips_empty`
    if others say something.
    """
    where = "conversation"
    conversation = as_mapping(conversation)
    try:
        if not isinstance(conversation, Mapping):
            raise InputError(f"a conversation must be an object, not {shown(conversation)}")
        header: dict[str, Any] = {key: conversation.get(key) for key in HEADER}
        Scope(header["workspace_id"], header["agent_id"])
        where = f"conversation {label_of('conversation_id', header['conversation_id'])}"
        labels_of("tags", header["tags"] or ())
        optional_label("source", header["source"])
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
    said: Counter[str] = Counter()
    rejected: list[Rejection] = []
    recalled = 0
    turn = 0
    skips_empty = skips_empty and not all(map(is_empty, records))
    for number, record in enumerate(records, start=1):
        if skips_empty and is_empty(record):
            continue
        try:
            for part in messages_in(record):
                own = {
                    "user_id": part.get("user_id") or header["user_id"],
                    "turn": turn,
                    "received_at": admission.now,
                    "timestamp": time_in(part, admission)[1],
                    "occurrence": None,
                    "edit_of": None,
                    "users": audience.users if scope.is_group else (),
                    "redactions": _redactions(part),
                }
                own |= {name: composed(text) for name in _TEXTS if isinstance(text := part.get(name), str)}
                entry = {**part, **header, **own}
                turn += 1
                try:
                    message = Message.from_record(entry, lambda *_: scope)
                except NothingSaidError:
                    recalled += 1
                    continue
                admission.check(message.sent_at)
                if message.utc_offset is None and zone is not None:
                    message = replace(message, utc_offset=offset_at(message.sent_at.astimezone(zone)))
                said[message.id] += 1
                if said[message.id] > 1 and not message.source_id:
                    message = message.identified(occurrence=said[message.id])
                known = accepted.setdefault(message.source_id or message.id, message)
                if not known.says_the_same_as(message):
                    raise InputError(same_id_other_content(message, known))
                recalled += message.content != entry["content"]
        except InputError as error:
            rejected.append(Rejection(str(error), f"{where}, message {number}", alone(conversation, record)))
    return ParsedConversation(list(accepted.values()), rejected, recalled)


def _redactions(record: Mapping[str, object]) -> object:
    """Return what was removed from a text: what its message states, and the kinds of its markers."""
    stated, kinds = record.get("redactions") or (), kinds_in(str(record.get("content")))
    return [*kinds, *stated] if kinds and isinstance(stated, list | tuple) else stated


def time_in(record: Mapping[str, object], admission: Admission) -> tuple[str, object]:
    """Return the key of a message's time, and the time: the ``timestamp``, or else the first other that is accepted."""
    if record.get("timestamp") is None:
        for key, at in times_in(record).items():
            if at is not None and admission.admits(at):
                return key, at
    return "timestamp", record.get("timestamp")


def with_times(conversation: object, admission: Admission) -> tuple[object, set[datetime]]:
    """Return a conversation whose messages all have a time, and the timestamps that were added."""
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
    if not isinstance(conversation, Mapping) or not isinstance(messages, list | tuple):
        return conversation, set()
    first = admission.now - timedelta(microseconds=len(messages) - 1)
    times: set[datetime] = set()
    records: list[object] = []
    for place, record in enumerate(map(as_mapping, messages)):
        at = first + timedelta(microseconds=place)
        if isinstance(record, Mapping) and time_in(record, admission)[1] is None:
            times.add(at)
            records.append({**record, "timestamp": at})
        else:
            records.append(record)
    return {**conversation, "messages": records}, times


def unread_times(records: Iterable[object], admission: Admission) -> tuple[str, ...]:
    """Return the keys of messages that look like times, and that :func:`time_in` does not read."""
    messages = [record for record in map(as_mapping, records) if isinstance(record, Mapping)]
    return tuple(sorted({key for one in messages for key in times_in(one) if key != time_in(one, admission)[0]}))


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
    users = None if fields["users"] is None else labels_of("users", fields["users"], MAX_USERS)
    user_id, group_id = (optional_label(name, fields[name]) for name in ("user_id", "group_id"))
    return audience_of(user_id, users, group_id, {label_of("user_id", speaker) for speaker in speakers})


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


def _zone(name: object) -> tzinfo | None:
    if name is None:
        return None
    try:
        return Calendar(name).zone  # type: ignore[arg-type]  # Calendar checks
    except (ConfigurationError, TypeError):
        raise InputError(
            f"timezone {shown(name)} is unknown; expected an IANA name such as Europe/Berlin, of the user"
        ) from None

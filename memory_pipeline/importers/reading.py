"""What formats have in common: how a format is declared, what it yields, and how times and texts are read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import MAX_ID
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memory_pipeline.importers.files import ExportFile

ChatMessage = dict[str, Any]
#: What a damaged or unknown record makes a reader raise.
BAD_RECORD: Final = (
    InputError,
    TypeError,
    KeyError,
    AttributeError,
    ValueError,
    IndexError,
    OverflowError,
    RecursionError,
)
#: Messages of a conversation that are handed on at once.
CHUNK: Final = 2_000
#: Numbers up to each are seconds, milliseconds and microseconds since 1970; above them nanoseconds.
_UNITS: Final = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
_NUMBER: Final = re.compile(r"[0-9]{9,19}(?:\.[0-9]+)?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
#: Names of speakers that are counted, and that are shown.
_MOST_SPEAKERS: Final = 10_000
_SHOWN: Final = 10
#: Characters of a record that are kept in the quarantine.
_MAX_RECORD: Final = 100_000


class ImportedTalk(NamedTuple):
    """A conversation of an export, or a part of one.

    `started_at` is the time of messages that have none, if none before them has one.
    """

    where: str
    conversation_id: str
    messages: Sequence[ChatMessage]
    started_at: datetime | None = None
    tags: tuple[str, ...] = ()


class ImportedMemory(NamedTuple):
    """A memory of another product. `identity` is its id there; `user_id` its user, if the export names one."""

    where: str
    identity: str
    text: str
    at: datetime
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    user_id: str | None = None


class ImportedRelation(NamedTuple):
    """A relation of another product's graph, which holds from `at`, and if it has ended, `until` then."""

    where: str
    subject: str
    predicate: str
    object: str
    at: datetime
    until: datetime | None = None
    user_id: str | None = None


Item = ImportedTalk | ImportedMemory | ImportedRelation | Rejection


@dataclass
class Notes:
    """What a reader is told, and what it tells beside the conversations.

    Attributes:
        zone: the zone of times that state none, if it was given; `timezone` is its name.
        at: the time of messages that have none, if it was given.
        date_order: the order of day, month and year in dates, if it was given: ``dmy``, ``mdy`` or ``ymd``.
        me: the name or the id of the speaker who is the user, if it was given.
        skipped: what is nobody's words, and how often.
        checks: what the user should check, and how often.
        seen: keys of messages that are repeated in other files of the export.
        known: what was read of other files, such as names by the ids of users.
        speakers: the names under which people spoke, and how often.
        said_by_me: number of messages of the speaker who is the user.
    """

    zone: tzinfo | None = None
    timezone: str | None = None
    at: datetime | None = None
    date_order: str | None = None
    me: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    seen: set[object] = field(default_factory=set)
    known: dict[object, Any] = field(default_factory=dict)
    speakers: Counter[str] = field(default_factory=Counter)
    said_by_me: int = 0

    def name_of(self, message: ChatMessage) -> str | None:
        """Return the name under which a message is stored, none for the user, and count who speaks."""
        name, speaker = message.get("name"), message.get("speaker")
        stored = label(name) if isinstance(name, str) and name.strip() else None
        if message.get("role") != "user" or stored is None:
            return stored
        if self.me is not None and self.me.casefold() in {stored.strip().casefold(), str(speaker).casefold()}:
            self.said_by_me += 1
            return None
        if stored in self.speakers or len(self.speakers) < _MOST_SPEAKERS:
            self.speakers[stored] += 1
        return stored

    def check_speakers(self) -> None:
        """Tell what to check about who the user is, if people spoke under names."""
        shown_names = ", ".join(f"{shown(name)} ({count:,})" for name, count in self.speakers.most_common(_SHOWN))
        more = f" and {len(self.speakers) - _SHOWN:,} more" if len(self.speakers) > _SHOWN else ""
        if self.me is not None and not self.said_by_me:
            self.checks[f"name is wrong: nobody is called {shown(self.me)}; people speak: {shown_names}{more}"] += 1
        elif self.me is None and len(self.speakers) > 1:
            reason = "people speak under their names, and none of them is known to be the user; name that one with --me"
            self.checks[f"{reason}: {shown_names}{more}"] += len(self.speakers)

    def once(self, key: object, read: Callable[[], Any]) -> Any:
        """Return what `read` returns, which is called once for a key."""
        if key not in self.known:
            self.known[key] = read()
        return self.known[key]

    def skip(self, reason: str) -> None:
        """Count something that is not imported."""
        self.skipped[reason] += 1

    def undated(self, file: ExportFile) -> datetime:
        """Return the time of messages of a file that have none."""
        if self.at is None:
            self.checks["conversations or memories have no time and got that of their file; set another with --at"] += 1
        return self.at or file.modified


@dataclass(frozen=True, slots=True)
class Format:
    """A format of exports. Either `record` reads each object of a file, or `read` reads a whole file.

    Attributes:
        name: as in ``--format`` and in the source of conversations, ``import:NAME``.
        title: for people.
        matches: whether a file is in this format, by its beginning.
        asks: raises an InputError if a file cannot be read without something that the user knows, such as a time zone.
        companions: names of files of an export in which nobody says anything.
        order: the order in which the files of an export are read; by default that of their names.
    """

    name: str
    title: str
    matches: Callable[[ExportFile], bool]
    record: Callable[[Any, str, ExportFile, Notes], Iterable[Item]] | None = None
    read: Callable[[ExportFile, Notes], Iterable[Item]] | None = None
    asks: Callable[[ExportFile, Notes], None] = lambda *_: None
    order: Callable[[ExportFile], Any] = lambda _: ()
    companions: tuple[str, ...] = ()

    def items(self, file: ExportFile, notes: Notes) -> Iterator[Item]:
        """Yield the conversations of a file, and rejections of what cannot be read."""
        if self.read is not None:
            yield from self.read(file, notes)
        elif self.record is not None:
            for where, record in file.records():
                if isinstance(record, Rejection):
                    yield record
                    continue
                try:
                    if not isinstance(record, Mapping):
                        raise InputError(f"expected an object, not {shown(record)}")
                    yield from self.record(record, where, file, notes)
                except BAD_RECORD as error:
                    yield rejected(error, where, record)


def items_of(
    objects: Iterable[tuple[str, str, Any]], items_in: Callable[[str, str, Any], Iterable[Item]]
) -> Iterator[Item]:
    """Yield what `items_in` makes of the place, key and value of each object, and rejections of what it cannot read."""
    for where, key, record in objects:
        if isinstance(record, Rejection):
            yield record
            continue
        try:
            yield from items_in(where, key, record)
        except BAD_RECORD as error:
            yield rejected(error, where, record)


def rejected(error: Exception, where: str, record: object) -> Rejection:
    """Return the rejection of a record that a reader could not read."""
    try:
        text = json.dumps(record, ensure_ascii=False, default=str)[:_MAX_RECORD]
    except (ValueError, RecursionError):
        text = where
    reason = str(error) if isinstance(error, InputError) else f"not as expected: {type(error).__name__}: {error}"
    return Rejection(reason, where, text)


def of_source(rejection: Rejection, name: str) -> Rejection:
    """Return a rejection of a record in the format `name`, of which an erasure of the import removes the record."""
    return replace(rejection, owner={"conversation_id": f"import:{name}"})


def each(
    records: Iterable[tuple[str, Any]], message_in: Callable[[Any], ChatMessage | None]
) -> Iterator[ChatMessage | Rejection]:
    """Yield the message that `message_in` makes of each record, if any, and rejections of what it cannot read."""
    for where, record in records:
        if isinstance(record, Rejection):
            yield record
            continue
        try:
            message = message_in(record)
        except BAD_RECORD as error:
            yield rejected(error, where, record)
        else:
            if message is not None:
                yield message


def talks_of(
    items: Iterable[ChatMessage | Rejection], where: str, conversation_id: str, **fields: Any
) -> Iterator[Item]:
    """Yield the messages of a conversation in parts, and rejections as they are.

    A message may name another conversation as its `conversation`, such as a thread of a channel.
    """
    parts: dict[str, list[ChatMessage]] = {}
    for number, item in enumerate(items, start=1):
        if isinstance(item, Rejection):
            yield item
        else:
            parts.setdefault(str(item.pop("conversation", conversation_id)), []).append(item)
        if number % CHUNK == 0:
            yield from (ImportedTalk(where, name, said, **fields) for name, said in parts.items())
            parts = {}
    yield from (ImportedTalk(where, name, said, **fields) for name, said in parts.items())


def label(value: object) -> str:
    """Return an id, a name or a tag that is accepted: characters that are not are replaced, and long ones are cut."""
    text = _CONTROL.sub("\ufffd", str(value))
    return text if len(text) <= MAX_ID else f"{text[:200]}…{digest(text)}"


def spoken(
    role: str,
    content: object,
    at: datetime | None,
    *,
    id: object = None,  # noqa: A002  # as in messages
    name: object = None,
    speaker: object = None,
    edited_at: datetime | None = None,
) -> ChatMessage:
    """Return a message. Content is a text, or parts as chat clients have them.

    `speaker` is the id of who speaks under a name, `edited_at` when the message was changed.
    """
    edited = {} if edited_at is None else {"metadata": {"edited_at": edited_at.astimezone(UTC).isoformat()}}
    return {"role": role, "content": content, "timestamp": at, "id": id, "name": name, "speaker": speaker, **edited}


def utc_of(value: object) -> datetime | None:
    """Return a time as :func:`time_of` does; one without a zone is UTC."""
    at = time_of(value)
    if at is None and isinstance(value, str) and value.strip():
        at = datetime.fromisoformat(value.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return at


def time_of(value: object) -> datetime | None:
    """Return a time with its zone: ISO 8601, or seconds, milliseconds, microseconds or nanoseconds since 1970.

    None if there is none, or it has no zone.
    """
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            at = datetime.fromisoformat(value.strip()) if value.strip() else None
            return at if at is not None and at.tzinfo else None
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return next((datetime.fromtimestamp(value / unit, UTC) for most, unit in _UNITS if value < most), None)


@dataclass
class Clock:
    """Reads local times in their order: an hour that is repeated in autumn is the later one when time goes back."""

    notes: Notes
    last: datetime | None = None

    def instant(self, local: datetime) -> datetime:
        """Return a local time in UTC.

        Raises:
            NoZoneError: no zone was given.
        """
        zone = self.notes.zone
        if zone is None:
            raise NoZoneError("the export")
        first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        at = second if first < second and self.last is not None and first < self.last else first
        if first < second and at == first:
            self.notes.checks["times are in an hour that the clocks repeat; the first was taken"] += 1
        elif first > second:
            self.notes.checks["times do not exist in this time zone; check --timezone"] += 1
        self.last = at
        return at


class NoZoneError(InputError):
    """Local times were found, and no zone was given."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"the times in {where} have no zone; name that of the phone or computer, as in --timezone Europe/Berlin"
        )


def branch_to(leaf: Any, parents: Mapping[Any, Any]) -> list[Any]:
    """Return the keys from the root to a leaf of a tree, given the parent of each. A cycle ends it."""
    found: dict[Any, None] = {}
    while leaf in parents and leaf not in found:
        found[leaf] = None
        leaf = parents[leaf]
    return list(reversed(found))


def file_mark(name: object, kind: object = "") -> str:
    """Return the mark of an attachment: ``[image]``, ``[audio]``, ``[video]`` or ``[file: name]``."""
    text = str(kind or "").lower()
    for known in ("image", "audio", "video"):
        if text.startswith(known):
            return f"[{known}]"
    return f"[file: {name}]" if name else "[file]"


def lines(*texts: object) -> str:
    """Return texts below each other, without those that are blank."""
    return "\n".join(text.strip("\n") for text in texts if isinstance(text, str) and text.strip())


def quoted(text: str) -> str:
    """Return words of someone else as a quotation."""
    return "\n".join(f"> {line}" for line in text.split("\n"))

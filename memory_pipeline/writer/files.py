"""Ingest JSON and JSONL files of conversations."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from memory_pipeline.domain.capture import Capture, capture_in
from memory_pipeline.domain.chat_messages import TEXT_KEYS
from memory_pipeline.domain.conversations import (
    HEADER,
    Admission,
    Rejection,
    alone,
    read_messages,
    same_id_other_content,
    time_in,
    with_users,
)
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.json_text import RepeatedKeyError, items_of, read_json
from memory_pipeline.domain.messages import with_edits
from memory_pipeline.domain.text.words import composed
from memory_pipeline.domain.unread import capture_in_text, is_forgotten
from memory_pipeline.errors import InputError
from memory_pipeline.lake.files.strict_json import MAX_DEPTH, depth_of, parse_json
from memory_pipeline.writer.known_messages import KnownMessages, without_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedReader

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: Messages per batch. Limits memory use, and the number of journal files of a large import.
_BATCH = 20_000
#: The longest line, and the largest ``*.json`` file, in bytes. Parsing takes several times this memory.
MAX_BYTES = 64 * 2**20
#: Characters of a longer one that are quarantined.
_BEGINNING = 1_000
#: Bytes that are skipped at once.
_CHUNK = 2**20
#: Maximum number of rejections in the result. All of them are in the quarantine.
_SHOWN = 20
_AUDIENCE = ("user_id", "users", "group_id")
_STANDARD_INPUT = Path("-")
_CONVERSATION_KEYS = {*HEADER, "messages"}
_MESSAGE_KEYS = {
    "id", "user_id", "role", "name", "content", "timestamp", "utc_offset", "metadata", "redactions", *TEXT_KEYS,
}  # fmt: skip


@dataclass
class Ingestion:
    """Result of ingesting a file.

    Attributes:
        conversations: conversations with at least one valid message.
        accepted: messages written to the journal.
        repeated: messages that were stored before and were not written again.
        edited: messages of an import that were stored with another text, and got the later one.
        set_aside: records moved to the quarantine.
        rejections: the first of them, with their reasons.
        not_captured: conversations, and unreadable records, of which nothing was stored, because they are not captured
            in full.
        left_out: places of the first of these conversations, with their capture.
        recalled: messages from which recalled text was dropped.
        forgotten: messages and invalid records that were dropped because their subject was erased later.
        expired: messages that were dropped because all that was kept of their time has expired.
        files: journal files written.
        ignored_keys: unknown keys of the input, and how often each occurred.
    """

    conversations: int = 0
    accepted: int = 0
    repeated: int = 0
    edited: int = 0
    set_aside: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    not_captured: int = 0
    left_out: list[str] = field(default_factory=list)
    recalled: int = 0
    forgotten: int = 0
    expired: int = 0
    files: int = 0
    ignored_keys: Counter[str] = field(default_factory=Counter)

    @property
    def is_refused(self) -> bool:
        """Whether records were quarantined and none was accepted."""
        return bool(self.set_aside) and not (self.accepted or self.repeated or self.edited or self.recalled)


def ingest_file(
    lake: Lake,
    path: Path,
    admission: Admission,
    default_scope: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    defaults: Mapping[str, object] | None = None,
) -> Ingestion:
    """Append the conversations of a JSON or JSONL file (UTF-8) to the journal. Create the lake if it does not exist.

    A file named ``*.json`` holds one conversation or a list of them, any other file one conversation per line. Invalid
    records are moved to the journal's quarantine with a reason, and ingestion continues. A line, or a ``*.json`` file,
    of more than 64 MB is invalid, and its beginning is kept. The accepted messages of a conversation are written
    atomically. Ingesting a file twice adds no duplicates.

    The path ``-`` is standard input, with one conversation per line.

    `default_scope` has the ``workspace_id`` and ``agent_id`` of records that name none. `defaults` has those of
    readable conversations without them, and the ``user_id``, or ``users`` and ``group_id``, of conversations that name
    no user. `progress` is called with the number of bytes read. Raise InputError if the file cannot be opened.
    """
    return ingest(lake, _records(path, progress), admission, default_scope, defaults)


def ingest(
    lake: Lake,
    records: Iterable[tuple[str, object]],
    admission: Admission,
    default_scope: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] | None = None,
    *,
    is_import: bool = False,
) -> Ingestion:
    """Append conversations to the journal, each given with its place, or their rejections; see :func:`ingest_file`.

    With `is_import`, a message with a known id and text is the same one, even if its speaker has another name by now,
    or its time was not in the export. With another text that is not known, it is an edit, unless the export is older:
    its `metadata` has no `edited_at`, or an earlier one.
    """
    ingestion = _Ingest(lake, admission, default_scope or {}, defaults or {}, is_import=is_import)
    for where, record in records:
        if isinstance(record, Rejection):
            ingestion.set_aside([replace(record, record=ingestion.redacted(record.record))])
        else:
            ingestion.take(where, ingestion.redacted(record))
    ingestion.flush()
    return ingestion.result


class _Ingest:
    def __init__(
        self,
        lake: Lake,
        admission: Admission,
        default_scope: Mapping[str, str],
        defaults: Mapping[str, object],
        *,
        is_import: bool,
    ) -> None:
        self.result = Ingestion()
        self._is_import = is_import
        self._lake = lake
        self._admission = admission
        self._default_scope = default_scope
        self._defaults = defaults
        self._batch: list[Message] = []
        self._known = KnownMessages(lake, keeps=False)
        self._known_bad = lake.journal.set_aside_digests()
        self._accepted: list[str] = []

    def redacted(self, record: object) -> object:
        """Return a record without secrets, before anything is made from it: ids, rejections, messages."""
        fields = {**self._default_scope, **(record if isinstance(record, Mapping) else {})}
        redactor = self._lake.redactor_of(str(fields.get("workspace_id")), of_messages=isinstance(record, Mapping))
        return redactor.value(record)

    def take(self, where: str, record: object) -> None:
        result = self.result
        conversation = self._with_defaults(record) if isinstance(record, Mapping) else record
        if isinstance(conversation, Mapping):
            try:
                capture = capture_in(conversation, self._lake.capture_of)
            except InputError as error:  # without the messages: they may have been meant to stay out
                header = {name: conversation[name] for name in HEADER if name in conversation}
                self.set_aside([Rejection(str(error), where, header)])
                return
            if capture is not Capture.FULL:
                result.not_captured += 1
                if len(result.left_out) < _SHOWN:
                    result.left_out.append(f"{where}: capture {capture}")
                return
        messages, rejections, recalled = read_messages(
            conversation, self._admission, self._lake.new_scope, self._lake.timezone_of
        )
        self._batch += messages
        result.recalled += recalled
        result.conversations += bool(messages)
        if not self._is_import:
            _count_ignored(record, self._admission, result.ignored_keys)
        if rejections:
            self.set_aside(Rejection(_hint(record) or r.reason, f"{where}, {r.where}", r.record) for r in rejections)
        if self._known_bad and (messages or recalled):
            self._accepted += self._known_bad & _parts(conversation, rejections)
        if len(self._batch) >= _BATCH:
            self.flush()

    def _with_defaults(self, record: Mapping[str, object]) -> dict[str, object]:
        names_users = any(with_users(record).get(name) is not None for name in _AUDIENCE)
        defaults = {name: value for name, value in self._defaults.items() if not (names_users and name in _AUDIENCE)}
        return {**defaults, **self._default_scope, **record}

    def set_aside(self, candidates: Iterable[Rejection]) -> None:
        """Move records to the quarantine, except those of erased subjects and those that are not captured."""
        candidates = [self._owned(one) for one in candidates]
        offered = [one for one in candidates if isinstance(one.record, Mapping) or self._is_captured(one.record)]
        self.result.not_captured += len(candidates) - len(offered)
        forgotten, now = self._lake.tombstones.forgotten(), self._admission.now
        rejections = [
            one for one in offered if not is_forgotten(forgotten, one.record, one.owner or self._default_scope, now)
        ]
        self.result.forgotten += len(offered) - len(rejections)
        if rejections:
            self._lake.ensure()
            new = (one for one in rejections if digest(one.record) not in self._known_bad)
            self._lake.journal.set_aside(new, received_at=now)
        self.result.set_aside += len(rejections)
        self.result.rejections += rejections[: _SHOWN - len(self.result.rejections)]

    def _owned(self, rejection: Rejection) -> Rejection:
        """Return an unreadable record of a file for one audience with its owner, so that an erasure finds it."""
        if isinstance(rejection.record, Mapping) or not any(name in self._defaults for name in _AUDIENCE):
            return rejection
        return replace(rejection, owner={**rejection.owner, **self._defaults, **self._default_scope})

    def _is_captured(self, record: object) -> bool:
        return capture_in_text(record, self._default_scope, self._lake.capture_of) is Capture.FULL

    def flush(self) -> None:
        if self._batch:
            batch = self._lake.tombstones.forgotten().filter(self._batch)
            lasting = self._lake.without_expired(batch)
            self.result.forgotten += len(self._batch) - len(batch)
            self.result.expired += len(batch) - len(lasting)
            self._batch.clear()
            self._write(lasting)
        if self._accepted:
            # Records set aside before, for example under another setting, are accepted now.
            self._lake.journal.release(self._accepted)
            self._accepted.clear()

    def _write(self, batch: list[Message]) -> None:
        self._lake.ensure(min((message.sent_at for message in batch), default=None))
        if self._is_import:
            repeated = self._known.repeated(batch)
            self.result.repeated += len(batch)
            batch = [message for message in batch if message.id not in repeated]
            self.result.repeated -= len(batch)
            if not batch:
                return
        # The first message with an id counts, whatever the hours of the others.
        said: dict[tuple[object, ...], Message] = {}
        known, without = self._known.of(batch)
        for message in (*known, *batch):
            said.setdefault((*message.identity, message.occurrence), message)
        stored = {(*message.identity, message.occurrence) for message in known}
        new, edits, contradictions = [], [], []
        unnamed = {message.id for message in without}
        for message in batch:
            key = (*message.identity, message.occurrence)
            first = said[key]
            is_later = self._is_import and first.role is message.role
            if not is_later and not first.says_the_same_as(message):
                reason, where = same_id_other_content(message, first), f"conversation {message.conversation_id}"
                contradictions.append(Rejection(reason, where, message.to_record()))
            elif message.id in unnamed:
                where = f"conversation {message.conversation_id}"
                contradictions.append(Rejection(without_users(message), where, message.to_record()))
            elif is_later and _is_edited(first, message):
                edits.append(first.edit(message.content, self._admission.now))
                [said[key]] = with_edits([first, edits[-1]])
            elif key not in stored:
                new.append(message)
                stored.add(key)
        self.set_aside(contradictions)
        self._lake.members.add(new)
        for group in _by_hours([*new, *edits]):
            for path in self._lake.journal.append(group):
                self._known.add(path, group)
                self.result.files += 1
        self.result.accepted += len(new)
        self.result.edited += len(edits)
        self.result.repeated += len(batch) - len(new) - len(edits) - len(contradictions)


def _is_edited(stored: Message, message: Message) -> bool:
    """Return whether an export has a text of a message that is not known, and is not older than what is stored."""
    if message.text in (stored.text, stored.first_text):
        return False
    is_known = any(message.text == composed(edit.content) for edit in stored.edits)
    return not is_known and _edited_at(message) >= _edited_at(stored)


def _edited_at(message: Message) -> str:
    at = json.loads(message.metadata).get("edited_at") if message.metadata else None
    return at if isinstance(at, str) else ""


def _by_hours(messages: Iterable[Message]) -> Iterable[list[Message]]:
    """Group messages so that conversations stay together and only those of the same hours share a file."""
    talks: dict[tuple[Scope, str], list[Message]] = {}
    for message in messages:
        talks.setdefault((message.scope, message.conversation_id), []).append(message)
    groups: dict[tuple[Scope, frozenset[Period]], list[Message]] = {}
    for (scope, _), said in talks.items():
        groups.setdefault((scope, frozenset(message.hour for message in said)), []).extend(said)
    return groups.values()


def _parts(conversation: object, rejected: list[Rejection]) -> set[str]:
    """Return the quarantine digests of a conversation and its messages, except of those just rejected."""
    if not isinstance(conversation, Mapping):
        return set()
    whole = with_users(conversation)
    records = [conversation, *(alone(whole, message) for message in conversation["messages"])]
    return set(map(digest, records)) - {digest(rejection.record) for rejection in rejected}


def _records(path: Path, progress: Callable[[int], None]) -> Iterator[tuple[str, object]]:
    """Yield the place of each record with the record, or with its rejection if it is not valid JSON."""
    try:
        with open(0, "rb", closefd=False) if path == _STANDARD_INPUT else path.open("rb") as file:
            if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
                file.read(len(BOM_UTF8))
            if path.suffix.lower() != ".json":
                for number, line in enumerate(_lines(file, progress), start=1):
                    if line.strip():
                        yield _record(f"{path.name}, line {number}", line)
                return
            data = file.read(MAX_BYTES + 1)
            progress(len(data))
    except OSError as error:
        raise InputError(f"file {path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES or data.lstrip()[:1] != b"[":
        yield _record(path.name, data)
        return
    try:
        text = data.decode()
        records = json.loads(text)
        problem = f"nested more than {MAX_DEPTH} levels deep" if depth_of(records) > MAX_DEPTH else None
    except (ValueError, RecursionError) as error:
        problem = f"not valid JSON: {error}"
    if problem:
        yield path.name, Rejection(problem, path.name, data.decode(errors="backslashreplace"))
        return
    for number, item in enumerate(items_of(text), start=1):
        yield _item(f"{path.name}, item {number}", item)


def _lines(file: BufferedReader, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines of a file; of a line that is too long, the beginning."""
    read = 0
    while line := file.readline(MAX_BYTES + 1):
        yield line
        read += len(line)
        if len(line) > MAX_BYTES:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):  # the line may never end
                return
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
                read += len(line)
        progress(read)


def _item(where: str, text: str) -> tuple[str, object]:
    try:
        return where, read_json(text)
    except RepeatedKeyError as error:
        return where, Rejection(str(error), where, text)


def _record(where: str, data: bytes) -> tuple[str, object]:
    if len(data) > MAX_BYTES:
        size = f"{MAX_BYTES // 2**20} MB"
        problem = f"larger than {size}; split it, with one conversation on each line of a *.jsonl file"
        data = data[:_BEGINNING]
    else:
        try:
            return where, parse_json(data)
        except InputError as error:
            problem = str(error)
    return where, Rejection(problem, where, data.decode(errors="backslashreplace"))


def _count_ignored(record: object, admission: Admission, ignored: Counter[str]) -> None:
    if isinstance(record, Mapping):
        ignored.update(str(key) for key in record.keys() - _CONVERSATION_KEYS)
        messages = record.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, Mapping):
                read = time_in(message, admission)[0]
                ignored.update(f"messages.{key}" for key in message.keys() - _MESSAGE_KEYS - {read})


def _hint(record: object) -> str | None:
    talks = record.get("conversation", record) if isinstance(record, Mapping) else None
    if isinstance(talks, Mapping) and "session_1" in talks:
        return "this looks like LoCoMo's format; run `memory-pipeline convert locomo FILE` first"
    return None

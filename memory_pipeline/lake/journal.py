"""The journal: append-only files, the only thing that agents write. Everything else in the lake is derived from it.

::

    journal/pending/{scope}/{hours}__{ulid}.jsonl           one write, one record per line
    journal/pending/{scope}/{hours}__{ulid}.{level}.jsonl   a segment: many writes, merged
    journal/pending/{scope}/{hours}__{ulid}.{level}.facts   the facts of a segment's messages, as an Arrow file
    journal/pending/{scope}/{digest}.{first}.{last}.done    acknowledged hours of a file
    journal/pending/{scope}/{id}.access.json                a grant or a revoke; see :mod:`memory_pipeline.lake.access`
    journal/pending/{scope}/{id}.correction.json            a correction; see :mod:`memory_pipeline.lake.corrections`
    journal/quarantine/{digest}.json                        a rejected record and the reason

``{scope}`` is the beginning of the workspace's and the agent's id, to be read by people, and the key of the scope. It
names no user. A record is a message, an edit of the graph, or an event of a durable memory. A file holds one whole
write, whatever hours it spans, so writes are atomic. Small files are merged into segments
(:mod:`memory_pipeline.overlay.segments`), so that the number of files stays small. An hour of a file is acknowledged
when its rows can be found in the index. A file is deleted when all its hours are acknowledged. Until then, empty files
next to it list the acknowledged hours.

``{hours}`` is the first hour, then the number of hours from each to the next: ``2024-01-15T08.1.23`` is 08:00 and 09:00
of that day and 08:00 of the next. If that is too long for a file name, it is ``2024-01-15T08.more``, and the hours are
read from the records.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ulid import ULID

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message, NothingSaidError
from memory_pipeline.domain.periods import Calendar, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, LakeError, counted, shown
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.layout import folder_name, key_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.scopes import ScopeOf
    from memory_pipeline.lake.files.storage import FileInfo, Storage


_TOP = "journal"
_PENDING = "journal/pending"
_QUARANTINE = "journal/quarantine"
#: Symbolic links are not followed: anyone who can create one could make the journal read any file of the machine.
_LINKED = "a symbolic link, which the journal never follows; remove it, or put the file or folder itself there"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Longest list of hours in a file name, in characters. File systems accept names of 255.
_MAX_HOURS_NAME = 150
#: Replaces hours that do not fit in a file name.
_MORE = "more"
#: Of files of records, and of the facts beside a segment.
ENDING, _FACTS = ".jsonl", ".facts"
_LEVEL = re.compile(r"__[0-9A-Z]{26}(?:\.(?P<level>[1-9]))?\.jsonl\Z")
_GAP = re.compile(r"[1-9][0-9]{0,6}")
_DONE = re.compile(r"(?P<file>[0-9a-f]{32})\.(?P<first>[^.]+)\.(?P<last>[^.]+)\.done")
#: The hour of a record as the journal writes it. Quotes inside a record's text would be escaped, so none match.
_HOUR_OF_LINE = re.compile(rb'"timestamp": "(\d{4}-\d\d-\d\dT\d\d):[0-9:.]*\+00:00"')
#: The conversation of a record, likewise.
_CONVERSATION = re.compile(rb'"conversation_id": ("(?:[^"\\]|\\.)*")')
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A pending file of one scope.

    Attributes:
        path: relative to the lake's root.
        key: of the scope.
        hours: hours of its records, sorted.
        size: in bytes.
        tag: from the storage; it changes with the content.
        pending_hours: the hours not yet acknowledged, sorted. If all are acknowledged, all count as pending: a process
            acknowledged the last one and was killed before it deleted the file.
    """

    path: str
    key: str
    hours: tuple[Period, ...] = field(hash=False)
    size: int
    tag: str
    pending_hours: tuple[Period, ...] = field(hash=False)

    @property
    def folder(self) -> str:
        """The folder of the scope."""
        return self.path.rpartition("/")[0]

    @property
    def written_at(self) -> datetime:
        """When the file was written, UTC, by its name; a segment, when its newest write was."""
        return ULID.from_str(self.path.rpartition("__")[2].partition(".")[0]).datetime

    @property
    def hourly_size(self) -> int:
        """The average number of bytes per hour."""
        return self.size // len(self.hours)


class Contents(NamedTuple):
    """The records of a file: messages, edits of the graph, unreadable lines with reasons, events of memories."""

    messages: list[Message]
    edits: list[Edit]
    rejected: list[Rejection]
    events: Sequence[MemoryEvent] = ()


class Journal:
    """Appends, lists, reads and acknowledges journal files.

    `scope_of` returns the lake's scopes of users and groups.
    """

    def __init__(self, storage: Storage, scope_of: ScopeOf = Scope) -> None:
        self._storage = storage
        self._scope_of = scope_of
        self._scopes: dict[str, Scope] = {}  # of folders
        self._hours: dict[str, tuple[Period, ...]] = {}  # of files with too many hours for their names

    def append(self, records: Sequence[Message | Edit | MemoryEvent]) -> list[str]:
        """Write records durably, one atomic file per scope. Return the files' paths.

        Raises:
            InputError: `received_at` is missing, because the event was not made by an agent.
        """
        groups: dict[Scope, list[Message | Edit | MemoryEvent]] = {}
        for record in records:
            groups.setdefault(record.scope, []).append(record)
        paths = []
        for scope, group in groups.items():
            received_at = group[0].received_at
            if received_at is None:
                raise InputError(f"received_at of {group[0].id} is missing; expected when the journal takes it")
            path = self._path_of(
                scope, group, ULID.from_datetime(max(received_at, _EPOCH)), ENDING
            )  # ULIDs start in 1970
            self._write(path, group)
            paths.append(path)
        return paths

    def write_segment(
        self, records: Sequence[Message | Edit | MemoryEvent], level: int, made_of: Sequence[str], facts: bytes | None
    ) -> str:
        """Write records of one scope that are merged from the files `made_of`, and the facts of its messages.

        The name is a hash of `made_of`, so that processes that merge the same files write the same segment.
        """
        oldest = min(record.received_at or _EPOCH for record in records)
        milliseconds = max(0, int(oldest.timestamp() * 1000)).to_bytes(6, "big")
        ulid = ULID.from_bytes(milliseconds + bytes.fromhex(digest(sorted(made_of), facts is None))[:10])
        path = self._path_of(records[0].scope, records, ulid, f".{level}{ENDING}")
        if facts is not None:  # before its segment, so that none is written for a segment that is gone
            self._storage.write(facts_path(path), facts)
        self._write(path, records)
        return path

    def _path_of(self, scope: Scope, records: Iterable[Message | Edit | MemoryEvent], ulid: ULID, ending: str) -> str:
        hours = sorted({record.hour for record in records}, key=lambda hour: hour.key)
        return self.path_in(scope, f"{_name_of(hours)}__{ulid}{ending}")

    def _write(self, path: str, records: Iterable[Message | Edit | MemoryEvent]) -> None:
        lines = [json.dumps(record.to_record(), ensure_ascii=False) for record in records]
        self._storage.write(path, ("\n".join(lines) + "\n").encode())

    def delete(self, paths: Collection[str]) -> None:
        """Delete files, and the facts beside segments."""
        self._storage.delete(sorted(paths))
        self._storage.delete(facts_path(path) for path in sorted(paths) if level_of(path))

    def entries(self, scope: Scope | None = None) -> list[FileInfo]:
        """Return all files in the folder of a scope, or in those of all scopes, sorted by path."""
        return self._list(_PENDING if scope is None else folder_of(scope))

    def path_in(self, scope: Scope, name: str) -> str:
        """Return the path of a file in the folder of a scope.

        Raises:
            LakeError: the folder is a symbolic link.
        """
        path = f"{folder_of(scope)}/{name}"
        self._require_own(path)
        return path

    def pending(self, scope: Scope | None = None, entries: list[FileInfo] | None = None) -> list[JournalFile]:
        """Return the files not yet acknowledged, of one scope or of all, sorted by path.

        Files with a place or name that the journal does not use are ignored. `entries` are those of :meth:`entries`, if
        they were listed already.
        """
        files = []
        entries = self.entries(scope) if entries is None else entries
        spans = _acknowledged(entries)
        for entry in entries:
            parts = entry.path.split("/")
            try:
                folder, name = parts[2:]
                hours = self._hours_of(entry.path, name)
            except ValueError:
                continue
            if hours and (key := key_in(folder)):
                left = _left(hours, spans, entry.path)
                files.append(JournalFile(entry.path, key, hours, entry.size, entry.tag, left or hours))
        return files

    def damaged(self) -> dict[str, str]:
        """Return the pending files and the quarantined records that cannot be read, with the reasons. Reads all."""
        found = {}
        for file in self.pending():
            if rejected := self.read(file).rejected:
                found[file.path] = f"{counted(len(rejected), 'record')} cannot be read: {rejected[0].reason}"
        for entry in self.set_aside_files():
            try:
                self._set_aside(entry)
            except (ValueError, TypeError, KeyError):
                found[entry.path] = "it is no quarantined record"
        return found

    def pending_hours(self) -> set[Period]:
        """Return the hours that are not acknowledged in some pending file."""
        return {hour for file in self.pending() for hour in file.pending_hours}

    def read(self, file: JournalFile, hours: Collection[Period] | None = None) -> Contents:
        """Return the records of a file, of the given hours or of all. A file deleted in the meantime is empty.

        An unreadable line without an hour is returned for any `hours`.
        """
        events: list[MemoryEvent] = []
        found = Contents([], [], [], events)
        file_hours = set(file.hours)
        selected = file_hours if hours is None else file_hours.intersection(hours)
        skipped = {hour.key.encode() for hour in file_hours - selected}
        data = None if self._is_link(file.path) else self._storage.read(file.path)
        if data is not None and not data.strip():
            reason = "the file is empty: what was written to it is lost"
            found.rejected.append(Rejection(reason, file.path, f"{file.path} is empty"))
        for number, line in enumerate((data or b"").splitlines(), start=1):
            if not line.strip():
                continue
            # Skips most lines of a file with many hours without parsing them.
            if skipped and (match := _HOUR_OF_LINE.search(line)) is not None and match[1] in skipped:
                continue
            try:
                record = parse_json(line)
                parsed = self.parsed(record)
                if parsed.scope.key != file.key or parsed.hour not in file_hours:
                    raise InputError(f"expected the scope and hours of its file, not {parsed.scope} and {parsed.hour}")
                self._scopes[file.folder] = parsed.scope
            except NothingSaidError:
                continue  # only recalled memory
            except InputError as error:
                where = f"{file.path}, line {number}"
                found.rejected.append(Rejection(str(error), where, line.decode(errors="backslashreplace")))
                continue
            if parsed.hour not in selected:
                continue
            if isinstance(parsed, Edit):
                found.edits.append(parsed)
            elif isinstance(parsed, MemoryEvent):
                events.append(parsed)
            else:
                found.messages.append(parsed)
        return found

    def paths(self, scope: Scope) -> list[str]:
        """Return the paths of a scope's pending files, without reading their hours."""
        folder = folder_of(scope)
        names = [] if self._is_link(folder) else self._storage.names(folder)
        return [f"{folder}/{name}" for name in names if level_of(name) is not None]

    def conversations(self, path: str) -> frozenset[str]:
        """Return the ids of the conversations in a file, without reading its records."""
        found = {match[1] for match in _CONVERSATION.finditer(self._storage.read(path) or b"")}
        return frozenset(json.loads(one) for one in found)

    def messages_of(self, path: str, scope: Scope, conversation_ids: Collection[str]) -> list[Message]:
        """Return the messages of some conversations in a file; other lines are not parsed."""
        found = []
        for record in self.records_of(path, conversation_ids):
            with suppress(NothingSaidError, InputError):  # `read` returns them with their reasons
                parsed = self.parsed(record)
                if isinstance(parsed, Message) and parsed.scope == scope:
                    found.append(parsed)
        return found

    def records_of(self, path: str, conversation_ids: Collection[str]) -> Iterator[dict[str, object]]:
        """Yield the records of some conversations in a file, as they stand there; other lines are not parsed."""
        data = self._storage.read(path)
        wanted = {json.dumps(one, ensure_ascii=False).encode() for one in conversation_ids}
        if data is None or not any(one in data for one in wanted):
            return
        for line in data.splitlines():
            match = _CONVERSATION.search(line)
            if match is not None and match[1] in wanted:
                with suppress(InputError):  # as above
                    yield parse_json(line)

    def acknowledge(self, files: Collection[JournalFile], hours: Collection[Period] | None = None) -> None:
        """Acknowledge hours of files, or all, because their records can be found elsewhere.

        A file is deleted when all its hours are acknowledged.
        """
        acknowledged = None if hours is None else frozenset(hours)
        done = {file for file in files if acknowledged is None or acknowledged.issuperset(file.pending_hours)}
        for file in files:
            if acknowledged is not None and file not in done:
                for first, last in _spans(file.hours, acknowledged):
                    path = f"{file.folder}/{digest(file.path)}.{first}.{last}.done"
                    # One that is lost in a power cut is written again when its hours are recomputed.
                    self._storage.create(path, b"", durable=False)
        folders = {file.folder for file in files if len(file.hours) > 1}
        for folder in folders:
            spans = _acknowledged(self._list(folder))
            # Another process may have acknowledged the other hours in the meantime: the later of both deletes the file.
            done |= {file for file in files if file.folder == folder and not _left(file.hours, spans, file.path)}
        self.delete([file.path for file in done])
        for folder in folders:
            self.delete_acknowledgements(folder)
        # Removes empty folders, so that listings skip inactive agents.
        self._storage.leave({file.folder for file in done})

    def delete_acknowledgements(self, folder: str) -> None:
        """Delete what belongs to deleted files in a scope's folder: acknowledged hours, and facts."""
        paths = [entry.path for entry in self._list(folder)]
        current = {digest(path) for path in paths}
        matches = ((path, _DONE.fullmatch(path.rpartition("/")[2])) for path in paths)
        self._storage.delete(path for path, match in matches if match and match["file"] not in current)
        facts = {facts_path(path) for path in paths if level_of(path)}
        self._storage.delete(path for path in paths if path.endswith(_FACTS) and path not in facts)

    def scope_of(self, file: JournalFile) -> Scope | None:
        """Return the scope of a file; None if none of its records is valid."""
        if file.folder not in self._scopes:
            self.read(file)
        return self._scopes.get(file.folder)

    def pending_scopes(self) -> set[Scope]:
        """Return the scopes with files that are not acknowledged. Reads one file of each new scope."""
        return {scope for file in self.pending() if (scope := self.scope_of(file)) is not None}

    def parsed(self, record: dict[str, object]) -> Message | Edit | MemoryEvent:
        """Return a record in its form of the journal.

        Raises:
            NothingSaidError: it is a message with recalled memory alone.
            InputError: it is invalid.
        """
        if "memory" in record:
            return MemoryEvent.from_record(record, self._scope_of)
        kind = Edit if "edit" in record else Message
        return kind.from_record(record, self._scope_of)

    def _list(self, folder: str) -> list[FileInfo]:
        """Return the files of a folder; none if the folder is a symbolic link or inside one."""
        return [] if self._is_link(folder) else self._storage.list(folder)

    def _is_link(self, path: str) -> bool:
        return self._storage.leads_elsewhere(path, _TOP)

    def _require_own(self, path: str) -> None:
        """Refuse to write through a symbolic link.

        Raises:
            LakeError: a folder of `path` is a symbolic link.
        """
        folder = path.rpartition("/")[0]
        if self._is_link(folder):
            raise LakeError(f"{self._storage.locate(folder)} is, or is in, {_LINKED}")

    def _hours_of(self, path: str, name: str) -> tuple[Period, ...]:
        """Return the hours of a file; none if it is not named like a file of the journal.

        Raises:
            InputError: the hours in its name are invalid.
        """
        listed, separator, _ = name.partition("__")
        if not separator or not name.endswith(ENDING):
            return ()
        first, *gaps = listed.split(".")
        hours = [Period.parse("working", first)]
        if gaps == [_MORE]:
            if path not in self._hours:
                found = {match[1].decode() for match in _HOUR_OF_LINE.finditer(self._storage.read(path) or b"")}
                self._hours[path] = tuple(Period.parse("working", key) for key in sorted({first, *found}))
            return self._hours[path]
        calendar = Calendar()
        begins = calendar.bounds(hours[0])[0]
        for gap in gaps:
            if not _GAP.fullmatch(gap):
                raise InputError(f"{shown(gap)} is not a number of hours")
            begins += int(gap) * _HOUR
            hours.append(hour_of(begins))
        return tuple(hours)

    def set_aside(self, rejections: Iterable[Rejection], received_at: datetime | None = None) -> set[str]:
        """Store rejected records with their reasons; return their paths. The same record is stored once.

        With `received_at`, an erasure before that time does not reach them.
        """
        received = {} if received_at is None else {"timestamp": received_at.isoformat()}
        paths = set()
        for rejection in rejections:
            owner = dict(rejection.owner)
            content = {"reason": rejection.reason, "where": rejection.where, "record": rejection.record}
            # ASCII: the record may hold broken Unicode
            data = json.dumps({**content, **owner, **received}, indent=1, default=str).encode()
            name = digest(rejection.record, owner) if owner else digest(rejection.record)
            path = f"{_QUARANTINE}/{name}.json"
            self._require_own(path)
            self._storage.write(path, data)
            paths.add(path)
        return paths

    def quarantined(self) -> list[Rejection]:
        """Return the rejected records, and the symbolic links in the journal, which it never follows."""
        found = [Rejection(_LINKED, path, None) for path in self._storage.links(_TOP)]
        for entry in self.set_aside_files():
            with suppress(ValueError, TypeError, KeyError):  # damaged: see `damaged`
                found.append(self._set_aside(entry))
        return found

    def _set_aside(self, entry: FileInfo) -> Rejection:
        content = json.loads(self._storage.read(entry.path) or b"")
        return Rejection(content["reason"], content["where"], content["record"])

    def set_aside_files(self) -> list[FileInfo]:
        """Return the files of rejected records without reading them."""
        return self._list(_QUARANTINE)

    def set_aside_digests(self) -> set[str]:
        """Return the digests of rejected records without reading them."""
        return {entry.path.rpartition("/")[2].removesuffix(".json") for entry in self.set_aside_files()}

    def release(self, digests: Iterable[str]) -> None:
        """Delete rejected records by digest, after they have been accepted."""
        self._storage.delete(f"{_QUARANTINE}/{each}.json" for each in digests)


def folder_of(scope: Scope) -> str:
    """Return the folder of a scope's pending files."""
    return f"{_PENDING}/{folder_name(scope)}"


def facts_path(path: str) -> str:
    """Return the path of the facts beside a segment."""
    return path.removesuffix(ENDING) + _FACTS


def level_of(path: str) -> int | None:
    """Return how often the records of a file were merged: 0 for one write; None for what is no file of records."""
    match = _LEVEL.search(path)
    return match and int(match["level"] or 0)


def _acknowledged(entries: Iterable[FileInfo]) -> dict[str, list[tuple[str, str]]]:
    """Return the acknowledged spans of hours (first, last), by the digest of their file's path."""
    spans: dict[str, list[tuple[str, str]]] = {}
    for entry in entries:
        if match := _DONE.fullmatch(entry.path.rpartition("/")[2]):
            spans.setdefault(match["file"], []).append((match["first"], match["last"]))
    return spans


def _left(hours: Sequence[Period], spans: Mapping[str, Sequence[tuple[str, str]]], path: str) -> tuple[Period, ...]:
    done = spans.get(digest(path), ()) if spans else ()
    return tuple(hour for hour in hours if not any(first <= hour.key <= last for first, last in done))


def _name_of(hours: Sequence[Period]) -> str:
    calendar = Calendar()
    begins = [calendar.bounds(hour)[0] for hour in hours]
    gaps = [(later - earlier) // _HOUR for earlier, later in pairwise(begins)]
    name = ".".join([hours[0].key, *map(str, gaps)])
    return name if len(name) <= _MAX_HOURS_NAME else f"{hours[0]}.{_MORE}"


def _spans(hours: Sequence[Period], done: Collection[Period]) -> list[tuple[str, str]]:
    """Return the maximal spans (first, last) of hours that are all in `done`."""
    spans = []
    for is_done, group in groupby(hours, key=lambda hour: hour in done):
        if is_done:
            keys = [hour.key for hour in group]
            spans.append((keys[0], keys[-1]))
    return spans

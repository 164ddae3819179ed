"""The journal: append-only files, the only thing that agents write. Everything else in the lake is derived from it.

::

    journal/pending/{workspace}/{agent}/{hour}__{ulid}.jsonl    one record a line, one hour a file
    journal/quarantine/{digest}.json                            one record that could not be taken, with its reason

A record is a message, an edit of the graph, or an event of a durable memory. A file stays pending until its rows can be
found in the index; then it is acknowledged, that is, deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ulid import ULID

from memory_pipeline.domain.conversations import Message, NothingSaidError, Rejection, Scope
from memory_pipeline.domain.durable.events import MemoryEvent
from memory_pipeline.domain.edits import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.json_text import RepeatedKeyError, read_json
from memory_pipeline.domain.periods import Period
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memory_pipeline.lake.storage import Storage

_PENDING = "journal/pending"
_QUARANTINE = "journal/quarantine"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Deepest nesting of a record; far more than a conversation has, far less than what JSON libraries choke on.
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A pending file: where it is, whose, the hour of its messages, its size, and its storage tag."""

    path: str
    scope: Scope
    hour: Period
    size: int
    tag: str


class Contents(NamedTuple):
    """What a file holds: messages, edits of the graph, lines that cannot be read, and events of durable memories.

    Attributes:
        rejected: the lines that cannot be read, with the reasons.
        events: what agents did to their durable memories.
    """

    messages: list[Message]
    edits: list[Edit]
    rejected: list[Rejection]
    events: Sequence[MemoryEvent] = ()


class Journal:
    """Appends, lists, reads and acknowledges journal files."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def append(self, records: Sequence[Message | Edit | MemoryEvent]) -> list[str]:
        """Write records durably, one file for each agent and hour; return the files' paths.

        Raises:
            InputError: an event is none of an agent's: it has no time at which the journal took it.
        """
        groups: dict[tuple[Scope, Period], list[Message | Edit | MemoryEvent]] = {}
        for record in records:
            groups.setdefault((record.scope, record.hour), []).append(record)
        paths = []
        for (scope, hour), group in groups.items():
            received_at = group[0].received_at
            if received_at is None:
                raise InputError(f"received_at of {group[0].id} is missing; expected when the journal takes it")
            ulid = ULID.from_datetime(max(received_at, _EPOCH))  # older ones have no ULID
            path = f"{_PENDING}/{scope.workspace_id}/{scope.agent_id}/{hour}__{ulid}.jsonl"
            lines = [json.dumps(record.to_record(), ensure_ascii=False) for record in group]
            self._storage.write(path, ("\n".join(lines) + "\n").encode())
            paths.append(path)
        return paths

    def pending(self, scope: Scope | None = None) -> list[JournalFile]:
        """Return the files not yet acknowledged, of one agent or of all, sorted by path.

        Files whose place or name the journal did not choose are left alone.
        """
        folder = _PENDING if scope is None else f"{_PENDING}/{scope.workspace_id}/{scope.agent_id}"
        files = []
        for entry in self._storage.list(folder):
            parts = entry.path.split("/")
            try:
                workspace_id, agent_id, name = parts[2:]
                hour, separator, _ = name.partition("__")
                if separator and name.endswith(".jsonl"):
                    owner, period = Scope(workspace_id, agent_id), Period.parse("working", hour)
                    files.append(JournalFile(entry.path, owner, period, entry.size, entry.tag))
            except ValueError:
                continue
        return files

    def read(self, file: JournalFile) -> Contents:
        """Return what a file holds. One that was acknowledged in the meantime holds nothing."""
        events: list[MemoryEvent] = []
        found = Contents([], [], [], events)
        for number, line in enumerate((self._storage.read(file.path) or b"").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
                parsed = _parsed(record)
                if (parsed.scope, parsed.hour) != (file.scope, file.hour):
                    raise InputError(f"a record of {parsed.scope} and {parsed.hour} stands in a file of another")
            except NothingSaidError:
                continue  # nothing but recalled memory
            except InputError as error:
                where = f"{file.path}, line {number}"
                found.rejected.append(Rejection(str(error), where, line.decode(errors="backslashreplace")))
                continue
            if isinstance(parsed, Edit):
                found.edits.append(parsed)
            elif isinstance(parsed, MemoryEvent):
                events.append(parsed)
            else:
                found.messages.append(parsed)
        return found

    def contents(self, hours: Collection[Period]) -> dict[JournalFile, Contents]:
        """Return the pending files of `hours` with what they hold."""
        return {file: self.read(file) for file in self.pending() if file.hour in hours}

    def acknowledge(self, files: Iterable[JournalFile]) -> None:
        """Delete files whose messages can be found elsewhere."""
        paths = [file.path for file in files]
        self._storage.delete(paths)
        # Of agents that are silent nothing is left to look into.
        self._storage.leave({path.rpartition("/")[0] for path in paths})

    def set_aside(self, rejections: Iterable[Rejection]) -> None:
        """Keep records that were not accepted, with their reasons. The same record is kept once."""
        for rejection in rejections:
            content = {"reason": rejection.reason, "where": rejection.where, "record": rejection.record}
            data = json.dumps(content, indent=1, default=str).encode()  # ASCII: the record may hold broken Unicode
            self._storage.write(f"{_QUARANTINE}/{digest(rejection.record)}.json", data)

    def quarantined(self) -> list[Rejection]:
        """Return the records that were set aside."""
        found = []
        for entry in self._storage.list(_QUARANTINE):
            try:
                content = json.loads(self._storage.read(entry.path) or b"")
                found.append(Rejection(content["reason"], content["where"], content["record"]))
            except (ValueError, TypeError, KeyError):
                continue  # not a file of the journal's
        return found

    def release(self, records: Iterable[object]) -> None:
        """Forget that records were set aside; for those that have now been accepted."""
        self._storage.delete(f"{_QUARANTINE}/{digest(record)}.json" for record in records)


def _parsed(record: dict[str, object]) -> Message | Edit | MemoryEvent:
    if "memory" in record:
        return MemoryEvent.from_record(record)
    return Edit.from_record(record) if "edit" in record else Message.from_record(record)


def depth_of(value: object) -> int:
    """Return how deep lists and objects are nested in a JSON value; without recursion, which has a limit."""
    depth, level = 0, [value]
    while level := [item for value in level for item in _items(value)]:
        depth += 1
    return depth


def _items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def parse_json(line: bytes) -> dict[str, object]:
    """Read one JSON object.

    Raises:
        InputError: it is not UTF-8, not JSON, nested too deep, has a key twice, or is not an object.
    """
    try:
        value = read_json(line.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"not valid UTF-8 at byte {error.start}") from None
    except RepeatedKeyError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {shown(str(error), 200)}") from None
    if depth_of(value) > MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH} levels deep")
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object, not {shown(value)}")
    return value

"""What agents use: the key-value memory, short-term entries and scratch pad of a session, and pools.

All of them are views of one table. `now` is the current time in each method; by default the clock tells it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import label_of
from memory_pipeline.domain.sessions import (
    DEFAULT_TTL,
    MAX_POOL_TTL,
    MAX_TTL,
    SHORT_TERM_TYPES,
    TOLD,
    Container,
    EntryKind,
    json_of,
    merged,
    micros_of,
    micros_of_ttl,
    time_of,
)
from memory_pipeline.errors import CommitConflictError, InputError, VersionConflictError, shown
from memory_pipeline.sessions.saved import load, save

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.sessions import Entry, Ttl
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.sessions.store import Entries, SessionStore

    Clock = Callable[[], datetime]

_CALENDAR: Final = Calendar()
_SECTIONS: Final = ("task_state", "intermediate_results", "conversation_context", "tool_state")
_PAD: Final = "scratch_pad"
#: Each try fails only because another write succeeded.
TRIES: Final = 1_000


def micros_at(now: When | None, clock: Clock) -> int:
    """Return a time, or what the clock says. Raise InputError if `now` is not a time with a zone."""
    return micros_of(clock() if now is None else _CALENDAR.moment("now", now))


class ShortTermEntry(NamedTuple):
    """An entry of the short-term memory.

    Attributes:
        key, value: as it was stored.
        type: task_context, conversation, tool_result, reflection or observation.
        version: from 1, and higher with each change; never used twice.
        accesses: number of times that it was read.
        updated_at, expires_at: times in UTC.
    """

    key: str
    value: Any
    type: str
    version: int
    accesses: int
    updated_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, entry: Entry) -> ShortTermEntry:
        """Return a stored entry."""
        return cls(
            entry.key,
            json.loads(entry.value),
            entry.type,
            entry.version,
            entry.accesses,
            time_of(entry.updated_at),
            time_of(entry.expires_at or 0),
        )


class PoolStatistics(NamedTuple):
    """Figures of a pool.

    Attributes:
        version: from 1, and higher with each write; never used twice.
        keys: number of keys.
        bytes: size of the values as JSON.
        reads: number of reads.
        created_at, updated_at: first and last write, UTC; None if nothing was written.
        expires_at: when the pool expires, UTC; None if it does not.
    """

    version: int = 0
    keys: int = 0
    bytes: int = 0
    reads: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None


class _Keyed:
    """Entries by key, as their kinds have them in common."""

    def __init__(self, entries: Entries, clock: Clock) -> None:
        self._entries = entries
        self._clock = clock

    def exists(self, key: str, *, now: When | None = None) -> bool:
        """Return whether there is an entry with a key. This counts no access."""
        return self._entries.get(label_of("key", key), micros_at(now, self._clock)) is not None

    def remove(self, key: str, *, now: When | None = None) -> bool:
        """Remove an entry; return whether it was there."""
        return self._entries.remove(label_of("key", key), micros_at(now, self._clock))

    def keys(self, *, now: When | None = None) -> list[str]:
        """Return all keys, sorted."""
        return [entry.key for entry in self._entries.all(micros_at(now, self._clock))]

    def clear(self, *, now: When | None = None) -> int:
        """Remove all entries; return how many there were."""
        return self._entries.clear(micros_at(now, self._clock))


class KeyValues(_Keyed):
    """Values by key, each with a time to live."""

    def store(self, key: str, value: object, *, ttl: Ttl = DEFAULT_TTL, now: When | None = None) -> int:
        """Store a value in place of the one with its key; return its version.

        Args:
            key: a text of 1 to 256 characters without control characters.
            value: any JSON up to 1 MB.
            ttl: time to live, in seconds or as a timedelta, at most a day.
            now: the current time.

        Raises:
            InputError: an argument is invalid.
        """
        label_of("key", key)
        text, at = json_of(value), micros_at(now, self._clock)
        return self._entries.put(key, text, at + micros_of_ttl(ttl), at)

    def retrieve(self, key: str, default: Any = None, *, now: When | None = None) -> Any:
        """Return the value of a key, or `default` if there is none or it has expired."""
        entry = self._entries.get(label_of("key", key), micros_at(now, self._clock))
        return default if entry is None else json.loads(entry.value)

    def items(self, *, now: When | None = None) -> dict[str, Any]:
        """Return all values by key."""
        return {entry.key: json.loads(entry.value) for entry in self._entries.all(micros_at(now, self._clock))}


class ScratchPad:
    """Notes of a session, in the order in which they were made. They expire together."""

    def __init__(self, entries: Entries, clock: Clock, key: str = _PAD) -> None:
        self._entries = entries
        self._clock = clock
        self._key = key

    def append(self, note: object, *, ttl: Ttl = DEFAULT_TTL, now: When | None = None) -> int:
        """Append a note, any JSON; return the version of the pad. All notes live for `ttl` more.

        Raises:
            InputError: an argument is invalid, or the notes have more than 1 MB together.
        """
        text, at = json_of(note), micros_at(now, self._clock)
        version = self._entries.append(self._key, text, at + micros_of_ttl(ttl), at)
        if version is None:
            raise InputError(f"the {self._key} is full: it takes 1,000,000 characters as JSON; clear it first")
        return version

    def read(self, *, now: When | None = None) -> list[Any]:
        """Return all notes, oldest first."""
        entry = self._entries.get(self._key, micros_at(now, self._clock))
        return [] if entry is None else list(json.loads(entry.value))

    def clear(self, *, now: When | None = None) -> int:
        """Remove all notes; return 1 if there were any, else 0."""
        return self._entries.clear(micros_at(now, self._clock))


class ShortTermMemory(_Keyed):
    """The short-term entries of a session. Those that were read three times become durable memories when they expire.

    Reads belong to the key: they stay if its value is replaced, as long as the entry lives.
    """

    def store(
        self,
        key: str,
        value: object,
        type: str = "observation",  # noqa: A002  # as users call it
        *,
        ttl: Ttl = DEFAULT_TTL,
        now: When | None = None,
    ) -> int:
        """Store an entry in place of the one with its key; return its version.

        Args:
            key: a text of 1 to 256 characters without control characters.
            value: any JSON up to 1 MB.
            type: task_context, conversation, tool_result, reflection or observation.
            ttl: time to live, in seconds or as a timedelta, at most a day.
            now: the current time.

        Raises:
            InputError: an argument is invalid.
        """
        label_of("key", key)
        _check_type(type)
        text, at = json_of(value), micros_at(now, self._clock)
        return self._entries.put(key, text, at + micros_of_ttl(ttl), at, type)

    def retrieve(self, key: str, default: Any = None, *, now: When | None = None) -> Any:
        """Return the value of a key, and count the access; `default` if there is none or it has expired."""
        entry = self._entries.touch(label_of("key", key), micros_at(now, self._clock))
        return default if entry is None else json.loads(entry.value)

    def touch_access(self, key: str, *, now: When | None = None) -> int:
        """Count an access; return their number, 0 if there is no such entry."""
        entry = self._entries.touch(label_of("key", key), micros_at(now, self._clock))
        return 0 if entry is None else entry.accesses

    def refresh_ttl(self, key: str, ttl: Ttl = DEFAULT_TTL, *, now: When | None = None) -> bool:
        """Let an entry live for `ttl` from now on; return whether it was there.

        Raises:
            InputError: `ttl` is not accepted.
        """
        at = micros_at(now, self._clock)
        return self._entries.refresh(label_of("key", key), at + micros_of_ttl(ttl), at)

    def list(
        self,
        type: str | None = None,  # noqa: A002  # as above
        *,
        now: When | None = None,
    ) -> list[ShortTermEntry]:
        """Return the entries, of one type or all, newest first. This counts no access.

        Raises:
            InputError: the type is unknown.
        """
        if type is not None:
            _check_type(type)
        found = [one for one in self._entries.all(micros_at(now, self._clock)) if type in {None, one.type}]
        found.sort(key=lambda entry: (-entry.updated_at, entry.key))
        return [ShortTermEntry.of(entry) for entry in found]


class SessionMemory(KeyValues):
    """The memory of one session: values by key, in parts, with a scratch pad and short-term entries.

    Take it from :meth:`memory_pipeline.Memory.session`. It belongs to one agent and user: a session with the same id of
    another agent or user is another session. Safe to use from several threads and processes.

    Attributes:
        id: the id of the session.
        task_state, intermediate_results, conversation_context, tool_state: values by key, each with keys of its own.
        scratch_pad: notes.
        short_term: entries with a type; those that are used become durable memories.
        told: the context that the conversation with this id was given, so that it is told nothing twice; never saved.
    """

    def __init__(self, store: SessionStore, storage: Storage, container: Container, clock: Clock) -> None:
        def entries(section: str, kind: EntryKind = EntryKind.VALUE) -> Entries:
            owner = (container.workspace_id, container.agent_id, container.identity)
            return store.entries(Container(*owner, kind, container.space, section))

        self._parts = {name: entries(name) for name in ("", *_SECTIONS, _PAD)}
        super().__init__(self._parts[""], clock)
        self.id = container.space
        self.task_state, self.intermediate_results, self.conversation_context, self.tool_state = (
            KeyValues(self._parts[name], clock) for name in _SECTIONS
        )
        self.scratch_pad = ScratchPad(self._parts[_PAD], clock)
        self._said = ScratchPad(self._parts["conversation_context"], clock, "conversation")
        self.told = KeyValues(entries(TOLD), clock)
        self._short_term = entries("", EntryKind.SHORT_TERM)
        self.short_term = ShortTermMemory(self._short_term, clock)
        self._container, self._storage = container, storage

    def append_to_conversation(self, message: object, *, ttl: Ttl = DEFAULT_TTL, now: When | None = None) -> int:
        """Append a message, any JSON, to the list ``conversation`` of the `conversation_context`; return its version.

        All messages live for `ttl` more. They are state of the session: what a user said is stored by
        :meth:`memory_pipeline.Memory.add`.

        Raises:
            InputError: an argument is invalid, or the messages have more than 1 MB together.
        """
        return self._said.append(message, ttl=ttl, now=now)

    def store_scratch_pad(self, note: object, *, ttl: Ttl = DEFAULT_TTL, now: When | None = None) -> int:
        """Store a note, any JSON, in place of all notes of the `scratch_pad`; return the version of the pad.

        Raises:
            InputError: an argument is invalid.
        """
        text, at = json_of([note]), micros_at(now, self._clock)
        return self._parts[_PAD].put(_PAD, text, at + micros_of_ttl(ttl), at)

    def clear(self, *, now: When | None = None) -> int:
        """Remove all values of all parts and the scratch pad; return how many there were. Short-term entries stay.

        What the conversation was told counts as new again.
        """
        at = micros_at(now, self._clock)
        self.told.clear(now=now)
        return sum(part.clear(at) for part in self._parts.values())

    def persist(self, *, now: When | None = None) -> int:
        """Save all that the session holds to the lake, in place of an earlier copy; return the number of entries.

        The copy keeps the times at which the entries expire.
        """
        at = micros_at(now, self._clock)
        parts = {name: part.all(at) for name, part in self._parts.items()}
        return save(self._storage, self._container, self._parts[""].key, parts, self._short_term.all(at), at)

    def load(self, *, now: When | None = None) -> int:
        """Load the saved copy: entries that have not expired, for the rest of their time; return their number.

        They replace the entries with their keys; other entries stay.
        """
        at = micros_at(now, self._clock)
        count = 0
        for is_short_term, section, entry in load(self._storage, self._parts[""].key):
            if entry["expires_at"] > at:
                entries = self._short_term if is_short_term else self._parts[section]
                entries.put(**entry, now=at)
                count += 1
        return count


class SharedPool:
    """Values by name that several agents read and write, with one version for all of them.

    Take it from :meth:`memory_pipeline.Memory.pool`. A write with an `expected_version` succeeds only if nobody has
    written since that version. Safe to use from several threads and processes.
    """

    def __init__(self, entries: Entries, clock: Clock, name: str, type_: str, default_ttl: int | None) -> None:
        self.name = name
        self.type = type_
        self._entries = entries
        self._clock = clock
        self._default_ttl = default_ttl

    def write(
        self,
        key: str,
        value: object,
        *,
        expected_version: int | None = None,
        ttl: Ttl | None = None,
        now: When | None = None,
    ) -> int:
        """Write one value, and keep the others; return the new version of the pool.

        Args:
            key: a text of 1 to 256 characters without control characters.
            value: any JSON. All values have at most 1 MB together.
            expected_version: the version that the pool must have; 0 for a new one.
            ttl: the pool expires after this time, in seconds or as a timedelta; by default it stays as it is.
            now: the current time.

        Raises:
            InputError: an argument is invalid.
            VersionConflictError: the pool has another version; nothing was written.
        """
        label_of("key", key)
        return self._change(lambda values: {**values, key: value}, expected_version, ttl, now)

    def merge(
        self,
        values: Mapping[str, object],
        *,
        expected_version: int | None = None,
        ttl: Ttl | None = None,
        now: When | None = None,
    ) -> int:
        """Merge values into the pool at all levels of mappings, and keep their siblings; return the new version.

        Raises:
            InputError: an argument is invalid.
            VersionConflictError: the pool has another version; nothing was written.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"values {shown(values)} are not accepted; expected a mapping of keys to values")
        new = {label_of("key", key): value for key, value in values.items()}
        return self._change(lambda old: merged(old, new), expected_version, ttl, now)

    def remove(self, key: str, *, expected_version: int | None = None, now: When | None = None) -> int:
        """Remove one value, if it is there; return the new version.

        Raises:
            InputError: an argument is invalid.
            VersionConflictError: the pool has another version; nothing was written.
        """
        label_of("key", key)
        return self._change(
            lambda values: {name: value for name, value in values.items() if name != key}, expected_version, None, now
        )

    def read(self, key: str | None = None, default: Any = None, *, now: When | None = None) -> Any:
        """Return the value of a key, or `default`; without a key, all values by key."""
        values = self.snapshot(now=now)[0]
        return values if key is None else values.get(label_of("key", key), default)

    def snapshot(self, *, now: When | None = None) -> tuple[dict[str, Any], int]:
        """Return all values by key, and the version of the pool, 0 if nothing is in it."""
        entry = self._entries.touch("", micros_at(now, self._clock))
        return ({}, 0) if entry is None else (json.loads(entry.value), entry.version)

    def clear(self, *, now: When | None = None) -> bool:
        """Remove the pool; return whether there was one."""
        return self._entries.remove("", micros_at(now, self._clock))

    def statistics(self, *, now: When | None = None) -> PoolStatistics:
        """Return the figures of the pool."""
        entry = self._entries.get("", micros_at(now, self._clock))
        if entry is None:
            return PoolStatistics()
        return PoolStatistics(
            entry.version,
            len(json.loads(entry.value)),
            len(entry.value.encode()),
            entry.accesses,
            time_of(entry.created_at),
            time_of(entry.updated_at),
            None if entry.expires_at is None else time_of(entry.expires_at),
        )

    def _change(
        self,
        change: Callable[[dict[str, Any]], object],
        expected_version: int | None,
        ttl: Ttl | None,
        now: When | None,
    ) -> int:
        is_version = isinstance(expected_version, int | None) and not isinstance(expected_version, bool)
        if not is_version or (expected_version or 0) < 0:
            raise InputError(f"expected_version {shown(expected_version)} is not accepted; expected a version, from 0")
        life = self._default_ttl if ttl is None else micros_of_ttl(ttl, MAX_POOL_TTL)
        at = micros_at(now, self._clock)
        for _ in range(TRIES):
            entry = self._entries.get("", at)
            version = 0 if entry is None else entry.version
            if expected_version in {None, version}:
                value = json_of(change({} if entry is None else json.loads(entry.value)))
                expires_at = at + life if life is not None else None if entry is None else entry.expires_at
                done = self._entries.swap("", value, version, expires_at, at, self.type)
                if done is not None:
                    return done
            elif expected_version is not None:
                raise VersionConflictError(
                    f"pool {shown(self.name)} has the version {version}, not {expected_version}; read it again", version
                )
        raise CommitConflictError(f"pool {shown(self.name)}: other writes came first {TRIES:,} times; try again")


def _check_type(value: object) -> None:
    if value not in SHORT_TERM_TYPES:
        raise InputError(f"type {shown(value)} is unknown; accepted: {', '.join(SHORT_TERM_TYPES)}")


#: The time to live of the pool of a run, from its last write on, in microseconds.
RUN_POOL_TTL: Final = MAX_TTL * 1_000_000

"""The transcript of a conversation: its items as an agent's framework sent them, word for word and in order.

Items are stored in entries, a list of items in each, whose keys are numbers. An entry whose value is an object replaces
all entries before it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.sessions import MAX_POOL_TTL, MAX_VALUE, json_of, micros_of_ttl
from memory_pipeline.errors import CommitConflictError, InputError, shown
from memory_pipeline.sessions.views import TRIES, micros_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.sessions import Entry, Ttl
    from memory_pipeline.sessions.store import Entries

#: Digits of a key. Keys are compared as texts.
_DIGITS: Final = 12
_REPLACED: Final = "items"


class Transcript:
    """The items of one conversation, any JSON. Take it from :meth:`memory_pipeline.Memory.transcript`.

    Safe to use from several threads and processes: items that are added at once all stay. What is erased about a user,
    a conversation or an agent is erased here, too. `now` is the current time in each method.
    """

    def __init__(self, entries: Entries, clock: Callable[[], datetime], ttl: Ttl | None = None) -> None:
        """Items live for `ttl`; without one, until they are removed."""
        self._entries = entries
        self._clock = clock
        self._ttl = None if ttl is None else micros_of_ttl(ttl, MAX_POOL_TTL)

    def extend(self, items: Sequence[object], *, now: When | None = None) -> None:
        """Add items at the end. All are there, or none, unless they have more than 1 MB together.

        Raises:
            InputError: an item is not JSON, or has more than 1 MB; nothing was written.
        """
        at = micros_at(now, self._clock)
        for text in list(_batches(items)):
            self._append(f"[{text}]", at)

    def read(self, limit: int | None = None, *, now: When | None = None) -> list[Any]:
        """Return the items, oldest first: all of them, or the last `limit`."""
        items: list[Any] = []
        for entry in self._entries.all(micros_at(now, self._clock)):
            value = json.loads(entry.value)
            items = [*value[_REPLACED]] if isinstance(value, dict) else [*items, *value]
        return items if limit is None else items[len(items) - max(0, min(limit, len(items))) :]

    def pop(self, *, now: When | None = None) -> Any:
        """Remove the last item and return it; None if there is none."""
        at = micros_at(now, self._clock)
        for _ in range(TRIES):
            entry = self._entries.last(at)
            if entry is None:
                return None
            value = json.loads(entry.value)
            is_replaced = isinstance(value, dict)
            items = value[_REPLACED] if is_replaced else value
            if not items:
                return None
            # What was replaced would be there again without its successor.
            left: object = {_REPLACED: items[:-1]} if is_replaced else items[:-1]
            if self._put(entry, left, at) if items[1:] or is_replaced else self._entries.discard(entry):
                return items[-1]
        raise CommitConflictError("other processes kept changing the transcript; nothing was removed")

    def replace(self, items: Sequence[object], *, now: When | None = None) -> None:
        """Replace all items by others.

        Raises:
            InputError: an item is not JSON, or has more than 1 MB; nothing was written.
        """
        at = micros_at(now, self._clock)
        first, *others = list(_batches(items)) or [""]
        key = self._append(f'{{"{_REPLACED}":[{first}]}}', at)
        for text in others:
            self._append(f"[{text}]", at)
        for entry in self._entries.all(at):
            if entry.key < key:
                self._entries.discard(entry)

    def clear(self, *, now: When | None = None) -> None:
        """Remove all items."""
        self._entries.clear(micros_at(now, self._clock))

    def _append(self, value: str, at: int) -> str:
        """Store a value after all others; return its key."""
        expires_at = None if self._ttl is None else at + self._ttl
        for _ in range(TRIES):
            last = self._entries.last(at)
            key = f"{0 if last is None else int(last.key) + 1:0{_DIGITS}}"
            if self._entries.swap(key, value, 0, expires_at, at) is not None:
                return key
        raise CommitConflictError("other processes kept changing the transcript; nothing was written")

    def _put(self, entry: Entry, value: object, at: int) -> bool:
        return self._entries.swap(entry.key, json_of(value), entry.version, entry.expires_at, at) is not None


def _batches(items: Sequence[object]) -> Iterator[str]:
    """Yield items as JSON with commas between them, as many at once as an entry takes."""
    batch, size, most = list[str](), 0, MAX_VALUE - len('{"items":[]}')
    for item in items:
        text = json_of(item)
        length = len(text.encode()) + 1
        if length > most:
            raise InputError(f"item {shown(item)} has {length:,} bytes as JSON; expected at most {most:,}")
        if batch and size + length > most:
            yield ",".join(batch)
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield ",".join(batch)

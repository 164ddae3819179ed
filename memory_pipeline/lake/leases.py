"""Leases: let one of several threads and processes do a piece of work.

::

    {folder}/{key}.json             the holder of a claim, and its expiry
    {folder}/{key}.{digest}.json    the right to replace one particular stale claim

A claim is a file that only one process can create. It is stale once it has expired or its process has ended. Deleting a
stale claim and creating another would let two processes win: the second to delete may delete the first one's new claim.
So the right to replace a claim is itself claimed, under a name with the digest of the stale claim. The winner reads the
claim again before replacing it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.operating_system import is_running

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake.files.storage import Storage

_HOST = socket.gethostname()
#: Distinguishes this process from earlier ones with the same id, which are common in containers.
_PROCESS = secrets.token_hex(8)
#: A claim this close to its expiry is released as if it had expired, because clocks of machines differ.
_SKEW = timedelta(seconds=5)
#: Time allowed to release an expired claim.
_MOMENT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of this process, with unique `data`. Until `alone_until`, no other process can have replaced it."""

    data: bytes
    until: datetime
    alone_until: datetime

    @classmethod
    def make(cls, now: datetime, lease: timedelta) -> _Claim:
        until = now + lease
        record = {
            "host": _HOST,
            "pid": os.getpid(),
            "process": _PROCESS,
            "until": until.isoformat(),
            "id": secrets.token_hex(8),
        }
        return cls(json.dumps(record).encode(), until, until - min(lease / 10, _SKEW))


class Leases:
    """Claims and releases keys, as files in `folder`; `clock` returns UTC. Safe to use from many threads."""

    def __init__(self, storage: Storage, folder: str, clock: Callable[[], datetime]) -> None:
        self._storage = storage
        self._folder = folder
        self._clock = clock
        # A key has several claims only if a thread continued after its claim expired.
        self._held: dict[str, list[_Claim]] = {}
        self._lock = threading.Lock()

    def claim(self, key: str, lease: timedelta) -> bool:
        """Claim a key. Return False if another thread or process has it."""
        now = self._clock()
        mine = _Claim.make(now, lease)
        with self._lock:
            held = self._held.setdefault(key, [])
            if any(now < claim.until for claim in held):
                return False
            held.append(mine)
        won = False
        try:
            won = self._take(f"{self._folder}/{key}.json", mine)
        finally:
            if not won:
                self._forget(key, mine)
        return won

    def is_taken(self, key: str) -> bool:
        """Return whether any process, including this one, holds a claim that is not stale."""
        present = self._storage.read(f"{self._folder}/{key}.json")
        return present is not None and not self._is_stale(present)

    def release(self, key: str) -> None:
        """Release a key. Do nothing if this process no longer holds it."""
        with self._lock:
            held = self._held.get(key)
            mine = held[0] if held else None
        if mine is None:
            return
        try:
            path, now = f"{self._folder}/{key}.json", self._clock()
            if now < mine.alone_until:
                self._storage.delete([path])
            else:
                self._replace(path, mine.data, _Claim.make(now, _MOMENT), delete=True)
        finally:
            self._forget(key, mine)

    def _forget(self, key: str, mine: _Claim) -> None:
        with self._lock:
            held = self._held.get(key, [])
            if mine in held:
                held.remove(mine)
            if not held:
                self._held.pop(key, None)

    def _take(self, path: str, mine: _Claim) -> bool:
        """Write `mine` as the claim at `path`, if there is none or it is stale."""
        if self._storage.create(path, mine.data, durable=False):
            return True
        present = self._storage.read(path)
        if present == mine.data:
            return True  # a request to S3 was sent twice because the first answer was lost
        if present is None or not self._is_stale(present):
            return False
        return self._replace(path, present, mine)

    def _replace(self, path: str, stale: bytes, mine: _Claim, *, delete: bool = False) -> bool:
        """Replace or delete one particular claim. Return False if another process was faster."""
        right = f"{path.removesuffix('.json')}.{blake2b(stale, digest_size=8).hexdigest()}.json"
        if not self._take(right, mine):
            return False
        # Another process may have replaced it and released the right after this one read it.
        is_there = self._storage.read(path) == stale
        if is_there and delete:
            self._storage.delete([path])
        elif is_there:
            self._storage.write(path, mine.data)
        self._storage.delete([right])
        return is_there

    def _is_stale(self, data: bytes) -> bool:
        try:
            record = parse_json(data)
            if self._clock() >= datetime.fromisoformat(str(record["until"])):
                return True
            if record["host"] != _HOST:
                return False
            pid = int(str(record["pid"]))
        except (InputError, KeyError, TypeError, ValueError):
            return True  # claims are not flushed to the disk: a power cut may leave one empty
        return record.get("process") != _PROCESS if pid == os.getpid() else not is_running(pid)

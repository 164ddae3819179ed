"""Tries again what failed because others were first, and gives who keeps losing its turn.

Nobody locks anything at first: most writers have no rivals, and an attempt that was overtaken costs less than a lock
would cost every time. But whoever takes long (reads much, folds, asks a model for vectors) would lose for ever against
others that are quick. So after a few lost attempts a writer takes the *turn* of what it writes: a claim
(:mod:`~memory_pipeline.lake.leases`), which all writers heed that have seen that they are not alone. The turn only puts
them in order. What is written is right without it, by the check of each commit: a turn that ends with its holder, or
that is heeded by nobody, loses and doubles nothing.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from ulid import ULID

from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.files.storage_errors import BEGINNINGS, in_words, is_final

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.leases import Leases


_Result = TypeVar("_Result")

#: How often something is tried, and how many seconds it waits between two attempts at most.
_ATTEMPTS, _LONGEST_PAUSE = 20, 0.5
#: After so many lost attempts a writer takes its turn.
_LOST_IN_A_ROW = 3
#: A turn ends by itself after this long, and some times as long as the longest attempt so far took.
_LEASE, _LEASES = timedelta(seconds=30), 4
#: How long a writer waits for the turns of others before it goes on without, and how long between two looks at most.
_PATIENCE, _LONGEST_LOOK = 120.0, 0.1


class CommitLostError(Exception):
    """Others changed what an attempt was about. It had no effect, and can be made again on what they left."""


class FairnessLock:
    """The turn at one thing that is written, for one writer and one write.

    Args:
        claims: where turns are claimed.
        key: of the thing; part of a file's name.
    """

    def __init__(self, claims: Leases, key: str) -> None:
        self._claims = claims
        self._key = key
        self._is_mine = False

    def heed(self) -> bool:
        """Where another writer has its turn, wait for one of one's own, and take it; return whether that was so."""
        if self._is_mine or not self._claims.is_taken(self._key):
            return False
        self.take(_LEASE)
        return True

    def take(self, lease: timedelta) -> None:
        """Wait for the turn and take it; after a long wait, go on without."""
        if self._is_mine:
            return
        number, give_up_at = 0, time.monotonic() + _PATIENCE
        while not self._claims.claim(self._key, lease):
            if time.monotonic() >= give_up_at:
                return
            _pause(number, _LONGEST_LOOK)
            number += 1
        self._is_mine = True

    def give_back(self) -> None:
        """Let others have their turns."""
        if self._is_mine:
            self._is_mine = False
            self._claims.release(self._key)


def retry_commit(attempt: Callable[[], _Result], what: str, aim: str, turn: FairnessLock) -> _Result:
    """Return what `attempt` does, made again whenever it was overtaken.

    Args:
        attempt: what to do; it raises :class:`CommitLostError` where others were first.
        what: what it is done to, for the message.
        aim: what it is for, likewise: "replace …".
        turn: at what it is done to.

    Raises:
        CommitConflictError: others were first every time.
    """
    longest = 0.0
    try:
        for number in range(_ATTEMPTS):
            if number >= _LOST_IN_A_ROW:
                turn.take(_LEASE + timedelta(seconds=_LEASES * longest))
            elif number:
                turn.heed()
            started = time.monotonic()
            try:
                return attempt()
            except CommitLostError as error:
                cause = error.__cause__
            longest = max(longest, time.monotonic() - started)
            _pause(number, _LONGEST_PAUSE)
    finally:
        turn.give_back()
    raise CommitConflictError(
        f"{what}: {_ATTEMPTS} attempts to {aim} lost against other writers; nothing was written, run it again when "
        "they have finished"
    ) from cause


def _pause(number: int, longest: float) -> None:
    pause = min(longest, 0.01 * 2**number)
    time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  # jitter, not a secret


# Tells whether a commit that seemed to fail was made: its answer may have been lost on the way.
#
# A request that creates a file only if there is none, done and sent again because nobody had answered, is refused: its
# own first time came before. So what a writer takes for another's commit may be its own. Each call that commits marks
# its commits, and looks for the mark in the log where one failed. On a local disk answers are not lost.


class CommitToken(Generic[_Result]):
    """The mark of one call, which commits once, however often it tries.

    Args:
        storage: the lake's files.
        path: of the table, below the root.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._value = str(ULID())
        # Versions after it may be of this call; None before it has tried to commit, and always on a disk.
        self._since: int | None = None
        self._result: _Result | None = None
        self._troubles = 0

    @property
    def metadata(self) -> dict[str, str]:
        """What a commit is marked by."""
        return {"memory_pipeline.mark": self._value}

    def expect(self, version: int, result: _Result) -> None:
        """Note what a commit that is tried from now on comes to, on top of a version; -1 where there is no table."""
        if not self._storage.is_local:
            self._since = version if self._since is None else self._since
            self._result = result

    def made(self) -> _Result | None:
        """Return what this call has committed; None if it has not. No version is looked at twice."""
        if self._since is None:
            return None
        mark = self._value.encode()
        while (commit := self._storage.read(f"{self._path}/_delta_log/{self._since + 1:020}.json")) is not None:
            if mark in commit:
                return self._result
            self._since += 1
        return None

    def note(self, error: Exception) -> None:
        """Note that a request failed, of which nobody knows whether it was done.

        Raises:
            LakeError: it was sent often enough.
        """
        self._troubles += 1
        if is_final(error) or self._troubles == BEGINNINGS:
            raise in_words(error, f"table {self._path}") from error

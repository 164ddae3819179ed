"""One policy for operations that fail under concurrent writers: what to retry, when, how often, and the final error.

Writers take no lock at first: most have no rivals, and a lost attempt costs less than a lock on every write. But a slow
writer (one that reads much, folds, or asks a model for vectors) would always lose against fast ones. So after a few
lost attempts a writer takes its *turn*: a lease (:mod:`~memory_pipeline.lake.leases`) that every writer that has
noticed rivals respects. The turn only orders writers. Correctness comes from the check of each commit: a turn that
expires, or that other writers ignore, neither loses nor duplicates data.

This module knows no library: the caller supplies the operation and classifies its errors.
"""

from __future__ import annotations

import random
import time
from asyncio import sleep
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ulid import ULID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


_Result = TypeVar("_Result")

#: Maximum number of attempts that end with a failed request, and the longest pause between two, in seconds.
_REQUESTS, _LONGEST_PAUSE = 4, 0.5
#: A writer takes its turn after this many lost attempts.
_LOST_IN_A_ROW = 3
#: A turn expires after this time, or after this many times the longest attempt so far, whichever is longer.
_LEASE, _LEASES = timedelta(seconds=30), 4
#: Seconds that a writer waits for others' turns before it proceeds without one, and the longest poll interval.
_PATIENCE, _LONGEST_LOOK = 120.0, 0.1


class CommitLostError(Exception):
    """A concurrent change invalidated an attempt, which had no effect. Repeat it on the new state."""


class FailureKind(Enum):
    """Why an attempt failed."""

    LOST = "a concurrent commit was faster, and this one had no effect"
    TRANSIENT = "a request failed, and may or may not have had an effect"
    FINAL = "another attempt would not help"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which errors are retried, and how often.

    Attributes:
        attempts: the maximum number.
        errors: those that `judge` classifies (for a :class:`CommitLostError`, its cause, if any). Others propagate.
        judge: classifies a failed attempt, or raises another error in its place.
        give_up: returns the error to raise in place of the last one.
        first_pause: in seconds; each later pause is twice as long.
    """

    attempts: int
    errors: tuple[type[Exception], ...]
    judge: Callable[[Any], FailureKind]
    give_up: Callable[[Any], Exception]
    first_pause: float = 0.01


def retry(attempt: Callable[[], _Result], policy: RetryPolicy, turn: WriteTurn | None = None) -> _Result:
    """Return the result of `attempt`, retried as the policy says; `turn` orders concurrent writers."""
    failures, longest = _Failures(policy), 0.0
    try:
        while True:
            if turn is not None and failures.count >= _LOST_IN_A_ROW:
                turn.take(_LEASE + timedelta(seconds=_LEASES * longest))
            elif turn is not None and failures.count:
                turn.heed()
            started = time.monotonic()
            try:
                return attempt()
            except policy.errors as error:
                pause = failures.pause_after(error)
            longest = max(longest, time.monotonic() - started)
            time.sleep(pause)
    finally:
        if turn is not None:
            turn.give_back()


async def retry_async(attempt: Callable[[], Awaitable[_Result]], policy: RetryPolicy) -> _Result:
    """Return the awaited result of `attempt`, retried as the policy says."""
    failures = _Failures(policy)
    while True:
        try:
            return await attempt()
        except policy.errors as error:
            pause = failures.pause_after(error)
        await sleep(pause)


class _Failures:
    def __init__(self, policy: RetryPolicy) -> None:
        self.count = 0
        self._policy = policy
        self._requests = 0
        self._pauses = pauses(_LONGEST_PAUSE, policy.first_pause)

    def pause_after(self, error: Exception) -> float:
        """Return the seconds to wait before the next attempt, or raise the final error."""
        policy = self._policy
        if isinstance(error, CommitLostError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        failure = policy.judge(error)
        self.count += 1
        self._requests += failure is FailureKind.TRANSIENT
        if failure is FailureKind.FINAL or self.count == policy.attempts or self._requests == _REQUESTS:
            last = policy.give_up(error)
            try:
                if last is error:
                    raise error
                raise last from error
            finally:
                del error, last  # their tracebacks hold this frame
        return next(self._pauses)


def pauses(longest: float, first: float = 0.01) -> Iterator[float]:
    """Yield seconds to wait: doubling up to `longest`, with jitter that takes off up to half."""
    while True:
        first = min(first, longest)
        yield random.uniform(first / 2, first)  # noqa: S311  # nosec B311  # jitter, not a secret
        first *= 2


class LeaseStore(Protocol):
    """The part of :class:`~memory_pipeline.lake.leases.Leases` that a turn needs."""

    def claim(self, key: str, lease: timedelta) -> bool: ...  # noqa: D102
    def is_taken(self, key: str) -> bool: ...  # noqa: D102
    def release(self, key: str) -> None: ...  # noqa: D102


class WriteTurn:
    """The turn of one writer, for one write to `key`, which is part of a file's name."""

    def __init__(self, claims: LeaseStore, key: str) -> None:
        self._claims = claims
        self._key = key
        self._is_mine = False

    def heed(self) -> bool:
        """If another writer has its turn, wait for it and take the next one. Return whether that was so."""
        if self._is_mine or not self._claims.is_taken(self._key):
            return False
        self.take(_LEASE)
        return True

    def take(self, lease: timedelta) -> None:
        """Wait for the turn and take it. After a long wait, proceed without."""
        if self._is_mine:
            return
        give_up_at = time.monotonic() + _PATIENCE
        for pause in pauses(_LONGEST_LOOK):
            self._is_mine = self._claims.claim(self._key, lease)
            if self._is_mine or time.monotonic() >= give_up_at:
                return
            time.sleep(pause)

    def give_back(self) -> None:
        """End the turn, so that others can take theirs."""
        if self._is_mine:
            self._is_mine = False
            self._claims.release(self._key)


class CommitToken(Generic[_Result]):
    """Detects whether a commit that seemed to fail succeeded.

    A request to create a file only if it is absent may succeed, lose its answer, and be refused when it is repeated. So
    a commit that looks like a rival's may be the writer's own. Each call marks its commits, and searches the log for
    its mark when one fails.

    `commit_of` returns the log entry of a version, or None if there is none yet. It is None where answers cannot be
    lost, as on a disk.
    """

    def __init__(self, commit_of: Callable[[int], bytes | None] | None) -> None:
        self._commit_of = commit_of
        self._value = str(ULID())
        # This call may have made later versions. None before its first commit, and where answers cannot be lost.
        self._since: int | None = None
        self._result: _Result | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that marks a commit."""
        return {"memory_pipeline.mark": self._value}

    def expect(self, version: int, result: _Result) -> None:
        """Record the result of a commit on top of a version before trying it; -1 if there is no table."""
        if self._commit_of is not None:
            self._since = version if self._since is None else self._since
            self._result = result

    def made(self) -> _Result | None:
        """Return the result of the commit that this call has made, or None. Each version is checked once."""
        if self._commit_of is None or self._since is None:
            return None
        while (commit := self._commit_of(self._since + 1)) is not None:
            if self._value.encode() in commit:
                return self._result
            self._since += 1
        return None

"""One policy for what fails beside other writers: what is tried again, when, how often, and what is said in the end.

Nobody locks anything at first: most writers have no rivals, and an attempt that was overtaken costs less than a lock
would cost every time. But whoever takes long (reads much, folds, asks a model for vectors) would lose for ever against
others that are quick. So after a few lost attempts a writer takes the *turn* of what it writes: a claim
(:mod:`~memory_pipeline.lake.leases`), which all writers heed that have seen that they are not alone. The turn only puts
them in order. What is written is right without it, by the check of each commit: a turn that ends with its holder, or
that is heeded by nobody, loses and doubles nothing.

This module knows no library: who calls it says what to try, and judges the errors.
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

#: How many attempts may end with a request that failed, and how many seconds there are between two at most.
_REQUESTS, _LONGEST_PAUSE = 4, 0.5
#: After so many lost attempts a writer takes its turn.
_LOST_IN_A_ROW = 3
#: A turn ends by itself after this long, and some times as long as the longest attempt so far took.
_LEASE, _LEASES = timedelta(seconds=30), 4
#: How long a writer waits for the turns of others before it goes on without, and how long between two looks at most.
_PATIENCE, _LONGEST_LOOK = 120.0, 0.1


class CommitLostError(Exception):
    """Others changed what an attempt was about. It had no effect, and can be made again on what they left."""


class FailureKind(Enum):
    """Why an attempt failed."""

    LOST = "others were first, and it had no effect"
    TRANSIENT = "a request failed, and may have been done or not"
    FINAL = "another attempt would be of no use"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What is tried again, and how often.

    Attributes:
        attempts: how many there are at most.
        errors: those that are judged; of :class:`CommitLostError` it is the cause, if it has one. Others pass.
        judge: says why an attempt failed, or raises something in the place of the error.
        give_up: returns what is raised in the place of the last error.
        first_pause: how many seconds there are between the first two; then each pause is twice as long.
    """

    attempts: int
    errors: tuple[type[Exception], ...]
    judge: Callable[[Any], FailureKind]
    give_up: Callable[[Any], Exception]
    first_pause: float = 0.01


def retry(attempt: Callable[[], _Result], policy: RetryPolicy, turn: FairnessLock | None = None) -> _Result:
    """Return what `attempt` does, made again as the policy says; `turn` is that of what it is done to."""
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
    """Return what `attempt` does, awaited again as the policy says."""
    failures = _Failures(policy)
    while True:
        try:
            return await attempt()
        except policy.errors as error:
            pause = failures.pause_after(error)
        await sleep(pause)


class _Failures:
    """Those of one thing that is tried."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.count = 0
        self._policy = policy
        self._requests = 0
        self._pauses = pauses(_LONGEST_PAUSE, policy.first_pause)

    def pause_after(self, error: Exception) -> float:
        """Return how many seconds to wait before the next attempt, or raise what the policy says."""
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
    """Yield seconds to wait: each time twice as many, up to `longest`, and by chance up to half less."""
    while True:
        first = min(first, longest)
        yield random.uniform(first / 2, first)  # noqa: S311  # jitter, not a secret
        first *= 2


class LeaseStore(Protocol):
    """What a turn asks of :class:`~memory_pipeline.lake.leases.Leases`."""

    def claim(self, key: str, lease: timedelta) -> bool: ...  # noqa: D102
    def is_taken(self, key: str) -> bool: ...  # noqa: D102
    def release(self, key: str) -> None: ...  # noqa: D102


class FairnessLock:
    """The turn at one thing that is written, for one writer and one write.

    Args:
        claims: where turns are claimed.
        key: of the thing; part of a file's name.
    """

    def __init__(self, claims: LeaseStore, key: str) -> None:
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
        give_up_at = time.monotonic() + _PATIENCE
        for pause in pauses(_LONGEST_LOOK):
            self._is_mine = self._claims.claim(self._key, lease)
            if self._is_mine or time.monotonic() >= give_up_at:
                return
            time.sleep(pause)

    def give_back(self) -> None:
        """Let others have their turns."""
        if self._is_mine:
            self._is_mine = False
            self._claims.release(self._key)


class CommitToken(Generic[_Result]):
    """Tells whether a commit that seemed to fail was made: its answer may have been lost on the way.

    A request that creates a file only if there is none, done and sent again because nobody had answered, is refused:
    its own first time came before. So what a writer takes for another's commit may be its own. Each call that commits
    marks its commits, and looks for the mark in the log where one failed.

    Args:
        commit_of: returns what the log says of a version, None where there is none yet; None where no answer is lost,
            as on a disk.
    """

    def __init__(self, commit_of: Callable[[int], bytes | None] | None) -> None:
        self._commit_of = commit_of
        self._value = str(ULID())
        # Versions after it may be of this call; None before it has tried to commit, and where no answer is lost.
        self._since: int | None = None
        self._result: _Result | None = None

    @property
    def metadata(self) -> dict[str, str]:
        """What a commit is marked by."""
        return {"memory_pipeline.mark": self._value}

    def expect(self, version: int, result: _Result) -> None:
        """Note what a commit that is tried from now on comes to, on top of a version; -1 where there is no table."""
        if self._commit_of is not None:
            self._since = version if self._since is None else self._since
            self._result = result

    def made(self) -> _Result | None:
        """Return what this call has committed; None if it has not. No version is looked at twice."""
        if self._commit_of is None or self._since is None:
            return None
        while (commit := self._commit_of(self._since + 1)) is not None:
            if self._value.encode() in commit:
                return self._result
            self._since += 1
        return None

"""The retry policy: lost commits are retried, failed requests a few times, other errors never; and pauses grow."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake import commit_retry
from memory_pipeline.lake.commit_retry import (
    CommitLostError,
    CommitToken,
    FailureKind,
    RetryPolicy,
    pauses,
    retry,
    retry_async,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LOST, BUSY, WRONG = KeyError("lost"), TimeoutError("busy"), ValueError("wrong")
KINDS = {KeyError: FailureKind.LOST, TimeoutError: FailureKind.TRANSIENT, ValueError: FailureKind.FINAL}
POLICY = RetryPolicy(
    6,
    (CommitLostError, *KINDS),
    lambda error: KINDS[type(error)],
    lambda error: error if error is WRONG else OSError(f"given up: {error}"),
)


def in_turn(attempt: Callable[[], int], policy: RetryPolicy) -> int:
    async def awaited() -> int:
        return attempt()

    return asyncio.run(retry_async(awaited, policy))


@pytest.fixture(params=[retry, in_turn], ids=["sync", "async"])
def tried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that counts its attempts and fails the first ones."""
    monkeypatch.setattr(commit_retry, "_LONGEST_PAUSE", 0.0)

    def after(*errors: Exception) -> int:
        coming, count = iter(errors), 0

        def attempt() -> int:
            nonlocal count
            count += 1
            for error in coming:
                raise error
            return count

        found: int = request.param(attempt, POLICY)
        return found

    return after


def test_lost_and_failed_commits_are_retried(tried: Callable[..., int]) -> None:
    assert tried() == 1
    assert tried(*[LOST] * 5) == 6
    assert tried(BUSY, LOST, BUSY, LOST, BUSY) == 6


def test_the_cause_of_a_lost_commit_decides_whether_it_is_retried(tried: Callable[..., int]) -> None:
    lost = CommitLostError()
    lost.__cause__ = WRONG
    with pytest.raises(ValueError, match=r"^wrong$"):
        tried(lost)
    lost.__cause__ = LOST
    assert tried(lost) == 2


@pytest.mark.parametrize(("errors", "last"), [([LOST] * 6, LOST), ([BUSY] * 4, BUSY), ([BUSY, LOST] * 3, LOST)])
def test_the_last_error_is_the_reported_cause(
    tried: Callable[..., int], errors: list[Exception], last: Exception
) -> None:
    with pytest.raises(OSError, match="given up") as caught:
        tried(*errors)
    assert caught.value.__cause__ is last


def test_final_and_unknown_errors_are_raised_at_once(tried: Callable[..., int]) -> None:
    with pytest.raises(ValueError, match=r"^wrong$") as caught:
        tried(WRONG)
    assert caught.value.__cause__ is None
    with pytest.raises(ZeroDivisionError):
        tried(ZeroDivisionError())


def test_pauses_grow_and_are_random() -> None:
    for number, pause in enumerate(islice(pauses(0.5), 12)):
        longest = min(0.5, 0.01 * 2**number)
        assert longest / 2 <= pause <= longest
    assert len({next(pauses(0.5)) for _ in range(20)}) > 1


def test_a_token_finds_its_commit_and_reads_none_twice() -> None:
    read: list[int] = []
    log = {4: b"theirs"}

    def commit_of(version: int) -> bytes | None:
        read.append(version)
        return log.get(version)

    token = CommitToken[str](commit_of)
    assert token.made() is None
    token.expect(3, "made")
    assert token.made() is None
    log |= {5: str(token.metadata).encode(), 6: b"theirs"}
    token.expect(4, "made again")
    assert token.made() == "made again"
    assert read == [4, 5, 5]
    unread = CommitToken[str](None)
    unread.expect(3, "made")
    assert unread.made() is None

"""Tries again what failed because others were first."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.errors import CommitConflictError

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")

#: How often something is tried, and how many seconds it waits between two attempts at most.
_ATTEMPTS, _LONGEST_PAUSE = 20, 0.5


class OvertakenError(Exception):
    """Others changed what an attempt was about. It had no effect, and can be made again on what they left."""


def persistently(attempt: Callable[[], _Result], what: str, aim: str) -> _Result:
    """Return what `attempt` does, made again whenever it was overtaken.

    Args:
        attempt: what to do; it raises :class:`OvertakenError` where others were first.
        what: what it is done to, for the message.
        aim: what it is for, likewise: "replace …".

    Raises:
        CommitConflictError: others were first every time.
    """
    for number in range(_ATTEMPTS):
        try:
            return attempt()
        except OvertakenError as error:
            cause = error.__cause__
        pause = min(_LONGEST_PAUSE, 0.01 * 2**number)
        time.sleep(random.uniform(pause / 2, pause))  # noqa: S311  # jitter, not a secret
    raise CommitConflictError(
        f"{what}: {_ATTEMPTS} attempts to {aim} lost against other writers; nothing was written, run it again when "
        "they have finished"
    ) from cause

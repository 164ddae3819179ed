"""Tells apart what one writer does at one time."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

_MOMENT = timedelta(microseconds=1)
#: So many times are remembered at which something was written.
_REMEMBERED = 100


class Moments:
    """Gives what is written at one time times of its own, microseconds apart, so that its order is kept.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        #: Of the last times at which something was written: the next one that is free.
        self._next: dict[datetime, datetime] = {}
        self._lock = threading.Lock()

    @contextmanager
    def at(self, instant: datetime) -> Iterator[Callable[[], datetime]]:
        """Yield what gives the next time from `instant` on that is free.

        One thread writes at a time. What was given counts as taken if the block ends without an error.
        """
        with self._lock:
            following = self._next.get(instant, instant)

            def take() -> datetime:
                nonlocal following
                taken, following = following, following + _MOMENT
                return taken

            yield take
            self._next.pop(instant, None)
            self._next[instant] = following
            if len(self._next) > _REMEMBERED:
                del self._next[next(iter(self._next))]


def moment_after(at: datetime, latest: datetime, within: timedelta = timedelta(seconds=1)) -> datetime:
    """Return `at`, or a moment after `latest` where that is the same time but for moments.

    Args:
        at: when something is done.
        latest: when what it is done to was last changed.
        within: what lies less far ahead counts as the same time.
    """
    return latest + _MOMENT if at <= latest < at + within else at

"""Times of changes: distinct for one writer, and after those that the writer saw."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MOMENT = timedelta(microseconds=1)
#: Number of write times that are remembered.
_REMEMBERED = 100


class EventClock:
    """Give writes at the same time distinct times, microseconds apart, so that their order is preserved.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        #: The next free time after each of the last write times.
        self._next: dict[datetime, datetime] = {}
        self._lock = threading.Lock()

    @contextmanager
    def at(self, instant: datetime) -> Iterator[Callable[[], datetime]]:
        """Yield a function that returns the next free time from `instant` on.

        One thread writes at a time. The times count as used if the block ends without an error.
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


#: Difference between clocks that is expected. A given time that is further behind is about the past.
TOLERANCE = timedelta(minutes=5)


def placed_after(at: datetime, seen: Iterable[datetime], within: timedelta | None = None) -> datetime | None:
    """Return the place of an event at `at` that follows those at the places `seen`: None if that is its time.

    Clocks differ. An event comes after those that its writer saw, whatever their clocks said. Those more than `within`
    later are ignored.
    """
    last = max((one for one in seen if within is None or one - at <= within), default=None)
    return last + _MOMENT if last is not None and last >= at else None

"""What a reader holds in memory of an agent's index: whole tables, as long as they fit; bounded and refreshed.

Every search asks the index for its version, so that a write which was finished before is seen. A table that has more
rows than may be held is searched where it lies, and only what is found there is ranked.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from memory_pipeline.reader.recall import points_of
from memory_pipeline.reader.segment import Segment
from memory_pipeline.reader.similarity import SKETCHED_FROM

if TYPE_CHECKING:
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.grains import Grain
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake.vectors import VectorIndex

#: Rows of all grains together that a reader holds, unless it is told otherwise: about 0.3 GB at 384 dimensions.
DEFAULT_ROWS: Final = 250_000


@dataclass(slots=True)
class _Held:
    """A table: its version and rows, and the points of its summaries once they were asked for."""

    version: int
    rows: Segment
    points: Segment | None = None

    def __len__(self) -> int:
        return len(self.rows)


class Resident:
    """Holds the tables of one agent. Safe to use from several threads.

    Args:
        index: where the tables are.
        scope: whose.
        dimension: length of the vectors.
        most: rows of all tables together that are held; the least recently used give way.
        calendar: the lake's.
    """

    def __init__(self, index: VectorIndex, scope: Scope, dimension: int, most: int, calendar: Calendar) -> None:
        self._index = index
        self._scope = scope
        self._dimension = dimension
        self._most = most
        self._calendar = calendar
        self._held: dict[Grain, _Held] = {}
        self._lock = threading.Lock()

    def segment(self, grain: Grain) -> Segment | None:
        """Return the newest rows of a grain; None if there are more than may be held."""
        version = self._index.version(self._scope, grain)
        with self._lock:
            held = self._held.pop(grain, None)
            if held is not None and held.version == version:
                self._held[grain] = held  # now the most recently used
                return held.rows
            if self._index.count(self._scope, grain) > self._most:
                return None
            # The rows may be newer than the version; then the next search reads them once more.
            segment = Segment(*self._index.load(self._scope, grain, self._dimension))
            if len(segment) >= SKETCHED_FROM:
                _give_back()
            if version is not None:
                self._held[grain] = _Held(version, segment)
                self._make_room()
            return segment

    def points(self, grain: Grain) -> Segment | None:
        """Return the points of a grain's summaries; None if there are more summaries than may be held."""
        summaries = self.segment(grain)
        if summaries is None:
            return None
        with self._lock:
            held = self._held.get(grain)
            if held is not None and held.rows is summaries and held.points is not None:
                return held.points
            points = points_of(summaries, self._calendar)
            if held is not None and held.rows is summaries:
                held.points = points
            return points

    def _make_room(self) -> None:
        while self._held and sum(map(len, self._held.values())) > self._most:
            del self._held[next(iter(self._held))]


def _give_back() -> None:
    """Return freed memory to the system: what reading a large table took would else stay with the process."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc alone has it
        trim(0)

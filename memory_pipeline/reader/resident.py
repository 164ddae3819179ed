"""What a reader holds in memory of an agent's index: whole tables, as long as they fit; bounded and refreshed.

Every search asks the index for its version, so that a write which was finished before is seen. Of a large table that
has changed, only the rows that have come are read, and laid out beside those that are held; those that have gone are
masked. A search waits for that much and no more: meanwhile a thread lays out the whole anew, and a later search finds
it. A table that has more rows than may be held is searched where it lies, and only what is found there is ranked.
"""

from __future__ import annotations

import ctypes
import logging
import math
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.lake.index.lance_tables import is_of_one_table
from memory_pipeline.reader.segment import RowBlock, points_of
from memory_pipeline.reader.similarity import SKETCHED_FROM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Calendar, Grain
    from memory_pipeline.lake.index.vector_index import Loaded, VectorIndex

_log = logging.getLogger(__name__)

#: Rows of all grains together that a reader holds, unless it is told otherwise: about 0.3 GB at 384 dimensions.
DEFAULT_ROWS: Final = 250_000
#: A smaller table is read whole when it has changed: that takes no longer than looking what has.
_PATCHED_FROM: Final = 1_000
#: So many rows are laid out while a search waits.
_MOST_PATCHED: Final = 1_000
#: After a table was laid out anew, it is not again for so many times as long as that took.
_IDLE: Final = 10


class CachedRows(NamedTuple):
    """Some rows of a table, and which of them still count; None: all."""

    segment: RowBlock
    stands: NDArray[np.bool_] | None


@dataclass(slots=True)
class _Held:
    """A table as it was at a version.

    Attributes:
        version: of the table.
        whole: the rows as they were laid out last.
        numbers: theirs, in the order of `whole`.
        gone: which of them have gone since; None if all of them stand.
        come: the rows that have come since.
        points: those of the summaries, once they were asked for.
    """

    version: int
    whole: RowBlock
    numbers: NDArray[np.uint64]
    gone: NDArray[np.bool_] | None = None
    come: RowBlock | None = None
    points: RowBlock | None = None

    @classmethod
    def of(cls, version: int, loaded: Loaded) -> _Held:
        """Lay out a table that was loaded whole."""
        whole = RowBlock(loaded.rows, loaded.vectors)
        order = pc.index_in(whole.ids, loaded.rows["id"].combine_chunks()).to_numpy(zero_copy_only=False)
        return cls(version, whole, loaded.numbers[order])

    def __len__(self) -> int:
        return len(self.whole) + (0 if self.come is None else len(self.come))

    @property
    def is_patched(self) -> bool:
        """Whether rows have come or gone since the whole was laid out."""
        return self.come is not None or self.gone is not None

    @property
    def parts(self) -> list[CachedRows]:
        """What to choose from, the newer first."""
        newer = [] if self.come is None else [CachedRows(self.come, None)]
        return [*newer, CachedRows(self.whole, None if self.gone is None else ~self.gone)]


class IndexCache:
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
        # When the layout of a grain may begin anew; those that are being laid out are not to begin.
        self._again_at: dict[Grain, float] = {}

    def parts(self, grain: Grain) -> list[CachedRows] | None:
        """Return the newest rows of a grain, in one part or several; None if there are more than may be held."""
        return self._parts(grain, in_one=False)

    def segment(self, grain: Grain) -> RowBlock | None:
        """Return the newest rows of a grain in one part; None if there are more than may be held."""
        parts = self._parts(grain, in_one=True)
        return None if parts is None else parts[0].segment

    def _parts(self, grain: Grain, *, in_one: bool) -> list[CachedRows] | None:
        version = self._index.version(self._scope, grain)
        with self._lock:
            held = self._held.pop(grain, None)
            if held is not None and held.version != version:
                held = None if in_one else self._patched(grain, held, version)
            if held is not None and not (in_one and held.is_patched):
                self._held[grain] = held  # now the most recently used
                if held.is_patched:
                    self._begin_anew(grain)
                    self._make_room()
                return held.parts
            if self._index.count(self._scope, grain) > self._most:
                return None
            # The rows may be newer than the version; then the next search reads them once more.
            held = self._loaded(grain, version)
            if version is not None:
                self._held[grain] = held
                self._make_room()
            return held.parts

    def _loaded(self, grain: Grain, version: int | None) -> _Held:
        held = _Held.of(version or 0, self._index.load(self._scope, grain, self._dimension))
        if len(held) >= SKETCHED_FROM:
            _give_back()
        return held

    def _patched(self, grain: Grain, held: _Held, version: int | None) -> _Held | None:
        """Return what is held with what has become of it since; None if it is better read whole."""
        if version is None or len(held.whole) < _PATCHED_FROM or not is_of_one_table(held.version, version):
            return None
        since = self._index.since(self._scope, grain, self._dimension, held.numbers, _MOST_PATCHED)
        if since is None:
            return None
        loaded, gone = since
        come = RowBlock(loaded.rows, loaded.vectors) if len(loaded.numbers) else None
        patched = replace(held, version=version, come=come, gone=gone if gone.any() else None, points=None)
        return patched if len(patched) <= self._most else None

    def _begin_anew(self, grain: Grain) -> None:
        """Lay out a grain anew beside the searches, unless that is under way, or was a moment ago."""
        if time.monotonic() >= self._again_at.get(grain, 0.0):
            self._again_at[grain] = math.inf
            threading.Thread(target=self._lay_out, args=(grain,), name="memory-layout").start()

    def _lay_out(self, grain: Grain) -> None:
        started = time.monotonic()
        try:
            version = self._index.version(self._scope, grain)
            anew = self._loaded(grain, version)
            with self._lock:
                held = self._held.get(grain)
                # Newer rows than these may have come meanwhile: they are patched onto these by the next search.
                if held is not None and version is not None and is_of_one_table(held.version, version):
                    self._held[grain] = anew
                    self._make_room()
        except Exception:  # noqa: BLE001  # whatever it is: what is held is right without it
            _log.warning("%s of %s could not be laid out anew", grain, self._scope, exc_info=True)
        finally:
            ended = time.monotonic()
            self._again_at[grain] = ended + _IDLE * (ended - started)

    def points(self, grain: Grain) -> RowBlock | None:
        """Return the points of a grain's summaries; None if there are more summaries than may be held."""
        summaries = self.segment(grain)
        if summaries is None:
            return None
        with self._lock:
            held = self._held.get(grain)
            if held is not None and held.whole is summaries and held.points is not None:
                return held.points
            points = points_of(summaries, self._calendar)
            if held is not None and held.whole is summaries:
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

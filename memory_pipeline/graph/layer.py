"""Facts of a graph laid out in arrays, so that those of an entity are found without looking at the others."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import KIND

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray

_ENDS = ("source_id", "target_id")


class Codes:
    """Numbers of entities: 0, 1, …. A layer above another one goes on counting, and leaves that one's as they are.

    Args:
        below: what is numbered already.
    """

    def __init__(self, below: Codes | None = None) -> None:
        self._below = below
        self._first = 0 if below is None else len(below)
        self._codes: dict[str, int] = {}
        self._names: list[str] = []
        self._array: pa.Array | None = None

    def __len__(self) -> int:
        """Return how many there are, those below included."""
        return self._first + len(self._names)

    def get(self, name: str) -> int | None:
        """Return the number of a name; None if it has none."""
        found = None if self._below is None else self._below.get(name)
        return self._codes.get(name) if found is None else found

    def name(self, code: int) -> str:
        """Return the name that has a number."""
        if self._below is not None and code < self._first:
            return self._below.name(code)
        return self._names[code - self._first]

    def holding(self, text: str) -> list[int]:
        """Return the numbers of the names that hold a text."""
        if self._array is None or len(self._array) != len(self._names):
            self._array = pa.array(self._names, pa.string())
        own = np.flatnonzero(pc.match_substring(self._array, text).to_numpy(zero_copy_only=False))
        return [*(() if self._below is None else self._below.holding(text)), *(own + self._first).tolist()]

    def of(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the numbers of a column of names; new names get the next ones."""
        encoded = column.combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if self._below is None and not self._names:
            self._names, self._codes = names, {name: code for code, name in enumerate(names)}
            codes = np.arange(len(names))
        else:
            codes = np.array([self._code(name) for name in names], np.int64)
        numbers: NDArray[np.int64] = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return numbers

    def _code(self, name: str) -> int:
        found = self.get(name)
        if found is None:
            found = self._codes[name] = len(self)
            self._names.append(name)
        return found


class Layer:
    """Some facts of one agent.

    Args:
        rows: of ``graph_facts``.
        codes: numbers entities.

    Attributes:
        rows: the same.
        ends: of each row the numbers of source and target.
        holds: whether a row holds now; what is hidden by another layer does not.
        updated_at: of each row, in microseconds.
    """

    def __init__(self, rows: pa.Table, codes: Codes) -> None:
        self.rows = rows.combine_chunks()
        both = pa.chunked_array([*self.rows[_ENDS[0]].chunks, *self.rows[_ENDS[1]].chunks], pa.string())
        numbers = codes.of(both)
        self.ends = (numbers[: len(self)], numbers[len(self) :])
        self.holds: NDArray[np.bool_] = pc.is_null(self.rows["valid_to"]).to_numpy().astype(np.bool_)
        self.updated_at: NDArray[np.int64] = self.rows["updated_at"].cast(pa.int64()).to_numpy()
        self._order = tuple(np.argsort(numbers, kind="stable") for numbers in self.ends)
        self._sorted = tuple(numbers[order] for numbers, order in zip(self.ends, self._order, strict=True))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.rows.num_rows)

    def rows_of(self, codes: NDArray[np.int64], end: int) -> NDArray[np.int64]:
        """Return the rows whose source (end 0) or target (end 1) is one of `codes`."""
        first = np.searchsorted(self._sorted[end], codes, "left")
        counts = np.searchsorted(self._sorted[end], codes, "right") - first
        total = int(counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        found: NDArray[np.int64] = self._order[end][np.repeat(first, counts) + within]
        return found

    def newest(self, code: int, end: int) -> int | None:
        """Return the row that was last said of those with a source (end 0) or target (end 1); None if there is none."""
        row = self._newest[end][code] if code < len(self._newest[end]) else -1
        return None if row < 0 else int(row)

    @cached_property
    def leads(self) -> NDArray[np.bool_]:
        """Of each row, whether its source and target are related by it: they are not if one is the other's kind."""
        related: NDArray[np.bool_] = pc.not_equal(self.rows["label"], KIND).to_numpy(zero_copy_only=False)
        return related

    @cached_property
    def _valid_from(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self.rows["valid_from"].cast(pa.int64()).to_numpy()
        return times

    @cached_property
    def _newest(self) -> list[NDArray[np.int64]]:
        order = np.argsort(self.updated_at, kind="stable")
        found = []
        for numbers in self.ends:
            rows = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
            rows[numbers[order]] = order  # of several assignments the last one stays
            found.append(rows)
        return found

    def newest_of(
        self, rows: NDArray[np.int64], by: Literal["updated_at", "valid_from"], limit: int
    ) -> NDArray[np.int64]:
        """Return the `limit` newest of some rows, by one of their times; of equals those whose ids come first."""
        times = (self.updated_at if by == "updated_at" else self._valid_from)[rows]
        if len(rows) > limit:
            least = np.partition(times, len(rows) - limit)[len(rows) - limit]
            rows, times = rows[times >= least], times[times >= least]
        ids = self.rows["id"].take(pa.array(rows)).to_pylist()
        order = sorted(range(len(rows)), key=lambda place: (-times[place], ids[place]))[:limit]
        newest: NDArray[np.int64] = rows[np.array(order, np.int64)]
        return newest

    def held_at(self, rows: NDArray[np.int64], instant: datetime) -> NDArray[np.int64]:
        """Return those of some rows that held at an instant: from their beginning on, at their end no longer."""
        times = self.rows.select(["valid_from", "valid_to"]).take(pa.array(rows))
        moment = pa.scalar(instant, times["valid_from"].type)
        begun = pc.less_equal(times["valid_from"], moment)
        lasts = pc.fill_null(pc.greater(times["valid_to"], moment), True)  # what has no end lasts
        held: NDArray[np.int64] = rows[pc.and_(begun, lasts).to_numpy(zero_copy_only=False).astype(np.bool_)]
        return held

    def touching(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows that have one of `codes` at either end, each once, ascending."""
        return np.unique(np.concatenate([self.rows_of(codes, 0), self.rows_of(codes, 1)]))

    def degrees(self, count: int) -> NDArray[np.int64]:
        """Return how many facts that hold each of `count` entities is source or target of."""
        return self.counted(np.flatnonzero(self.holds), count)

    def counted(self, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return how many of some rows each of `count` entities is source or target of; of one with itself once."""
        sources, targets = (ends[rows] for ends in self.ends)
        own: NDArray[np.int64] = np.bincount(sources, minlength=count)
        return own + np.bincount(targets[targets != sources], minlength=count)

"""How near the vectors of many rows are to one vector: exactly while they are few, by a sketch first when many.

A sketch keeps the sign of each number, 1 bit instead of 32, after a random rotation that spreads what a vector says
evenly over its numbers; the share of signs that differ grows with the angle (random hyperplanes, Charikar 2002). The
nearest by sketch are then compared exactly.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: From so many vectors on they are sketched, and kept in half precision.
SKETCHED_FROM: Final = 20_000
#: How many vectors tell what nearness is usual.
_SAMPLE: Final = 1_000
#: How many vectors are sketched at a time.
_BLOCK: Final = 8_192
_SEED: Final = 20240115


class Vectors:
    """Unit vectors of rows.

    Args:
        vectors: shape (rows, dimension), float32 or float16; NaN where there is none. Kept, not copied.
        order: which of `vectors` is that of the first row, the second, and so on; a permutation.
    """

    def __init__(self, vectors: NDArray[np.floating], order: NDArray[np.intp]) -> None:
        self._vectors = vectors
        self._order = order
        absent = np.flatnonzero(np.isnan(vectors[:, 0])) if vectors.size else np.empty(0, np.intp)
        self._absent = absent
        present = np.delete(np.arange(len(vectors)), absent)
        # Evenly over what was said first and last, which order is by.
        chosen = order[np.isin(order, present)] if len(absent) else order
        #: How many rows have a vector.
        self.present = len(present)
        self._sample = vectors[chosen[:: max(len(chosen) // _SAMPLE, 1)]].astype(np.float32)
        self._sketches: NDArray[np.uint64] | None = None
        if len(vectors) >= SKETCHED_FROM:
            self._rotation = _rotation(vectors.shape[1])
            parts = np.array_split(vectors, len(vectors) // _BLOCK)
            self._sketches = np.concatenate([self._sketch(part.astype(np.float32)) for part in parts])

    @cached_property
    def _row_of(self) -> NDArray[np.intp]:
        rows = np.empty(len(self._order), np.intp)
        rows[self._order] = np.arange(len(rows))
        return rows

    def sample(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how near some rows are, evenly chosen: what is usual."""
        return self._sample @ vector

    def nearness(self, vector: NDArray[np.float32], rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return how near `rows` are to a unit vector (cosine, -1 to 1); NaN where a row has no vector."""
        near: NDArray[np.float32] = self._vectors[self._order[rows]].astype(np.float32, copy=False) @ vector
        return near

    def nearest(
        self, vector: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None = None
    ) -> NDArray[np.intp]:
        """Return `count` rows that are nearest to a unit vector, of those that are `allowed` if so many are."""
        if count >= len(self._order):
            return np.arange(len(self._order))
        far: NDArray[np.generic]
        if self._sketches is None:
            far = -(self._vectors.astype(np.float32, copy=False) @ vector)
            worst: float = 2.0
        else:
            differing = np.bitwise_count(self._sketches ^ self._sketch(vector[None]))
            far = differing.sum(axis=1, dtype=np.uint16)
            worst = np.iinfo(np.uint16).max
        far[self._absent] = worst
        if allowed is not None:
            far[self._order[~allowed]] = worst
        return self._row_of[np.argpartition(far, count)[:count]]

    def _sketch(self, vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
        bits = np.packbits(np.nan_to_num(vectors @ self._rotation) > 0, axis=1)
        return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)


def _rotation(dimension: int) -> NDArray[np.float32]:
    """Return a random rotation, the same every time, at least 512 bits wide so that few numbers still tell enough."""
    random = np.random.default_rng(_SEED)
    blocks = max(-(-512 // dimension), 1)
    parts = [np.linalg.qr(random.standard_normal((dimension, dimension)))[0] for _ in range(blocks)]
    return np.concatenate(parts, axis=1)[:, : max(512, dimension)].astype(np.float32)

"""Nearness of many rows to one vector: exact for few rows, with a sketch first for many.

A sketch keeps the sign of each number, 1 bit instead of 32, after a random rotation that spreads a vector's information
evenly. The share of differing signs grows with the angle (random hyperplanes, Charikar 2002). The nearest rows by
sketch are then compared number by number; numbers are stored in 8 bits, which changes a cosine by about 10⁻³.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

#: From this many vectors on, they are sketched and stored in 8 bits a number.
SKETCHED_FROM: Final = 20_000
#: Number of vectors from which the usual nearness is estimated.
_SAMPLE: Final = 1_000
#: Number of vectors that are processed at a time, to fit the processor's cache.
_BLOCK: Final = 8_192
_SEED: Final = 20240115
#: Names of the arrays of :func:`_sparse`.
_SPARSE: Final = ("shape", "counts", "places", "values")


class VectorSketch:
    """Unit vectors of rows: row `i` has `vectors[order[i]]`.

    `vectors` has the shape (rows, dimension), with NaN for a row without a vector. `present` counts the others.
    """

    def __init__(self, vectors: NDArray[np.floating], order: NDArray[np.intp]) -> None:
        absent = np.isnan(vectors[order, 0]) if vectors.size else np.zeros(len(vectors), np.bool_)
        self._absent = np.flatnonzero(absent)
        present = np.flatnonzero(~absent)
        self.present = len(present)
        # Rows are in the order of talks, so a sample of every n-th row covers all times.
        self._sample = present[:: max(len(present) // _SAMPLE, 1)]
        self._exact: NDArray[np.float32] | None = None
        self._last: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if len(vectors) < SKETCHED_FROM:
            self._exact = vectors[order].astype(np.float32, copy=False)
            return
        dimension = vectors.shape[1]
        self._numbers = np.empty((len(vectors), dimension), np.int8)
        #: Value of one unit of each row's numbers; NaN for a row without a vector.
        self._scale = np.empty(len(vectors), np.float32)
        self._rotation = _rotation(dimension)
        self._sketches = np.empty((self._rotation.shape[1] // 64, len(vectors)), np.uint64)
        for start in range(0, len(vectors), _BLOCK):
            rows = slice(start, start + _BLOCK)
            part = vectors[order[rows]].astype(np.float32)
            scale = np.maximum(np.abs(part).max(axis=1), 1e-9) / 127
            self._scale[rows] = scale
            part[np.isnan(scale)] = 0
            self._sketches[:, rows] = self._sketch(part).T
            part /= np.where(np.isnan(scale), 1, scale)[:, None]
            self._numbers[rows] = np.rint(part, out=part)

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]]) -> VectorSketch:
        """Return a sketch with the arrays that :meth:`arrays` returned."""
        sketch, others = cls.__new__(cls), {**arrays}
        sparse = [others.pop(name) for name in _SPARSE if name in others]
        vars(sketch).update({"_exact": _dense(*sparse) if sparse else None, "_last": None}, **others)
        sketch.present = int(arrays["present"][0])
        return sketch

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that it consists of."""
        found = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        if self._exact is not None and (sparse := _sparse(self._exact)):
            del found["_exact"]
            found |= dict(zip(_SPARSE, sparse, strict=True))
        return found | {"present": np.array([self.present])}

    def sample(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the nearness of a sample of rows, an estimate of the usual nearness."""
        return self.nearness(vector, self._sample)

    def nearness(self, vector: NDArray[np.float32], rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the cosine (-1 to 1) of `rows` and a unit vector; NaN for a row without a vector."""
        near: NDArray[np.float32]
        if self._exact is not None:
            near = self._nearness(self._exact, vector)[rows]
            return near
        near = np.vecdot(self._numbers[rows].astype(np.float32), vector) * self._scale[rows]
        return near

    def nearest(
        self, vector: NDArray[np.float32], count: int, allowed: NDArray[np.bool_] | None = None
    ) -> NDArray[np.intp]:
        """Return the `count` rows nearest to a unit vector, among `allowed` ones if there are enough."""
        far: NDArray[np.generic]
        if self._exact is not None:
            far, worst = -self._nearness(self._exact, vector), 2.0
        else:
            far, worst = self._differing(vector), np.iinfo(np.uint16).max
        if count >= len(far):
            return np.arange(len(far))
        far[self._absent] = worst
        if allowed is not None:
            far[~allowed] = worst
        if self._exact is not None:
            return np.argpartition(far, count)[:count]
        # Counting is faster than partitioning if there are few distinct numbers.
        last = int(np.searchsorted(np.cumsum(np.bincount(far)), count))
        nearer = np.flatnonzero(far < last)
        return np.concatenate([nearer, np.flatnonzero(far == last)[: count - len(nearer)]])

    def _nearness(self, exact: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosines of all rows; cached, since one question needs them several times."""
        last = self._last
        if last is None or last[0] is not vector:
            # BLAS would split this among threads and, on a busy machine, wait for them longer than the product takes.
            self._last = last = vector, np.vecdot(exact, vector)
        return last[1]

    def _differing(self, vector: NDArray[np.float32]) -> NDArray[np.uint16]:
        """Return for each row the number of bits in which its sketch and a vector's differ."""
        sketch = self._sketch(vector[None])[0]
        differing = np.empty(self._sketches.shape[1], np.uint16)
        for start in range(0, len(differing), _BLOCK):
            rows = slice(start, start + _BLOCK)
            counts = np.bitwise_count(self._sketches[:, rows] ^ sketch[:, None])
            differing[rows] = counts.sum(axis=0, dtype=np.uint16)
        return differing

    def _sketch(self, vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
        return np.packbits(vectors @ self._rotation > 0, axis=1).view(np.uint64)


def _rotation(dimension: int) -> NDArray[np.float32]:
    """Return a constant random rotation, at least 384 bits wide so that short vectors are still distinguished."""
    random = np.random.default_rng(_SEED)
    width = max(384, -(-dimension // 64) * 64)
    blocks = -(-width // dimension)
    parts = [np.linalg.qr(random.standard_normal((dimension, dimension)))[0] for _ in range(blocks)]
    return np.concatenate(parts, axis=1)[:, :width].astype(np.float32)


def _sparse(vectors: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """Return the numbers other than 0 with their places, of 16 bits; nothing if that takes more memory.

    The built-in embedder gives a short text few numbers.
    """
    rows, places = np.nonzero(vectors)
    if len(rows) * 6 >= vectors.nbytes or vectors.shape[1] > np.iinfo(np.uint16).max:
        return ()
    counts = np.bincount(rows, minlength=len(vectors)).astype(np.uint16)
    return np.array(vectors.shape), counts, places.astype(np.uint16), vectors[rows, places]


def _dense(
    shape: NDArray[np.intp], counts: NDArray[np.uint16], places: NDArray[np.uint16], values: NDArray[np.float32]
) -> NDArray[np.float32]:
    vectors = np.zeros(shape, np.float32)
    vectors[np.repeat(np.arange(len(counts)), counts), places] = values
    return vectors

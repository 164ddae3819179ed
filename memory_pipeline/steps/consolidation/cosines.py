"""Find similar durable memories: cosines of their vectors, computed in blocks with NumPy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.domain.model_calls import Use
from memory_pipeline.steps.embed import embedded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope

#: Cosines computed at a time: 32 MB.
_BLOCK = 8_000_000
#: Error bound of the first, rough cosine. Pairs within it of the threshold are computed again exactly.
_SLACK = 1e-4
_TINY = np.float32(1e-30)
#: Decimal digits of a cosine; the rest is noise.
_DIGITS = 6
#: Maximum number of neighbours per memory. Ten thousand texts from one template would give fifty million pairs.
NEAREST = 100


class CosineMatrix:
    """The vectors of contents by one embedder, each computed once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self._missing: set[str] = set()

    def learn(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Add existing vectors, by content."""
        self._known |= vectors

    def prepare(self, contents: Iterable[tuple[str, Scope]], day: Period) -> None:
        """Embed the unknown contents of many agents in one request, accounted to `day`."""
        unknown: dict[str, Use] = {}
        for content, scope in contents:
            if content not in self._known and content not in self._missing:
                unknown.setdefault(content, Use(scope, day))
        found = embedded(unknown, self._embedder)
        self._known |= found
        self._missing |= unknown.keys() - found.keys()

    def missing_of(self, contents: Iterable[str]) -> int:
        """Return the number of contents that could not be embedded."""
        return sum(content in self._missing for content in contents) if self._missing else 0

    def similar(
        self,
        changed: Sequence[DurableMemory],
        others: Sequence[DurableMemory],
        least: float,
        *,
        scope: Scope,
        day: Period,
    ) -> list[tuple[str, str, float]]:
        """Return pairs with a cosine of at least `least`; see :class:`~memory_pipeline.domain.memories.draft.Similar`.

        Each of `changed` has at most :data:`NEAREST` neighbours; memories without a vector have none.
        """
        self.prepare(((memory.content, scope) for memory in (*changed, *others)), day)
        rows, left = self._matrix(changed)
        columns, right = self._matrix(others)
        if not rows or not columns:
            return []
        both = {memory.id for memory in rows}
        column_of = {memory.id: place for place, memory in enumerate(columns)}
        pairs: list[tuple[int, int]] = []
        size = max(1, _BLOCK // len(columns))
        for start in range(0, len(rows), size):
            cosines = left[start : start + size] @ right.T
            for place in range(len(cosines)):
                memory_id = rows[start + place].id
                if memory_id in column_of:
                    cosines[place, column_of[memory_id]] = -1.0
            near: defaultdict[int, list[int]] = defaultdict(list)
            for place, column in zip(*(found.tolist() for found in np.nonzero(cosines >= least - _SLACK)), strict=True):
                near[place].append(column)
            for place, found in near.items():
                if len(found) > NEAREST:
                    order = np.argsort(-np.round(cosines[place, found], 4), kind="stable")[:NEAREST]
                    found = [found[at] for at in order.tolist()]  # noqa: PLW2901
                pairs += [(start + place, column) for column in found]
        return self._exact(pairs, rows, columns, both, left, right, least)

    @staticmethod
    def _exact(
        pairs: Sequence[tuple[int, int]],
        rows: Sequence[DurableMemory],
        columns: Sequence[DurableMemory],
        both: set[str],
        left: NDArray[np.float32],
        right: NDArray[np.float32],
        least: float,
    ) -> list[tuple[str, str, float]]:
        """Compute cosines pair by pair, so that they do not depend on the other rows of a block."""
        found: dict[tuple[str, str], float] = {}
        for start in range(0, len(pairs), 10_000):
            part = np.array(pairs[start : start + 10_000])
            one, other = left[part[:, 0]].astype(np.float64), right[part[:, 1]].astype(np.float64)
            lengths = np.sqrt(np.einsum("ij,ij->i", one, one) * np.einsum("ij,ij->i", other, other))
            cosines = np.round(np.einsum("ij,ij->i", one, other) / lengths, _DIGITS)
            for (row, column), cosine in zip(part.tolist(), cosines.tolist(), strict=True):
                ids = rows[row].id, columns[column].id
                if cosine >= least and not (ids[1] in both and ids[::-1] in found):
                    found[ids] = cosine
        return [(one, other, cosine) for (one, other), cosine in found.items()]

    def _matrix(self, memories: Sequence[DurableMemory]) -> tuple[list[DurableMemory], NDArray[np.float32]]:
        """Return the memories that have vectors, sorted by id, and their unit vectors."""
        with_vectors = sorted((each for each in memories if each.content in self._known), key=lambda each: each.id)
        if not with_vectors:
            return [], np.empty((0, self._embedder.dimension), np.float32)
        matrix = np.stack([self._known[each.content] for each in with_vectors])
        # Some embedders do not return unit vectors.
        return with_vectors, matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), _TINY)

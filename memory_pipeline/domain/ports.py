"""The ports by which text becomes vectors. Adapters live in :mod:`memory_pipeline.models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns texts into vectors that are near each other when the texts are alike."""

    @property
    def name(self) -> str:
        """Name and version; stands in every row's `embed_model`."""
        ...

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32, none of them zero.

        Pure: a text's vector does not depend on the others in the batch.
        """
        ...

"""The ports by which text becomes vectors. Adapters live in :mod:`memory_pipeline.models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.calls import Use


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

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32, none of them zero.

        A text's vector does not depend on the others in the batch. Where a model failed, the row is NaN, and the log
        says why.

        Args:
            texts: what to embed.
            uses: for each text whose it is and for which partition, so that its cost can be told; none for a query.
        """
        ...

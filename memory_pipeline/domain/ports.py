"""The ports by which text becomes vectors, and by which models help to read memory and to keep it in order.

Adapters live in :mod:`memory_pipeline.models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.model_calls import Use


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


class EntityFinder(Protocol):
    """Finds what a prompt asks about."""

    def find(self, prompt: str) -> list[str]:
        """Return the names of people, places and things that a prompt asks about, at most 20, each once.

        They are as the prompt has them, and need not be known to anybody's memory.

        Raises:
            ModelError: the model did not help.
        """
        ...


class Reranker(Protocol):
    """Puts into order what was found for a prompt."""

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        """Return the places of `texts`, counted from 0, the most useful first.

        Each place is in it once, whatever the model said: what it left out comes last, in the order in which it was.

        Args:
            prompt: what the texts are to be of use for.
            texts: what was found, best first.

        Raises:
            ModelError: the model did not help.
        """
        ...


class MemorySelector(Protocol):
    """Chooses durable memories by their headers, before what they say is read."""

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        """Return the places of `headers` that are of use for a query, counted from 0, the most useful first.

        Each place is in it once at most; what the model invented is left out. There may be none.

        Args:
            query: what is asked.
            headers: a line of each memory, best first.
            most: how many at most.

        Raises:
            ModelError: the model did not help.
        """
        ...


class Imaginer(Protocol):
    """Imagines what an agent should know for a conversation, though nobody asks for it."""

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        """Return queries to look for in memory, each once, at most so many.

        Args:
            messages: the last ones of a conversation, oldest first, each beginning with who says it.
            most: how many at most.

        Raises:
            ModelError: the model did not help.
        """
        ...

"""Ports of the embedder and of the models that help to read memory. Adapters: :mod:`memory_pipeline.models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.model_calls import Use


class Embedder(Protocol):
    """Turns texts into vectors; similar texts have similar vectors."""

    @property
    def name(self) -> str:
        """Name and version, as stored in `embed_model` of every row."""
        ...

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        ...

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), float32, never zero.

        A vector does not depend on the other texts of the batch. If the model fails, the row is NaN and the log has the
        reason. `uses` has the agent and partition of each text, to account for the cost; it is empty for a query.
        """
        ...


class EntityFinder(Protocol):
    """Finds the entities that a prompt asks about."""

    def find(self, prompt: str) -> list[str]:
        """Return up to 20 unique names of people, places and things that a prompt asks about.

        They are spelt as in the prompt, and may be unknown to memory.

        Raises:
            ModelError: the call of the model failed.
        """
        ...


class Reranker(Protocol):
    """Reorders the results for a prompt."""

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        """Return the indices of `texts`, the most useful for the prompt first.

        `texts` are the results, best first. Each index is returned once. Indices that the model left out are last, in
        the original order.

        Raises:
            ModelError: the call of the model failed.
        """
        ...


class MemorySelector(Protocol):
    """Selects durable memories by their headers, before their contents are read."""

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        """Return the indices of at most `most` headers that are useful for a query, the most useful first.

        `headers` have one line per memory, best first. The result is unique and valid, and may be empty.

        Raises:
            ModelError: the call of the model failed.
        """
        ...


class Imaginer(Protocol):
    """Generates the queries of proactive recall."""

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        """Return at most `most` unique queries for memory that could help with a conversation.

        `messages` are the last ones, oldest first, each starting with the speaker.

        Raises:
            ModelError: the call of the model failed.
        """
        ...

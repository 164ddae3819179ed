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
        reason.

        Args:
            texts: the texts.
            uses: agent and partition of each text, to account for the cost; empty for a query.
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
        """Return the indices of `texts`, the most useful first.

        Each index is returned once. Indices that the model left out come last, in the original order.

        Args:
            prompt: the prompt that the texts should help with.
            texts: the search results, best first.

        Raises:
            ModelError: the call of the model failed.
        """
        ...


class MemorySelector(Protocol):
    """Selects durable memories by their headers, before their contents are read."""

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        """Return the indices of the headers that are useful for a query, the most useful first.

        Indices are unique; invalid ones of the model are dropped. The result may be empty.

        Args:
            query: the query.
            headers: one line per memory, best first.
            most: maximum number of results.

        Raises:
            ModelError: the call of the model failed.
        """
        ...


class Imaginer(Protocol):
    """Generates the queries of proactive recall."""

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        """Return unique queries for memory that could help with a conversation.

        Args:
            messages: the last messages, oldest first, each starting with the speaker.
            most: maximum number of queries.

        Raises:
            ModelError: the call of the model failed.
        """
        ...

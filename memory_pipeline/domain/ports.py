"""The ports by which text becomes vectors, and by which models help to read memory and to keep it in order.

Adapters live in :mod:`memory_pipeline.models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.durable.memory import Memory
    from memory_pipeline.domain.model_calls import Use
    from memory_pipeline.domain.periods import Period


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


class Similar(Protocol):
    """Finds durable memories whose contents have near vectors."""

    def __call__(
        self, changed: Sequence[Memory], others: Sequence[Memory], least: float
    ) -> Sequence[tuple[str, str, float]]:
        """Return pairs whose cosine is at least `least`: id of one of `changed`, id of one of `others`, the cosine.

        What comes out depends on the contents alone, also on those that were written a moment ago and whose vectors
        nobody has stored. Pairs of a memory with itself, and pairs both ways round, do no harm.

        Args:
            changed: what is to be compared.
            others: with what; holds `changed` too.
            least: the smallest cosine, of 0 to 1.
        """
        ...


class Curator(Protocol):
    """Helps the nightly upkeep of durable memories where it takes an understanding of what they say."""

    def name(self, scope: Scope) -> str:
        """Return name and version of what helps an agent's upkeep, as reasons tell it to people."""
        ...

    def confirms(self, scope: Scope) -> bool:
        """Tell whether a model looks at what may be stale.

        If not, only observations and snapshots are ever shown to :meth:`stale`, and all of them are.
        """
        ...

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return one content that says all that two contents say which mean the same.

        Args:
            scope: whose memory.
            newer: the one that counts where they differ.
            older: the other.
            day: the day after which it is done.

        Raises:
            ModelError: the model did not help.
        """
        ...

    def stale(self, scope: Scope, memories: Sequence[Memory], at: datetime, day: Period) -> Mapping[str, str]:
        """Return the ids of those memories that are stale, each with the reason in words.

        Args:
            scope: whose memories.
            memories: what nobody has said for long.
            at: the end of the day, UTC.
            day: the day after which it is done.

        Raises:
            ModelError: the model did not help.
        """
        ...

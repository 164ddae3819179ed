"""The facts of a memory: store, look up, correct and forget them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from memory_pipeline.client.opened import OpenedMemory
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import When


class FactStore:
    """The durable memories of the kind ``fact``. Take it from :attr:`Memory.facts`.

    Facts with a subject, a predicate and an object that were said in conversations are in :attr:`Memory.graph`.
    """

    def __init__(self, memory: OpenedMemory) -> None:
        self._memory = memory

    def store(self, text: str, *, subject: str | None = None, confidence: float = 1.0, now: When | None = None) -> str:
        """Store a fact; return its id. See :meth:`MemoryWriter.remember`.

        Raises:
            InputError: an argument is invalid. Nothing was written.
        """
        return self._memory.writer.remember(text, MemoryKind.FACT, subject=subject, confidence=confidence, now=now)

    def facts_about(self, subject: str, limit: int = 100) -> list[DurableMemory]:
        """Return the facts about a subject, in any case, newest first.

        The user's own name means the user too, unless another person has it.

        Raises:
            InputError: an argument is invalid.
        """
        return self._memory.reader.memories.about(subject, kind=MemoryKind.FACT, limit=limit)

    def update_confidence(self, id: str, confidence: float, *, now: When | None = None) -> None:  # noqa: A002  # as in forget
        """Set how certain a fact is, 0 to 1.

        Raises:
            InputError: `confidence` is not from 0 to 1, or there is no such fact.
        """
        self._memory.writer.update(id, confidence=confidence, now=now)

    def forget(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,  # noqa: A002  # the term's own name
        tag: str | None = None,
        now: When | None = None,
    ) -> int:
        """Revoke the facts that match all conditions; return their number. They stay in the history.

        Raises:
            InputError: no condition is given.
        """
        if subject is predicate is object is tag is None:
            raise InputError("forget takes at least one of subject, predicate, object and tag")
        return self._memory.writer.forget(
            kind=MemoryKind.FACT, subject=subject, predicate=predicate, object=object, tag=tag, now=now
        )

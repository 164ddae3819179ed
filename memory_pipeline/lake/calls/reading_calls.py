"""Calls of models that readers make."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from memory_pipeline.errors import ConfigurationError, LakeError
from memory_pipeline.lake.calls.call_store import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from memory_pipeline.domain.model_calls import Answer, Call
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.tables.tables import Tables

#: Errors of a disk or bucket that this process may not, or cannot, write to.
_UNWRITABLE = (OSError, LakeError, ConfigurationError)


class ReadingCalls(Calls):
    """Stores the calls of readers, but not their answers.

    A reader may lack write access, and never creates a lake. So calls that cannot be written, and those before the lake
    `exists`, count in this process alone.
    """

    def __init__(self, storage: Storage, tables: Tables, exists: Callable[[], bool]) -> None:
        super().__init__(storage, tables)
        self._exists = exists

    def keep(self, calls: Sequence[Call], answer: Answer | None = None) -> None:
        """Store requests of one question, or count them in this process. The answer is not stored."""
        del answer
        with suppress(*_UNWRITABLE):
            if self._exists():
                super().keep(calls)
                return
        self._count(None, calls)

    def claim(self, key: str, lease: timedelta) -> bool:
        """Claim a key; True where claims cannot be written."""
        with suppress(*_UNWRITABLE):
            if self._exists():
                return super().claim(key, lease)
        return True

    def release(self, key: str) -> None:
        """Release a claim."""
        with suppress(*_UNWRITABLE):
            super().release(key)

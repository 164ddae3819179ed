"""The storage of CrewAI's memory.

::

    storage = MemoryStorage(Memory("./my-lake", user_id="anna"))
    crew = Crew(agents=[…], tasks=[…], memory=crewai.Memory(storage=storage))

A record is an entry of a context (:attr:`memory_pipeline.Memory.contexts`), whose key is the id of the record. So it
has a history, searches of memory find it, and an erasure of the user reaches it. CrewAI makes the vectors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_pipeline.adapters.crewai_records import CrewRecords, path_of, unit
from memory_pipeline.errors import require

require("crewai", "crewai.memory")

from crewai.memory.types import ScopeInfo  # noqa: E402

if TYPE_CHECKING:
    from datetime import datetime

    from crewai.memory.types import MemoryRecord

    from memory_pipeline import Memory


class MemoryStorage:
    """A ``StorageBackend`` of CrewAI on the memory of one user or agent.

    A record has at most 20,000 characters as JSON with its vector, which takes 8,192 of them for 3,072 numbers. What
    records say counts as said by the assistant. Of several filters, all must fit.

    Args:
        memory: whose memory it is. Each user has records of their own.
        context: the name of the context with the records.
    """

    def __init__(self, memory: Memory, context: str = "crewai") -> None:
        self._records = CrewRecords(memory, context)

    def save(self, records: list[MemoryRecord]) -> None:
        """Save records with one write. A record replaces the one with the same id."""
        self._records.save(records)

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """Return the records whose vectors are most similar, with the cosine, best first."""
        query = unit(query_embedding)
        found: list[tuple[MemoryRecord, float]] = []
        for record in self._records.fitting(scope_prefix, categories, metadata_filter):
            # Records of another embedder have vectors of another length, and cannot be compared.
            if record.embedding and len(record.embedding) == len(query):
                score = float(np.asarray(record.embedding) @ query)
                found += [(record, score)] if score >= min_score else []
        return sorted(found, key=lambda one: (-one[1], one[0].id))[: max(0, limit)]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Revoke records, which stay in the history; return their number."""
        found = [
            record.id
            for record in self._records.fitting(scope_prefix, categories, metadata_filter)
            if (not record_ids or record.id in record_ids) and (older_than is None or record.created_at < older_than)
        ]
        self._records.remove(found)
        return len(found)

    def update(self, record: MemoryRecord) -> None:
        """Replace the record with the same id."""
        self.save([record])

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or None."""
        return next((record for record in self._records.fitting() if record.id == record_id), None)

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        """Return records, the newest first."""
        found = self._records.fitting(scope_prefix)
        found.sort(key=lambda record: (record.created_at, record.id), reverse=True)
        return found[max(0, offset) :][: max(0, limit)]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Describe a scope with the scopes below it."""
        found = self._records.fitting(scope)
        times = [record.created_at for record in found]
        return ScopeInfo(
            path=path_of(scope) or "/",
            record_count=len(found),
            categories=sorted({one for record in found for one in record.categories}),
            oldest_record=min(times, default=None),
            newest_record=max(times, default=None),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes directly below a scope, sorted."""
        above = f"{path_of(parent)}/"
        below = {
            path_of(record.scope).removeprefix(above).split("/")[0]
            for record in self._records.fitting(parent)
            if path_of(record.scope).startswith(above)
        }
        return sorted(f"{above}{name}" for name in below)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return how many records have each category."""
        return dict(Counter(one for record in self._records.fitting(scope_prefix) for one in record.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """Return the number of records."""
        return len(self._records.fitting(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Revoke all records of a scope."""
        self.delete(scope_prefix)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """Run :meth:`save` in a thread."""
        await asyncio.to_thread(self.save, records)

    async def asearch(self, *args: Any, **options: Any) -> list[tuple[MemoryRecord, float]]:
        """Run :meth:`search` in a thread."""
        return await asyncio.to_thread(self.search, *args, **options)

    async def adelete(self, *args: Any, **options: Any) -> int:
        """Run :meth:`delete` in a thread."""
        return await asyncio.to_thread(self.delete, *args, **options)

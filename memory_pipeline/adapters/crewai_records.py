"""Records of CrewAI as entries of a context."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory_pipeline.adapters.entries import ContextEntries
from memory_pipeline.errors import require

require("crewai", "crewai.memory")

from crewai.memory.types import MemoryRecord  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_pipeline import Memory

#: The field of an entry's value that has the vector, in half precision.
_VECTOR: Final = "vector"


class CrewRecords:
    """The records of one user or agent."""

    def __init__(self, memory: Memory, context: str) -> None:
        self._entries = ContextEntries(memory, context, "crewai")

    def save(self, records: Iterable[MemoryRecord]) -> None:
        """Save records with one write."""
        self._entries.change({record.id: (record.content, _value(record)) for record in records})

    def remove(self, ids: Iterable[str]) -> None:
        """Revoke records with one write."""
        self._entries.change({}, ids)

    def fitting(
        self,
        scope: str | None = None,
        categories: Collection[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[MemoryRecord]:
        """Return the records of a scope and those below it that have one of the categories, and the metadata."""
        found = [_record(value) for value in self._entries.values().values()]
        return [
            record
            for record in found
            if f"{path_of(record.scope)}/".startswith(f"{path_of(scope or '')}/")
            and (not categories or not set(categories).isdisjoint(record.categories))
            and all(record.metadata.get(name) == value for name, value in (metadata or {}).items())
        ]


def unit(vector: Iterable[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a vector of length 1, or zeros."""
    array = np.asarray(vector, np.float64)
    return array / (np.linalg.norm(array) or 1.0)


def path_of(scope: str) -> str:
    """Return a scope with a slash before each name; nothing for the root."""
    return "".join(f"/{name}" for name in scope.split("/") if name)


def _value(record: MemoryRecord) -> dict[str, Any]:
    value: dict[str, Any] = record.model_dump(mode="json")
    if record.embedding:
        value[_VECTOR] = b64encode(unit(record.embedding).astype("<f2").tobytes()).decode()
    return value


def _record(value: dict[str, Any]) -> MemoryRecord:
    vector = value.pop(_VECTOR, None)
    record = MemoryRecord.model_validate(value)
    if vector is not None:
        record.embedding = np.frombuffer(b64decode(vector), "<f2").astype(float).tolist()
    return record

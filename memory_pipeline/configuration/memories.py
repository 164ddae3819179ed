"""What is set for durable memories: which an agent may keep, and what puts them in order and finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_serializer, field_validator

from memory_pipeline.configuration.checks import described
from memory_pipeline.configuration.endpoints import Record
from memory_pipeline.domain.memories.consolidation import UpkeepSettings
from memory_pipeline.domain.memories.record import MemoryKind

_ALL = frozenset(MemoryKind)
_KINDS_FORM = f"a list of kinds, or null for all of them: {', '.join(MemoryKind)}"


class MemoriesSettings(Record):
    """How an agent's durable memories are kept.

    Attributes:
        kinds: those that the agent may keep.
        point_in_time: whether all that it is told says how things stand at one moment.
        hot_entries, hot_tokens: what the hot index may hold, and how long it may be.
        upkeep: what merges memories and says which are stale: rules, or the model of `completion`.
        selection: what chooses among the headers of memories: rules, or the model of `injection`.
        imagining: what thinks of queries that nobody asked: rules, or that model.
    """

    kinds: Annotated[frozenset[MemoryKind], Field(description=_KINDS_FORM)] = _ALL
    point_in_time: bool = False
    hot_entries: Annotated[int, Field(ge=0, le=500)] = 20
    hot_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 3_000
    upkeep: Literal["rules", "model"] = "rules"
    selection: Literal["rules", "model"] = "rules"
    imagining: Literal["rules", "model"] = "rules"

    @field_validator("kinds", mode="before")
    @classmethod
    def _read_kinds(cls, value: object) -> object:
        if value is None or isinstance(value, frozenset):
            return _ALL if value is None else value
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            seen = "an empty list" if isinstance(value, Sequence) and not value else described(value)
            raise ValueError(f"{seen} is not accepted; expected {_KINDS_FORM}")
        for kind in value:
            if not isinstance(kind, str) or kind not in _ALL:
                raise ValueError(f"{described(kind)} is not accepted; expected {_KINDS_FORM}")
        return frozenset(map(MemoryKind, value))

    @field_serializer("kinds")
    def _write_kinds(self, kinds: frozenset[MemoryKind]) -> list[str]:
        return [kind.value for kind in MemoryKind if kind in kinds]

    @property
    def for_reading(self) -> tuple[str, ...]:
        """The keys that ask for the model of `injection`."""
        return tuple(name for name in ("selection", "imagining") if getattr(self, name) == "model")

    @property
    def upkeep_settings(self) -> UpkeepSettings:
        """What the nightly upkeep goes by."""
        return UpkeepSettings(hot_entries=self.hot_entries, hot_tokens=self.hot_tokens, kinds=self.kinds)

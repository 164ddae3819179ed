"""Upkeep of durable memories by rules: contents are joined sentence by sentence, and age alone makes stale."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.decay import days_between
from memory_pipeline.domain.memories.deduplication import union

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.record import Memory
    from memory_pipeline.domain.periods import Period


class RuleCurator:
    """Helps the upkeep without a model; a :class:`memory_pipeline.domain.memories.draft.Curator`."""

    def name(self, scope: Scope) -> str:
        """Return name and version."""
        del scope
        return "rules-1"

    def confirms(self, scope: Scope) -> bool:
        """Tell that no model looks at what may be stale."""
        del scope
        return False

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return the newer content, and after it those sentences of the older one that it does not have."""
        del scope, day
        return union(newer, older)

    def stale(self, scope: Scope, memories: Sequence[Memory], at: datetime, day: Period) -> dict[str, str]:
        """Return all of them: what is shown to it is old, and was never sure to last."""
        del scope, day
        return {memory.id: _reason(memory, at) for memory in memories}


def _reason(memory: Memory, at: datetime) -> str:
    what = "a snapshot of one moment" if memory.is_point_in_time else f"{memory.kind} that nobody confirmed"
    return f"{what}, last heard {floor(days_between(memory.updated_at, at)):,} days ago"

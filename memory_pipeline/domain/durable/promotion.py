"""Pass 1: what several conversations have said is no longer an observation, but a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.memory import MemoryKind

if TYPE_CHECKING:
    from memory_pipeline.domain.durable.night import Draft, UpkeepSettings


def promote(draft: Draft, settings: UpkeepSettings) -> None:
    """Make facts of observations that enough conversations repeat; each stays the same memory."""
    if settings.kinds is not None and MemoryKind.FACT not in settings.kinds:
        return
    enough = 1 + settings.promote_after
    found = [
        memory
        for memory in draft.memories.newest.values()
        if memory.kind is MemoryKind.OBSERVATION and memory.is_active and len(memory.conversation_ids) >= enough
    ]
    for memory in sorted(found, key=lambda memory: memory.id):
        reason = f"it was said in {len(memory.conversation_ids)} conversations: an observation becomes a fact"
        draft.act(MemoryVerb.PROMOTE, memory, reason)

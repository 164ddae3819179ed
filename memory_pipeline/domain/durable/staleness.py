"""Pass 4: what nobody has said for long goes cold, and what has faded or is rotten is archived.

A place in the hot index protects from going cold. It protects from fading only what is of ordinary importance at least,
and from rot nothing.
"""

from __future__ import annotations

from datetime import timedelta
from math import floor
from typing import TYPE_CHECKING

from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.memory import IMPORTANCE, MemoryKind, Temperature
from memory_pipeline.domain.durable.scores import ROTTEN, days_between, faded_at, rot_at

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.durable.memory import Memory
    from memory_pipeline.domain.durable.night import Draft, UpkeepSettings
    from memory_pipeline.domain.ports import Curator


def cool(draft: Draft, settings: UpkeepSettings, curator: Curator) -> None:
    """Archive what has faded or is rotten; of the rest, cool what is stale.

    What the curator looks at and does not find stale is not shown to it again before as many days are over.

    Raises:
        ModelError: the curator's model did not help.
    """
    confirms = curator.confirms(draft.scope)
    aged = [memory for memory in draft.memories.newest.values() if acts(memory, draft.at, settings, confirms=confirms)]
    candidates: list[Memory] = []
    for memory in sorted(aged, key=lambda memory: memory.id):
        reason = _why_archive(memory, draft.at, settings)
        if reason is None:
            candidates.append(memory)
        else:
            draft.act(MemoryVerb.ARCHIVE, memory, reason)
    if not candidates:
        return
    found = curator.stale(draft.scope, candidates, draft.at, draft.day)
    for memory in candidates:
        if memory.id in found:
            draft.act(MemoryVerb.COOL, memory, found[memory.id])
        else:
            draft.act(MemoryVerb.KEEP, memory, f"{curator.name(draft.scope)} does not find it stale")


def acts(memory: Memory, at: datetime, settings: UpkeepSettings, *, confirms: bool) -> bool:
    """Tell whether the pass would do something about a memory at an instant; once it would, it would ever after."""
    if not memory.is_active or memory.kind.is_standing:
        return False
    return _is_candidate(memory, at, settings, confirms=confirms) or _why_archive(memory, at, settings) is not None


def _is_candidate(memory: Memory, at: datetime, settings: UpkeepSettings, *, confirms: bool) -> bool:
    """Tell whether a memory is old enough to be stale, and of those that may be."""
    if memory.temperature is not Temperature.WARM:
        return False
    if not (confirms or memory.is_point_in_time or memory.kind is MemoryKind.OBSERVATION):
        return False
    seen = memory.updated_at if memory.reviewed_at is None else max(memory.updated_at, memory.reviewed_at)
    days = settings.snapshot_stale_after_days if memory.is_point_in_time else settings.stale_after_days
    return at - seen > timedelta(days=days)


def _why_archive(memory: Memory, at: datetime, settings: UpkeepSettings) -> str | None:
    """Return why a memory is to be archived; None if it is not."""
    rotten = rot_at(memory, at)
    if rotten >= ROTTEN:
        return f"its context rot is {rotten:.4f}, {ROTTEN} or more"
    if memory.temperature is Temperature.HOT and memory.importance >= IMPORTANCE:
        return None  # every prompt shows it, which is a use that nobody notes
    left = faded_at(memory, at)
    age = days_between(memory.updated_at, at)
    if left < settings.archive_below and age > settings.archive_after_days:
        return (
            f"its importance of {memory.importance:g} has faded to {left:.4f}, less than {settings.archive_below:g}; "
            f"it was last heard {floor(age):,} days ago"
        )
    return None

"""Pass 5: the hot index, an agent's table of contents that is always loaded, capped by entries and by tokens.

The order in which memories are chosen does not depend on the time: all fade alike, by 1 % a day since they were last
used, so that a night in which nothing happened changes nothing. What is in the index stays there until something beats
it by a tenth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.decay import KEPT_PER_DAY, days_between
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.record import MAX_HOOK, MemoryKind, Temperature, shortened
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.text.recalled_text import mark_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.memories.draft import Draft, UpkeepSettings
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory

#: How much more a kind counts than a fact, of the kinds that have a place in the index.
WEIGHTS = {kind: kind.weight for kind in MemoryKind if kind.weight is not None}
#: By how much something must be better than what is in the index to take its place.
MARGIN = 0.1

_FADING = math.log(KEPT_PER_DAY)
_BONUS = math.log1p(MARGIN)
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HotEntry:
    """A line of the hot index.

    Attributes:
        id: of the memory.
        kind, title, hook: as the memory has them, each on one line.
        tokens: how many its line has, the end of the line included.
    """

    id: str
    kind: MemoryKind
    title: str
    hook: str
    tokens: int

    @classmethod
    def of(cls, memory: DurableMemory) -> HotEntry:
        """Return the line of a memory."""
        title, hook = " ".join(memory.title.split()), shortened(memory.hook, MAX_HOOK)
        return cls(memory.id, memory.kind, title, hook, count_tokens(f"{_line(title, memory.kind, hook)}\n"))

    def __str__(self) -> str:
        """Return the line, marked as recalled."""
        return _line(self.title, self.kind, self.hook)


def hot_entries(memories: Iterable[DurableMemory]) -> list[HotEntry]:
    """Return the entries of those memories that are hot, in an order that does not change from night to night.

    What holds until it is revoked comes first, then the rest; in each, the oldest first.
    """
    hot = [memory for memory in memories if memory.is_active and memory.temperature is Temperature.HOT]
    hot.sort(key=lambda memory: (-WEIGHTS.get(memory.kind, 0.0), memory.created_at, memory.id))
    return [HotEntry.of(memory) for memory in hot]


def hot_lines(memories: Iterable[DurableMemory]) -> list[str]:
    """Return the lines of the hot index: ``⁍ Anna (fact): She lives in Porto.``, without titles that hooks tell."""
    return [str(entry) for entry in hot_entries(memories)]


def choose_hot(memories: Memories, settings: UpkeepSettings) -> list[DurableMemory]:
    """Return the memories that belong into the hot index, best first; within both caps.

    One whose line is too long for what is left is passed over for the next ones that fit. Chosen again from what was
    chosen, the same come out. The time does not matter: see this module.
    """
    eligible = [memory for memory in memories.newest.values() if is_eligible(memory, settings)]
    eligible.sort(key=lambda memory: (-_score(memory), memory.id))
    chosen: list[DurableMemory] = []
    left = settings.hot_tokens
    for memory in eligible:
        if len(chosen) == settings.hot_entries or left <= 0:
            break
        tokens = HotEntry.of(memory).tokens
        if tokens <= left:
            chosen.append(memory)
            left -= tokens
    return chosen


def is_eligible(memory: DurableMemory, settings: UpkeepSettings) -> bool:
    """Tell whether a memory may be in the hot index: it is recalled, lasts for longer than a moment, and matters.

    What would be archived for its importance as soon as it is old enough does not matter.
    """
    matters = memory.importance > 0 if memory.kind.is_permanent else memory.importance >= settings.archive_below
    return matters and memory.is_recalled and not memory.is_point_in_time and memory.kind in WEIGHTS


def heat(draft: Draft, settings: UpkeepSettings) -> None:
    """Bring the temperatures level with what belongs into the hot index."""
    chosen = {memory.id: memory for memory in choose_hot(draft.memories, settings)}
    hot = [memory for memory in draft.memories.newest.values() if memory.temperature is Temperature.HOT]
    for memory in sorted(hot, key=lambda memory: memory.id):
        if memory.id not in chosen:
            lost = "others matter more" if is_eligible(memory, settings) else "what it is now does not belong there"
            draft.act(MemoryVerb.CHILL, memory, f"it leaves the hot index: {lost}")
    for memory in sorted(chosen.values(), key=lambda memory: memory.id):
        if memory.temperature is not Temperature.HOT:
            figures = (
                f"{memory.kind}, importance {memory.importance:g}, confidence {memory.confidence:g}, "
                f"last used {memory.last_used_at:%Y-%m-%d}"
            )
            draft.act(MemoryVerb.HEAT, memory, f"it is among what matters most ({figures})")


def _score(memory: DurableMemory) -> float:
    """Return the logarithm of kind × importance × confidence × 0.99^days, with the bonus of what is in the index.

    Days are counted from a fixed one instead of to the present: that is the same order, on any day.
    """
    base = WEIGHTS[memory.kind] * memory.importance * memory.confidence
    if base <= 0.0:
        return -math.inf
    bonus = _BONUS if memory.temperature is Temperature.HOT else 0.0
    return math.log(base) + bonus - _FADING * days_between(_SOME_DAY, memory.last_used_at)


def _line(title: str, kind: MemoryKind, hook: str) -> str:
    # A title that was made of the same words as the hook would only say them twice.
    said = f"{hook} ({kind})" if title.removesuffix("…").rstrip() in hook else f"{title} ({kind}): {hook}"
    return mark_lines(said)

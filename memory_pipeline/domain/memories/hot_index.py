"""Pass 5: the hot index, an agent's table of contents that is always loaded, limited by entries and tokens.

Memories that last come first, then those that fade. Within each, the weight of the predicate or kind
(:mod:`memory_pipeline.domain.memories.permanence`), importance, confidence and the last use decide. The ranking does
not depend on the current time, so a day without events changes nothing. A memory stays in the index until another one
of its group scores 10 % higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.authority import Authority
from memory_pipeline.domain.memories.decay import KEPT_PER_DAY, days_between
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.permanence import lasts, permanence_of
from memory_pipeline.domain.memories.record import MAX_HOOK, MemoryKind, Temperature, shortened
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.text.recalled_text import mark_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.domain.memories.draft import ConsolidationSettings, Draft
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.memories.record import DurableMemory

#: Relative margin by which a memory must beat one in the index to replace it.
MARGIN = 0.1

_FADING = math.log(KEPT_PER_DAY)
#: Share of that pace at which memories that last give way to newer ones that matter as much.
_SLOWLY = 0.1
_BONUS = math.log1p(MARGIN)
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HotEntry:
    """A line of the hot index.

    `title` and `hook` are on one line. `tokens` counts the whole line, including the line break. What neither the user
    nor the operator said is shown with who said it (`said_by`).
    """

    id: str
    kind: MemoryKind
    title: str
    hook: str
    tokens: int
    said_by: Authority = Authority.USER

    @classmethod
    def of(cls, memory: DurableMemory, said_by: Authority | None = None) -> HotEntry:
        """Return the line of a memory; `said_by` is who said it to the reader."""
        title, hook = " ".join(memory.title.split()), shortened(memory.hook, MAX_HOOK)
        entry = cls(memory.id, memory.kind, title, hook, 0, said_by or memory.said_by)
        return replace(entry, tokens=count_tokens(f"{entry}\n"))

    def __str__(self) -> str:
        # A title with the same words as the hook would only repeat them.
        is_told = self.title.removesuffix("…").rstrip() in self.hook
        kind = f" ({self.kind})" if self.said_by.may_instruct else ""
        line = f"{self.hook}{kind}" if is_told else f"{self.title}{kind}: {self.hook}"
        return mark_lines(f"{self.said_by.attribution}{line}")


def hot_entries(
    memories: Iterable[DurableMemory], said_by: Callable[[DurableMemory], Authority] = lambda memory: memory.said_by
) -> list[HotEntry]:
    """Return the entries of the hot memories, in an order that is stable from day to day.

    What may instruct is first, then what has a higher weight, then what is older. `said_by` returns who said a memory
    to the reader.
    """
    hot = [memory for memory in memories if memory.is_active and memory.temperature is Temperature.HOT]
    hot.sort(key=lambda memory: (-permanence_of(memory).weight, memory.created_at, memory.id))
    entries = [HotEntry.of(memory, said_by(memory)) for memory in hot]
    return sorted(entries, key=lambda entry: not entry.said_by.may_instruct)


def hot_lines(memories: Iterable[DurableMemory]) -> list[str]:
    """Return the lines of the hot index: ``⁍ Anna (fact): She lives in Porto.``, without redundant titles."""
    return [str(entry) for entry in hot_entries(memories)]


def choose_hot(memories: Memories, settings: ConsolidationSettings) -> list[DurableMemory]:
    """Return the memories for the hot index, best first, within both limits.

    A line that exceeds the remaining tokens is skipped in favour of the next ones that fit. The choice is idempotent,
    and independent of the current time.
    """
    eligible = (memory for memory in memories.newest.values() if is_eligible(memory, settings))
    return within_limits(eligible, settings.hot_entries, settings.hot_tokens)


def within_limits(memories: Iterable[DurableMemory], entries: int, tokens: int) -> list[DurableMemory]:
    """Return the best memories within both limits, best first. They may be of several scopes."""
    chosen: list[DurableMemory] = []

    def order(memory: DurableMemory) -> tuple[bool, bool, float, str]:
        return not memory.said_by.may_instruct, not lasts(memory), -_score(memory), memory.id

    for memory in sorted(memories, key=order):
        if len(chosen) == entries or tokens <= 0:
            break
        size = HotEntry.of(memory).tokens
        if size <= tokens:
            chosen.append(memory)
            tokens -= size
    return chosen


def is_eligible(memory: DurableMemory, settings: ConsolidationSettings) -> bool:
    """Return whether a memory may be in the hot index: recalled, not point-in-time, in no context, important enough.

    That is: it would not be archived for its importance as soon as it is old enough.
    """
    is_kept = lasts(memory) or not settings.decay
    matters = memory.importance > 0 if is_kept else memory.importance >= settings.archive_below
    matters = matters and memory.context is None
    return matters and memory.is_recalled and not memory.is_point_in_time and permanence_of(memory).weight > 0


def heat(draft: Draft, settings: ConsolidationSettings) -> None:
    """Update the temperatures to match the hot index."""
    chosen = {memory.id: memory for memory in choose_hot(draft.memories, settings)}
    hot = [memory for memory in draft.memories.newest.values() if memory.temperature is Temperature.HOT]
    for memory in sorted(hot, key=lambda memory: memory.id):
        if memory.id not in chosen:
            why = "others matter more" if is_eligible(memory, settings) else "what it is now does not belong there"
            draft.act(MemoryVerb.CHILL, memory, f"it leaves the hot index: {why}")
    for memory in sorted(chosen.values(), key=lambda memory: memory.id):
        if memory.temperature is not Temperature.HOT:
            figures = (
                f"{memory.kind}, importance {memory.importance:g}, confidence {memory.confidence:g}, "
                f"last used {memory.last_used_at:%Y-%m-%d}"
            )
            draft.act(MemoryVerb.HEAT, memory, f"it is among what matters most ({figures})")


def _score(memory: DurableMemory) -> float:
    """Return the logarithm of weight × importance × confidence × 0.99^days, with a bonus for memories in the index.

    Days are counted from a fixed day instead of to the present, which gives the same order on any day. A tenth of them
    counts for memories that last.
    """
    permanence = permanence_of(memory)
    base = permanence.weight * memory.importance * memory.confidence
    if base <= 0.0:
        return -math.inf
    bonus = _BONUS if memory.temperature is Temperature.HOT else 0.0
    fading = _FADING * _SLOWLY if permanence.lasts else _FADING
    return math.log(base) + bonus - fading * days_between(_SOME_DAY, memory.last_used_at)

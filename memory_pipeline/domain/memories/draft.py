"""The working state of a day of consolidation, its settings and result, and the ports of its models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.memories.events import CONSOLIDATION, NOTHING_SAID, Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, apply
from memory_pipeline.domain.memories.record import MemoryKind, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope


_TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class ConsolidationSettings:
    """The settings of an agent's consolidation.

    Attributes:
        hot_entries, hot_tokens: maximum lines and tokens of the hot index.
        similarity: minimum cosine of duplicates of one kind.
        stale_after_days: a memory may be stale if it was not stated, updated or confirmed for this long.
        snapshot_stale_after_days: the same for memories that describe one moment.
        archive_below, archive_after_days: a memory is archived if its importance has decayed below the first value and
            it is older than the second.
        promote_after: an observation becomes a fact when this many further conversations repeat it.
        kinds: the kinds that the agent may store; None for all.
        decay: whether importance decays.
    """

    hot_entries: int = 20
    hot_tokens: int = 3_000
    similarity: float = 0.92
    stale_after_days: float = 30
    snapshot_stale_after_days: float = 3
    archive_below: float = 0.1
    archive_after_days: float = 30
    promote_after: int = 2
    kinds: frozenset[MemoryKind] | None = None
    decay: bool = True


@dataclass(frozen=True, slots=True)
class Night:
    """The result of one day of consolidation of one agent.

    Attributes:
        at: the end of the day, UTC; the time of all its events, which are in order.
        troubles: reasons of failed passes by name. A failed pass has no effect.
        review: context rot of the memories that need a review, by id.
    """

    day: Period
    at: datetime
    events: tuple[MemoryEvent, ...]
    troubles: Mapping[str, str]
    review: Mapping[str, float]


@dataclass(slots=True)
class Draft:
    """The working state of one pass. Its actions take effect at once, on its own copy of the memories.

    Attributes:
        since: memories that changed at or after this time are compared with all others, UTC.
        at: the end of the day, UTC.
        turn: number of the pass within the day.
        events: the actions so far.
    """

    memories: Memories
    scope: Scope
    day: Period
    since: datetime
    at: datetime
    turn: int
    events: list[MemoryEvent] = field(default_factory=list)

    def act(
        self,
        verb: MemoryVerb,
        memory: DurableMemory,
        reason: str,
        *,
        other: DurableMemory | None = None,
        changes: Changes = NOTHING_SAID,
    ) -> None:
        """Apply an action to a memory; `reason` is for users.

        `other` is the memory that is merged into it (MERGE) or replaces it (SUPERSEDE). `changes` is the content after
        a MERGE.
        """
        event = MemoryEvent.of(
            self.scope,
            verb,
            self.at,
            changes,
            memory_id=memory.id,
            turn=self.turn,
            place=len(self.events),
            editor=CONSOLIDATION,
            reason=reason,
            other_id=None if other is None else other.id,
        )
        apply(self.memories, event)
        self.events.append(event)


def named(memory: DurableMemory) -> str:
    """Return the title of a memory in quotes, for reasons."""
    return f"“{shortened(memory.title, _TITLE_LENGTH)}”"


class Similar(Protocol):
    """Finds durable memories with similar vectors."""

    def __call__(
        self, changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
    ) -> Sequence[tuple[str, str, float]]:
        """Return pairs with a cosine of at least `least`: id in `changed`, id in `others`, cosine.

        The result depends only on the contents, including new ones without stored vectors. `others` includes `changed`:
        pairs of a memory with itself and pairs in both directions are allowed.
        """
        ...


class Curator(Protocol):
    """Merges contents, and finds contradictions and stale memories for the consolidation, by rules or by a model."""

    def name(self, scope: Scope) -> str:
        """Return name and version of the rules or the model, for reasons."""
        ...

    def confirms(self, scope: Scope) -> bool:
        """Return whether a model decides which memories are stale, and which contradict each other.

        If not, :meth:`stale` receives all old observations and point-in-time memories, and no others, and
        :meth:`contradicted` is not called.
        """
        ...

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return one content that merges two contents with the same meaning; `newer` prevails where they differ.

        Raises:
            ModelError: the call of the model failed.
        """
        ...

    def contradicted(
        self, scope: Scope, pairs: Sequence[tuple[DurableMemory, DurableMemory]], day: Period
    ) -> Mapping[int, str]:
        """Return the indices of the pairs whose later memory contradicts the earlier one, each with a reason.

        A pair is an earlier and a later memory.

        Raises:
            ModelError: the call of the model failed.
        """
        ...

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> Mapping[str, str]:
        """Return the ids of the stale memories, each with a reason, at the end of the day (`at`, UTC).

        The candidates were not stated for a long time.

        Raises:
            ModelError: the call of the model failed.
        """
        ...

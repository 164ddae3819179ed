"""The draft that a day of consolidation works on, and the models that help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from memory_pipeline.domain.memories.events import NOTHING_SAID, UPKEEP, Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, apply
from memory_pipeline.domain.memories.record import MemoryKind, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period


_NAMED = 60


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """What an agent's upkeep goes by.

    Attributes:
        hot_entries, hot_tokens: what the hot index may hold, and how long it may be.
        similarity: cosine from which two memories of one kind may say the same.
        stale_after_days: after so many days without being said, updated or confirmed a memory may be stale …
        snapshot_stale_after_days: … and one that says how things stood at one moment.
        archive_below: an importance that has faded below this is archived …
        archive_after_days: … but not before so many days.
        promote_after: an observation that so many further conversations repeat becomes a fact.
        kinds: what the agent may keep; None for all kinds.
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


@dataclass(frozen=True, slots=True)
class Night:
    """What the upkeep of one agent did in one night.

    Attributes:
        day: the day that ended.
        at: when it ended, UTC; the time of all that the night does.
        events: what it did, in order.
        troubles: passes that failed, and so did nothing, by name, with the reason.
        review: how rotten those memories are that somebody should look at, by id.
    """

    day: Period
    at: datetime
    events: tuple[MemoryEvent, ...]
    troubles: Mapping[str, str]
    review: Mapping[str, float]


@dataclass(slots=True)
class Draft:
    """One pass at work: what it decides takes effect at once, on memories of its own.

    Attributes:
        memories: as they stand.
        scope: whose.
        day: of the night.
        since: what changed then, or later, is to be compared with the rest, UTC.
        at: when the day ended, UTC.
        turn: number of the pass within the night.
        events: what it has done.
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
        """Do something to a memory.

        Args:
            verb: what.
            memory: to which one.
            reason: why, in words.
            other: of MERGE what is taken in, of SUPERSEDE what takes the place.
            changes: of MERGE what the memory says from now on.
        """
        event = MemoryEvent.of(
            self.scope,
            verb,
            self.at,
            changes,
            memory_id=memory.id,
            turn=self.turn,
            place=len(self.events),
            editor=UPKEEP,
            reason=reason,
            other_id=None if other is None else other.id,
        )
        apply(self.memories, event)
        self.events.append(event)


def named(memory: DurableMemory) -> str:
    """Return a memory as a reason names it: its title, in quotes."""
    return f"“{shortened(memory.title, _NAMED)}”"


class Similar(Protocol):
    """Finds durable memories whose contents have near vectors."""

    def __call__(
        self, changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
    ) -> Sequence[tuple[str, str, float]]:
        """Return pairs whose cosine is at least `least`: id of one of `changed`, id of one of `others`, the cosine.

        What comes out depends on the contents alone, also on those that were written a moment ago and whose vectors
        nobody has stored. Pairs of a memory with itself, and pairs both ways round, do no harm.

        Args:
            changed: what is to be compared.
            others: with what; holds `changed` too.
            least: the smallest cosine, of 0 to 1.
        """
        ...


class Curator(Protocol):
    """Helps the nightly upkeep of durable memories where it takes an understanding of what they say."""

    def name(self, scope: Scope) -> str:
        """Return name and version of what helps an agent's upkeep, as reasons tell it to people."""
        ...

    def confirms(self, scope: Scope) -> bool:
        """Tell whether a model looks at what may be stale.

        If not, only observations and snapshots are ever shown to :meth:`stale`, and all of them are.
        """
        ...

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return one content that says all that two contents say which mean the same.

        Args:
            scope: whose memory.
            newer: the one that counts where they differ.
            older: the other.
            day: the day after which it is done.

        Raises:
            ModelError: the model did not help.
        """
        ...

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> Mapping[str, str]:
        """Return the ids of those memories that are stale, each with the reason in words.

        Args:
            scope: whose memories.
            memories: what nobody has said for long.
            at: the end of the day, UTC.
            day: the day after which it is done.

        Raises:
            ModelError: the model did not help.
        """
        ...

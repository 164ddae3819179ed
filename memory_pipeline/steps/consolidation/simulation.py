"""Simulate one agent's days of consolidation: find the days with a cause, and apply the passes.

Days are simulated in order, from the first changed day to the last day ever requested. So the result depends only on
the events. A day without a cause is skipped: it has no events, no pass failed the day before, and time alone changes
nothing. The passes of a day repeat until nothing changes, so a day never causes work for the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.consolidation import Night, consolidate, due, review_due, reviews
from memory_pipeline.domain.memories.fold import Memories, apply_use, fold_events
from memory_pipeline.domain.memories.record import Temperature
from memory_pipeline.domain.periods import Grain, hour_of
from memory_pipeline.steps.consolidation.days import ConsolidationCheckpoint, parse_day, spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.memories.consolidation import ConsolidationSettings
    from memory_pipeline.domain.memories.draft import Curator
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Calendar, Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.access_log import MemoryUse
    from memory_pipeline.steps.consolidation.cosines import CosineMatrix

_MOMENT = timedelta(microseconds=1)
#: Maximum length of an error message in a checkpoint.
_MOST_TROUBLE = 300
#: Name of the failed pass for memories without a vector.
NO_VECTORS = "vectors"


@dataclass(frozen=True, slots=True)
class SimulationInputs:
    """The settings and models of an agent's consolidation.

    Attributes:
        vocabulary: which predicates allow only one object.
        curator: merges memories and confirms stale ones.
        method: digest of all of these, and of the embedder.
    """

    settings: ConsolidationSettings
    vocabulary: Vocabulary
    curator: Curator
    method: str


@dataclass(slots=True)
class AgentSimulation:
    """The simulation of one agent.

    Attributes:
        happened: base events by day.
        old: existing consolidation events by day.
        uses: of its memories, by time. They are no cause of a day.
        checkpoint: of earlier consolidation.
        stored: the memories, if no event has changed since the checkpoint; see :meth:`_review`.
        requested: in order.
        until: the last day ever requested.
        first: the first day to simulate; None if everything is current.
        memories: after the last simulated day.
        simulated: the simulated days, in order.
        hot: number of hot-index entries after each simulated day.
    """

    scope: Scope
    rules: SimulationInputs
    calendar: Calendar
    happened: Mapping[Period, Sequence[MemoryEvent]]
    old: Mapping[Period, Sequence[MemoryEvent]]
    checkpoint: ConsolidationCheckpoint | None
    requested: Sequence[Period]
    until: Period
    uses: Sequence[MemoryUse] = ()
    stored: Memories | None = None
    first: Period | None = None
    memories: Memories = field(default_factory=Memories)
    simulated: list[Night] = field(default_factory=list)
    hot: dict[Period, int] = field(default_factory=dict)
    _days: list[Period] = field(default_factory=list)
    _chain: Period | None = None
    _forced: Period | None = None
    _through: Period | None = None
    _counted: int = 0

    def __post_init__(self) -> None:
        if self.stored is not None:
            self._review(self.stored)
            return
        self.first = self._first()
        if self.first is not None:
            self._start(self.first)

    @property
    def next(self) -> Period | None:
        """The next day with a cause, up to `until`."""
        nights = [night for night in (self._chain, self._forced) if night is not None and night.key <= self.until.key]
        return min(nights, default=None)

    @property
    def later(self) -> Period | None:
        """The first day after `until` that already has events."""
        return min((day for day in self.happened if day.key > self.until.key), default=None)

    def _review(self, memories: Memories) -> None:
        """Simulate days on which memories become due for a review, and nothing else happens.

        If a memory may change, `first` remains None, and the agent must be simulated from its events.
        """
        checkpoint = self.checkpoint
        if checkpoint is None or any(memories.resolved(use.memory_id) not in memories.newest for use in self.uses):
            return
        end = self.calendar.bounds(checkpoint.through)[1]
        if self.uses and self.uses[-1].at >= end:  # it may enter the hot index
            return
        self.memories = memories
        self._count_uses(end)
        night, simulated = checkpoint.due, list[Night]()
        while night is not None and night.key <= self.until.key:
            end = self.calendar.bounds(night)[1]
            change = self._change_due(end)
            if change is not None and change <= end:
                return
            simulated.append(Night(night, end, (), {}, reviews(self.memories, end)))
            self._count_hot(night)
            night = self._night_of(night.next(), change, review_due(self.memories, end))
        self.first, self.simulated, self._through, self._chain = checkpoint.due, simulated, checkpoint.through, night

    def advance_to(self, night: Period) -> None:
        """Apply the base events up to the end of a day."""
        events: list[MemoryEvent] = []
        while self._days and self._days[-1].key <= night.key:
            events += self.happened[self._days.pop()]
        if events:
            self.memories = fold_events(events, self.memories)
        self._count_uses(self.calendar.bounds(night)[1])

    def _count_uses(self, end: datetime) -> None:
        """Count the uses before an instant that are not counted yet."""
        first, self._counted = self._counted, bisect_left(self.uses, end, key=lambda use: use.at)
        if first < self._counted:
            self.memories = self.memories.copy()
        for use in self.uses[first : self._counted]:
            apply_use(self.memories, use.memory_id, use.times, use.at)

    def consolidate_day(self, night: Period, vectors: CosineMatrix) -> Night:
        """Consolidate the day that the simulation has reached."""
        bounds = self.calendar.bounds(night)
        missing = vectors.missing_of(memory.content for memory in self.memories.newest.values() if memory.is_recalled)
        done, self.memories = consolidate(
            self.memories, self.scope, night, bounds, self.rules.settings, self.rules.vocabulary,
            partial(vectors.similar, scope=self.scope, day=night), self.rules.curator,
        )  # fmt: skip
        if missing:
            done = replace(done, troubles={**done.troubles, NO_VECTORS: f"{missing:,} memories have no vector yet"})
        if done.troubles:
            done = replace(done, troubles={name: _line(why) for name, why in done.troubles.items()})
        self._forced = None
        if night in self.happened or done.events or done.troubles:
            self._through = night
        self._chain = night.next() if done.troubles else self._next_cause(night.next(), bounds[1])
        self.simulated.append(done)
        self._count_hot(night)
        return done

    def _count_hot(self, night: Period) -> None:
        self.hot[night] = sum(memory.temperature is Temperature.HOT for memory in self.memories.newest.values())

    def result(self) -> ConsolidationCheckpoint | None:
        """Return the checkpoint after the last day, or None for an agent without events."""
        if self.first is None:
            return self.checkpoint
        if self.checkpoint is not None and self.stored is not None:
            return replace(self.checkpoint, due=self._chain)
        if self._through is None:
            return None
        before = () if self.checkpoint is None else self.checkpoint.troubles
        troubles = [text for text in before if text.partition(" ")[0] < self.first.key]
        troubles += [f"{night.day} {name}: {why}" for night in self.simulated for name, why in night.troubles.items()]
        ids = {day: [event.id for event in events] for day, events in self.happened.items()}
        return ConsolidationCheckpoint(
            self.scope, self._through, self._chain, spans(ids, self._through), self.rules.method, tuple(troubles)
        )

    def _first(self) -> Period | None:
        first_day = min((day for day in self.happened if day.key <= self.until.key), default=None)
        stray = min((night for night, events in self.old.items() if events), default=None)
        if self.checkpoint is None:
            return min((day for day in (first_day, stray) if day is not None), default=None)
        checkpoint = self.checkpoint
        ids = {day: [event.id for event in events] for day, events in self.happened.items()}
        new = [day for day in self.happened if checkpoint.through.key < day.key <= self.until.key]
        found = [checkpoint.first_change(ids), checkpoint.first_trouble, *new]
        if checkpoint.due is not None and checkpoint.due.key <= self.until.key:
            found.append(checkpoint.due)
        if checkpoint.method != self.rules.method and first_day is not None:
            # New rules apply from now on, and to past days only on request.
            self._forced = max(self.requested[0], first_day)
            found.append(self._forced)
        first = min((night for night in found if night is not None), default=None)
        if (
            first is None
            or self._forced is not None
            or first.key > checkpoint.through.key
            or first == checkpoint.first_trouble
        ):
            return first
        if any(first.key <= day.key <= self.until.key for day in self.happened):
            return first
        # The last event was removed, so the last day with a cause is unknown.
        return first if first_day is None else min(first, first_day)

    def _start(self, first: Period) -> None:
        begins = self.calendar.bounds(first)[0]
        days = sorted(self.happened)
        past = [event for day in days if day.key < first.key for event in self.happened[day]]
        past += [event for night, events in self.old.items() if night.key < first.key for event in events]
        self.memories = fold_events(past)
        self._count_uses(begins)
        self._days = [day for day in days if first.key <= day.key <= self.until.key][::-1]
        nights = [night for night, events in self.old.items() if events]
        self._through = max((day for day in (*days, *nights) if day.key < first.key), default=None)
        self._chain = first if self._is_cause(first) else self._next_cause(first, begins)

    def _is_cause(self, night: Period) -> bool:
        if night in self.happened or (self.checkpoint is not None and night == self.checkpoint.due):
            return True
        return self.checkpoint is not None and night == self.checkpoint.first_trouble

    def _next_cause(self, earliest: Period, after: datetime) -> Period | None:
        """Return the next day with a cause from `earliest` on, assuming that no pass failed before it."""
        times = [self._due(earliest, after)]
        times += self._days[-1:]
        return min((night for night in times if night is not None), default=None)

    def _due(self, earliest: Period, after: datetime) -> Period | None:
        return self._night_of(earliest, self._change_due(after), review_due(self.memories, after))

    def _change_due(self, after: datetime) -> datetime | None:
        return due(self.memories, after, self.rules.settings, confirms=self.rules.curator.confirms(self.scope))

    def _night_of(self, earliest: Period, *times: datetime | None) -> Period | None:
        at = min((one for one in times if one is not None), default=None)
        if at is None:
            return None
        # A change due exactly at the end of a day belongs to that day.
        night = self.calendar.ancestor(hour_of(at - _MOMENT), Grain.DAILY)
        return max(night, earliest)


def simulate(simulations: Sequence[AgentSimulation], vectors: CosineMatrix) -> Iterator[tuple[AgentSimulation, Night]]:
    """Simulate agents together, day by day, so that new contents of a day are embedded in one request."""
    waiting: defaultdict[str, list[AgentSimulation]] = defaultdict(list)
    for simulation in simulations:
        if simulation.next is not None:
            waiting[simulation.next.key].append(simulation)
    while waiting:
        key = min(waiting)
        of_day, night = waiting.pop(key), parse_day(key)
        for simulation in of_day:
            simulation.advance_to(night)
        vectors.prepare(
            (
                (memory.content, simulation.scope)
                for simulation in of_day
                for memory in simulation.memories.newest.values()
                if memory.is_recalled
            ),
            night,
        )
        for simulation in of_day:
            yield simulation, simulation.consolidate_day(night, vectors)
            if simulation.next is not None:
                waiting[simulation.next.key].append(simulation)


def _line(why: str) -> str:
    """Return an error message on one line, as valid UTF-8."""
    return " ".join(why.encode("utf-8", "replace").decode().split())[:_MOST_TROUBLE]

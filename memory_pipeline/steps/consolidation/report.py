"""The report of a consolidation run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.hot_index import hot_lines
from memory_pipeline.domain.model_calls import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.domain.memories.consolidation import Night
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.steps.consolidation.simulation import AgentSimulation

#: Maximum number of agents in the hot-index list.
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """One change to one memory.

    Attributes:
        night: the day.
        verb: MERGE, COOL, ….
        other_id, other_title: for MERGE the memory merged into it; for SUPERSEDE its successor.
        is_withdrawn: whether an earlier consolidation made this change and this one undoes it.
    """

    scope: Scope
    night: Period
    verb: str
    memory_id: str
    title: str
    other_id: str | None
    other_title: str | None
    reason: str
    is_withdrawn: bool = False


@dataclass(slots=True)
class DayResult:
    """The consolidation of one day, over all processed agents.

    Attributes:
        night: the day.
        agents: number of agents with a cause on this day.
        events: number of events by verb.
        changed: number of new or withdrawn events.
        troubles: failed passes, with the agent and the reason.
        review: stale memories that need a review, with their agent.
        hot: number of hot-index entries of these agents afterwards.
    """

    night: Period
    agents: int = 0
    events: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    troubles: list[str] = field(default_factory=list)
    review: list[str] = field(default_factory=list)
    hot: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class ConsolidationReport:
    """The result of consolidation, or of its dry run.

    Attributes:
        nights: the requested and later recomputed days, in order.
        changes: new changes by agent and day, if requested.
        agents: number of agents with days to consolidate.
        hot: hot-index lines of some changed agents.
    """

    nights: list[DayResult] = field(default_factory=list)
    changes: list[MemoryDiff] = field(default_factory=list)
    agents: int = 0
    written: bool = False
    hot: dict[Scope, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    _places: dict[Period, DayResult] = field(default_factory=dict, init=False, repr=False, compare=False)

    def night(self, period: Period) -> DayResult:
        """Return the result of a day, creating it if missing."""
        found = self._places.get(period)
        if found is None:
            found = self._places[period] = DayResult(period)
            self.nights.append(found)
        return found

    def note(self, simulation: AgentSimulation, *, explain: bool) -> None:
        """Add the days of one agent."""
        if simulation.first is None:
            return
        self.agents += 1
        for night in simulation.simulated:
            _note(self.night(night.day), simulation, night)
        before = {
            event.id for day, events in simulation.old.items() if day.key >= simulation.first.key for event in events
        }
        new = {event.id for night in simulation.simulated for event in night.events}
        for day, events in simulation.old.items():
            if day.key >= simulation.first.key:
                withdrawn = {event.id for event in events} - new
                self.night(day).changed += len(withdrawn)
        if explain:
            self.changes += [
                change(simulation, night.day, event) for night in simulation.simulated for event in night.events
                if event.id not in before
            ]  # fmt: skip
            self.changes += _withdrawn(simulation)
        if simulation.simulated and len(self.hot) < _MOST_SHOWN:
            self.hot[simulation.scope] = hot_lines(simulation.memories.newest.values())


def change(simulation: AgentSimulation, night: Period, event: MemoryEvent, *, is_withdrawn: bool = False) -> MemoryDiff:
    """Return the diff of an event, with the titles of its memories."""
    newest = simulation.memories.newest
    titles = [newest[key].title if key in newest else None for key in (event.memory_id, event.other_id or "")]
    return MemoryDiff(
        scope=event.scope,
        night=night,
        verb=event.verb.value,
        memory_id=event.memory_id,
        title=titles[0] or event.memory_id,
        other_id=event.other_id,
        other_title=titles[1],
        reason=event.reason or "",
        is_withdrawn=is_withdrawn,
    )


def _withdrawn(simulation: AgentSimulation) -> Iterator[MemoryDiff]:
    new = {event.id for night in simulation.simulated for event in night.events}
    for night, events in simulation.old.items():
        if simulation.first is not None and night.key >= simulation.first.key:
            yield from (change(simulation, night, event, is_withdrawn=True) for event in events if event.id not in new)


def _note(run: DayResult, simulation: AgentSimulation, night: Night) -> None:
    before = {event.id for event in simulation.old.get(night.day, ())}
    run.agents += 1
    run.events.update(event.verb.value for event in night.events)
    run.changed += sum(event.id not in before for event in night.events)
    agent = f"{simulation.scope.workspace_id} / {simulation.scope.agent_id}"
    newest = simulation.memories.newest
    run.troubles += [f"{agent}: {name}: {why}" for name, why in night.troubles.items()]
    run.hot += simulation.hot[night.day]
    run.review += [f"{agent}: {newest[key].title} ({key}, {rot:.4f})" for key, rot in night.review.items()]

"""Consolidation gives the same result however events arrive and whenever days are requested."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings, consolidate
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.steps.consolidation.cosines import CosineMatrix
from memory_pipeline.steps.consolidation.days import ConsolidationCheckpoint, day_of, parse_day
from memory_pipeline.steps.consolidation.simulation import AgentSimulation, SimulationInputs, simulate
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory_pipeline.domain.periods import Period

CALENDAR = Calendar("America/New_York")
RULES = SimulationInputs(ConsolidationSettings(hot_entries=2), Vocabulary(), RuleCurator(), "m1")
VECTORS = CosineMatrix(HashingEmbedder())
FIRST = datetime(2024, 2, 27, tzinfo=UTC)
DAYS = 60

CONTENTS: list[dict[str, Any]] = [
    {"content": "Anna lives in Porto.", "subject": "Anna", "predicate": "lives_in", "object": "Porto"},
    {"content": "Anna lives in Faro.", "subject": "Anna", "predicate": "lives_in", "object": "Faro"},
    {"content": "Mira repairs the old bicycles behind the station.", "kind": "observation"},
    {"content": "Mira repairs the old bicycles behind a station.", "kind": "observation", "importance": 0.1},
    {"content": "There are 40 tickets.", "is_point_in_time": True},
    {"content": "Always say please.", "kind": "instruction"},
    {"content": "Rui keeps bees.", "importance": 0.12},
]


def remembered(day: int, hour: int, number: int) -> MemoryEvent:
    at = FIRST + timedelta(days=day, hours=hour)
    return MemoryEvent.of(ACME, MemoryVerb.REMEMBER, at, Changes.of(CONTENTS[number]))


@st.composite
def histories(draw: st.DrawFn) -> list[MemoryEvent]:
    """Memories that are remembered, used, doubted and forgotten over two months."""
    times = st.tuples(st.integers(0, DAYS - 1), st.integers(0, 23), st.integers(0, len(CONTENTS) - 1))
    events = [remembered(*drawn) for drawn in draw(st.lists(times, min_size=1, max_size=7))]
    verbs = st.sampled_from([MemoryVerb.ACCESS, MemoryVerb.BOOST, MemoryVerb.CONFIRM, MemoryVerb.FORGET])
    for about, verb, days in draw(st.lists(st.tuples(st.sampled_from(events), verbs, st.integers(0, 30)), max_size=4)):
        at = min(about.event_at + timedelta(days=days, minutes=7), FIRST + timedelta(days=DAYS))
        events.append(MemoryEvent.of(ACME, verb, at, memory_id=about.memory_id))
    return events


class Agent:
    """The stored state of an agent's consolidation, and a run on it."""

    def __init__(self) -> None:
        self.checkpoint: ConsolidationCheckpoint | None = None
        self.nightly: tuple[MemoryEvent, ...] = ()
        self.until = parse_day("2024-02-26")

    def keep(
        self, events: Iterable[MemoryEvent], asked: Sequence[Period], rules: SimulationInputs = RULES
    ) -> AgentSimulation:
        self.until = max(self.until, *asked, key=lambda each: each.key)
        happened: defaultdict[Period, list[MemoryEvent]] = defaultdict(list)
        for event in events:
            happened[day_of(event, CALENDAR)].append(event)
        old: defaultdict[Period, list[MemoryEvent]] = defaultdict(list)
        ends = {CALENDAR.bounds(each)[1]: each for each in parse_day("2024-02-01").through(parse_day("2024-06-01"))}
        for event in self.nightly:
            old[ends[event.event_at]].append(event)
        simulation = AgentSimulation(ACME, rules, CALENDAR, happened, old, self.checkpoint, asked, self.until)
        for _ in simulate([simulation], VECTORS):
            pass
        before = [events for each, events in old.items() if simulation.first is None or each.key < simulation.first.key]
        now = [night.events for night in simulation.simulated]
        self.nightly, self.checkpoint = (
            tuple(event for events in (*before, *now) for event in events),
            simulation.result(),
        )
        return simulation


def nights(*days: int) -> list[Period]:
    return [parse_day(f"{FIRST + timedelta(days=day):%Y-%m-%d}") for day in sorted(days)]


LAST = DAYS + 10


@settings(max_examples=examples(100), deadline=None)
@given(
    histories(),
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, LAST), min_size=1, max_size=3)), max_size=6),
)
def test_the_result_depends_only_on_the_events(
    events: list[MemoryEvent], rng: Any, runs: list[tuple[int, list[int]]]
) -> None:
    at_once = Agent()
    at_once.keep(events, nights(LAST))
    agent, waiting, arrived = Agent(), rng.sample(events, len(events)), list[MemoryEvent]()
    for count, asked in runs:
        arrived, waiting = arrived + waiting[:count], waiting[count:]
        agent.keep(arrived, nights(*asked))
    # A recomputed hour may add wrong events, and withdraw them later.
    if len(events) > 1:
        agent.keep(events[1:], nights(LAST // 2))
    agent.keep(events, nights(LAST))
    assert sorted(agent.nightly, key=lambda event: event.id) == sorted(at_once.nightly, key=lambda event: event.id)
    assert agent.checkpoint == at_once.checkpoint
    assert agent.keep(events, nights(3, LAST)).first is None


@settings(max_examples=examples(25), deadline=None)
@given(histories())
def test_a_skipped_day_would_have_changed_nothing(events: list[MemoryEvent]) -> None:
    agent = Agent()
    simulation = agent.keep(events, nights(LAST))
    memories, every = Memories(), list[MemoryEvent]()
    for day in nights(*range(-1, LAST + 1)):
        memories = fold_events(simulation.happened.get(day, ()), memories)
        similar = partial(VECTORS.similar, scope=ACME, day=day)
        done, memories = consolidate(
            memories, ACME, day, CALENDAR.bounds(day), RULES.settings, RULES.vocabulary, similar, RULES.curator
        )
        every += done.events
    assert every == list(agent.nightly)
    assert memories.newest == simulation.memories.newest
    assert len(simulation.simulated) <= LAST


def test_new_rules_apply_to_later_days_and_to_requested_past_days() -> None:
    events = [remembered(day, 8, number) for day, number in enumerate([0, 4, 5, 6, 2])]
    agent = Agent()
    agent.keep(events, nights(20))
    hot = [event for event in agent.nightly if event.verb is MemoryVerb.HEAT]
    assert len(hot) >= 2
    other = replace(RULES, settings=ConsolidationSettings(hot_entries=0), method="m2")
    simulation = agent.keep(events, nights(21), other)
    assert [each.day for each in simulation.simulated] == nights(21, 22)[: len(simulation.simulated)]
    assert {event.verb for event in simulation.simulated[0].events} == {MemoryVerb.CHILL}
    assert [event for event in agent.nightly if event.verb is MemoryVerb.HEAT] == hot
    assert agent.keep(events, nights(22), other).first in (None, *nights(22))
    again = agent.keep(events, nights(1), replace(other, method="m3"))
    assert again.first == nights(1)[0]
    assert agent.keep(events, nights(2), replace(other, method="m3")).first is None


def test_a_day_with_a_failed_pass_is_repeated_with_all_following_days() -> None:
    class Broken(RuleCurator):
        def stale(self, *args: Any) -> Any:
            raise RuntimeError("no\nmodel \udc00" + "x" * 5_000)

    events = [remembered(1, 8, 4), remembered(30, 8, 5)]
    agent = Agent()
    simulation = agent.keep(events, nights(40), replace(RULES, curator=Broken()))
    failed = [each.day for each in simulation.simulated if each.troubles]
    assert failed
    assert agent.checkpoint is not None
    assert agent.checkpoint.first_trouble == failed[0]
    assert agent.checkpoint.troubles[0].startswith(f"{failed[0]} staleness: RuntimeError: no model ?xx")
    assert len(agent.checkpoint.troubles[0]) < 400
    assert any(event.verb is MemoryVerb.HEAT for event in agent.nightly)  # the other passes succeeded
    healed = agent.keep(events, nights(40))
    assert healed.first == failed[0]
    whole = Agent()
    whole.keep(events, nights(40))
    assert (agent.checkpoint, set(agent.nightly)) == (whole.checkpoint, set(whole.nightly))


def test_an_event_that_is_months_late_recomputes_from_its_month_on() -> None:
    events = [remembered(day, 8, number) for day, number in [(0, 0), (4, 5), (40, 6), (55, 2)]]
    agent = Agent()
    agent.keep(events, nights(LAST))
    assert agent.checkpoint is not None
    spans = [text.partition(" ")[0] for text in agent.checkpoint.days]
    assert spans == ["2024-02", "2024-03", "2024-04"]  # the last day, when everything had decayed, is months later
    simulation = agent.keep([*events, remembered(10, 8, 4)], nights(LAST))
    assert simulation.first == parse_day("2024-03-01")
    same_month = Agent()
    same_month.keep(events, nights(56))
    assert same_month.keep([*events, remembered(54, 8, 4)], nights(56)).first == nights(54)[0]

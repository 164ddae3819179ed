"""Of two contradicting memories, one supersedes the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.record import MemoryKind, Status, Temperature
from memory_pipeline_tests.domain.memories.consolidating import consolidated, day_after, nothing_alike
from memory_pipeline_tests.domain.memories.histories import do, remember

if TYPE_CHECKING:
    from memory_pipeline.domain.memories.events import MemoryEvent


PORTO = remember("Anna lives in Porto.", 0, subject="Anna", predicate="lives_in", object="Porto")
LISBON = remember("Anna moved to Lisbon.", 1, subject="anna ", predicate="lives_in", object="Lisbon")
FARO = remember("Anna was seen in Faro.", 2, kind="observation", subject="Anna", predicate="lives_in", object="Faro")


def superseded(*events: MemoryEvent, **named: Any) -> dict[str, str | None]:
    """Return the superseded memories after one day, with their winners."""
    _, memories = consolidated(events, similar=nothing_alike, **named)
    return {own: each.superseded_by for own, each in memories.newest.items() if each.status is Status.SUPERSEDED}


def test_f9_a_fact_wins_over_an_observation_and_newer_over_older() -> None:
    assert superseded(PORTO, LISBON, FARO) == {
        PORTO.memory_id: LISBON.memory_id,
        FARO.memory_id: LISBON.memory_id,
    }
    assert superseded(PORTO, FARO) == {FARO.memory_id: PORTO.memory_id}
    older = replace(FARO, event_at=PORTO.event_at)
    assert superseded(older, LISBON) == {FARO.memory_id: LISBON.memory_id}


def test_f9_the_loser_becomes_cold_with_winner_and_reason() -> None:
    _, memories = consolidated([PORTO, LISBON, FARO], similar=nothing_alike)
    loser, seen = memories.newest[PORTO.memory_id], memories.newest[FARO.memory_id]
    assert (loser.temperature, loser.superseded_by) == (Temperature.COLD, LISBON.memory_id)
    assert loser.status_reason == (
        "“Anna moved to Lisbon.” contradicts it, and lives_in holds one value at a time: what was said later counts"
    )
    assert seen.status_reason == (
        "“Anna moved to Lisbon.” contradicts it, and lives_in holds one value at a time: "
        "a fact counts more than an observation"
    )
    assert not consolidated(memories, similar=nothing_alike)[0].events


def test_simultaneous_contradictions_have_the_same_winner_in_any_order() -> None:
    both = [PORTO, replace(LISBON, event_at=PORTO.event_at)]
    [(loser, winner)] = superseded(*both).items()
    assert superseded(*reversed(both)) == {loser: winner}
    reasons = [
        event.reason or "" for event in consolidated(both, similar=nothing_alike)[0].events if event.memory_id == loser
    ]
    assert any("both were said at the same time" in reason for reason in reasons)
    assert winner == max(PORTO.memory_id, LISBON.memory_id)


@pytest.mark.parametrize(
    "other",
    [
        remember("Ben lives in Lisbon.", 1, subject="Ben", predicate="lives_in", object="Lisbon"),
        remember("Anna likes Lisbon.", 1, subject="Anna", predicate="likes", object="Lisbon"),
        remember(
            "Anna is at home in PORTO.", 1, kind="observation", subject="Anna", predicate="lives_in", object=" porto"
        ),
        remember(
            "Anna plans to live in Lisbon.", 1, kind="plan", subject="Anna", predicate="lives_in", object="Lisbon"
        ),
        remember("Anna lives in Lisbon.", 1),
    ],
)
def test_unrelated_memories_do_not_contradict(other: MemoryEvent) -> None:
    assert not superseded(PORTO, other)


def test_the_vocabulary_declares_single_valued_predicates() -> None:
    tea = remember("Anna drinks tea.", subject="Anna", predicate="drinks", object="tea")
    milk = remember("Anna drinks milk.", 1, subject="Anna", predicate="drinks", object="milk")
    assert not superseded(tea, milk)
    assert superseded(tea, milk, vocabulary=Vocabulary(single=frozenset(["drinks"]))) == {tea.memory_id: milk.memory_id}
    assert not superseded(PORTO, LISBON, vocabulary=Vocabulary(multi=frozenset(["lives_in"])))


def test_inactive_memories_contradict_nothing() -> None:
    assert not superseded(PORTO, LISBON, do("FORGET", LISBON, 3))


def test_a_restated_memory_wins_again() -> None:
    _, memories = consolidated([PORTO, LISBON], similar=nothing_alike)
    again = fold_events(
        [remember("Anna lives in Porto.", 24, subject="Anna", predicate="lives_in", object="Porto")], memories
    )
    assert again.newest[PORTO.memory_id].is_recalled
    _, memories = consolidated(again, day_after(1), similar=nothing_alike)
    assert memories.newest[PORTO.memory_id].is_recalled
    assert memories.newest[LISBON.memory_id].superseded_by == PORTO.memory_id


def test_all_but_the_winner_are_superseded_by_it() -> None:
    events = [
        remember(f"Anna lives in town {n}.", n, subject="Anna", predicate="lives_in", object=f"town {n}")
        for n in range(6)
    ]
    assert superseded(*events) == {event.memory_id: events[-1].memory_id for event in events[:-1]}


def test_a_point_in_time_memory_does_not_supersede_an_ordinary_one() -> None:
    berlin = remember(
        "Anna is in Berlin now.", 1, subject="Anna", predicate="lives_in", object="Berlin", is_point_in_time=True
    )
    faro = remember(
        "Anna is in Faro now.", 2, subject="Anna", predicate="lives_in", object="Faro", is_point_in_time=True
    )
    assert superseded(PORTO, berlin) == {}
    assert superseded(PORTO, berlin, faro) == {berlin.memory_id: faro.memory_id}
    assert superseded(replace(berlin, event_at=PORTO.event_at), LISBON) == {berlin.memory_id: LISBON.memory_id}


def test_a_denied_memory_is_superseded_until_it_is_restated() -> None:
    ended = remember("Anna left Porto.", 1, subject="Anna", predicate="no_longer_lives_in", object="porto")
    assert superseded(PORTO, ended) == {PORTO.memory_id: ended.memory_id}
    again = remember("Anna lives in Porto again.", 2, subject="Anna", predicate="lives_in", object="Porto")
    assert superseded(PORTO, ended, again) == {PORTO.memory_id: again.memory_id, ended.memory_id: again.memory_id}


@pytest.mark.parametrize("kind", ["preference", "instruction"])
def test_the_newer_of_two_contradictory_preferences_or_instructions_wins(kind: str) -> None:
    annie = remember("Call me Annie.", 0, kind=kind, subject="Anna", predicate="is_called", object="Annie")
    ann = remember("Call me Ann.", 1, kind=kind, subject="Anna", predicate="is_called", object="Ann")
    assert superseded(annie, ann) == {annie.memory_id: ann.memory_id}
    fact = replace(ann, changes=replace(ann.changes, kind=MemoryKind.FACT))
    assert superseded(annie, fact) == {}


def test_liking_supersedes_disliking() -> None:
    hates = remember("I hate cilantro.", 0, kind="preference", subject="Anna", predicate="hates", object="cilantro")
    loves = remember("I love cilantro.", 1, kind="preference", subject="Anna", predicate="likes", object="Cilantro")
    parsley = remember("I like parsley.", 1, kind="preference", subject="Anna", predicate="likes", object="parsley")
    assert superseded(hates, loves, parsley) == {hates.memory_id: loves.memory_id}
    bored = remember(
        "I like it no more.", 2, kind="preference", subject="Anna", predicate="no_longer_likes", object="cilantro"
    )
    assert superseded(loves, bored, parsley) == {loves.memory_id: bored.memory_id}
    assert superseded(hates, bored) == {}


@pytest.mark.parametrize(("outcome", "active"), [(True, 2), (None, 1)])
def test_p15_experiences_do_not_contradict_each_other(outcome: bool | None, active: int) -> None:
    triple: dict[str, Any] = {"subject": "order 17", "predicate": "status", "outcome_success": outcome}
    events = [
        remember("Order 17 was refused.", object="refused", **triple),
        remember("Order 17 was accepted.", 1, object="accepted", **triple),
    ]
    _, memories = consolidated(events)
    assert sum(memory.is_active for memory in memories.newest.values()) == active

"""Observations that become facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline_tests.domain.memories.consolidating import SETTINGS, consolidated, day_after, did
from memory_pipeline_tests.domain.memories.histories import do, remember

SAID = [
    remember(
        "The lift is slow.", n, kind="observation", conversation=f"c{n}", editor="conversation", evidence=[f"m{n}"]
    )
    for n in range(4)
]
OWN = SAID[0].memory_id


def test_f1_an_observation_in_three_conversations_becomes_a_fact_with_the_same_id() -> None:
    done, _ = consolidated(SAID[:2])
    assert not did(done)
    done, memories = consolidated(SAID[:3])
    assert did(done)[0] == ("PROMOTE", OWN, None)
    assert done.events[0].reason == "it was said in 3 conversations: an observation becomes a fact"
    fact = memories.newest[OWN]
    assert (fact.kind, fact.version) == (MemoryKind.FACT, 4)
    assert fact.updated_at == SAID[2].event_at
    assert [each.kind for each in memories.history(OWN)] == ["observation"] * 3 + ["fact"]


def test_repetitions_within_a_conversation_count_once() -> None:
    often = [remember("The lift is slow.", n, kind="observation", conversation="c") for n in range(9)]
    assert not did(consolidated(often)[0])


def test_a_restatement_updates_the_promoted_fact() -> None:
    _, memories = consolidated(SAID[:3])
    known = memories.find(SAID[3].changes)
    assert known is not None
    assert (known.id, known.kind) == (OWN, MemoryKind.FACT)


@pytest.mark.parametrize("kind", [kind for kind in MemoryKind if kind is not MemoryKind.OBSERVATION])
def test_only_observations_are_promoted(kind: MemoryKind) -> None:
    said = [remember("The lift is slow.", n, kind=kind, conversation=f"c{n}") for n in range(5)]
    assert "PROMOTE" not in {event.verb for event in consolidated(said)[0].events}


def test_revoked_memories_and_disallowed_kinds_are_not_promoted() -> None:
    assert not did(consolidated([*SAID, do("FORGET", OWN, 5)])[0])
    observing = frozenset([MemoryKind.OBSERVATION])
    assert not did(consolidated(SAID, settings=replace(SETTINGS, kinds=observing))[0])
    assert did(consolidated(SAID, settings=replace(SETTINGS, kinds=observing | {MemoryKind.FACT}))[0])


def test_conversations_joined_by_a_merge_count_on_the_same_day() -> None:
    said = [
        remember("The lift is slow.", 0, kind="observation", conversation="c0"),
        remember("The lift is slow.", 1, kind="observation", conversation="c1"),
        remember("the slow lift is", 2, kind="observation", conversation="c2"),
    ]
    done, memories = consolidated(said)
    assert [event.verb.value for event in done.events] == ["MERGE", "PROMOTE", "HEAT"]
    assert [event.turn for event in done.events] == [2, 6, 10]
    assert not did(consolidated(memories)[0])
    assert not did(consolidated(memories, day_after(1))[0])

"""The fold of links between memories."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.links import Link, fold_links
from memory_pipeline.domain.memories.record import Status
from memory_pipeline_tests.domain.memories.histories import at, do, histories, remember

if TYPE_CHECKING:
    from memory_pipeline.domain.memories.events import MemoryEvent

TEA, COFFEE, FIGS = (remember(f"Anna likes {thing}.") for thing in ("tea", "coffee", "figs"))


def links(*events: MemoryEvent) -> list[Link]:
    memories = fold_events(events)

    def is_linked(memory_id: str) -> bool:
        memory = memories.newest.get(memory_id)
        return memory is not None and memory.status is not Status.DEPRECATED

    return fold_links(events, memories.resolved, is_linked)


def link(
    one: MemoryEvent, other: MemoryEvent, hours: float, weight: float = 0.5, relation: str = "like"
) -> MemoryEvent:
    return do("LINK", one, hours, other=other, relation=relation, weight=weight)


def ends(*events: MemoryEvent) -> list[tuple[str, str, float]]:
    return [(one.source_id, one.target_id, one.weight) for one in links(*events)]


@given(histories(), st.randoms(use_true_random=False))
def test_f15_the_fold_ignores_order_and_repetition(events: list[MemoryEvent], chance: random.Random) -> None:
    mixed = [*events, *chance.choices(events, k=5)] if events else []
    chance.shuffle(mixed)
    found = links(*mixed)
    assert found == links(*events)
    newest = fold_events(events).newest
    assert all(0 <= one.weight <= 1 and one.source_id != one.target_id for one in found)
    assert all(newest[own].status is not Status.DEPRECATED for one in found for own in (one.source_id, one.target_id))


def test_f15_the_last_of_two_statements_counts() -> None:
    told = [TEA, COFFEE, FIGS, link(TEA, COFFEE, 1), link(TEA, COFFEE, 2, 0.9), link(TEA, FIGS, 1, 0.7)]
    assert ends(*told) == [(TEA.memory_id, COFFEE.memory_id, 0.9), (TEA.memory_id, FIGS.memory_id, 0.7)]
    gone = do("UNLINK", TEA, 3, other=COFFEE, relation="like")
    assert ends(*told, gone) == [(TEA.memory_id, FIGS.memory_id, 0.7)]
    assert len(links(*told, gone, link(TEA, COFFEE, 4))) == 2
    other = do("LINK", TEA, 4, other=COFFEE, relation="unlike")
    [last] = links(*told[:2], gone, other)
    assert last == Link(TEA.memory_id, COFFEE.memory_id, "unlike", 1.0, "agent", at(4))


def test_f15_a_link_goes_with_a_revoked_memory_and_comes_back_with_it() -> None:
    told = [TEA, COFFEE, link(TEA, COFFEE, 1)]
    for end in (TEA, COFFEE):
        assert links(*told, do("FORGET", end, 2)) == []
        assert len(links(*told, do("FORGET", end, 2), do("CONFIRM", end, 3))) == 1


def test_f15_the_links_of_a_merged_memory_are_those_of_the_survivor() -> None:
    told = [TEA, COFFEE, FIGS, link(COFFEE, FIGS, 1), link(FIGS, COFFEE, 1, 0.3), link(TEA, COFFEE, 1)]
    merged = do("MERGE", TEA, 12, other=COFFEE)
    assert ends(*told, merged) == [(TEA.memory_id, FIGS.memory_id, 0.5), (FIGS.memory_id, TEA.memory_id, 0.3)]
    assert ends(*told, merged, do("UNLINK", TEA, 13, other=FIGS, relation="like")) == [
        (FIGS.memory_id, TEA.memory_id, 0.3)
    ]

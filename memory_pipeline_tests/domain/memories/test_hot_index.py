"""The hot index: its entries, its two limits, and stability without a cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.hot_index import HotEntry, choose_hot, hot_entries, hot_lines, is_eligible
from memory_pipeline.domain.memories.record import MAX_TITLE, MemoryKind, Temperature
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline_tests.domain.memories.consolidating import (
    SETTINGS,
    consolidated,
    day_after,
    did,
    end_of,
    nothing_alike,
)
from memory_pipeline_tests.domain.memories.histories import do, only, remember
from memory_pipeline_tests.effort import examples

FACT = remember("Anna lives in Porto.", title="Anna", hook="She lives in Porto.")


def facts(number: int, **changes: Any) -> list[MemoryEvent]:
    """Return different facts of increasing importance."""
    return [
        remember(f"Thing number {n} is here.", n / 60, importance=0.5 + n / 1000, title=f"Thing {n}", **changes)
        for n in range(number)
    ]


def hot(memories: Memories) -> set[str]:
    return {own for own, memory in memories.newest.items() if memory.temperature is Temperature.HOT}


def test_f2_a_line_has_title_kind_and_hook() -> None:
    entry = HotEntry.of(only(FACT))
    assert str(entry) == "⁍ Anna (fact): She lives in Porto."
    assert entry.tokens == count_tokens("⁍ Anna (fact): She lives in Porto.\n")
    _, memories = consolidated([FACT])
    assert hot_lines(memories.newest.values()) == [str(entry)]
    assert [each.id for each in hot_entries(memories.newest.values())] == [FACT.memory_id]


def test_a_line_has_no_line_breaks() -> None:
    memory = replace(only(FACT), title="An\nna\r\n - x", hook="y\n" * 100)
    line = str(HotEntry.of(memory))
    assert len(line.splitlines()) == 1
    assert len(HotEntry.of(memory).hook) <= 120


def test_f2_and_f10_twenty_five_entries_become_twenty_and_the_others_stay_warm() -> None:
    events = facts(25)
    done, memories = consolidated(events, similar=nothing_alike)
    assert hot(memories) == {event.memory_id for event in events[5:]}
    assert {memories.newest[event.memory_id].temperature for event in events[:5]} == {Temperature.WARM}
    assert all(memory.is_recalled for memory in memories.newest.values())
    assert {verb for verb, _, _ in did(done)} == {"HEAT"}
    reasons = {event.memory_id: event.reason for event in done.events}
    assert reasons[events[5].memory_id] == (
        "it is among what matters most (fact, importance 0.505, confidence 1, last used 2024-01-15)"
    )


def test_f2_the_token_cap_bites_first_when_titles_are_long() -> None:
    events = [remember(f"Thing {n}.", n / 60, title=f"{n} " + "x" * (MAX_TITLE - 4)) for n in range(25)]
    _, memories = consolidated(events, similar=nothing_alike)
    lines = hot_lines(memories.newest.values())
    assert 0 < len(lines) < 20
    assert len(lines) == 3_000 // (count_tokens(lines[0] + "\n"))
    assert count_tokens("\n".join(lines)) <= 3_000


def test_a_line_too_long_for_the_remaining_tokens_is_skipped() -> None:
    long = remember("Long.", title="x" * 900, importance=1)
    short = [remember(f"Short {n}.", importance=0.5) for n in range(3)]
    settings = replace(SETTINGS, hot_tokens=100)
    _, memories = consolidated([long, *short], settings=settings, similar=nothing_alike)
    assert hot(memories) == {event.memory_id for event in short}


@pytest.mark.parametrize(("entries", "tokens"), [(0, 3_000), (20, 0), (20, 3)])
def test_an_index_may_be_empty(entries: int, tokens: int) -> None:
    _, memories = consolidated([FACT])
    done, memories = consolidated(
        memories, day_after(1), settings=replace(SETTINGS, hot_entries=entries, hot_tokens=tokens)
    )
    assert not hot(memories)
    assert done.events[0].reason == "it leaves the hot index: others matter more"


def test_memories_are_eligible_by_kind_temperature_and_importance() -> None:
    for kind in MemoryKind:
        memory = only(remember("So it is.", kind=kind))
        assert is_eligible(memory, SETTINGS) is (kind not in {MemoryKind.TOOL_OUTPUT, MemoryKind.OBSERVATION})
        assert not is_eligible(replace(memory, is_point_in_time=True), SETTINGS)
        assert not is_eligible(replace(memory, temperature=Temperature.COLD), SETTINGS)
        assert not is_eligible(replace(memory, importance=0), SETTINGS)
    assert not is_eligible(only(FACT, do("FORGET", FACT, 1)), SETTINGS)
    assert not is_eligible(replace(only(FACT), importance=0.09), SETTINGS)
    assert is_eligible(replace(only(FACT), importance=0.1), SETTINGS)


@pytest.mark.parametrize(("importance", "days"), [(0.11, 10), (0.11, 90), (0.3, 110), (0.3, 200)])
def test_a_memory_of_faded_importance_leaves_the_index(importance: float, days: int) -> None:
    fact = remember("The gate is green.", importance=importance)
    _, memories = consolidated([fact])
    assert hot(memories) == {fact.memory_id}
    _, memories = consolidated(memories, day_after(days))
    faded = importance * 0.99**days < 0.1 and days > 30
    assert memories.newest[fact.memory_id].is_active is not faded
    assert hot(memories) == (set() if faded else {fact.memory_id})


def test_a_memory_without_importance_is_never_hot_and_is_archived() -> None:
    fact = remember("The gate is green.", importance=0)
    _, memories = consolidated([fact])
    assert not hot(memories)
    # In a lake where an earlier version made it hot.
    _, memories = consolidated(fold_events([fact, do("HEAT", fact, 13)]), day_after(20))
    assert not hot(memories)
    _, memories = consolidated(memories, day_after(31))
    assert not memories.newest[fact.memory_id].is_active


def test_permanent_kinds_outlast_months_and_come_first() -> None:
    rule = remember("Never deploy on a Friday.", -24 * 100, kind="rule")
    events = facts(30)
    _, memories = consolidated([rule, *events], similar=nothing_alike)
    assert rule.memory_id in hot(memories)
    assert hot_lines(memories.newest.values())[0] == "⁍ Never deploy on a Friday. (rule)"
    assert len(hot(memories)) == 20


def test_more_important_memories_enter_and_used_ones_stay() -> None:
    one, two = remember("One thing.", importance=0.5), remember("Other matters.", 0.1, importance=0.5)
    settings = replace(SETTINGS, hot_entries=1)
    _, memories = consolidated([one, two], settings=settings)
    assert hot(memories) == {two.memory_id}
    for changes, expected in (
        ([do("BOOST", one, 24, amount=0.04)], two),  # by less than a tenth
        ([do("BOOST", one, 24, amount=0.06)], one),
        ([do("ACCESS", one, 24 * 9)], two),  # 0.99^9 is more than 1 / 1.1
        ([do("ACCESS", one, 24 * 12)], one),
        ([do("FORGET", two, 24)], one),
    ):
        done, after = consolidated(fold_events(changes, memories), day_after(13), settings=settings)
        assert hot(after) == {expected.memory_id}
        assert bool(done.events) is (expected is one)
        assert not consolidated(after, day_after(14), settings=settings)[0].events


def test_leaving_the_index_has_a_reason() -> None:
    _, memories = consolidated([FACT])
    done, _ = consolidated(fold_events([do("UPDATE", FACT, 24, kind="tool_output")], memories), day_after(1))
    assert [(event.verb, event.reason) for event in done.events] == [
        ("CHILL", "it leaves the hot index: what it is now does not belong there")
    ]


@st.composite
def _events(draw: st.DrawFn) -> list[MemoryEvent]:
    return [
        remember(
            f"Thing number {n}.",
            draw(st.integers(-3_000, 8)),
            title="x" * draw(st.sampled_from([3, 40, 200])),
            kind=draw(st.sampled_from(["fact", "rule", "plan", "observation"])),
            importance=draw(st.sampled_from([0.0, 0.3, 0.5, 0.52, 1.0])),
            confidence=draw(st.sampled_from([0.5, 1.0])),
            is_point_in_time=draw(st.sampled_from([False, False, True])),
        )
        for n in range(draw(st.integers(0, 12)))
    ]


@settings(max_examples=examples(40))
@given(_events(), _events(), st.integers(0, 8), st.integers(0, 300))
def test_both_limits_hold_and_an_unchanged_index_has_no_events(
    events: list[MemoryEvent], more: list[MemoryEvent], entries: int, tokens: int
) -> None:
    caps = replace(SETTINGS, hot_entries=entries, hot_tokens=tokens, archive_below=0)
    memories = consolidated(events, settings=caps, similar=nothing_alike)[1]
    memories = fold_events([replace(event, id=f"{event.id}2") for event in more], memories)
    memories = consolidated(memories, settings=caps, similar=nothing_alike)[1]
    lines = hot_lines(memories.newest.values())
    assert len(lines) <= entries
    assert count_tokens("\n".join(lines)) <= tokens
    chosen = choose_hot(memories, caps)
    assert {memory.id for memory in chosen} == hot(memories)
    # No eligible memory is left out that fits and exceeds an entry by the margin.
    left = tokens - sum(HotEntry.of(memory).tokens for memory in chosen)
    for memory in memories.newest.values():
        if is_eligible(memory, SETTINGS) and memory.id not in hot(memories):
            assert len(chosen) == entries or HotEntry.of(memory).tokens > left


def test_a_year_of_likes_does_not_displace_what_lasts_and_passing_likes_leave() -> None:
    def said(content: str, day: float, predicate: str, thing: str, kind: str = "fact") -> MemoryEvent:
        triple: dict[str, Any] = {"subject": "Anna", "predicate": predicate, "object": thing}
        return remember(content, 24 * day, kind=kind, importance=0.5, confidence=0.7, **triple)

    allergy = said("Anna is allergic to dogs.", 0, "allergic_to", "dogs")
    home = said("Anna lives in Porto.", 0, "lives_in", "Porto")
    likes = [said(f"Anna likes thing {n}.", n * 9, "likes", f"thing {n}", "preference") for n in range(40)]
    memories = Memories()
    for day, shown in ((1, 1), (20, 3), (100, 12), (365, 17)):
        known = [event for event in (allergy, home, *likes) if event.event_at < end_of(day_after(day))]
        _, memories = consolidated(fold_events(known, memories), day_after(day), similar=nothing_alike)
        assert {allergy.memory_id, home.memory_id} <= hot(memories)
        assert len(hot(memories)) == 2 + shown
    assert hot_lines(memories.newest.values())[0] == "⁍ Anna is allergic to dogs. (fact)"
    assert not memories.newest[likes[0].memory_id].is_active

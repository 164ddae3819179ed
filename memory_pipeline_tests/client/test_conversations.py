"""Conversations and facts of a memory."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def test_conversations_are_saved_found_and_listed(root: str, memory: Memory) -> None:
    first = memory.conversations.save(
        ["I moved to Porto.", {"role": "assistant", "content": "Fine."}], now=NOW - 2 * DAY
    )
    second = memory.conversations.save("My dog is called Bruno.", "c2", now=NOW)
    Memory(root, user_id="ben").conversations.save("Bruno is my uncle.", "c2", now=NOW)
    for is_run in (False, True):
        assert second == "c2"
        assert [one.id for one in memory.conversations.list()] == [second, first]
        assert [one.id for one in memory.conversations.list(1)] == [second]
        assert [one.id for one in memory.conversations.list(active_within=DAY, now=NOW)] == [second]
        assert [one.content for one in memory.conversations.get(first)] == ["I moved to Porto.", "Fine."]
        assert [one.content for one in memory.conversations.get("c2")] == ["My dog is called Bruno."]
        assert memory.conversations.get("c3") == []
        assert memory.conversations.search("Where did I move?")[0].id == first
        if not is_run:
            memory.run(now=NOW + DAY)


def test_old_conversations_are_pruned(root: str, memory: Memory) -> None:
    memory.conversations.save("It was 31 days ago.", "old", now=NOW - 31 * DAY)
    memory.conversations.save("It was 29 days ago.", "new", now=NOW - 29 * DAY)
    memory.add("A group was here.", conversation_id="group", users=["anna", "ben"], now=NOW - 40 * DAY)
    Memory(root, user_id="ben").conversations.save("Ben was here.", "old", now=NOW - 40 * DAY)
    assert memory.conversations.prune(30 * DAY, now=NOW) == 1
    assert memory.conversations.prune(30 * DAY, now=NOW) == 0
    assert {one.id for one in memory.conversations.list()} == {"new", "group"}
    assert {one.id for one in Memory(root, user_id="ben").conversations.list()} == {"old", "group"}
    with pytest.raises(InputError, match="negative"):
        memory.conversations.prune(-DAY)


def test_facts_are_stored_looked_up_and_forgotten(memory: Memory) -> None:
    one = memory.facts.store("Alice lives in Porto.", subject="Alice")
    memory.facts.store("Alice likes figs.", subject="Alice")
    memory.facts.store("Bruno is a dog.", subject="Bruno")
    assert len(memory.facts.facts_about("alice")) == 2
    memory.facts.update_confidence(one, 0.4)
    assert {fact.id: fact.confidence for fact in memory.facts.facts_about("Alice")}[one] == 0.4
    for wrong in (1.2, math.nan, -0.1):
        with pytest.raises(InputError, match="confidence"):
            memory.facts.update_confidence(one, wrong)
    with pytest.raises(InputError, match="at least one"):
        memory.facts.forget()
    assert memory.facts.forget(subject="Alice") == 2
    assert memory.facts.facts_about("Alice") == []

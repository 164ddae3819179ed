"""A window makes room by itself, and loses nothing."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_pipeline import ContextWindow, Memory
from memory_pipeline.errors import InputError

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def contents(window: ContextWindow) -> list[str]:
    return [message["content"] for message in window.messages]


def test_the_oldest_leave_and_stay_in_memory(memory: Memory) -> None:
    window = ContextWindow(memory, max_tokens=10)
    for number in range(15):
        window.add(f"No. {number:4}", now=NOW + timedelta(minutes=number))  # 2 tokens
    assert contents(window) == [f"No. {number:4}" for number in range(10, 15)]
    assert (window.tokens, window.is_full) == (10, True)
    assert len(memory.list("fact")) == 15
    assert len(memory.conversations.list()) == 1
    window.clear()
    assert (window.messages, window.tokens, window.is_full) == ([], 0, False)


def test_a_summary_replaces_all_but_the_last_ten(memory: Memory) -> None:
    window = ContextWindow(memory, max_tokens=13, strategy="summarize", count=lambda text: 1)
    window.add("I moved to Porto.", now=NOW)
    for number in range(1, 14):
        assert len(window.messages) == number
        window.add(f"Then I walked to the {number} houses.", now=NOW + timedelta(minutes=number))
    assert len(window.messages) == 11
    for number in range(20):
        window.add(f"Later I walked to {number} more houses.", now=NOW + timedelta(hours=1, minutes=number))
        assert window.tokens <= 13
        assert window.messages[0]["role"] == "system"
        assert "Porto" in window.messages[0]["content"]
    assert len(memory.list("fact")) == 34
    assert "Summary" not in "".join(hit.content for hit in memory.list("fact"))


@pytest.mark.parametrize("repeats", [1, 8, 16])
def test_a_summary_has_room_whatever_the_length_of_messages(memory: Memory, repeats: int) -> None:
    window = ContextWindow(memory, max_tokens=240, strategy="summarize")
    for number in range(1, 41):
        window.add(f"Then I walked to the {number:2} houses. " * repeats, now=NOW + timedelta(minutes=number))
        assert 0 < window.tokens <= 240
        if number > len(window.messages):  # some have left
            assert window.messages[0]["role"] == "system"
            assert f"Summary of the {number + 1 - len(window.messages)} messages" in contents(window)[0]
    assert number > len(window.messages)
    assert contents(window)[-1].startswith("Then I walked to the 40 houses.")


def test_without_room_for_a_summary_the_newest_message_stays(memory: Memory) -> None:
    window = ContextWindow(memory, max_tokens=12, strategy="summarize")
    for number in range(5):
        window.add(f"Then I walked to the {number:2} houses.", now=NOW + timedelta(minutes=number))  # 8 tokens
    assert contents(window) == ["Then I walked to the  4 houses."]


def test_messages_on_the_topic_stay(memory: Memory) -> None:
    window = ContextWindow(memory, max_tokens=22, strategy="semantic")
    for text in ("My dog Bruno ate the figs.", "The weather is fine today.", "The tram was late again."):
        window.add(said(text), now=NOW)
    window.add(said("What did Bruno eat?"), now=NOW)
    assert contents(window)[0] == "My dog Bruno ate the figs."
    assert contents(window)[-1] == "What did Bruno eat?"
    assert len(window.messages) == 3


def test_a_message_over_the_limit_is_kept_out_and_stored(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    window = ContextWindow(memory, max_tokens=5, count=len)
    window.add("Hi.")
    with caplog.at_level(logging.WARNING):
        window.add("Hello there.")
    assert "a message of 12 tokens exceeds max_tokens 5" in caplog.text
    assert contents(window) == ["Hi."]
    assert len(memory.list("fact")) == 2


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"max_tokens": -1}, {"strategy": "lifo"}, {"max_tokens": "5"}])
def test_wrong_arguments_are_refused(memory: Memory, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ContextWindow(memory, **options)


def test_a_window_gives_what_fits_and_is_pruned_on_demand(memory: Memory) -> None:
    window = ContextWindow(memory, max_tokens=100, count=lambda text: 10)
    for number in range(3):
        window.add(f"Message {number}.", now=NOW)
    assert [message["content"] for message in window.get_context(25)] == ["Message 1.", "Message 2."]
    assert window.get_context() == window.messages
    assert window.get_context(9) == []
    with pytest.raises(InputError, match="max_tokens 0"):
        window.get_context(0)
    with pytest.raises(InputError, match="strategy 'newest'"):
        window.prune("newest")
    window.prune()
    assert len(window.messages) == 3
    window.max_tokens = 20
    window.prune("fifo")
    assert contents(window) == ["Message 1.", "Message 2."]


def test_fourteen_messages_become_a_summary_and_the_last_ten(memory: Memory) -> None:
    window = ContextWindow(memory)
    window.prune("summarize", now=NOW)
    for number in range(14):
        window.add(f"Then I walked to the {number} houses.", now=NOW + timedelta(minutes=number))
    window.prune("summarize", now=NOW + timedelta(hours=1))
    assert (len(window.messages), window.messages[0]["role"]) == (11, "system")
    window.prune("summarize", now=NOW + timedelta(hours=1))
    assert len(window.messages) == 11

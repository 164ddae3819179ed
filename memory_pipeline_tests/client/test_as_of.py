"""Memory as it stood at an earlier time, by what had been received then."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline_tests import oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline_tests.openai_server import OpenAIServer

START = datetime(2025, 1, 6, 9, tzinfo=UTC)


def later(days: int) -> datetime:
    return START + timedelta(days=days)


def said(text: str, at: datetime, **fields: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text, "timestamp": at.isoformat(), **fields}]


@pytest.fixture
def memory(root: str) -> Memory:
    """Anna lived in Berlin in January. In March she moves, an import tells of January, and a message is edited."""
    memory = Memory(root, user_id="anna")
    memory.add("I live in Berlin.", now=later(0))
    memory.add(said("My cat is called Miso.", later(1), id="m1"), conversation_id="cat", now=later(1))
    memory.remember("Prefers short answers", "preference", now=later(2))
    memory.run(now=later(40))
    memory.add("I moved to Porto.", now=later(60))
    memory.add(said("In January I learned to sail.", later(3)), source="import", now=later(61))
    memory.add(said("My cat is called Momo.", later(1), id="m1"), conversation_id="cat", now=later(62))
    memory.remember("Likes tables", "preference", now=later(63))
    memory.run(now=later(100))
    return memory


def test_what_was_received_later_is_not_known(memory: Memory) -> None:
    past = memory.as_of(later(50))
    assert {hit.content for hit in past.search("", 50)} == {"User: I live in Berlin.", "User: My cat is called Miso."}
    assert next(hit.content for hit in past.search("answers", sources="memories")) == "Prefers short answers"
    months = past.reader.search_memory("monthly", 0, 3_000, 10, None, now=later(50))
    assert ["sail" in hit.content or "Momo" in hit.content for hit in months] == [False]
    assert [one.valid_to for one in past.graph.facts() if one.label == "lives_in"] == [None]
    assert "Porto" not in str(past.context("Where do I live?"))
    assert "Likes tables" not in str(past.context(""))
    assert "sail" not in str(past.context("Can I sail?"))
    assert "sail" in str(memory.with_now(later(50)).context("Can I sail?"))


def test_the_present_is_memory_as_of_now(memory: Memory) -> None:
    present = memory.as_of(later(100))
    assert [hit.content for hit in present.search("cat", 50)] == [
        hit.content for hit in memory.with_now(later(100)).search("cat", 50)
    ]
    assert str(present.context("Where do I live?")) == str(memory.with_now(later(100)).context("Where do I live?"))


def test_a_correction_is_not_known_before_it_was_made(memory: Memory) -> None:
    wrong = next(hit for hit in memory.search("Berlin") if hit.kind == "turn")
    memory.correct(wrong.id, "I live in Bonn.", now=later(101))
    assert any("Berlin" in hit.content for hit in memory.as_of(later(100)).search("Where do I live?"))
    assert not any("Berlin" in hit.content for hit in memory.as_of(later(102)).search("Where do I live?"))


def test_a_grant_counts_from_the_time_it_was_given(memory: Memory) -> None:
    memory.writer.grant("other", "anna", now=later(70))
    other = Memory(memory.lake.storage.uri, agent_id="other")
    assert other.as_of(later(71)).of_agent("default", "anna").reader.search_memory("working", 0, 3_000, 5, "Berlin")
    with pytest.raises(AccessDeniedError):
        other.as_of(later(69)).of_agent("default", "anna").reader.search_memory("working", 0, 3_000, 5, "Berlin")
    memory.writer.revoke("other", "anna", now=later(80))
    revoked = other.as_of(later(71))
    assert not revoked.lake.tables.read(MESSAGES).num_rows


@pytest.mark.parametrize(
    "change",
    [
        lambda past: past.add("I like tea."),
        lambda past: past.remember("Likes tea"),
        lambda past: past.writer.graph.insert("Anna", "knows", "Omar"),
        lambda past: past.run(),
        lambda past: past.forget(everything=True),
        lambda past: past.correct(past.search("Berlin")[0].id),
        lambda past: past.session("s").store("a", 1),
        lambda past: past.contexts.create("plan"),
    ],
)
def test_the_past_cannot_be_changed(change: Callable[[Memory], object], memory: Memory) -> None:
    past = memory.as_of(later(50))
    with pytest.raises(InputError, match=r"as of 2025-02-25 09:00 UTC, which cannot be changed"):
        change(past)
    assert len(past.search("", 50)) == 2


def test_the_past_can_be_awaited(memory: Memory) -> None:
    async def found() -> list[str]:
        past = await AsyncMemory(memory.lake.storage.uri, user_id="anna").as_of(later(50))
        return [hit.content for hit in await past.search("cat")]

    assert "User: My cat is called Miso." in asyncio.run(found())


def test_the_copy_is_deleted_with_the_object(memory: Memory) -> None:
    past = memory.as_of(later(50))
    folder = Path(past.lake.storage.uri)
    assert folder.exists()
    del past
    gc.collect()
    assert not folder.exists()


def test_no_model_is_asked_and_a_summary_without_a_stored_answer_is_not_kept(root: str, server: OpenAIServer) -> None:
    memory = Memory(root, user_id="anna")
    oracle.configure(memory.lake, server)
    memory.add("I live in Berlin.", now=later(0))
    memory.run(now=later(2))
    memory.add(said("I have a dog called Bruno.", later(0)), now=later(3))
    memory.run(now=later(4))
    memory.add(said("I play chess.", later(20)), now=later(21))
    memory.add(said("I collect stamps.", later(20)), now=later(22))
    memory.run(now=later(23))
    asked = len(server.requests)

    def days(at: datetime) -> list[str]:
        return [hit.content for hit in memory.as_of(at).reader.search_memory("daily", 0, 3_000, 10, None, now=at)]

    first, second = days(later(2)), days(later(4))
    assert len(first) == len(second) == 1
    assert "Bruno" not in first[0]
    assert "Bruno" in second[0]
    assert len(days(later(23))) == 2
    assert days(later(21) + timedelta(hours=1)) == second  # no run made a summary of chess alone
    assert next(hit.content for hit in memory.as_of(later(21) + timedelta(hours=1)).search("chess")).endswith("chess.")
    assert len(server.requests) == asked

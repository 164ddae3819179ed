"""Compaction: removed messages are written to memory and replaced by a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import NOW, conversation, run
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

TEXTS = [f"I bought {number} canoes in Porto." for number in range(14)]


@pytest.fixture
def writer(root: str) -> MemoryWriter:
    return MemoryWriter.open(root, workspace_id="acme", agent_id="support")


def test_fourteen_messages_become_a_summary_and_the_last_ten(writer: MemoryWriter) -> None:
    talk = conversation(*TEXTS)
    short: Any = writer.compact(talk, now=NOW)
    assert len(short["messages"]) == 11
    summary, *rest = short["messages"]
    assert rest == talk["messages"][4:]
    assert summary["role"] == "system"
    assert "4 messages before" in summary["content"]
    assert "I bought 3 canoes" in summary["content"]
    assert "I bought 4 canoes" not in summary["content"]
    assert {key: value for key, value in short.items() if key != "messages"} == {
        key: value for key, value in talk.items() if key != "messages"
    }


def test_summarized_messages_are_stored_and_the_summary_is_not(writer: MemoryWriter, root: str, models: Models) -> None:
    short: Any = writer.compact(conversation(*TEXTS), now=NOW)
    writer.write(short, now=NOW)
    run(Lake(root), models)
    contents = Lake(root).tables.read(FACTS)["content"].to_pylist()
    assert {f"Anna: {text}" for text in TEXTS} <= set(contents)
    assert not any("messages before" in content for content in contents)
    again: Any = writer.compact(short, keep=3, now=NOW)
    assert len(again["messages"]) == 4


@pytest.mark.parametrize("count", [1, 10, 11])
def test_a_short_conversation_is_returned_unchanged(writer: MemoryWriter, count: int) -> None:
    talk = conversation(*TEXTS[:count])
    assert writer.compact(talk, now=NOW) == talk


def test_keep_may_be_0(writer: MemoryWriter) -> None:
    assert len(writer.compact(conversation(*TEXTS), keep=0, now=NOW)["messages"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [-1, 1.5, True, "3"])
def test_an_invalid_keep_is_refused(writer: MemoryWriter, keep: Any) -> None:
    with pytest.raises(InputError, match="keep"):
        writer.compact(conversation(*TEXTS), keep=keep)


def test_the_configured_model_summarizes_and_rules_replace_it_if_it_fails(writer: MemoryWriter, root: str) -> None:
    with OpenAIServer() as server:
        server.answer = oracle.answer
        oracle.configure(Lake(root), server)
        short: Any = writer.compact(conversation(*TEXTS), now=NOW)
        assert len(server.requests) == 1
        assert "I bought 0 canoes" in short["messages"][0]["content"]
        server.faults = [Fault("500", times=None)]
        other = conversation(*TEXTS, conversation_id="other")
        failed: Any = writer.compact(other, now=NOW)
        assert "I bought 0 canoes" in failed["messages"][0]["content"]


def test_recalled_text_is_not_summarized_and_stays_in_kept_messages(
    writer: MemoryWriter, root: str, models: Models
) -> None:
    block = mark("- Anna: I sold 99 kayaks in Lisbon.")
    texts = [f"{block}\n\n{text}" if number % 2 else text for number, text in enumerate(TEXTS)]
    texts[2:2] = [block]
    talk = conversation(*texts)
    short: Any = writer.compact(talk, now=NOW)
    summary, *rest = short["messages"]
    assert rest == talk["messages"][5:]  # unchanged, with recalled text
    assert "Summary of the 4 messages before" in summary["content"]
    assert "kayaks" not in summary["content"]
    assert "I bought 3 canoes" in summary["content"]
    writer.write(short, now=NOW)
    run(Lake(root), models)
    turns = [row["content"] for row in Lake(root).tables.read(FACTS).to_pylist() if row["kind"] == "turn"]
    assert sorted(turns) == sorted(f"Anna: {text}" for text in TEXTS)


def test_recalled_text_alone_needs_no_summary(writer: MemoryWriter) -> None:
    talk = conversation(*[mark(text) for text in TEXTS[:4]], *TEXTS[4:])
    assert writer.compact(talk, now=NOW) == talk | {"messages": talk["messages"][4:]}
    silent = conversation(*[mark(text) for text in TEXTS])
    assert writer.compact(silent, keep=0, now=NOW) == silent

"""The tool `correct`: a plan first, then exactly what was planned, in the memory of the user alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.memories.record import SourceType
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.errors import InputError
from memory_pipeline.tools import MemoryTools, memory_tools

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline_tests.conftest import CopiedLake

NOW = datetime(2025, 2, 3, 9, tzinfo=UTC)
LATER = NOW + timedelta(days=400)
PLAN = re.compile(r"and plan (\w{8})\.")


def fill(folder: Path) -> None:
    memory = Memory(folder, user_id="anna")
    memory.add("I work at Contoso. My sister Nadia lives in Lisbon. I like tea.", conversation_id="talk", now=NOW)
    agent = Memory(folder)
    agent.add("The office of Contoso is in Braga.", conversation_id="office", now=NOW)
    memory.run(now=LATER)


@pytest.fixture
def memory(copied: CopiedLake) -> Memory:
    return Memory(copied("correcting-tools", fill).storage.uri, user_id="anna")


def tools_of(memory: Memory, **options: object) -> MemoryTools:
    return memory_tools(memory.reader, memory.writer, now=LATER, memory=memory, **options)  # type: ignore[arg-type]


def known(memory: Memory) -> str:
    memory = Memory(memory.lake.storage.uri, user_id="anna")
    hits = [hit.content for hit in memory.search("Where does Nadia live?", limit=50, now=LATER)]
    return "\n".join([*hits, *(one.content for one in memory.list())])


def wrong_id(memory: Memory) -> str:
    return next(hit.id for hit in memory.search("Where does Nadia live?", now=LATER) if "Lisbon" in hit.content)


def test_the_first_call_returns_the_plan_and_changes_nothing(memory: Memory) -> None:
    arguments = {"id": wrong_id(memory), "words": "Lisbon"}
    told = tools_of(memory).call("correct", arguments)
    assert "My sister Nadia lives in Lisbon." in told
    assert all(f"{grain}: " in told for grain in ("fact", "daily", "yearly"))
    assert PLAN.search(told)
    guessed = tools_of(memory).call("correct", {**arguments, "plan": "0123abcd"})
    assert PLAN.search(guessed)
    assert "Lisbon" in known(memory)
    assert memory.corrections() == []


def test_a_call_with_the_plan_withdraws_it_and_remembers_what_is_true(memory: Memory) -> None:
    tools, arguments = tools_of(memory), {"id": wrong_id(memory), "words": "Lisbon", "text": "Nadia lives in Faro."}
    [plan] = PLAN.findall(tools.call("correct", arguments))
    # Another text is another plan.
    assert PLAN.search(tools.call("correct", {**arguments, "text": "Nadia lives in Rome.", "plan": plan}))
    done = tools.call("correct", {**arguments, "plan": plan})
    [one] = memory.corrections()
    assert one.id in done
    assert "Lisbon" not in known(memory)
    assert "Contoso" in known(memory)
    [noted] = [each for each in memory.reader.memories.list(now=LATER) if "Faro" in each.content]
    assert noted.said_by == "assistant"
    memory.undo(one.id, now=LATER)
    assert "Lisbon" in known(memory)


@pytest.mark.parametrize("said_by", [SourceType.ASSISTANT, SourceType.USER])
def test_the_words_of_a_user_are_replaced_by_those_of_the_user_alone(memory: Memory, said_by: SourceType) -> None:
    right = "My sister Nadia lives in Faro."
    tools, arguments = tools_of(memory, said_by=said_by), {"id": wrong_id(memory), "words": "Lisbon", "text": right}
    [plan] = PLAN.findall(tools.call("correct", arguments))
    tools.call("correct", {**arguments, "plan": plan})
    [one] = memory.corrections()
    assert one.text == (right if said_by is SourceType.USER else None)
    assert right in known(memory)


def test_what_was_said_to_others_too_is_not_withdrawn(memory: Memory) -> None:
    [office] = [hit.id for hit in memory.search("Where is the office?", limit=1, now=LATER)]
    told = tools_of(memory).outcome("correct", {"id": office})
    assert told.is_error
    assert "said to others" in told.text
    ben = Memory(memory.lake.storage.uri, user_id="ben")
    assert tools_of(ben).outcome("correct", {"id": wrong_id(memory)}).is_error


def test_an_answer_stays_within_its_tokens_and_a_memory_of_another_user_is_refused(memory: Memory) -> None:
    told = tools_of(memory, max_tokens=200).call("correct", {"id": wrong_id(memory)})
    assert count_tokens(told) <= 200
    assert PLAN.search(told)
    ben = Memory(memory.lake.storage.uri, user_id="ben")
    with pytest.raises(InputError, match="open both for the same agent and user"):
        memory_tools(memory.reader, memory.writer, memory=ben)


def test_it_is_offered_with_a_writer_and_a_memory_alone(memory: Memory) -> None:
    offered = [
        "correct" in {one["function"]["name"] for one in tools.functions}
        for tools in (
            tools_of(memory),
            memory_tools(memory.reader, memory.writer),
            memory_tools(memory.reader, memory=memory),
        )
    ]
    assert offered == [True, False, False]

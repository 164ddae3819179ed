"""Filters of durable memories are exact, before and after the pipeline has run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.overlay import one_read
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.memories.keeping import event, land, minute, remember, write

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.memories.search import MemorySearch
    from memory_pipeline_tests.openai_server import OpenAIServer

#: As many memories of each outcome as of the others.
TRIED = [
    remember(f"Attempt {number} to reach the depot by phone.", minute(number), outcome_success=outcome)
    for number in range(30)
    for outcome in [(True, False, None)[number % 3]]
]
FAILED = {one.memory_id for one in TRIED[1::3]}


def reader_of(lake: Lake) -> MemoryReader:
    return MemoryReader(lake, ACME, default_models().embedder)


HALF = pytest.mark.parametrize("memories", ["half"], indirect=True)


@pytest.fixture(params=["landed", "pending", "half"])
def memories(request: pytest.FixtureRequest, tmp_path: Path) -> MemorySearch:
    lake = Lake(str(tmp_path))
    landed = {"landed": 30, "pending": 0, "half": 14}[request.param]
    if landed:
        land(lake, *TRIED[:landed])
    if landed < 30:
        write(lake, *TRIED[landed:])
    return reader_of(lake).memories


def test_p15_the_filter_by_a_failed_outcome_is_exact(memories: MemorySearch) -> None:
    found = memories.search("Did I reach the depot by phone?", 100, outcome_success=False)
    assert {one.memory.id for one in found} == FAILED
    assert {one.id for one in memories.list(outcome_success=False)} == FAILED
    assert len(memories.search("depot", 100, outcome_success=True)) == len(memories.list(outcome_success=True)) == 10
    assert len(memories.search("depot", 5, outcome_success=False)) == 5, "the filter precedes the limit"
    assert len(memories.search("depot", 100, memory_class="experiential")) == 20
    assert len(memories.list(memory_class="factual")) == 10


def test_p15_an_outcome_that_is_set_later_is_found(memories: MemorySearch, tmp_path: Path) -> None:
    lake, open_ = Lake(str(tmp_path)), TRIED[2].memory_id
    write(lake, event(MemoryVerb.UPDATE, minute(90), open_, outcome_success=False))
    assert {one.memory.id for one in memories.search("depot", 100, outcome_success=False)} == FAILED | {open_}
    assert {one.id for one in memories.list(outcome_success=False, now=minute(60))} == FAILED


TALK = [
    {"role": "system", "content": "You are a helpful agent called Zed."},
    *({"role": "user", "content": f"Chatter number {number}."} for number in range(5)),
    {"role": "user", "content": "I am packing for Oslo."},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "tool", "content": "Snow in Tromsø"},
    {"role": "assistant", "content": [{"type": "text", "text": "Take a coat."}]},
]


def test_the_last_messages_can_take_the_place_of_a_question(lake: Lake, server: OpenAIServer) -> None:
    """By rules, and by a model that selects from titles; neither sees what only tools and instructions say."""
    oslo, zed = remember("The coat for Oslo is at Lea's.", minute(0)), remember("Zed likes Tromsø.", minute(1))
    write(lake, oslo, zed)
    reader = reader_of(lake)
    assert [one.memory.id for one in reader.memories.search(TALK, 1)] == [oslo.memory_id]
    assert oslo.memory_id in {item.id for item in reader.recall(TALK)}
    assert oslo.memory_id in {item.id for item in reader.context(TALK).parts}
    with pytest.raises(InputError, match="query is blank"):
        reader.recall([TALK[0], 7, {"content": 7}])

    model = f"{{model: openai/m, api_base: '{server.base_url}'}}"
    text = f"defaults: {{completion: {model}, memories: {{selection: model}}}}"
    lake.storage.write("config/workspaces.yaml", text.encode())
    server.answer = lambda body: {"chosen": [2]}
    assert len(reader_of(Lake(lake.storage.uri)).memories.search(TALK)) == 1
    [request] = server.requests
    asked = request.body["messages"][-1]["content"]
    assert "Chatter number 1. Chatter number 2." in asked
    assert "packing for Oslo. Take a coat." in asked
    assert not any(word in asked.partition("[1]")[0] for word in ("helpful", "Snow", "weather", "number 0"))


@pytest.mark.parametrize("until", [None, minute(60)])
def test_a_memory_that_lands_during_one_read_is_found_by_its_next_search(lake: Lake, until: datetime | None) -> None:
    land(lake, *TRIED[:2])
    memories = reader_of(lake).memories
    with one_read(), ThreadPoolExecutor(1) as other:
        assert len(memories.list(now=until)) == 2
        other.submit(land, lake, TRIED[2], remember("The depot closes.", minute(70))).result()
        assert len(memories.search("depot", 100, now=until)) == (4 if until is None else 3)


def test_p17_each_filter_selects_what_was_said_so(memories: MemorySearch, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    makers = (None, "user", "system", "tool", "workflow", "agent")
    more = [
        remember(f"The {maker} found depot {number}.", minute(40 + number), source_type=maker)
        for number, maker in enumerate(makers)
    ]
    spoken = event(
        MemoryVerb.REMEMBER, minute(50), editor="conversation", content="User: The depot is far.", kind="fact",
        evidence=["m1"], conversation_id="c1",
    )  # fmt: skip
    land(lake, spoken, are_edits=False)
    write(lake, *more)
    every = memories.list(limit=100)
    assert len(every) == 37
    for name, count in (("memory_class", 2), ("outcome_success", 2), ("source_type", 5)):
        values: set[Any] = {getattr(one, name) for one in every} - {None}
        assert len(values) == count
        for value in values:
            filters: dict[str, Any] = {name: value}
            expected = {one.id for one in every if getattr(one, name) == value}
            assert {one.memory.id for one in memories.search("depot", 100, **filters)} == expected
            assert {one.id for one in memories.list(**filters)} == expected
    made_by = {one.content: one.source_type.value for one in every}
    assert (made_by[spoken.changes.content or ""], made_by["The None found depot 0."]) == ("user", "agent")


def test_p17_memories_are_found_by_a_vector_of_the_callers(memories: MemorySearch) -> None:
    embedder = default_models().embedder
    [vector] = embedder.embed(["Attempt 13 to reach the depot by phone."])
    for query in ("", "depot"):
        found = memories.search(query, 3, vector=[3 * float(number) for number in vector])
        assert found[0].memory.content == "Attempt 13 to reach the depot by phone."
    assert {one.memory.id for one in memories.search("", 100, vector=vector, outcome_success=False)} == FAILED


@HALF
def test_p17_a_vector_of_the_wrong_dimension_is_refused(memories: MemorySearch) -> None:
    invalid: list[tuple[Any, str]] = [
        ([0.5] * 3, "vector has 3 dimensions; the lake's embedder has 384"),
        ([[0.5] * 384], "vector has 1 × 384 dimensions; the lake's embedder has 384"),
        ([0.0] * 384, "expected finite numbers, not all zero"),
        ([float("nan")] * 384, "expected finite numbers"),
        (["a"] * 384, "is not accepted; expected 384 numbers"),
    ]
    for vector, says in invalid:
        with pytest.raises(InputError, match=says):
            memories.search("depot", vector=vector)


@HALF
def test_an_invalid_filter_is_named(memories: MemorySearch) -> None:
    invalid: list[tuple[str, Any, str]] = [
        ("outcome_success", "no", "outcome_success 'no' is not accepted; expected true or false"),
        (
            "source_type",
            "cron",
            "source_type 'cron' is unknown; accepted: user, assistant, import, system, tool, workflow, agent",
        ),
        ("memory_class", "learned", "memory_class 'learned' is unknown; accepted: factual, experiential"),
    ]
    for name, value, says in invalid:
        with pytest.raises(InputError, match=says):
            memories.search("depot", **{name: value})
        with pytest.raises(InputError, match=says):
            memories.list(**{name: value})
    with pytest.raises(TypeError, match="unexpected argument 'title'"):
        memories.list(title="depot")  # type: ignore[call-arg]  # on purpose


def test_p15_other_agents_learn_from_failures_through_a_grant(root: str) -> None:
    lake = Lake(root)
    writer = MemoryWriter(lake, ACME)
    failed = writer.remember("Two retries without a pause blocked the account.", outcome_success=False)
    writer.remember("One retry after a pause worked.", outcome_success=True)
    other = MemoryReader.open(root, workspace_id=ACME.workspace_id, agent_id="sales").of_agent(ACME.agent_id)
    with pytest.raises(AccessDeniedError):
        other.memories.search("retries", outcome_success=False)
    writer.grant("sales")
    assert [one.memory.id for one in other.memories.search("retries", outcome_success=False)] == [failed]

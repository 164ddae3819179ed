"""The hosted curator: questions, answers and failures."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.memories.consolidation import ConsolidationSettings
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.record import MAX_CONTENT, Temperature
from memory_pipeline.domain.model_calls import Purpose
from memory_pipeline.domain.periods import Period
from memory_pipeline.errors import ModelError
from memory_pipeline.models.factory import configured_models
from memory_pipeline.models.hosted.answer_schemas import MergeAnswer, StaleAnswer, read_answer
from memory_pipeline.models.hosted.curation import HostedCurator
from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError
from memory_pipeline_tests.building import NOW
from memory_pipeline_tests.domain.memories.consolidating import as_near_as, consolidated, day_after, did
from memory_pipeline_tests.domain.memories.histories import ACME, do, only, remember
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.lake import Lake

Json = dict[str, Any]

DAY = Period.parse("daily", "2024-02-20")
CONFIG = """
defaults:
  max_concurrency: 4
  completion: {{model: openai/m, api_base: "{url}", attempts: 2, backoff_seconds: 0.01, timeout_seconds: 5,
               context_tokens: {context}, max_output_tokens: {output}, price: {{input: 1.0, output: 2.0}}}}
  memories: {{consolidation: model}}
  budget: {{tokens_per_month: {budget}}}
workspaces:
  acme:
    agents:
      rules: {{memories: {{consolidation: rules}}}}
      offline: {{completion: {{model: deterministic}}, memories: {{consolidation: rules}}}}
"""
NEWER, OLDER = "Our rent is 900 euros.", "The rent is 900 euros, due on the 3rd."
BOTH = "Our rent is 900 euros, due on the 3rd."


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def curator_of(lake: Lake, server: OpenAIServer, **numbers: int) -> HostedCurator:
    lake.ensure()
    return HostedCurator(LlmExecutor(configuration(server, **numbers), lake.calls, lambda: NOW), "Europe/Lisbon")


def configuration(server: OpenAIServer, **numbers: int) -> Configuration:
    chosen = {"context": 8_000, "output": 1_000, "budget": 10_000_000} | numbers
    return Configuration.parse(CONFIG.format(url=server.base_url, **chosen), "test")


def saying(server: OpenAIServer, answer: object) -> None:
    server.answer = lambda body: answer  # type: ignore[assignment,return-value]  # hostile ones too


def old(*contents: str, **changes: Any) -> list[DurableMemory]:
    return [only(remember(content, n, **changes)) for n, content in enumerate(contents)]


# --- choice of the curator -------------------------------------------------------------------------------------------


def test_agents_without_a_model_send_no_request(lake: Lake, server: OpenAIServer) -> None:
    curator, memories = curator_of(lake, server), old("The lift is slow.", kind="observation")
    for scope in (replace(ACME, agent_id="rules"), replace(ACME, agent_id="offline")):
        assert (curator.confirms(scope), curator.name(scope)) == (False, "rules-1")
        assert curator.merge(scope, "Tea.", "Milk.", DAY) == "Tea. Milk."
        assert curator.stale(scope, memories, NOW, DAY).keys() == {memories[0].id}
    assert not server.requests
    assert curator.confirms(ACME)
    assert curator.name(ACME).endswith("(merge-2, contradictions-2, staleness-2)")
    assert curator.name(ACME).startswith("openai/m")


def test_a_configured_model_curates(lake: Lake, server: OpenAIServer) -> None:
    lake.ensure()
    models = configured_models(configuration(server), lake.calls, "UTC", lambda: NOW)
    assert isinstance(models.curator, HostedCurator)
    assert configuration(server).uses_models


# --- merge -----------------------------------------------------------------------------------------------------------


def test_both_contents_are_sent_as_data_and_the_answer_is_returned(lake: Lake, server: OpenAIServer) -> None:
    saying(server, {"content": BOTH})
    assert curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY) == BOTH
    [request] = server.requests
    system, user = (message["content"] for message in request.body["messages"])
    [tag] = set(re.findall(r"</(data-[0-9a-f]{12})>", user))
    assert user == f"The newer one:\n<{tag}>\n{NEWER}\n</{tag}>\n\nThe older one:\n<{tag}>\n{OLDER}\n</{tag}>"
    assert "stored text" in system
    assert request.body["response_format"]["json_schema"]["name"] == "merge"


def test_a_question_is_sent_once_and_charged_to_its_day(lake: Lake, server: OpenAIServer) -> None:
    saying(server, {"content": BOTH})
    for _ in range(2):
        assert curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY) == BOTH
    assert len(server.requests) == 1
    assert set(lake.calls.settle()) == {DAY}
    assert curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY) == BOTH
    assert len(server.requests) == 1
    assert curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY.next()) == BOTH
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Our rent is 900 euros.", "leaves out 3rd"),
        ("Our rent is 900 euros, due on the 3rd and the 17th.", "neither text says 17th"),
        (f"{BOTH} " + "It is so. " * 40, "be briefer"),
        ("", "content"),
        (" \n\x00", "blank"),
        (7, "leaves out"),
        (None, "content"),
        (["a"], "content"),
        ("Our rent is 900 euros, due on the 3rd, to Max.", "a name that no source has"),
        ("x" * (MAX_CONTENT + 1), "content"),
    ],
)
def test_a_wrong_answer_is_corrected_once(lake: Lake, server: OpenAIServer, content: object, problem: str) -> None:
    answers: list[Json] = [{"content": content}, {"content": BOTH}]
    server.answer = lambda body: answers[min(len(body["messages"]) // 2 - 1, 1)]
    assert curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY) == BOTH
    assert problem in server.requests[1].body["messages"][-1]["content"]
    saying(server, {"content": content})
    with pytest.raises(ModelError) as raised:
        curator_of(lake, server).merge(ACME, NEWER, OLDER, DAY.next())
    assert raised.value.trouble == "invalid"


def test_memories_too_long_for_the_model_are_not_sent(lake: Lake, server: OpenAIServer) -> None:
    curator = curator_of(lake, server, context=3_000)
    with pytest.raises(ModelError, match="openai/m has room for"):
        curator.merge(ACME, "tea " * 2_000, "milk " * 2_000, DAY)
    assert not server.requests


# --- staleness -------------------------------------------------------------------------------------------------------


def test_memories_are_shown_as_numbered_lines_with_kind_and_day(lake: Lake, server: OpenAIServer) -> None:
    memories = [*old("Anna plans\na trip.", kind="plan"), *old("The gate is green. " * 60), *old("It rained.")]
    saying(server, {"stale": [{"number": 1, "reason": "it is\n over"}, {"number": 9, "reason": "made up"}]})
    found = curator_of(lake, server).stale(ACME, memories, NOW, DAY)
    assert found == {memories[0].id: "it is over"}
    [request] = server.requests
    user = request.body["messages"][1]["content"]
    lines = user.split("\n")[2:-1]
    assert [line[:24] for line in lines] == [
        "[1] plan, 2024-01-15: An",
        "[2] fact, 2024-01-15: Th",
        "[3] fact, 2024-01-15: It",
    ]
    assert lines[0].endswith("Anna plans a trip.")
    assert len(lines[1]) < 640
    assert user.startswith("Today is 2024-02-20.\n")
    assert not any(memory.id in user for memory in memories)


def test_memories_are_sent_in_one_question_or_in_chunks(lake: Lake, server: OpenAIServer) -> None:
    server.answer = lambda body: {
        "stale": [
            {"number": int(number), "reason": f"number {number}"}
            for number in re.findall(r"^\[(\d+)\]", body["messages"][1]["content"], re.MULTILINE)
            if int(number) % 10 == 0
        ]
    }
    memories = old(*(f"Thing {n} stands here. {'It is so. ' * 20}" for n in range(1, 61)))
    found = curator_of(lake, server).stale(ACME, memories, NOW, DAY)
    assert found == {memories[n - 1].id: f"number {n}" for n in range(10, 61, 10)}
    assert len(server.requests) == 1
    assert curator_of(lake, server, context=3_000).stale(ACME, memories, NOW, DAY) == found
    assert len(server.requests) > 3


@pytest.mark.parametrize(
    "answer",
    [{"stale": None}, {"stale": "1"}, {}, {"stale": [1, 2]}, {"stale": [{"number": 0, "reason": "x"}]}, "prose",
     {"stale": [{"number": 1, "reason": ""}]}, {"stale": [{"number": 1}]}],
)  # fmt: skip
def test_an_invalid_answer_is_an_error(lake: Lake, server: OpenAIServer, answer: object) -> None:
    saying(server, answer)
    with pytest.raises(ModelError) as raised:
        curator_of(lake, server).stale(ACME, old("Tea."), NOW, DAY)
    assert raised.value.trouble == "invalid"
    assert len(server.requests) == 2


def test_invalid_items_of_a_valid_answer_are_left_out(lake: Lake, server: OpenAIServer) -> None:
    items = [{"number": 1, "reason": "over"}, {"number": "two", "reason": "x"}, {"number": 2, "reason": "gone"}]
    saying(server, json.dumps({"stale": [*items, {"number": 2, "reason": "\ud800"}]}))
    memories = old("Tea.", "Milk.")
    assert curator_of(lake, server).stale(ACME, memories, NOW, DAY) == {memories[0].id: "over", memories[1].id: "gone"}


@settings(max_examples=examples(50))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda part: (
            st.lists(part, max_size=3)
            | st.dictionaries(st.sampled_from(["stale", "content", "number", "reason"]), part, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_answer_is_read_or_invalid(said: object) -> None:
    with suppress(InvalidAnswerError):
        stale = read_answer(StaleAnswer, json.dumps({"stale": said}))[0].stale
        assert all(one.number >= 1 and one.reason.strip() and one.reason.isprintable() for one in stale)
    with suppress(InvalidAnswerError):
        content = read_answer(MergeAnswer, json.dumps({"content": said}))[0].content
        assert 0 < len(content) <= MAX_CONTENT
        content.encode()


# --- contradictions --------------------------------------------------------------------------------------------------


PORTO, OSLO, COFFEE = "Anna has her desk in Porto.", "Anna now works from the Oslo office.", "Anna likes tea in Porto."
SHORT, LONG = "Keep answers short.", "Explain everything at length from now on."
SAID = {PORTO: "observation", SHORT: "instruction", OSLO: "fact", LONG: "instruction", COFFEE: "fact"}
TEXTS = {
    content: remember(content, place, kind=kind, subject=None if kind == "instruction" else "Anna")
    for place, (content, kind) in enumerate(SAID.items(), start=-9)
}
RELATED = {(PORTO, OSLO): 0.4, (SHORT, LONG): 0.3, (PORTO, COFFEE): 0.5, (OSLO, LONG): 0.9, (COFFEE, OSLO): 0.1}


def contradicting(*pairs: tuple[str, str]) -> Callable[[Json], Json]:
    """Return a model that names these pairs of an earlier and a later content, and one that it was not shown."""

    def answer(body: Json) -> Json:
        shown = re.findall(r"^\[(\d+)\] .*?: (.*)\n.*?: (.*)$", body["messages"][1]["content"], re.MULTILINE)
        named = [int(number) for number, earlier, later in shown if (earlier, later) in pairs]
        return {"pairs": [{"number": number, "reason": "that has changed"} for number in [*named, 99]]}

    return answer


def test_a_text_that_the_model_finds_contradicted_is_superseded_by_the_later_one(
    lake: Lake, server: OpenAIServer
) -> None:
    server.answer = contradicting((PORTO, OSLO), (SHORT, LONG))
    curator = curator_of(lake, server)
    done, memories = consolidated(TEXTS.values(), settings=FEW, similar=as_near_as(RELATED), curator=curator)
    ids = {content: event.memory_id for content, event in TEXTS.items()}
    assert not done.troubles
    assert sorted(did(done)) == sorted([("SUPERSEDE", ids[PORTO], ids[OSLO]), ("SUPERSEDE", ids[SHORT], ids[LONG])])
    assert memories.newest[ids[PORTO]].status_reason == f"“{OSLO}” contradicts it: that has changed"
    [request] = server.requests
    asked = request.body["messages"][1]["content"]
    assert asked.count("[") == 3  # neither an instruction with a fact, nor what is hardly similar
    assert (
        consolidated(memories, day_after(1), settings=FEW, similar=as_near_as(RELATED), curator=curator)[0].events == ()
    )
    revived = fold_events([do("CONFIRM", ids[PORTO], 30)], memories).newest[ids[PORTO]]
    assert revived.is_recalled


def test_texts_about_two_people_are_not_compared(lake: Lake, server: OpenAIServer) -> None:
    ben = remember("Ben has his desk in Oslo.", 0, subject="Ben")
    near = as_near_as({(PORTO, "Ben has his desk in Oslo."): 0.6})
    consolidated([TEXTS[PORTO], ben], settings=FEW, similar=near, curator=curator_of(lake, server))
    assert not server.requests


def test_a_failed_model_leaves_contradictions_of_triples_settled(lake: Lake, server: OpenAIServer) -> None:
    triples = [
        remember(f"Anna lives in {city}.", hours, subject="Anna", predicate="lives_in", object=city)
        for hours, city in enumerate(["Porto", "Oslo"])
    ]
    server.faults = [Fault("500", times=None)]
    events, near = [*triples, *TEXTS.values()], as_near_as(RELATED)
    done, _ = consolidated(events, settings=FEW, similar=near, curator=curator_of(lake, server))
    assert did(done) == [("SUPERSEDE", triples[0].memory_id, triples[1].memory_id)]
    assert list(done.troubles) == ["judgement"]
    server.reset()
    server.answer = contradicting((PORTO, OSLO))
    again, _ = consolidated(events, settings=FEW, similar=near, curator=curator_of(lake, server))
    assert (len(again.events), again.troubles) == (2, {})


# --- whole days ------------------------------------------------------------------------------------------------------


FIRST, THEN = "The rent is 900 euros. Heat is extra.", "Our rent is 900 euros. The roof leaks."
RENT = [remember(FIRST, 0), remember(THEN, 1)]
GATE = remember("The gate is green.", -24 * 40)
NEAR = as_near_as({(FIRST, THEN): 0.95})
MADE = "Our rent is 900 euros, heat is extra, and the roof leaks."
FEW = ConsolidationSettings(hot_entries=0)


def test_a_day_is_consolidated_with_a_model(lake: Lake, server: OpenAIServer) -> None:
    server.answer = lambda body: (
        {"content": MADE} if "newer" in body["messages"][1]["content"] else {"stale": [{"number": 1, "reason": "old"}]}
    )
    done, memories = consolidated([*RENT, GATE], settings=FEW, similar=NEAR, curator=curator_of(lake, server))
    assert not done.troubles
    assert [verb for verb, _, _ in did(done)] == ["MERGE", "COOL"]
    assert memories.newest[RENT[1].memory_id].content == MADE
    assert memories.newest[GATE.memory_id].status_reason == "old"
    again, after = consolidated([*RENT, GATE], settings=FEW, similar=NEAR, curator=curator_of(lake, server))
    assert (again, after) == (done, memories)
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", ["500", "401", "malformed", "bad_content", "length", "refusal", "reset", "empty"])
def test_a_failed_model_leaves_a_union_and_defers_staleness(lake: Lake, server: OpenAIServer, kind: str) -> None:
    server.faults = [Fault(kind, times=None)]
    done, memories = consolidated([*RENT, GATE], settings=FEW, similar=NEAR, curator=curator_of(lake, server))
    assert [verb for verb, _, _ in did(done)] == ["MERGE"]
    assert memories.newest[RENT[1].memory_id].content == f"{THEN} {FIRST}"
    assert "(the model did not help: " in (done.events[0].reason or "")
    assert list(done.troubles) == ["staleness"]
    assert done.troubles["staleness"].startswith("ModelError: ")
    assert memories.newest[GATE.memory_id] == fold_events([GATE]).newest[GATE.memory_id]
    server.faults = []
    saying(server, {"stale": []})
    repaired, memories = consolidated(
        memories, day_after(1), settings=FEW, similar=NEAR, curator=curator_of(lake, server)
    )
    assert not repaired.troubles
    assert memories.newest[GATE.memory_id].temperature is Temperature.WARM


def test_nothing_is_sent_beyond_the_budget(lake: Lake, server: OpenAIServer) -> None:
    curator = curator_of(lake, server, budget=10)
    with pytest.raises(ModelError) as raised:
        curator.merge(ACME, NEWER, OLDER, DAY)
    assert raised.value.trouble == "budget"
    done, _ = consolidated([*RENT, GATE], settings=FEW, similar=NEAR, curator=curator)
    assert list(done.troubles) == ["staleness"]
    assert not server.requests


def test_a_dry_run_counts_questions_and_sends_none(lake: Lake, server: OpenAIServer) -> None:
    lake.ensure()
    executor = DryRunExecutor(configuration(server), lake.calls, lambda: NOW)
    done, _ = consolidated([*RENT, GATE], settings=FEW, similar=NEAR, curator=HostedCurator(executor, "UTC"))
    assert not done.troubles
    [(expected, usage)] = executor.expected.items()
    assert (expected.grain, expected.purpose, usage.calls) == (DAY.grain, Purpose.CONSOLIDATION, 2)
    assert not server.requests


def test_days_are_in_the_lakes_zone(lake: Lake, server: OpenAIServer) -> None:
    saying(server, {"stale": []})
    late = remember("Tea.", -12 - 1 / 2)  # 23:30 UTC on the 14th
    curator = HostedCurator(LlmExecutor(configuration(server), None, lambda: NOW), "Europe/Berlin")
    assert curator.stale(ACME, [only(late)], NOW + timedelta(days=9), DAY) == {}
    assert "2024-01-15: Tea." in server.requests[0].body["messages"][1]["content"]

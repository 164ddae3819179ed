"""The executor: one request per question, retries, corrections, and stored calls."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.model_calls import Purpose, Trouble, Use
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.secrets import kinds_in
from memory_pipeline.errors import ModelError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import ANSWERS, MODEL_CALLS
from memory_pipeline.models.hosted.transport import budgets, litellm_client
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import (
    Answered,
    InvalidAnswerError,
    LlmRequest,
    embedding_key,
    identity_of,
    shares_of,
)
from memory_pipeline_tests.building import ACME, NOW
from memory_pipeline_tests.openai_server import Fault, OpenAIServer
from memory_pipeline_tests.searching import places_of
from memory_pipeline_tests.secret_samples import SECRETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GLOBEX = Scope("globex", "sales")
HOUR = Period.parse("working", "2024-01-15T08")
CONFIG = """
defaults:
  max_concurrency: 8
  completion: {{model: openai/m, api_base: "{url}", attempts: {attempts}, backoff_seconds: {backoff_seconds},
               timeout_seconds: {timeout_seconds}, price: {{input: 1.0, output: 2.0}}}}
  embedding: {{model: openai/v, api_base: "{url}", dimension: 16, attempts: 3, backoff_seconds: 0.01,
              price: {{input: 0.5}}}}
{rest}
"""


@pytest.fixture(scope="module", autouse=True)
def _litellm() -> None:
    """Import LiteLLM, which takes seconds, before anything is timed."""
    litellm_client.price(Configuration.parse("defaults: {completion: {model: openai/m}}", "test").extraction(ACME))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = lambda body: f"you said {body['messages'][1]['content']}"
        yield server


def executor_of(store: Lake | None, server: OpenAIServer, rest: str = "", **changes: float) -> LlmExecutor:
    """Return an executor for the server; `changes` overrides settings of completions, `rest` is added to the file."""
    settings = {"attempts": 3, "backoff_seconds": 0.01, "timeout_seconds": 5} | changes
    text = CONFIG.format(url=server.base_url, rest=rest, **settings)
    return LlmExecutor(Configuration.parse(text, "test"), store.calls if store else None, lambda: NOW)


@pytest.fixture
def executor(lake: Lake, server: OpenAIServer) -> LlmExecutor:
    return executor_of(lake, server)


def question(executor: LlmExecutor, text: str = "hello", scope: Scope = ACME) -> LlmRequest:
    settings = executor.configuration.extraction(scope)
    return LlmRequest(Use(scope, HOUR), Purpose.EXTRACTION, settings, "test-1", "Echo.", text, {}, "test", (1,))


def ask(executor: LlmExecutor, text: str = "hello", scope: Scope = ACME) -> str:
    return executor.complete(question(executor, text, scope), str).value


def trouble(executor: LlmExecutor, text: str = "hello", scope: Scope = ACME) -> str:
    """Ask a question that fails; return the trouble."""
    with pytest.raises(ModelError) as caught:
        ask(executor, text, scope)
    return caught.value.trouble


def calls_of(lake: Lake) -> list[dict[str, Any]]:
    """Return the stored calls, in the order in which they were recorded."""
    lake.calls.settle()
    return sorted(lake.tables.read(MODEL_CALLS).to_pylist(), key=lambda row: str(row["id"]))


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_leaves_in_a_request_or_is_stored_of_an_answer(
    lake: Lake, server: OpenAIServer, executor: LlmExecutor
) -> None:
    secret, other = SECRETS["github-token"], SECRETS["stripe-key"]
    server.answer = lambda body: f"{body['messages'][1]['content']}, and {other}"
    answer = ask(executor, f"Use {secret}.")
    endpoint = executor.configuration.embedding
    executor.embed(endpoint, [f"Use {secret}."], [Use(ACME, HOUR)])
    assert len(server.requests) == 2
    assert not any(secret in json.dumps(request.body) for request in server.requests)
    assert kinds_in(answer) == {"github-token", "stripe-key"}
    lake.calls.settle()
    assert places_of(lake, [secret, other]) == {}
    assert ask(executor_of(Lake(lake.storage.uri), server), f"Use {secret}.") == answer


def test_a_workspace_may_send_secrets(lake: Lake, server: OpenAIServer) -> None:
    executor = executor_of(lake, server, "workspaces: {acme: {secrets: {redact: 'off'}}}")
    assert ask(executor, "password: hunter2") == "you said password: hunter2"


# --- once ------------------------------------------------------------------------------------------------------------


def test_a_question_is_sent_once_across_processes(lake: Lake, server: OpenAIServer, executor: LlmExecutor) -> None:
    first = executor.complete(question(executor), str)
    assert first.value == "you said hello"
    assert executor.complete(question(executor), str) == first
    other = Lake(lake.storage.uri)
    assert executor_of(other, server).complete(question(executor), str) == first
    other.calls.settle()  # now it is in the table
    assert executor_of(Lake(lake.storage.uri), server).complete(question(executor), str) == first
    assert len(server.requests) == 1
    assert first.tokens_in == 3  # "Echo.hello", as the server counts
    assert first.cost == pytest.approx((first.tokens_in + 2 * first.tokens_out) / 1e6)


def test_threads_with_one_question_send_one_request(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.latency = 0.2
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: ask(executor), range(8))) == {"you said hello"}
    assert len(server.requests) == 1


def test_each_waiting_thread_tries_after_the_previous_one_failed(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.latency = 0.05
    server.faults = [Fault("401", times=2)]

    def outcome(_: int) -> str:
        try:
            return ask(executor)
        except ModelError as error:
            return error.trouble

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(outcome, range(4))) == ["refused", "refused", "you said hello", "you said hello"]
    assert len(server.requests) == 3


def test_an_answer_stored_between_look_up_and_lease_is_found(
    lake: Lake, server: OpenAIServer, executor: LlmExecutor
) -> None:
    """Another process may store the answer between this one's look-up and its lease."""
    other = Lake(lake.storage.uri)
    claim = lake.calls.claim

    def claim_late(key: str, lease: timedelta) -> bool:
        ask(executor_of(other, server))
        return claim(key, lease)

    store: Any = lake.calls
    store.claim = claim_late
    assert ask(executor) == "you said hello"
    assert len(server.requests) == 1


def test_agents_do_not_share_answers(server: OpenAIServer, executor: LlmExecutor) -> None:
    for scope in (ACME, replace(ACME, agent_id="sales"), GLOBEX):
        assert ask(executor, scope=scope) == "you said hello"
    assert len(server.requests) == 3


def test_the_key_covers_everything_that_determines_the_answer(executor: LlmExecutor) -> None:
    base = question(executor)
    endpoint = base.endpoint

    def at(**changes: Any) -> LlmRequest:
        return replace(base, endpoint=endpoint.model_copy(update=changes))

    others = [
        replace(base, use=Use(GLOBEX, HOUR)),
        replace(base, use=Use(ACME, HOUR.next())),
        replace(base, prompt_version="test-2"),
        replace(base, system="Echo!"),
        replace(base, user="hallo"),
        replace(base, schema={"type": "object"}),
        replace(base, length=200),
        at(model="openai/n"),
        at(api_base="http://127.0.0.1:1/v1"),
        at(parameters={"seed": 1}),
        at(temperature=0.5),
        at(max_output_tokens=1_000),
        at(answer_format="text"),
    ]
    assert len({base.key, *(other.key for other in others)}) == len(others) + 1
    same = [at(timeout_seconds=1.0), at(attempts=1), at(backoff_seconds=2.0), at(api_key="env:OTHER"), at(price=None)]
    assert {other.key for other in same} == {base.key}


def test_a_stored_answer_that_fails_current_checks_is_requested_again(
    server: OpenAIServer, executor: LlmExecutor
) -> None:
    ask(executor)

    def read(text: str) -> str:
        if text.endswith("hello"):
            raise InvalidAnswerError("it is out of date")
        return text

    server.answer = lambda body: "a new one"
    assert executor.complete(question(executor), read).value == "a new one"


def test_without_a_store_nothing_is_stored(server: OpenAIServer) -> None:
    executor = executor_of(None, server)
    assert [ask(executor), ask(executor)] == ["you said hello"] * 2
    assert executor.embed(executor.configuration.embedding, ["a text"], ()).shape == (1, 16)
    assert len(server.requests) == 3


def test_a_models_name_covers_what_determines_its_answers(executor: LlmExecutor) -> None:
    endpoint = executor.configuration.embedding
    assert identity_of(endpoint.model_copy(update={"api_base": None})) == "openai/v"
    names = {
        identity_of(endpoint.model_copy(update=changes))
        for changes in ({}, {"api_base": "http://127.0.0.1:1"}, {"parameters": {"user": "u"}}, {"api_base": None})
    }
    assert len(names) == 4
    assert identity_of(endpoint.model_copy(update={"api_key": "env:X", "timeout_seconds": 1.0})) in names


# --- retries ---------------------------------------------------------------------------------------------------------


def test_retry_after_is_respected(lake: Lake, server: OpenAIServer, executor: LlmExecutor) -> None:
    server.faults = [Fault("429", retry_after=0.5), Fault("503", retry_after=0.3)]
    assert ask(executor) == "you said hello"
    first, second, third = (request.received_at for request in server.requests)
    assert 0.5 <= second - first < 8
    assert 0.3 <= third - second < 8
    assert [call["outcome"] for call in calls_of(lake)] == ["rate_limited", "unavailable", "ok"]


def test_a_long_retry_after_is_not_waited_for(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.faults = [Fault("429", retry_after=600)]
    started = time.monotonic()
    assert trouble(executor) == Trouble.RATE_LIMITED
    assert time.monotonic() - started < 3
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("500", "unavailable"), ("reset", "unavailable"), ("429", "rate_limited"), ("hang", "timeout")],
)
def test_attempts_are_limited_and_each_is_stored(lake: Lake, server: OpenAIServer, kind: str, expected: str) -> None:
    server.faults = [Fault(kind, times=None, retry_after=0.01)]
    assert trouble(executor_of(lake, server, timeout_seconds=0.2)) == expected
    assert len(server.requests) == 3
    calls = calls_of(lake)
    assert [call["outcome"] for call in calls] == [expected] * 3
    assert {(call["tokens_in"], call["tokens_out"], call["cost"]) for call in calls} == {(0, 0, None)}
    assert lake.tables.read(ANSWERS).num_rows == 0
    if kind == "hang":
        assert all(0.15 < call["seconds"] < 2 for call in calls)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("401", "refused"), ("404", "refused"), ("policy", "refused"), ("quota", "refused"), ("filtered", "refused"),
     ("context_length", "too_long"), ("refusal", "invalid")],
)  # fmt: skip
def test_permanent_failures_are_not_retried(lake: Lake, server: OpenAIServer, kind: str, expected: str) -> None:
    server.faults = [Fault(kind, times=None)]
    assert trouble(executor_of(lake, server)) == expected
    [call] = calls_of(lake)
    assert call["outcome"] == expected
    assert len(server.requests) == 1


def test_waits_between_attempts_grow_up_to_a_limit(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(LlmExecutor, "_pause", lambda self, seconds: waits.append(seconds))
    server.faults = [Fault("408", times=None)]
    executor = executor_of(lake, server, attempts=10, backoff_seconds=2.0)
    for number in range(3):
        trouble(executor, str(number))
    tries = [waits[start : start + 9] for start in (0, 9, 18)]
    assert len(waits) == 27
    for nth, most in enumerate([2.0, 4.0, 8.0, 16.0, *[30.0] * 5]):
        assert all(0 <= one[nth] <= most for one in tries)
    assert sum(sum(one[4:]) for one in tries) > sum(sum(one[:2]) for one in tries)
    assert len(set(waits)) == 27  # with jitter


# --- invalid answers -------------------------------------------------------------------------------------------------


def good(text: str) -> str:
    """Accept one answer only."""
    if text != "good":
        raise InvalidAnswerError(f"it is {text}, {{not}} good")
    return text


def test_an_invalid_answer_is_corrected_once_with_the_error(
    lake: Lake, server: OpenAIServer, executor: LlmExecutor
) -> None:
    replies = iter(["bad {0}", "good"])
    server.answer = lambda body: next(replies)
    server.cost_per_call = 0.25
    answered = executor.complete(question(executor), good)
    first, second = (request.body["messages"] for request in server.requests)
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first
    assert second[2]["content"] == "bad {0}"
    assert "it is bad {0}, {not} good" in second[3]["content"]
    calls = calls_of(lake)
    assert [call["outcome"] for call in calls] == ["invalid", "ok"]
    assert [call["cost"] for call in calls] == [0.25, 0.25]
    assert all(call["tokens_in"] > 0 and call["tokens_out"] > 0 for call in calls)
    # The answer has the tokens of all its requests.
    assert (answered.value, answered.cost) == ("good", 0.5)
    assert answered.tokens_in == sum(call["tokens_in"] for call in calls)
    assert answered.tokens_out == sum(call["tokens_out"] for call in calls)
    assert executor.complete(question(executor), good) == answered


def test_a_second_invalid_answer_ends_the_question_and_is_paid_for(
    lake: Lake, server: OpenAIServer, executor: LlmExecutor
) -> None:
    server.answer = lambda body: "bad"
    with pytest.raises(ModelError, match="openai/m returned no valid answer: it is bad") as caught:
        executor.complete(question(executor), good)
    assert caught.value.trouble == Trouble.INVALID
    assert len(server.requests) == 2
    calls = calls_of(lake)
    assert [call["outcome"] for call in calls] == ["invalid", "invalid"]
    assert sum(call["cost"] for call in calls) == pytest.approx(lake.calls.spent("acme", "2026-01").cost)
    server.answer = lambda body: "good"
    assert executor.complete(question(executor), good).value == "good"


def test_a_correction_is_retried_like_any_request(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.answer = lambda body: "good" if len(body["messages"]) == 4 else "bad"
    server.faults = [Fault("500", match="could not be used", times=2)]
    assert executor.complete(question(executor), good).value == "good"
    assert [len(request.body["messages"]) for request in server.requests] == [2, 4, 4, 4]


def test_a_correction_repeats_only_the_start_of_a_cut_off_answer(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.faults = [Fault("length")]
    server.answer = lambda body: "x" * 9_000 if len(body["messages"]) == 2 else "good"
    assert executor.complete(question(executor), str).value == "good"
    correction = server.requests[1].body["messages"]
    assert correction[2]["content"] == "x" * 1_000
    assert "cut off" in correction[3]["content"]


def test_lone_surrogates_are_neither_stored_nor_sent_back(
    lake: Lake, executor: LlmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Sequence[Any]] = []

    def complete(endpoint: object, messages: Sequence[Any], schema: object, **named: object) -> Answered[str]:
        sent.append(list(messages))
        return Answered("half \ud83d", 1, 1, 0.0)

    monkeypatch.setattr(litellm_client, "complete", complete)
    seen: list[str] = []

    def read(text: str) -> str:
        seen.append(text)
        if len(seen) < 5:
            raise InvalidAnswerError("no")
        return text

    with pytest.raises(ModelError):
        executor.complete(question(executor), read)
    json.dumps(sent, ensure_ascii=False).encode()
    seen += ["", "", ""]
    assert executor.complete(question(executor), read).value == "half ?"
    assert executor.complete(question(executor), read).value == "half ?"


# --- vectors ---------------------------------------------------------------------------------------------------------

USES = [Use(scope, hour) for scope in (ACME, GLOBEX) for hour in (HOUR, HOUR.next())]


def test_a_batch_is_sent_once_and_keeps_its_order(lake: Lake, server: OpenAIServer, executor: LlmExecutor) -> None:
    texts, uses = [f"text {number}" for number in range(8)], USES * 2
    server.faults = [Fault("reorder")]
    vectors = executor.embed(executor.configuration.embedding, texts, uses)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    again = executor_of(Lake(lake.storage.uri), server).embed(executor.configuration.embedding, texts, uses)
    assert np.array_equal(again, vectors)
    assert again.dtype == np.float32
    assert len(server.requests) == 1
    single = executor.embed(executor.configuration.embedding, texts[5:6], uses[:1])
    assert np.allclose(single[0], vectors[5], atol=1e-6)


def test_shares_of_a_request_add_up_to_the_whole(lake: Lake, server: OpenAIServer, executor: LlmExecutor) -> None:
    rng = np.random.default_rng(0)
    wanted: dict[str, int] = {}
    for number in range(12):
        texts = [f"{number} {'x' * int(length)}" for length in rng.integers(0, 400, rng.integers(1, 12))]
        uses = [USES[place] for place in rng.integers(0, len(USES), len(texts))]
        executor.embed(executor.configuration.embedding, texts, uses)
        wanted[embedding_key(executor.configuration.embedding, texts)] = -(-len("".join(texts).encode()) // 4)
    calls = calls_of(lake)
    assert {call["key"] for call in calls} == set(wanted)
    for key, tokens in wanted.items():
        shares = [call for call in calls if call["key"] == key]
        assert sum(call["tokens_in"] for call in shares) == tokens
        assert sum(call["cost"] for call in shares) == pytest.approx(tokens * 0.5e-6)
        assert len({call["request_id"] for call in shares}) == 1
        assert len({(call["workspace_id"], call["period"]) for call in shares}) == len(shares)
        assert min(call["seconds"] for call in shares) > 0
    spent = [lake.calls.spent(scope.workspace_id, "2026-01").cost or 0 for scope in (ACME, GLOBEX)]
    assert sum(spent) == pytest.approx(sum(wanted.values()) * 0.5e-6)


@given(st.lists(st.tuples(st.text(max_size=50), st.sampled_from(USES)), min_size=1))
def test_shares_are_proportional_to_length_and_complete(batch: list[tuple[str, Use]]) -> None:
    texts, uses = [text for text, _ in batch], [use for _, use in batch]
    shares = shares_of(texts, uses)
    assert {share.use for share in shares} == set(uses)
    assert sum(share.texts for share in shares) == len(texts)
    assert sum(share.weight for share in shares) == pytest.approx(1)
    assert all(share.weight > 0 for share in shares)
    assert shares_of(texts, ()) == []


def test_the_key_of_vectors_covers_model_dimension_and_texts(executor: LlmExecutor) -> None:
    endpoint = executor.configuration.embedding
    other = endpoint.model_copy(update={"dimension": 32})
    keys = [embedding_key(endpoint, texts) for texts in (["a", "b"], ["b", "a"], ["ab"], ["a"])]
    assert len({*keys, embedding_key(other, ["a", "b"])}) == 5


# --- servers that are down -------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the breaker sees; `value` may be set."""
    now = SimpleNamespace(value=1_000.0)
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: now.value))
    return now


def test_a_server_that_is_down_gets_one_request_per_cool_down(
    lake: Lake, server: OpenAIServer, now: SimpleNamespace
) -> None:
    executor = executor_of(lake, server, attempts=2)
    server.faults = [Fault("500", times=None)]
    assert {trouble(executor, f"question {number}") for number in range(10)} == {"unavailable"}
    assert len(server.requests) == 4 * 2
    assert len(calls_of(lake)) == 4 * 2  # requests that were not sent are not stored
    with pytest.raises(ModelError, match="last requests all failed"):
        ask(executor, "question 10")
    now.value += 31
    assert [trouble(executor, f"question {number}") for number in (11, 12)] == ["unavailable"] * 2
    assert len(server.requests) == 4 * 2 + 1  # one trial request
    server.faults = []
    now.value += 31
    assert ask(executor, "question 13") == "you said question 13"
    assert ask(executor, "question 14") == "you said question 14"


def test_refused_requests_do_not_open_the_circuit_breaker(lake: Lake, server: OpenAIServer) -> None:
    """Otherwise a few texts that a provider's filter refuses would block all others, in every run."""
    executor = executor_of(lake, server)
    server.faults = [Fault("policy", match="dislike", times=None), Fault("context_length", match="long", times=None)]
    for number in range(6):
        assert trouble(executor, f"dislike {number}") == "refused"
        assert trouble(executor, f"long {number}") == "too_long"
    assert ask(executor) == "you said hello"


def test_each_key_has_its_own_circuit_breaker(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOBEX_KEY", "sk-globex-0123456789")
    executor = executor_of(lake, server, rest="workspaces: {globex: {completion: {api_key: env:GLOBEX_KEY}}}")
    server.faults = [Fault("429", match="acme", times=None, retry_after=0.01)]
    for number in range(6):
        trouble(executor, f"acme {number}")
    assert len(server.requests) == 4 * 3
    assert ask(executor, "globex", GLOBEX) == "you said globex"


# --- concurrency -----------------------------------------------------------------------------------------------------


def test_tasks_run_up_to_max_concurrency_and_keep_their_order(server: OpenAIServer, executor: LlmExecutor) -> None:
    barrier = threading.Barrier(8, timeout=20)

    def answer(body: dict[str, Any]) -> str:
        barrier.wait()  # until as many are running
        return str(body["messages"][1]["content"])

    server.answer = answer
    assert executor.gather([partial(ask, executor, str(number)) for number in range(32)]) == [str(n) for n in range(32)]
    assert server.peak == 8
    assert executor.gather([]) == []


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_in_a_task_is_raised_and_cancels_the_rest(executor: LlmExecutor, error: BaseException) -> None:
    begun: list[int] = []

    def task(number: int) -> int:
        begun.append(number)
        if number == 3:
            raise error
        time.sleep(0.05)
        return number

    with pytest.raises(type(error)) as caught:
        executor.gather([partial(task, number) for number in range(200)])
    assert caught.value is error
    assert len(begun) < 40
    count = len(begun)
    time.sleep(0.1)
    assert len(begun) == count  # no task is still running


def test_an_interrupt_ends_waits_at_once(server: OpenAIServer, executor: LlmExecutor) -> None:
    server.faults = [Fault("429", match="wait", times=None, retry_after=60)]
    outcomes: list[str] = []

    def wait(number: int) -> None:
        try:
            ask(executor, f"wait {number % 2}")  # some wait for the server, some for each other
        except ModelError as error:
            outcomes.append(str(error))
            raise

    def interrupt() -> None:
        while len(server.requests) < 2:
            time.sleep(0.01)
        time.sleep(0.2)
        raise KeyboardInterrupt

    tasks: list[Callable[[], None]] = [interrupt, *(partial(wait, number) for number in range(5))]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executor.gather(tasks)
    assert time.monotonic() - started < 5
    assert outcomes == ["the run was stopped"] * 5
    server.faults = [Fault("429", retry_after=0.05)]
    assert executor.gather([lambda: ask(executor, "after that")]) == ["you said after that"]


# --- keys and logs ---------------------------------------------------------------------------------------------------


def test_a_missing_key_is_an_error_that_names_it(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ACME_MISSING_KEY", raising=False)
    keys = "{completion: {api_key: env:ACME_MISSING_KEY}, embedding: {api_key: env:ACME_MISSING_KEY}}"
    executor = executor_of(lake, server, rest=f"workspaces: {{acme: {keys}}}")
    for number in range(5):
        with pytest.raises(ModelError, match=r"ACME_MISSING_KEY.*the variable is not set") as caught:
            ask(executor, str(number))
        assert caught.value.trouble == Trouble.REFUSED
        executor.log_failure(caught.value)
    with pytest.raises(ModelError, match="ACME_MISSING_KEY"):
        executor.embed(executor.configuration.embedding, ["a"], USES[:1])
    assert server.requests == []
    assert calls_of(lake) == []
    assert caplog.text.count("ACME_MISSING_KEY") == 1
    assert ask(executor, scope=GLOBEX) == "you said hello"
    monkeypatch.setenv("ACME_MISSING_KEY", "sk-now-it-is-there")
    assert ask(executor) == "you said hello"
    assert server.requests[-1].headers["Authorization"] == "Bearer sk-now-it-is-there"


def test_the_same_failure_is_logged_once(executor: LlmExecutor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for text in ("down", "down", "odd", "down"):
            executor.log_failure(ModelError(Trouble.UNAVAILABLE, text))
        executor.log_failure(ModelError(Trouble.TIMEOUT, "down"))
    assert [record.getMessage() for record in caplog.records] == [
        "model call failed, unavailable: down",
        "model call failed, unavailable: odd",
        "model call failed, timeout: down",
    ]


def test_requests_log_and_print_nothing(
    server: OpenAIServer, executor: LlmExecutor, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.faults = [Fault("500"), Fault("429", retry_after=0.01), Fault("401", after=1)]
    with caplog.at_level(logging.INFO):
        ask(executor, "one")
        trouble(executor, "two")
        executor.embed(executor.configuration.embedding, ["a text"], USES[:1])
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")


def test_keys_appear_nowhere(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"ACME_KEY": "zq-acme-0123456789", "GLOBEX_KEY": "globex.key'with\"marks/9"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    sections = (f"{name}: {{completion: {{api_key: env:{name.upper()}_KEY}}}}" for name in ("acme", "globex"))
    executor = executor_of(lake, server, rest=f"workspaces: {{{', '.join(sections)}}}")
    told = []
    for scope in (ACME, GLOBEX):
        server.faults = [Fault("leak")]
        with pytest.raises(ModelError) as caught:
            ask(executor, scope=scope)
        executor.log_failure(caught.value)
        told.append(repr(caught.value.args) + repr(caught.value.__cause__) + repr(caught.value.__context__))
        assert ask(executor, scope=scope) == "you said hello"
    assert len({request.headers["Authorization"] for request in server.requests}) == 2
    files = [path.read_bytes() for path in Path(lake.storage.uri).rglob("*") if path.is_file()]
    calls_of(lake)
    files += [path.read_bytes() for path in Path(lake.storage.uri).rglob("*") if path.is_file()]
    for key in keys.values():
        assert key not in caplog.text
        assert not any(key in text for text in told)
        assert not any(key.encode() in data for data in files)
    assert "Incorrect API key" in caplog.text


def test_keys_are_looked_up_concurrently(lake: Lake, server: OpenAIServer, tmp_path: Path) -> None:
    agents = {f"a{number}": tmp_path / f"key{number}" for number in range(60)}
    for name, path in agents.items():
        path.write_text(f"sk-{name}-0123456789")
    sections = ", ".join(f"{name}: {{completion: {{api_key: 'file:{path}'}}}}" for name, path in agents.items())
    executor = executor_of(lake, server, rest=f"workspaces: {{acme: {{agents: {{{sections}}}}}}}")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda name: ask(executor, name, Scope("acme", name)), agents))
    assert answers == [f"you said {name}" for name in agents]
    sent = {request.body["messages"][1]["content"]: request.headers["Authorization"] for request in server.requests}
    assert sent == {name: f"Bearer sk-{name}-0123456789" for name in agents}

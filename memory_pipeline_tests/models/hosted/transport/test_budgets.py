"""Budgets and the circuit breaker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.facts import ConversationHour
from memory_pipeline.domain.model_calls import Kind, Purpose, Trouble, Usage, Use
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.errors import ModelError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import configured_models
from memory_pipeline.models.hosted.transport import budgets as limits
from memory_pipeline.models.hosted.transport.budgets import Budgets, CircuitBreaker, Hold
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError, LlmRequest
from memory_pipeline.models.local import LocalEmbedder
from memory_pipeline_tests.building import ACME, NOW, START, conversation
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline.domain.model_calls import CallStore, Payer

HOUR = Period.parse("working", "2024-01-15T08")
MODEL = """
defaults:
  max_concurrency: 32
  completion: {{model: openai/m, api_base: "{url}", attempts: 1, max_output_tokens: 1000{price}}}
  embedding: {{model: openai/v, api_base: "{url}", dimension: 16, attempts: 4, backoff_seconds: 0.01{price}}}
  budget: {{{budget}}}
"""
#: A question below costs 11 cents at most, 10 of them for its answer.
PRICE = ", price: {input: 100.0, output: 100.0}"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = lambda body: "x" * 4_000  # as long as it may be
        yield server


def configuration(budget: str, *, url: str = "http://127.0.0.1:9/v1", price: str = PRICE) -> Configuration:
    return Configuration.parse(MODEL.format(url=url, price=price, budget=budget), "test")


def question(executor: LlmExecutor, number: object, scope: Scope = ACME) -> LlmRequest:
    settings = executor.configuration.extraction(scope)
    system = f"Is {number} a number?".ljust(320)  # 80 tokens, and a margin of a quarter
    return LlmRequest(Use(scope, HOUR), Purpose.EXTRACTION, settings, "test-1", system, "", {}, "test", (1,))


def ask(executor: LlmExecutor, number: object, scope: Scope = ACME) -> str:
    """Ask a question; return the outcome."""
    try:
        return executor.complete(question(executor, number, scope), lambda text: "answered").value
    except ModelError as error:
        return error.trouble


class Ledger:
    """A call store that has only the amount spent and the lengths of answers."""

    def __init__(self, spent: Usage | None = None, answered: Usage | None = None) -> None:
        self.usage = {("acme", "2026-01"): spent or Usage()}
        self.lengths = answered or Usage()

    def spent(self, workspace_id: str, month: str, *, look: bool = False) -> Usage:
        return self.usage.get((workspace_id, month), Usage())

    def answered(self, kind: Kind, month: str) -> Usage:
        return self.lengths

    def claim(self, key: str, lease: timedelta) -> bool:
        return True

    def release(self, key: str) -> None:
        pass


KIND = Kind(Purpose.EXTRACTION, "openai/m", "test-1")
#: Answers of one kind with a hundred tokens each.
SHORT = Usage(calls=20, tokens_out=2_000)


class WaitedError(Exception):
    """There was no room beside the requests in flight."""


def budgets(
    text: str, spent: Usage | None = None, answered: Usage | None = None, *, price: str = PRICE, now: datetime = NOW
) -> Budgets:
    store: CallStore = Ledger(spent, answered)  # type: ignore[assignment]  # budgets use no more of it
    return Budgets(configuration(text, price=price), store, lambda: now)


@contextmanager
def reserved(kept: Budgets, tokens_in: int, most: int, payer: Payer = "acme", price: str = PRICE) -> Iterator[Hold]:
    """Reserve the cost of a request while the block runs."""
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 1:  # the first wait may be for the process's turn
            raise WaitedError

    endpoint = configuration("tokens_per_month: 1", price=price).extraction(ACME)
    with kept.hold(payer, endpoint, KIND) as hold:
        kept.reserve(payer, hold, tokens_in, most, pause)
        yield hold


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "cost"), [("usd_per_month: 1.0", 0.1), ("tokens_per_month: 10000", None)])
def test_32_threads_do_not_overspend(lake: Lake, server: OpenAIServer, budget: str, cost: float | None) -> None:
    server.cost_per_call = cost
    server.latency = 0.02
    executor = LlmExecutor(configuration(budget, url=server.base_url), lake.calls, lambda: NOW)
    with ThreadPoolExecutor(32) as pool:
        outcomes = list(pool.map(lambda number: ask(executor, number), range(96)))
    assert set(outcomes) == {"answered", "budget"}
    answered = outcomes.count("answered")
    assert answered == server.counts["path chat"] == 9  # one more is expected to exceed the budget
    spent = lake.calls.spent("acme", "2026-01")
    assert spent.calls == answered
    if cost:
        assert spent.cost == pytest.approx(0.9)
    else:
        assert 9_000 <= spent.tokens_in + spent.tokens_out <= 10_000
    # Refused and finished requests leave no reservation, and nothing more is sent.
    assert ask(executor, 1_000) == "budget"
    assert server.counts["path chat"] == answered
    assert ask(executor, 1_000, Scope("globex", "support")) == "answered"


@pytest.mark.parametrize("limit", [600, 4_000])
def test_short_answers_use_up_a_budget_with_any_number_of_threads(lake: Lake, server: OpenAIServer, limit: int) -> None:
    """The longest allowed answer has 1,000 tokens; these have 20 to 60."""
    server.answer = lambda body: "x" * (80 + len(body["messages"][0]["content"].partition("?")[0]) % 5 * 40)
    server.latency = 0.01
    executor = LlmExecutor(configuration(f"tokens_per_month: {limit}", url=server.base_url), lake.calls, lambda: NOW)
    with ThreadPoolExecutor(32) as pool:
        outcomes = list(pool.map(lambda number: ask(executor, 10**number), range(250)))
    spent = lake.calls.spent("acme", "2026-01")
    assert outcomes.count("answered") == spent.calls
    assert "budget" in outcomes
    # One more question has about 100 tokens plus a margin; each one sent takes at most 40 more than expected.
    assert limit - 200 < spent.tokens_in + spent.tokens_out < limit + 32 * 40


def test_two_processes_share_a_budget(lake: Lake, server: OpenAIServer) -> None:
    server.answer = lambda body: "x" * 200
    server.latency = 0.01
    limit = configuration("tokens_per_month: 4000", url=server.base_url)
    executors = [LlmExecutor(limit, Lake(lake.storage.uri).calls, lambda: NOW) for _ in range(2)]
    with ThreadPoolExecutor(16) as pool:
        outcomes = set(pool.map(lambda number: ask(executors[number % 2], number), range(80)))
    assert outcomes == {"answered", "budget"}
    spent = Lake(lake.storage.uri).calls.spent("acme", "2026-01")
    assert spent.calls == server.counts["path chat"]
    assert 3_700 < spent.tokens_in + spent.tokens_out <= 4_000


def test_failed_requests_release_their_reservation(lake: Lake, server: OpenAIServer) -> None:
    server.answer = lambda body: "x" * 200
    server.faults = [Fault("500", times=20)]
    executor = LlmExecutor(configuration("tokens_per_month: 1300", url=server.base_url), lake.calls, lambda: NOW)
    outcomes = [ask(executor, number) for number in range(3)]
    server.reset()
    assert outcomes == ["unavailable"] * 3
    assert [ask(executor, number) for number in range(4)] == ["answered"] * 4


def test_unusable_answers_count_towards_the_budget(lake: Lake, server: OpenAIServer) -> None:
    """Vectors of a wrong length cost as much as others, and are requested again until the budget is spent."""
    server.cost_per_call = 0.001
    server.faults = [Fault("wrong_dims", times=None)]
    # 10 tokens plus a margin: $0.0012 each.
    executor = LlmExecutor(configuration("usd_per_month: 0.0029", url=server.base_url), lake.calls, lambda: NOW)
    with pytest.raises(ModelError) as caught:
        executor.embed(executor.configuration.embedding, ["x" * 40], [Use(ACME, HOUR)])
    assert caught.value.trouble == Trouble.BUDGET
    assert server.counts["path embeddings"] == 2
    assert lake.calls.spent("acme", "2026-01").cost == pytest.approx(0.002)


def test_a_correction_is_paid_for_too(lake: Lake, server: OpenAIServer) -> None:
    def read(text: str) -> str:
        raise InvalidAnswerError("it is wrong")

    executor = LlmExecutor(configuration("tokens_per_month: 2000", url=server.base_url), lake.calls, lambda: NOW)
    with pytest.raises(ModelError) as caught:
        executor.complete(question(executor, 1), read)
    # It took 1,080; one more would exceed the budget.
    assert (caught.value.trouble, server.counts["path chat"]) == (Trouble.BUDGET, 1)
    assert lake.calls.spent("acme", "2026-01").tokens_in > 0


@pytest.mark.parametrize(
    ("budget", "spent", "tokens", "is_allowed"),
    [
        ("tokens_per_month: 1000", Usage(), (900, 1_000), True),  # 100 of them for answers
        ("tokens_per_month: 1000", Usage(), (901, 1_000), False),
        ("tokens_per_month: 1000", Usage(), (950, 50), True),
        ("tokens_per_month: 1000", Usage(), (1_000, 0), True),
        ("tokens_per_month: 1000", Usage(1, 500, 350), (50, 1_000), True),
        ("tokens_per_month: 1000", Usage(1, 500, 350), (51, 1_000), False),
        ("tokens_per_month: 0", Usage(), (1, 0), False),
        ("usd_per_month: 1.0", Usage(1, 5, 5, 0.5), (4_900, 9_000), True),
        ("usd_per_month: 1.0", Usage(1, 5, 5, 0.5), (4_901, 9_000), False),
        ("usd_per_month: 1.0", Usage(1, 5, 5, None), (5_000, 5_000), True),
        ("usd_per_month: 1.0, tokens_per_month: 100", Usage(), (10, 1_000), False),
    ],
)
def test_a_request_expected_to_exceed_the_budget_is_refused(
    budget: str, spent: Usage, tokens: tuple[int, int], is_allowed: bool
) -> None:
    kept = budgets(budget, spent, SHORT)
    if is_allowed:
        with reserved(kept, *tokens):
            pass
    else:
        with pytest.raises(ModelError, match=r"budget of workspace acme for 2026-01") as caught:
            reserved(kept, *tokens).__enter__()
        assert caught.value.trouble == Trouble.BUDGET


def test_a_refusal_reports_spent_reserved_and_expected_amounts() -> None:
    kept = budgets("tokens_per_month: 2000", Usage(3, 1_000, 250), SHORT)
    with reserved(kept, 400, 1_000), pytest.raises(ModelError) as caught:
        reserved(kept, 700, 1_000).__enter__()
    assert [figure in str(caught.value) for figure in ("2,000", "1,250", "500", "800")] == [True] * 4
    with pytest.raises(ModelError) as again:
        reserved(kept, 900, 1_000).__enter__()
    assert str(again.value) == str(caught.value)  # the log has it once


def test_users_and_groups_have_budgets_of_their_own() -> None:
    anna, team = (Scope("acme", "support", identity, "0" * 32) for identity in ("user:anna", "group:team"))
    kept = budgets("tokens_per_user: 1000", answered=SHORT)
    with reserved(kept, 900, 1_000, anna), reserved(kept, 900, 1_000, team), reserved(kept, 9_000, 1_000):
        with pytest.raises(WaitedError):
            reserved(kept, 100, 1_000, anna).__enter__()
        with pytest.raises(ModelError, match="the budget of acme/support/user:anna for 2026-01, 1,000 tokens"):
            reserved(kept, 950, 1_000, anna).__enter__()


def test_a_users_calls_count_for_the_user_and_the_workspace(tmp_path: Path, server: OpenAIServer) -> None:
    lake = Lake(str(tmp_path / "lake"))
    lake.ensure()
    anna, ben = (lake.scope("acme", "support", f"user:{user}") for user in ("anna", "ben"))
    for limit, asked in (("tokens_per_user: 1500", 1), ("tokens_per_user: 2500", 1), ("tokens_per_user: 1", 0)):
        executor = LlmExecutor(configuration(limit, url=server.base_url), lake.calls, lambda: NOW)
        for scope in (anna, ben):
            numbers = [f"{limit} {number} {scope}" for number in range(3)]
            outcomes = [ask(executor, number, scope) for number in numbers]
            assert outcomes.count("answered") == asked, (limit, outcomes)
        lake.calls.settle()
    spent = [lake.calls.spent(payer, "2026-01", look=True).calls for payer in (anna, ben, "acme")]
    assert spent == [2, 2, 4]
    assert Lake(lake.storage.uri).calls.spent(anna, "2026-01").calls == 2


def test_the_first_question_of_a_kind_needs_room_for_one_token_of_an_answer() -> None:
    """The length of its answer is unknown: the longest one is reserved, or all that is left."""
    kept = budgets("tokens_per_month: 1000", Usage(1, 500, 0))
    with reserved(kept, 100, 300), pytest.raises(WaitedError), reserved(kept, 100, 1):
        pass
    with reserved(kept, 100, 50), reserved(kept, 100, 50):
        pass
    with reserved(kept, 100, 4_000), pytest.raises(WaitedError):
        reserved(kept, 1, 1).__enter__()
    with pytest.raises(ModelError):
        reserved(kept, 500, 4_000).__enter__()


def test_reservations_count_until_the_question_ends() -> None:
    kept = budgets("tokens_per_month: 1000")
    with ExitStack() as stack:
        stack.enter_context(reserved(kept, 600, 0))
        stack.enter_context(reserved(kept, 900, 0, "globex"))
        with pytest.raises(WaitedError):
            reserved(kept, 401, 0).__enter__()
        with pytest.raises(KeyError), reserved(kept, 400, 0):
            raise KeyError
        stack.enter_context(reserved(kept, 400, 0))
    with reserved(kept, 1_000, 0):
        pass


def test_the_actual_cost_replaces_the_reservation() -> None:
    kept = budgets("tokens_per_month: 1000")
    with reserved(kept, 600, 0) as hold:
        kept.settle(hold, 100, 100, None)
        with reserved(kept, 800, 0):
            pass
        with pytest.raises(ModelError):  # no other request to wait for
            reserved(kept, 801, 0).__enter__()


def test_each_month_has_its_own_budget() -> None:
    spent = Usage(1, 1_000, 0)
    with pytest.raises(ModelError):
        reserved(budgets("tokens_per_month: 1000", spent), 1, 0).__enter__()
    next_month = datetime(2026, 2, 1, tzinfo=UTC)
    with reserved(budgets("tokens_per_month: 1000", spent, now=next_month), 1_000, 0):
        pass


def test_dollars_without_a_price_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        ModelError, match=r"price of openai/m is unknown; set its price .* or a budget in tokens"
    ) as caught:
        reserved(budgets("usd_per_month: 5", price=""), 1, 1, price="").__enter__()
    assert caught.value.trouble == Trouble.BUDGET
    with reserved(budgets("tokens_per_month: 5", price=""), 1, 1, price=""):
        pass  # tokens need no price


def test_a_price_per_request_is_reserved() -> None:
    price = ", price: {input: 0, request: 0.1}"
    kept = budgets("usd_per_month: 1", Usage(1, 0, 0, 0.9), price=price)
    with reserved(kept, 10, 0, price=price), pytest.raises(WaitedError):
        reserved(kept, 10, 0, price=price).__enter__()
    with pytest.raises(ModelError, match=r"\$0\.1 expected"):
        reserved(budgets("usd_per_month: 1", Usage(1, 0, 0, 0.95), price=price), 10, 0, price=price).__enter__()


def test_the_price_list_applies_without_a_configured_price() -> None:
    text = "defaults: {completion: {model: openai/gpt-4o-mini}, budget: {usd_per_month: 1}}"
    known = Configuration.parse(text, "test")
    ledger: CallStore = Ledger(Usage(1, 1, 1, 0.75))  # type: ignore[assignment]  # as above
    kept = Budgets(known, ledger, lambda: NOW)
    with kept.hold("acme", known.extraction(ACME), KIND) as hold:
        kept.reserve("acme", hold, 1_600_000, 0)  # 24 cents
        kept.settle(hold, 0, 0, 0.0)
        with pytest.raises(ModelError, match=r"\$1, "):
            kept.reserve("acme", hold, 1_700_000, 0)


@pytest.mark.parametrize(
    ("when_spent", "waits"), [("", False), (", when_spent: fall_back", False), (", when_spent: wait", True)]
)
def test_when_spent_selects_waiting_or_rules(when_spent: str, waits: bool) -> None:
    kept = budgets(f"tokens_per_month: 1{when_spent}")
    assert kept.waits("acme") is waits
    assert not Budgets(Configuration.parse("", "test"), Ledger(), lambda: NOW).waits("acme")  # type: ignore[arg-type]


def test_only_a_spent_budget_waits(lake: Lake) -> None:
    executor = LlmExecutor(configuration("tokens_per_month: 1, when_spent: wait"), lake.calls, lambda: NOW)
    assert executor.waits(ModelError(Trouble.BUDGET, "spent"), ACME)
    assert not any(executor.waits(ModelError(trouble, "x"), ACME) for trouble in Trouble if trouble != Trouble.BUDGET)
    assert not LlmExecutor(executor.configuration, None, lambda: NOW).waits(ModelError(Trouble.BUDGET, "spent"), ACME)


def test_work_without_a_model_needs_no_budget(lake: Lake) -> None:
    text = """
defaults:
  budget: {usd_per_month: 0, when_spent: wait}
  embedding: {model: fastembed/BAAI/bge-small-en-v1.5, dimension: 384}
workspaces: {globex: {completion: {model: openai/m, api_base: "http://127.0.0.1:9/v1"}}}
"""
    models = configured_models(Configuration.parse(text, "test"), lake.calls, "UTC", lambda: NOW)
    assert isinstance(models.embedder, LocalEmbedder)
    [message] = read_messages(conversation("I moved to Porto."), Admission(START, NOW)).messages
    passage = ConversationHour(ACME, HOUR, "c1", (message,), "")
    [found] = models.extractor.extract([passage], dict)
    assert (found.is_waiting, {fact.fallback for fact in found.facts}) == (False, {None})
    facts = [Material(fact.id, fact.content, fact.event_at, 0, 0.5, ()) for fact in found.facts]
    [made] = models.summarizer.summarize([Assignment(ACME, Period.parse("daily", "2024-01-15"), tuple(facts))])
    assert made
    assert made.fallback is None
    # With a model, the same work waits.
    other = Scope("globex", "support")
    [waiting] = models.extractor.extract([replace(passage, scope=other)], dict)
    assert waiting.is_waiting


# --- servers that are down -------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that the breaker sees; `value` may be set."""
    now = SimpleNamespace(value=1_000.0)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now.value))
    return now


def test_after_four_failures_one_request_per_cool_down_is_sent(now: SimpleNamespace) -> None:
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.failed("one")
    assert breaker.allows("one")
    breaker.failed("one")
    assert [breaker.allows("one") for _ in range(3)] == [False] * 3
    assert breaker.allows("another")
    now.value += 29.9
    assert not breaker.allows("one")
    now.value += 0.2
    assert [breaker.allows("one") for _ in range(3)] == [True, False, False]
    breaker.failed("one")  # that one too
    assert not breaker.allows("one")
    now.value += 30.1
    assert [breaker.allows("one") for _ in range(3)] == [True, False, False]
    breaker.succeeded("one")
    assert [breaker.allows("one") for _ in range(3)] == [True] * 3


def test_a_success_resets_the_failures(now: SimpleNamespace) -> None:
    breaker = CircuitBreaker()
    for _ in range(10):
        for _ in range(3):
            breaker.failed("one")
        breaker.succeeded("one")
    assert breaker.allows("one")


def test_only_one_of_many_threads_sends_the_trial_request(now: SimpleNamespace) -> None:
    breaker = CircuitBreaker()
    for _ in range(9):
        breaker.failed("one")
    now.value += 31
    barrier = threading.Barrier(16)

    def look(_: int) -> bool:
        barrier.wait()
        return breaker.allows("one")

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(look, range(16))) == 1

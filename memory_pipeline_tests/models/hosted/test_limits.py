"""What keeps questions from being sent: budgets that are never overspent, and servers that are down."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.calls import Purpose, Trouble, Usage, Use
from memory_pipeline.domain.conversations import Admission, Scope, read_messages
from memory_pipeline.domain.facts import Passage
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.errors import ModelError
from memory_pipeline.models.hosted import limits
from memory_pipeline.models.hosted.asking import Asker
from memory_pipeline.models.hosted.limits import Breaker, Budgets
from memory_pipeline.models.hosted.questions import InvalidAnswerError, Question
from memory_pipeline.models.local import LocalEmbedder
from memory_pipeline.models.selection import configured_models
from memory_pipeline_tests.building import ACME, NOW, START, conversation
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.domain.calls import CallStore
    from memory_pipeline.lake import Lake

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


def question(asker: Asker, number: int, scope: Scope = ACME) -> Question:
    settings = asker.configuration.extraction(scope)
    system = f"Is {number} a number?".ljust(320)  # 80 tokens, and a margin of a quarter
    return Question(Use(scope, HOUR), Purpose.EXTRACTION, settings, "test-1", system, "", {}, "test", (1,))


def ask(asker: Asker, number: int, scope: Scope = ACME) -> str:
    """Ask a question; return what came of it."""
    try:
        return asker.complete(question(asker, number, scope), lambda text: "answered").value
    except ModelError as error:
        return error.trouble


class Ledger:
    """Remembers what was spent and nothing else."""

    def __init__(self, spent: Usage | None = None) -> None:
        self.usage = {("acme", "2026-01"): spent or Usage()}

    def spent(self, workspace_id: str, month: str) -> Usage:
        return self.usage.get((workspace_id, month), Usage())


def budgets(text: str, spent: Usage | None = None, *, price: str = PRICE, now: datetime = NOW) -> Budgets:
    store: CallStore = Ledger(spent)  # type: ignore[assignment]  # budgets ask for what was spent alone
    return Budgets(configuration(text, price=price), store, lambda: now)


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "cost"), [("usd_per_month: 1.0", 0.1), ("tokens_per_month: 10000", None)])
def test_32_threads_do_not_overspend(lake: Lake, server: OpenAIServer, budget: str, cost: float | None) -> None:
    server.cost_per_call = cost
    server.latency = 0.02
    asker = Asker(configuration(budget, url=server.base_url), lake.calls, lambda: NOW)
    with ThreadPoolExecutor(32) as pool:
        outcomes = list(pool.map(lambda number: ask(asker, number), range(96)))
    assert set(outcomes) == {"answered", "budget"}
    answered = outcomes.count("answered")
    assert answered == server.counts["path chat"]
    spent = lake.calls.spent("acme", "2026-01")
    assert spent.calls == answered
    if cost:
        assert spent.cost == pytest.approx(answered * cost)
        assert 7 <= answered <= 10
    else:
        assert 7_000 <= spent.tokens_in + spent.tokens_out <= 10_000
    # Nothing stays reserved of what was refused or is over, and nothing is sent any more.
    assert ask(asker, 1_000) == "budget"
    assert server.counts["path chat"] == answered
    assert ask(asker, 1_000, Scope("globex", "support")) == "answered"


def test_answers_that_are_of_no_use_are_paid_for_and_count(lake: Lake, server: OpenAIServer) -> None:
    """Vectors of a wrong length cost as much as others, and are asked for again as long as there is money."""
    server.cost_per_call = 0.001
    server.faults = [Fault("wrong_dims", times=None)]
    # 10 tokens and a margin: 1.2 thousandths each.
    asker = Asker(configuration("usd_per_month: 0.0029", url=server.base_url), lake.calls, lambda: NOW)
    with pytest.raises(ModelError) as caught:
        asker.embed(asker.configuration.embedding, ["x" * 40], [Use(ACME, HOUR)])
    assert caught.value.trouble == Trouble.BUDGET
    assert server.counts["path embeddings"] == 2
    assert lake.calls.spent("acme", "2026-01").cost == pytest.approx(0.002)


def test_a_correction_is_paid_for_too(lake: Lake, server: OpenAIServer) -> None:
    def read(text: str) -> str:
        raise InvalidAnswerError("it is wrong")

    asker = Asker(configuration("tokens_per_month: 2000", url=server.base_url), lake.calls, lambda: NOW)
    with pytest.raises(ModelError) as caught:
        asker.complete(question(asker, 1), read)
    # The first may cost 1,100; with the second it would be more than 2,000.
    assert (caught.value.trouble, server.counts["path chat"]) == (Trouble.BUDGET, 1)
    assert lake.calls.spent("acme", "2026-01").tokens_in > 0


@pytest.mark.parametrize(
    ("budget", "spent", "tokens", "is_allowed"),
    [
        ("tokens_per_month: 1000", Usage(), (900, 100), True),
        ("tokens_per_month: 1000", Usage(), (900, 101), False),
        ("tokens_per_month: 1000", Usage(1, 500, 400), (50, 50), True),
        ("tokens_per_month: 1000", Usage(1, 500, 400), (51, 50), False),
        ("tokens_per_month: 0", Usage(), (1, 0), False),
        ("usd_per_month: 1.0", Usage(1, 5, 5, 0.5), (2_500, 2_500), True),
        ("usd_per_month: 1.0", Usage(1, 5, 5, 0.5), (2_500, 2_501), False),
        ("usd_per_month: 1.0", Usage(1, 5, 5, None), (5_000, 5_000), True),
        ("usd_per_month: 1.0, tokens_per_month: 10", Usage(), (10, 1), False),
    ],
)
def test_what_might_go_beyond_is_refused(budget: str, spent: Usage, tokens: tuple[int, int], is_allowed: bool) -> None:
    kept = budgets(budget, spent)
    endpoint = configuration(budget).extraction(ACME)
    if is_allowed:
        with kept.reserved("acme", endpoint, *tokens):
            pass
    else:
        with pytest.raises(ModelError, match=r"budget of workspace acme for 2026-01, .*, is spent") as caught:
            kept.reserved("acme", endpoint, *tokens).__enter__()
        assert caught.value.trouble == Trouble.BUDGET


def test_what_is_under_way_counts_until_it_is_over_whatever_its_end() -> None:
    kept = budgets("tokens_per_month: 1000")
    endpoint = configuration("tokens_per_month: 1000").extraction(ACME)
    with ExitStack() as stack:
        stack.enter_context(kept.reserved("acme", endpoint, 600, 0))
        stack.enter_context(kept.reserved("globex", endpoint, 900, 0))  # another's
        with pytest.raises(ModelError):
            kept.reserved("acme", endpoint, 401, 0).__enter__()
        with pytest.raises(KeyError), kept.reserved("acme", endpoint, 400, 0):
            raise KeyError
        stack.enter_context(kept.reserved("acme", endpoint, 400, 0))
    with kept.reserved("acme", endpoint, 1_000, 0):
        pass


def test_each_month_has_a_budget_of_its_own() -> None:
    endpoint = configuration("tokens_per_month: 1000").extraction(ACME)
    spent = Usage(1, 1_000, 0)
    with pytest.raises(ModelError):
        budgets("tokens_per_month: 1000", spent).reserved("acme", endpoint, 1, 0).__enter__()
    next_month = datetime(2026, 2, 1, tzinfo=UTC)
    with budgets("tokens_per_month: 1000", spent, now=next_month).reserved("acme", endpoint, 1_000, 0):
        pass


def test_dollars_without_a_price_are_refused_with_the_remedy() -> None:
    endpoint = configuration("usd_per_month: 5", price="").extraction(ACME)
    with pytest.raises(
        ModelError, match=r"price of openai/m is not known; set its price .* or tokens_per_month"
    ) as caught:
        budgets("usd_per_month: 5", price="").reserved("acme", endpoint, 1, 1).__enter__()
    assert caught.value.trouble == Trouble.BUDGET
    with budgets("tokens_per_month: 5", price="").reserved("acme", endpoint, 1, 1):
        pass  # tokens need no price


def test_the_price_list_is_asked_where_no_price_is_set() -> None:
    text = "defaults: {completion: {model: openai/gpt-4o-mini}, budget: {usd_per_month: 1}}"
    known = Configuration.parse(text, "test")
    kept = Budgets(known, Ledger(), lambda: NOW)  # type: ignore[arg-type]  # as above
    with ExitStack() as stack:
        stack.enter_context(kept.reserved("acme", known.extraction(ACME), 1_000_000, 1_000_000))  # 15 and 60 cents
        with pytest.raises(ModelError, match=r"\$1, is spent"):
            stack.enter_context(kept.reserved("acme", known.extraction(ACME), 1_000_000, 1_000_000))


@pytest.mark.parametrize(
    ("when_spent", "waits"), [("", False), (", when_spent: fall_back", False), (", when_spent: wait", True)]
)
def test_what_is_done_without_money_is_told(when_spent: str, waits: bool) -> None:
    kept = budgets(f"tokens_per_month: 1{when_spent}")
    assert kept.waits("acme") is waits
    assert not Budgets(Configuration.parse("", "test"), Ledger(), lambda: NOW).waits("acme")  # type: ignore[arg-type]


def test_only_a_spent_budget_waits(lake: Lake) -> None:
    asker = Asker(configuration("tokens_per_month: 1, when_spent: wait"), lake.calls, lambda: NOW)
    assert asker.waits(ModelError(Trouble.BUDGET, "spent"), ACME)
    assert not any(asker.waits(ModelError(trouble, "x"), ACME) for trouble in Trouble if trouble != Trouble.BUDGET)
    assert not Asker(asker.configuration, None, lambda: NOW).waits(ModelError(Trouble.BUDGET, "spent"), ACME)


def test_what_calls_no_model_needs_no_money(lake: Lake) -> None:
    text = """
defaults:
  budget: {usd_per_month: 0, when_spent: wait}
  embedding: {model: fastembed/BAAI/bge-small-en-v1.5, dimension: 384}
workspaces: {globex: {completion: {model: openai/m, api_base: "http://127.0.0.1:9/v1"}}}
"""
    models = configured_models(Configuration.parse(text, "test"), lake.calls, "UTC", lambda: NOW)
    assert isinstance(models.embedder, LocalEmbedder)
    [message] = read_messages(conversation("I moved to Porto."), Admission(START, NOW)).messages
    passage = Passage(ACME, HOUR, "c1", (message,), "")
    [found] = models.extractor.extract([passage], dict)
    assert (found.is_waiting, {fact.fallback for fact in found.facts}) == (False, {None})
    facts = [Material(fact.id, fact.content, fact.event_at, 0, 0.5, ()) for fact in found.facts]
    [made] = models.summarizer.summarize([Assignment(ACME, Period.parse("daily", "2024-01-15"), tuple(facts))])
    assert made
    assert made.fallback is None
    # Of whoever has a model, the same waits.
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


def test_after_four_failures_in_a_row_one_question_in_each_cool_down_is_let_through(now: SimpleNamespace) -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.failed("one")
    assert breaker.is_open("one")
    breaker.failed("one")
    assert [breaker.is_open("one") for _ in range(3)] == [False] * 3
    assert breaker.is_open("another")
    now.value += 29.9
    assert not breaker.is_open("one")
    now.value += 0.2
    assert [breaker.is_open("one") for _ in range(3)] == [True, False, False]
    breaker.failed("one")  # that one too
    assert not breaker.is_open("one")
    now.value += 30.1
    assert [breaker.is_open("one") for _ in range(3)] == [True, False, False]
    breaker.succeeded("one")
    assert [breaker.is_open("one") for _ in range(3)] == [True] * 3


def test_a_success_in_between_forgets_the_failures(now: SimpleNamespace) -> None:
    breaker = Breaker()
    for _ in range(10):
        for _ in range(3):
            breaker.failed("one")
        breaker.succeeded("one")
    assert breaker.is_open("one")


def test_of_many_threads_one_is_let_through(now: SimpleNamespace) -> None:
    breaker = Breaker()
    for _ in range(9):
        breaker.failed("one")
    now.value += 31
    barrier = threading.Barrier(16)

    def look(_: int) -> bool:
        barrier.wait()
        return breaker.is_open("one")

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(look, range(16))) == 1

"""Dry runs: requests are counted and not sent."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.facts import ConversationHour
from memory_pipeline.domain.model_calls import Purpose, Usage, Use
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.models.hosted.embedding import HostedEmbedder
from memory_pipeline.models.hosted.extraction import HostedExtractor
from memory_pipeline.models.hosted.summarization import HostedSummarizer
from memory_pipeline.models.hosted.transport.dry_run import DryRunExecutor, Expected
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME, NOW, START, conversation
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.lake import Lake

GLOBEX = Scope("globex", "sales")
SCOPES = [ACME, Scope("acme", "sales"), GLOBEX]
HOUR = Period.parse("working", "2024-01-15T08")
CONFIG = (
    """
defaults:
  max_concurrency: 8
  completion: {{model: openai/m, api_base: "{url}", attempts: 1, context_tokens: 6000, max_output_tokens: 2000{price}}}
  embedding: {{model: openai/v, api_base: "{url}", attempts: 1, dimension: 16, batch_size: 5{price}}}
"""
    + oracle.SUMMARIES
    + """
workspaces:
  globex: {{extraction: {{known_facts: 0}}, budget: {{tokens_per_month: 1000000}}}}
"""
)
PRICE = ", price: {input: 1.0, output: 2.0}"


def configuration(server: OpenAIServer, price: str = PRICE) -> Configuration:
    return Configuration.parse(CONFIG.format(url=server.base_url, price=price), "test")


def executor(lake: Lake, server: OpenAIServer) -> LlmExecutor:
    return LlmExecutor(configuration(server), lake.calls, lambda: NOW)


def rehearsing(lake: Lake, server: OpenAIServer, price: str = PRICE) -> DryRunExecutor:
    return DryRunExecutor(configuration(server, price), lake.calls, lambda: NOW)


def expected(executor: DryRunExecutor) -> int:
    """Return the number of counted requests."""
    return sum(usage.calls for usage in executor.expected.values())


def passages(rng: random.Random, name: str) -> list[ConversationHour]:
    """Return passages of a few agents and hours; some need several questions."""
    made = []
    for number in range(rng.randint(1, 8)):
        scope, hour = rng.choice(SCOPES), rng.randint(0, 3)
        texts = [f"{name} {number} {n}: I moved to City{n}." for n in range(rng.choice([1, 2, 12]))]
        if rng.random() < 0.3:
            texts = [f"{text} {'and so on ' * 300}" for text in texts]
        record = conversation(*texts, at=f"2024-01-15T{hour:02}:00", scope=scope, conversation_id=f"{name}{number}")
        messages = read_messages(record, Admission(START, NOW)).messages
        made.append(ConversationHour(scope, messages[0].hour, record["conversation_id"], tuple(messages), "digest"))
    return made


def assignments(rng: random.Random, name: str) -> list[Assignment]:
    """Return assignments of a few agents; each fits into one question."""
    at = datetime(2024, 1, 15, tzinfo=UTC)
    keys = {Grain.DAILY: "2024-01-15", Grain.WEEKLY: "2024-W03", Grain.YEARLY: "2024"}
    made = {}
    for _ in range(rng.randint(1, 8)):
        scope, grain = rng.choice(SCOPES), rng.choice(list(keys))
        material = tuple(
            Material(f"{name}{n}", f"{name}: {n} things.", at + timedelta(minutes=n), 0, 0.5, ())
            for n in range(rng.choice([0, 1, 40]))
        )
        made[scope, grain] = Assignment(scope, Period.parse(grain, keys[grain]), material)
    return list(made.values())


def texts_of(rng: random.Random, name: str) -> tuple[list[str], list[Use]]:
    texts = [f"{name} {n} {'x' * rng.choice([1, 50, 5_000])}" for n in range(rng.choice([1, 5, 40]))]
    return texts, [Use(rng.choice(SCOPES), HOUR) for _ in texts]


@pytest.mark.parametrize("seed", range(4) if IS_THOROUGH else (0, 1))
def test_the_dry_run_counts_as_many_questions_as_the_run_sends(lake: Lake, server: OpenAIServer, seed: int) -> None:
    rng = random.Random(seed)
    said, periods, (texts, uses) = passages(rng, "a"), assignments(rng, "a"), texts_of(rng, "a")
    more, later, (words, whose) = passages(rng, "b"), assignments(rng, "b"), texts_of(rng, "b")

    def do(executor: LlmExecutor, said: Sequence[ConversationHour], periods: Sequence[Assignment]) -> None:
        HostedExtractor(executor, "UTC").extract(said, dict)
        HostedSummarizer(executor, "UTC").summarize(periods)

    first = rehearsing(lake, server)
    do(first, said, periods)
    assert HostedEmbedder(first).embed(texts, uses).shape == (len(texts), 16)
    assert server.requests == []
    do(executor(lake, server), said, periods)
    HostedEmbedder(executor(lake, server)).embed(texts, uses)
    assert len(server.requests) == expected(first) > 0
    chats = [usage.calls for one, usage in first.expected.items() if one.purpose is not Purpose.EMBEDDING]
    assert server.counts["path chat"] == sum(chats)

    # Stored answers are not counted, whether or not they are in the table yet.
    if seed % 2:
        lake.calls.settle()
    server.reset()
    second = rehearsing(lake, server)
    do(second, said, periods)
    HostedEmbedder(second).embed(texts, uses)
    assert expected(second) == 0
    do(second, more, later)
    HostedEmbedder(second).embed(words, whose)
    do(executor(lake, server), more, later)
    HostedEmbedder(executor(lake, server)).embed(words, whose)
    assert len(server.requests) == expected(second) > 0


def test_counts_are_by_grain_purpose_workspace_and_model(lake: Lake, server: OpenAIServer) -> None:
    rehearsal = rehearsing(lake, server)
    rng = random.Random(1)
    HostedExtractor(rehearsal, "UTC").extract(passages(rng, "a"), dict)
    HostedSummarizer(rehearsal, "UTC").summarize(assignments(rng, "a"))
    grains = {one.grain for one in rehearsal.expected}
    assert Grain.WORKING in grains
    assert len(grains) > 1
    for one, usage in rehearsal.expected.items():
        assert one.purpose is (Purpose.EXTRACTION if one.grain is Grain.WORKING else Purpose.SUMMARY)
        assert (one.model, one.workspace_id in {"acme", "globex"}) == ("openai/m", True)
        assert usage.calls > 0
        assert usage.cost == pytest.approx((usage.tokens_in + 2 * usage.tokens_out) / 1e6)
        assert usage.unpriced == 0
    ordered = sorted(rehearsal.expected, key=lambda one: one.order)
    assert [one.grain.rank for one in ordered] == sorted(one.grain.rank for one in ordered)


def test_estimated_tokens_are_near_the_actual_ones(lake: Lake, server: OpenAIServer) -> None:
    said = passages(random.Random(3), "a")
    rehearsal = rehearsing(lake, server)
    HostedExtractor(rehearsal, "UTC").extract(said, dict)
    HostedExtractor(executor(lake, server), "UTC").extract(said, dict)
    guessed = sum((usage for usage in rehearsal.expected.values()), Usage())
    spent = lake.calls.spent("acme", "2026-01") + lake.calls.spent("globex", "2026-01")
    assert guessed.calls == spent.calls
    # The real questions also show the known facts of earlier hours.
    assert 0.8 * spent.tokens_in <= guessed.tokens_in <= 1.05 * spent.tokens_in


def test_without_a_price_questions_are_counted_as_unpriced(lake: Lake, server: OpenAIServer) -> None:
    rehearsal = rehearsing(lake, server, price="")
    [mine] = [one for one in assignments(random.Random(0), "a") if one.material][:1]
    HostedSummarizer(rehearsal, "UTC").summarize([mine])
    [usage] = rehearsal.expected.values()
    assert (usage.calls, usage.cost, usage.unpriced) == (1, None, 1)


def test_a_shared_batch_is_counted_once(lake: Lake, server: OpenAIServer) -> None:
    rehearsal = rehearsing(lake, server)
    uses = [Use(Scope(name, "a"), HOUR) for name in ("one", "two", "one")]
    vectors = HostedEmbedder(rehearsal).embed(["x" * 40, "y" * 400, "z" * 40], uses)
    assert np.isnan(vectors).all()
    assert {(one, usage.calls, usage.tokens_in) for one, usage in rehearsal.expected.items()} == {
        (Expected(Grain.WORKING, Purpose.EMBEDDING, "one", "openai/v"), 1, 20),
        (Expected(Grain.WORKING, Purpose.EMBEDDING, "two", "openai/v"), 0, 100),
    }
    assert sum(usage.cost or 0 for usage in rehearsal.expected.values()) == pytest.approx(120e-6)
    HostedEmbedder(rehearsal).embed(["x" * 40, "y" * 400, "z" * 40], uses)
    assert expected(rehearsal) == 1  # equal questions are sent once


def test_a_dry_run_of_much_material_ends(lake: Lake, server: OpenAIServer) -> None:
    at = datetime(2024, 1, 15, tzinfo=UTC)
    items = [Material(f"f{n}", f"{n} ".ljust(100, "x"), at + timedelta(minutes=n), 0, 0.5, ()) for n in range(2_000)]
    rehearsal = rehearsing(lake, server)
    [made] = HostedSummarizer(rehearsal, "UTC").summarize(
        [Assignment(ACME, Period.parse("daily", "2024-01-15"), tuple(items))]
    )
    assert made
    assert made.fallback is None
    [usage] = rehearsal.expected.values()
    assert 10 < usage.calls < 60
    assert usage.tokens_in < 60 * 4_000
    assert server.requests == []


def test_an_interrupted_runs_vectors_are_not_counted_again(lake: Lake, server: OpenAIServer) -> None:
    texts, uses = ["a text", "another"], [Use(ACME, HOUR)] * 2
    HostedEmbedder(executor(lake, server)).embed(texts, uses)
    lake.calls.settle()  # vectors stay pending until their rows are written
    rehearsal = rehearsing(lake, server)
    HostedEmbedder(rehearsal).embed(texts, uses)
    assert rehearsal.expected == {}

"""The hosted embedder: batches, payers and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.model_calls import Use, count_tokens
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.models.hosted.embedding import HostedEmbedder
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline_tests.building import ACME, NOW
from memory_pipeline_tests.openai_answers import embedding
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake import Lake

GLOBEX = Scope("globex", "sales")
HOUR = Period.parse("working", "2024-01-15T08")
CONFIG = """
defaults:
  max_concurrency: 4
  embedding: {{model: openai/v, api_base: "{url}", dimension: 16, attempts: 2, backoff_seconds: 0.01,
              batch_size: {batch}, context_tokens: {context}, timeout_seconds: 5, price: {{input: 1.0}}}}
workspaces: {{{workspaces}}}
"""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def embedder_of(
    store: Lake | None, url: str, batch: int = 64, context: int = 8_000, workspaces: str = ""
) -> HostedEmbedder:
    text = CONFIG.format(url=url, batch=batch, context=context, workspaces=workspaces)
    return HostedEmbedder(LlmExecutor(Configuration.parse(text, "test"), store.calls if store else None, lambda: NOW))


def uses(*scopes: Scope) -> list[Use]:
    return [Use(scope, HOUR) for scope in scopes]


def sent(server: OpenAIServer) -> list[list[str]]:
    """Return the texts of each request."""
    return [request.body["input"] for request in server.requests]


def failed(vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> list[int]:
    """Return the rows without a vector."""
    assert all(row.all() or not row.any() for row in np.isnan(vectors))
    return np.flatnonzero(np.isnan(vectors).any(axis=1)).tolist()


def test_texts_become_unit_vectors_in_the_given_order(lake: Lake, server: OpenAIServer) -> None:
    made = embedder_of(lake, server.base_url, batch=3)
    texts = [f"text {number}" for number in range(10)]
    server.faults = [Fault("reorder", times=None, every=2)]
    vectors = made.embed(texts, uses(*[ACME] * 10))
    assert (vectors.shape, str(vectors.dtype), made.dimension) == ((10, 16), "float32", 16)
    assert np.allclose(vectors, [embedding(text, 16) for text in texts], atol=1e-6)
    assert sorted(map(len, sent(server))) == [1, 3, 3, 3]
    assert sorted(text for batch in sent(server) for text in batch) == texts
    assert made.embed([], []).shape == (0, 16)


def test_a_query_is_embedded_without_uses_and_store(server: OpenAIServer) -> None:
    vectors = embedder_of(None, server.base_url).embed(["Where does Anna live?"])
    assert failed(vectors) == []
    assert len(server.requests) == 1


def test_the_name_contains_model_dimension_and_server() -> None:
    names = {embedder_of(None, f"http://127.0.0.1:{port}/v1").name for port in (1, 2)}
    assert len(names) == 2
    assert all(name.startswith("openai/v-") and name.endswith(" (16)") for name in names)
    plain = Configuration.parse("defaults: {embedding: {model: openai/v, dimension: 32}}", "test")
    assert HostedEmbedder(LlmExecutor(plain, None, lambda: NOW)).name == "openai/v (32)"


@settings(deadline=None)
@given(st.randoms(use_true_random=True), st.integers(1, 20))
def test_batches_contain_each_text_once_within_the_limits(rng: object, batch: int) -> None:
    draw = rng.choice  # type: ignore[attr-defined]  # hypothesis's own class of Random
    key, budget = "embedding: {api_key: env:KEY}", "budget: {tokens_per_month: 1}"
    own = f"paying: {{{key}}}, limited: {{{budget}}}, both: {{{key}, {budget}}}"
    made = embedder_of(None, "http://127.0.0.1:9/v1", batch=batch, context=40_000, workspaces=own)
    texts = ["x" * draw([1, 10, 100_000, 200_000, 400_000]) for _ in range(draw([0, 1, 5, 40]))]
    whose = uses(*(Scope(draw(["acme", "globex", "paying", "limited", "both"]), "a") for _ in texts))
    batches = list(made.batches(texts, whose))
    assert sorted(place for places in batches for place in places) == list(range(len(texts)))
    alone = {"acme": "all", "globex": "all"}
    for places in batches:
        assert 0 < len(places) <= batch
        assert sum(min(count_tokens(texts[place]), 40_000) for place in places) <= 100_000
        payers = {whose[place].scope.workspace_id for place in places}
        assert len({alone.get(payer, payer) for payer in payers}) == 1
        assert places == sorted(places)
    assert list(made.batches(texts, whose)) == batches


def test_a_workspace_with_its_own_key_pays_with_it(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", "sk-acme-0123456789")
    made = embedder_of(lake, server.base_url, workspaces="acme: {embedding: {api_key: env:ACME_KEY}}")
    texts = ["acme 1", "globex 1", "acme 2", "other 1"]
    vectors = made.embed(texts, uses(ACME, GLOBEX, ACME, Scope("other", "a")))
    assert np.allclose(vectors, [embedding(text, 16) for text in texts], atol=1e-6)
    keys = {tuple(request.body["input"]): request.headers["Authorization"] for request in server.requests}
    assert keys.pop(("acme 1", "acme 2")) == "Bearer sk-acme-0123456789"
    assert keys.keys() == {("globex 1", "other 1")}
    assert "sk-acme" not in str(keys)


def test_a_spent_budget_does_not_affect_other_workspaces(
    lake: Lake, server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = embedder_of(lake, server.base_url, workspaces="acme: {budget: {tokens_per_month: 0}}")
    assert failed(made.embed(["a", "b", "c"], uses(ACME, GLOBEX, ACME))) == [0, 2]
    assert sent(server) == [["b"]]
    assert caplog.text.count("budget of workspace acme") == 1


@pytest.mark.parametrize("kind", ["401", "500", "malformed", "wrong_dims", "wrong_count", "nan", "zero", "empty"])
def test_a_failed_batch_leaves_only_its_texts_without_vectors(
    lake: Lake, server: OpenAIServer, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    made = embedder_of(lake, server.base_url, batch=2)
    texts = [f"text {number}" for number in range(8)]
    server.faults = [Fault(kind, times=None, match="text 5")]
    vectors = made.embed(texts, uses(*[ACME] * 8))
    assert failed(vectors) == [4, 5]
    assert caplog.text.count("model call failed") == 1
    server.reset()
    assert failed(made.embed(texts, uses(*[ACME] * 8))) == []
    assert sent(server) == [["text 4", "text 5"]]  # the others are stored


def test_a_text_longer_than_the_context_is_embedded_by_its_beginning(lake: Lake, server: OpenAIServer) -> None:
    made = embedder_of(lake, server.base_url, context=100)
    texts = ["x" * 400, "y" * 401, "ü" * 300, "🥐" * 101, "short"]
    assert failed(made.embed(texts, uses(*[ACME] * 5))) == []
    assert sent(server) == [["x" * 400, "y" * 400, "ü" * 200, "🥐" * 100, "short"]]


def test_a_lone_surrogate_in_a_long_query_is_replaced(server: OpenAIServer) -> None:
    made = embedder_of(None, server.base_url, context=100)
    assert failed(made.embed(["\ud83d" + "x" * 1_000])) == []


def test_texts_refused_as_too_long_are_halved(lake: Lake, server: OpenAIServer) -> None:
    """The estimate of tokens is wrong for some scripts, and `context_tokens` may be too large."""
    made = embedder_of(lake, server.base_url)
    texts = ["a", "b", "L" * 5_000, "c", "d"]
    server.faults = [Fault("context_length", times=None, match="L{1000}")]
    vectors = made.embed(texts, uses(*[ACME] * 5))
    assert np.allclose(vectors, [embedding(text[:625], 16) for text in texts], atol=1e-6)
    assert len(server.requests) < 12
    asked = len(server.requests)
    lake.calls.settle()
    again = embedder_of(lake, server.base_url).embed(texts, uses(*[ACME] * 5))
    assert np.array_equal(again, vectors)
    # Successful batches are stored; refused ones are sent again.
    assert len(server.requests) - asked == sum(len(str(batch)) > 1_000 for batch in sent(server)[:asked])


def test_a_text_that_stays_too_long_has_no_vector(lake: Lake, server: OpenAIServer) -> None:
    made = embedder_of(lake, server.base_url)
    server.faults = [Fault("context_length", times=None, match="LL")]
    assert failed(made.embed(["a", "L" * 5_000, "b"], uses(*[ACME] * 3))) == [1]
    assert min(len(text) for batch in sent(server) for text in batch if "L" in text) in range(100, 201)


def test_half_a_batch_is_charged_to_its_own_agents(lake: Lake, server: OpenAIServer) -> None:
    made = embedder_of(lake, server.base_url)
    server.faults = [Fault("context_length")]
    made.embed(["a" * 40, "b" * 40, "c" * 80, "d" * 80], uses(ACME, ACME, GLOBEX, GLOBEX))
    assert sent(server)[1:] == [["a" * 40, "b" * 40], ["c" * 80, "d" * 80]]
    assert lake.calls.spent("acme", "2026-01").tokens_in == 20
    assert lake.calls.spent("globex", "2026-01").tokens_in == 40

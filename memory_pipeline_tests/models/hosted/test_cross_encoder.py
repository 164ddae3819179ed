"""Re-ranking by a cross-encoder: of a real server behind LiteLLM, or of this process."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.configuration import Configuration
from memory_pipeline.domain.model_calls import Use, count_tokens
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.errors import ModelError
from memory_pipeline.models.factory import ReadingModels, reading_models
from memory_pipeline.models.hosted.query_models import CrossEncoderReranker
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.local import LocalCrossEncoder
from memory_pipeline_tests.building import ACME, NOW
from memory_pipeline_tests.openai_server import Fault, OpenAIServer
from memory_pipeline_tests.reader.injecting import injected, recalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PROMPT = "Where does Nadia live?"
TEXTS = ("The weather was fine.", "Rent is due.", "Nadia does live in Rome.", "Nadia called.")
BEST_FIRST = [2, 3, 0, 1]
CONFIG = """
defaults:
  injection:
    rerank: cross_encoder
    cross_encoder: {{model: {model}, api_base: "{url}", backoff_seconds: 0.01, {more}}}
"""


@pytest.fixture(scope="module", autouse=True)
def _litellm() -> None:
    """Import LiteLLM, which takes seconds, before anything is timed."""
    litellm_client.price(configuration("http://127.0.0.1:9").injection(ACME).cross_encoder)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def configuration(url: str, model: str = "infinity/m", more: str = "timeout_seconds: 5") -> Configuration:
    return Configuration.parse(CONFIG.format(url=url, model=model, more=more), "test")


def reranker_at(server: OpenAIServer, *options: str) -> CrossEncoderReranker:
    reranker = reading_models(configuration(server.base_url, *options), ACME, lambda: NOW).reranker
    assert isinstance(reranker, CrossEncoderReranker)
    return reranker


@pytest.mark.parametrize("model", ["infinity/m", "hosted_vllm/m", "cohere/m", "jina_ai/m"])
def test_an_endpoint_orders_texts(server: OpenAIServer, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKING_KEY", "k-1234567890")
    reranker = reranker_at(server, model, "api_key: env:RANKING_KEY")
    assert reranker.order(PROMPT, TEXTS) == BEST_FIRST
    [request] = server.requests
    assert (request.model, request.body["query"], request.body["documents"]) == ("m", PROMPT, list(TEXTS))
    assert {value for name, value in request.headers.items() if name.lower() == "authorization"} == {
        "Bearer k-1234567890"
    }


def test_no_request_is_sent_without_a_choice(server: OpenAIServer) -> None:
    reranker = reranker_at(server)
    assert reranker.order(PROMPT, []) == []
    assert reranker.order(PROMPT, ["one"]) == [0]
    assert reranker.order(" \n", TEXTS) == [0, 1, 2, 3]
    assert not server.requests


@pytest.mark.parametrize(
    ("results", "order"),
    [
        ([(3, 0.9), (1, 0.5)], [3, 1, 0, 2]),
        ([(1, 0.2), (3, 0.9), (1, 1.0)], [3, 1, 0, 2]),
        ([(9, 0.9), (-1, 0.8), (2, 0.1), (3, math.nan)], [2, 0, 1, 3]),
        ([(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)], [0, 1, 2, 3]),
    ],
)
def test_an_answer_with_wrong_positions_or_scores_still_orders_the_others(
    server: OpenAIServer, results: list[tuple[int, float]], order: list[int]
) -> None:
    server.ranked = lambda _: [{"index": place, "relevance_score": score} for place, score in results]
    assert reranker_at(server).order(PROMPT, TEXTS) == order


def test_long_texts_are_cut_to_the_context(server: OpenAIServer) -> None:
    long, texts = "Nadia. " * 1_000, ["Nadia does live. " * 500, "Rome", ""]
    reranker_at(server, "infinity/m", "context_tokens: 200").order(long, texts)
    [request] = server.requests
    query, documents = request.body["query"], request.body["documents"]
    assert count_tokens(query) <= 60
    assert [documents[0][:16], *documents[1:]] == ["Nadia does live.", "Rome", "-"]
    assert 190 <= count_tokens(query) + count_tokens(documents[0]) <= 200


FAILING = {
    "500": "a 500 was ordered",
    "401": "a 401 was ordered",
    "malformed": "",
    "html": "Sign in to the network",
    "empty": "ranks none of the 4 texts",
    "reset": "",
    "hang": "no answer within 0.5 seconds",
    "padded": "no answer within 0.5 seconds",
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_failing_endpoint_changes_nothing(server: OpenAIServer, kind: str) -> None:
    server.faults = [Fault(kind, times=None, delay=0.05 if kind in {"reset", "padded"} else None)]
    said = [recalled(f"Anna: {text}", number) for number, text in enumerate(TEXTS)]
    models = ReadingModels(reranker=reranker_at(server, "infinity/m", "timeout_seconds: 0.5"))
    started = time.monotonic()
    known = injected(said, prompt=PROMPT, rerank="cross_encoder", models=models)
    assert time.monotonic() - started < 3
    assert FAILING[kind] in known.troubles["rerank"]
    assert "infinity/m" in known.troubles["rerank"]
    assert known.parts == injected(said, prompt=PROMPT, rerank="none").parts


def test_results_that_are_not_numbers_are_an_error(server: OpenAIServer) -> None:
    server.ranked = lambda _: [{"index": 2, "relevance_score": "high"}]
    with pytest.raises(ModelError, match="infinity/m: LiteLLM cannot read the answer"):
        reranker_at(server).order(PROMPT, TEXTS)


def test_the_best_item_is_chosen_first(server: OpenAIServer) -> None:
    said = [recalled(f"Anna: {text}", number) for number, text in enumerate(TEXTS)]
    models = ReadingModels(reranker=reranker_at(server))
    known = injected(said, prompt=PROMPT, rerank="cross_encoder", models=models, most=1)
    assert not known.troubles
    assert [part.content for part in known.parts] == ["Anna: Nadia does live in Rome."]


def test_a_failure_is_retried_within_the_time(server: OpenAIServer) -> None:
    server.faults = [Fault("503")]
    assert reranker_at(server, "infinity/m", "attempts: 2").order(PROMPT, TEXTS) == BEST_FIRST
    assert server.counts["status 503"] == 1


@pytest.mark.parametrize(
    ("model", "more", "cost"),
    [
        ("cohere/rerank-v3.5", "timeout_seconds: 5", 0.002),  # LiteLLM's price of a search
        ("infinity/m", "timeout_seconds: 5", None),
        ("infinity/m", "price: {input: 2.0}", 2e-6),
    ],
)
def test_tokens_and_cost_are_counted(server: OpenAIServer, model: str, more: str, cost: float | None) -> None:
    settings = configuration(server.base_url, model, f"api_key: env:HOME, {more}")
    executor, endpoint = LlmExecutor(settings, None, lambda: NOW), settings.injection(ACME).cross_encoder
    for counts_tokens in (True, False):  # estimated, if the server does not report them
        server.counts_tokens = counts_tokens
        answer = executor.rerank(endpoint, PROMPT, TEXTS, Use(ACME, hour_of(NOW)))
        asked = count_tokens("".join([PROMPT, *TEXTS]))
        assert answer.tokens_in == (asked if counts_tokens else sum(map(count_tokens, [PROMPT, *TEXTS])))
        if counts_tokens:
            assert answer.cost == (None if cost is None else pytest.approx(cost * (asked if "price" in more else 1)))


# --- in this process -------------------------------------------------------------------------------------------------


class Words:
    """Scores a text by the words that it shares with the query."""

    seconds = 0.0

    def rerank(self, query: str, documents: Sequence[str], batch_size: int = 64) -> Iterable[float]:
        time.sleep(self.seconds)
        asked = set(query.rstrip("?").split())
        return [float(len(asked & set(text.split()))) for text in documents]


def local_reranker(model: Words, more: str = "timeout_seconds: 5") -> CrossEncoderReranker:
    settings = configuration("http://127.0.0.1:9", "fastembed/m", more)
    local = LocalCrossEncoder(settings.injection(ACME).cross_encoder, lambda _: model)
    return CrossEncoderReranker(LlmExecutor(settings, None, lambda: NOW), ACME, local)


def test_a_local_model_orders_texts() -> None:
    assert local_reranker(Words()).order(PROMPT, TEXTS) == BEST_FIRST


def test_a_slow_local_model_is_not_waited_for() -> None:
    model = Words()
    model.seconds = 1.0
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"fastembed/m: no answer within 0\.1 seconds"):
        local_reranker(model, "timeout_seconds: 0.1").order(PROMPT, TEXTS)
    assert time.monotonic() - started < 0.9


def test_the_configuration_selects_a_local_model() -> None:
    settings = configuration("http://127.0.0.1:9", "fastembed/Xenova/ms-marco-MiniLM-L-6-v2")
    reranker = reading_models(settings, ACME, lambda: NOW).reranker
    assert isinstance(reranker, CrossEncoderReranker)
    assert isinstance(reranker._local, LocalCrossEncoder)
    off = Configuration.parse("defaults: {injection: {rerank: none}}", "test")
    assert reading_models(off, ACME, lambda: NOW) == ReadingModels()

"""LiteLLM, driven against a real server: what comes of each answer and of each fault, on each of its routes.

`openai` goes through the OpenAI client; `openrouter` and `hosted_vllm` through LiteLLM's own, which fail differently.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product
from typing import Any

import numpy as np
import pytest

from memory_pipeline.configuration.model_settings import Completion, CrossEncoder, Embedding, Price
from memory_pipeline.domain.model_calls import Trouble
from memory_pipeline.models.hosted.answer_schemas import ExtractionAnswer, schema_of
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.call_errors import CallError, plain
from memory_pipeline.models.hosted.transport.requests import Answered
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_answers import CHAT_FAULTS, EMBEDDING_FAULTS, embedding
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

PROVIDERS = ("openai", "openrouter", "hosted_vllm")
KEY = "plain-key/4711+x"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where does Anna live?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "minLength": 3}}, "required": ["city"]}
CLOSED = "http://127.0.0.1:9/v1"  # nothing listens there


@pytest.fixture(scope="module")
def running() -> Iterator[OpenAIServer]:
    """A server warmed up on each of LiteLLM's routes: the first call on a route takes a second."""
    with OpenAIServer() as server:
        for provider in PROVIDERS:
            complete(server, provider=provider)
            embed(server, "a", provider=provider)
        yield server


@pytest.fixture
def server(running: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> OpenAIServer:
    for provider in ("OPENAI", "AZURE", "AZURE_OPENAI", "GEMINI", "GOOGLE", "OPENROUTER", "HOSTED_VLLM"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    running.answer, running.cost_per_call, running.counts_tokens, running.latency = None, None, True, 0.0
    running.reset()
    return running


def complete(
    server: OpenAIServer | None,
    *,
    provider: str = "openai",
    schema: dict[str, Any] | None = None,
    key: str | None = KEY,
    secrets: tuple[str, ...] = (),
    **settings: Any,
) -> Answered[str]:
    """Request a completion of a model that is in no price list."""
    settings = {"model": f"{provider}/m", "api_base": server.base_url if server else None, **settings}
    return litellm_client.complete(Completion(**settings), MESSAGES, schema, name="city", api_key=key, secrets=secrets)


def embed(
    server: OpenAIServer | None, *texts: str, provider: str = "openai", key: str | None = KEY, **settings: Any
) -> Answered[Any]:
    """Request vectors."""
    address = server.base_url if server else None
    settings = {"model": f"{provider}/m", "dimension": 16, "api_base": address, **settings}
    return litellm_client.embed(Embedding(**settings), texts, api_key=key, secrets=())


def failure(server: OpenAIServer | None, path: str, **settings: Any) -> CallError:
    """Send a request that fails; return the error."""
    with pytest.raises(CallError) as caught:
        complete(server, **settings) if path == "chat" else embed(server, "a", "b", "c", **settings)
    return caught.value


def wire(server: OpenAIServer) -> dict[str, Any]:
    """Return the body of the only request."""
    (request,) = server.requests
    return request.body


# Requests


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_completion_sends_the_endpoints_settings(server: OpenAIServer, provider: str) -> None:
    messages = json.dumps(MESSAGES)
    reply = complete(server, provider=provider, temperature=0.5, max_output_tokens=300, parameters={"seed": 7})
    assert reply == Answered("Where does Anna live?", is_cut=False, tokens_in=8, tokens_out=6, cost=None)
    body = wire(server)
    assert body["messages"] == MESSAGES
    assert (body["model"], body["temperature"], body["max_tokens"], body["seed"]) == ("m", 0.5, 300, 7)
    assert "response_format" not in body
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert json.dumps(MESSAGES) == messages


def test_without_a_temperature_none_is_sent(server: OpenAIServer) -> None:
    complete(server, temperature=None)
    assert "temperature" not in wire(server)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_schema_is_sent_in_the_endpoints_answer_format(server: OpenAIServer, provider: str) -> None:
    assert json.loads(complete(server, provider=provider, schema=SCHEMA).value) == {"city": "xxx"}
    described = {"name": "city", "schema": SCHEMA, "strict": False}
    assert wire(server)["response_format"] == {"type": "json_schema", "json_schema": described}
    server.reset()
    assert complete(server, provider=provider, schema=SCHEMA, answer_format="json_object").value == "{}"
    assert wire(server)["response_format"] == {"type": "json_object"}
    server.reset()
    complete(server, provider=provider, schema=SCHEMA, answer_format="text")
    assert "response_format" not in wire(server)


def test_a_schema_is_enforced_without_limits_and_further_keys() -> None:
    schema = schema_of(ExtractionAnswer)
    strict = litellm_client.strict_schema(schema)
    text = json.dumps(strict)
    assert not any(word in text for word in ("minLength", "maxLength", "minItems", "minimum", "maximum", "default"))
    records = [strict, *strict["$defs"].values()]
    assert all(record["additionalProperties"] is False for record in records)
    assert all(record["required"] == list(record["properties"]) for record in records)
    assert "minLength" in json.dumps(schema), "the given schema is unchanged"


def test_the_system_message_to_claude_is_marked_for_the_cache(server: OpenAIServer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    endpoint = Completion(model="anthropic/claude-sonnet-4-5", api_base=server.base_url.removesuffix("/v1"))
    litellm_client.complete(endpoint, messages, None, name="x", api_key=KEY, secrets=())
    assert wire(server)["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert messages[0] == {"role": "system", "content": "Be brief."}


def test_parameters_are_not_modified(server: OpenAIServer) -> None:
    endpoint = Completion(model="openai/m", api_base=server.base_url, parameters={"extra_body": {"a": {"b": [1]}}})
    for _ in range(2):
        litellm_client.complete(endpoint, MESSAGES, None, name="x", api_key=KEY, secrets=())
    assert endpoint.parameters == {"extra_body": {"a": {"b": [1]}}}
    assert [request.body["a"] for request in server.requests] == [{"b": [1]}] * 2


@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_a_self_hosted_server_gets_a_placeholder_key(
    server: OpenAIServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent() -> str:
        server.reset()
        complete(server, key=None) if path == "chat" else embed(server, "a", key=None)
        return server.requests[0].headers["Authorization"]

    assert sent() == "Bearer no-key"
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")  # meant for OpenAI, not for the server at api_base
    assert sent() == "Bearer no-key"


# Vectors


@pytest.mark.parametrize("provider", [*PROVIDERS, "lm_studio"])
@pytest.mark.parametrize("kind", [None, "reorder"])
def test_vectors_are_in_the_order_of_the_texts(server: OpenAIServer, provider: str, kind: str | None) -> None:
    server.faults = [Fault(kind)] if kind else []
    texts = [f"text {number}" for number in range(5)]
    vectors = embed(server, *texts, provider=provider)
    assert vectors.value.dtype == np.float32
    assert vectors.value.shape == (5, 16)
    assert np.allclose(vectors.value, [embedding(text, 16) for text in texts], atol=1e-6)
    assert (vectors.tokens_in, vectors.cost) == (8, None)
    assert wire(server)["input"] == texts
    # Digits take thirty times the work. Servers that cannot send base64 are not asked for it.
    assert wire(server).get("encoding_format") == ("base64" if provider != "lm_studio" else None)


def test_vectors_may_be_sent_as_digits_and_of_any_length(server: OpenAIServer) -> None:
    vectors = embed(server, "a", parameters={"encoding_format": "float", "dimensions": 9}, dimension=9)
    assert wire(server)["encoding_format"] == "float"
    assert np.allclose(np.linalg.norm(vectors.value, axis=1), 1)
    assert embed(server, "a", dimension=None).value.shape == (1, 16)


def test_without_texts_no_request_is_sent(server: OpenAIServer) -> None:
    vectors = embed(server)
    assert vectors.value.shape == (0, 16)
    assert not server.requests


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([{"index": 0, "embedding": [1.0, 2.0]}, {"index": 0, "embedding": [1.0, 2.0]}], "numbered from 0 to 1"),
        ([{"index": 1, "embedding": [1.0, 2.0]}, {"index": 2, "embedding": [1.0, 2.0]}], "numbered from 0 to 1"),
        ([{"index": "0", "embedding": [1.0, 2.0]}, {"index": 1, "embedding": [1.0, 2.0]}], "numbered from 0 to 1"),
        ([{"index": 0, "embedding": [1.0, 2.0]}, {"index": 1, "embedding": [1.0]}], "2 numbers"),
        ([{"index": 0, "embedding": [1.0, None]}, {"index": 1, "embedding": [1.0, 2.0]}], "numbers"),
        ([{"index": 0, "embedding": [1.0, 1e300]}, {"index": 1, "embedding": [1.0, 2.0]}], "numbers"),
        ([{"index": 0, "embedding": {}}, {"index": 1, "embedding": [1.0, 2.0]}], "numbers"),
        ([{"index": 0}, {"index": 1, "embedding": [1.0, 2.0]}], "2 numbers"),
        ([{"index": 0, "embedding": "AAA="}, {"index": 1, "embedding": [1.0, 2.0]}], None),
        ([{"index": 0, "embedding": "no base64"}, {"index": 1, "embedding": [1.0, 2.0]}], None),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_invalid_vectors_are_rejected_with_a_reason(data: list[dict[str, Any]], reason: str | None) -> None:
    with pytest.raises(ValueError, match=reason):
        litellm_client._unit_vectors(data, 2, 2)  # no real server sends these


def test_vectors_without_an_index_are_in_order() -> None:
    values = litellm_client._unit_vectors([{"embedding": [3.0, 4.0]}, {"embedding": [0.0, 2.0]}], 2, 2)
    assert np.allclose(values, [[0.6, 0.8], [0.0, 1.0]])


# Failures

UNAVAILABLE = (Trouble.UNAVAILABLE, True)
REFUSED = (Trouble.REFUSED, False)
TOO_LONG = (Trouble.TOO_LONG, False)
TIMEOUT = (Trouble.TIMEOUT, True)
FAILURES = {
    "429": (Trouble.RATE_LIMITED, True),
    "quota": REFUSED,
    **dict.fromkeys(("500", "502", "503", "529", "409", "425"), UNAVAILABLE),
    **dict.fromkeys(("400", "401", "402", "403", "404", "422", "policy", "leak"), REFUSED),
    **dict.fromkeys(("413", "context_length"), TOO_LONG),
    **dict.fromkeys(("408", "504", "slow", "hang", "padded"), TIMEOUT),
    **dict.fromkeys(("reset", "malformed", "html", "truncated", "empty", "error_200"), UNAVAILABLE),
    **dict.fromkeys(("wrong_dims", "wrong_count", "nan", "zero"), (Trouble.INVALID, True)),
    "refusal": (Trouble.INVALID, False),
    "filtered": REFUSED,
}


@pytest.mark.parametrize(
    ("path", "provider"),
    product(["chat", "embeddings"], PROVIDERS)
    if IS_THOROUGH
    else [("chat", "openai"), ("chat", "openrouter"), ("embeddings", "hosted_vllm")],
)
def test_every_fault_has_its_trouble(
    server: OpenAIServer, path: str, provider: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = {}
    for kind in FAILURES:
        if kind in (EMBEDDING_FAULTS if path == "chat" else CHAT_FAULTS):
            continue
        server.reset()
        server.faults = [Fault(kind, times=None)]
        # Long enough for a busy machine, except for faults that delay the answer.
        seconds = 0.3 if kind in {"slow", "hang", "padded"} else 10.0
        started = time.monotonic()
        error = failure(server, path, provider=provider, timeout_seconds=seconds)
        assert time.monotonic() - started < seconds + 8
        seen[kind] = (error.trouble, error.is_transient)
        assert 0 < len(str(error)) <= 300
        assert "\n" not in str(error)
        assert KEY not in str(error)
        # LiteLLM sends a request again only after a 422 of an OpenAI-compatible server.
        asked_twice = kind == "422" and path == "chat" and provider == "openai"
        assert len(server.requests) == 1 + asked_twice, kind
    assert seen == {kind: FAILURES[kind] for kind in seen}
    written = caplog.text + "".join(capfd.readouterr())
    assert "Anna" not in written
    assert KEY not in written
    assert not [record for record in caplog.records if record.name.startswith(("LiteLLM", "openai", "http"))]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_answers_of_any_content_are_returned(server: OpenAIServer, provider: str) -> None:
    server.faults = [Fault("bad_content"), Fault("fenced"), Fault("length")]
    replies = [complete(server, provider=provider, schema=SCHEMA) for _ in range(3)]
    assert [reply.is_cut for reply in replies] == [False, False, True]
    assert "```json" in replies[1].value


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_retry_after_is_read(server: OpenAIServer, path: str, provider: str) -> None:
    def waits(kind: str, value: float | str | None) -> float | None:
        server.faults = [Fault(kind, retry_after=value)]
        return failure(server, path, provider=provider).retry_after

    assert waits("429", 7.5) == 7.5
    assert waits("503", 3) == 3
    assert waits("500", None) is None
    assert waits("400", 3) is None  # which is final
    assert waits("429", "soon") is None
    assert waits("429", -5) == 0
    assert waits("429", "inf") is None
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert waits("429", at) == pytest.approx(90, abs=10)
    assert waits("429", "Wed, 21 Oct 2015 07:28:00 GMT") == 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_a_refused_connection_is_unavailable(server: OpenAIServer, path: str, provider: str) -> None:
    error = failure(None, path, provider=provider, api_base=CLOSED)
    assert (error.trouble, error.is_transient) == UNAVAILABLE
    assert "refused" in str(error)


@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_a_missing_key_is_an_error_with_the_remedy(server: OpenAIServer, path: str) -> None:
    error = failure(None, path, key=None)
    assert (error.trouble, error.is_transient) == REFUSED
    assert "set api_key in config/workspaces.yaml" in str(error)
    assert failure(None, path, key=None, model="azure/m").trouble == Trouble.REFUSED
    assert "set api_key in config/workspaces.yaml" in str(failure(server, path, key=None, model="gemini/m"))
    assert not server.requests
    server.faults = [Fault("401")]
    error = failure(server, path, key=None)
    assert (error.trouble, error.is_transient) == REFUSED
    assert "set api_key in config/workspaces.yaml" in str(error)
    server.faults = [Fault("401")]
    assert "config/workspaces.yaml" not in str(failure(server, path))


@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_requests_that_cannot_be_sent_are_refused(server: OpenAIServer, path: str) -> None:
    errors = [
        failure(server, path, model="nonsense/m"),
        failure(server, path, key="këy 🙂"),
        failure(server, path, key="line\nbreak"),
    ]
    assert [(error.trouble, error.is_transient) for error in errors] == [REFUSED] * 3
    assert "provider" in str(errors[0]).lower()
    assert not server.requests


# Timeouts


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_a_dribbling_server_ends_at_the_timeout(
    server: OpenAIServer, path: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm_client, "_GRACE", 0.2)
    server.faults = [Fault("dribble", delay=0.05)]
    started = time.monotonic()
    error = failure(server, path, provider=provider, timeout_seconds=0.3)
    assert time.monotonic() - started < 8
    assert (error.trouble, error.is_transient) == TIMEOUT


def test_an_endless_answer_leaves_no_thread(server: OpenAIServer) -> None:
    server.faults = [Fault("padded", times=None)]
    before = set(threading.enumerate())
    for provider in PROVIDERS:
        failure(server, "chat", provider=provider, timeout_seconds=0.2)
    time.sleep(0.1)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "model-call"]


# Secrets


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("path", ["chat", "embeddings"])
def test_a_key_repeated_by_a_server_is_hidden(
    server: OpenAIServer, path: str, provider: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults = [Fault("leak", times=None)]
    error = failure(server, path, provider=provider)
    assert "[hidden]" in str(error)
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    assert KEY not in shown + caplog.text + "".join(capfd.readouterr())
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_key_of_the_environment_is_hidden_by_its_pattern(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-proj-0123456789abcdef")
    server.faults = [Fault("leak")]
    assert "0123456789" not in str(failure(server, "chat", key=None, provider="openrouter"))
    assert server.requests[0].headers["Authorization"].endswith("0123456789abcdef")


def test_secrets_are_hidden_in_every_form() -> None:
    words = 'x a/b"c\\d x a%2Fb%22c%5Cd x a/b\\"c\\\\d x Bearer abc.def-123 x ?key=qwerty&b=1 x AIzaSyA-1234567890 x'
    hidden = plain(words, ['a/b"c\\d', "b", ""])
    assert hidden == "x [hidden] x [hidden] x [hidden] x [hidden] x ?key=[hidden]&b=1 x [hidden] x"
    assert plain("abcdef abc", ["abc", "abcdef"]) == "[hidden] abc"  # too short to be a key, unlike the other


def test_messages_are_short_and_without_class_names() -> None:
    long = plain("litellm.RateLimitError: RateLimitError: OpenAIException - Wait\n\n for  it. " + "x" * 1000, [])
    assert long.startswith("Wait for it. xxx")
    assert len(long) == 300
    assert plain("litellm.APIConnectionError: It failed.\nTraceback (most recent call last):\n x", []) == "It failed."
    # Secrets are hidden before the message is cut.
    assert "secret" not in plain("x" * 292 + "secret-0123456789", ["secret-0123456789"])


# Cost


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_providers_cost_has_precedence(server: OpenAIServer, provider: str) -> None:
    server.cost_per_call = 0.0125
    assert complete(server, provider=provider).cost == 0.0125
    assert complete(server, provider=provider, price=Price(input=1.0, output=1.0)).cost == 0.0125
    server.cost_per_call = 0.0
    assert complete(server, provider=provider).cost == 0


def test_without_a_reported_cost_the_price_applies(server: OpenAIServer) -> None:
    price = Price(input=2.0, output=10.0)
    reply = complete(server, price=price)
    assert reply.cost == pytest.approx((reply.tokens_in * 2 + reply.tokens_out * 10) / 1e6)
    assert complete(server, model="openai/gpt-4o-mini").cost == pytest.approx((8 * 0.15 + 6 * 0.6) / 1e6)
    assert embed(server, "four", price=price).cost == pytest.approx(2e-6)
    assert complete(server).cost is None


def test_unusable_answers_have_a_cost(server: OpenAIServer) -> None:
    server.faults = [Fault("nan")]
    error = failure(server, "embeddings", price=Price(input=2.0))
    assert (error.tokens_in, error.tokens_out) == (1, 0)
    assert error.cost == pytest.approx(2e-6)
    server.faults = [Fault("refusal")]
    error = failure(server, "chat", price=Price(input=2.0))
    assert error.tokens_in == 8
    assert error.cost == pytest.approx(16e-6)
    server.faults = [Fault("500")]
    assert failure(server, "chat").tokens_in == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_tokens_that_a_server_does_not_report_are_estimated(server: OpenAIServer, provider: str) -> None:
    server.counts_tokens = False
    reply = complete(server, provider=provider)
    assert (reply.tokens_in, reply.tokens_out) == (3 + 6, 6)
    assert embed(server, "12345", "1", provider=provider).tokens_in == 3


def test_prices_come_from_the_endpoint_or_the_list() -> None:
    own = Price(input=1.0, output=2.0)
    assert litellm_client.price(Completion(model="openai/gpt-4o-mini", price=own)) == own
    assert litellm_client.price(Completion(model="openai/gpt-4o-mini")) == Price(input=0.15, output=0.6)
    assert litellm_client.price(Embedding(model="openai/text-embedding-3-small", dimension=8)) == Price(input=0.02)
    assert litellm_client.price(Completion(model="mistral/mistral-small-latest")) is not None
    assert litellm_client.price(Completion(model="bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0")) is not None
    assert litellm_client.price(Completion(model="openai/a-model-of-ours")) is None
    assert (
        litellm_client.price(Completion(model="hosted_vllm/gpt-4o-mini")) is None
    )  # of that name, but not that server's
    assert (
        litellm_client.price(Completion(model="ollama/llama3")) is None
    )  # listed as free, as many are whose price is unknown
    assert litellm_client.price(CrossEncoder(model="cohere/rerank-v3.5")) == Price(input=0.0, request=0.002)
    assert litellm_client.price(Completion()) is None


# Concurrency


@pytest.mark.parametrize("provider", PROVIDERS if IS_THOROUGH else ["openai"])
def test_connections_are_reused_by_many_threads(server: OpenAIServer, provider: str) -> None:
    for _ in range(3):
        complete(server, provider=provider)
    assert server.connections <= 1
    server.latency = 0.3
    server.answer = lambda body: str(body["seed"])

    def ask(number: int) -> str:
        return complete(server, provider=provider, parameters={"seed": number}).value

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(64)))
    assert answers == [str(number) for number in range(64)]
    assert server.peak > 16
    assert server.connections <= 32


def test_the_first_requests_of_many_threads_need_no_network_and_print_nothing() -> None:
    """In a new process without network except loopback, and with LiteLLM set to verbose."""
    code = """
        import os, socket, sys, threading
        os.environ |= {"LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug"}
        reached, connect, look_up = [], socket.socket.connect, socket.getaddrinfo

        def checked_connect(self, address):
            if address[0] != "127.0.0.1":
                reached.append(address)
                raise OSError("no network")
            return connect(self, address)

        def checked_look_up(host, *rest, **more):
            if host not in ("127.0.0.1", b"127.0.0.1"):
                reached.append(host)
                raise OSError("no network")
            return look_up(host, *rest, **more)

        socket.socket.connect, socket.getaddrinfo = checked_connect, checked_look_up
        from memory_pipeline.configuration.model_settings import Completion, Embedding
        from memory_pipeline.models.hosted.transport.litellm_client import complete, embed
        from memory_pipeline_tests.openai_server import OpenAIServer
        assert "litellm" not in sys.modules
        done = []

        def ask():
            messages = [{"role": "user", "content": "Where does Anna live?"}]
            for model in ("openai/m", "openrouter/m", "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"):
                endpoint = Completion(model=model, api_base=server.base_url)
                done.append(complete(endpoint, messages, None, name="x", api_key="k-4711", secrets=()).value)
            endpoint = Embedding(model="openai/m", api_base=server.base_url, dimension=16)
            embed(endpoint, ["a"], api_key="k-4711", secrets=())

        with OpenAIServer() as server:
            threads = [threading.Thread(target=ask) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(done) == ["Noted."] * 16 + ["Where does Anna live?"] * 48, done
        assert not reached, reached
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

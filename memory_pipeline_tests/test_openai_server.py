"""The test server for models answers, fails and counts as configured."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import numpy as np
import pytest

from memory_pipeline_tests.openai_answers import embedding, least_instance
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

HELLO = {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def post(server: OpenAIServer | str, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Send a request to an address below the base; raise what the server or the connection gives."""
    base = server if isinstance(server, str) else server.base_url
    request = urllib.request.Request(f"{base}{path}", json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return dict(json.loads(response.read()))


def chat(server: OpenAIServer | str, **more: Any) -> dict[str, Any]:
    return post(server, "/chat/completions", HELLO | more)


def embed(server: OpenAIServer, *texts: str, **more: Any) -> dict[str, Any]:
    return post(server, "/embeddings", {"model": "m", "input": list(texts)} | more)


def content(reply: dict[str, Any]) -> Any:
    return reply["choices"][0]["message"]["content"]


def test_a_chat_is_answered_with_its_last_message_or_the_tests_answer(server: OpenAIServer) -> None:
    reply = chat(server)
    assert content(reply) == "Hello"
    assert reply["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    server.answer = lambda body: {"asked": body["messages"][1]["content"]}
    assert json.loads(content(chat(server))) == {"asked": "Hello"}
    server.cost_per_call = 0.5
    assert chat(server)["usage"]["cost"] == 0.5
    server.counts_tokens = False
    assert "usage" not in chat(server)


def test_a_schema_is_answered_with_its_smallest_instance(server: OpenAIServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert content(chat(server, response_format=wanted)) == '{"n": 3}'
    assert content(chat(server, response_format={"type": "json_object"})) == "{}"


@pytest.mark.parametrize(
    ("schema", "least"),
    [
        ({"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 2}, ["xx", "xx"]),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": 7}, 7),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "number", "minimum": 0.5}, 0.5),
        ({"type": "integer", "exclusiveMinimum": 1}, 2),
        ({"type": "boolean"}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        (
            {
                "$defs": {"Node": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}},
                "properties": {"first": {"$ref": "#/$defs/Node"}},
                "required": ["first"],
            },
            {"first": {}},
        ),
    ],
)
def test_the_smallest_instance_of_a_schema_is_returned(schema: dict[str, Any], least: object) -> None:
    assert least_instance(schema) == least


def test_vectors_depend_only_on_the_text(server: OpenAIServer) -> None:
    reply = embed(server, "Porto", "Lisbon")
    vectors = [item["embedding"] for item in reply["data"]]
    assert vectors[0] == embed(server, "Porto")["data"][0]["embedding"] != vectors[1]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert [len(vector) for vector in vectors] == [16, 16]
    packed = embed(server, "Porto", encoding_format="base64", dimensions=4)["data"][0]["embedding"]
    assert np.array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), embedding("Porto", 4))


def test_requests_are_recorded(server: OpenAIServer) -> None:
    before = time.time()
    post(server, "/chat/completions", HELLO, Authorization="Bearer k")
    with pytest.raises(HTTPError, match="404"):
        post(server, "/nowhere", {})
    with pytest.raises(HTTPError, match="400"):
        urllib.request.urlopen(f"{server.base_url}/chat/completions", b"{", timeout=10)
    (request,) = server.requests
    assert (request.path, request.model, request.body) == ("chat", "m", HELLO)
    assert request.headers["Authorization"] == "Bearer k"
    assert before <= request.received_at <= time.time()
    assert server.counts == {"path chat": 1, "status 200": 1, "status 400": 1}
    server.reset()
    assert (server.requests, dict(server.counts)) == ([], {})


def test_connections_are_reused_and_peak_concurrency_is_counted(server: OpenAIServer) -> None:
    address = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", json.dumps(HELLO))
        connection.getresponse().read()
    assert server.connections == 1
    assert server.peak == 1
    server.latency = 0.2
    threads = [threading.Thread(target=chat, args=(server,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.peak == 8
    assert server.connections == 9


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault("503"), 503, "status_503"),
        (Fault("413"), 413, "status_413"),
        (Fault("quota"), 429, "insufficient_quota"),
        (Fault("context_length"), 400, "context_length_exceeded"),
        (Fault("policy"), 400, "content_policy_violation"),
        (Fault("leak"), 401, "invalid_api_key"),
    ],
)
def test_errors_have_the_format_of_openai(server: OpenAIServer, fault: Fault, status: int, code: str) -> None:
    server.faults = [fault]
    with pytest.raises(HTTPError) as caught:
        post(server, "/chat/completions", HELLO, Authorization="Bearer k-123")
    error = json.loads(caught.value.read())["error"]
    assert (caught.value.code, error["code"]) == (status, code)
    assert ("k-123" in error["message"]) == (fault.kind == "leak")
    assert server.counts == {"path chat": 1, f"fault {fault.kind}": 1, f"status {status}": 1}
    assert content(chat(server)) == "Hello"  # once means once


def test_retry_after_is_sent_as_configured(server: OpenAIServer) -> None:
    server.faults = [
        Fault("429"),
        Fault("429", retry_after=7),
        Fault("503", retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
    ]
    asked = []
    for _ in range(3):
        with pytest.raises(HTTPError) as caught:
            chat(server)
        asked.append(caught.value.headers["Retry-After"])
    assert asked == ["1", "7", "Wed, 21 Oct 2026 07:28:00 GMT"]


def test_each_fault_produces_its_kind_of_bad_answer(server: OpenAIServer) -> None:
    def struck(kind: str, *texts: str) -> dict[str, Any]:
        server.faults = [Fault(kind)]
        return embed(server, *texts) if texts else chat(server)

    assert content(struck("length")) == "He"
    assert content(struck("refusal")) is None
    assert struck("filtered")["choices"][0]["finish_reason"] == "content_filter"
    assert "```json\nHello\n```" in content(struck("fenced"))
    with pytest.raises(json.JSONDecodeError):
        json.loads(content(struck("bad_content")))
    assert struck("empty") == {"choices": []}
    assert "error" in struck("error_200")
    assert struck("empty", "a")["data"] == []
    assert [item["index"] for item in struck("reorder", "a", "b")["data"]] == [1, 0]
    assert [len(struck("wrong_count", *texts)["data"]) for texts in ("ab", "a")] == [1, 2]
    assert len(struck("wrong_dims", "a")["data"][0]["embedding"]) == 7
    assert not any(struck("zero", "a")["data"][0]["embedding"])
    assert np.isnan(struck("nan", "a")["data"][0]["embedding"][0])
    for kind in ("malformed", "html"):
        with pytest.raises(json.JSONDecodeError):
            struck(kind)
    with pytest.raises(http.client.IncompleteRead):
        struck("truncated")
    with pytest.raises(http.client.RemoteDisconnected):
        struck("reset")
    started = time.monotonic()
    server.faults = [Fault("slow", delay=0.2)]
    assert content(chat(server)) == "Hello"
    assert time.monotonic() - started >= 0.2
    server.faults = [Fault("dribble", delay=0.0001)]
    assert content(chat(server)) == "Hello"


def test_faults_apply_to_matching_requests(server: OpenAIServer) -> None:
    server.faults = [
        Fault("500", times=None, match="Porto"),
        Fault("502", times=None, path="embeddings"),
        Fault("503", times=2, after=1, every=2, path="chat"),
    ]
    statuses = []
    for _ in range(7):
        try:
            chat(server)
            statuses.append(200)
        except HTTPError as error:
            statuses.append(error.code)
    assert statuses == [200, 200, 503, 200, 503, 200, 200]
    with pytest.raises(HTTPError, match="500"):
        embed(server, "Porto")
    with pytest.raises(HTTPError, match="502"):
        embed(server, "Lisbon")
    server.faults = [Fault("nan", path="chat"), Fault("refusal", path="embeddings")]
    assert content(chat(server)) == "Hello"
    assert embed(server, "a")
    with pytest.raises(ValueError, match="no fault is called 'nonsense'"):
        Fault("nonsense")


def test_random_faults_do_not_depend_on_the_order_of_requests(server: OpenAIServer) -> None:
    def struck(numbers: list[int]) -> set[int]:
        server.reset()
        server.faults = [Fault("500", times=None, probability=0.3)]
        failed = set()
        for number in numbers:
            try:
                chat(server, user=str(number))
            except HTTPError:
                failed.add(number)
        return failed

    numbers = list(range(60))
    first = struck(numbers)
    assert 5 < len(first) < 35
    assert struck(numbers[::-1]) == first
    server.seed = 1
    assert struck(numbers) != first


def test_stopping_releases_hanging_requests() -> None:
    with OpenAIServer() as server:
        server.faults = [Fault("hang", times=None)]
        caught: list[BaseException] = []

        def ask() -> None:
            try:
                chat(server)
            except OSError as error:
                caught.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not server.counts["fault hang"]:
            time.sleep(0.01)
        started = time.monotonic()
    thread.join(5)
    assert time.monotonic() - started < 5
    assert len(caught) == 1
    OpenAIServer().stop()  # one that never started


def test_an_error_in_the_tests_answer_becomes_a_500_that_names_it(server: OpenAIServer) -> None:
    server.answer = lambda body: str(body["no such key"])
    with pytest.raises(HTTPError) as caught:
        chat(server)
    assert "no such key" in caught.value.read().decode()


def test_the_server_runs_as_a_process_that_can_be_controlled_and_killed() -> None:
    command = [sys.executable, "-m", "memory_pipeline_tests.openai_server", "--dimension", "4", "--latency", "0.05"]
    with subprocess.Popen([*command, "--fault", "500,times=1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base = process.stdout.readline().strip()
        root = base.removesuffix("/v1")
        try:
            with pytest.raises(HTTPError, match="500"):
                chat(base)
            assert content(chat(base)) == "Hello"
            post(root, "/control", {"reset": True, "faults": [{"kind": "503", "times": None}], "latency": 0})
            with pytest.raises(HTTPError, match="503"):
                chat(base)
            with pytest.raises(HTTPError, match="400"):
                post(root, "/control", {"answer": 1})
            with urllib.request.urlopen(f"{root}/stats", timeout=10) as response:
                stats = json.loads(response.read())
            assert stats["requests"] == 1
            assert stats["counts"] == {"path chat": 1, "fault 503": 1, "status 503": 1}
        finally:
            process.kill()
        process.wait()
        with pytest.raises(OSError, match="refused"):
            chat(base)

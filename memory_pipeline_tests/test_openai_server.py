"""The test server for models answers, fails and counts as configured."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from memory_pipeline_tests.openai_answers import least_instance
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

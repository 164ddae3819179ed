"""Traces and metrics: names, ids and durations, and no words of anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A program in a process of its own: OpenTelemetry is set up once a process.
PROGRAM = """
import json, sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, read = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([read]))

from memory_pipeline import Memory
from memory_pipeline.errors import InputError

memory = Memory(sys.argv[1], user_id="anna", agent_id="support")
memory.add("My code is 4711.")
memory.search("code")
memory.context("Which code?")
held = memory.remember("The vault opens at nine.")
memory.writer.update(held, "The vault opens at ten.")
memory.forget(held)
try:
    memory.search("4711" * 10_000)
except InputError:
    pass
memory.run(now="2099-01-01T00:00Z")
points = [
    {**point.attributes}
    for resource in read.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics if metric.name == "memory.operation.duration"
    for point in metric.data.data_points
]
ended = [{"name": span.name, **span.attributes} for span in spans.get_finished_spans()]
events = [event.name for span in spans.get_finished_spans() for event in span.events]
print(json.dumps({"spans": ended, "points": points, "events": events}))
"""


def test_operations_are_traced_by_the_conventions_without_texts(root: str) -> None:
    made = subprocess.run([sys.executable, "-c", PROGRAM, root], capture_output=True, text=True, check=True)
    found = json.loads(made.stdout)
    assert not [word for word in ("4711", "vault", "anna", "code") if word in made.stdout]
    spans = [one for one in found["spans"] if "gen_ai.memory.store.id" in one]
    assert [one["gen_ai.operation.name"] for one in spans] == [
        "upsert_memory", "search_memory", "search_memory", "create_memory", "update_memory", "delete_memory",
        "search_memory",
    ]  # fmt: skip
    assert {one["gen_ai.agent.id"] for one in spans} == {"support"}
    assert len({one["gen_ai.memory.store.id"] for one in spans if one["name"] == "search_memory"}) == 1
    assert spans[0]["memory_pipeline.record.count"] == 1
    assert spans[1]["memory_pipeline.record.ids"][0].startswith("working:")
    assert spans[3]["gen_ai.memory.record.id"].startswith("memory:")
    assert spans[-1]["error.type"] == "InputError"
    assert found["events"] == []
    steps = [one["name"] for one in found["spans"] if one["name"].startswith("materialize ")]
    assert {"materialize working", "materialize daily", "materialize yearly"} <= set(steps)
    measured = {(one["gen_ai.operation.name"], one.get("error.type")) for one in found["points"]}
    assert {("search_memory", None), ("search_memory", "InputError"), ("upsert_memory", None)} <= measured


def test_without_opentelemetry_nothing_is_imported(root: str) -> None:
    program = (
        "import sys\nfrom memory_pipeline import Memory\nmemory = Memory(sys.argv[1], user_id='anna')\n"
        "memory.add('Hello.')\nmemory.search('Hello')\nprint([one for one in sys.modules if 'opentelemetry' in one])"
    )
    made = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A collector of OTLP over HTTP, and what it has received, by path."""
    received: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # its name
            received[self.path] = received.get(self.path, b"") + self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()


def test_a_command_sends_to_the_collector_that_the_environment_names(
    root: str, collector: tuple[str, dict[str, bytes]]
) -> None:
    endpoint, received = collector
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    command = [sys.executable, "-m", "memory_pipeline.cli", "memories", "remember", "The vault opens at nine."]
    subprocess.run([*command, "--root", root], env=environment, check=True, capture_output=True)
    assert b"create_memory" in received["/v1/traces"]
    assert b"memory.operation.duration" in received["/v1/metrics"]
    assert b"vault" not in b"".join(received.values())


def test_a_call_to_a_model_is_a_span_with_its_tokens(root: str) -> None:
    program = PROGRAM.partition("memory = Memory(")[0] + (
        "from memory_pipeline.models.hosted.transport import litellm_client\n"
        "from memory_pipeline.configuration.model_settings import Completion\n"
        "endpoint = Completion(model='openai/test', api_base=sys.argv[1])\n"
        "said = [{'role': 'user', 'content': '4711'}]\n"
        "litellm_client.complete(endpoint, said, None, name='x', api_key='k', secrets=())\n"
        "print(json.dumps([{'name': span.name, **span.attributes} for span in spans.get_finished_spans()]))\n"
    )
    with OpenAIServer() as server:
        made = subprocess.run(
            [sys.executable, "-c", program, server.base_url], capture_output=True, text=True, check=True
        )
    [span] = json.loads(made.stdout)
    assert (span["name"], span["gen_ai.operation.name"]) == ("chat openai/test", "chat")
    assert span["gen_ai.usage.input_tokens"] > 0
    assert "4711" not in made.stdout

"""A small HTTP server on loopback that speaks OpenAI's protocol and injects faults. No network, no model, no key.

It answers ``/rerank`` too, in Cohere's format, which Infinity and vLLM share.

In a test::

    with OpenAIServer() as server:                      # POST {server.base_url}/chat/completions and /embeddings
        server.answer = lambda body: {"facts": []}      # default: the smallest instance of the schema in the request
        server.faults = [Fault("429", retry_after=2), Fault("hang", path="embeddings", match="Porto", times=None)]
        ...
        assert server.counts["fault 429"] == 1
        assert server.requests[0].headers["Authorization"] == "Bearer k"

As a separate process, which can be killed and does not share the GIL with the code that is measured::

    python -m memory_pipeline_tests.openai_server --port 8199 --latency 0.3 --fault 503,probability=0.05,times=none

It prints its address once it listens. ``GET /stats`` returns ``server.stats()``. ``POST /control`` takes
``{"reset": true, "faults": [{"kind": "500", "times": null}], "latency": 0.1}`` and other attributes of the server.

A fault applies to requests that match its `path` and `match` (a regular expression over the body). It skips the first
`after` of them and then strikes every `every`-th, or each with `probability`, `times` times in total (None: no limit).
The first fault of the list that strikes is injected. The random choice depends on the seed, the body, and how often
the server has seen that body, not on the order in which threads arrive. So two runs see the same faults.

==================  ================================================================================================
kind                effect
==================  ================================================================================================
``400`` to ``599``  that status, with an error in OpenAI's format. 429 has Retry-After (`retry_after`, default 1)
``quota``           429 with the code insufficient_quota: the account is empty, and waiting does not help
``context_length``  400 with the code context_length_exceeded
``policy``          400 with the code content_policy_violation
``leak``            401 with a message that repeats the key, as some providers do
``error_200``       200 with an error in the body and no answer, as some gateways do when their provider fails
``slow``            a valid answer after `delay` seconds (default 1)
``hang``            nothing for `delay` seconds (default an hour) or until the server stops; then the connection closes
``reset``           the connection closes without an answer
``dribble``         a valid answer, headers first, one byte per `delay` seconds (default 0.05)
``padded``          headers at once, then one blank per `delay` seconds (default 0.05) for an hour
``malformed``       200 with truncated JSON; ``html``: 200 with a proxy's page
``truncated``       half of the announced length, then the connection closes
``empty``           no choices, no data, no results
``wrong_dims``      vectors of `dims` numbers (default 7)
``wrong_count``     one vector too few; for a single text one too many
``reorder``         vectors in reverse order with the right `index`, which is legal
``nan``, ``zero``   the first vector has a NaN; only zeros
``bad_content``     prose instead of JSON; ``fenced``: JSON in a Markdown fence within prose
``length``          half of the content, with the finish_reason "length"
``refusal``         no content, and a refusal; ``filtered``: no content, and the finish_reason "content_filter"
==================  ================================================================================================
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from memory_pipeline_tests.openai_answers import (
    DELAYS,
    ERRORS,
    Fault,
    Json,
    Route,
    as_stream,
    chat_reply,
    embedding_reply,
    message_reply,
    message_stream,
    rerank_reply,
    response_reply,
    response_stream,
)

__all__ = ["Fault", "OpenAIServer", "Request"]

Answer = Callable[[Json], str | Json]

#: Endings of request paths. The prefix differs by provider, and Azure adds a query.
ROUTES: dict[str, Route] = {
    "/chat/completions": "chat", "/embeddings": "embeddings", "/rerank": "rerank", "/responses": "responses",
    "/messages": "messages",
}  # fmt: skip
#: How an answer becomes a stream.
STREAMS = {"chat": as_stream, "responses": response_stream, "messages": message_stream}
#: Requests beyond this number are only counted, so that a benchmark does not exhaust memory.
MOST_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Request:
    """A received request; `received_at` is in seconds since 1970."""

    path: Route
    model: str
    headers: dict[str, str]
    body: Json
    received_at: float


class OpenAIServer:
    """A server on a loopback port. Attributes may be set at any time.

    Attributes:
        answer: returns the answer to a chat request's body: a text, or an object that becomes JSON. An object with
            ``tool_calls`` becomes a message with these.
        ranked: returns the results for the body of a request to rerank.
        faults: the faults to inject.
        seed: selects the requests that a fault with a probability strikes.
        latency: seconds before each answer.
        dimension: length of the vectors, if the request has no `dimensions`.
        cost_per_call: cost in US dollars that answers report, as OpenRouter does; None reports none.
        counts_tokens: whether answers report their tokens; self-hosted servers often do not.
        requests: received requests in order, without GET and /control.
        counts: number of requests by ``path chat``, ``status 200``, ``fault reset``.
        peak: most requests in flight at one time.
        connections: number of connections opened.
    """

    def __init__(self, port: int = 0, *, dimension: int = 16, latency: float = 0.0) -> None:
        self.answer: Answer | None = None
        self.ranked: Callable[[Json], list[Json]] | None = None
        self.faults: list[Fault] = []
        self.seed = 0
        self.latency = latency
        self.dimension = dimension
        self.cost_per_call: float | None = None
        self.counts_tokens = True
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.reset()
        self._http = _Http(self, port)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop at once and close all connections."""
        self.stopping.set()
        if self._thread.is_alive():
            self._http.shutdown()
        self._http.server_close()
        self._http.drop_connections()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> None:
        """Clear requests, counts and faults; keep other settings."""
        with self.lock:
            self.faults = []
            self.requests: list[Request] = []
            self.counts: Counter[str] = Counter()
            self.connections = self.peak = self.active = 0
            self._asked: Counter[bytes] = Counter()

    def stats(self) -> Json:
        with self.lock:
            return {
                "requests": sum(self.counts[f"path {path}"] for path in ROUTES.values()),
                "counts": dict(self.counts),
                "peak": self.peak,
                "connections": self.connections,
                "faults": [asdict(fault) for fault in self.faults],
            }

    def control(self, settings: Json) -> None:
        """Set attributes, as ``POST /control`` does."""
        if settings.get("reset"):
            self.reset()
        for name, value in settings.items():
            if name not in {"reset", "faults", "seed", "latency", "dimension", "cost_per_call", "counts_tokens"}:
                raise ValueError(f"{name} cannot be set")
            if name != "reset":
                setattr(self, name, [Fault(**fault) for fault in value] if name == "faults" else value)

    def admit(self, request: Request, text: str) -> Fault | None:
        """Record a request. Return the fault that strikes it, if any."""
        body = hashlib.blake2b(text.encode(), digest_size=16).digest()
        with self.lock:
            self.active += 1
            self.peak = max(self.peak, self.active)
            self._asked[body] += 1
            self.counts[f"path {request.path}"] += 1
            if len(self.requests) < MOST_KEPT:
                self.requests.append(request)
            for place, fault in enumerate(self.faults):
                lot = hashlib.blake2b(body + f"{self.seed} {place} {self._asked[body]}".encode(), digest_size=8)
                if fault.strikes(request.path, text, int.from_bytes(lot.digest(), "big") / 2**64):
                    self.counts[f"fault {fault.kind}"] += 1
                    return fault
        return None


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, owner: OpenAIServer, port: int) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.owner.lock:
            self.owner.connections += 1
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.owner.lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def drop_connections(self) -> None:
        with self.owner.lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # closed already


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name in the base class
        """Log nothing."""

    def _route(self) -> Route | None:
        address = self.path.partition("?")[0]
        return next((route for end, route in ROUTES.items() if address.endswith(end)), None)

    def do_GET(self) -> None:
        if self.path == "/stats":
            self._send(200, self.server.owner.stats())
        else:
            self._send_error(404, "not_found", f"there is nothing at {self.path}")

    def do_POST(self) -> None:
        owner = self.server.owner
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            text = raw.decode()
            body = dict(json.loads(text))
            if self.path == "/control":
                owner.control(body)
        except (ValueError, TypeError) as error:
            self._send_error(400, "invalid_request", str(error))
            return
        if route := self._route():
            request = Request(route, str(body.get("model")), dict(self.headers), body, time.time())
            fault = owner.admit(request, text)
            try:
                if owner.latency:
                    owner.stopping.wait(owner.latency)
                self._serve(request, fault)
            finally:
                with owner.lock:
                    owner.active -= 1
        elif self.path == "/control":
            self._send(200, {})
        else:
            self._send_error(404, "not_found", f"there is nothing at {self.path}")

    def _serve(self, request: Request, fault: Fault | None) -> None:
        kind = "" if fault is None else fault.kind
        delay = DELAYS.get(kind, 0.0) if fault is None or fault.delay is None else fault.delay
        if fault is not None and (kind in ERRORS or kind.isdigit()):
            retry_after = 1 if kind == "429" and fault.retry_after is None else fault.retry_after
            headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
            ordered = ERRORS[kind] if kind in ERRORS else (int(kind), f"status_{kind}", f"a {kind} was ordered")
            self._send_error(*ordered, headers)
        elif kind == "leak":
            key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            self._send_error(401, "invalid_api_key", f"Incorrect API key provided: {key}. Find yours in your account.")
        elif kind == "error_200":
            self._send(200, {"error": {"message": "Provider returned error", "code": 502}})
        elif kind in {"hang", "reset"}:
            self.server.owner.stopping.wait(delay)
            self.close_connection = True
        elif kind == "html":
            self._send_bytes(200, b"<!DOCTYPE html><html><body>Sign in to the network</body></html>", "text/html")
        elif kind == "empty":
            lists: Json = {
                "chat": {"choices": []},
                "embeddings": {"object": "list", "data": []},
                "rerank": {"results": []},
            }
            self._send(200, lists[request.path])
        else:
            if kind == "slow":
                self.server.owner.stopping.wait(delay)
            try:
                whole = json.dumps(self._reply(request, fault)).encode()
            except Exception as error:  # noqa: BLE001  # the test's own callable
                self._send_error(500, "answer_failed", f"the test's answer raised {error!r}")
                return
            if request.body.get("stream") and not kind:
                self._send_bytes(200, STREAMS[request.path](json.loads(whole)), "text/event-stream")
                return
            self._send_bytes(200, whole[:-9] if kind == "malformed" else whole, kind=kind, delay=delay)

    def _reply(self, request: Request, fault: Fault | None) -> Json:
        owner, body, kind = self.server.owner, request.body, "" if fault is None else fault.kind
        if request.path == "chat":
            reply = chat_reply(body, owner.answer(body) if owner.answer else None, kind)
        elif request.path in {"responses", "messages"}:
            text = str(owner.answer(body)) if owner.answer else "Noted."
            return response_reply(text) if request.path == "responses" else message_reply(text)
        elif request.path == "rerank":
            reply = rerank_reply(body, owner.ranked(body) if owner.ranked else None)
        else:
            dimension = body.get("dimensions") or owner.dimension
            reply = embedding_reply(body, dimension if fault is None or kind != "wrong_dims" else fault.dims, kind)
        if owner.cost_per_call is not None:
            reply["usage"]["cost"] = owner.cost_per_call
        if not owner.counts_tokens:
            reply = {name: value for name, value in reply.items() if name not in {"usage", "meta"}}
        return reply

    def _send_error(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": code, "param": None, "code": code}}, headers)

    def _send(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(body).encode(), headers=headers)

    def _send_bytes(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        *,
        headers: dict[str, str] | None = None,
        kind: str = "",
        delay: float = 0.0,
    ) -> None:
        owner = self.server.owner
        if self._route():
            with owner.lock:
                owner.counts[f"status {status}"] += 1
        if kind == "padded":
            body = b" " * round(3600 / delay)
        lines = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
        if kind in {"truncated", "dribble", "padded"}:
            lines["Connection"] = "close"
            self.close_connection = True
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        head = f"HTTP/1.1 {status} {self.responses.get(status, ('-',))[0]}\r\n{head}\r\n"
        slowly = head.encode() + body if kind == "dribble" else body if kind == "padded" else b""
        at_once = b"" if kind == "dribble" else head.encode()
        at_once += body[: len(body) // 2] if kind == "truncated" else b"" if slowly else body
        self.wfile.write(at_once)
        for byte in slowly:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if owner.stopping.wait(delay):
                break


def _fault(text: str) -> Fault:
    """Parse a fault of the command line: ``KIND,name=value,…``."""
    kind, *pairs = text.split(",")
    settings: Json = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        settings[name] = value if name in {"path", "match"} else json.loads("null" if value == "none" else value)
    return Fault(kind, **settings)


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A server that speaks OpenAI's protocol and injects faults.")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--dimension", type=int, default=16, help="length of the vectors")
    parser.add_argument("--seed", type=int, default=0, help="for faults with a probability")
    parser.add_argument("--fault", type=_fault, action="append", default=[], help="KIND[,name=value...], repeatable")
    options = parser.parse_args(arguments)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with OpenAIServer(options.port, dimension=options.dimension, latency=options.latency) as server:
        server.seed, server.faults = options.seed, options.fault
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        stopped.wait()


if __name__ == "__main__":
    main()

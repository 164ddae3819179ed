"""A proxy between a client and an object store that injects faults of networks and stores.

In a test::

    with S3Server() as server, FaultProxy(server.url) as proxy, server.in_environment(proxy.url):
        proxy.faults = [Fault("503", method="PUT", match="_delta_log", times=2), Fault("half", method="GET", after=5)]
        ...
        assert proxy.counts["503"] == 2

As a separate process, which prints its address once it listens::

    python -m memory_pipeline_tests.fault_proxy --upstream http://127.0.0.1:5000 --fault 503,probability=0.02,times=none

The proxy answers ``GET /__stats__`` with its counts. ``POST /__control__`` takes
``{"faults": [{"kind": "reset", …}], "latency": 0.05, "seed": 1, "reset": true}``; all keys are optional.

It uses HTTP/1.1 over plain sockets and keeps connections to both sides open. Requests and answers pass unchanged,
including the Host header, which the client signed. Each answer is read completely before it is passed on.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

KINDS = ("500", "503", "late", "reset", "lost", "half", "slow", "hang", "stall")
METHODS = ("GET", "PUT", "DELETE", "HEAD", "POST", "LIST")

_ERRORS = {
    "500": (b"500 Internal Server Error", "InternalError", "We encountered an internal error. Please try again."),
    "503": (b"503 Slow Down", "SlowDown", "Please reduce your request rate."),
}
#: Headers that hold for one connection, and Expect, which the proxy itself answers.
_HOP_BY_HOP = (b"connection:", b"expect:", b"keep-alive:", b"proxy-connection:")
_LIST = re.compile(r"^/[^/?]*/?\?(.*&)?(list-type=|prefix=|delimiter=|marker=|uploads(=|&|$))")
#: How often a request that hangs looks whether it may go on, in seconds.
_TICK = 0.02


@dataclass
class Fault:
    """A fault to inject into some requests.

    Attributes:
        kind: ``500`` and ``503`` (SlowDown) answer as S3 does, without passing the request on; ``late`` passes it on,
            waits until it is done, and then answers 500; ``reset`` closes the connection before the request is passed
            on; ``lost`` passes it on, waits until it is done, and closes the connection without an answer; ``half``
            sends the full content length but only half of the body and closes (half of the head if there is no body);
            ``slow`` waits `delay` seconds before passing it on; ``hang`` holds it without passing it on, ``stall``
            passes it on and holds the answer: both until `delay` seconds are over, the client disconnects or the fault
            is removed, and then close the connection.
        method: one of `METHODS` or several joined by ``|``; empty matches all.
        match: a regular expression to search in the path with its query; empty matches all.
        probability: the probability of a fault for a matching request.
        times: the maximum number of faults; None for no limit.
        after: the number of matching requests to pass first.
        delay: seconds; None means one second for ``slow`` and no limit for ``hang`` and ``stall``.
        seen: the number of matching requests so far.
        struck: the number of faults so far.
    """

    kind: str
    method: str = ""
    match: str = ""
    probability: float = 1.0
    times: int | None = 1
    after: int = 0
    delay: float | None = None
    seen: int = field(default=0, compare=False)
    struck: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"a fault is one of {', '.join(KINDS)}, not {self.kind!r}"
        unknown = set(filter(None, self.method.split("|"))) - set(METHODS)
        assert not unknown, f"a method is one of {', '.join(METHODS)}, not {', '.join(sorted(unknown))}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse a fault of the command line, such as ``503,method=PUT,probability=0.02,times=none``."""
        kind, *options = text.split(",")
        values = dict(option.split("=", 1) for option in options)
        read: dict[str, Any] = {
            "method": str,
            "match": str,
            "probability": float,
            "times": lambda value: None if value == "none" else int(value),
            "after": int,
            "delay": float,
        }
        return cls(kind, **{name: read[name](value) for name, value in values.items()})

    def is_meant_for(self, method: str, target: str) -> bool:
        """Return whether a request matches, and count it."""
        if self.method and method not in self.method.split("|"):
            return False
        if self.match and not re.search(self.match, target):
            return False
        self.seen += 1
        return True

    def strikes(self, chance: random.Random) -> bool:
        """Decide whether to inject the fault into the last matching request, and count it."""
        if self.seen <= self.after or (self.times is not None and self.struck >= self.times):
            return False
        if self.probability < 1.0 and chance.random() >= self.probability:
            return False
        self.struck += 1
        return True


class _Request(NamedTuple):
    method: str
    target: str
    head: bytes
    body: bytes
    #: The body's length without the framing of chunks.
    size: int

    @property
    def kind(self) -> str:
        return "LIST" if self.method == "GET" and _LIST.match(self.target) else self.method


class _Answer(NamedTuple):
    head: bytes
    body: bytes


class FaultProxy:
    """Passes requests on to a store in background threads and injects faults.

    A request gets the first fault that applies. All random numbers come from one generator in the order of requests, so
    the faults of a sequential client are reproducible with a seed.

    Attributes:
        url: the proxy's address.
        faults: the faults to inject; may be changed at any time.
        latency: the delay of every request in seconds.
        counts: the number of faults by kind and of requests by method; GET requests that list a bucket count as LIST.
        requests: the number of requests.
        bytes_in: bytes of the bodies of requests.
        bytes_out: bytes of the bodies of answers.
        log: each request's method and path with its query, if `logging` is on.
        hanging: the number of requests that ``hang`` or ``stall`` hold at the moment.
    """

    def __init__(self, upstream_url: str, seed: int = 0, *, port: int = 0, logging: bool = False) -> None:
        parts = urlsplit(upstream_url)
        assert parts.scheme == "http", f"the proxy speaks plain HTTP only, not {upstream_url!r}"
        assert parts.hostname is not None
        self._upstream = (parts.hostname, parts.port or 80)
        self._chance = random.Random(seed)
        self._port = port
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._stopping = threading.Event()
        self._held = threading.Condition(self._lock)
        self._listener: socket.socket | None = None
        self.url = ""
        self.faults: list[Fault] = []
        self.latency = 0.0
        self.logging = logging
        self.hanging = 0
        self.reset_counts()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True, name="fault-proxy").start()

    def stop(self) -> None:
        """Stop accepting connections and close the open ones."""
        self._stopping.set()
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def reset_counts(self) -> None:
        with self._lock:
            self.counts: Counter[str] = Counter()
            self.requests = self.bytes_in = self.bytes_out = 0
            self.log: list[tuple[str, str]] = []

    def wait_until_hanging(self, timeout: float = 60.0, count: int = 1) -> bool:
        """Wait until `count` requests are held, and return whether they are within `timeout` seconds."""
        with self._held:
            return self._held.wait_for(lambda: self.hanging >= count, timeout)

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="fault-proxy").start()

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection until either side closes it."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        store = _Store(self._upstream)
        try:
            with client.makefile("rb") as stream:
                while (request := _read_request(stream, client)) is not None:
                    if not self._answer(client, store, request):
                        break
        except (OSError, ValueError):
            # The client or the store has disconnected.
            pass
        finally:
            store.close()
            with self._lock:
                self._connections.discard(client)
            client.close()

    def _answer(self, client: socket.socket, store: _Store, request: _Request) -> bool:
        """Answer one request, and return whether the connection stays open."""
        if request.target in ("/__stats__", "/__control__"):
            client.sendall(self._control(request))
            return True
        fault = self._take(request)
        kind = "" if fault is None else fault.kind
        if self.latency:
            time.sleep(self.latency)
        if kind in _ERRORS:
            client.sendall(_error(kind, request))
            return True
        if fault is not None and kind == "slow":
            time.sleep(1.0 if fault.delay is None else fault.delay)
        answer = None if kind in ("reset", "hang") else store.ask(request)
        if fault is not None and kind in ("hang", "stall"):
            self._hold(client, fault)
        if kind == "late":
            client.sendall(_error("500", request))
            return True
        if answer is None or kind in ("lost", "stall"):
            # With a linger time of zero, closing sends RST instead of FIN.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        with self._lock:
            self.bytes_out += len(answer.body)
        whole = answer.head + answer.body
        cut = len(answer.head) + len(answer.body) // 2 if answer.body else len(answer.head) // 2
        client.sendall(whole[:cut] if kind == "half" else whole)
        return kind != "half"

    def _take(self, request: _Request) -> Fault | None:
        """Count the request and choose its fault."""
        kind = request.kind
        with self._lock:
            self.requests += 1
            self.counts[kind] += 1
            self.bytes_in += request.size
            if self.logging:
                self.log.append((kind, request.target))
            meant = [fault for fault in self.faults if fault.is_meant_for(kind, request.target)]
            for fault in meant:
                if fault.strikes(self._chance):
                    self.counts[fault.kind] += 1
                    return fault
        return None

    def _hold(self, client: socket.socket, fault: Fault) -> None:
        """Wait until the fault ends or the client disconnects."""
        end = time.monotonic() + (float("inf") if fault.delay is None else fault.delay)
        with self._held:
            self.hanging += 1
            self._held.notify_all()
        try:
            while time.monotonic() < end and not self._stopping.is_set() and any(f is fault for f in self.faults):
                readable = _is_readable(client, _TICK)
                if readable and not client.recv(1, socket.MSG_PEEK):
                    return
                if readable:
                    time.sleep(_TICK)
        finally:
            with self._held:
                self.hanging -= 1

    def _control(self, request: _Request) -> bytes:
        if request.target == "/__control__":
            wanted = json.loads(request.body or b"{}")
            if "faults" in wanted:
                self.faults = [Fault(**fault) for fault in wanted["faults"]]
            self.latency = float(wanted.get("latency", self.latency))
            if "seed" in wanted:
                self._chance = random.Random(wanted["seed"])
            if wanted.get("reset"):
                self.reset_counts()
        with self._lock:
            answer = {
                "counts": dict(self.counts),
                "requests": self.requests,
                "bytes_in": self.bytes_in,
                "bytes_out": self.bytes_out,
                "hanging": self.hanging,
                "latency": self.latency,
                "faults": [asdict(fault) for fault in self.faults],
            }
        body = json.dumps(answer).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class FaultProxyProcess:
    """A proxy in a separate process with the interface of :class:`FaultProxy`, controlled over HTTP.

    Use it if the client under test holds the GIL while it waits for an answer, as deltalake does in some calls. A proxy
    in a thread of the same process could not answer.
    """

    def __init__(self, upstream_url: str, seed: int = 0) -> None:
        self._command = [sys.executable, "-m", "memory_pipeline_tests.fault_proxy", "--upstream", upstream_url]
        self._command += ["--seed", str(seed)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stats(self, **wanted: object) -> dict[str, Any]:
        """Set faults, latency, seed or reset, and return the proxy's counts."""
        body = json.dumps(wanted).encode()
        with urllib.request.urlopen(f"{self.url}/__control__", body, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    @property
    def faults(self) -> list[Fault]:
        """The faults with their counts. To change one, set all."""
        return [Fault(**fault) for fault in self.stats()["faults"]]

    @faults.setter
    def faults(self, faults: list[Fault]) -> None:
        self.stats(faults=[asdict(fault) for fault in faults])

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.stats()["counts"])

    @property
    def requests(self) -> int:
        return int(self.stats()["requests"])

    def reset_counts(self) -> None:
        self.stats(reset=True)

    def wait_until_hanging(self, timeout: float = 60.0, count: int = 1) -> bool:
        end = time.monotonic() + timeout
        while self.stats()["hanging"] < count:
            if time.monotonic() >= end:
                return False
            time.sleep(_TICK)
        return True


class _Store:
    """A connection to the store, opened on demand and reused while the store keeps it open."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def ask(self, request: _Request) -> _Answer:
        """Pass a request on and return the answer.

        Raises:
            OSError: the store closed the connection before it answered. Requests are not resent, as they may be done.
        """
        if self._socket is not None and _is_readable(self._socket, 0):
            # The store has closed an idle connection.
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(self._address)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("rb")
        assert self._stream is not None
        self._socket.sendall(request.head + request.body)
        answer, keep = _read_answer(self._stream, request.method)
        if not keep:
            self.close()
        return answer

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = None


def _is_readable(connection: socket.socket, seconds: float) -> bool:
    """Wait for input. Unlike select(), poll() takes descriptors above 1,024, which a long test process has."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))


def _read_request(stream: BinaryIO, client: socket.socket) -> _Request | None:
    """Return a complete request; None if the client has closed the connection."""
    line = stream.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    lines = _read_head(stream)
    headers = _headers(lines)
    if headers.get(b"expect", b"").lower() == b"100-continue":
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    head = line + b"".join(line for line in lines if not line.lower().startswith(_HOP_BY_HOP)) + b"\r\n"
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        framed, body = _read_chunks(stream)
        return _Request(method, target, head, framed, len(body))
    body = _read_exactly(stream, int(headers.get(b"content-length", b"0")))
    return _Request(method, target, head, body, len(body))


def _read_answer(stream: BinaryIO, method: str) -> tuple[_Answer, bool]:
    """Return a complete answer, and whether the connection stays open."""
    line = stream.readline()
    if not line:
        raise OSError("the store closed the connection without an answer")
    status = int(line.split(b" ", 2)[1])
    lines = _read_head(stream)
    if status == 100:
        return _read_answer(stream, method)
    headers = _headers(lines)
    keep = headers.get(b"connection", b"").lower() != b"close" and line.startswith(b"HTTP/1.1")
    kept = [line for line in lines if not line.lower().startswith((*_HOP_BY_HOP, b"transfer-encoding:"))]
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        _, body = _read_chunks(stream)
        kept.append(b"Content-Length: %d\r\n" % len(body))
    elif b"content-length" in headers:
        body = _read_exactly(stream, int(headers[b"content-length"]))
    else:
        body, keep = stream.read(), False
        kept.append(b"Content-Length: %d\r\n" % len(body))
    return _Answer(line.replace(b"HTTP/1.0", b"HTTP/1.1", 1) + b"".join(kept) + b"\r\n", body), keep


def _read_head(stream: BinaryIO) -> list[bytes]:
    lines = []
    while (line := stream.readline()) not in (b"\r\n", b"\n"):
        if not line:
            raise OSError("the connection was closed within the headers")
        lines.append(line)
    return lines


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    pairs = (line.split(b":", 1) for line in lines)
    return {name.strip().lower(): value.strip() for name, value in pairs}


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    body = stream.read(size)
    if len(body) != size:
        raise OSError(f"the connection was closed after {len(body)} of {size} bytes")
    return body


def _read_chunks(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Return a chunked body with and without its framing."""
    framed, body = [], []
    while True:
        line = stream.readline()
        size = int(line.split(b";")[0], 16)
        chunk = _read_exactly(stream, size + 2) if size else b""
        framed += [line, chunk]
        body.append(chunk[:-2])
        if not size:
            while (trailer := stream.readline()) not in (b"\r\n", b"\n", b""):
                framed.append(trailer)
            framed.append(trailer)
            return b"".join(framed), b"".join(body)


def _error(kind: str, request: _Request) -> bytes:
    status, code, message = _ERRORS[kind]
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>0000000000000000</RequestId></Error>"
    )
    body = text.encode()
    head = b"HTTP/1.1 %s\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head if request.method == "HEAD" else head + body


def main(arguments: list[str] | None = None) -> None:
    """Run a proxy until the process is killed."""
    parser = argparse.ArgumentParser(prog="python -m memory_pipeline_tests.fault_proxy", description=FaultProxy.__doc__)
    parser.add_argument("--upstream", required=True, metavar="URL", help="the store, http://host:port")
    parser.add_argument("--port", type=int, default=0, help="where to listen on loopback; any free port by default")
    parser.add_argument("--seed", type=int, default=0, help="of the faults that strike by chance")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that every request waits")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND[,NAME=VALUE…]", help="may be given several times"
    )
    given = parser.parse_args(arguments)
    with FaultProxy(given.upstream, given.seed, port=given.port) as proxy:
        proxy.latency = given.latency
        proxy.faults = [Fault.parse(text) for text in given.fault]
        print(proxy.url, flush=True)  # noqa: T201  # the starting process reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()

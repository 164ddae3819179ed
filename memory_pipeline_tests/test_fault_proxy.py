"""The fault proxy forwards bytes unchanged, injects each fault into matching requests, and counts."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake.files.storage import Storage
from memory_pipeline_tests.fault_proxy import Fault, FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from memory_pipeline_tests.s3_server import S3Server


class _Upstream(BaseHTTPRequestHandler):
    """Answers each request with a description of it, and stores objects."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits for the client to have said that it has the head

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self._answer()

    def _answer(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server: Any = self.server
        server.seen.append((self.command, self.path, self.headers["Host"], body))
        server.connections.add(self.client_address)
        answer = body if self.command == "POST" else self.path.encode()
        self.send_response(204 if self.command == "DELETE" else 200)
        if self.command != "DELETE":
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command not in ("DELETE", "HEAD"):
            self.wfile.write(answer)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    server.daemon_threads = True
    server.seen, server.connections = [], set()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(upstream: Any) -> Iterator[FaultProxy]:
    with FaultProxy(f"http://127.0.0.1:{upstream.server_port}", logging=True) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
    yield connection
    connection.close()


def _ask(client: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    client.request(method, path, body or None, {"Host": "somewhere.example:123"})
    with client.getresponse() as answer:
        return answer.status, answer.read()


def test_requests_are_forwarded_unchanged_over_one_connection(
    upstream: Any, proxy: FaultProxy, client: http.client.HTTPConnection
) -> None:
    body = bytes(range(256)) * 1000

    assert _ask(client, "GET", "/bucket/a%20b?x=%2F&y") == (200, b"/bucket/a%20b?x=%2F&y")
    assert _ask(client, "POST", "/bucket/c", body) == (200, body)
    assert _ask(client, "DELETE", "/bucket/c") == (204, b"")
    assert _ask(client, "HEAD", "/bucket/c") == (200, b"")
    assert _ask(client, "PUT", "/bucket/d", body)[0] == 200
    client.request("POST", "/bucket/e", iter([b"one", b"two"]), encode_chunked=True)
    assert client.getresponse().read() == b"onetwo"

    assert [(method, path) for method, path, _, _ in upstream.seen] == proxy.log
    assert {host for _, _, host, _ in upstream.seen[:5]} == {"somewhere.example:123"}
    assert upstream.seen[4][3] == body
    assert len(upstream.connections) == 1
    assert proxy.requests == 6
    assert (proxy.bytes_in, proxy.bytes_out) == (2 * len(body) + 6, 21 + len(body) + 9 + 6)


@pytest.mark.parametrize(("kind", "done"), [("reset", 0), ("lost", 1)])
def test_a_connection_is_closed_before_or_after_the_request_is_executed(
    upstream: Any, proxy: FaultProxy, client: http.client.HTTPConnection, kind: str, done: int
) -> None:
    proxy.faults = [Fault(kind)]

    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        _ask(client, "PUT", "/bucket/a", b"1")

    assert len(upstream.seen) == done
    client.close()
    assert _ask(client, "GET", "/bucket/a")[0] == 200


def test_a_truncated_answer_announces_its_full_length(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    proxy.faults = [Fault("half", method="GET"), Fault("half", method="HEAD")]

    client.request("GET", "/bucket/0123456789")
    answer = client.getresponse()
    assert answer.getheader("Content-Length") == "18"
    with pytest.raises(http.client.IncompleteRead) as raised:
        answer.read()
    assert raised.value.partial == b"/bucket/0"

    with socket.create_connection(("127.0.0.1", client.port)) as other:
        other.sendall(b"HEAD /bucket/0123456789 HTTP/1.1\r\nHost: a\r\n\r\n")
        head = b"".join(iter(lambda: other.recv(1000), b""))
    assert head.startswith(b"HTTP/1.1 200")
    assert not head.endswith(b"\r\n\r\n")


def test_requests_are_forwarded_before_and_after_a_fault(proxy: FaultProxy, client: http.client.HTTPConnection) -> None:
    proxy.faults = [Fault("500", after=2, times=3), Fault("503", after=7, times=None)]

    assert [_ask(client, "GET", "/bucket/a")[0] for _ in range(12)] == [200] * 2 + [500] * 3 + [200] * 2 + [503] * 5


@pytest.mark.parametrize(("kind", "done"), [("hang", 0), ("stall", 1)])
def test_a_request_hangs_until_the_client_disconnects_or_the_fault_is_removed(
    upstream: Any, proxy: FaultProxy, client: http.client.HTTPConnection, kind: str, done: int
) -> None:
    proxy.faults = [Fault(kind, times=2)]
    client.timeout = 0.3
    assert not proxy.wait_until_hanging(0.01)
    with pytest.raises(TimeoutError):
        _ask(client, "PUT", "/bucket/a", b"1")
    client.close()
    while proxy.hanging:
        time.sleep(0.01)

    held = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
    held.request("PUT", "/bucket/a", b"2")
    assert proxy.wait_until_hanging(20)
    proxy.faults = []
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        held.getresponse()
    held.close()

    assert len(upstream.seen) == 2 * done
    assert proxy.hanging == 0


def test_storage_works_through_the_proxy(s3_server: S3Server) -> None:
    with FaultProxy(s3_server.url, logging=True) as proxy, s3_server.in_environment(proxy.url):
        storage = Storage(s3_server.new_root())
        assert storage.create("a/odd %+ name", b"1" * 100_000)
        assert not storage.create("a/odd %+ name", b"2")
        assert storage.read("a/odd %+ name") == b"1" * 100_000
        assert [entry.path for entry in storage.list("a")] == ["a/odd %+ name"]
        storage.delete(["a/odd %+ name"])
        assert storage.read("a/odd %+ name") is None

    # There are others, which look whether the server knows what it is to create a file.
    assert len([path for kind, path in proxy.log if kind == "PUT" and "odd" in path]) == 2
    assert proxy.counts["LIST"] >= 1
    assert proxy.bytes_in >= 100_000
    assert proxy.bytes_out >= 100_000


def test_the_proxy_runs_as_a_process_controlled_over_http(upstream: Any) -> None:
    command = [sys.executable, "-m", "memory_pipeline_tests.fault_proxy"]
    command += ["--upstream", f"http://127.0.0.1:{upstream.server_port}", "--seed", "3"]
    command += ["--fault", "503,method=PUT,times=none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
            assert [_ask(client, "PUT", "/bucket/a")[0] for _ in range(3)] == [503] * 3
            wanted = {"faults": [{"kind": "500", "method": "GET"}], "latency": 0.01, "reset": True}
            assert _ask(client, "POST", "/__control__", json.dumps(wanted).encode())[0] == 200
            assert [_ask(client, method, "/bucket/a")[0] for method in ("PUT", "GET", "GET")] == [200, 500, 200]
            client.close()
            with urllib.request.urlopen(f"{url}/__stats__", timeout=20) as answer:
                stats = json.load(answer)
        finally:
            process.kill()

    assert stats["counts"] == {"PUT": 1, "GET": 2, "500": 1}
    assert (stats["requests"], stats["bytes_out"], stats["latency"]) == (3, 18, 0.01)
    assert stats["faults"][0]["struck"] == 1


@pytest.mark.parametrize("fault", ["404", "503,method=PATCH"])
def test_an_unknown_fault_is_refused(fault: str) -> None:
    with pytest.raises(AssertionError, match=r"404|PATCH"):
        Fault.parse(fault)

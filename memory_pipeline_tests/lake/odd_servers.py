"""Real servers on loopback that speak S3 badly: they refuse everything, or do not heed the condition of a PUT."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are sent separately
    server: _Server

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002  # as the base class has it
        pass

    def body(self) -> bytes:
        self.server.asked.append(f"{self.command} {self.path}")
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _xml(code: str, words: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{words}</Message></Error>'.encode()


@contextmanager
def _serving(handler: type[_Handler]) -> Iterator[_Server]:
    for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(handler, f"do_{method}", handler.do)  # type: ignore[attr-defined]
    with _Server(handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def refusing(status: int, code: str, words: str = "no", *, is_xml: bool = True) -> Iterator[_Server]:
    """Run a server with the same answer to every request, in the format of S3 or as HTML."""

    class Handler(_Handler):
        def do(self) -> None:
            self.body()
            kind = "application/xml" if is_xml else "text/html"
            self.answer(status, _xml(code, words) if is_xml else words.encode(), {"Content-Type": kind})

    with _serving(Handler) as server:
        yield server


def _signed(method: str, path: str, data: bytes, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers with a new signature, because the old one includes the removed condition."""
    left = {name: value for name, value in headers.items() if name.lower() not in {"authorization", "x-amz-date"}}
    host = next(value for name, value in headers.items() if name.lower() == "host")
    request = AWSRequest(method, f"http://{host}{path}", headers=left, data=data)
    S3SigV4Auth(botocore.session.Session().get_credentials(), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


@contextmanager
def conditionless(upstream: str, *, refuses: bool) -> Iterator[_Server]:
    """Run a proxy that ignores or refuses conditional requests.

    Args:
        upstream: the address of the real server.
        refuses: answer conditional requests with 501 instead of ignoring the condition.
    """
    host = urlsplit(upstream).netloc

    class Handler(_Handler):
        def do(self) -> None:
            data = self.body()
            headers = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
            if refuses and len(headers) < len(self.headers):
                self.answer(501, _xml("NotImplemented", "A header you provided implies functionality"), {})
                return
            if len(headers) < len(self.headers):
                headers = _signed(self.command, self.path, data, headers)
            connection = http.client.HTTPConnection(host, timeout=30)
            try:
                connection.request(self.command, self.path, data, headers)
                response = connection.getresponse()
                kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
                if self.command == "HEAD":
                    self.send_response(response.status)
                    for name, value in {**kept, "Content-Length": response.getheader("Content-Length") or "0"}.items():
                        self.send_header(name, value)
                    self.end_headers()
                else:
                    self.answer(response.status, response.read(), kept)
            finally:
                connection.close()

    with _serving(Handler) as server:
        yield server

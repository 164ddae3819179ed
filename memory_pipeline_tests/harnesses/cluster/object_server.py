"""A small, fast S3 server in memory, because thousands of index tables need many requests.

::

    python -m memory_pipeline_tests.harnesses.cluster.object_server --bucket lakes  # prints its address

It supports the requests of the lake's libraries: GET with ranges, PUT (also with If-None-Match and If-Match), HEAD,
DELETE, bulk deletion, listings in pages with prefixes and delimiters, copies, and multipart uploads. Signatures are not
checked. One thread answers all requests, so conditional writes are atomic.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import re
import xml.etree.ElementTree as ET
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_REASONS = {
    200: "OK", 204: "No Content", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 404: "Not Found",
    409: "Conflict", 412: "Precondition Failed", 416: "Range Not Satisfiable", 501: "Not Implemented",
}  # fmt: skip


class Answer(NamedTuple):
    """An answer. For HEAD, `length` is the size of the object, which is not sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None


class Stored(NamedTuple):
    """A stored object."""

    data: bytes
    etag: str
    at: datetime


class FaultError(Exception):
    """An invalid request, with its S3 error code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass
class Bucket:
    """Objects by key, and the keys in order."""

    objects: dict[str, Stored] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def put(self, key: str, data: bytes) -> Stored:
        if key not in self.objects:
            insort(self.keys, key)
        etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        self.objects[key] = stored = Stored(data, etag, datetime.now(UTC))
        return stored

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class Store:
    """Answers requests."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self._numbers = count(1)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        parts = urlsplit(target)
        name, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        try:
            if not key and method == "PUT" and not query:
                self.buckets.setdefault(name, Bucket())
                return Answer(200)
            bucket = self.buckets.get(name)
            if bucket is None:
                raise FaultError(404, "NoSuchBucket")
            if not key:
                return self._of_bucket(method, name, bucket, query, body)
            if "uploadId" in query or "uploads" in query:
                return self._of_upload(method, name, bucket, key, query, headers, body)
            return self._of_object(method, bucket, key, headers, body)
        except FaultError as fault:
            text = f"<Error><Code>{fault.code}</Code><Message>{fault.code}</Message></Error>"
            return Answer(fault.status, b"" if method == "HEAD" else text.encode(), (("content-type", "text/xml"),))

    def _of_bucket(self, method: str, name: str, bucket: Bucket, query: dict[str, str], body: bytes) -> Answer:
        if method == "POST" and "delete" in query:
            gone = [element.text or "" for element in ET.fromstring(body).iter() if element.tag.endswith("Key")]
            for key in gone:
                bucket.delete(key)
            result = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in gone)
            return _xml(f"<DeleteResult {_XMLNS}>{result}</DeleteResult>")
        if "versioning" in query:
            return _xml(f"<VersioningConfiguration {_XMLNS}/>")
        if "location" in query:
            return _xml(f"<LocationConstraint {_XMLNS}/>")
        if "uploads" in query:
            return _xml(
                f"<ListMultipartUploadsResult {_XMLNS}><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
            )
        if method == "HEAD":
            return Answer(200)
        if method == "GET":
            return _listing(name, bucket, query)
        raise FaultError(501, "NotImplemented")

    def _of_object(self, method: str, bucket: Bucket, key: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            self._check(bucket, key, headers)
            if source := headers.get("x-amz-copy-source"):
                return self._copied(bucket, key, unquote(source))
            return Answer(200, headers=(("etag", bucket.put(key, body).etag),))
        if method == "DELETE":
            bucket.delete(key)
            return Answer(204)
        if method not in {"GET", "HEAD"}:
            raise FaultError(501, "NotImplemented")
        stored = bucket.objects.get(key)
        if stored is None:
            raise FaultError(404, "NoSuchKey")
        if headers.get("if-match", stored.etag) != stored.etag:
            raise FaultError(412, "PreconditionFailed")
        return _read(method, stored, headers)

    def _copied(self, bucket: Bucket, key: str, source: str) -> Answer:
        name, _, old = source.lstrip("/").partition("/")
        there = self.buckets.get(name, Bucket()).objects.get(old)
        if there is None:
            raise FaultError(404, "NoSuchKey")
        copied = bucket.put(key, there.data)
        result = f"<LastModified>{_iso(copied.at)}</LastModified><ETag>{escape(copied.etag)}</ETag>"
        return _xml(f"<CopyObjectResult {_XMLNS}>{result}</CopyObjectResult>")

    def _of_upload(
        self,
        method: str,
        name: str,
        bucket: Bucket,
        key: str,
        query: dict[str, str],
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        if method == "POST" and "uploads" in query:
            upload = f"upload-{next(self._numbers)}"
            bucket.uploads[upload] = {}
            result = f"<Bucket>{name}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            return _xml(f"<InitiateMultipartUploadResult {_XMLNS}>{result}</InitiateMultipartUploadResult>")
        parts = bucket.uploads.get(query.get("uploadId", ""))
        if parts is None:
            raise FaultError(404, "NoSuchUpload")
        if method == "PUT":
            parts[int(query["partNumber"])] = body
            return Answer(200, headers=(("etag", f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'),))
        if method == "POST":
            self._check(bucket, key, headers)
            stored = bucket.put(key, b"".join(parts[number] for number in sorted(parts)))
            del bucket.uploads[query["uploadId"]]
            result = f"<Bucket>{name}</Bucket><Key>{escape(key)}</Key><ETag>{escape(stored.etag)}</ETag>"
            return _xml(f"<CompleteMultipartUploadResult {_XMLNS}>{result}</CompleteMultipartUploadResult>")
        if method == "DELETE":
            del bucket.uploads[query["uploadId"]]
            return Answer(204)
        raise FaultError(501, "NotImplemented")

    @staticmethod
    def _check(bucket: Bucket, key: str, headers: dict[str, str]) -> None:
        """Refuse a conditional write if its condition does not hold."""
        there = bucket.objects.get(key)
        if "if-none-match" in headers and there is not None:
            raise FaultError(412, "PreconditionFailed")
        if "if-match" in headers and (there is None or headers["if-match"].strip('"') != there.etag.strip('"')):
            raise FaultError(412 if there else 404, "PreconditionFailed" if there else "NoSuchKey")


def _read(method: str, stored: Stored, headers: dict[str, str]) -> Answer:
    size = len(stored.data)
    own = (
        ("etag", stored.etag),
        ("last-modified", f"{stored.at:%a, %d %b %Y %H:%M:%S GMT}"),
        ("accept-ranges", "bytes"),
        ("content-type", "application/octet-stream"),
    )
    if headers.get("if-none-match") == stored.etag:
        return Answer(304, headers=own)
    if method == "HEAD":
        return Answer(200, headers=own, length=size)
    asked = _RANGE.fullmatch(headers.get("range", ""))
    if asked is None:
        return Answer(200, stored.data, own)
    start = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
    end = min(int(asked[2] or size), size - 1) if asked[1] else size - 1
    if start >= size:
        raise FaultError(416, "InvalidRange")
    return Answer(206, stored.data[start : end + 1], (*own, ("content-range", f"bytes {start}-{end}/{size}")))


def _listing(name: str, bucket: Bucket, query: dict[str, str]) -> Answer:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    most = min(int(query.get("max-keys") or 1000), 1000)
    after = query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
    keys = bucket.keys
    contents: list[str] = []
    folders: list[str] = []
    at = bisect_left(keys, max(prefix, f"{after}\0" if after else ""))
    last, truncated = "", False
    while at < len(keys) and keys[at].startswith(prefix):
        key = keys[at]
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        folder = key[: cut + len(delimiter)] if cut >= 0 else ""
        if folder and folder == after.rstrip("\U0010ffff"):  # was on the previous page
            at = bisect_left(keys, f"{folder}\U0010ffff")
            continue
        if len(contents) + len(folders) >= most:
            truncated = True
            break
        if folder:
            folders.append(folder)
            last = f"{folder}\U0010ffff"
            at = bisect_left(keys, last)
            continue
        contents.append(key)
        last = key
        at += 1
    rows = [
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(stored.at)}</LastModified><ETag>{escape(stored.etag)}"
        f"</ETag><Size>{len(stored.data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, stored in ((key, bucket.objects[key]) for key in contents)
    ]
    rows += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders]
    token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if truncated else ""
    head = (
        f"<Name>{name}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(contents) + len(folders)}</KeyCount>"
        f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(truncated).lower()}</IsTruncated>{token}"
    )
    return _xml(f"<ListBucketResult {_XMLNS}>{head}{''.join(rows)}</ListBucketResult>")


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _xml(text: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return Answer(200, body, (("content-type", "application/xml"),))


def _whole(body: bytes) -> bytes:
    """Decode a chunked, possibly signed body (``aws-chunked``)."""
    found: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if not size:
            return b"".join(found)
        found.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


class Connection(asyncio.Protocol):
    """Serves requests on one persistent connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._data = bytearray()
        self._head: tuple[str, str, dict[str, str], int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while self._take():
            pass

    def _take(self) -> bool:
        """Answer the next request. Return False if it is incomplete."""
        if self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            first, *lines = self._data[:end].decode("latin-1").split("\r\n")
            del self._data[: end + 4]
            method, target, _ = first.split(" ")
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            self._head = method, target, headers, int(headers.get("content-length", 0))
            if headers.get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, target, headers, length = self._head
        if len(self._data) < length:
            return False
        body = bytes(self._data[:length])
        del self._data[:length]
        self._head = None
        if "aws-chunked" in headers.get("content-encoding", "") or headers.get("x-amz-content-sha256", "").startswith(
            "STREAMING-"
        ):
            body = _whole(body)
        answer = self._store.answer(method, target, headers, body)
        size = len(answer.body) if answer.length is None else answer.length
        lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", f"content-length: {size}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        self._transport.write("\r\n".join([*lines, "x-amz-request-id: 1", "", ""]).encode("latin-1") + answer.body)
        return True


async def serve(port: int, bucket: str) -> None:
    """Print the address and serve until the process ends."""
    store = Store()
    store.buckets[bucket] = Bucket()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(store), "127.0.0.1", port)
    host, port = server.sockets[0].getsockname()
    print(f"Running on http://{host}:{port}", flush=True)  # noqa: T201  # the starting process waits for it
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small server that speaks S3.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bucket", default="lakes")
    chosen = parser.parse_args()
    asyncio.run(serve(chosen.port, chosen.bucket))

"""Files of a bucket: whole reads and writes, and the Parquet files that pyarrow reads.

Temporary failures are retried a few times. Errors are explained by :mod:`memory_pipeline.lake.files.s3_errors`.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from aiohttp import ClientError as BrokenOffError
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.parsers import ResponseParserError
from fsspec.asyn import sync
from pyarrow.fs import FileInfo, FileType, FSSpecHandler, PyFileSystem

from memory_pipeline.errors import ConfigurationError, shown
from memory_pipeline.lake.commit_retry import FailureKind, RetryPolicy, retry
from memory_pipeline.lake.files.s3_errors import (
    BUSY,
    MISSING,
    PRESENT,
    UNCONDITIONAL,
    NoConditionError,
    code_of,
    explained,
)
from memory_pipeline.lake.files.s3_options import AT_ONCE, ATTEMPTS, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

#: Files per list and per delete request: the maximum of servers.
_PAGE = _BULK = 1_000
#: Codes of servers that cannot delete many files by one request.
_NO_BULK = ("NotImplemented", "MethodNotAllowed", "MalformedXML", "InvalidRequest", "501", "405", "400")
#: Files up to this size in bytes are fetched whole when opened; of larger ones, only the parts that are read.
_WHOLE = 4 * 2**20


class BucketFile(NamedTuple):
    """A file of the bucket: key, size in bytes, tag, and modification time in UTC."""

    key: str
    size: int
    tag: str
    modified_at: datetime


class Bucket:
    """Reads, writes, lists and deletes files by key. Safe to use from many threads.

    Every method raises ConfigurationError if the server refuses a request, and LakeError if it failed several times.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._has_bulk = True

    def read(self, key: str) -> bytes | None:
        """Return a file's bytes, or None."""
        found = self.head(key, None)
        return None if found is None else found[0]

    def head(self, key: str, count: int | None) -> tuple[bytes, int] | None:
        """Return the first `count` bytes of a file (all if None) and its size, or None if there is no file."""
        return self._part(key, None if count is None else f"bytes=0-{count - 1}")

    def part(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` to `end` (exclusive).

        Raises:
            FileNotFoundError: there is no such file.
        """
        found = self._part(key, f"bytes={start}-{end - 1}")
        if found is None:
            raise FileNotFoundError(self._located(key))
        return found[0]

    def _part(self, key: str, span: str | None) -> tuple[bytes, int] | None:
        arguments = {} if span is None else {"Range": span}

        def attempt() -> tuple[bytes, int]:
            with self._asked(f"read {self._located(key)}"):
                answer = self._call("get_object", Key=key, **arguments)
                data: bytes = sync(self.store.files.loop, answer["Body"].read)
                total = answer.get("ContentRange", "").rpartition("/")[2]
                return data, int(total) if total.isdecimal() else len(data)

        try:
            return retry(attempt, _READING)
        except _Refused as refused:
            if refused.code == MISSING:
                return None
            if refused.code == "InvalidRange":  # the file is empty
                return b"", 0
            raise refused.error from None

    def write(self, key: str, data: bytes) -> None:
        """Write a file; one PUT is atomic."""
        self._do(f"write {self._located(key)}", "put_object", Key=key, Body=data)

    def create(self, key: str, data: bytes) -> None:
        """Write a file unless it exists.

        Raises:
            FileExistsError: it exists; this very call may have created it, if a first answer was lost.
            NoConditionError: the server does not support this.
        """

        def attempt() -> None:
            with self._asked(f"create {self._located(key)}"):
                self._call("put_object", Key=key, Body=data, IfNoneMatch="*")

        try:
            retry(attempt, _CREATING)
        except _Refused as refused:
            if refused.code in PRESENT:
                raise FileExistsError(self._located(key)) from None
            if refused.code in UNCONDITIONAL:
                raise NoConditionError(refused.error, refused.code) from None
            raise refused.error from None

    def files(self, prefix: str) -> Iterator[BucketFile]:
        """Yield all files whose keys begin with `prefix`, sorted by key."""
        for page in self._pages(prefix):
            for each in page.get("Contents", ()):
                yield BucketFile(each["Key"], each["Size"], each["ETag"], each["LastModified"])

    def folders(self, prefix: str) -> list[str]:
        """Return the distinct parts of keys between `prefix` and the next slash, sorted."""
        cut = len(prefix)
        pages = self._pages(prefix, Delimiter="/")
        return [each["Prefix"][cut:-1] for page in pages for each in page.get("CommonPrefixes", ())]

    def is_there(self, key: str) -> bool:
        """Return whether a file exists."""
        absent = (MISSING, "404")  # answers to HEAD have no error code
        return self._do(f"look for {self._located(key)}", "head_object", accept=absent, Key=key) is not None

    def has(self, prefix: str) -> bool:
        """Return whether any file's key begins with `prefix`."""
        answer = self._do(f"list {self._located(prefix)}", "list_objects_v2", Prefix=prefix, MaxKeys=1)
        return bool(answer.get("Contents"))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files. Missing ones are ignored."""
        if len(keys) > 1 and self._has_bulk:
            pieces = [keys[start : start + _BULK] for start in range(0, len(keys), _BULK)]
            keys = [key for piece in pieces for key in self._delete_together(piece)]
        if len(keys) < 2:
            for key in keys:
                self._delete_one(key)
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(self._delete_one, keys):
                pass

    def uploads(self, prefix: str, before: datetime, *, abort: bool) -> list[str]:
        """Return the keys of unfinished multipart uploads that started before a time; `abort` deletes them."""
        found, arguments = [], dict[str, Any]()
        while True:
            page = self._do(
                f"list uploads to {self._located(prefix)}", "list_multipart_uploads", Prefix=prefix, **arguments
            )
            for each in page.get("Uploads", ()):
                if each["Initiated"] < before and each["Key"].startswith(prefix):
                    found.append(each["Key"])
                    if abort:
                        upload = {"Key": each["Key"], "UploadId": each["UploadId"]}
                        self._do(f"drop an upload to {self._located(each['Key'])}", "abort_multipart_upload", **upload)
            if not page.get("IsTruncated"):
                return found
            arguments = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def is_versioned(self) -> bool | None:
        """Return whether the bucket keeps deleted and overwritten versions; None without permission to ask."""
        try:
            answer = self._do(f"say whether {self.store.bucket} keeps old versions", "get_bucket_versioning")
        except ConfigurationError:
            return None
        return bool(answer.get("Status"))  # a suspended one keeps earlier versions

    def filesystem(self) -> PyFileSystem:
        """Return the pyarrow filesystem for whole files of the bucket; paths are bucket name and key."""
        return PyFileSystem(_Files(self))

    def _delete_one(self, key: str) -> None:
        self._do(f"delete {self._located(key)}", "delete_object", accept=(MISSING,), Key=key)

    def _delete_together(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete files by one request. Return those to delete one by one."""
        request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        what = f"delete {len(keys)} files of {self._located('')}"
        answer = self._do(what, "delete_objects", accept=_NO_BULK, Delete=request)
        if answer is None:
            self._has_bulk = False
            return keys
        return [each["Key"] for each in answer.get("Errors", ()) if each.get("Code") != MISSING]

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = self._do(
                f"list {self._located(prefix)}", "list_objects_v2", Prefix=prefix, MaxKeys=_PAGE, **arguments
            )
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def _do(self, what: str, method: str, *, accept: Sequence[str] = (), **arguments: Any) -> Any:
        """Return the answer to a request; None if it is refused with one of the codes in `accept`."""
        try:
            with self._asked(what):
                return self._call(method, **arguments)
        except _Refused as refused:
            if refused.code in accept:
                return None
            raise refused.error from None

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, BotoCoreError, ResponseParserError, BrokenOffError, KeyError) as error:
            # s3fs turns refusals into OSError, and into KeyError if they have no text.
            cause = error.__cause__ if isinstance(error.__cause__, ClientError) else error
            raise _Refused(cause, explained(cause, self.store, what)) from error
        except RecursionError as error:  # botocore follows endless redirects
            text = (
                f"{self.store.address} does not {what}, and redirects endlessly; set AWS_REGION to the bucket's region"
            )
            raise _Refused(error, ConfigurationError(text)) from None

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.store.files.call_s3(method, Bucket=self.store.bucket, **arguments)
        return answer

    def _located(self, key: str) -> str:
        return f"s3://{self.store.bucket}/{shown(key, 500)[1:-1]}"


class _Refused(Exception):  # noqa: N818  # it does not leave this module
    """The original error, and the one to raise unless the caller handles it."""

    def __init__(self, cause: Exception, error: Exception) -> None:
        super().__init__(str(error))
        self.code = code_of(cause)
        self.broke_off = isinstance(cause, (HTTPClientError, IncompleteReadError, ResponseParserError, BrokenOffError))
        self.error = error


def _policy(attempts: int, first_pause: float, is_again: Callable[[_Refused], bool]) -> RetryPolicy:
    def judge(error: _Refused) -> FailureKind:
        return FailureKind.LOST if is_again(error) else FailureKind.FINAL

    return RetryPolicy(attempts, (_Refused,), judge, lambda error: error, first_pause=first_pause)


#: s3fs retries a request, but not an answer that breaks off.
_READING = _policy(ATTEMPTS, 0.1, lambda error: error.broke_off)
#: S3 reports a conflict while another request for the same key is running.
_CREATING = _policy(6, 0.05, lambda error: error.code in BUSY)


class _Opened(io.RawIOBase):
    """A large file: the first bytes are in memory, others are fetched on demand."""

    def __init__(self, bucket: Bucket, key: str, head: bytes, size: int) -> None:
        super().__init__()
        self._bucket, self._key, self._head, self._size = bucket, key, head, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if self._at >= end:
            return b""
        is_here = end <= len(self._head)
        data = self._head[self._at : end] if is_here else self._bucket.part(self._key, self._at, end)
        self._at += len(data)
        return data


class _Growing(io.BytesIO):
    """A file that is buffered in memory and sent when it is closed."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._send(data)


class _Files(FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """The pyarrow filesystem of a bucket's files, which reads and writes as the bucket does."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.store.files)
        self._bucket = bucket

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        return [
            FileInfo(path, FileType.NotFound) if found is None else FileInfo(path, FileType.File, size=found[1])
            for path in paths
            for found in [self._bucket.head(self._key(path), 1)]
        ]

    def open_input_file(self, path: str) -> Any:
        key = self._key(path)
        found = self._bucket.head(key, _WHOLE)
        if found is None:
            raise FileNotFoundError(path)
        head, size = found
        return (
            pa.BufferReader(head) if len(head) == size else pa.PythonFile(_Opened(self._bucket, key, head, size), "r")
        )

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: object) -> Any:  # noqa: ARG002  # pyarrow names it
        key = self._key(path)
        return pa.PythonFile(_Growing(lambda data: self._bucket.write(key, data)), "w")

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self._bucket.store.bucket}/")

"""A real S3 server on loopback, in a separate process: moto's, which keeps buckets in memory.

In a test::

    with S3Server() as server, server.in_environment():
        lake = Lake(server.new_root())                  # s3://…, a folder of the server's bucket that is its own

To use another server, such as Ceph's or Amazon's, set ``MEMORY_PIPELINE_TEST_S3`` to its address, the standard AWS
variables to its keys, and ``MEMORY_PIPELINE_TEST_BUCKET`` to a bucket for test data.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import botocore.session
from ulid import ULID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
#: The timeout of the start, in seconds.
_PATIENCE = 60
#: For each request moto lists the folders of all services twice and searches the addresses of all, which takes half of
#: its time. Here it only serves S3, and STS for assumed roles. It prints its port.
_SERVER = """
from moto import backend_index, backends

modules = list(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules
backend_index.backend_url_patterns = [pair for pair in backend_index.backend_url_patterns if pair[0] in ("s3", "sts")]

from moto.server import main

main(["-H", "127.0.0.1", "-p", "0"])
"""


class S3Server:
    """A context manager that starts and stops the server.

    Attributes:
        url: the server's address.
        bucket: the name of an existing bucket.
    """

    def __init__(self) -> None:
        self.url = os.environ.get("MEMORY_PIPELINE_TEST_S3", "")
        self.bucket = os.environ.get("MEMORY_PIPELINE_TEST_BUCKET", "lakes")
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Any = None

    def __enter__(self) -> Self:
        if not self.url:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server on a free port and create the bucket."""
        command = [sys.executable, "-c", _SERVER]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        deadline = time.monotonic() + _PATIENCE
        said = b""
        while not self.url and time.monotonic() < deadline:
            line = self._process.stdout.readline()
            said += line
            if b"Running on http" in line:
                self.url = line.split()[-1].decode()
        assert self.url, f"the S3 server did not start: {said.decode(errors='replace')}"
        # Its log of requests would fill the pipe.
        subprocess.Popen(["cat"], stdin=self._process.stdout, stdout=subprocess.DEVNULL)
        while True:
            with suppress(OSError):
                urllib.request.urlopen(self.url, timeout=5).close()
                break
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
        with self.in_environment():
            self._client = botocore.session.Session().create_client(
                "s3", region_name="us-east-1", endpoint_url=self.url
            )
        self._client.create_bucket(Bucket=self.bucket)

    def stop(self) -> None:
        """Stop the server. Its data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process, self._client, self.url = None, None, ""

    def new_root(self) -> str:
        """Return the address of a lake that does not exist yet.

        On moto each lake has its own bucket, because a listing scans all keys of a bucket.
        """
        name = str(ULID())
        if self._client is None:
            return f"s3://{self.bucket}/{name}"
        bucket = f"{self.bucket}-{name.lower()}"
        self._client.create_bucket(Bucket=bucket)
        return f"s3://{bucket}/lake"

    def environment(self, url: str = "") -> dict[str, str]:
        """Return the environment variables that name the server, or a proxy at `url`."""
        if "MEMORY_PIPELINE_TEST_S3" in os.environ:
            own = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
            return {**own, "AWS_ENDPOINT_URL": url or self.url}
        return dict(zip(_VARIABLES, (url or self.url, "test-key", "test-secret", "us-east-1"), strict=True))

    @contextmanager
    def in_environment(self, url: str = "") -> Iterator[None]:
        """Set the environment variables of this process for the duration of the block."""
        before = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(self.environment(url))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

"""The service as its users start it: a process of its own, on a free port."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import httpx

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds, enough for a busy machine.
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RunningService:
    """`memory-pipeline serve` on a free port.

    Attributes:
        url: its address.
        log: where its standard output goes.
    """

    def __init__(self, root: str, folder: Path, *options: str, scheme: str = "http") -> None:
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.log = folder / f"service-{self.port}.log"
        self._arguments = ["serve", "--root", root, "--port", str(self.port), *options]
        self._checked: ssl.SSLContext | bool = scheme == "http"

    def __enter__(self) -> Self:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "memory_pipeline.cli", *self._arguments], stdout=log, stderr=subprocess.PIPE,
                text=True, env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < until:
            try:
                httpx.get(f"{self.url}/health/live", verify=self._checked)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return self
        self.process.kill()
        raise AssertionError(f"the service did not start: {self.process.communicate()[1]}")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode

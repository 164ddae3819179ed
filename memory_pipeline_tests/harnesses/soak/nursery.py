"""A process that has everything imported and forks the processes of a soak.

Starting Python and importing takes seconds of CPU time, after each kill again. The nursery has no other threads, so
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
    """A process that the nursery has started or is about to start.

    Attributes:
        pid: its id; None until it is known.
        code: its exit code, negative where a signal has ended it; None while it is at work.
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


class Nursery:
    """The client of the nursery.

    Args:
        environment: of all children.
        folder: their working folder.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._children: dict[int, Child] = {}
        self._rest = b""
        with (folder / "logs" / "nursery.log").open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "memory_pipeline_tests.harnesses.soak.nursery"],
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
            what: a module of the soak with its arguments: ``writing``, ``reading`` or ``operating``.
            log: where it prints.
        """
        number = len(self._children)
        child = self._children[number] = Child()
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"number": number, "what": what, "log": str(log)}).encode() + b"\n")
        self._popen.stdin.flush()
        return child

    def look(self) -> None:
        """Update the started and the ended children.

        Raises:
            RuntimeError: the nursery has ended itself.
        """
        assert self._popen.stdout is not None
        if self._popen.poll() is not None:
            raise RuntimeError("the nursery has ended; its log says why")
        data = self._popen.stdout.read()
        if not data:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            child = self._children[told["number"]]
            child.pid, child.code = told.get("pid", child.pid), told.get("code")

    def end(self) -> None:
        """Kill all children, and the nursery."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.wait()


def _tell(**record: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps(record).encode() + b"\n")


def _be(what: list[str], log: str) -> int:
    """Become a child; return its exit code."""
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
    except BaseException:  # noqa: BLE001  # it must not become a second nursery
        traceback.print_exc()
        return 1
    return 0


def _nurse() -> None:
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
                    code = _be(wanted["what"], wanted["log"])
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
                numbers[pid] = wanted["number"]
                _tell(number=wanted["number"], pid=pid)
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid in numbers:
                _tell(number=numbers.pop(pid), code=os.waitstatus_to_exitcode(status))
    for pid in numbers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in numbers:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


if __name__ == "__main__":
    # All that children use; whoever imports it later imports it again and again.
    for name in (
        *("dagster", "deltalake", "duckdb", "lancedb", "polars", "s3fs"),
        *(
            "memory_pipeline.analytics",
            "memory_pipeline.checks",
            "memory_pipeline.defs.in_process",
            "memory_pipeline.erasure",
        ),
        *(f"memory_pipeline_tests.harnesses.soak.{module}" for module in ("operating", "reading", "writing")),
    ):
        import_module(name)
    _nurse()

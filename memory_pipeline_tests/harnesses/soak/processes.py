"""Processes of a soak, as the conductor sees them."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_pipeline_tests.harnesses.soak.fork_server import Child


@dataclass
class Process:
    """A process of the soak.

    Attributes:
        name: the name in the log of events.
        child: the forked or new process.
        log: the file of its output.
        said_before: the size of the file at its start.
        started: the monotonic time of its start.
        kill_at: the monotonic time to kill it.
        was_killed: whether it was killed.
    """

    name: str
    child: Child | FreshProcess
    log: Path
    said_before: int
    started: float = field(default_factory=time.monotonic)
    kill_at: float | None = None
    was_killed: bool = False

    def kill_if_due(self) -> bool:
        if self.kill_at is None or time.monotonic() < self.kill_at or not self.child.kill():
            return False
        self.kill_at, self.was_killed = None, True
        return True

    @property
    def said(self) -> str:
        """The end of its output."""
        with self.log.open("rb") as file:
            file.seek(self.said_before)
            return file.read().decode(errors="replace")[-4_000:]


class FreshProcess:
    """A process with a new interpreter, like a user's."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "memory_pipeline.cli", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
                cwd=folder,
            )

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._popen.poll()

    def kill(self) -> bool:
        """Send SIGKILL. Return whether there was a process to kill."""
        if self._popen.poll() is not None:
            return False
        self._popen.kill()
        return True

"""A process of a soak, from the conductor's side."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_pipeline_tests.harnesses.soak.nursery import Child


@dataclass
class Process:
    """A process of the soak.

    Attributes:
        name: as the log of events knows it.
        child: what does it: of the nursery, or of its own.
        log: where it prints.
        said_before: how much stood there when it began.
        started: when it began, by the clock that only goes forward.
        kill_at: when it is to be killed, likewise.
        was_killed: whether it was.
    """

    name: str
    child: Child | Own
    log: Path
    said_before: int
    started: float = field(default_factory=time.monotonic)
    kill_at: float | None = None
    was_killed: bool = False

    def kill_if_due(self) -> bool:
        """Kill the process if it is due. Return whether it was killed."""
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


class Own:
    """A process that starts a new interpreter, like a user's."""

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
        """Its exit code; None while it runs."""
        return self._popen.poll()

    def kill(self) -> bool:
        """Send SIGKILL. Return whether there was a process to kill."""
        if self._popen.poll() is not None:
            return False
        self._popen.kill()
        return True

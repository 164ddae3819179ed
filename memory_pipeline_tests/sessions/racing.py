"""Functions that processes of the tests run."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from memory_pipeline import Memory
from memory_pipeline.errors import VersionConflictError
from memory_pipeline.lake import Lake
from memory_pipeline.sessions.database import Database
from memory_pipeline.sessions.store import SessionStore
from memory_pipeline.steps.promotion import promote

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from memory_pipeline.domain.periods import When


def count_up(root: str, url: str | None, name: str, rounds: int, barrier: Barrier) -> None:
    """Add 1 to a counter in a pool, `rounds` times, by compare-and-set, and a value of its own without."""
    _set(url)
    pool = Memory(root).pool("board")
    barrier.wait()
    for number in range(rounds):
        while True:
            values, version = pool.snapshot()
            try:
                pool.write("counter", values.get("counter", 0) + 1, expected_version=version)
                break
            except VersionConflictError:
                continue
        pool.write(f"{name}-{number % 5}", number)


def append(root: str, url: str | None, name: str, rounds: int, barrier: Barrier) -> None:
    """Append notes to one session's scratch pad."""
    _set(url)
    pad = Memory(root).session("shared").scratch_pad
    barrier.wait()
    for number in range(rounds):
        pad.append([name, number])


def migrate(url: str, barrier: Barrier) -> None:
    """Open a database that may be empty."""
    barrier.wait()
    assert Database(url).run("SELECT count(*) FROM memory_pipeline_entries", {}) == [(0,)]


def store_and_die(root: str, url: str | None, now: When) -> None:
    """Store values, and end without any cleaning up."""
    _set(url)
    session = Memory(root).session("s1")
    for number in range(100):
        session.store(f"k{number}", number, now=now)
    os.kill(os.getpid(), 9)


def promote_and_die(root: str, url: str | None, now: str) -> None:
    """Promote, and be killed when the journal has the events and the entries are about to be deleted."""
    _set(url)
    with patch.object(SessionStore, "delete", lambda *_, **__: os.kill(os.getpid(), 9)):
        promote(Lake(root), datetime.fromisoformat(now))


def _set(url: str | None) -> None:
    os.environ.pop("MEMORY_PIPELINE_SESSIONS", None)
    if url is not None:
        os.environ["MEMORY_PIPELINE_SESSIONS"] = url


def extend_transcript(root: str, url: str | None, name: str, rounds: int, barrier: Barrier) -> None:
    """Add items to one transcript."""
    _set(url)
    transcript = Memory(root).transcript("c1")
    barrier.wait()
    for number in range(rounds):
        transcript.extend([[name, number]])


def extend_transcript_and_die(root: str, url: str | None, told: str) -> None:
    """Add numbers to a transcript, write each to a file once it is stored, and be killed."""
    _set(url)
    transcript = Memory(root).transcript("c1")
    for number in range(10):
        transcript.extend([number])
        Path(told).write_text(str(number))
    os.kill(os.getpid(), signal.SIGKILL)

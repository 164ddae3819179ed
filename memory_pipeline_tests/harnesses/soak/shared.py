"""The folder that the processes of a soak share. It is next to the lake.

::

    plan.json            seed, numbers of agents, writers and readers, and the lake's address
    clock.json           the current tick, and whether to stop
    events.jsonl         starts, kills and faults, in order
    oracle/w0.jsonl      started and acknowledged actions of a writer; durable before the writer continues
    readers/r0.jsonl     queries of a reader, with times and violations
    receipts/            receipts of erasures
    logs/                output of processes
    sessions.db          sessions of a lake in a bucket, if PostgreSQL is not installed
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline.lake import Lake
from memory_pipeline.lake.journal import Journal
from memory_pipeline_tests.harnesses.soak.plan import SECRET, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.messages import Message


#: The pool that all writers change.
POOL = "soak"
#: An agent that others share their memory with, and what the writers log after a grant and after a revoke.
GUEST, SHARING = "guest", ("granted", "revoked")
#: The file of SQLite for the sessions of a lake in a bucket, if there is no PostgreSQL.
SESSIONS = "sessions.db"


@dataclass(frozen=True, slots=True)
class Clock:
    """The simulated time.

    Attributes:
        tick: the current tick.
        now: the simulated time.
        is_over: whether writers finish the current tick and processes stop.
        is_rough: whether network faults are or were just injected.
    """

    tick: int
    now: datetime
    is_over: bool = False
    is_rough: bool = False


class SharedFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path, root: str, plan: Plan) -> SharedFolder:
        for name in ("oracle", "readers", "receipts", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        own = {"seed": plan.seed, "agents": plan.agents, "writers": plan.writers, "readers": plan.readers}
        (folder / "plan.json").write_text(json.dumps({**own, "root": root}))
        return cls(folder)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        return settings

    @property
    def root(self) -> str:
        """The lake's address."""
        return str(self._settings["root"])

    @cached_property
    def plan(self) -> Plan:
        return Plan(**{name: value for name, value in self._settings.items() if name != "root"})

    @property
    def clock(self) -> Clock:
        read = json.loads((self.folder / "clock.json").read_text())
        return Clock(read["tick"], datetime.fromisoformat(read["now"]), read["is_over"], read["is_rough"])

    def set_clock(self, clock: Clock) -> None:
        record = {"tick": clock.tick, "now": clock.now.isoformat()}
        partial = self.folder / "clock.json.new"
        partial.write_text(json.dumps({**record, "is_over": clock.is_over, "is_rough": clock.is_rough}))
        partial.replace(self.folder / "clock.json")

    def oracle(self, name: str) -> Path:
        """Return the path of a writer's log."""
        return self.folder / "oracle" / f"{name}.jsonl"

    def reading(self, name: str) -> Path:
        """Return the path of a reader's log."""
        return self.folder / "readers" / f"{name}.jsonl"

    def receipt(self, number: int) -> Path:
        """Return the path of the receipt of the n-th subject."""
        return self.folder / "receipts" / f"{number}.json"

    def is_forgotten(self, number: int) -> bool:
        """Return whether the n-th subject has a complete receipt."""
        path = self.receipt(number)
        return path.exists() and path.stat().st_size > 0

    def lake(self) -> Lake:
        return Lake(self.root, secret=SECRET)


class Log:
    """Appends records to a file. A line that a kill has cut off is skipped by readers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        if path.stat().st_size:
            self._file.write(b"\n")  # the last line may be cut off

    def append(self, record: dict[str, Any], *, durable: bool = False) -> None:
        """Write a record, with fsync if `durable`."""
        self._file.write(json.dumps(record, ensure_ascii=True).encode() + b"\n")
        if durable:
            os.fsync(self._file.fileno())


class Tail:
    """Reads new records of a log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # incomplete
                self._at += len(line)
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record


class TappedJournal(Journal):
    """A journal that logs each write to the writer's log, before and after it."""

    def __init__(self, lake: Lake, log: Log) -> None:
        super().__init__(lake.storage, lake.scope)
        self._log = log
        self.action = ""

    def append(self, records: Sequence[Message | Edit | MemoryEvent]) -> list[str]:
        lines = [record.to_record() for record in records]
        if lines:
            self._log.append({"action": self.action, "is": "writing", "records": lines}, durable=True)
        paths = super().append(records)
        if lines:
            self._log.append({"action": self.action, "is": "written"})
        return paths

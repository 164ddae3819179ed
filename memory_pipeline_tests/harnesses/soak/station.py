"""The shared folder of the processes of a soak: clock, oracles, log of events, receipts. It is next to the lake.

::

    course.json          seed, numbers of agents, writers and readers, and the lake's address
    clock.json           the tick that it is, and whether to stop
    events.jsonl         what was started, killed and disturbed, in order
    oracle/w0.jsonl      what a writer has begun, and what was acknowledged: durable before the writer goes on
    readers/r0.jsonl     what a reader has read, how long it took, and what was wrong
    receipts/            of what was forgotten
    logs/                what processes have printed
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
from memory_pipeline_tests.harnesses.soak.course import Course

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.domain.conversations import Message
    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent


@dataclass(frozen=True, slots=True)
class Clock:
    """The time in a soak.

    Attributes:
        tick: which.
        now: the lake's time.
        is_over: whether writers are to end what they have begun, and processes to stop.
        is_rough: whether the network is disturbed, or was so a moment ago.
    """

    tick: int
    now: datetime
    is_over: bool = False
    is_rough: bool = False


class Station:
    """The folder of a soak."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path, root: str, course: Course) -> Station:
        """Create the folder of a soak."""
        for name in ("oracle", "readers", "receipts", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        own = {"seed": course.seed, "agents": course.agents, "writers": course.writers, "readers": course.readers}
        (folder / "course.json").write_text(json.dumps({**own, "root": root}))
        return cls(folder)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads((self.folder / "course.json").read_text())
        return settings

    @property
    def root(self) -> str:
        """The lake's address."""
        return str(self._settings["root"])

    @cached_property
    def course(self) -> Course:
        """What is done."""
        return Course(**{name: value for name, value in self._settings.items() if name != "root"})

    @property
    def clock(self) -> Clock:
        """The current time of the soak."""
        read = json.loads((self.folder / "clock.json").read_text())
        return Clock(read["tick"], datetime.fromisoformat(read["now"]), read["is_over"], read["is_rough"])

    def set_clock(self, clock: Clock) -> None:
        """Set the time of the soak."""
        record = {"tick": clock.tick, "now": clock.now.isoformat()}
        partial = self.folder / "clock.json.new"
        partial.write_text(json.dumps({**record, "is_over": clock.is_over, "is_rough": clock.is_rough}))
        partial.replace(self.folder / "clock.json")

    def oracle(self, name: str) -> Path:
        """Return the file of a writer's oracle."""
        return self.folder / "oracle" / f"{name}.jsonl"

    def reading(self, name: str) -> Path:
        """Return the file of a reader."""
        return self.folder / "readers" / f"{name}.jsonl"

    def receipt(self, number: int) -> Path:
        """Return the file of the receipt of the n-th subject."""
        return self.folder / "receipts" / f"{number}.json"

    def is_forgotten(self, number: int) -> bool:
        """Return whether a subject is forgotten, that is, has a complete receipt."""
        path = self.receipt(number)
        return path.exists() and path.stat().st_size > 0

    def lake(self) -> Lake:
        """Open the lake."""
        return Lake(self.root)


class Log:
    """Appends records to a file. Readers skip a line that a kill has cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        if path.stat().st_size:
            self._file.write(b"\n")  # what stands there may be cut off

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
        """Yield new records."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._at += len(line)
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record


class TappedJournal(Journal):
    """A journal that logs each write to the oracle, before and after it."""

    def __init__(self, lake: Lake, log: Log) -> None:
        super().__init__(lake.storage)
        self._log = log
        self.action = ""

    def append(self, records: Sequence[Message | Edit | MemoryEvent]) -> list[str]:
        """Write records durably; see :meth:`Journal.append`."""
        lines = [record.to_record() for record in records]
        if lines:
            self._log.append({"action": self.action, "is": "writing", "records": lines}, durable=True)
        paths = super().append(records)
        if lines:
            self._log.append({"action": self.action, "is": "written"})
        return paths

"""How far the code of one operation is spread: ``python -m benchmarks.hops``.

For each operation: the files and functions of the product that take part, the calls from one file into another, and the
deepest stack of the product's functions. Callbacks from libraries count for the file that was left for the library.
Calls in other threads and processes are not seen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.models.factory import default_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PRODUCT = str(Path(__file__).parent.parent / "memory_pipeline") + os.sep
DAY, NOW = datetime(2024, 1, 15, 9, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)
TEXTS = (
    "I moved to Porto.", "My dog is called Bruno.", "I am allergic to walnuts.", "We meet on Fridays at noon.",
    "From now on, always answer in Portuguese.", "I work as a nurse.",
)  # fmt: skip


class Hops:
    """Counts calls of the product's functions, as the profiler of this thread."""

    def __init__(self) -> None:
        self.functions: set[Any] = set()
        self.calls = 0
        self.deepest = 0
        self._files: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call or a return."""
        name = frame.f_code.co_filename
        if not name.startswith(PRODUCT) or event not in {"call", "return"}:
            return
        if event == "return":
            if self._files:
                self._files.pop()
            return
        self.functions.add(frame.f_code)
        self.calls += bool(self._files) and self._files[-1] != name
        self._files.append(name)
        self.deepest = max(self.deepest, len(self._files))

    def of(self, work: Callable[[], object]) -> tuple[int, int, int, int]:
        """Return the files, functions, calls across files and the deepest stack of some work."""
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
        files = {code.co_filename for code in self.functions}
        return len(files), len(self.functions), self.calls, self.deepest


def main() -> None:
    """Print a line for each operation. Each was done once before in another lake, so that imports do not count."""
    os.environ.pop("DAGSTER_HOME", None)
    os.environ["MEMORY_PIPELINE_START"] = "2024-01-01"
    figures: dict[str, tuple[int, int, int, int]] = {}
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            for name, work in _operations(f"{folder}/lake").items():
                figures[name] = Hops().of(work)
    print(f"{'operation':24}{'files':>8}{'functions':>11}{'across files':>14}{'deepest':>9}")
    for name, numbers in figures.items():
        print(f"{name:24}{numbers[0]:8,}{numbers[1]:11,}{numbers[2]:14,}{numbers[3]:9,}")


def _operations(root: str) -> dict[str, Callable[[], object]]:
    memory = Memory(root, user_id="anna")
    own = Scope("default", "default")

    def erase() -> None:
        forget(memory.lake, default_models("UTC"), Subject.conversation(own, "late"), NOW)

    for place, text in enumerate(TEXTS):
        memory.add(text, conversation_id=f"c{place % 2}", now=DAY.replace(minute=place))
    return {
        "add": lambda: memory.add("I like green tea.", conversation_id="c1", now=DAY.replace(minute=30)),
        "one day's run": lambda: memory.run(now=NOW),
        "search": lambda: memory.search("Where do I live?", now=NOW),
        "context": lambda: memory.context("Where do I live?", now=NOW),
        "add a late message": lambda: memory.add("I moved to Faro.", conversation_id="late", now=DAY),
        "run after it": lambda: memory.run(now=NOW),
        "forget a conversation": erase,
    }


if __name__ == "__main__":
    main()

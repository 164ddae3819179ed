"""Stopwatches, quantiles, memory, bytes on disk, and tables of results."""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from memory_pipeline.lake.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.lake import Lake

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

Cell = str | int | float


@dataclass
class Table:
    """A table of results: a title, a line of explanation, and rows with equal keys."""

    title: str
    note: str
    rows: list[dict[str, Cell]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the table as aligned text."""
        yield f"\n{self.title}"
        yield f"  {self.note}"
        if not self.rows:
            return
        names = list(self.rows[0])
        cells = [names, *([_shown(row[name]) for name in names] for row in self.rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        for line in cells:
            first, *others = (
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            yield "  " + "  ".join([first, *others]).rstrip()


def _shown(value: Cell) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Stopwatch:
    """Adds up the time of named parts. The time of a nested part does not count for the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`."""
        self._inner.append(0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[name] += spent - self._inner.pop()
            self._inner[-1] += spent

    def timed(self, name: str, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """Wrap a function to add its time to `name`."""

        @functools.wraps(function)
        def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with self.measuring(name):
                return function(*args, **kwargs)

        return wrapper


def milliseconds(action: Callable[[int], object], number: int) -> float:
    """Return the milliseconds of one call. The function gets a number."""
    started = time.perf_counter()
    action(number)
    return (time.perf_counter() - started) * 1000


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """Return the value below which 95 of 100 lie."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies, such as 0.99."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    return ordered[below] + (place - below) * (ordered[math.ceil(place)] - ordered[below])


def memory() -> tuple[float, float]:
    """Return the current and the peak memory of this process in megabytes. Linux only."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    kilobytes = {line.split(":")[0]: float(line.split()[1]) for line in lines if line.startswith("Vm")}
    return kilobytes.get("VmRSS", math.nan) / 1024, kilobytes.get("VmHWM", math.nan) / 1024


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def versions(lake: Lake) -> dict[str, int]:
    """Return the number of commits of each Delta table; the one that creates a table counts."""
    return {name: lake.tables.version(spec) + 1 for name, spec in TABLES.items()}


def progress(text: str) -> None:
    """Print progress to stderr."""
    print(f"  … {text}", file=sys.stderr, flush=True)

"""The cost of retention: two years of memory, the first day of a plan and the day after.

Lakes are written as rows (:mod:`benchmarks.lakes`): 1,000 agents without a vector index, which would take much longer
to build, and 100 with one. Then the free plan is set. ``--quick``: 100 and 20 agents, 26 weeks. Commits are versions of
the Delta tables; bytes are those of all files below the root.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from benchmarks.generator import START
from benchmarks.lakes import grown
from benchmarks.measure import Cell, Table, bytes_below, progress, versions
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.steps.retention import expire

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    weeks = 26 if quick else 104
    return [
        _nights(folder / "tables", 100 if quick else 1_000, weeks, index=False),
        _nights(folder / "index", 20 if quick else 100, weeks, index=True),
    ]


def _nights(root: Path, agents: int, weeks: int, *, index: bool) -> Table:
    lake = Lake(str(root))
    grown(lake, agents, weeks, index=index)
    lake.storage.write(CONFIGURATION, b"defaults: {retention: {plan: free}}\n")
    end = START + timedelta(weeks=weeks, hours=12)
    rows: list[dict[str, Cell]] = []

    def measure(what: str, now: datetime, *, dry_run: bool = False) -> None:
        progress(what)
        before, held, started = versions(lake), bytes_below(root), time.perf_counter()
        done = expire(lake, START.date(), now, dry_run=dry_run)
        seconds = time.perf_counter() - started
        after = versions(lake)
        rows.append(
            {
                "call": what,
                "seconds": seconds,
                "rows": done.rows,
                "partitions": sum(map(len, done.periods.values())),
                "table commits": sum(after[name] - before[name] for name in after),
                "files gone": done.files,
                "MB before": held / 1e6,
                "MB after": bytes_below(root) / 1e6,
            }
        )

    measure("shown", end, dry_run=True)
    measure("first night", end)
    measure("first night again", end)
    measure("next night", end + timedelta(days=1))
    what = "tables and index" if index else "tables alone"
    return Table("retention", f"{agents:,} agents, {weeks} weeks, 3 hours a week each; {what}; the free plan", rows)

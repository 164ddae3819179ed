"""Disk usage of a lake with hourly runs, and the bytes written by the daily cleaning.

One agent, two messages each hour, computed by plain functions up to the closed grains, with consolidation after
midnight and :func:`memory_pipeline.steps.housekeeping.clean_files` at three o'clock: 1,000 hours; ``--quick``: 100.
Simulated hours take seconds, so at three o'clock all existing files count as replaced an hour ago. The run of that hour
follows.

- live: files that the newest versions of tables reference; LanceDB manifests count, Delta logs do not;
- all: every file below ``tables`` and ``projections``, including logs and old versions;
- changed: growth of the live bytes since the last cleaning, a lower bound for the bytes to write;
- written: files that a cleaning writes: compacted files, indexes, checkpoints.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from benchmarks.generator import START, WORKSPACE, agent_name, conversation
from benchmarks.measure import Cell, Table, p50, progress
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.lance_internals import lance_tables
from memory_pipeline.lake.schemas import ANSWERS, SUMMARIES, TABLES
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from pathlib import Path

_EVER = datetime.max.replace(tzinfo=UTC)
_NIGHT = 3


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    hours = 100 if quick else 1_000
    lake, models = Lake(str(folder / "lake")), default_models()
    source = random.Random(1)
    writer = MemoryWriter.open(lake.storage.uri, workspace_id=WORKSPACE, agent_id=agent_name(0))
    rows: list[dict[str, Cell]] = []
    nights: list[dict[str, float]] = []
    seconds: list[float] = []
    live_then = 0
    for number in range(hours):
        now = START + timedelta(hours=number + 1, minutes=5)
        if now.hour == _NIGHT:
            night = _night(lake, live_then)
            live_then = int(night["live"])
            nights.append(night)
            lake = Lake(lake.storage.uri)  # open handles trust the log for an hour
        started = time.perf_counter()
        writer.write(conversation(source, agent_name(0), START + timedelta(hours=number), 2), now=now)
        for grain in Grain:
            list(materialize(lake, models, grain, grain_status(lake, grain, START.date(), now).pending))
        seconds.append(time.perf_counter() - started)
        if now.hour == 1 and (waiting := pending_days(lake, START.date(), now)):
            consolidate(lake, models, waiting, START.date())
        if (number + 1) % (hours // 10) == 0:
            progress(f"{number + 1:,} hours")
            rows.append(_row(lake, f"{number + 1:,} hours", seconds))
            seconds.clear()
    night = _night(lake, live_then)
    rows.append(_row(lake, "and a night after them", [night["seconds"]]))
    return [
        Table("housekeeping: what lies on the disk", "two messages an hour; seconds of a run, the median", rows),
        Table(
            "housekeeping: nights",
            "bytes that a night wrote, beside those that had changed since the last",
            _shares(nights),
        ),
    ]


def _night(lake: Lake, live_then: int) -> dict[str, float]:
    live = _live(lake)[1]
    before = _files(lake)
    lake.storage.delete(["state/vacuum.json"])  # else nothing seems changed, as hours are seconds here
    cleaned = clean_files(lake, datetime.now(UTC) + timedelta(hours=2))
    after = _files(lake)
    return {
        "live": live,
        "changed": live - live_then,
        "written": sum(size for path, size in after.items() if path not in before),
        "gone": cleaned.gone.bytes,
        "compacted": cleaned.compacted,
        "seconds": cleaned.seconds,
    }


def _shares(nights: list[dict[str, float]]) -> list[dict[str, Cell]]:
    worst = max(nights[1:] or nights, key=lambda night: night["written"] / night["changed"])
    middle = {name: p50([night[name] for night in nights]) for name in worst}
    return [
        {
            "night": what,
            "kB changed": night["changed"] / 1e3,
            "kB written": night["written"] / 1e3,
            "written/changed": night["written"] / night["changed"],
            "MB gone": night["gone"] / 1e6,
            "seconds": night["seconds"],
        }
        for what, night in (("the median", middle), ("the worst but for the first", worst), ("the last", nights[-1]))
    ]


def _row(lake: Lake, what: str, seconds: list[float]) -> dict[str, Cell]:
    live_files, live_bytes = _live(lake)
    everything = _files(lake)
    parquet = sum(path.endswith(".parquet") and "_delta_log" not in path for path in everything)
    return {
        "after": what,
        "Parquet files": parquet,
        "files": len(everything),
        "live files": live_files,
        "files/live": len(everything) / live_files,
        "MB": sum(everything.values()) / 1e6,
        "live MB": live_bytes / 1e6,
        "MB/live": sum(everything.values()) / live_bytes,
        "seconds": p50(seconds),
    }


def _files(lake: Lake) -> dict[str, int]:
    """Return the bytes of all files of tables, by path."""
    return {entry.path: entry.size for folder in ("tables", "projections") for entry in lake.storage.list(folder)}


def _live(lake: Lake) -> tuple[int, int]:
    """Return the number and the bytes of the files that the newest versions of all tables reference."""
    files = size = 0
    for spec in TABLES.values():
        grains = SUMMARY_GRAINS if spec is SUMMARIES else Grain if spec is ANSWERS else ()
        for fixed in [{"grain": grain.value} for grain in grains] or [{}]:
            sizes = lake.tables.sizes(spec, **fixed)
            files += len(lake.tables.state(spec, sizes.keys(), shard=None, **fixed))
            size += sum(sizes.values())
    for table in lance_tables(lake.storage):
        gone = {entry.path for part in table.unneeded(lake.storage, _EVER, _EVER) for entry in part}
        live = [entry for entry in (*table.manifests, *table.others) if entry.path not in gone]
        files += len(live)
        size += sum(entry.size for entry in live)
    return files, size

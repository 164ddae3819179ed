"""The cost of a tick of the two sensors with a ledger of two years.

The ledger has every hour of two years (``--quick``: three months) in its three hourly assets, and the summaries of all
grains, all in sync. The journal has 1,000 pending files (``--quick``: 100) in as many hours, of 100 agents. There are
no memory rows: sensors only read the ledger and the journal's listing. Ticks use Dagster's evaluation with an ephemeral
instance; the daemon adds calls between processes. *processor* is the CPU time of the process.

- *first*: no cursor, and the process has read nothing yet.
- *changed*: an entry of the ledger has changed since the last tick.
- *unchanged*: nothing has changed.
- *everything is late*: all hours have changed, so every day is stale.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from benchmarks.generator import START
from benchmarks.measure import Table, progress
from memory_pipeline.definitions import build_definitions
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain, hour_of
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MESSAGES_ASSET, LedgerEntry, index_asset, table_asset
from memory_pipeline.models.factory import default_models
from memory_pipeline.settings import Settings
from memory_pipeline.steps.results import RowDigests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from benchmarks.measure import Cell
    from memory_pipeline.domain.periods import Period

_LOOKS = 5


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    days, files = (90, 100) if quick else (731, 1000)
    lake = Lake(str(folder / "lake"))
    lake.ensure()
    hours = [hour_of(START + timedelta(hours=hour)) for hour in range(24 * days)]
    progress(f"{len(hours):,} hours into the ledger")
    lake.ledger.record(_entries(lake, hours, "made"))
    now = START + timedelta(days=days + 40)
    rows: list[dict[str, Cell]] = []
    with dg.DagsterInstance.ephemeral() as instance:
        sensors = _Sensors(lake, instance, now)
        for name in ("journal_sensor", "roll_up_sensor"):
            rows += [sensors.measured(name, "first, journal empty", anew=True), sensors.measured(name, "unchanged")]
        progress(f"{files:,} files into the journal")
        _write(lake, files, now)
        rows += [sensors.measured("journal_sensor", "first", anew=True)]
        for number in range(_LOOKS):
            lake.ledger.record(_entries(lake, hours[number : number + 1], f"again {number}"))
            rows += [sensors.measured("roll_up_sensor", "changed", looks=1)]
        rows += [sensors.measured("journal_sensor", "unchanged"), sensors.measured("roll_up_sensor", "unchanged")]
        lake.ledger.record(_hour_entries(hours, "late"))
        rows += [sensors.measured("roll_up_sensor", "everything is late", anew=True, looks=1)]
        rows += [sensors.measured("roll_up_sensor", "everything is late, the next", looks=1)]
    note = f"{len(hours):,} hours and their summaries in the ledger, {files:,} files in the journal; milliseconds"
    return [Table("ticks of the sensors", note, _merged(rows))]


class _Sensors:
    """The sensors of a deployment, with their cursors."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance, now: datetime) -> None:
        self._instance = instance
        self._cursors: dict[str, str | None] = {}
        settings = Settings(lake.storage.uri, START.date())
        self._definitions = build_definitions(settings, default_models(), lambda: now)

    def measured(self, sensor: str, what: str, *, anew: bool = False, looks: int = _LOOKS) -> dict[str, Cell]:
        """Return the milliseconds of some ticks, and the requests of the last one."""
        times, busy = [], []
        for _ in range(looks):
            if anew:
                self._cursors.pop(sensor, None)
            context = dg.build_sensor_context(
                instance=self._instance,
                cursor=self._cursors.get(sensor),
                resources=dict(self._definitions.resources or {}),
            )
            started, at_work = time.perf_counter(), time.process_time()
            data = self._definitions.resolve_sensor_def(sensor).evaluate_tick(context)
            times.append((time.perf_counter() - started) * 1000)
            busy.append((time.process_time() - at_work) * 1000)
            self._cursors[sensor] = data.cursor
        return {
            "sensor": sensor,
            "look": what,
            "median": statistics.median(times),
            "longest": max(times),
            "processor": statistics.median(busy),
            "asked for": len(data.run_requests or []),
            "cursor, bytes": len(data.cursor or ""),
        }


def _entries(lake: Lake, hours: list[Period], mark: str) -> Iterator[LedgerEntry]:
    """Yield the entries of hours and of all derived periods, each in sync with its sources."""
    yield from _hour_entries(hours, mark)
    outputs = {hour: digest(hour.key, mark) for hour in hours}
    for grain in list(Grain)[1:]:
        sources: dict[Period, list[str]] = {}
        for period, output in outputs.items():
            sources.setdefault(lake.calendar.ancestor(period, grain), []).append(output)
        outputs = {period: digest(period.key, mark) for period in sources}
        for period, output in outputs.items():
            made_from = RowDigests.of(*sources[period]).combined
            yield LedgerEntry(table_asset(grain), period.key, made_from, output, 100, 100)
            yield LedgerEntry(index_asset(grain), period.key, output, output, 100, 100)


def _hour_entries(hours: list[Period], mark: str) -> Iterator[LedgerEntry]:
    for hour in hours:
        output = digest(hour.key, mark)
        yield LedgerEntry(MESSAGES_ASSET, hour.key, "journal", output, 30, 10)
        yield LedgerEntry(table_asset(Grain.WORKING), hour.key, output, output, 60, 10)
        for asset in (index_asset(Grain.WORKING), GRAPH_ASSET):
            yield LedgerEntry(asset, hour.key, output, output, 60, 10)


def _write(lake: Lake, files: int, now: datetime) -> None:
    """Write files to the journal, each with a different hour; every tenth hour is old."""
    admission = Admission(START.date(), now, lake.calendar)
    for number in range(files):
        at = START + timedelta(hours=7 * number, minutes=5) if number % 10 == 0 else now - timedelta(hours=number + 1)
        said = {"id": "m", "role": "user", "content": "I sold the boat.", "timestamp": at.isoformat()}
        talk = {
            "workspace_id": "bench",
            "agent_id": f"agent-{number % 100:03}",
            "conversation_id": f"c{number}",
            "messages": [said],
        }
        lake.journal.append(read_messages(talk, admission)[0])


def _merged(rows: list[dict[str, Cell]]) -> list[dict[str, Cell]]:
    """Return one row per sensor and kind of tick, with the median and the maximum."""
    groups: dict[tuple[Cell, Cell], list[dict[str, Cell]]] = {}
    for row in rows:
        groups.setdefault((row["sensor"], row["look"]), []).append(row)
    return [
        {
            **group[-1],
            "median": statistics.median(float(row["median"]) for row in group),
            "processor": statistics.median(float(row["processor"]) for row in group),
            "longest": max(float(row["longest"]) for row in group),
        }
        for group in groups.values()
    ]

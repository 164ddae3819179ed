"""The journal sensor: conversations that arrive become runs for exactly the hours they touch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

import dagster as dg

from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Period
from memory_pipeline.steps.plan import grain_status

#: Up to this many blocks of consecutive hours get a run with a partition range each; more are scattered hours, as an
#: import brings them, and one run lists them: a run takes seconds to start.
_MOST_RANGES = 4
#: Hours of one run; a failure loses no more than this.
_MOST_HOURS = 720


def journal_sensor(working: dg.AssetsDefinition, partitions: Partitions, start: date) -> dg.SensorDefinition:
    """Return the sensor that asks for the hours that have pending journal files."""

    @dg.sensor(
        name="journal_sensor",
        target=working,
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns pending journal files into runs for exactly the hours they touch.",
    )
    def sensor(memory: LakeResource) -> dg.SensorResult | dg.SkipReason:
        status = grain_status(memory.lake, Grain.WORKING, start, datetime.now(UTC))
        if not status.pending:
            return dg.SkipReason("no journal file is pending")
        tags: dict[Period, list[str]] = {hour: [] for hour in status.pending}
        for file in memory.lake.journal.pending():
            if file.hour in tags:
                tags[file.hour].append(f"{file.path} {file.tag}")
        return dg.SensorResult(run_requests=list(_requests(status.pending, tags, partitions)))

    return sensor


def _requests(hours: list[Period], tags: dict[Period, list[str]], partitions: Partitions) -> Iterator[dg.RunRequest]:
    blocks = list(_blocks(hours))
    if len(blocks) <= _MOST_RANGES:
        for block in blocks:
            yield dg.RunRequest(
                run_key=_run_key(block, tags),
                tags={
                    "dagster/asset_partition_range_start": partitions.key(block[0]),
                    "dagster/asset_partition_range_end": partitions.key(block[-1]),
                },
            )
        return
    for first in range(0, len(hours), _MOST_HOURS):
        part = hours[first : first + _MOST_HOURS]
        config = {"ops": {"make_working": {"config": {"periods": [hour.key for hour in part]}}}}
        yield dg.RunRequest(run_key=_run_key(part, tags), run_config=config)


def _blocks(hours: list[Period]) -> Iterator[list[Period]]:
    """Cut sorted hours into runs of consecutive ones, none longer than a run may be."""
    block: list[Period] = []
    for hour in hours:
        if block and (block[-1].next() != hour or len(block) >= _MOST_HOURS):
            yield block
            block = []
        block.append(hour)
    if block:
        yield block


def _run_key(hours: list[Period], tags: dict[Period, list[str]]) -> str:
    """Name a request by its hours and the files' names and versions: the same state asks once, a new file again."""
    return f"{hours[0]}..{hours[-1]}:{digest([sorted(tags[hour]) for hour in hours])}"

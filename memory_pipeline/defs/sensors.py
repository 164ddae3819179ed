"""The sensor of the journal: conversations that arrive become runs for exactly the hours they touch.

A flood of consecutive hours becomes ranges, scattered hours a list. Hours that a run is making are left to it. What
failed is asked for again after a wait that grows, for ever; after the fifth time it is shown as failing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime

import dagster as dg

from memory_pipeline.defs.cursors import read_cursor, written_cursor
from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.requests import failing_lines, observations, outcomes_of, run_request, under_way
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.periods import EARLIEST, Grain, Period
from memory_pipeline.steps.scheduling.planner import journal_hours
from memory_pipeline.steps.scheduling.request_log import MOST_PERIODS
from memory_pipeline.steps.scheduling.scheduler import Hours

NAME = "journal_sensor"
_JOB = f"remember_{Grain.WORKING}"


def utc_now() -> datetime:
    """Return the time of the machine's clock."""
    return datetime.now(UTC)


def journal_sensor(
    grains: Mapping[Grain, dg.AssetsDefinition],
    partitions: Partitions,
    start: date,
    clock: Callable[[], datetime] = utc_now,
    partitions_per_run: int | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that asks for the hours that have pending journal files.

    Args:
        grains: the assets of each grain.
        partitions: of the deployment.
        start: the first day of the memory; earlier hours are not asked for.
        clock: tells the time, UTC.
        partitions_per_run: how many partitions one run makes at most; None leaves it to :mod:`~.steps.attempts`.
    """

    @dg.sensor(
        name=NAME,
        job=dg.define_asset_job(_JOB, selection=dg.AssetSelection.assets(*grains[Grain.WORKING].keys).without_checks()),
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns pending journal files into runs for exactly the hours they touch.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.SensorResult:
        now = clock()
        hours = read_cursor(context, Hours)
        hours.attempts.most = partitions_per_run or MOST_PERIODS
        found = journal_hours(memory.lake, EARLIEST, now)
        first = memory.lake.calendar.bounds(Period.containing(Grain.DAILY, start))[0]
        states = {hour: state for hour, state in found.items() if first <= memory.lake.calendar.bounds(hour)[0]}
        outcomes = outcomes_of(context.instance, [request.id for request in hours.attempts.asked], now)
        _, changes = hours.attempts.settle(outcomes, now, states)
        busy = under_way(context.instance, partitions, grains, now) if states else {}
        requests = hours.ask(states, busy.get(Grain.WORKING, ()), now)
        lines = failing_lines(hours.attempts.failing())
        if len(found) > len(states):
            lines.append(
                f"{len(found) - len(states):,} hours lie before {start}, the first day when this code location was "
                "loaded: reload it (if MEMORY_PIPELINE_START is set, set it to an earlier day or unset it first)"
            )
        for line in lines:
            context.log.warning(line)
        reason = None
        if not requests:
            making = len(hours.attempts.under_way(Grain.WORKING) | busy.get(Grain.WORKING, set()))
            reason = _reason(len(states), making, lines)
        return dg.SensorResult(
            run_requests=[run_request(request, partitions, _JOB) for request in requests],
            skip_reason=reason,
            cursor=written_cursor(hours.to_record()),
            asset_events=list(observations(changes, partitions)),
        )

    return sensor


def _reason(pending: int, making: int, lines: list[str]) -> str:
    """Say why nothing is asked for; `pending` hours have files, and runs are making `making`."""
    if not pending:
        return "\n".join(["no journal file is pending", *lines])
    told = f"{pending} hours are pending; runs are making {making}; what failed is asked for again after a wait"
    return "\n".join([told, *lines])

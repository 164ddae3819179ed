"""The sensor of everything that is made from hours: summaries, what waits for a model, and the marts.

It asks for what the lake's ledger says is pending (:mod:`memory_pipeline.steps.scheduling.planner`), when it is due
(:mod:`memory_pipeline.steps.scheduling.scheduler`). Why not Dagster's automation conditions:
docs/decisions/0012-the-ledger-asks-for-roll-ups.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime

import dagster as dg

from memory_pipeline.analytics import models_of, stale_marts
from memory_pipeline.defs.cursors import read_cursor, record_of, written_cursor
from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.requests import (
    failing_lines,
    observations,
    outcomes_of,
    run_request,
    tags_of,
    told,
    under_way,
)
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.sensors import utc_now
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.steps.scheduling.planner import grain_status, journal_hours
from memory_pipeline.steps.scheduling.request_log import MOST_PERIODS
from memory_pipeline.steps.scheduling.scheduler import RollUps

NAME = "roll_up_sensor"
_MARTS_JOB = "renew_marts"
#: Keys of the cursor beside what is remembered of requests: what the last look saw, and when to look again anyway.
_SEEN, _UNTIL = "seen", "until"


def roll_up_sensor(
    grains: Mapping[Grain, dg.AssetsDefinition],
    marts: Sequence[dg.AssetsDefinition],
    partitions: Partitions,
    start: date,
    clock: Callable[[], datetime] = utc_now,
    partitions_per_run: int | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that asks for summaries, for what waits for a model, and for the marts.

    Args:
        grains: the assets of each grain.
        marts: the assets of the marts, named after their models.
        partitions: of the deployment.
        start: the first day of the memory.
        clock: tells the time, UTC.
        partitions_per_run: how many partitions one run makes at most; None leaves it to :mod:`~.steps.attempts`.
    """
    jobs = {grain: _job(grain, assets) for grain, assets in grains.items()}
    of_marts = dg.define_asset_job(
        _MARTS_JOB,
        selection=dg.AssetSelection.assets(*(key for assets in marts for key in assets.keys)).without_checks(),
    )

    @dg.sensor(
        name=NAME,
        jobs=[*jobs.values(), of_marts],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for closed periods that the ledger says are missing or stale, for what waits for a model, "
        "and once a day for the marts.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.SensorResult:
        now, lake = clock(), memory.lake
        rolls = read_cursor(context, RollUps)
        rolls.attempts.most = partitions_per_run or MOST_PERIODS
        names = [request.id for request in rolls.attempts.asked] + ([rolls.marts.asked[0]] if rolls.marts.asked else [])
        outcomes = outcomes_of(context.instance, names, now)
        busy = under_way(context.instance, partitions, grains, now)
        hours = journal_hours(lake, start, now)
        seen = _digest(lake, hours, outcomes, busy)
        record = record_of(context)
        if record and record.get(_SEEN) == seen and now.isoformat() < str(record.get(_UNTIL)):
            reason = "\n".join(["nothing has changed", *_failing(rolls)])
            return dg.SensorResult(skip_reason=reason, cursor=context.cursor)

        done, changes = rolls.attempts.settle(outcomes, now)
        rolls.made(done)
        rolls.marts.settle(outcomes, now)
        statuses = {grain: grain_status(lake, grain, start, now) for grain in Grain}
        asked = rolls.ask(lake.calendar, statuses, hours, busy, now)
        requests = [run_request(request, partitions, jobs[request.grain].name) for request in asked]
        requests += _marts(lake, rolls, now)
        lines = _failing(rolls)
        for line in lines:
            context.log.warning(line)
        until = rolls.next_look(lake.calendar, now).isoformat()
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else "\n".join([_told(rolls), *lines]),
            # What was seen is what was before the runs that are asked for now.
            cursor=written_cursor({**rolls.to_record(), _SEEN: "" if requests else seen, _UNTIL: until}),
            asset_events=list(observations(changes, partitions)),
        )

    return sensor


def _job(grain: Grain, assets: dg.AssetsDefinition) -> dg.UnresolvedAssetJobDefinition:
    name = f"finish_{grain}" if grain is Grain.WORKING else f"roll_up_{grain}"
    return dg.define_asset_job(name, selection=dg.AssetSelection.assets(*assets.keys).without_checks())


def _marts(lake: Lake, rolls: RollUps, now: datetime) -> list[dg.RunRequest]:
    """Return the request for the marts that are stale, once a day, when nothing is about to change a summary."""
    if not (lake.exists and rolls.is_level and rolls.marts.are_due(now)):
        return []
    try:
        stale = [dg.AssetKey(model.name) for model in stale_marts(lake)]
    except Exception:  # noqa: BLE001 - their run will say what is wrong; hours and summaries do not wait for marts
        stale = [dg.AssetKey(model.name) for model in models_of("marts")]
    if not stale:
        rolls.marts.is_owed = False
        return []
    name, attempt = rolls.marts.ask(now)
    return [dg.RunRequest(run_key=name, job_name=_MARTS_JOB, tags=tags_of(name, attempt), asset_selection=stale)]


def _digest(lake: Lake, *seen: object) -> str:
    """Return what changes when there may be something to ask for; reads no rows."""
    return digest(lake.tables.version(LEDGER), *map(_plain, seen))


def _plain(seen: object) -> object:
    if isinstance(seen, Mapping):
        return sorted([str(key), str(_plain(value))] for key, value in seen.items())
    return sorted(map(str, seen)) if isinstance(seen, set) else seen


def _failing(rolls: RollUps) -> list[str]:
    """Return a line for whatever is failing."""
    setback = rolls.marts.setback
    marts = [f"marts: {told(setback)}"] if setback and setback.is_failing else []
    return [*failing_lines(rolls.attempts.failing()), *marts]


def _told(rolls: RollUps) -> str:
    """Say why nothing is asked for."""
    making = sum(len(request.periods) for request in rolls.attempts.asked)
    owed = sum(len(periods) for periods in rolls.owed.values())
    if making:
        return f"runs are making {making} periods; {owed} are due"
    waits = "; what waits for a model is asked for every quarter of an hour" if rolls.healed else ""
    return (f"{owed} periods are due, and wait for what they are made from" if owed else "nothing is due") + waits

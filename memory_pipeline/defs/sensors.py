"""The journal sensor requests runs of hours. The roll-up sensor requests runs of summaries and marts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import dagster as dg

from memory_pipeline.analytics import models_of, stale_marts
from memory_pipeline.defs.assets.grains import UNITS
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.run_requests import (
    failing_lines,
    failure_text,
    observations,
    outcomes_of,
    run_request,
    tags_of,
    under_way,
)
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import EARLIEST, Grain, Period
from memory_pipeline.errors import counted
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.steps.scheduling.planner import grain_status, journal_hours
from memory_pipeline.steps.scheduling.request_log import MOST_PERIODS
from memory_pipeline.steps.scheduling.scheduler import Hours, RollUps

#: Part of the cursor's digest. Cursors of other versions, or edited by hand, are ignored.
_VERSION = 1


#: State that a cursor can hold.
_Memory = TypeVar("_Memory", Hours, RollUps)


def read_cursor(context: dg.SensorEvaluationContext, kind: type[_Memory]) -> _Memory:
    """Return the state in a sensor's cursor, or an empty one if there is none or it cannot be read."""
    return kind() if (record := record_of(context)) is None else _read(context, kind, record)


def record_of(context: dg.SensorEvaluationContext) -> dict[str, Any] | None:
    """Return the cursor's record, or None if there is none or it cannot be read."""
    try:
        record = json.loads(context.cursor or "null")
    except (ValueError, RecursionError):
        record = "no JSON"
    if record is None:
        return None
    if isinstance(record, dict) and record.pop("digest", None) == digest(_VERSION, record):
        return record
    context.log.warning("the cursor is of another version and is ignored; pending partitions are requested again")
    return None


def written_cursor(record: Mapping[str, Any]) -> str:
    """Serialize a record as a cursor."""
    plain = json.loads(json.dumps(record))
    return json.dumps({"digest": digest(_VERSION, plain), **plain}, separators=(",", ":"))


def _read(context: dg.SensorEvaluationContext, kind: type[_Memory], record: dict[str, Any]) -> _Memory:
    try:
        return kind.from_record(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        context.log.warning(f"the cursor cannot be read ({error}); pending partitions are requested again")
        return kind()


JOURNAL_SENSOR = "journal_sensor"
_JOB = f"remember_{Grain.WORKING}"


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def journal_sensor(
    grains: Mapping[Grain, dg.AssetsDefinition],
    partitions: Partitions,
    start: date,
    clock: Callable[[], datetime] = utc_now,
    partitions_per_run: int | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that requests the hours with pending journal files. Hours before `start` are not requested."""

    @dg.sensor(
        name=JOURNAL_SENSOR,
        job=dg.define_asset_job(
            _JOB,
            tags=partitions.tags,
            selection=dg.AssetSelection.assets(*grains[Grain.WORKING].keys).without_checks(),
            description="Loads messages from the journal and computes facts, graph, durable memories and the search "
            "index.",
        ),
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts runs for the hours with pending journal files.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.SensorResult:
        now = clock()
        hours = read_cursor(context, Hours)
        hours.attempts.most = partitions_per_run or MOST_PERIODS
        found = journal_hours(memory.lake, EARLIEST, now)
        first = memory.lake.calendar.bounds(Period.containing(Grain.DAILY, start))[0]
        states = {hour: state for hour, state in found.items() if first <= memory.lake.calendar.bounds(hour)[0]}
        outcomes = outcomes_of(context.instance, [request.id for request in hours.attempts.asked], partitions, now)
        _, changes = hours.attempts.settle(outcomes, now, states)
        busy = under_way(context.instance, partitions, grains, now) if states else {}
        requests = hours.ask(states, busy.get(Grain.WORKING, ()), now)
        lines = failing_lines(hours.attempts.failing())
        if len(found) > len(states):
            lines.append(
                f"{counted(len(found) - len(states), 'pending hour')} before {start}, the first day when this code "
                "location was loaded; reload it (if MEMORY_PIPELINE_START is set, first unset it or set an earlier day)"
            )
        for line in lines:
            context.log.warning(line)
        reason = None
        if not requests:
            running = len(hours.attempts.under_way(Grain.WORKING) | busy.get(Grain.WORKING, set()))
            reason = _reason(len(states), running, lines)
        return dg.SensorResult(
            run_requests=[run_request(request, partitions, _JOB) for request in requests],
            skip_reason=reason,
            cursor=written_cursor(hours.to_record()),
            asset_events=list(observations(changes, partitions)),
        )

    return sensor


def _reason(pending: int, running: int, lines: list[str]) -> str:
    if not pending:
        return "\n".join(["no journal file is pending", *lines])
    counts = f"pending hours: {pending}, {running} of them in unfinished runs; failed hours are retried after a wait"
    return "\n".join([counts, *lines])


# Why not Dagster's automation conditions: docs/decisions/0012-the-ledger-asks-for-roll-ups.md.
ROLL_UP_SENSOR = "roll_up_sensor"
_MARTS_JOB = "renew_marts"
#: Further keys of the cursor: digest of the last tick's inputs, and the time until which equal inputs are skipped.
_SEEN, _UNTIL = "seen", "until"


def roll_up_sensor(
    grains: Mapping[Grain, dg.AssetsDefinition],
    marts: Sequence[dg.AssetsDefinition],
    partitions: Partitions,
    start: date,
    clock: Callable[[], datetime] = utc_now,
    partitions_per_run: int | None = None,
) -> dg.SensorDefinition:
    """Return the sensor that requests summaries, partitions that wait for a model, and marts."""
    jobs = {grain: _job(grain, assets, partitions) for grain, assets in grains.items()}
    marts_job = dg.define_asset_job(
        _MARTS_JOB,
        tags=partitions.tags,
        selection=dg.AssetSelection.assets(*(key for assets in marts for key in assets.keys)).without_checks(),
        description="Builds stale marts.",
    )

    @dg.sensor(
        name=ROLL_UP_SENSOR,
        jobs=[*jobs.values(), marts_job],
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts runs for closed periods with missing or stale summaries, for partitions that wait for a "
        "model, and once a day for the marts.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.SensorResult:
        now, lake = clock(), memory.lake
        rolls = read_cursor(context, RollUps)
        rolls.attempts.most = partitions_per_run or MOST_PERIODS
        ids = [request.id for request in rolls.attempts.asked] + ([rolls.marts.asked[0]] if rolls.marts.asked else [])
        outcomes = outcomes_of(context.instance, ids, partitions, now)
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
        requested = rolls.ask(lake.calendar, statuses, hours, busy, now)
        requests = [run_request(request, partitions, jobs[request.grain].name) for request in requested]
        requests += _mart_requests(lake, rolls, partitions, now)
        lines = _failing(rolls)
        for line in lines:
            context.log.warning(line)
        until = rolls.next_look(lake.calendar, now).isoformat()
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None
            if requests
            else "\n".join([_skip_reason(rolls), *_held(rolls.held(lake.calendar, statuses, now)), *lines]),
            # New runs change the inputs, so their digest is stored only if there are none.
            cursor=written_cursor({**rolls.to_record(), _SEEN: "" if requests else seen, _UNTIL: until}),
            asset_events=list(observations(changes, partitions)),
        )

    return sensor


def _job(grain: Grain, assets: dg.AssetsDefinition, partitions: Partitions) -> dg.UnresolvedAssetJobDefinition:
    name = f"finish_{grain}" if grain is Grain.WORKING else f"roll_up_{grain}"
    description = (
        "Completes hours that were interrupted or wait for a model."
        if grain is Grain.WORKING
        else f"Computes and indexes {grain} summaries."
    )
    selection = dg.AssetSelection.assets(*assets.keys).without_checks()
    return dg.define_asset_job(name, selection=selection, description=description, tags=partitions.tags)


def _mart_requests(lake: Lake, rolls: RollUps, partitions: Partitions, now: datetime) -> list[dg.RunRequest]:
    """Return a request for the stale marts, once a day, when all summaries are final."""
    if not (lake.exists and rolls.is_level and rolls.marts.are_due(now)):
        return []
    try:
        stale = [partitions.asset(model.name) for model in stale_marts(lake)]
    except Exception:  # noqa: BLE001 - the marts' own run reports the error; hours and summaries do not depend on it
        stale = [partitions.asset(model.name) for model in models_of("marts")]
    if not stale:
        rolls.marts.is_due = False
        return []
    name, attempt = rolls.marts.ask(now)
    return [dg.RunRequest(run_key=name, job_name=_MARTS_JOB, tags=tags_of(name, attempt), asset_selection=stale)]


def _digest(lake: Lake, *seen: object) -> str:
    return digest(lake.tables.version(LEDGER), *map(_plain, seen))


def _plain(seen: object) -> object:
    if isinstance(seen, Mapping):
        return sorted([str(key), str(_plain(value))] for key, value in seen.items())
    return sorted(map(str, seen)) if isinstance(seen, set) else seen


def _failing(rolls: RollUps) -> list[str]:
    failure = rolls.marts.failure
    marts = [f"marts: {failure_text(failure)}"] if failure and failure.is_failing else []
    return [*failing_lines(rolls.attempts.failing()), *marts]


#: How often late data of a grain is summarized.
_ONCE = {Grain.DAILY: "an hour", Grain.WEEKLY: "a day"}


def _held(held: Mapping[Grain, tuple[int, datetime]]) -> list[str]:
    """Return a line for each grain of which periods with late data wait."""
    return [
        f"{counted(count, UNITS[grain])} {'waits' if count == 1 else 'wait'} until {gate:%A %Y-%m-%d %H:%M} UTC, "
        f"because late data of {UNITS[grain]}s is summarized once {_ONCE.get(grain, 'a week')}"
        for grain, (count, gate) in held.items()
    ]


def _skip_reason(rolls: RollUps) -> str:
    running = sum(len(request.periods) for request in rolls.attempts.asked)
    due = sum(len(periods) for periods in rolls.due.values())
    if running:
        return f"periods in unfinished runs: {running}; due: {due}"
    waits = "; partitions that wait for a model are retried every 15 minutes" if rolls.last_retry else ""
    return (f"due periods that wait for their sources: {due}" if due else "nothing is due") + waits

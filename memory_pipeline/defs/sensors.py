"""The sensors: conversations that arrive become runs for exactly the hours they touch; what is unfinished is retried.

Unfinished is what a model did not do: it failed, or a budget was spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg

from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Period
from memory_pipeline.lake import Lake
from memory_pipeline.steps.plan import grain_status

NAME, HEALING = "journal_sensor", "healing_sensor"

#: Up to this many blocks of consecutive hours get a run with a partition range each; more are scattered hours, as an
#: import brings them, and one run lists them: a run takes seconds to start.
_MOST_RANGES = 4
#: Hours of one run; a failure loses no more than this.
_MOST_HOURS = 720

#: Names the state of the journal that a run was asked for, so that its attempts can be counted.
REQUEST_TAG = "memory_pipeline/request"
#: Wait after a first failed attempt; doubled with each more, up to the longest.
_WAIT, _LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
#: How often what a model left unfinished is asked for again.
_HEAL_EVERY = timedelta(minutes=15)
#: A run that has not ended by then is taken for dead: its worker and whoever watched it were killed together.
_LOST_AFTER = timedelta(hours=2)

_RANGE_START, _RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def journal_sensor(working: dg.AssetsDefinition, partitions: Partitions, start: date) -> dg.SensorDefinition:
    """Return the sensor that asks for the hours that have pending journal files.

    Hours that a run is making are left to it; what failed is asked for again, after a wait that grows.
    """

    @dg.sensor(
        name=NAME,
        job=dg.define_asset_job("remember_hours", selection=dg.AssetSelection.assets(*working.keys)),
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Turns pending journal files into runs for exactly the hours they touch.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.SensorResult | dg.SkipReason:
        now = datetime.now(UTC)
        status = grain_status(memory.lake, Grain.WORKING, start, now)
        states = _states(memory.lake, status.pending)
        # Hours without files that wait for a model are the other sensor's.
        pending = [hour for hour in status.pending if states[hour] or hour not in set(status.unfinished)]
        if not pending:
            return dg.SkipReason("no journal file is pending")
        busy = _under_way(context.instance, partitions, now)
        hours = [hour for hour in pending if hour not in busy]
        if not hours:
            return dg.SkipReason(f"a run is making the {len(pending)} pending hours")
        requests = [
            attempt
            for request in _requests(hours, states, partitions)
            if (attempt := _attempt(context.instance, request, now))
        ]
        return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("waiting to try again what failed")

    return sensor


def healing_sensor(
    grains: Mapping[Grain, dg.AssetsDefinition], partitions: Partitions, start: date
) -> dg.SensorDefinition:
    """Return the sensor that asks again for partitions in which something waits for a model.

    One grain at a time, the finest first, since what is above it is made from it; and not more often than every quarter
    of an hour, since the model may still be down, or the budget spent.
    """
    jobs = {
        grain: dg.define_asset_job(f"finish_{grain}", selection=dg.AssetSelection.assets(*assets.keys))
        for grain, assets in grains.items()
    }

    @dg.sensor(
        name=HEALING,
        jobs=list(jobs.values()),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Makes partitions again that hold stand-ins: a model failed, or a budget was spent.",
    )
    def sensor(context: dg.SensorEvaluationContext, memory: LakeResource) -> dg.RunRequest | dg.SkipReason:
        now = datetime.now(UTC)
        for grain, job in jobs.items():
            periods = grain_status(memory.lake, grain, start, now).unfinished[:_MOST_HOURS]
            if not periods:
                continue
            recent = dg.RunsFilter(tags={REQUEST_TAG: f"unfinished {grain}"}, created_after=now - _HEAL_EVERY)
            if context.instance.get_runs_count(recent):
                return dg.SkipReason(f"{len(periods)} {grain} periods wait for a model; it was asked a moment ago")
            tags = {REQUEST_TAG: f"unfinished {grain}"}
            if grain is Grain.WORKING:
                config = {"ops": {"make_working": {"config": {"periods": [period.key for period in periods]}}}}
                return dg.RunRequest(job_name=job.name, run_config=config, tags=tags)
            # What lies between them is complete, and is only looked at.
            first, last = partitions.key(periods[0]), partitions.key(periods[-1])
            return dg.RunRequest(job_name=job.name, tags={**tags, _RANGE_START: first, _RANGE_END: last})
        return dg.SkipReason("nothing waits for a model")

    return sensor


def _states(lake: Lake, hours: list[Period]) -> dict[Period, list[str]]:
    """Return the names and versions of the pending files of each hour."""
    states: dict[Period, list[str]] = {hour: [] for hour in hours}
    for file in lake.journal.pending():
        if file.hour in states:
            states[file.hour].append(f"{file.path} {file.tag}")
    return states


def _under_way(instance: dg.DagsterInstance, partitions: Partitions, now: datetime) -> set[Period]:
    """Return the hours of unfinished runs: they acknowledge files as they go, which must not be asked for again."""
    hours: set[Period] = set()
    unfinished = dg.RunsFilter(
        statuses=_UNFINISHED, tags={"dagster/sensor_name": NAME}, created_after=now - _LOST_AFTER
    )
    for run in instance.get_runs(unfinished):
        if _RANGE_START in run.tags:
            first, last = (partitions.period(Grain.WORKING, run.tags[tag]) for tag in (_RANGE_START, _RANGE_END))
            hours.update(first.through(last))
        else:
            config: Any = run.run_config
            listed = config["ops"]["make_working"]["config"]["periods"]
            hours.update(Period.parse(Grain.WORKING, text) for text in listed)
    return hours


def _attempt(instance: dg.DagsterInstance, request: dg.RunRequest, now: datetime) -> dg.RunRequest | None:
    """Return the request as its next attempt; None if the last one failed a moment ago.

    Dagster never asks twice for one run key: without counting attempts, the files of a killed run would wait for ever.
    """
    state = str(request.run_key)
    before = instance.get_run_records(dg.RunsFilter(tags={REQUEST_TAG: state}))  # newest first
    if before:
        ended = datetime.fromtimestamp(before[0].end_time or before[0].update_timestamp.timestamp(), UTC)
        if now < ended + min(_WAIT * 2 ** min(len(before) - 1, 10), _LONGEST_WAIT):
            return None
    tags = {**request.tags, REQUEST_TAG: state}
    return request.with_replaced_attrs(run_key=f"{state}:{len(before) + 1}", tags=tags)


def _requests(hours: list[Period], states: dict[Period, list[str]], partitions: Partitions) -> Iterator[dg.RunRequest]:
    blocks = list(_blocks(hours))
    if len(blocks) <= _MOST_RANGES:
        for block in blocks:
            tags = {_RANGE_START: partitions.key(block[0]), _RANGE_END: partitions.key(block[-1])}
            yield dg.RunRequest(run_key=_run_key(block, states), tags=tags)
        return
    for first in range(0, len(hours), _MOST_HOURS):
        part = hours[first : first + _MOST_HOURS]
        config = {"ops": {"make_working": {"config": {"periods": [hour.key for hour in part]}}}}
        yield dg.RunRequest(run_key=_run_key(part, states), run_config=config)


def _blocks(hours: list[Period]) -> Iterator[list[Period]]:
    """Cut sorted hours into blocks of consecutive ones, none longer than a run may be."""
    block: list[Period] = []
    for hour in hours:
        if block and (block[-1].next() != hour or len(block) >= _MOST_HOURS):
            yield block
            block = []
        block.append(hour)
    if block:
        yield block


def _run_key(hours: list[Period], states: dict[Period, list[str]]) -> str:
    """Name a request by its hours and the files' names and versions: a new file makes it another one."""
    return f"{hours[0]}..{hours[-1]}:{digest([sorted(states[hour]) for hour in hours])}"

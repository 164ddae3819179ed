"""Translate the scheduler's requests into Dagster runs, and runs into outcomes. Tags of a run name its request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError, counted, shown
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.steps.scheduling.request_log import (
    Failure,
    FailureTransition,
    Request,
    RequestOutcome,
    RequestOutcomes,
)

#: Tags of runs: id of the request, and number of the attempt.
REQUEST_TAG, ATTEMPT_TAG = "memory_pipeline/request", "memory_pipeline/attempt"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
PARTITION = "dagster/partition"
#: Time limit of a run. Without it, a run on a dead machine would block its pool forever.
_LONGEST_RUN = timedelta(hours=2)
_TAGS = {"dagster/max_runtime": str(int(_LONGEST_RUN.total_seconds()))}
_UNFINISHED = frozenset(
    [
        dg.DagsterRunStatus.QUEUED,
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
)
#: Maximum characters of a run's error, and maximum number of partitions that get separate observations.
_MOST_ERROR, _MOST_OBSERVED = 300, 20


def run_request(request: Request, partitions: Partitions, job: str) -> dg.RunRequest:
    """Return the run request for a range of partitions, or for scattered periods with a list in the run config.

    Dagster shows an unfinished run with a list under its last partition only.
    """
    tags = tags_of(request.id, request.attempt)
    if request.is_range:
        first, last = request.periods[0], request.periods[-1]
        tags |= {RANGE_START: partitions.key(first), RANGE_END: partitions.key(last)}
        return dg.RunRequest(run_key=request.id, job_name=job, tags=tags)
    keys = [period.key for period in request.periods]
    config = {"ops": {f"make_{request.grain}": {"config": {"periods": keys}}}}
    if request.grain.finer is not None:
        # Dagster looks up the versions of a step's sources by the run's partitions, and raises if the run has none.
        tags |= {PARTITION: partitions.key(request.periods[-1])}
    return dg.RunRequest(run_key=request.id, job_name=job, tags=tags, run_config=config)


def tags_of(name: str, attempt: int) -> dict[str, str]:
    """Return the tags of a request's run."""
    return {**_TAGS, REQUEST_TAG: name, ATTEMPT_TAG: str(attempt)}


def outcomes_of(
    instance: dg.DagsterInstance, names: Collection[str], partitions: Partitions, now: datetime
) -> RequestOutcomes:
    """Return the outcomes of requests, from their latest runs. Requests without a run are omitted."""
    if not names:
        return {}
    outcomes: dict[str, tuple[RequestOutcome, str]] = {}
    for record in instance.get_run_records(dg.RunsFilter(tags={REQUEST_TAG: list(names)})):  # newest first
        run = record.dagster_run
        name = run.tags[REQUEST_TAG]
        if not partitions.has_run(run):
            continue
        if _is_under_way(record, now):
            outcomes[name] = (RequestOutcome.UNDER_WAY, "")
        elif name in outcomes:
            continue  # a later manual run decides
        elif run.status is dg.DagsterRunStatus.SUCCESS:
            outcomes[name] = (RequestOutcome.DONE, "")
        else:
            outcomes[name] = (RequestOutcome.FAILED, _error(instance, run))
    return outcomes


def under_way(
    instance: dg.DagsterInstance, partitions: Partitions, grains: Mapping[Grain, dg.AssetsDefinition], now: datetime
) -> dict[Grain, set[Period]]:
    """Return the periods of all unfinished runs of this location, including manual ones."""
    grain_of = {key: grain for grain, assets in grains.items() for key in assets.keys}
    periods: dict[Grain, set[Period]] = defaultdict(set)
    for record in instance.get_run_records(dg.RunsFilter(statuses=sorted(_UNFINISHED, key=str))):
        run = record.dagster_run
        if _is_under_way(record, now):
            selected = {grain_of[key] for key in run.asset_selection or () if key in grain_of}
            named = {grain for grain in Grain if run.job_name.endswith(f"_{grain}")}
            for grain in selected or (named if partitions.has_run(run) else ()):
                with suppress(InputError, ValueError):  # partitions typed into the launch dialog may be invalid
                    periods[grain].update(_periods(run, grain, partitions))
    return periods


def observations(changes: Iterable[FailureTransition], partitions: Partitions) -> Iterator[dg.AssetObservation]:
    """Yield observations about partitions that began to fail or recovered."""
    for change in changes:
        failure = change.failure
        metadata: dict[str, Any] = {"state": "failing" if failure else "recovered", "partitions": len(change.periods)}
        if failure:
            metadata |= {
                "attempts": failure.attempts,
                "since": dg.MetadataValue.timestamp(failure.since),
                "error": failure.error,
            }
        asset = partitions.asset(table_asset(change.grain))
        description = (
            f"{counted(len(change.periods), 'partition')} from {change.periods[0]} on: {failure_text(failure)}"
        )
        if len(change.periods) > _MOST_OBSERVED:
            yield dg.AssetObservation(asset, description=description, metadata=metadata)
            continue
        for period in change.periods:
            key = partitions.key(period)
            yield dg.AssetObservation(asset, partition=key, description=failure_text(failure), metadata=metadata)


def failing_lines(failing: Mapping[Grain, Mapping[Period, Failure]]) -> list[str]:
    """Return a line for each error of failing partitions, for logs and skip reasons."""
    lines = []
    for grain, failures in failing.items():
        groups: dict[tuple[datetime, str], list[Period]] = defaultdict(list)
        for period, failure in failures.items():
            groups[failure.since, failure.error].append(period)
        for periods in groups.values():
            more = f" and {len(periods) - 3} more" if len(periods) > 3 else ""
            names = ", ".join(map(str, periods[:3]))
            lines.append(f"{grain} {names}{more}: {failure_text(failures[periods[0]])}")
    return lines


def failure_text(failure: Failure | None) -> str:
    """Describe a failure, or a recovery if it is None."""
    if failure is None:
        return "recovered after failures"
    return (
        f"failing since {failure.since:%Y-%m-%d %H:%M} UTC, {failure.attempts} attempts; retried each hour: "
        f"{failure.error}"
    )


def _is_under_way(record: dg.RunRecord, now: datetime) -> bool:
    """Return whether a run has not ended. A run past the time limit counts as dead."""
    status = record.dagster_run.status
    if status not in _UNFINISHED:
        return False
    if status is dg.DagsterRunStatus.QUEUED:
        return True  # the daemon will start it
    # A run whose process died before it started has no start time.
    since = record.update_timestamp if record.start_time is None else datetime.fromtimestamp(record.start_time, UTC)
    return now < since.astimezone(UTC) + _LONGEST_RUN


def _periods(run: dg.DagsterRun, grain: Grain, partitions: Partitions) -> list[Period]:
    config: Any = run.run_config
    if keys := config.get("ops", {}).get(f"make_{grain}", {}).get("config", {}).get("periods", []):
        return [Period.parse(grain, key) for key in keys]
    if RANGE_START in run.tags:
        first, last = (partitions.period(grain, run.tags[tag]) for tag in (RANGE_START, RANGE_END))
        return list(first.through(last))
    return [partitions.period(grain, run.tags[PARTITION])] if PARTITION in run.tags else []


def _error(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return "the run or its machine was stopped" if run.status in _UNFINISHED else f"the run was {run.status.value}"
    for kind in (dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE):
        for entry in instance.all_logs(run.run_id, of_type=kind):
            data: Any = entry.dagster_event.event_specific_data if entry.dagster_event else None
            error = getattr(data, "error", None)
            while error is not None and error.cause is not None:
                error = error.cause
            text = error.message if error is not None else entry.message
            if text and text.strip():
                return shown(text.strip(), _MOST_ERROR)
    return "the run failed"

"""Run the assets in this process, without a daemon, for `memory-pipeline run` and `make demo`.

Grains run from fine to coarse, so that each sees the output of the finer one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from memory_pipeline.analytics import stale_marts
from memory_pipeline.defs.assets.consolidation import OP, consolidation_asset
from memory_pipeline.defs.assets.grains import grain_assets
from memory_pipeline.defs.assets.marts import mart_assets
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import DamagedError, QualityError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.models.factory import Models
from memory_pipeline.settings import Settings
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import nights_between, pending_nights
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.results import RunResult
from memory_pipeline.steps.scheduling.planner import grain_status, periods_in

_MOMENT = timedelta(microseconds=1)
_SUMMED = ("rows", "calls", "tokens_in", "tokens_out", "cost_usd", "fallbacks", "unfinished", "refused")
#: Tag of a run: the grain, "consolidation" or "marts".
_MADE = "memory_pipeline/made"
#: Do not print errors: they are raised, and are in Dagster's event log.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def run_all(
    lake: Lake,
    settings: Settings,
    models: Models,
    now: datetime,
    between: tuple[datetime, datetime] | None = None,
) -> Iterator[Grain | RunResult | ConsolidationReport]:
    """Process the periods that are pending as of `now`, or all closed periods that overlap `between`.

    Yields each grain before it runs and its result afterwards, then the report of consolidation if a day was pending.
    Uses the Dagster instance of ``DAGSTER_HOME`` if that is set, so that ``dagster dev`` shows the runs, else an
    ephemeral one.

    Damaged or invalid partitions are skipped with the coarser ones above them. All others and the marts still run, and
    the first such error is raised at the end. Other errors are raised at once. Finished partitions stay.

    Raises:
        QualityError: rows of some partitions are invalid.
        DamagedError: some partitions or their sources cannot be read.
    """
    partitions = Partitions(lake.start, lake.calendar, settings.location)
    resource = LakeResource(root=settings.root, timezone=settings.timezone)
    errors: list[Exception] = []
    failed_periods: set[Period] = set()
    with dg.DagsterInstance.get() if settings.has_dagster_home else dg.DagsterInstance.ephemeral() as instance:
        restore_projections(lake, models.embedder)
        for grain in Grain:
            yield grain
            if between is None:
                periods = grain_status(lake, grain, lake.start, now).pending
            else:
                periods = periods_in(lake, grain, *between, now)
            above = {lake.calendar.ancestor(period, grain) for period in failed_periods}
            periods = [period for period in periods if period not in above]
            result = RunResult(grain, periods, 0, 0)
            if periods:
                raised: list[Exception] = []
                assets = grain_assets(grain, models, partitions, lake.calendar, on_error=raised.append)
                config = {"ops": {f"make_{grain}": {"config": {"periods": [period.key for period in periods]}}}}
                events = _materializations(_run(grain.value, [assets], resource, instance, config, raised))
                failed_periods |= {Period(grain, key) for error in raised for key in _keys_of(error)}
                errors += raised
                changed = sum(bool(_value(event, "changed")) for event in events)
                table = [event for event in events if event.asset_key == partitions.asset(table_asset(grain))]
                sums = {name: sum(_value(event, name) for event in table) for name in _SUMMED}
                result = RunResult(grain, periods, changed, **sums)
            yield result
        if between is None:
            days = pending_nights(lake, lake.start, now)
        else:
            first, last = (lake.calendar.day_of(moment) for moment in (between[0], between[1] - _MOMENT))
            days = nights_between(lake, first, last, now)
        if days:
            yield keep_nights(lake, settings, models, days, partitions, resource, instance)
        if stale_marts(lake):
            raised = []
            marts = mart_assets(partitions, lake.calendar.timezone, on_error=raised.append)
            _run("marts", marts, resource, instance, {}, raised)
            errors += raised
    if errors:
        raise errors[0]


def _keys_of(error: Exception) -> Collection[str]:
    return error.keys if isinstance(error, QualityError | DamagedError) else ()


def keep_nights(
    lake: Lake,
    settings: Settings,
    models: Models,
    nights: Sequence[Period],
    partitions: Partitions,
    resource: LakeResource,
    instance: dg.DagsterInstance,
) -> ConsolidationReport:
    """Consolidate days that have ended. Use Dagster only if it stores the run: it writes two events per day."""
    if not settings.has_dagster_home:
        return consolidate(lake, models, nights, lake.start)
    reports: list[ConsolidationReport] = []
    assets = consolidation_asset(models, partitions, lake.calendar, lake.start, reports.append)
    config = {"ops": {OP: {"config": {"periods": [night.key for night in nights]}}}}
    _run("consolidation", [assets], resource, instance, config)
    return reports[0]


def _run(
    what: str,
    assets: Sequence[dg.AssetsDefinition],
    resource: LakeResource,
    instance: dg.DagsterInstance,
    config: dict[str, Any],
    raised: Sequence[Exception] | None = None,
) -> dg.ExecuteInProcessResult:
    """Run assets. Raise all errors but those of single partitions, which are in `raised`."""
    result = dg.materialize(
        assets,
        resources={"memory": resource},
        instance=instance,
        run_config={**config, **_QUIET},
        tags={_MADE: what},
        raise_on_error=raised is None,
    )
    for error in raised or ():
        if not isinstance(error, QualityError | DamagedError):
            raise error
    if not result.success and not raised:
        raise dg.Failure(f"the run of {what} failed in steps {result.get_failed_step_keys()}", allow_retries=False)
    return result


def _materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    return [
        event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization
    ]


def _value(event: dg.AssetMaterialization, name: str) -> Any:
    return event.metadata[name].value

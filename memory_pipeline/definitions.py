"""Assemble the Dagster definitions from the settings of the environment. `dagster dev` loads this module."""

from __future__ import annotations

import logging
from collections.abc import Callable  # noqa: TC003  # Dagster reads them at run time
from datetime import datetime  # noqa: TC003

import memory_pipeline.defs  # noqa: F401  # names the extra if Dagster is missing

# isort: split
import dagster as dg

from memory_pipeline.defs.assets.consolidation import consolidation_asset, promotion_asset
from memory_pipeline.defs.assets.grains import grain_assets
from memory_pipeline.defs.assets.marts import mart_assets
from memory_pipeline.defs.history import history_jobs
from memory_pipeline.defs.jobs import (
    asset_checks,
    consolidation_schedule,
    daily_schedules,
    retention_job,
    working_memory,
)
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.sensors import journal_sensor, roll_up_sensor, utc_now
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models  # noqa: TC001  # Dagster reads it at run time
from memory_pipeline.settings import PLANS_RANGES, Settings
from memory_pipeline.telemetry import configure

_log = logging.getLogger(__name__)


def build_definitions(
    settings: Settings | None = None, models: Models | None = None, clock: Callable[[], datetime] = utc_now
) -> dg.Definitions:
    """Return the definitions of a deployment.

    By default `settings` are read from the environment, and each run reads its models from the lake's configuration.

    Raises:
        ConfigurationError: a setting is invalid or contradicts the lake.
    """
    configure("memory-pipeline-dagster")
    settings = settings or Settings.from_environment()
    if not settings.plans_ranges:
        _log.warning(
            "%s is not true: Dagster writes an event per partition and asset before a run starts, and run monitoring "
            "may end a backfill of a month of hours. Set it for the web server, the daemon and the code server; "
            "`dagster dev` reads it from the file .env in its folder",
            PLANS_RANGES,
        )
    lake = Lake(settings.root, settings.timezone, settings.start)
    calendar, start = lake.calendar, lake.start
    partitions = Partitions(start, calendar, settings.location)
    per_run = settings.partitions_per_run
    grains = {grain: grain_assets(grain, models, partitions, calendar, per_run) for grain in Grain}
    hourly = sorted(grains[Grain.WORKING].keys)
    marts = mart_assets(partitions, calendar.timezone)
    consolidation = consolidation_asset(models, partitions, calendar, start)
    promotion = promotion_asset(partitions)
    expiring = retention_job(partitions, start)
    return dg.Definitions(
        assets=[*grains.values(), promotion, consolidation, *marts, working_memory(hourly, partitions)],
        asset_checks=asset_checks(hourly, partitions),
        jobs=[expiring, *history_jobs(partitions)],
        schedules=[
            consolidation_schedule(consolidation, partitions, start, calendar.timezone, clock),
            *daily_schedules(promotion, expiring, calendar.timezone),
        ],
        sensors=[
            journal_sensor(grains, partitions, start, clock, per_run),
            roll_up_sensor(grains, marts, partitions, start, clock, per_run),
        ],
        resources={"memory": LakeResource(root=settings.root, timezone=calendar.timezone)},
        # A run has one step, so a second process would only cost time.
        executor=dg.in_process_executor,
    )


defs = build_definitions()

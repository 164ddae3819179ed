"""The job and the schedule of the nightly upkeep: the nights that the ledger says are pending."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

import dagster as dg

from memory_pipeline.defs.assets.upkeep import OP
from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.requests import PARTITION, RANGE_END, RANGE_START
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.sensors import utc_now
from memory_pipeline.domain.identity import digest
from memory_pipeline.steps.consolidation.days import pending_nights
from memory_pipeline.steps.scheduling.planner import journal_hours
from memory_pipeline.steps.scheduling.request_log import blocks

#: After the last hour of the day has been made, and before the summaries of the day are looked at.
_SCHEDULE = "40 0 * * *"


def upkeep_schedule(
    assets: dg.AssetsDefinition,
    partitions: Partitions,
    start: date,
    timezone: str,
    clock: Callable[[], datetime] = utc_now,
) -> dg.ScheduleDefinition:
    """Return the schedule that asks each night for the nights that are pending: new, with late events, or failed.

    Args:
        assets: of the upkeep.
        partitions: of the deployment.
        start: the first day of the memory.
        timezone: in which days begin.
        clock: tells the time, UTC.
    """
    job = dg.define_asset_job(
        "keep_memories_nightly",
        selection=dg.AssetSelection.assets(*assets.keys).without_checks(),
        description="Keeps durable memories in order: promotes, merges, supersedes, cools, chooses the hot index.",
    )

    @dg.schedule(
        name="memory_upkeep_nightly",
        job=job,
        cron_schedule=_SCHEDULE,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Every night: asks for the nights of upkeep that are pending.",
    )
    def nightly(memory: LakeResource) -> dg.RunRequest | dg.SkipReason:
        now, lake = clock(), memory.lake
        nights = pending_nights(lake, start, now)
        if not nights:
            unloaded = len(journal_hours(lake, start, now))
            waits = f"; {unloaded:,} hours wait for the journal sensor, and their nights come after them"
            return dg.SkipReason(f"no night is pending{waits if unloaded else ''}")
        key = f"upkeep {nights[-1]} {digest([night.key for night in nights], now.isoformat())[:8]}"
        if len(list(blocks(nights))) == 1:
            tags = {RANGE_START: partitions.key(nights[0]), RANGE_END: partitions.key(nights[-1])}
            return dg.RunRequest(run_key=key, tags=tags)
        config = {"ops": {OP: {"config": {"periods": [night.key for night in nights]}}}}
        # As in requests.py: Dagster wants a partition, whatever the configuration lists.
        return dg.RunRequest(run_key=key, run_config=config, tags={PARTITION: partitions.key(nights[-1])})

    return nightly

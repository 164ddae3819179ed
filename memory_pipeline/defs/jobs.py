"""Jobs and schedules: retention, housekeeping, consolidation and checks.

Dagster cannot wipe single partitions. So rows are deleted in the lake, whose marks tell that they have expired, and
what went is reported as an observation: a materialization would say that something was made.
"""

# No `from __future__ import annotations` in this module: Dagster resolves the annotations of resources at run time.
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final

import dagster as dg

from memory_pipeline.checks import Check, CheckContext, Finding, all_checks, run_checks
from memory_pipeline.defs.assets.consolidation import OP
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import AGENTS_POOL, LakeResource
from memory_pipeline.defs.run_requests import PARTITION, RANGE_END, RANGE_START
from memory_pipeline.defs.sensors import utc_now
from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.orphans import AGE
from memory_pipeline.steps.consolidation.days import pending_nights
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline.steps.results import Expiration
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import journal_hours
from memory_pipeline.steps.scheduling.request_log import blocks

#: In the night; the marts of the next day no longer hold what went.
_RETENTION_SCHEDULE = "40 3 * * *"
#: Of each asset, so many partitions at most are reported one by one, the newest; each is an event in Dagster's storage.
_MOST_OBSERVED = 200


_SCHEMA = dg.TableSchema(
    [
        *(dg.TableColumn(name, "string") for name in ("workspace", "memory", "kept until", "through", "held back by")),
        *(dg.TableColumn(name, "int") for name in ("rows", "periods", "agents")),
    ]
)


#: Of what leaves the disk, by kind.
_KINDS = dg.TableSchema(
    [dg.TableColumn("kind", "string"), dg.TableColumn("files", "int"), dg.TableColumn("bytes", "int")]
)


class RetentionConfig(dg.Config):
    """How a run of retention deletes.

    Attributes:
        dry_run: only report what would go.
        grace_minutes: how long files stay that other programs may be reading.
    """

    dry_run: bool = False
    grace_minutes: int = 0


class VacuumConfig(dg.Config):
    """How a run deletes files.

    Attributes:
        dry_run: only report what would go; compact nothing.
        older_than_minutes: how long ago a file was replaced at least.
    """

    dry_run: bool = False
    older_than_minutes: int = AGE // timedelta(minutes=1)


def retention_job(partitions: Partitions, start: date) -> dg.JobDefinition:
    """Return the job that deletes what is older than its workspace keeps it, and files that nothing needs."""

    @dg.op(
        name="expire",
        description="Deletes what is older than `retention` in config/workspaces.yaml keeps it.",
        pool=AGENTS_POOL,  # it rewrites hours and graphs
    )
    def expire_op(context: dg.OpExecutionContext, config: RetentionConfig, memory: LakeResource) -> None:
        grace = timedelta(minutes=config.grace_minutes)
        lake = memory.lake
        done = expire(lake, start, datetime.now(UTC), dry_run=config.dry_run, grace=grace)
        context.add_output_metadata(
            {
                "rows": done.rows,
                "files": done.files,
                "bytes": done.bytes,
                "seconds": round(done.seconds, 3),
                "dry_run": config.dry_run,
                "expired": dg.MetadataValue.table(_records(done), _SCHEMA),
            }
        )
        if not config.dry_run:
            for observation in _observations(done, partitions):
                context.log_event(observation)

    @dg.op(
        name="vacuum",
        description="Deletes files of old versions and of killed processes; compacts the index where files pile up.",
        pool=AGENTS_POOL,  # it writes what hours write
    )
    def vacuum_op(context: dg.OpExecutionContext, config: VacuumConfig, memory: LakeResource) -> None:
        age = timedelta(minutes=config.older_than_minutes)
        cleaned = clean_files(memory.lake, datetime.now(UTC), age=age, dry_run=config.dry_run)
        gone = {**cleaned.old_versions, **cleaned.left_behind}
        context.add_output_metadata(
            {
                "files": cleaned.gone.files,
                "bytes": cleaned.gone.bytes,
                "tables_compacted": cleaned.compacted,
                "bytes_written": cleaned.bytes_written,
                "seconds": round(cleaned.seconds, 3),
                "dry_run": config.dry_run,
                "kinds": dg.MetadataValue.table(
                    [dg.TableRecord({"kind": kind, **asdict(each)}) for kind, each in gone.items()], _KINDS
                ),
            }
        )

    @dg.job(
        name="expire_memory",
        description=(
            "Deletes memory that is older than its workspace keeps it, and nothing that its parent needs yet; and, "
            "whatever is set of that, files that nothing needs any more."
        ),
        executor_def=dg.in_process_executor,
    )
    def expire_memory() -> None:
        expire_op()
        vacuum_op()  # not after it: a configuration that is not accepted stops only what needs it

    return expire_memory


def retention_schedule(job: dg.JobDefinition, timezone: str) -> dg.ScheduleDefinition:
    """Return the schedule of :func:`retention_job`: every night."""
    return dg.ScheduleDefinition(
        name="expire_memory_nightly",
        job=job,
        cron_schedule=_RETENTION_SCHEDULE,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Every night; without `retention` in the configuration only files of old versions go.",
    )


def _records(done: Expiration) -> list[dg.TableRecord]:
    return [
        dg.TableRecord(
            {
                "workspace": each.expiry.workspace_id,
                "memory": each.expiry.kept.value,
                "kept until": f"{each.expiry.cutoff:%Y-%m-%d %H:%M}",
                "through": each.expiry.through.key,
                "held back by": str(each.expiry.held_back_by or ""),
                "rows": each.rows,
                "periods": each.partitions,
                "agents": each.agents,
            }
        )
        for each in done.expired
        if each.rows or each.expiry.held_back_by
    ]


def _observations(done: Expiration, partitions: Partitions) -> Iterator[dg.AssetObservation]:
    for asset, periods in done.periods.items():
        for period, rows in list(periods.items())[-_MOST_OBSERVED:]:
            yield dg.AssetObservation(asset, partition=partitions.key(period), metadata={"expired": rows})


# The job and the schedule of the nightly upkeep: the nights that the ledger says are pending.


#: After the last hour of the day has been made, and before the summaries of the day are looked at.
_CONSOLIDATION_SCHEDULE = "40 0 * * *"


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
        cron_schedule=_CONSOLIDATION_SCHEDULE,
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


# The checks of :mod:`memory_pipeline.checks` as asset checks: run from the UI, by a schedule, and with marts.
#
# A check looks at all that an asset holds, and its status in the UI says so. A run that makes partitions says nothing
# of
# the others: it reports partition by partition and gives checks no input, so Dagster leaves them out of it. What it
# makes is looked at then and there (:mod:`memory_pipeline.steps.validation`).
#
# The checks of hours are on an asset of their own, ``working_memory``, which has no partitions. When an asset is
# backfilled, Dagster plans its checks too, even if the run leaves them out, and stores a row for each check and
# partition before the run starts. For a year of hours these were 228,000 rows, 480 MB and 50 CPU seconds on SQLite.


#: After the summaries of the day, the week and the month, and what has expired.
_AT_FIVE = "0 5 * * *"
#: The asset that has the checks of all assets of hours.
WORKING_MEMORY: Final = "working_memory"


def working_memory(hourly: Collection[dg.AssetKey]) -> dg.AssetSpec:
    """Return the asset that has the checks of hours; nothing makes it.

    Args:
        hourly: the assets whose partitions are hours.
    """
    return dg.AssetSpec(
        WORKING_MEMORY,
        deps=hourly,
        group_name="1_working",
        description="All hours together, with the checks of messages, facts, graph, durable memories and index.",
        owners=["team:memory"],
        kinds={"deltalake", "lancedb"},
    )


def check_key(check: Check, hourly: Collection[dg.AssetKey]) -> dg.AssetCheckKey:
    """Return the key of a check, whose name starts with the asset's where another asset has it."""
    asset = dg.AssetKey(check.asset)
    if asset in hourly:
        return dg.AssetCheckKey(dg.AssetKey(WORKING_MEMORY), f"{check.asset}_{check.name}")
    return dg.AssetCheckKey(asset, check.name)


def asset_checks(hourly: Collection[dg.AssetKey]) -> list[dg.AssetChecksDefinition]:
    """Return the checks of all assets, those of an asset together.

    Args:
        hourly: the assets whose partitions are hours.
    """
    keyed = sorted(((check_key(check, hourly), check) for check in all_checks()), key=lambda pair: pair[0].asset_key)
    return [_checks_of(asset, dict(pairs)) for asset, pairs in groupby(keyed, lambda pair: pair[0].asset_key)]


def checks_schedule(timezone: str) -> dg.ScheduleDefinition:
    """Return the schedule that runs all checks daily, at five in the morning of a zone."""
    return dg.ScheduleDefinition(
        name="checks_schedule",
        job=dg.define_asset_job(
            "check_memory",
            selection=dg.AssetSelection.all_asset_checks(),
            description="Looks at all that memory holds. A run that fails has found something that is wrong.",
        ),
        cron_schedule=_AT_FIVE,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Runs all checks, each day at 05:00.",
    )


def _checks_of(asset: dg.AssetKey, checks: dict[dg.AssetCheckKey, Check]) -> dg.AssetChecksDefinition:
    name = asset.to_user_string()

    @dg.multi_asset_check(
        name=f"check_{name}",
        specs=[
            dg.AssetCheckSpec(
                key.name,
                asset=asset,
                description=f"{check.description} If it fails: {check.remedy}.",
                blocking=check.blocks,
                metadata={"severity": check.severity.value},
            )
            for key, check in checks.items()
        ],
        description=f"Looks at what {name} holds.",
        can_subset=True,
    )
    def look_at(context: dg.AssetCheckExecutionContext, memory: LakeResource) -> Iterator[dg.AssetCheckResult]:
        look = CheckContext(memory.lake, datetime.now(UTC))
        chosen = {check: key for key, check in checks.items() if key in context.selected_asset_check_keys}
        for finding in run_checks(look, list(chosen)):
            yield _result(chosen[finding.check], finding)

    return look_at


def _result(key: dg.AssetCheckKey, finding: Finding) -> dg.AssetCheckResult:
    check = finding.check
    metadata: dict[str, Any] = {"offenders": finding.offenders, **finding.numbers}
    if finding.sample:
        metadata["sample"] = dg.MetadataValue.json(list(finding.sample))
    if not finding.passed:
        metadata["remedy"] = check.remedy
    return dg.AssetCheckResult(
        passed=finding.passed,
        asset_key=key.asset_key,
        check_name=key.name,
        metadata=metadata,
        severity=dg.AssetCheckSeverity.ERROR if finding.is_error else dg.AssetCheckSeverity.WARN,
        description=None if finding.passed else finding.trouble or f"{finding.offenders:,} offenders; {check.remedy}",
    )

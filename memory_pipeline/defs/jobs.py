"""Jobs and schedules: retention, housekeeping, consolidation and checks.

Dagster cannot wipe single partitions, so rows are deleted in the lake and reported as observations.
"""

# No `from __future__ import annotations` in this module: Dagster resolves the annotations of resources at run time.
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final

import dagster as dg
from pydantic import Field

from memory_pipeline.checks import Check, CheckContext, Finding, all_checks, run_checks
from memory_pipeline.defs.assets.consolidation import OP
from memory_pipeline.defs.partition_keys import Group, Partitions
from memory_pipeline.defs.resources import AGENTS_POOL, LakeResource
from memory_pipeline.defs.run_requests import PARTITION, RANGE_END, RANGE_START
from memory_pipeline.defs.sensors import utc_now
from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import counted
from memory_pipeline.lake.orphans import AGE
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline.steps.results import Expiration
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import journal_hours
from memory_pipeline.steps.scheduling.request_log import blocks

#: Maximum number of observations per asset, of the newest partitions; each is an event in Dagster's storage.
_MOST_OBSERVED = 200


_SCHEMA = dg.TableSchema(
    [
        *(dg.TableColumn(name, "string") for name in ("workspace", "memory", "kept until", "through", "held back by")),
        *(dg.TableColumn(name, "int") for name in ("rows", "periods", "agents")),
    ]
)


_KINDS = dg.TableSchema(
    [dg.TableColumn("kind", "string"), dg.TableColumn("files", "int"), dg.TableColumn("bytes", "int")]
)


class RetentionConfig(dg.Config):
    """Options of the op that deletes expired memory."""

    dry_run: bool = Field(default=False, description="Only report the rows to delete.")
    grace_minutes: int = Field(
        default=0, description="Minutes for which replaced files stay, for other programs that may read them."
    )


class VacuumConfig(dg.Config):
    """Options of the op that deletes unused files."""

    dry_run: bool = Field(default=False, description="Only report the files to delete; compact nothing.")
    older_than_minutes: int = Field(
        default=AGE // timedelta(minutes=1), description="Minimum minutes since a file was replaced."
    )


def retention_job(partitions: Partitions, start: date) -> dg.JobDefinition:
    """Return the job that deletes expired memory and unused files."""

    @dg.op(name="expire", pool=partitions.pool(AGENTS_POOL))  # it rewrites hours and graphs
    def expire_op(context: dg.OpExecutionContext, config: RetentionConfig, memory: LakeResource) -> None:
        """Deletes memory that has expired under `retention` in config/workspaces.yaml."""
        grace = timedelta(minutes=config.grace_minutes)
        lake = memory.lake
        result = expire(lake, start, datetime.now(UTC), dry_run=config.dry_run, grace=grace)
        context.add_output_metadata(
            {
                "rows": result.rows,
                "files": result.files,
                "bytes": result.bytes,
                "seconds": round(result.seconds, 3),
                "dry_run": config.dry_run,
                "expired": dg.MetadataValue.table(_records(result), _SCHEMA),
            }
        )
        if not config.dry_run:
            for observation in _observations(result, partitions):
                context.log_event(observation)

    @dg.op(name="vacuum", pool=partitions.pool(AGENTS_POOL))  # it writes the tables of hours
    def vacuum_op(context: dg.OpExecutionContext, config: VacuumConfig, memory: LakeResource) -> None:
        """Deletes files of old versions and of killed processes, and compacts small files of the index."""
        age = timedelta(minutes=config.older_than_minutes)
        cleaned = clean_files(memory.lake, datetime.now(UTC), age=age, dry_run=config.dry_run)
        deleted = {**cleaned.old_versions, **cleaned.left_behind}
        context.add_output_metadata(
            {
                "files": cleaned.gone.files,
                "bytes": cleaned.gone.bytes,
                "tables_compacted": cleaned.compacted,
                "bytes_written": cleaned.bytes_written,
                "seconds": round(cleaned.seconds, 3),
                "dry_run": config.dry_run,
                "kinds": dg.MetadataValue.table(
                    [dg.TableRecord({"kind": kind, **asdict(each)}) for kind, each in deleted.items()], _KINDS
                ),
            }
        )

    @dg.job(executor_def=dg.in_process_executor)
    def expire_memory() -> None:
        """Deletes memory that has expired, once the coarser summaries are computed from it, and unused files."""
        expire_op()
        vacuum_op()  # independent, so that an invalid configuration does not stop it

    return expire_memory


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
            yield dg.AssetObservation(
                partitions.asset(asset), partition=partitions.key(period), metadata={"expired": rows}
            )


_PROMOTES = "Daily at 00:10: promotes short-term entries of sessions, and deletes expired entries."
_EXPIRES = (
    "Daily at 03:40: deletes expired memory and unused files. Without `retention` in config/workspaces.yaml, no memory "
    "expires."
)


def daily_schedules(
    promotion: dg.AssetsDefinition, retention: dg.JobDefinition, timezone: str
) -> list[dg.ScheduleDefinition]:
    """Return the daily schedules of promotion, retention and all checks."""
    promoting = dg.define_asset_job(
        "promote_sessions",
        selection=dg.AssetSelection.assets(*promotion.keys).without_checks(),
        description="Promotes short-term entries of sessions to durable memories, and deletes expired entries.",
    )
    checking = dg.define_asset_job(
        "check_memory",
        selection=dg.AssetSelection.all_asset_checks(),
        description="Runs all asset checks. The run fails if a check of severity error fails.",
    )
    described = (
        # Before consolidation, so that the hours of promoted memories are loaded until then.
        ("session_promotions_nightly", promoting, "10 0", _PROMOTES),
        # Before the daily marts, so that they exclude the deleted rows.
        ("expire_memory_nightly", retention, "40 3", _EXPIRES),
        # After retention, and after the summaries of the day, week and month.
        ("checks_schedule", checking, "0 5", "Daily at 05:00: runs all asset checks."),
    )
    return [
        dg.ScheduleDefinition(
            name=name,
            job=job,
            cron_schedule=f"{at} * * *",
            execution_timezone=timezone,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=text,
        )
        for name, job, at, text in described
    ]


#: After the last hour of the day, and before the day's summaries are due.
_CONSOLIDATION_SCHEDULE = "40 0 * * *"


def consolidation_schedule(
    assets: dg.AssetsDefinition,
    partitions: Partitions,
    start: date,
    timezone: str,
    clock: Callable[[], datetime] = utc_now,
) -> dg.ScheduleDefinition:
    """Return the daily schedule of consolidation, which requests pending days: new, with late data, or failed."""
    job = dg.define_asset_job(
        "keep_memories_nightly",
        selection=dg.AssetSelection.assets(*assets.keys).without_checks(),
        description="Consolidates durable memories: merges duplicates, resolves contradictions, archives stale ones, "
        "and chooses the hot indexes.",
    )

    @dg.schedule(
        name="memory_consolidation_nightly",
        job=job,
        cron_schedule=_CONSOLIDATION_SCHEDULE,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Daily at 00:40: consolidates the pending days.",
    )
    def nightly(memory: LakeResource) -> dg.RunRequest | dg.SkipReason:
        now, lake = clock(), memory.lake
        days = pending_days(lake, start, now)
        if not days:
            unloaded = len(journal_hours(lake, start, now))
            waits = f"; {unloaded:,} hours wait for the journal sensor, their days follow"
            return dg.SkipReason(f"no day is pending{waits if unloaded else ''}")
        key = f"consolidation {days[-1]} {digest([day.key for day in days], now.isoformat())[:8]}"
        if len(list(blocks(days))) == 1:
            tags = {RANGE_START: partitions.key(days[0]), RANGE_END: partitions.key(days[-1])}
            return dg.RunRequest(run_key=key, tags=tags)
        config = {"ops": {OP: {"config": {"periods": [day.key for day in days]}}}}
        # As in run_requests.py: Dagster needs a partition even if the run config lists the periods.
        return dg.RunRequest(run_key=key, run_config=config, tags={PARTITION: partitions.key(days[-1])})

    return nightly


# A check reads all partitions of an asset, so runs of partitions leave checks out; steps/validation.py validates their
# rows before they are written.
#
# The checks of hours are on a separate asset without partitions, ``working_memory``. When an asset is backfilled,
# Dagster stores a row for each of its checks and partitions before the run starts, even if the run leaves checks out.
# For a year of hours these were 228,000 rows, 480 MB and 50 CPU seconds on SQLite.


#: The asset that has the checks of all hourly assets.
WORKING_MEMORY: Final = "working_memory"


def working_memory(hourly: Collection[dg.AssetKey], partitions: Partitions) -> dg.AssetSpec:
    """Return the asset that has the checks of the `hourly` assets. It is never materialized."""
    return dg.AssetSpec(
        partitions.asset(WORKING_MEMORY),
        deps=hourly,
        group_name=Group.GRAINS.value,
        description="All hours together, with the checks of messages, facts, graph, durable memories and index. It is "
        "never materialized.",
        owners=["team:memory"],
        kinds={"deltalake", "lancedb"},
    )


def check_key(check: Check, hourly: Collection[dg.AssetKey], partitions: Partitions) -> dg.AssetCheckKey:
    """Return the key of a check. Checks of hourly assets are on :data:`WORKING_MEMORY`, with the asset as a prefix."""
    asset = partitions.asset(check.asset)
    if asset in hourly:
        return dg.AssetCheckKey(partitions.asset(WORKING_MEMORY), f"{check.asset}_{check.name}")
    return dg.AssetCheckKey(asset, check.name)


def asset_checks(hourly: Collection[dg.AssetKey], partitions: Partitions) -> list[dg.AssetChecksDefinition]:
    """Return the checks of all assets, one definition per asset."""
    pairs = ((check_key(check, hourly, partitions), check) for check in all_checks())
    keyed = sorted(pairs, key=lambda pair: pair[0].asset_key)
    return [_checks_of(asset, dict(pairs)) for asset, pairs in groupby(keyed, lambda pair: pair[0].asset_key)]


def _checks_of(asset: dg.AssetKey, checks: dict[dg.AssetCheckKey, Check]) -> dg.AssetChecksDefinition:
    name = asset.path[-1]

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
        description=f"Checks of {name}.",
        can_subset=True,
    )
    def run_selected(context: dg.AssetCheckExecutionContext, memory: LakeResource) -> Iterator[dg.AssetCheckResult]:
        selected = {check: key for key, check in checks.items() if key in context.selected_asset_check_keys}
        for finding in run_checks(CheckContext(memory.lake, datetime.now(UTC)), list(selected)):
            yield _result(selected[finding.check], finding)

    return run_selected


def _result(key: dg.AssetCheckKey, finding: Finding) -> dg.AssetCheckResult:
    metadata: dict[str, Any] = {"offenders": finding.offenders, **finding.numbers}
    if finding.sample:
        metadata["sample"] = dg.MetadataValue.json(list(finding.sample))
    if not finding.passed:
        metadata["remedy"] = finding.remedy
    return dg.AssetCheckResult(
        passed=finding.passed,
        asset_key=key.asset_key,
        check_name=key.name,
        metadata=metadata,
        severity=dg.AssetCheckSeverity.ERROR if finding.is_error else dg.AssetCheckSeverity.WARN,
        description=None
        if finding.passed
        else f"{finding.trouble or counted(finding.offenders, 'offender')}; {finding.remedy}",
    )

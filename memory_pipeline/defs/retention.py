"""The nightly job that deletes what has expired and keeps house, and its schedule.

Dagster cannot wipe single partitions. So rows are deleted in the lake, whose marks tell that they have expired, and
what went is reported as an observation: a materialization would say that something was made.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.pools import AGENTS_POOL
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.lake.orphans import AGE
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline.steps.results import Expiration
from memory_pipeline.steps.retention import expire

#: In the night; the marts of the next day no longer hold what went.
_SCHEDULE = "40 3 * * *"
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
        cron_schedule=_SCHEDULE,
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

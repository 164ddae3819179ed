"""Dagster's history of a lake: reported to an instance that does not know it, and pruned."""

# No `from __future__ import annotations` in this module: Dagster reads config annotations at run time.

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlite3 import connect
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.errors import DagsterInvariantViolationError
from pydantic import Field

from memory_pipeline.defs.metadata import Provenance
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.values import count_of
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import (
    GRAPH_ASSET,
    MEMORIES_ASSET,
    MESSAGES_ASSET,
    LedgerEntry,
    index_asset,
    table_asset,
)
from memory_pipeline.steps.results import PartitionResult

DATA_VERSION = "dagster/data_version"
_FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_OF_ASSETS = (
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_OBSERVATION,
)
#: Runs that are read at once.
_BATCH = 500
#: Days of history that are kept.
DAYS, LEAST_DAYS = 30, 1

_log = logging.getLogger(__name__)


class Pruned(NamedTuple):
    """The runs that were deleted, and the partitions that were reported again, since only these runs told of them."""

    runs: int
    reported: int


def report_lake(lake: Lake, instance: dg.DagsterInstance, partitions: Partitions) -> int:
    """Report the partitions of the lake that an instance does not know in their present version; return their number.

    They become materializations without a run, with rows and data versions. Safe to repeat.
    """
    provenance, count = Provenance(instance, partitions), 0
    for grain, asset, entries in _ledger(lake):
        key = partitions.asset(asset)
        known = instance.event_log_storage.get_latest_tags_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION]
        )
        new = [
            (partition, period, entry)
            for period, entry in entries
            if known.get(partition := partitions.key(period), {}).get(DATA_VERSION) != entry.output_digest
        ]
        for partition, period, entry in new:
            digests = entry.input_digest, entry.output_digest
            result = PartitionResult(asset, period, *digests, entry.rows, entry.agents)
            instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    key,
                    description="Reported from the lake.",
                    partition=partition,
                    metadata=_numbers(entry, period),
                    tags=provenance.tags(result),
                )
            )
        count += len(new)
        if new:
            _log.info("%s: %s partitions of %s reported", grain, f"{len(new):,}", asset)
    return count


def prune_history(
    lake: Lake,
    instance: dg.DagsterInstance,
    partitions: Partitions,
    days: int = DAYS,
) -> Pruned:
    """Delete finished runs of this lake's grains that are older, with their events; report what only they told of.

    A run that has to do with any other asset, or with none, stays: an instance may belong to several projects. Safe to
    interrupt and to repeat. In SQLite, the files shrink.

    Raises:
        InputError: `days` is not at least 1.
    """
    count_of("days", days, LEAST_DAYS, 36_500)
    before, deleted, files = datetime.now(UTC) - timedelta(days=days), 0, _files_of_sqlite(instance)
    filters, cursor, own = dg.RunsFilter(statuses=[*_FINISHED], created_before=before), None, _own_assets(partitions)
    old: list[str] = []
    while found := instance.get_run_records(filters, limit=_BATCH, cursor=cursor):
        cursor = found[-1].dagster_run.run_id
        old += [run_id for one in found if _is_own(instance, run_id := one.dagster_run.run_id, own)]
    for run_id in old:
        instance.delete_run(run_id)
        if files is not None:  # Dagster empties the file of a run, and leaves it
            (files / "runs" / f"{run_id}.db").unlink(missing_ok=True)
        deleted += 1
        if deleted % _BATCH == 0:
            _log.info("%s of %s runs deleted", f"{deleted:,}", f"{len(old):,}")
    # Also if nothing was deleted: an earlier attempt may have been killed before this.
    reported = report_lake(lake, instance, partitions)
    if deleted and files is not None:
        for file in (files / "runs.db", files / "runs" / "index.db"):
            with closing(connect(file)) as connection:
                connection.execute("VACUUM")
    return Pruned(deleted, reported)


def _own_assets(partitions: Partitions) -> frozenset[dg.AssetKey]:
    """Return the keys of the assets that are reported again: those of the grains. Other runs are one a night."""
    names = {MESSAGES_ASSET, GRAPH_ASSET, MEMORIES_ASSET}
    names |= {name for grain in Grain for name in (table_asset(grain), index_asset(grain))}
    return frozenset(map(partitions.asset, names))


def _is_own(instance: dg.DagsterInstance, run_id: str, own: frozenset[dg.AssetKey]) -> bool:
    """Return whether a run has to do with assets, and with none but these."""
    entries = instance.all_logs(run_id, of_type={*_OF_ASSETS})
    keys = {entry.dagster_event.asset_key for entry in entries if entry.dagster_event is not None}
    return bool(keys) and keys <= own


def _ledger(lake: Lake) -> Iterator[tuple[Grain, str, list[tuple[Period, LedgerEntry]]]]:
    """Yield the partitions of each asset, sources first."""
    for grain in Grain if lake.exists else ():
        of_hours = (MESSAGES_ASSET,) if grain is Grain.WORKING else ()
        derived = (GRAPH_ASSET, MEMORIES_ASSET) if grain is Grain.WORKING else ()
        names = (*of_hours, table_asset(grain), *derived, index_asset(grain))
        entries = lake.ledger.entries_of(set(names))
        for name in names:
            yield grain, name, sorted((Period(grain, key), entry) for key, entry in entries[name].items())


def _numbers(entry: LedgerEntry, period: Period) -> dict[str, Any]:
    return {
        "rows": entry.rows, "dagster/partition_row_count": entry.rows, "agents": entry.agents,
        "unfinished": entry.unfinished, "period": period.key,
    }  # fmt: skip


def _files_of_sqlite(instance: dg.DagsterInstance) -> Path | None:
    """Return the folder of Dagster's SQLite files; None if its storage is another database."""
    try:
        folder = Path(instance.root_directory) / "history"
    except DagsterInvariantViolationError:  # the instance has no folder
        return None
    return folder if (folder / "runs.db").exists() else None


class PruneConfig(dg.Config):
    """Which runs are deleted."""

    days: int = Field(default=DAYS, description="Days of history that are kept.")


def history_jobs(partitions: Partitions) -> list[dg.JobDefinition]:
    """Return the jobs that report the lake to this instance, and prune its history."""

    @dg.op(tags={"memory_pipeline/made": "history"})
    def report_partitions(context: dg.OpExecutionContext, memory: LakeResource) -> None:
        count = report_lake(memory.lake, context.instance, partitions)
        context.log.info(f"{count:,} partitions reported")

    @dg.op(tags={"memory_pipeline/made": "history"})
    def prune_runs(context: dg.OpExecutionContext, config: PruneConfig, memory: LakeResource) -> None:
        done = prune_history(memory.lake, context.instance, partitions, config.days)
        context.log.info(f"{done.runs:,} runs deleted, {done.reported:,} partitions reported again")

    @dg.job(
        description="Reports what the lake has to this instance of Dagster, as materializations without runs: for a "
        "new instance, or one whose history was lost. Safe to repeat."
    )
    def report_lake_to_dagster() -> None:
        report_partitions()

    @dg.job(
        description="Deletes finished runs that are older than 30 days (`days`) with their events, and reports again "
        "what only they told of."
    )
    def prune_dagster_history() -> None:
        prune_runs()

    return [report_lake_to_dagster, prune_dagster_history]

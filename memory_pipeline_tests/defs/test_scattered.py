"""Periods of one run: scattered periods in the run config, and parts of a backfill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.run_requests import run_request, under_way
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, table_asset
from memory_pipeline.settings import Settings
from memory_pipeline.steps.scheduling.request_log import Request
from memory_pipeline_tests.building import START, conversation, write

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
DAYS = ("2024-01-15", "2024-01-17", "2024-02-03")


def test_a_setting_limits_the_partitions_of_a_backfills_runs(root: str, models: Models) -> None:
    for most, policy in ((None, dg.BackfillPolicy.single_run()), (168, dg.BackfillPolicy.multi_run(168))):
        definitions = build_definitions(Settings(root=root, partitions_per_run=most), models)
        graph = definitions.resolve_asset_graph()
        assert {graph.get(dg.AssetKey(table_asset(grain))).backfill_policy for grain in Grain} == {policy}
        # Days of consolidation of an agent depend on each other.
        assert graph.get(dg.AssetKey(CONSOLIDATION_ASSET)).backfill_policy == dg.BackfillPolicy.single_run()


def test_scattered_days_are_materialized_in_one_run(root: str, models: Models) -> None:
    lake = Lake(root)
    write(lake, *(conversation("I like figs.", at=f"{day}T08:00", conversation_id=day) for day in DAYS))
    definitions = build_definitions(Settings(root=root), models)
    partitions = Partitions(START, lake.calendar)
    with dg.DagsterInstance.ephemeral() as instance:
        for grain, keys, job in (
            (Grain.WORKING, [f"{day}T08" for day in DAYS], "remember_working"),
            (Grain.DAILY, DAYS, "roll_up_daily"),
        ):
            periods = tuple(Period.parse(grain, key) for key in keys)
            asked = run_request(Request("scattered", grain, periods, NOW), partitions, job)
            result = definitions.resolve_job_def(job).execute_in_process(
                run_config=asked.run_config, tags=dict(asked.tags), instance=instance
            )
            assert result.success
            materialized = instance.get_materialized_partitions(dg.AssetKey(table_asset(grain)))
            assert materialized == {partitions.key(period) for period in periods}
            # While it was under way, sensors saw all its periods.
            run = instance.create_run_for_job(
                definitions.resolve_job_def(job),
                run_config=asked.run_config,
                tags=dict(asked.tags),
                status=dg.DagsterRunStatus.NOT_STARTED,
            )
            assert under_way(instance, partitions, {}, NOW)[grain] == set(periods)
            instance.delete_run(run.run_id)

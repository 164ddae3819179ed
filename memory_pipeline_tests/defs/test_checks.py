"""The asset checks: their assets and severity, and that runs of partitions leave them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from memory_pipeline.checks import all_checks
from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.jobs import check_key
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import START, conversation, run, write
from memory_pipeline_tests.checks.planting import plant

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import CopiedLake

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def definitions(copied: CopiedLake, root: str, models: Models) -> dg.Definitions:
    def fill(folder: Path) -> None:
        write(Lake(str(folder)), conversation("I moved to Porto.", at="2024-01-15T08:00"))
        run(Lake(str(folder)), models)

    copied("defs-checks", fill)
    return build_definitions(Settings(root, START), models)


def test_every_check_is_on_an_existing_asset(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    hours = graph.get(dg.AssetKey("messages")).partitions_def
    hourly = [key for key in graph.get_all_asset_keys() if graph.get(key).partitions_def == hours]
    keys = {check_key(check, hourly, Partitions(START, Calendar())): check for check in all_checks()}
    assert set(graph.asset_check_keys) == set(keys)
    for key, check in keys.items():
        assert graph.has(key.asset_key)
        assert graph.get(key.asset_key).partitions_def != hours  # a backfill would plan them for each hour
        spec = graph.get_check_spec(key)
        assert spec.blocking == check.blocks
        assert spec.description is not None
        assert check.remedy in spec.description


def test_the_schedule_runs_all_checks_and_reports_failures(definitions: dg.Definitions, root: str) -> None:
    schedule = definitions.resolve_schedule_def("checks_schedule")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 5 * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    lake = Lake(root)
    plant(lake, FACTS, "2024-01-15T08", lambda rows: rows.append(rows[0]))
    lake.storage.write("journal/quarantine/x.json", b'{"reason": "r", "where": "file f, line 1", "record": {}}')
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def(schedule.job_name)
        result = job.execute_in_process(instance=instance, run_config=QUIET, raise_on_error=False)
        found = {(one.asset_key.to_user_string(), one.check_name): one for one in result.get_asset_check_evaluations()}
    assert not result.success  # a blocking check failed
    assert len(found) == len(all_checks())
    assert found["working_memory", "working_facts_schema"].passed
    assert found["yearly_summaries", "coverage"].metadata["due"].value == 1
    twice = found["working_memory", "working_facts_unique_ids"]
    assert (twice.passed, twice.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert twice.metadata["offenders"].value == twice.metadata["rows_too_many"].value == 1
    assert "2024-01-15T08" in str(twice.metadata["sample"].value)
    assert "Porto" not in str(twice.metadata)
    aside = found["working_memory", "messages_quarantine"]
    assert (aside.passed, aside.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert aside.metadata["sample"].value == ["file f, line 1"]


def test_a_run_of_partitions_runs_no_checks(definitions: dg.Definitions, root: str) -> None:
    plant(Lake(root), FACTS, "2024-01-15T08", lambda rows: rows.append(rows[0]))
    selection = dg.AssetSelection.assets(
        "messages", "working_facts", "graph_facts", "durable_memories", "working_index"
    )
    job = dg.define_asset_job("some", selection=selection)
    own = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    tags = dict.fromkeys(("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"), "2024-01-16T00")
    with dg.DagsterInstance.ephemeral() as instance:
        result = own.resolve_job_def("some").execute_in_process(instance=instance, tags=tags, run_config=QUIET)
        assert result.success
        assert result.get_asset_check_evaluations() == []


def test_checks_of_one_asset_can_be_run_alone(definitions: dg.Definitions) -> None:
    key = dg.AssetCheckKey(dg.AssetKey("working_memory"), "messages_quarantine")
    job = dg.define_asset_job("one", selection=dg.AssetSelection.checks(key))
    own = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    with dg.DagsterInstance.ephemeral() as instance:
        result = own.resolve_job_def("one").execute_in_process(instance=instance, run_config=QUIET)
        assert [one.asset_check_key for one in result.get_asset_check_evaluations()] == [key]

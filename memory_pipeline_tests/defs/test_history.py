"""A new instance of Dagster learns what the lake has, and old runs are deleted without a gap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from memory_pipeline.client.pipeline import run_all
from memory_pipeline.defs import history
from memory_pipeline.defs.dagster_runner import DagsterRunner
from memory_pipeline.defs.history import history_jobs, prune_history, report_lake
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import NOW, conversation, run, write
from memory_pipeline_tests.invoking import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.models.factory import Models


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as made:
        yield made


@pytest.fixture
def lake(root: str, models: Models) -> Lake:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."), conversation("I bought a boat.", at="2024-01-16T08:00"))
    run(lake, models)
    return lake


def shown(instance: dg.DagsterInstance, lake: Lake) -> dict[str, set[str]]:
    partitions = Partitions(lake.start, lake.calendar)
    names = [MESSAGES_ASSET, *map(table_asset, Grain)]
    return {name: set(instance.get_materialized_partitions(partitions.asset(name))) for name in names}


def test_a_new_instance_shows_the_lake_once(lake: Lake, instance: dg.DagsterInstance, models: Models) -> None:
    partitions = Partitions(lake.start, lake.calendar)
    assert not any(shown(instance, lake).values())
    first = report_lake(lake, instance, partitions)
    assert shown(instance, lake)[table_asset(Grain.DAILY)] == {"2024-01-15", "2024-01-16"}
    assert len(shown(instance, lake)[MESSAGES_ASSET]) == 2
    assert report_lake(lake, instance, partitions) == 0
    event = instance.get_latest_materialization_event(partitions.asset(table_asset(Grain.DAILY)))
    assert event is not None
    assert event.run_id == ""
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["dagster/partition_row_count"].value == 1
    write(lake, conversation("I sold the boat.", at="2024-01-16T09:00", conversation_id="c9"))
    run(lake, models)
    again = report_lake(lake, instance, partitions)
    assert 0 < again < first


def test_old_runs_are_deleted_and_nothing_looks_missing(
    root: str, models: Models, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    with DagsterRunner(lake, Settings(root=root), models, instance) as runner:
        list(run_all(lake, models, NOW, runner=runner, builds_marts=False))
        partitions = Partitions(lake.start, lake.calendar)
        before = shown(instance, lake)
        assert instance.get_runs_count() > 0
        assert prune_history(lake, instance, partitions).runs == 0

        later = SimpleNamespace(now=lambda _: datetime.now(UTC) + timedelta(days=40))
        monkeypatch.setattr(history, "datetime", later)
        done = prune_history(lake, instance, partitions)
        assert done.runs > 0
        assert done.reported > 0
        assert [run.tags["memory_pipeline/made"] for run in instance.get_runs()] == ["consolidation"]
        assert shown(instance, lake) == before
        files = [one.name for one in Path(instance.root_directory).rglob("*.db")]
        kept = [f"{run.run_id}.db" for run in instance.get_runs()]
        assert sorted({*files} - {*kept}) == [
            ".db",
            "index.db",
            "runs.db",
            "schedules.db",
        ]  # the first has events without a run
        with pytest.raises(InputError, match="days 0 is not accepted"):
            prune_history(lake, instance, partitions, 0)


@dg.asset(name="other_table")
def another_project() -> None:
    """An asset of another project in the same instance."""


@dg.op
def only_an_op() -> None:
    """Belongs to no asset."""


@dg.job
def job_of_another_project() -> None:
    only_an_op()


def test_runs_of_other_projects_stay_and_a_killed_prune_is_made_up_for(
    root: str, models: Models, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    with DagsterRunner(lake, Settings(root=root), models, instance) as runner:
        list(run_all(lake, models, NOW, runner=runner, builds_marts=False))
        others = [dg.materialize([another_project], instance=instance).run_id for _ in range(3)]
        others.append(job_of_another_project.execute_in_process(instance=instance).run_id)
        partitions = Partitions(lake.start, lake.calendar)
        before = shown(instance, lake)
        later = SimpleNamespace(now=lambda _: datetime.now(UTC) + timedelta(days=40))
        monkeypatch.setattr(history, "datetime", later)
        monkeypatch.setattr(history, "_BATCH", 2)
        with monkeypatch.context() as killed:
            killed.setattr(history, "report_lake", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                prune_history(lake, instance, partitions)
        assert shown(instance, lake) != before
        assert prune_history(lake, instance, partitions).reported > 0
        assert shown(instance, lake) == before
        left = {run.run_id for run in instance.get_runs() if run.tags.get("memory_pipeline/made") != "consolidation"}
        assert left == set(others)
        assert instance.get_latest_materialization_event(dg.AssetKey("other_table")) is not None


def test_the_jobs_do_the_same(lake: Lake, instance: dg.DagsterInstance) -> None:
    report, prune = history_jobs(Partitions(lake.start, lake.calendar))
    resources = {"memory": LakeResource(root=lake.storage.uri)}
    assert report.execute_in_process(instance=instance, resources=resources).success
    assert shown(instance, lake)[table_asset(Grain.YEARLY)] == {"2024"}
    assert prune.execute_in_process(instance=instance, resources=resources).success


def test_the_commands(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert read("dagster", "report", "--root", lake.storage.uri)["reported"] > 10
    assert read("dagster", "report", "--root", lake.storage.uri)["reported"] == 0
    assert read("dagster", "prune", "--days", "7", "--root", lake.storage.uri) == {"runs": 0, "reported": 0}

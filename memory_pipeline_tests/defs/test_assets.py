"""The definitions load, and materialising them in any way Dagster offers gives the same lake."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from memory_pipeline.definitions import build_definitions
from memory_pipeline.domain.grains import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import START, conversation, run, table_rows, versions, write

if TYPE_CHECKING:
    from memory_pipeline.models.selection import Models

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
TALKS = [
    conversation("I moved to Porto.", at="2024-01-15T08:00"),
    conversation("My dog is called Bruno.", at="2024-01-15T11:00", conversation_id="c2"),
    conversation("Bruno ate my passport.", at="2024-01-31T08:00", conversation_id="c3"),
]


@pytest.fixture
def definitions(root: str, models: Models) -> dg.Definitions:
    write(Lake(root), *TALKS)
    return build_definitions(Settings(root, START), models)


def materialize(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    asset: str,
    partitions: tuple[str, str] | None = None,
    periods: list[str] | None = None,
) -> dg.ExecuteInProcessResult:
    """Make an asset and what its op makes with it: a range of partitions, or listed periods."""
    node = definitions.resolve_assets_def(asset)
    config = {"ops": {node.op.name: {"config": {"periods": periods}}}} if periods else {}
    tags = (
        {"dagster/asset_partition_range_start": partitions[0], "dagster/asset_partition_range_end": partitions[1]}
        if partitions
        else {}
    )
    return dg.materialize([node], instance=instance, tags=tags, run_config={**config, **QUIET})


def made(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return instance.get_materialized_partitions(dg.AssetKey(asset))


RANGES = {
    "messages": ("2024-01-15T00", "2024-01-31T23"),
    "daily_summaries": ("2024-01-01", "2024-02-04"),
    "weekly_summaries": ("2024-W01-1", "2024-W05-1"),
    "monthly_summaries": ("2024-01", "2024-02"),
    "quarterly_summaries": ("2024-01", "2024-01"),
    "yearly_summaries": ("2024", "2024"),
}


def test_every_grain_has_a_table_and_an_index_that_say_what_they_are(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    names = {key.to_user_string() for key in graph.get_all_asset_keys()}
    expected = {"messages", "working_facts", "graph_facts", "memory_growth", "model_cost"}
    expected |= {f"{grain}_index" for grain in Grain}
    expected |= {f"{grain}_summaries" for grain in Grain if grain is not Grain.WORKING}
    assert names == expected
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.group_name
        assert node.owners
        assert node.kinds
    assert {sensor.name for sensor in definitions.sensors or []} == {
        "journal_sensor",
        "healing_sensor",
        "roll_up_sensor",
    }


def test_ranges_from_fine_to_coarse_give_the_lake_that_plain_functions_give(
    definitions: dg.Definitions, root: str, models: Models, tmp_path: Path
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for asset, partitions in RANGES.items():
            assert materialize(definitions, instance, asset, partitions).success
        assert len(made(instance, "daily_summaries")) == 35
        assert made(instance, "yearly_index") == {"2024"}
    plain = Lake(str(tmp_path / "plain"))
    write(plain, *TALKS)
    run(plain, models)
    through_dagster = table_rows(Lake(root))
    # A range also looks at days without material, and says so in the ledger.
    plain_rows = table_rows(plain)
    for rows in (through_dagster, plain_rows):
        rows["ledger"] = [row for row in rows["ledger"] if row["rows"]]
    assert through_dagster == plain_rows


def test_a_second_materialisation_writes_nothing(definitions: dg.Definitions, root: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for asset, partitions in RANGES.items():
            materialize(definitions, instance, asset, partitions)
        before = versions(Lake(root))
        for asset, partitions in reversed(RANGES.items()):
            materialize(definitions, instance, asset, partitions)
    assert versions(Lake(root)) == before


def test_listed_periods_are_recorded_and_no_others(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        hours = ["2024-01-15T08", "2024-01-31T08"]
        assert materialize(definitions, instance, "messages", periods=hours).success
        assert made(instance, "messages") == made(instance, "working_index") == set(hours)


def test_a_week_of_two_months_counts_in_one(definitions: dg.Definitions, root: str) -> None:
    # 31 January 2024 lies in the week whose Thursday is 1 February.
    with dg.DagsterInstance.ephemeral() as instance:
        for asset, partitions in RANGES.items():
            materialize(definitions, instance, asset, partitions)
    from memory_pipeline.lake.schemas import SUMMARIES

    months = {row["period"]: row["content"] for row in Lake(root).tables.read(SUMMARIES, grain="monthly").to_pylist()}
    assert "passport" in months["2024-02"]
    assert "passport" not in months["2024-01"]


def test_a_materialisation_reports_what_it_did(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", ("2024-01-15T08", "2024-01-15T08"))
        event = instance.get_latest_materialization_event(dg.AssetKey("working_facts"))
        assert event is not None
        assert event.asset_materialization is not None
        metadata: dict[str, Any] = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert (metadata["rows"], metadata["agents"], metadata["messages"]) == (2, 1, 1)
    assert metadata["bytes"] > 0
    assert metadata["seconds"] > 0


def test_a_period_that_has_not_closed_is_refused(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure, match=r"closes at 29\d\d-"):
        materialize(definitions, instance, "yearly_summaries", ("2940", "2940"))


def test_a_run_without_partitions_says_what_to_do(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure, match="choose some"):
        materialize(definitions, instance, "messages")


def test_the_mart_is_made_and_its_tests_block(definitions: dg.Definitions, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory_pipeline.errors import LakeError

    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", RANGES["messages"])
        assert materialize(definitions, instance, "memory_growth").success
        from memory_pipeline.analytics import Warehouse

        query = Warehouse.query
        monkeypatch.setattr(Warehouse, "query", lambda self, _: query(self, "stg_facts"))
        with pytest.raises(LakeError, match=r"returned rows.*one_summary_for_each_agent_and_period"):
            materialize(definitions, instance, "memory_growth")


def test_the_workspace_loads_the_module_that_builds_them(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    from dagster._core.workspace.load import location_origins_from_yaml_paths

    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    [origin] = location_origins_from_yaml_paths([str(Path(__file__).parents[2] / "workspace.yaml")])
    assert origin.location_name == "memory_pipeline.definitions"
    assert isinstance(importlib.import_module(origin.location_name).defs, dg.Definitions)

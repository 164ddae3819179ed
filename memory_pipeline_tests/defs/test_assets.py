"""The definitions load, and every way to materialize them gives the same lake."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.data_version import CachingStaleStatusResolver

from memory_pipeline.analytics import models_of
from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.jobs import WORKING_MEMORY
from memory_pipeline.defs.partition_keys import Group
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, LEDGER, MEMORIES, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset, table_asset
from memory_pipeline.settings import Settings
from memory_pipeline.steps.promotion import PROMOTION_ASSET
from memory_pipeline_tests.building import START, conversation, run, table_rows, versions, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import CopiedLake

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
TALKS = [
    conversation("I moved to Porto.", at="2024-01-15T08:00"),
    conversation("My dog is called Bruno.", at="2024-01-15T11:00", conversation_id="c2"),
    conversation("Bruno ate my passport.", at="2024-01-31T08:00", conversation_id="c3"),
]


@pytest.fixture(scope="module")
def catalogue(models: Models, tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """Definitions of an empty lake."""
    return build_definitions(Settings(str(tmp_path_factory.mktemp("catalogue")), START), models)


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
    """Materialize the assets of an asset's op, for a range of partitions or for listed periods."""
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


#: From fine to coarse. Ranges are short, since Dagster stores two events per partition and asset.
RANGES = [
    ("messages", ("2024-01-15T08", "2024-01-15T12")),
    ("messages", ("2024-01-31T07", "2024-01-31T08")),
    ("daily_summaries", ("2024-01-13", "2024-02-02")),
    ("weekly_summaries", ("2024-W02-1", "2024-W05-1")),
    ("monthly_summaries", ("2024-01", "2024-02")),
    ("quarterly_summaries", ("2024-01", "2024-01")),
    ("yearly_summaries", ("2024", "2024")),
]


def test_every_grain_has_a_table_and_an_index(catalogue: dg.Definitions) -> None:
    names = {key.to_user_string() for key in catalogue.resolve_asset_graph().get_all_asset_keys()}
    expected = {"messages", "working_facts", "graph_facts", "durable_memories"}
    expected |= {f"{grain}_index" for grain in Grain}
    expected |= {f"{grain}_summaries" for grain in Grain if grain is not Grain.WORKING}
    assert expected <= names


def test_every_asset_has_a_description(catalogue: dg.Definitions) -> None:
    graph = catalogue.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        first = (node.description or "").partition("\n")[0]
        assert first.endswith("."), f"the catalog shows the first line of a description: {key}"
        assert node.owners == ["team:memory"]
        assert node.group_name in {*Group}
        assert node.kinds
        if key in {dg.AssetKey(WORKING_MEMORY), dg.AssetKey(PROMOTION_ASSET)}:
            continue  # the first only has checks, the second writes to the journal
        columns = node.metadata["dagster/column_schema"].columns
        assert columns, key
        for column in columns:
            assert column.description, f"{key} {column.name}"
            assert not column.description.endswith("?"), f"{key} {column.name}"
            assert not re.search("item|element|struct", column.type), f"{key} {column.name}"


def test_the_assets_of_a_grain_have_its_tag(catalogue: dg.Definitions) -> None:
    graph = catalogue.resolve_asset_graph()
    for grain in Grain:
        found = {key for key in graph.get_all_asset_keys() if graph.get(key).tags.get("grain") == grain}
        assert {dg.AssetKey(table_asset(grain)), dg.AssetKey(index_asset(grain))} <= found


def test_columns_are_those_of_the_tables(catalogue: dg.Definitions) -> None:
    graph = catalogue.resolve_asset_graph()
    expected = {
        "messages": MESSAGES.schema,
        "working_facts": FACTS.schema,
        "graph_facts": GRAPH_FACTS.schema,
        "durable_memories": MEMORIES.schema,
        "yearly_summaries": SUMMARIES.schema,
        "working_index": index_schema(8),
    }
    for asset, schema in expected.items():
        columns = graph.get(dg.AssetKey(asset)).metadata["dagster/column_schema"].columns
        assert [column.name for column in columns] == schema.names
    may_be_null = {column.name for column in columns if column.constraints.nullable}
    assert "vector" in may_be_null
    assert "content" not in may_be_null


@dataclass(frozen=True)
class Ranged:
    """A lake that Dagster materialized from fine to coarse, with the results."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    root: str


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory, models: Models) -> Iterator[Ranged]:
    root = str(tmp_path_factory.mktemp("ranged") / "lake")
    write(Lake(root), *TALKS)
    definitions = build_definitions(Settings(root, START), models)
    with dg.DagsterInstance.ephemeral() as instance:
        for asset, partitions in RANGES:
            assert materialize(definitions, instance, asset, partitions).success
        yield Ranged(definitions, instance, root)


def test_ranges_from_fine_to_coarse_give_the_same_lake_as_the_steps(
    ranged: Ranged, models: Models, tmp_path: Path
) -> None:
    assert len(made(ranged.instance, "messages")) == 7
    assert len(made(ranged.instance, "daily_summaries")) == 21
    assert made(ranged.instance, "yearly_index") == {"2024"}
    plain = Lake(str(tmp_path / "plain"))
    write(plain, *TALKS)
    run(plain, models)
    through_dagster = table_rows(Lake(ranged.root))
    # A range also processes days without data, and records them in the ledger.
    plain_rows = table_rows(plain)
    for rows in (through_dagster, plain_rows):
        rows["ledger"] = [row for row in rows["ledger"] if row["rows"]]
    assert through_dagster == plain_rows


def test_a_week_across_two_months_belongs_to_one(ranged: Ranged) -> None:
    # 31 January 2024 is in the week of Thursday 1 February.
    rows = Lake(ranged.root).tables.read(SUMMARIES, grain="monthly").to_pylist()
    months = {row["period"]: row["content"] for row in rows}
    assert "passport" in months["2024-02"]
    assert "passport" not in months["2024-01"]


def test_a_second_materialisation_writes_nothing(ranged: Ranged) -> None:
    before = versions(Lake(ranged.root))
    for asset, partitions in reversed(RANGES):
        assert materialize(ranged.definitions, ranged.instance, asset, partitions).success
    assert versions(Lake(ranged.root)) == before


def test_only_listed_periods_are_materialized(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        hours = ["2024-01-15T08", "2024-01-31T08"]
        assert materialize(definitions, instance, "messages", periods=hours).success
        assert made(instance, "messages") == made(instance, "working_index") == set(hours)


def reported(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def test_a_materialisation_reports_its_metadata(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", ("2024-01-15T08", "2024-01-15T08"))
        materialize(definitions, instance, "daily_summaries", ("2024-01-15", "2024-01-15"))
        messages, facts, summaries, index = (
            reported(instance, asset) for asset in ("messages", "working_facts", "daily_summaries", "daily_index")
        )
    assert (facts["rows"], facts["agents"], facts["messages"]) == (2, 1, 1)
    assert (messages["rows"], messages["expired"], messages["forgotten"]) == (1, 0, 0)
    assert (summaries["rows"], index["rows"]) == (1, 1)
    for metadata in (messages, facts, summaries):
        assert metadata["bytes"] > 0
    asked = {"calls", "tokens_in", "tokens_out", "cost_usd", "fallbacks", "unfinished", "refused"}
    for metadata in (messages, facts, summaries, index):
        assert metadata["seconds"] > 0
        # Dagster plots numbers, so values that should not be plotted are no numbers.
        text = {
            name for name, value in metadata.items() if isinstance(value, bool) or not isinstance(value, int | float)
        }
        assert text <= {"changed", "period", "preview", "refused_because"}
        assert asked <= metadata.keys() or asked.isdisjoint(metadata)
    assert asked <= facts.keys() & summaries.keys()


def test_compression_is_output_tokens_per_input_token(definitions: dg.Definitions, root: str) -> None:
    said = [f"I saw lion number {number} in the zoo of town {number}, and it slept." for number in range(50)]
    write(Lake(root), conversation(*said, at="2024-01-15T09:00", conversation_id="zoo"))
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", periods=["2024-01-15T08", "2024-01-15T09"])
        materialize(definitions, instance, "daily_summaries", ("2024-01-15", "2024-01-16"))
        silent = reported(instance, "daily_summaries")
        materialize(definitions, instance, "daily_summaries", ("2024-01-15", "2024-01-15"))
        spoken = reported(instance, "daily_summaries")
    assert "compression" not in silent
    [summary] = Lake(root).tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()
    assert spoken["compression"] == pytest.approx(summary["tokens_out"] / summary["tokens_in"], abs=1e-4)
    assert 0 < spoken["compression"] < 1


def stale(definitions: dg.Definitions, instance: dg.DagsterInstance, asset: str, partition: str) -> list[str]:
    """Return the causes for which the UI would report a partition as stale."""
    graph = definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, AssetGraphView.for_test(definitions, instance))
    return [cause.reason for cause in resolver.get_stale_causes(dg.AssetKey(asset), partition)]


def test_a_day_becomes_stale_only_when_late_data_arrives(definitions: dg.Definitions, root: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", periods=["2024-01-15T08", "2024-01-15T11"])
        materialize(definitions, instance, "daily_summaries", ("2024-01-15", "2024-01-15"))
        for asset, partition in (
            ("working_facts", "2024-01-15T08"),
            ("graph_facts", "2024-01-15T08"),
            ("durable_memories", "2024-01-15T08"),
            ("working_index", "2024-01-15T08"),
            ("daily_summaries", "2024-01-15"),
            ("daily_index", "2024-01-15"),
        ):
            assert not stale(definitions, instance, asset, partition), asset
        write(Lake(root), conversation("I sold the boat.", at="2024-01-15T21:00", conversation_id="late"))
        materialize(definitions, instance, "messages", periods=["2024-01-15T21"])
        assert stale(definitions, instance, "daily_summaries", "2024-01-15")
        materialize(definitions, instance, "daily_summaries", ("2024-01-15", "2024-01-15"))
        assert not stale(definitions, instance, "daily_summaries", "2024-01-15")


def test_a_period_that_has_not_closed_is_refused(catalogue: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure, match=r"ends at 29\d\d-"):
        materialize(catalogue, instance, "yearly_summaries", ("2940", "2940"))


def test_a_run_without_partitions_is_an_error_with_a_remedy(catalogue: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure, match="select some"):
        materialize(catalogue, instance, "messages")


def mart_events(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Return the metadata of each mart that a run built."""
    return {
        event.materialization.asset_key.to_user_string(): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in result.get_asset_materialization_events()
    }


def test_marts_are_built_in_one_step_and_report_metadata(definitions: dg.Definitions) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(definitions, instance, "messages", periods=["2024-01-15T08", "2024-01-15T11"])
        made = mart_events(materialize(definitions, instance, "memory_growth"))
        assert set(made) == {model.name for model in models_of("marts")}
        base = made["memory_by_period"]
        # One day of turns and facts.
        assert (base["rows"], base["dagster/row_count"], base["months_made"], base["changed"]) == (2, 2, 1, True)
        assert base["rows_read"] > 0
        assert base["bytes"] > 0
        again = mart_events(materialize(definitions, instance, "memory_growth"))
        assert not any(numbers["changed"] for numbers in again.values())
        node = definitions.resolve_assets_def("memory_growth")
        done = dg.materialize([node], instance=instance, selection=["memory_growth"], run_config=QUIET)
        assert set(mart_events(done)) == {"memory_growth"}


def test_marts_have_column_lineage(catalogue: dg.Definitions) -> None:
    graph = catalogue.resolve_asset_graph()
    growth, base = graph.get(dg.AssetKey("memory_growth")), graph.get(dg.AssetKey("memory_by_period"))
    assert growth.parent_keys == {dg.AssetKey("memory_by_period")}
    assert {"messages", "working_facts", "yearly_summaries"} <= {key.to_user_string() for key in base.parent_keys}
    lineage = base.metadata["dagster/column_lineage"].deps_by_column
    assert dg.TableColumnDep("messages", "workspace_id") in lineage["workspace_id"]
    names = {key.to_user_string(): graph.get(key) for key in graph.get_all_asset_keys()}
    for model in models_of("marts"):
        asset = names[model.name]
        columns = [column.name for column in asset.metadata["dagster/column_schema"].columns]
        assert columns == list(model.columns)
        assert (asset.group_name, asset.kinds) == (Group.MARTS, {"duckdb", "sql"})
        for deps in asset.metadata["dagster/column_lineage"].deps_by_column.values():
            for dep in deps:
                assert dep.asset_key in asset.parent_keys, (model.name, dep)
                schema = names[dep.asset_key.to_user_string()].metadata["dagster/column_schema"]
                assert dep.column_name in {column.name for column in schema.columns}, (model.name, dep)


def test_the_workspace_loads_the_module_that_builds_them(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    from dagster._core.workspace.load import location_origins_from_yaml_paths

    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    [origin] = location_origins_from_yaml_paths([str(Path(__file__).parents[2] / "workspace.yaml")])
    assert origin.location_name == "memory_pipeline.definitions"
    assert isinstance(importlib.import_module(origin.location_name).defs, dg.Definitions)


@pytest.fixture
def processed(copied: CopiedLake, models: Models) -> Lake:
    """A lake whose tables have been written for each conversation."""

    def fill(folder: Path) -> None:
        for talk in TALKS:
            write(Lake(str(folder)), talk)
            run(Lake(str(folder)), models)

    return copied("defs-assets", fill)


def test_the_retention_job_runs_without_retention_and_reports_deletions(processed: Lake, models: Models) -> None:
    lake = processed
    job = build_definitions(Settings(lake.storage.uri, START), models).resolve_job_def("expire_memory")
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance, run_config=QUIET).success
        assert lake.journal.pending() == []
        lake.storage.write(CONFIGURATION, b"defaults: {retention: {plan: free}}")
        done = job.execute_in_process(instance=instance, run_config=QUIET)
        assert done.success
        daily = instance.fetch_observations(dg.AssetKey("daily_summaries"), limit=10).records
    assert {record.partition_key for record in daily} == {"2024-01-15", "2024-01-31"}


def test_the_retention_job_deletes_old_files_without_retention_and_counts_them(processed: Lake, models: Models) -> None:
    lake = processed
    lake.storage.write(CONFIGURATION, b"defaults: {retention: {plan: nonsense}}")
    job = build_definitions(Settings(lake.storage.uri, START), models).resolve_job_def("expire_memory")
    config = QUIET | {"ops": {"vacuum": {"config": {"older_than_minutes": 0}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    assert {event.step_key for event in done.get_step_failure_events()} == {"expire"}
    data: Any
    [data] = [event.event_specific_data for event in done.all_events if event.is_successful_output]
    metadata = data.metadata
    assert metadata["files"].value > 0
    assert metadata["bytes"].value > 0
    kinds = {record.data["kind"]: record.data["files"] for record in metadata["kinds"].records}
    assert kinds["replaced"] > 0
    assert lake.tables.purge(LEDGER).files == 0

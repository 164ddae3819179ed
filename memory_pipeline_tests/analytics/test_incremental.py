"""A mart built by the month equals a full build, and reads no more than necessary."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.analytics import Warehouse, models_of, read_catalog, stale_marts
from memory_pipeline.analytics.lake_views import LakeViews
from memory_pipeline.analytics.warehouse import MartState
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline_tests.analytics.rows import call, fact, put_calls, put_hours, put_mark, put_summaries, summary
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from memory_pipeline_tests.conftest import SharedFolder

MARTS = [model.name for model in models_of("marts")]
MONTHLY = [model.name for model in models_of("marts") if model.incremental]
#: Around the ends of months, quarters and a year; an hour before midnight UTC is the next day in Berlin.
HOURS = [
    "2023-12-31T22", "2023-12-31T23", "2024-01-15T08", "2024-01-31T22", "2024-01-31T23", "2024-02-01T10",
    "2024-02-29T23", "2024-03-31T12", "2024-12-30T09", "2024-12-31T23",
]  # fmt: skip


def build(lake: Lake, *names: str, full: bool = False) -> dict[str, tuple[int, bool, int, int]]:
    built = Warehouse(lake).build_all(names or MARTS, full=full)
    return {name: (each.rows, each.changed, each.months, each.read) for name, each in built}


def stored(lake: Lake, name: str) -> pa.Table:
    from deltalake import DeltaTable

    rows = DeltaTable(lake.storage.locate(f"marts/{name}")).to_pyarrow_table()
    return rows.sort_by([(column, "ascending") for column in rows.schema.names])


def change(lake: Lake, source: random.Random) -> None:
    """Write, change or delete random hours, and summaries of some periods above them."""
    agents = ["a", "b"]
    for hour in source.sample(HOURS, 3):
        if source.random() < 0.2:
            lake.tables.replace(FACTS, [hour], FACTS.schema.empty_table())
            continue
        kinds = source.sample(["turn", "event", "preference"], source.randint(1, 3))
        text = f"Hello {source.randint(0, 99)}"
        put_hours(lake, *(fact(hour, agent, text, kind=kind) for agent in agents for kind in kinds))
        period: Period | None = Period(Grain.WORKING, hour)
        ids = [f"working:{hour}:acme-a-{kind}" for kind in kinds]
        while period is not None and (period := lake.calendar.parent(period)) is not None and source.random() < 0.9:
            cited = [[each if period.grain is Grain.DAILY else f"{each}#0"] for each in ids[: source.randint(1, 2)]]
            row = summary(lake, period, ids, cited, text="Hello. " * source.randint(1, 3))
            put_summaries(lake, row)
            ids = [row["id"]]
    if source.random() < 0.3:
        grain = source.choice(SUMMARY_GRAINS).value
        keys = lake.tables.keys(SUMMARIES, grain=grain)
        lake.tables.replace(SUMMARIES, keys[:1], SUMMARIES.schema.empty_table(), grain=grain)
    if source.random() < 0.5:
        put_calls(lake, *(call(source.choice(HOURS), number, source.random()) for number in range(3)))


def test_a_mart_built_by_month_equals_a_full_build(tmp_path: Path) -> None:
    lake, source = Lake(str(tmp_path), "Europe/Berlin"), random.Random(0)
    lake.ensure()
    for _ in range(examples(3)):
        change(lake, source)
        build(lake, *MONTHLY)
    parts = {name: stored(lake, name) for name in MONTHLY}
    assert parts["memory_by_period"].num_rows
    assert not any(changed for _, changed, _, _ in build(lake, *MONTHLY, full=True).values())
    warehouse = Warehouse(lake)
    for name in MONTHLY:
        rows = warehouse.query(name)
        assert rows.sort_by([(column, "ascending") for column in rows.schema.names]) == parts[name], name


@pytest.fixture(scope="module")
def two_months_once(shared_folder: SharedFolder) -> Path:
    def fill(path: Path) -> None:
        lake = Lake(str(path))
        lake.ensure()
        put_hours(lake, fact("2024-01-15T08"), fact("2024-01-15T08", "b"))
        put_hours(lake, fact("2024-03-05T08"))

    return shared_folder("marts-unbuilt", fill)


@pytest.fixture
def unbuilt(two_months_once: Path, root: str) -> Lake:
    """A copy of a lake of two months without marts."""
    return Lake(shutil.copytree(two_months_once, root))


def test_only_months_that_changed_are_read_and_written(unbuilt: Lake) -> None:
    lake = unbuilt
    assert {model.name for model in stale_marts(lake)} == set(MARTS)
    first = build(lake)
    assert first["memory_by_period"][:3] == (3, True, 2)
    assert first["memory_by_period"][3] > 0
    assert stale_marts(lake) == []
    again = build(lake)
    assert {(changed, months, read) for _, changed, months, read in again.values()} == {(False, 0, 0)}
    assert {name: each[0] for name, each in again.items()} == {name: each[0] for name, each in first.items()}
    # Of March, if only March has changed.
    untouched = lake.storage.list("marts/memory_by_period/month=2024-01")
    put_hours(lake, fact("2024-03-05T08", text="Hello, Bruno, again."), fact("2024-03-06T08"))
    assert {model.name for model in stale_marts(lake)} >= {"memory_by_period", "memory_growth", "entities_over_time"}
    assert "model_cost" not in {model.name for model in stale_marts(lake)}
    built = build(lake)
    assert built["memory_by_period"][:3] == (4, True, 1)
    # Two facts, two messages and the calendar, but not the facts of January.
    sources = LakeViews(lake)
    calendar = sources.read("periods", ["2024-03"]).num_rows
    assert built["memory_by_period"][3] <= 4 + 3 * calendar
    assert untouched
    assert lake.storage.list("marts/memory_by_period/month=2024-01") == untouched


def test_a_deleted_month_is_removed_from_the_marts(unbuilt: Lake) -> None:
    lake = unbuilt
    build(lake, "memory_by_period")
    for table in (FACTS, MESSAGES):
        lake.tables.replace(table, ["2024-01-15T08"], table.schema.empty_table())
    assert build(lake, "memory_by_period")["memory_by_period"][:3] == (1, True, 1)
    assert set(stored(lake, "memory_by_period")["month"].to_pylist()) == {"2024-03"}


def test_a_change_of_the_sql_rebuilds_the_whole_mart(unbuilt: Lake) -> None:
    lake = unbuilt
    build(lake, "memory_by_period")
    state = MartState.read(lake.storage, "memory_by_period")
    assert state is not None
    MartState("another", state.made, state.versions, state.inputs).write(lake.storage, "memory_by_period")
    assert "memory_by_period" in {model.name for model in stale_marts(lake)}
    assert build(lake, "memory_by_period")["memory_by_period"][:3] == (3, False, 2)


def test_an_unreadable_state_is_ignored(unbuilt: Lake) -> None:
    lake = unbuilt
    build(lake, "memory_by_period")
    for text in (b"{", b"[]", b'{"sql": 1}', b"\xff"):
        lake.storage.write("state/marts/memory_by_period.json", text)
        assert "memory_by_period" in {model.name for model in stale_marts(lake)}, text
        assert build(lake, "memory_by_period")["memory_by_period"][:3] == (3, False, 2), text


def test_a_mart_written_by_another_process_is_rebuilt(unbuilt: Lake) -> None:
    from memory_pipeline.lake.tables.marts import Marts

    lake = unbuilt
    build(lake, "memory_by_period")
    marts = Marts(lake.storage)
    rows = stored(lake, "memory_by_period")
    marts.replace("memory_by_period", rows.slice(0, 1), column="month", values=None)
    assert "memory_by_period" in {model.name for model in stale_marts(lake)}
    assert build(lake, "memory_by_period")["memory_by_period"][:3] == (3, True, 2)


def test_new_retention_makes_only_the_forecast_stale(unbuilt: Lake, tmp_path: Path) -> None:
    lake = unbuilt
    build(lake, "retention_forecast", "coverage")
    file = tmp_path / "config.yaml"
    file.write_text("defaults: {retention: {plan: free}}")
    lake.put_configuration(file)
    stale = {model.name for model in stale_marts(lake)}
    assert stale & {"coverage", "memory_by_period", "retention_forecast"} == {"retention_forecast"}


def test_an_expiration_mark_makes_only_coverage_stale(unbuilt: Lake) -> None:
    lake = unbuilt
    build(lake, "retention_forecast", "coverage")
    put_mark(lake, "daily", "2024-01-15")
    stale = {model.name for model in stale_marts(lake)}
    assert stale & {"coverage", "memory_by_period", "retention_forecast"} == {"coverage"}


def test_a_month_of_a_table_includes_the_sources_of_its_rows(root: str) -> None:
    lake = Lake(root)
    lake.ensure()
    year, quarter = Period(Grain.YEARLY, "2024"), Period(Grain.QUARTERLY, "2024-Q4")
    put_summaries(lake, summary(lake, year, [], []), summary(lake, quarter, [], []))
    sources = LakeViews(lake)
    # The year begins in January and is computed from quarters, one of which begins in October.
    assert set(sources.months(["summaries"])) == {"2024-01", "2024-10"}
    found = {month: sources.read("summaries", [month]).to_table() for month in ("2024-01", "2024-10")}
    assert set(found["2024-01"]["period"].to_pylist()) == {"2024", "2024-Q4"}
    assert set(found["2024-10"]["period"].to_pylist()) == {"2024-Q4"}


def test_building_a_mart_updates_the_marts_that_it_reads(unbuilt: Lake) -> None:
    lake = unbuilt
    assert Warehouse(lake).build("memory_growth").rows == 2
    assert "memory_by_period" not in {model.name for model in stale_marts(lake)}


@pytest.mark.parametrize("name", ["stg_facts", "growth_adds_up"])
def test_only_marts_can_be_built(lake: Lake, name: str) -> None:
    with pytest.raises(InputError, match=f"SQL model '{name}' is not a mart; accepted: .*memory_growth"):
        Warehouse(lake).build(name)


def test_a_query_is_repeated_when_files_vanish(unbuilt: Lake) -> None:
    lake = unbuilt
    warehouse = Warehouse(lake)
    before = warehouse.query("stg_facts").num_rows
    put_hours(lake, fact("2024-03-05T08"), fact("2024-03-05T08", "c"))
    # Replaced files are deleted while the warehouse still reads them.
    present = {path for _, paths in [(0, lake.tables.dataset(FACTS).files)] for path in paths}
    for entry in lake.storage.list("tables/facts"):
        if entry.path.endswith(".parquet") and not any(path.endswith(entry.path) for path in present):
            lake.storage.delete([entry.path])
    assert warehouse.query("stg_facts").num_rows == before + 1


def test_incremental_marts_name_their_column() -> None:
    known = read_catalog()
    assert {known.models[name].incremental for name in MONTHLY} == {"month"}
    assert {"memory_by_period", "survival", "entities_over_time", "model_cost"} <= set(MONTHLY)

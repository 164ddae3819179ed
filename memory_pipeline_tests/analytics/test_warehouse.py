"""dbt_like_sql: its models run over a lake, and say of themselves what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.errors import InputError
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline_tests.building import conversation, run, write

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.selection import Models


def test_every_table_has_a_staging_model_and_every_model_a_header() -> None:
    assert {model.name for model in models_of("staging")} == {f"stg_{name}" for name in TABLES}
    assert all(model.description for model in models_of())


@pytest.mark.parametrize("name", [model.name for model in models_of()])
def test_every_model_runs_over_an_empty_lake(lake: Lake, name: str) -> None:
    assert Warehouse(lake).query(name).num_rows == 0


def test_memory_growth_counts_each_grain(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto.", "My dog is called Bruno."))
    run(lake, models)
    rows = {row["grain"]: row for row in Warehouse(lake).query("memory_growth").to_pylist()}
    assert list(rows) == ["working", "daily", "weekly", "monthly", "quarterly", "yearly"]
    # Two turns and two statements; "Anna: " stands before each.
    assert rows["working"]["rows"] == 4
    assert rows["working"]["characters_in"] == len("Anna: I moved to Porto.") + len("Anna: My dog is called Bruno.")
    assert rows["working"]["characters_out"] == 2 * rows["working"]["characters_in"]
    assert rows["daily"]["characters_in"] == rows["working"]["characters_in"]
    assert (rows["weekly"]["first_period"], rows["weekly"]["last_period"]) == ("2024-W03", "2024-W03")


def test_a_mart_is_written_once(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."))
    run(lake, models)
    assert Warehouse(lake).build("memory_growth") == (6, True)
    assert Warehouse(lake).build("memory_growth") == (6, False)


def test_the_test_finds_an_offender(lake: Lake, models: Models) -> None:
    import pyarrow as pa

    from memory_pipeline.lake.schemas import SUMMARIES

    write(lake, conversation("I moved to Porto."))
    run(lake, models)
    lake.tables.transform(
        SUMMARIES,
        ["2024"],
        lambda rows: pa.concat_tables([rows, rows.set_column(2, SUMMARIES.schema.field(2), [["another id"]])]),
        grain="yearly",
    )
    [offender] = Warehouse(lake).query("one_summary_for_each_agent_and_period").to_pylist()
    assert (offender["period"], offender["summaries"]) == ("2024", 2)


@pytest.mark.parametrize("name", ["nothing", "", "../x", "memory_growth; DROP TABLE facts"])
def test_an_unknown_model_is_refused(lake: Lake, name: str) -> None:
    with pytest.raises(InputError, match=r"SQL model .* is unknown; there are: "):
        Warehouse(lake).query(name)

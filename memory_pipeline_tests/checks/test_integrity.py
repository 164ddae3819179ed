"""Duplicate and misplaced rows, and files that do not fit the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import (
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.steps.replay import replay
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline_tests.building import ACME, NOW, hours
from memory_pipeline_tests.checks.planting import context, plant

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

HOUR = "2024-01-15T08"
PLACES: list[tuple[str, str, TableSpec, str, dict[str, str]]] = [
    ("messages", "unique_ids", MESSAGES, HOUR, {}),
    ("working_facts", "unique_ids", FACTS, HOUR, {}),
    ("daily_summaries", "unique_ids", SUMMARIES, "2024-01-15", {"grain": "daily"}),
    ("yearly_summaries", "unique_ids", SUMMARIES, "2024", {"grain": "yearly"}),
    ("graph_facts", "unique_ids", GRAPH_FACTS, "", {}),
    ("graph_facts", "unique_operation_ids", GRAPH_OPERATIONS, HOUR, {}),
    ("durable_memories", "unique_ids", MEMORIES, "", {}),
    ("durable_memories", "unique_event_ids", MEMORY_EVENTS, HOUR, {}),
    ("memory_consolidation", "unique_ids", CONSOLIDATION_EVENTS, "2024-01-15", {}),
    ("memory_consolidation", "one_row_an_agent", CONSOLIDATION, ACME.key[0], {}),
]


def test_a_duplicate_row_is_found(lake: Lake) -> None:
    for asset, check, spec, key, fixed in PLACES:
        before = context(lake, asset, check)
        assert before.passed
        plant(lake, spec, key, lambda rows: rows.append(rows[0]), **fixed)
        finding = context(lake, asset, check)
        assert (finding.offenders, finding.numbers["rows_too_many"]) == (1, 1)
        assert finding.numbers["rows"] == before.numbers["rows"] + 1
        rows = (
            lake.tables.read(spec, [key], shard=None, **fixed)
            if spec.partition_by
            else lake.projections[spec.name].scan()
        )
        assert finding.sample[0] in rows["id"].to_pylist()


def test_a_graph_that_is_not_in_sync_is_found(lake: Lake, models: Models) -> None:
    assert context(lake, "graph_facts", "graph_level").passed
    plant(lake, GRAPH_FACTS, "", lambda rows: rows.pop())
    finding = context(lake, "graph_facts", "graph_level")
    assert finding.sample == ("acme/support",)
    replay(lake, models, {Grain.WORKING: [HOUR]}, known_scopes(lake))
    assert context(lake, "graph_facts", "graph_level").passed
    lake.operations.delete(f"period = '{HOUR}'")
    assert context(lake, "graph_facts", "graph_level").sample == ("acme/support",)
    replay(lake, models, {Grain.WORKING: [HOUR]}, known_scopes(lake))
    assert context(lake, "graph_facts", "graph_level").passed


def test_a_row_in_the_wrong_partition_and_an_id_in_two_partitions_are_found(lake: Lake) -> None:
    [stray] = lake.tables.read(FACTS, ["2024-01-15T11"]).to_pylist()[:1]
    plant(lake, FACTS, HOUR, lambda rows: rows.append({**stray, "period": HOUR}))
    finding = context(lake, "working_facts", "unique_ids")
    assert (finding.offenders, finding.sample) == (1, (stray["id"],))
    assert finding.numbers["rows_astray"] == 1


def test_only_the_given_periods_are_checked(lake: Lake) -> None:
    plant(lake, FACTS, HOUR, lambda rows: rows.append(rows[0]))
    plant(lake, GRAPH_FACTS, "acme~support", lambda rows: rows.append(rows[0]))  # of 8 o'clock
    for asset in ("working_facts", "graph_facts"):
        assert not context(lake, asset, "unique_ids", periods=hours(HOUR)).passed
        assert context(lake, asset, "unique_ids", periods=hours("2024-01-15T11")).passed
    some = context(lake, "working_facts", "unique_ids", periods=hours("2024-01-15T11", "2024-02-20T09"))
    assert some.numbers["rows"] == lake.tables.read(FACTS, ["2024-01-15T11", "2024-02-20T09"]).num_rows
    assert context(lake, "working_facts", "unique_ids", periods=[]).numbers["rows"] == 0
    # Consolidation events belong to days; memories belong to no period.
    night = lake.tables.keys(CONSOLIDATION_EVENTS)[0]
    plant(lake, CONSOLIDATION_EVENTS, night, lambda rows: rows.append(rows[0]))
    assert not context(lake, "memory_consolidation", "unique_ids", periods=[Period.parse("daily", night)]).passed
    assert context(lake, "memory_consolidation", "unique_ids", periods=hours(HOUR)).passed
    assert context(lake, "durable_memories", "unique_ids", periods=hours(HOUR)).numbers["rows"] > 0
    assert context(lake, "working_facts", "unique_ids", periods=[Period.parse("daily", "2024-01-15")]).passed


def rewrite(lake: Lake, spec: TableSpec, key: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the file of a partition behind the table's back."""
    [path] = [path for path in lake.tables.dataset(spec).files if f"={key}/" in path]
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def with_column(name: str, column: pa.Array) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.schema.get_field_index(name), name, column)

    return change


def test_files_that_do_not_fit_the_schema_are_found(lake: Lake) -> None:
    fine = context(lake, "working_facts", "schema")
    assert fine.passed
    assert fine.numbers["files"] == 3
    rows = lake.tables.read(FACTS, [HOUR]).num_rows
    rewrite(lake, FACTS, HOUR, with_column("turn", pa.array(["0"] * rows)))
    rewrite(lake, FACTS, "2024-01-15T11", lambda table: table.drop_columns(["content", "model"]))
    rewrite(lake, FACTS, "2024-02-20T09", lambda table: table.append_column("odd", pa.nulls(table.num_rows)))
    finding = context(lake, "working_facts", "schema")
    assert sorted(finding.sample) == [
        "facts 2024-01-15T08, turn is string and not int32",
        "facts 2024-01-15T11, content is missing",  # `model` may be: older files have none
        "facts 2024-02-20T09, odd is unknown",
    ]
    assert context(lake, "messages", "schema").passed


def test_missing_values_are_found_in_plain_columns_and_in_lists(lake: Lake) -> None:
    rows = lake.tables.read(FACTS, [HOUR]).num_rows
    rewrite(lake, FACTS, HOUR, with_column("content", pa.array([None] * rows, pa.string())))
    rewrite(
        lake,
        FACTS,
        "2024-02-20T09",
        lambda table: with_column("tags", pa.nulls(table.num_rows, table.schema.field("tags").type))(table),
    )
    finding = context(lake, "working_facts", "schema")
    assert set(finding.sample) == {
        f"facts {HOUR}, content has no value",
        "facts 2024-02-20T09, tags has no value",
    }


def test_an_unreadable_column_fails_only_the_checks_that_need_it(lake: Lake) -> None:
    rewrite(lake, FACTS, HOUR, with_column("content", pa.nulls(lake.tables.read(FACTS, [HOUR]).num_rows, pa.string())))
    findings = {
        finding.check.name: finding for finding in run_checks(CheckContext(lake, NOW), checks_of("working_facts"))
    }
    assert findings["unique_ids"].passed
    assert findings["orphaned_sources"].passed
    for name in ("fed_back_recall", "duplicate_share"):
        assert findings[name].is_error
        assert "failed to run" in str(findings[name].trouble)

"""The command `sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline_tests.analytics.rows import fact, put_hours
from memory_pipeline_tests.building import NOW
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.ensure()
    put_hours(lake, fact("2024-01-15T08"), fact("2024-01-15T08", "b"))
    return lake


def test_without_a_lake_models_are_listed_printed_and_traced() -> None:
    assert {model["name"] for model in read("sql")} >= {"stg_facts", "memory_growth", "growth_adds_up"}
    assert "Size of each agent's memory" in call("sql").output
    printed = call("sql", "memory_growth").output
    assert printed.startswith("-- Size of each agent's memory")
    assert "FROM memory_by_period" in printed
    model = read("sql", "memory_growth")
    assert model["model"]["owner"] == "team:memory"
    assert [column["name"] for column in model["columns"]][:2] == ["workspace_id", "agent_id"]
    lines = call("sql", "entities_over_time", "--lineage").output.splitlines()
    assert next(line for line in lines if line.startswith("entity ")).split() == ["entity", "facts.entities"]
    assert read("sql", "entities_over_time", "--lineage")[2]["comes_from"] == [["facts", "entities"]]


def test_dag_prints_the_build_order_of_all_models_or_of_one() -> None:
    order = [row["name"] for row in read("sql", "--dag")]
    assert order.index("stg_facts") < order.index("memory_by_period") < order.index("memory_growth")
    lines = call("sql", "memory_growth", "--dag").output.splitlines()
    assert [line.split()[:3] for line in lines[-2:]] == [
        ["marts", "memory_by_period", "←"],
        ["marts", "memory_growth", "←"],
    ]
    assert lines[-1].split()[3:] == ["memory_by_period"]
    assert not any("survival" in line for line in lines)


def test_rows_are_printed(filled: Lake) -> None:
    rows = read("sql", "memory_growth", "--run")
    assert [(row["agent_id"], row["rows"]) for row in rows] == [("a", 1), ("b", 1)]
    output = call("sql", "memory_growth", "--run").output
    assert "2 rows" in output
    assert "\x1b" not in output


def test_a_mart_is_built(filled: Lake) -> None:
    assert "memory_by_period: 2 rows, changed; 1 month rebuilt" in call("sql", "memory_by_period", "--build").output
    assert "memory_by_period: 2 rows, unchanged; 0 months" in call("sql", "memory_by_period", "--build").output
    again = read("sql", "memory_by_period", "--build", "--full")
    assert (again["rows"], again["changed"], again["months"]) == (2, False, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "SQL model 'nothing' is unknown; accepted: .*memory_growth"),
        (["nothing", "--run"], "is unknown"),
        (["nothing", "--dag"], "is unknown"),
        (["nothing", "--lineage"], "is unknown"),
        (["stg_facts", "--build"], "'stg_facts' is not a mart; accepted: "),
        (["--run"], "--run needs a MODEL; accepted: "),
        (["memory_growth", "--run", "--dag"], "--run and --dag do not go together"),
        (["memory_growth", "--full"], "--full needs --build"),
        (["memory_growth", "--run", "--root", "nowhere"], "there is no memory lake at .*nowhere"),
    ],
)
def test_invalid_arguments_are_refused(filled: Lake, arguments: list[str], message: str) -> None:
    result = call("sql", *arguments)
    assert isinstance(result.exception, InputError)
    with pytest.raises(InputError, match=message):
        raise result.exception


def test_a_run_of_the_library_builds_no_marts_and_status_names_those_behind(root: str) -> None:
    memory = Memory(root, user_id="anna")
    memory.add("I moved to Porto.", now=NOW)
    memory.run(now=NOW)
    assert read("status")["stale_marts"] == []
    assert not memory.lake.storage.has("marts")
    call("run")
    assert read("status")["stale_marts"] == []
    memory.add("I moved to Faro.", now=NOW)
    memory.run(now=NOW)
    assert "memory_growth" in read("status")["stale_marts"]
    assert "`memory-pipeline run` builds them" in call("status").output
    call("run")
    assert read("status")["stale_marts"] == []

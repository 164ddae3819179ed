"""The order of models follows from their SQL; invalid models are refused with their files."""

from __future__ import annotations

import pytest

from memory_pipeline.analytics import columns_of, models_of, read_catalog, reads_of
from memory_pipeline.analytics.catalog import Catalog
from memory_pipeline.analytics.lake_views import SOURCES
from memory_pipeline.analytics.model_files import Model
from memory_pipeline.errors import InputError
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.lake.tables.ledger import table_asset


def staging(name: str, sql: str = "SELECT id FROM facts") -> Model:
    return Model("staging", name, "d", sql)


def mart(name: str, sql: str, incremental: str | None = None, **columns: str) -> Model:
    return Model("marts", name, "d", sql, columns=columns, incremental=incremental)


def test_models_follow_their_dependencies() -> None:
    known = Catalog.of(
        [
            Model("tests", "a_test", "d", "SELECT x FROM a"),
            mart("a", "SELECT x FROM z"),
            mart("z", "WITH b AS (SELECT id AS x FROM stg_facts) SELECT x FROM b"),
            mart("b", "SELECT x FROM a JOIN z USING (x)"),
            staging("stg_facts"),
        ]
    )
    assert list(known.models) == ["stg_facts", "z", "a", "b", "a_test"]
    # A CTE is not the mart of the same name.
    assert known.reads["z"] == ("stg_facts",)
    assert known.needed("b") == ["facts", "stg_facts", "z", "a"]
    assert known.needed("b", stop_at_marts=True) == ["z", "a"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([mart("a", "SELECT 1 FROM nowhere")], r"marts/a.sql reads 'nowhere', which is neither a model nor a table"),
        ([mart("a", "SELECT id FROM facts")], r"marts/a.sql reads the lake's table facts; accepted in marts: staging"),
        (
            [staging("s", "SELECT id FROM t"), staging("t")],
            r"staging/s.sql reads staging/t.sql; accepted in staging: lake",
        ),
        (
            [Model("tests", "t", "d", "SELECT 1 FROM u"), Model("tests", "u", "d", "SELECT 1 AS x")],
            r"tests/t.sql reads tests/u.sql",
        ),
        (
            [mart("a", "SELECT 1 FROM b"), mart("b", "SELECT 1 FROM a")],
            r"circular dependency of models: marts/(a.sql → marts/b|b.sql → marts/a)",
        ),
        ([mart("a", "SELECT 1 FROM a")], r"circular dependency of models: marts/a.sql"),
        ([staging("facts")], r"staging/facts.sql: a table of the lake has the same name"),
        ([staging("s"), mart("s", "SELECT 1 AS x")], r"marts/s.sql: staging/s.sql has the same name"),
        ([mart("a", "SELECT FROM WHERE")], r"marts/a.sql cannot be parsed"),
        ([mart("a", "SELECT 1; SELECT 2")], r"marts/a.sql: expected exactly one SELECT"),
        ([mart("a", "DELETE FROM facts")], r"marts/a.sql: expected exactly one SELECT"),
        ([mart("a", "SELECT 1 AS x, 2 AS y", x="", z="")], r"a.sql: column 2 is y, but the header describes z"),
        ([mart("a", "SELECT 1 AS x, 2 AS y", x="")], r"column 2 is y, but the header describes nothing"),
        ([mart("a", "SELECT 1 AS x", x="", y="")], r"column 2 is none, but the header describes y"),
        (
            [staging("stg_ledger", "SELECT period FROM ledger"), mart("a", "SELECT period FROM stg_ledger", "period")],
            r"incremental and reads the lake's table ledger, which cannot be read by the month; accepted: facts",
        ),
        (
            [staging("s"), mart("b", "SELECT id FROM s"), mart("a", "SELECT id FROM b", "id")],
            r"incremental and reads the mart b",
        ),
    ],
)
def test_an_invalid_model_is_refused_with_its_file(models: list[Model], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Catalog.of(models)


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1 FROM stg_facts, stg_scopes", "WITH stg_facts AS (SELECT * FROM stg_facts) SELECT 1 FROM stg_facts"],
)
def test_a_table_that_cannot_be_found_by_its_place_is_refused(sql: str) -> None:
    models = [staging("stg_facts"), staging("stg_scopes", "SELECT scope FROM scopes"), mart("a", sql)]
    with pytest.raises(InputError, match=r"marts/a\.sql: name each table after FROM or JOIN"):
        Catalog.of(models)


def test_the_shipped_models_are_complete() -> None:
    known = read_catalog()
    assert Catalog.of(known.models.values()) == known  # their SQL is not parsed when they are read
    read = {table for model in models_of("staging") for table in known.reads[model.name]}
    assert read == set(SOURCES)
    assert {f"stg_{name}" for name in TABLES} <= {model.name for model in models_of("staging")}
    assert all(model.description for model in models_of())
    marts = models_of("marts")
    assert [model.name for model in marts if not model.columns] == []
    assets = {"messages", "graph_facts", "durable_memories", *(model.name for model in marts)}
    assets |= {table_asset(grain) for grain in ("working", "daily", "weekly", "monthly", "quarterly", "yearly")}
    assert {model.asset for model in models_of("tests")} <= assets


@pytest.mark.parametrize("name", [model.name for model in models_of("marts")])
def test_the_columns_of_a_mart_are_described_typed_and_traced(name: str) -> None:
    columns = columns_of(name)
    assert [column.name for column in columns] == list(read_catalog().models[name].columns)
    assert all(column.type and column.description for column in columns)
    marts, tables = reads_of(name)
    traced = {table for column in columns for table, _ in column.comes_from}
    assert traced
    assert traced <= {*marts, *tables}


def test_lineage_follows_columns_through_staging_joins_and_lists() -> None:
    growth = {column.name: column.comes_from for column in columns_of("memory_by_period")}
    assert growth["characters_out"] == (("facts", "content"), ("summaries", "content"))
    assert growth["characters_in"] == (("facts", "content"), ("facts", "kind"), ("summaries", "content"))
    # Periods come from partitions; a row count comes from no column.
    assert growth["month"] == (("facts", "period"), ("messages", "period"), ("summaries", "period"))
    assert growth["rows"] == ()
    entities = {column.name: column.comes_from for column in columns_of("entities_over_time")}
    assert (entities["entity"], entities["month"]) == ((("facts", "entities"),), (("facts", "period"),))
    # Lineage stops at another mart, which has its own.
    assert {column.name: column.comes_from for column in columns_of("compression")}["ratio"] == (
        ("memory_by_period", "characters_in"),
        ("memory_by_period", "characters_out"),
    )


@pytest.mark.parametrize("function", [columns_of, reads_of, read_catalog().model, read_catalog().needed])
@pytest.mark.parametrize("name", ["nothing", "", "../x", "memory_growth; DROP TABLE facts", "facts"])
def test_an_unknown_model_is_refused(function: object, name: str) -> None:
    assert callable(function)
    with pytest.raises(InputError, match=r"SQL model .* is unknown; accepted: "):
        function(name)

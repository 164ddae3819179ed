"""The allow-list for SQL: unlisted nodes are rejected; no listed function is volatile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory_pipeline.domain import sql_guard
from memory_pipeline.domain.sql_guard import SqlGuard
from memory_pipeline.errors import InputError
from memory_pipeline.lake.sql.session import connect

RULES = SqlGuard({"facts": ["id", "text"]}, ["duckdb_settings"])


def serialized(sql: str) -> str:
    [(text,)] = connect().execute("SELECT json_serialize_sql($1)", [sql]).fetchall()
    return str(text)


@pytest.mark.parametrize("kinds", [[], ["SELECT", "SELECT"], ["COPY"], ["MULTI"], ["INVALID"], ["select"]])
def test_one_select_is_accepted(kinds: list[str]) -> None:
    RULES.judge_kinds(["SELECT"])
    with pytest.raises(InputError, match=f"one SELECT is accepted, not {', '.join(kinds) or 'nothing'};"):
        RULES.judge_kinds(kinds)


def test_a_select_over_the_tables_is_accepted() -> None:
    RULES.judge(
        serialized("WITH x AS (SELECT upper(text) t, id::BIGINT FROM facts) SELECT * FROM x, range(3) ORDER BY 1")
    )


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM other", "table 'other' is unknown; accepted: facts"),
        ("SELECT * FROM s.facts", "without a dot before it"),
        ("SELECT s.upper('a')", "without a dot before it"),
        ("SELECT * FROM facts AT (VERSION => 1)", "leave out AT"),
        ("SELECT * FROM upper('a')", "table function 'upper' is not accepted"),
        ("SELECT later_function(1)", "function 'later_function' is not accepted"),
        ("SELECT 1::later_type", "type 'later_type' is not accepted"),
        ("SELECT now()", "queries cannot read the clock"),
        ("SELECT current_date", "queries cannot read the clock"),
        ("SHOW TABLES", "'SHOW_REF' is not accepted"),
        ("WITH duckdb_settings AS (SELECT 1) SELECT 1", "may not be called duckdb_settings"),
        ('WITH "a.csv" AS (SELECT 1) SELECT 1', "may not be called 'a.csv'"),
        ("COPY facts TO 'x'", "one plain SELECT is accepted"),
    ],
)
def test_other_statements_are_refused_with_a_remedy(sql: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RULES.judge(serialized(sql))


def test_further_table_functions_are_accepted_as_tables_alone() -> None:
    rules = SqlGuard({"facts": ["id"]}, [], ["walk"])
    rules.judge(serialized("SELECT * FROM walk('a', depth := 2), range(2)"))
    with pytest.raises(InputError, match="walk"):
        RULES.judge(serialized("SELECT * FROM walk('a')"))
    for refused in ("SELECT walk('a')", "FROM walk(later(1))", "FROM walk((SELECT 1 FROM other))", "FROM s.walk(1)"):
        with pytest.raises(InputError):
            rules.judge(serialized(refused))


@pytest.mark.parametrize(
    "node",
    [
        {"type": "LATER_NODE"},
        {"class": "LATER_CLASS", "type": "COLUMN_REF"},
        {"class": None, "type": "SELECT_NODE"},
        {"type": "BASE_TABLE"},
        {"type": "TABLE_FUNCTION", "function": {"class": "FUNCTION", "function_name": "read_text"}},
        {"type": "BASE_TABLE", "table_name": "facts", "qualified_name": {"path": ["other", "facts"]}},
        {"class": "FUNCTION", "function_name": "upper", "qualified_name": {"path": ["query"]}},
        {"class": "FUNCTION", "function_name": None},
    ],
)
def test_an_unknown_node_is_refused(node: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RULES.judge(json.dumps({"error": False, "statements": [{"node": {"deep": [[node]]}}]}))


def test_a_tree_that_is_too_deep_is_refused() -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        RULES.judge('{"error": false, "statements": ' + "[" * 200_000 + "]" * 200_000 + "}")


def test_allowed_functions_are_deterministic_and_read_no_files() -> None:
    found = connect().execute("SELECT function_name, function_type, stability FROM duckdb_functions()").fetchall()
    unsteady = {name for name, _, stability in found if stability not in {None, "CONSISTENT"}}
    assert len(unsteady) > 20
    assert not unsteady & sql_guard._FUNCTIONS
    tables = {name for name, kind, _ in found if kind in {"table", "table_macro", "pragma"}}
    # These are functions of values too.
    assert tables & sql_guard._FUNCTIONS == {"generate_series", "range", "unnest", "repeat", "histogram"}

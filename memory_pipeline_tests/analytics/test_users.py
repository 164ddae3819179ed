"""Marts name users and groups beside their agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import run
from memory_pipeline_tests.users import GROUP, HOMES, write_users

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

IDENTITIES = ["", "group:team", *(f"user:{user}" for user in HOMES)]


@pytest.fixture(scope="module")
def warehouse(shared_folder: SharedFolder, models: Models) -> Warehouse:
    """The warehouse of a lake with users. It is only read."""
    folder = shared_folder("analytics-users", lambda path: run(write_users(str(path)), models))
    return Warehouse(Lake(str(folder)))


@pytest.mark.parametrize("mart", ["memory_by_period", "memory_growth"])
def test_memory_is_counted_by_user(warehouse: Warehouse, mart: str) -> None:
    rows = [row for row in warehouse.query(mart).to_pylist() if row["grain"] == "daily"]
    assert sorted((row["identity"], row["rows"]) for row in rows) == [(identity, 1) for identity in IDENTITIES]


def test_durable_memories_are_counted_by_user(warehouse: Warehouse) -> None:
    counts = warehouse.query("memory_inventory").to_pylist()
    changes = warehouse.query("memory_changes").to_pylist()
    for rows in (counts, changes):
        assert {row["identity"] for row in rows} >= {f"user:{user}" for user in HOMES}


def test_every_user_and_group_has_a_row_of_its_activity(warehouse: Warehouse) -> None:
    rows = {row["identity"]: row for row in warehouse.query("user_activity").to_pylist()}
    assert list(rows) == IDENTITIES
    assert [row["user_id"] for row in rows.values()] == [None, None, *HOMES]
    assert rows["group:team"]["users"] == list(GROUP)
    assert [row["users"] for row in rows.values() if row["identity"] != "group:team"] == [[]] * 4
    for row in rows.values():
        assert (row["messages"], row["summaries"], row["calls"], row["cost_usd"]) == (1, 5, 0, 0.0)
        assert (row["memories"] > 0) == (row["user_id"] is not None)
        assert row["first_at"] <= row["last_at"]


def test_each_user_with_material_must_have_a_summary(warehouse: Warehouse) -> None:
    [day] = [row for row in warehouse.query("coverage").to_pylist() if row["grain"] == "daily"]
    assert (day["agents_with_material"], day["agents_with_summary"], day["share_covered"]) == (5, 5, 1.0)


def test_all_tests_pass_on_a_lake_with_users(warehouse: Warehouse) -> None:
    assert {model.name: warehouse.query(model.name).num_rows for model in models_of("tests")} == {
        model.name: 0 for model in models_of("tests")
    }


def test_the_ledger_counts_agents_not_users(warehouse: Warehouse) -> None:
    assert {row["agents"] for row in warehouse.query("stg_ledger").to_pylist() if row["rows"]} == {1}

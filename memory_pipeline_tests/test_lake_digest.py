"""The digest of a lake depends on its contents, not on how it was built."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, LEDGER
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import ACME, NOW, START, conversation, run, write
from memory_pipeline_tests.lake_digest import differing, digest_of_rows, lake_digest

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

SALES = Scope("acme", "sales")
TALKS = [
    conversation("I moved to Porto.", "I like figs."),
    conversation("I am allergic to nuts.", at="2024-01-16T09:00", scope=SALES, conversation_id="c2"),
]


@pytest.fixture
def folder(shared_folder: SharedFolder, models: Models) -> Path:
    """Where a lake of two agents lies, made in one go; tests only read it, or copy it."""

    def fill(folder: Path) -> None:
        write(Lake(str(folder)), *TALKS)
        run(Lake(str(folder)), models)

    return shared_folder("lake-digest", fill)


@pytest.fixture
def made(folder: Path) -> Lake:
    return Lake(str(folder))


@pytest.fixture
def other(folder: Path, root: str) -> Lake:
    """A copy of the lake, to be changed."""
    shutil.copytree(folder, root)
    return Lake(root)


def test_a_digest_names_tables_and_index_tables_with_their_rows(made: Lake) -> None:
    found = lake_digest(made)
    assert {name for name in found if name.startswith("index/")} == {
        f"index/acme/{agent}/{grain}" for agent in ("sales", "support") for grain in Grain
    }
    assert found["tables/messages"].startswith("3 ")
    assert not [name for name in found if name.startswith("journal/")]


def test_equal_lakes_built_differently_have_the_same_digest(made: Lake, tmp_path: Path, models: Models) -> None:
    other = Lake(str(tmp_path / "other"))
    # In another order and other files, one run after the other, and some of it twice.
    for talk in (TALKS[1], TALKS[0], TALKS[1]):
        write(other, talk)
        run(other, models)
    assert lake_digest(other).keys() == lake_digest(made).keys()
    assert differing(lake_digest(made), lake_digest(other)) == []


def test_an_empty_period_in_the_ledger_is_no_difference(made: Lake, other: Lake, models: Models) -> None:
    silent = Period.containing(Grain.DAILY, START)
    list(materialize(other, models, Grain.DAILY, [silent]))
    assert other.tables.read(LEDGER).num_rows > made.tables.read(LEDGER).num_rows
    assert differing(lake_digest(made), lake_digest(other)) == []


def test_pending_records_are_compared_across_file_boundaries(tmp_path: Path) -> None:
    once, twice = (Lake(str(tmp_path / name)) for name in ("once", "twice"))
    write(once, conversation("One.", "Two."))
    write(twice, conversation("One.", "Two."), now=NOW + timedelta(hours=1))
    assert lake_digest(once) == lake_digest(twice)
    assert list(lake_digest(once)) == ["journal/pending/acme/support"]
    write(twice, conversation("Three.", conversation_id="c3"))
    assert [line.split(":")[0] for line in differing(lake_digest(once), lake_digest(twice))] == [
        "journal/pending/acme/support"
    ]


def test_a_missing_row_of_a_table_or_index_is_reported(made: Lake, other: Lake) -> None:
    facts = other.tables.read(FACTS, ["2024-01-15T08"])
    other.tables.replace(FACTS, ["2024-01-15T08"], facts.slice(1))
    other.index.delete(f"scope = '{SALES.key}'")
    told = {line.split(":")[0] for line in differing(lake_digest(made), lake_digest(other))}
    assert told == {"tables/facts", *(f"index/acme/sales/{grain}" for grain in Grain)}
    assert lake_digest(made)["tables/messages"] == lake_digest(other)["tables/messages"]
    assert ACME != SALES


def test_the_digest_of_rows_ignores_order_and_chunks() -> None:
    rows = pa.table({"id": ["a", "b"], "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32())), "n": [1, None]})
    turned = pa.concat_tables([rows.slice(1), rows.slice(0, 1)])
    assert digest_of_rows(rows) == digest_of_rows(turned)
    for name, values in (("id", ["a", "c"]), ("vector", [[1.0, 2.5], None]), ("n", [1, 0])):
        column = pa.array(values, rows[name].type)
        changed = rows.set_column(rows.column_names.index(name), name, column)
        assert digest_of_rows(changed) != digest_of_rows(rows), name
    assert digest_of_rows(rows, {"id"}) == digest_of_rows(rows.set_column(0, "id", pa.array(["x", "y"])), {"id"})

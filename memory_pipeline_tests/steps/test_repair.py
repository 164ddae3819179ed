"""Repair finds damage, rebuilds derived rows, and reports what is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import (
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    LEDGER,
    MEMORY_EVENTS,
    MESSAGES,
    OPERATIONS,
    SUMMARIES,
    TABLES,
)
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.repair import find_damage, repair
from memory_pipeline.steps.small_files import Damage
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import NOW, START, conversation, run, write
from memory_pipeline_tests.damaging import damage, file_of
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
DERIVED = (FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, CONSOLIDATION, CONSOLIDATION_EVENTS, LEDGER)


def mended_in_turn(specs: Sequence[TableSpec], *kinds: str) -> list[Any]:
    """Return groups of tables, and kinds of damage: all are detected in each table, the last one is repaired.

    The usual run has two groups of neighbouring tables, whose damage is repaired together. The thorough run repairs
    each kind of damage of each table alone.
    """
    if IS_THOROUGH:
        return [([spec], order) for spec in specs for order in (kinds, kinds[::-1])]
    half = len(specs) // 2
    return [(specs[:half], kinds), (specs[half:], kinds[::-1])]


@pytest.fixture(scope="module")
def sound(shared_folder: SharedFolder, models: Models) -> Lake:
    """An intact lake, for comparison."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, conversation("I moved to Porto.", "Remind me to water the plants on Mondays."))
        write(lake, conversation("I like tea.", at="2024-01-16T08:00", conversation_id="c2"))
        write(lake, conversation("I moved to Oslo.", at="2024-01-16T08:00", scope=OTHER))
        make_all(lake, models)

    return Lake(str(shared_folder("sound", fill)))


@pytest.fixture(scope="module")
def expected(sound: Lake) -> dict[str, str]:
    """The digests of `sound`."""
    return lake_digest(sound)


@pytest.fixture
def lake(sound: Lake, tmp_path: Path) -> Lake:
    return Lake(str(shutil.copytree(sound.storage.uri, tmp_path / "lake")))


def make_all(lake: Lake, models: Models) -> None:
    run(lake, models)
    consolidate(lake, models, pending_days(lake, START, NOW), START)


def mended(lake: Lake, models: Models, found: list[Damage] | None = None) -> Lake:
    """Repair a lake, run all pending periods, and reopen it."""
    repair(lake, models, find_damage(lake) if found is None else found)
    make_all(lake, models)
    return Lake(lake.storage.uri)


def log_of(lake: Lake, spec: TableSpec) -> Path:
    """Return the newest commit of a table."""
    return max(Path(lake.storage.uri, "tables", spec.name, "_delta_log").glob("*.json"))


def test_an_intact_lake_has_no_damage(sound: Lake) -> None:
    assert find_damage(sound) == []


# Detection depends on the kind of damage, repair on the table. So each kind is detected in each table alone.


@pytest.mark.parametrize(
    ("specs", "kinds"),
    mended_in_turn(
        (FACTS, CONSOLIDATION, OPERATIONS, LEDGER, GRAPH_OPERATIONS, MEMORY_EVENTS, GRAPH_FACTS, CONSOLIDATION_EVENTS),
        "cut",
        "missing",
    ),
)
def test_derived_tables_are_rebuilt(
    lake: Lake, expected: dict[str, str], models: Models, specs: Sequence[TableSpec], kinds: Sequence[str]
) -> None:
    paths = {spec: file_of(lake, spec) for spec in specs}
    for spec, path in paths.items():
        whole = path.read_bytes()
        for kind in kinds:
            damage(path, kind)
            name = spec.name if spec.partition_by else path.parent.parent.name.removesuffix(".lance")
            assert [(each.name, each.loss) for each in find_damage(Lake(lake.storage.uri))] == [(name, "")], kind
            path.write_bytes(whole)
    for path in paths.values():
        damage(path, kinds[-1])
    again = mended(Lake(lake.storage.uri), models)
    assert find_damage(again) == []
    assert differing(expected, lake_digest(again)) == []


@pytest.mark.parametrize(
    ("specs", "kinds"),
    mended_in_turn(
        (MESSAGES, MEMORY_EVENTS, CONSOLIDATION, CONSOLIDATION_EVENTS, SUMMARIES, FACTS, GRAPH_OPERATIONS, LEDGER),
        "cut",
        "empty",
    ),
)
def test_tables_with_a_damaged_log_are_rebuilt(
    lake: Lake, expected: dict[str, str], models: Models, specs: Sequence[TableSpec], kinds: Sequence[str]
) -> None:
    paths = {spec: log_of(lake, spec) for spec in specs}
    for spec, path in paths.items():
        whole = path.read_bytes()
        for kind in kinds:
            damage(path, kind)
            found = find_damage(Lake(lake.storage.uri))
            assert [(each.kind, each.name, each.loss) for each in found] == [("log", spec.name, "")], kind
            path.write_bytes(whole)
    for path in paths.values():
        damage(path, kinds[-1])
    again = mended(Lake(lake.storage.uri), models)
    assert find_damage(again) == []
    assert differing(expected, lake_digest(again)) == []


def test_messages_are_restored_when_the_newest_commit_is_missing(
    lake: Lake, expected: dict[str, str], models: Models
) -> None:
    log_of(lake, MESSAGES).unlink()
    again = mended(Lake(lake.storage.uri), models)
    assert differing(expected, lake_digest(again)) == []


def test_damage_of_all_tables_is_repaired_together(lake: Lake, expected: dict[str, str], models: Models) -> None:
    for spec in DERIVED:
        for path in Path(lake.storage.uri, "tables", spec.name).rglob("*.parquet"):
            damage(path, "cut")
    shutil.rmtree(Path(lake.storage.uri, "projections"))
    for grain in ("daily", "monthly"):
        damage(file_of(lake, SUMMARIES, grain=grain), "empty")
    again = mended(Lake(lake.storage.uri), models)
    assert differing(expected, lake_digest(again)) == []
    assert find_damage(again) == []


def test_lost_messages_are_reported_and_left_unchanged(lake: Lake, models: Models) -> None:
    path = file_of(lake, MESSAGES, "2024-01-15T08")
    whole = path.read_bytes()
    damage(path, "cut")
    damage(file_of(lake, FACTS, "2024-01-16T08"), "cut")
    before = lake.tables.read(FACTS, ["2024-01-15T08"])
    repair(lake, models, find_damage(lake))
    [left] = find_damage(lake)
    assert left.loss.startswith("2 ")
    assert left.path in str(path)
    assert lake.tables.read(FACTS, ["2024-01-15T08"]) == before
    path.write_bytes(whole)
    assert find_damage(lake) == []


def test_lost_rows_added_by_an_agent_are_reported_and_left_unchanged(lake: Lake, models: Models) -> None:
    writer = MemoryWriter(lake, OTHER)
    writer.graph.insert("Porto", "located_in", "Portugal", now=NOW)
    make_all(lake, models)
    edited = hour_of(NOW).key
    damage(file_of(lake, GRAPH_OPERATIONS, edited), "cut")
    damage(file_of(lake, GRAPH_OPERATIONS, "2024-01-16T08"), "cut")
    repair(lake, models, find_damage(lake))
    [left] = find_damage(lake)
    assert left.key == edited
    assert left.loss.startswith("1 of 1 ")
    # Its rows are still known by scope.
    assert "Portugal" in lake.graph_rows.scan(["target"])["target"].to_pylist()


def test_tables_that_were_never_written_are_not_damaged(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "new"))
    lake.ensure()
    assert find_damage(lake) == []
    assert len(TABLES) > len(DERIVED)

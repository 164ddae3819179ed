"""Reads report lost, damaged and outdated tables of projections, and runs rebuild them."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancedb
import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index import projection
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.repair import find_damage
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline_tests.building import ACME, NOW, conversation, hours, run, write
from memory_pipeline_tests.index_rows import index_folder
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder


DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def sound(shared_folder: SharedFolder, models: Models) -> Lake:
    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, conversation("I moved to Porto."), conversation("I like tea.", at="2024-01-16T08:00"))
        run(lake, models)

    return Lake(str(shared_folder("indexed", fill)))


@pytest.fixture
def folder(sound: Lake, tmp_path: Path) -> Path:
    """The folder of an agent's index table, in a copy of the lake."""
    root = shutil.copytree(sound.storage.uri, tmp_path / "lake")
    return index_folder(root, ACME)


def found(lake: Lake, scope: Scope, models: Models) -> Any:
    reader = MemoryReader(lake, scope, models.embedder)
    return reader.search_memory(maximum_days_ago=10_000, query="Porto", now=NOW)


def test_a_damaged_index_table_does_not_stop_housekeeping(folder: Path) -> None:
    for manifest in folder.glob("_versions/*.manifest"):
        manifest.write_bytes(b"")
    assert Lake(str(folder.parents[1])).index.compact() == (0, 0)


def empty(files: str) -> Callable[[Path], None]:
    def emptied(folder: Path) -> None:
        for path in folder.glob(files):
            path.write_bytes(b"")

    return emptied


@pytest.mark.parametrize("spoil", [shutil.rmtree, empty("_versions/*.manifest")], ids=["deleted", "emptied"])
def test_a_search_reports_a_lost_index_and_a_run_rebuilds_it(
    folder: Path, sound: Lake, models: Models, spoil: Callable[[Path], None]
) -> None:
    assert restore_projections(Lake(str(folder.parents[1])), models.embedder) == []
    spoil(folder)
    lake = Lake(str(folder.parents[1]))
    with pytest.raises(DamagedError, match=folder.name):
        found(lake, ACME, models)
    assert restore_projections(lake, models.embedder) == [folder.stem]
    assert differing(lake_digest(sound), lake_digest(lake)) == []
    assert found(lake, ACME, models)
    assert restore_projections(lake, models.embedder) == []


@pytest.mark.parametrize(
    "spoil",
    [shutil.rmtree, empty("data/*"), lambda folder: shutil.rmtree(folder / "data")],
    ids=["deleted", "without bytes", "without files"],
)
def test_recomputing_one_hour_restores_the_rows_of_all(
    folder: Path, sound: Lake, models: Models, spoil: Callable[[Path], None]
) -> None:
    spoil(folder)
    lake = Lake(str(folder.parents[1]))
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert differing(lake_digest(sound), lake_digest(lake)) == []


def test_an_agent_without_memory_has_no_lost_index(folder: Path, models: Models) -> None:
    lake = Lake(str(folder.parents[1]))
    assert not found(lake, Scope("acme", "nobody"), models)


def test_a_removed_agent_has_no_lost_index(folder: Path, models: Models) -> None:
    lake = Lake(str(folder.parents[1]))
    lake.index.delete(f"scope = '{ACME.key}'")
    assert lake.index.count(ACME, Grain.WORKING) == 0
    assert restore_projections(lake, models.embedder) == []


def test_tables_that_another_process_has_emptied_are_not_lost(
    root: str, models: Models, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory(root, user_id="anna")
    memory.add("I moved to Porto.", now=NOW)
    memory.run(now=NOW + 2 * DAY)
    forget(Lake(root), models, Subject.user("default", "anna"), NOW + 3 * DAY)
    memory.add("I moved to Faro.", now=NOW + 4 * DAY)
    memory.run(now=NOW + 6 * DAY)
    assert "rebuilding" not in caplog.text
    assert memory.search("Faro", now=NOW + 7 * DAY)


def with_another_column(table: Any) -> None:
    table.drop_columns([[name for name in table.schema.names if name not in projection.ADDED][-2]])


def with_an_unknown_column(table: Any) -> None:
    table.add_columns({"later": "cast(NULL as string)"})


@pytest.mark.parametrize("change", [with_another_column, with_an_unknown_column, None])
def test_tables_of_another_version_are_named_and_a_run_rebuilds_them(
    folder: Path, sound: Lake, models: Models, change: Callable[[Any], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder.parents[1]
    if change is None:  # the rows of the same columns are made differently
        monkeypatch.setattr(projection, "VERSION", 2)
    else:
        for path in root.glob("projections/*.lance"):
            change(lancedb.connect(path.parent).open_table(path.stem))
    lake = Lake(str(root))
    tables = sorted(path.stem for path in root.glob("projections/*.lance"))
    every = [lake.index, *lake.projections.values()]
    for rows in every:
        with pytest.raises(DamagedError, match=r"another version of memory-pipeline; run `memory-pipeline run`"):
            rows.open(ACME)
    with pytest.raises(DamagedError, match="another version"):
        found(lake, ACME, models)
    assert sorted(damage.name for damage in find_damage(lake)) == tables
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    memory = Memory(str(copy), workspace_id=ACME.workspace_id, agent_id=ACME.agent_id)
    assert memory.search("Porto", now=NOW), "a reader that may write rebuilds them"
    assert find_damage(Lake(str(copy))) == []
    assert sorted(restore_projections(lake, models.embedder)) == tables
    assert find_damage(lake) == []
    assert differing(lake_digest(sound), lake_digest(lake)) == []
    assert found(lake, ACME, models)

"""Every kind of damage to every kind of file is seen, and `repair` heals it or names what is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_pipeline.lake import Lake
from memory_pipeline.steps.repair import find_damage
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.harnesses.damaged_lakes import KINDS, NOW, build, facts_of, outcome, repaired, targets
from memory_pipeline_tests.invoking import call

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

AT = ["--now", NOW.isoformat()]
#: Files whose absence is no damage: a write that never happened leaves none either, or they only speed up reads.
MAY_BE_ABSENT = ("journal", "grant", "quarantine", "answer", "sessions", "saved", "configuration", "hint", "roster")
SEEN = [
    ("journal file", "emptied"), ("journal file", "cut"), ("grant", "emptied"), ("grant", "bit in the middle"),
    ("member of a group", "garbage"), ("group of a user", "deleted"), ("quarantine", "cut"),
    ("model answer, pending", "zeroed"), ("sessions.db", "emptied"), ("sessions.db", "zeroed"),
    ("saved session", "cut"), ("embedder", "emptied"), ("owner of a collection", "garbage"),
    ("configuration", "emptied"), ("data of index", "zeroed"), ("index of graph", "zeroed"),
    ("data of collection", "zeroed"), ("manifest of collection", "zeroed"), ("manifest of graph", "zeroed"),
    ("manifest of events", "emptied"),
]  # fmt: skip
#: The files of a group are damaged together.
GROUPS = len(SEEN) if IS_THOROUGH else 4


@pytest.fixture(scope="module")
def sound(shared_folder: SharedFolder) -> Path:
    """A lake with every kind of file."""

    def fill(path: Path) -> None:
        path.mkdir()
        build(path / "lake")

    return shared_folder("every_kind_of_file", fill) / "lake"


def test_a_sound_lake_has_no_damage(sound: Path) -> None:
    assert find_damage(Lake(str(sound))) == []


@pytest.mark.parametrize("damages", [SEEN[place::GROUPS] for place in range(GROUPS)])
def test_damage_is_seen_and_its_file_is_named(sound: Path, tmp_path: Path, damages: list[tuple[str, str]]) -> None:
    root = shutil.copytree(sound, tmp_path / "lake")
    paths = {str(targets(sound)[target]): kind for target, kind in damages}
    for path, kind in paths.items():
        KINDS[kind](root / path, root / path)
    named = [damage.path for damage in find_damage(Lake(str(root)))]
    assert len(named) == len(damages)
    assert [path for path in paths if not any(path.startswith(name) for name in named)] == []


def test_a_changed_value_in_a_table_of_events_is_seen(sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "lake")
    path = targets(root)["table memory_events"]
    rows = pq.ParquetFile(root / path).read()
    place = rows.schema.get_field_index("changes")
    changed = [text.replace("o", "k", 1) for text in rows["changes"].to_pylist()]
    pq.write_table(rows.set_column(place, "changes", pa.array(changed, rows.schema.field(place).type)), root / path)
    assert [damage.path for damage in find_damage(Lake(str(root)))] == [str(path)]


def test_what_can_be_made_again_is_healed_together(sound: Path, tmp_path: Path) -> None:
    root, whole = (shutil.copytree(sound, tmp_path / name) for name in ("lake", "whole"))
    for target in ("member of a group", "embedder", "data of index", "index of graph", "data of events", "table facts"):
        KINDS["zeroed"](root / targets(root)[target], root)
    for each in (root, whole):
        assert call("repair", *AT, "--root", str(each)).exit_code == 0
        assert find_damage(Lake(str(each))) == []
    assert facts_of(root) == facts_of(whole)


def test_what_is_lost_is_named_once_and_the_lake_goes_on(sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "lake")
    lost = [targets(root)[target] for target in ("journal file", "quarantine", "sessions.db", "saved session")]
    for path in lost:
        KINDS["emptied"](root / path, root)
    done = call("repair", *AT, "--root", str(root))
    assert done.exit_code == 1
    assert all(str(path) in done.output for path in lost)
    assert call("repair", *AT, "--root", str(root)).exit_code == 0
    assert any(str(lost[0]) in rejection.where for rejection in Lake(str(root)).journal.quarantined())


@pytest.mark.skipif(not IS_THOROUGH, reason="takes hours")
@pytest.mark.parametrize("kind", KINDS)
def test_check_sees_and_repair_heals_or_names_all_kinds(sound: Path, tmp_path: Path, kind: str) -> None:
    whole = shutil.copytree(sound, tmp_path / "whole")
    expected = repaired(whole)["reads"]
    for number, (target, path) in enumerate(targets(sound).items()):
        if kind == "deleted" and target.startswith(MAY_BE_ABSENT):
            continue
        found = outcome(sound, expected, path, kind, tmp_path / str(number))
        assert found.word in ("healed", "named", "named, and goes on", "nothing lost"), (target, found)

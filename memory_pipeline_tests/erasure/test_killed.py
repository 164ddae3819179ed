"""An erasure that is killed is noticed, and is finished by a run or by the same command."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.erasure import Tombstone
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import ErasureReport, forget
from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.lance_tables import Databases
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.lake.tables.tombstones import Tombstones
from memory_pipeline.steps.repair import find_damage
from memory_pipeline_tests.building import ACME, PROCESSES, conversation, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.erasure.lakes import EARLY, assert_verified
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

MILO = Subject.person("acme", ["Milo"])
#: What an erasure does to a lake. A killed process has done only the first of these.
CHANGES: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (Storage, ("write", "create", "delete", "remove")),
    (Tables, ("transform", "drop_rows", "purge", "purge_path")),
    (Marts, ("replace",)),
    (Databases, ("edit", "commit", "drop")),
    (Tombstones, ("put",)),
)
#: The parts of the changes after which it is killed.
PARTS = [number / 20 for number in range(20)] if IS_THOROUGH else [0.0, 0.55, 0.97]


@pytest.fixture(scope="module")
def whole(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake with marts."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, conversation("I moved to Porto.", "My dog is called Bruno.", name="Milo"))
        write(
            lake, conversation("I met Milo.", "I like figs.", name="Dora", conversation_id="c2", at="2024-01-16T08:00")
        )
        list(run_all(lake, models, EARLY))

    return shared_folder("killed-whole", fill)


def erase(root: str, most: int, done: Any = None) -> None:
    """Erase Milo. Kill this process at a change of the lake, or report the number of changes."""
    from memory_pipeline.models.factory import default_models

    count = 0

    def counted(kind: type[Any], name: str) -> None:
        change = getattr(kind, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > most:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **named)

        setattr(kind, name, counting)

    for kind, names in CHANGES:
        for name in names:
            counted(kind, name)
    forget(Lake(root), default_models(), MILO, EARLY)
    if done is not None:
        done.put(count)


@pytest.fixture(scope="module")
def changes(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of changes of a whole erasure."""
    root, queue = tmp_path_factory.mktemp("counting") / "lake", PROCESSES.Queue()
    shutil.copytree(whole, root)
    process = PROCESSES.Process(target=erase, args=(str(root), 1_000_000, queue))
    process.start()
    count: int = queue.get(timeout=600)
    process.join()
    return count


@pytest.mark.parametrize("part", PARTS)
def test_an_erasure_killed_anywhere_is_noticed_and_finished(
    whole: Path, changes: int, tmp_path: Path, models: Models, part: float
) -> None:
    root = str(shutil.copytree(whole, tmp_path / "lake"))
    process = PROCESSES.Process(target=erase, args=(root, 1 + int(part * changes)))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    lake = Lake(root)
    [check] = [check for check in checks_of("messages") if check.name == "erasures"]
    assert [one.is_error for one in run_checks(CheckContext(lake, EARLY), [check])] == [True]
    assert {one.kind for one in find_damage(lake)} == {"erasure"}
    again = str(shutil.copytree(root, tmp_path / "again"))
    list(run_all(lake, models, EARLY))
    finished = tuple(one.id for one in lake.tombstones.all())
    by_run = ErasureReport(MILO, EARLY, root, finished, (), {}, (), "0" * 32, (), 0, 0)
    for each, receipt in ((lake, by_run), (Lake(again), forget(Lake(again), models, MILO, EARLY))):
        assert unfinished_erasures(each.storage, each.tombstones) == []
        assert find_damage(each) == []
        assert_verified(each, receipt)


def test_a_tombstone_of_an_erasure_that_no_run_can_finish_is_an_error(
    whole: Path, tmp_path: Path, models: Models
) -> None:
    """Versions before this one noted no subject."""
    lake = Lake(str(shutil.copytree(whole, tmp_path / "lake")))
    lake.tombstones.put(Tombstone.of(MILO, EARLY, "0" * 32))
    with pytest.raises(LakeError, match="memory-pipeline forget"):
        list(run_all(lake, models, EARLY))
    forget(lake, models, MILO, EARLY)
    list(run_all(lake, models, EARLY))


def test_the_same_command_works_after_a_kill_and_leaves_no_receipt_but_that_of_success(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, receipt = str(shutil.copytree(whole, tmp_path / "lake")), tmp_path / "receipt.json"
    command = ("forget", "--root", root, "--workspace", "acme", "--person", "Milo", "--yes", "--receipt", str(receipt))
    receipt.touch()  # of a process that was killed
    with monkeypatch.context() as patch:
        patch.setattr(Marts, "replace", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            call(*command)
    assert call("check", "--root", root, "--asset", "messages").exit_code == 1
    dry = call("repair", "--root", root, "--dry-run")
    assert (dry.exit_code, "erasure" in dry.output) == (1, True)
    assert not receipt.read_bytes()
    read(*command)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["receipt.json"]
    assert call("verify-erasure", str(receipt)).exit_code == 0
    assert "exists" in str(call(*command).exception)


def test_indices_that_no_version_reads_are_deleted_by_an_erasure_and_later_ones_are_no_remnant(
    whole: Path, tmp_path: Path, models: Models
) -> None:
    lake = Lake(str(shutil.copytree(whole, tmp_path / "lake")))

    def leave_index() -> Path:
        """Leave a file of an index that no version of its table lists."""
        table = next(Path(lake.storage.uri, "projections").glob("index-*.lance"))
        path = table / "_indices" / str(uuid4()) / "page_data.lance"
        path.parent.mkdir(parents=True)
        path.write_bytes(ACME.key.encode())
        return path

    before = leave_index()
    receipt = forget(lake, models, MILO, EARLY)
    assert not before.exists()
    assert_verified(lake, receipt)
    leave_index()
    assert_verified(lake, receipt)

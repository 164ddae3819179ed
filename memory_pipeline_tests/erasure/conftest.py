"""Lakes that are built once for all workers. Tests that write copy them."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import ErasureReport, forget
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.erasure.lakes import ANNA, EARLY, END, SALES, built

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

#: The subjects to forget in order, and the name of the lake after each.
FORGOTTEN = {"person": ANNA, "conversation": Subject.conversation(ACME, "c4"), "agent": Subject.agent(SALES)}


@pytest.fixture(scope="session")
def original(shared_folder: SharedFolder, models: Models) -> Path:
    """A complete lake with all grains, for reading only."""
    return shared_folder("erasure-original", lambda path: built(Lake(str(path)), models))


@pytest.fixture(scope="session")
def early_once(shared_folder: SharedFolder, models: Models) -> Path:
    return shared_folder("erasure-early", lambda path: built(Lake(str(path)), models, now=EARLY))


@pytest.fixture
def lake(early_once: Path, tmp_path: Path) -> Lake:
    """A writable copy of a complete lake with hours, days and consolidation."""
    return Lake(str(shutil.copytree(early_once, tmp_path / "lake")))


@dataclass(frozen=True)
class Erased:
    """A lake from which a person, then a conversation and then an agent were erased, and their receipts.

    Attributes:
        folder: the lake as it is at the end.
        stages: the lake before anybody was forgotten, and after each of them.
    """

    folder: Path
    stages: dict[str, Path]
    person: ErasureReport
    conversation: ErasureReport
    agent: ErasureReport


@pytest.fixture(scope="session")
def erased_once(original: Path, shared_folder: SharedFolder, models: Models) -> Erased:
    """All of it is only read."""

    def fill(path: Path) -> None:
        lake = Lake(str(shutil.copytree(original, path / "lake")))
        receipts = {}
        for name, subject in FORGOTTEN.items():
            receipts[name] = forget(lake, models, subject, END)
            shutil.copytree(path / "lake", path / name)
        (path / "receipts").write_bytes(pickle.dumps(receipts))

    folder = shared_folder("erasure-erased", fill)
    receipts: dict[str, ErasureReport] = pickle.loads((folder / "receipts").read_bytes())
    stages = {"original": original} | {name: folder / name for name in FORGOTTEN}
    return Erased(folder / "agent", stages, **receipts)


@pytest.fixture
def erased(erased_once: Erased, tmp_path: Path) -> Erased:
    """Return a copy, in which a test may leave what it likes."""
    return replace(erased_once, folder=shutil.copytree(erased_once.folder, tmp_path / "erased"))

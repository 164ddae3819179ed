"""A lake without faults, built once. Each test copies it and plants a fault."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline_tests.building import ACME, NOW, START, conversation, run, write

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
TALKS = [
    conversation("I moved to Porto.", "My dog is called Bruno."),
    conversation("Bruno ate my passport.", at="2024-01-15T11:00", conversation_id="c2"),
    conversation("I will fly to Oslo in March.", at="2024-02-20T09:00", conversation_id="c3"),
    conversation("The contract is worth 9,000 euros.", at="2024-02-20T09:00", conversation_id="c4", scope=OTHER),
]
assert TALKS[0]["workspace_id"] == ACME.workspace_id


@pytest.fixture(scope="session")
def made(shared_folder: SharedFolder, models: Models) -> Path:
    """A folder with a complete lake of two agents."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, *TALKS)
        run(lake, models)
        consolidate(lake, models, pending_days(lake, START, NOW), START)

    return shared_folder("checked", fill)


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    """A writable copy of the lake without its index, which has many files."""
    return Lake(str(shutil.copytree(made, tmp_path / "lake", ignore=shutil.ignore_patterns("index-*"))))


@pytest.fixture
def indexed(made: Path, lake: Lake) -> Lake:
    """A writable copy with the index."""
    shutil.copytree(made / "projections", Path(lake.storage.uri) / "projections", dirs_exist_ok=True)
    return lake

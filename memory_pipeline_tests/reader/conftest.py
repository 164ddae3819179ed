"""Lakes for the tests of the reader, built once. Tests only read them; a test that writes copies one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import conversation, run, write
from memory_pipeline_tests.reader.injecting import remember

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder


@pytest.fixture(scope="session")
def walked(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of three messages in two quarters, with summaries of all grains."""

    def fill(folder: Path) -> None:
        lake = Lake(str(folder))
        write(lake, conversation("I moved to Porto.", "My dog is called Bruno.", at="2024-03-12T08:00"))
        write(lake, conversation("Bruno ate my passport.", at="2024-07-02T10:00", conversation_id="c2"))
        run(lake, models)

    return shared_folder("reader-walked", fill)


@pytest.fixture(scope="session")
def injected_from(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of two agents with journal entries and tables, without summaries."""
    return shared_folder("reader-injected-from", lambda folder: remember(str(folder), models))


@pytest.fixture(scope="session")
def injected_with_summaries(shared_folder: SharedFolder, injected_from: Path, models: Models) -> Path:
    """The same lake with all pending partitions materialized."""

    def fill(folder: Path) -> None:
        shutil.copytree(injected_from, folder)
        run(Lake(str(folder)), models)

    return shared_folder("reader-injected-with-summaries", fill)

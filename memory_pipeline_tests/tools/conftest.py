"""A lake that tests of tools read, and never write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.tools.remembering import remember

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a lake that is filled."""
    path: Path = tmp_path_factory.mktemp("remembered") / "lake"
    remember(str(path))
    return str(path)

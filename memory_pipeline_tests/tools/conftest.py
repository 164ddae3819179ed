"""A read-only lake for tests of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.tools.remembering import remember

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder


@pytest.fixture(scope="session")
def remembered(shared_folder: SharedFolder) -> str:
    """The address of a filled lake."""
    return str(shared_folder("tools-remembered", lambda folder: remember(str(folder))))

"""Locations of the lakes of these tests: folders, and S3 for tests marked ``on_s3``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from pathlib import Path


#: Whether all marked tests run on S3, and not only those that always do.
_ON_S3 = IS_THOROUGH or "MEMORY_PIPELINE_TEST_S3" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on_s3(always): run again with the lake on S3, in the thorough run or always")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("on_s3")
    is_due = marker is not None and (_ON_S3 or marker.kwargs.get("always"))
    if "root" in metafunc.fixturenames and is_due:
        metafunc.parametrize("root", ["folder", "s3"], indirect=True)


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a lake that does not exist yet."""
    if getattr(request, "param", "folder") == "folder":
        return str(tmp_path / "lake")
    address: str = request.getfixturevalue("s3_root")
    return address

"""Fixtures that many tests share. What builds conversations and looks into lakes is in `building.py`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from memory_pipeline.lake import Lake
from memory_pipeline.models.selection import Models, default_models
from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Modules that wait for processes of their own, longest first. They start first, as a last one would run alone.
PATIENT = ("ui/test_ui.py", "defs/test_daemon.py", "lifecycle/test_killed.py", "tools/test_mcp.py", "test_readme.py")

# What a machine under load makes of a deadline says nothing of the code; HYPOTHESIS_PROFILE=thorough looks at more.
settings.register_profile("usual", max_examples=50, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts: one more than there are cores, as some of the tests wait."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait longest in front; the others keep their order."""
    ranks = {f"{__package__}/{name}": rank for rank, name in enumerate(PATIENT)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The address of a lake that does not exist yet."""
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Lake:
    return Lake(root)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that speaks S3, one for all tests of a process."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> Iterator[str]:
    """The address of a lake on S3 that does not exist yet; the process finds the server meanwhile."""
    with s3_server.in_environment():
        yield s3_server.new_root()


@pytest.fixture(scope="session")
def models() -> Models:
    return default_models()

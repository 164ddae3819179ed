"""Fixtures that many tests share. What builds conversations and looks into lakes is in `building.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake import Lake
from memory_pipeline.models.selection import Models, default_models
from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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

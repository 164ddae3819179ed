"""Fixtures that many tests share. What builds conversations and looks into lakes is in `building.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake import Lake
from memory_pipeline.models.selection import Models, default_models

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The address of a lake that does not exist yet."""
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Lake:
    return Lake(root)


@pytest.fixture(scope="session")
def models() -> Models:
    return default_models()

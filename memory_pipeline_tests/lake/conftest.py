"""Locations of the lakes of these tests: folders, and also S3 for tests marked ``on_s3``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on_s3: run with the lake in a folder, and again with the lake on S3")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "root" in metafunc.fixturenames and metafunc.definition.get_closest_marker("on_s3") is not None:
        metafunc.parametrize("root", ["folder", "s3"], indirect=True)


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a lake that does not exist yet."""
    if getattr(request, "param", "folder") == "folder":
        return str(tmp_path / "lake")
    address: str = request.getfixturevalue("s3_root")
    return address

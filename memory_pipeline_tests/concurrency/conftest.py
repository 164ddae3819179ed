"""Concurrent processes for all tests, and the lakes that they share: a folder, and a bucket of a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from memory_pipeline_tests.concurrency.rivals import Rivals
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from memory_pipeline_tests.s3_server import S3Server


class Place(NamedTuple):
    """A lake's root, the variables to reach it, and the number of rounds: of single commits, and of several."""

    root: str
    environment: Mapping[str, str]
    rounds: int
    fewer: int


@pytest.fixture(scope="session")
def rivals() -> Iterator[Rivals]:
    with Rivals(8 if IS_THOROUGH else 3) as rivals:
        yield rivals


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A folder, and a bucket."""
    yield from _place(request, tmp_path)


@pytest.fixture(params=["folder", "s3"] if IS_THOROUGH else ["folder"])
def usual_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A folder; in the thorough run also a bucket. For works whose kind of commit is tested on a bucket elsewhere."""
    yield from _place(request, tmp_path)


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(str(tmp_path / "lake"), {}, *((50, 50) if IS_THOROUGH else (6, 3)))
        return
    server: S3Server = request.getfixturevalue("s3_server")
    with server.in_environment():
        yield Place(server.new_root(), server.environment(), *((50, 50) if IS_THOROUGH else (3, 2)))

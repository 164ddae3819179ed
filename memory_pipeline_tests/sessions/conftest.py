"""The databases of session state: a file of SQLite, and a real PostgreSQL server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The address of a server that runs for the tests of one process."""
    if not (shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    from memory_pipeline_tests.harnesses.cluster.services import postgresql, url_of

    with postgresql() as variables:
        yield url_of(variables)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the database of all lakes: a file in each, or one server. Return its name."""
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    if request.param == "postgresql":
        monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", request.getfixturevalue("postgresql_url"))
    return str(request.param)

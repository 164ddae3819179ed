"""Fixtures that many tests share. What builds conversations and looks into lakes is in `building.py`."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, default_models
from memory_pipeline_tests.effort import load_profile
from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    #: Returns a folder of a name; one of the workers calls the function to fill it.
    SharedFolder = Callable[[str, Callable[[Path], object]], Path]

#: Modules that wait for processes of their own, longest first. They start first, as a last one would run alone.
PATIENT = (
    "ui/test_ui.py",
    "defs/test_daemon.py",
    "deployment/test_celery_launcher.py",
    "lifecycle/test_killed.py",
    "tools/test_mcp.py",
    "test_documentation.py",
)
#: Temporary files lie in memory where that many bytes are free: a lake is hundreds of small files, and to make and
#: delete them on a disk takes a third of the processor's time.
_IN_MEMORY, _ROOM = Path("/dev/shm"), 4 * 2**30  # a folder of pytest's own is made there

load_profile()

if (
    "TMPDIR" not in os.environ
    and os.access(_IN_MEMORY, os.W_OK | os.X_OK)
    and shutil.disk_usage(_IN_MEMORY).free >= _ROOM
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts: one more than there are cores, as some of the tests wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let no garbage be collected meanwhile: what is imported and found stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait longest in front; the others keep their order."""
    ranks = {f"{__package__}/{name}": rank for rank, name in enumerate(PATIENT)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector off the imports and the 9,000 tests that it would go through again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let everything be freed: some libraries report what is left at the end as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """Returns a folder that is filled once for all workers: a lake, say, which tests read, or copy to write to it.

    It takes a name that no other folder has, and a function that fills the folder whose path it gets.
    """
    own = tmp_path_factory.getbasetemp()
    folders = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folders.mkdir(exist_ok=True)

    def folder(name: str, fill: Callable[[Path], object]) -> Path:
        with FileLock(folders / f"{name}.lock"):
            if not (folders / name).exists():
                unfinished = folders / f"{name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)  # another worker failed to fill it
                fill(unfinished)
                unfinished.rename(folders / name)
        return folders / name

    return folder


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

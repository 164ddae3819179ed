"""Fixtures that many tests share. Functions that build and read lakes are in `building.py`."""

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
from memory_pipeline_tests import oracle
from memory_pipeline_tests.effort import load_profile
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    #: Returns a folder of a name; one of the workers calls the function to fill it.
    SharedFolder = Callable[[str, Callable[[Path], object]], Path]
    CopiedLake = Callable[[str, Callable[[Path], object]], Lake]

#: Modules that wait for other processes, longest first. They start first, so that none of them runs alone at the end.
PATIENT = (
    "ui/test_ui.py",
    "defs/test_locations.py",
    "deployment/test_celery_launcher.py",
    "clients/test_typescript.py",
    "lifecycle/test_killed.py",
    "tools/test_mcp.py",
    "test_documentation.py",
)
#: Temporary files are in memory if this many bytes are free. A lake has hundreds of small files, and creating and
#: deleting them on a disk takes a third of the CPU time.
_IN_MEMORY, _ROOM = Path("/dev/shm"), 4 * 2**30  # pytest creates its folder there

load_profile()

# Some tests import LiteLLM as users do. It would load .env files into the environment, and download prices.
os.environ |= {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

if (
    "TMPDIR" not in os.environ
    and os.access(_IN_MEMORY, os.W_OK | os.X_OK)
    and shutil.disk_usage(_IN_MEMORY).free >= _ROOM
):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes of `-n auto`: one more than there are cores, because some tests wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection during collection, because imports and tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that wait longest to the front. The others keep their order."""
    ranks = {f"{__package__}/{name}": rank for rank, name in enumerate(PATIENT)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


def pytest_collection_finish() -> None:
    """Freeze imports and the 9,000 tests, so that the garbage collector does not scan them repeatedly."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Unfreeze all objects, because some libraries report objects that remain at exit as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """A function that returns a folder, filled once for all workers. Tests read it, or copy it to write.

    It takes a unique name, and a function that fills the folder at the given path.
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
def copied(shared_folder: SharedFolder, root: str) -> CopiedLake:
    """A function that returns a copy of a lake, at `root`, for tests that write. Arguments as of `shared_folder`."""

    def copy(name: str, fill: Callable[[Path], object]) -> Lake:
        shutil.copytree(shared_folder(name, fill), root)
        return Lake(root)

    return copy


@pytest.fixture
def root(tmp_path: Path) -> str:
    """The address of a lake that does not exist yet."""
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Lake:
    return Lake(root)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server, one for all tests of a process."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> Iterator[str]:
    """The address of a lake on S3 that does not exist yet. The environment names the server during the test."""
    with s3_server.in_environment():
        yield s3_server.new_root()


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A server for models, which answers from the oracle unless a test says otherwise."""
    with OpenAIServer() as server:
        server.answer = oracle.answer
        yield server


@pytest.fixture(scope="session")
def models() -> Models:
    return default_models()

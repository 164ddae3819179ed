"""The wheel in a new environment, with the core alone: it writes and reads, is typed, and names a missing extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import memory_pipeline

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")

CLIENT = '''
"""A client of the package, for strict mypy."""

from memory_pipeline import AsyncMemory, ContextWindow, Memory
from memory_pipeline.errors import MissingExtraError
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter, Receipt


def remember(root: str) -> list[str]:
    memory = Memory(root, user_id="anna")
    receipt: Receipt = memory.add("I moved to Porto.")
    assert receipt.accepted
    return [hit.content for hit in memory.search("Where does Anna live?")]


async def look_up(memory: AsyncMemory) -> str:
    return str(await memory.context("Porto", max_tokens=200))


def full(window: ContextWindow) -> bool:
    return window.is_full


def opened(root: str) -> tuple[MemoryReader, MemoryWriter]:
    try:
        return (
            MemoryReader.open(root, workspace_id="w", agent_id="a"),
            MemoryWriter.open(root, workspace_id="w", agent_id="a"),
        )
    except MissingExtraError as error:
        raise SystemExit(str(error)) from error
'''

CORE = """
import sys
from memory_pipeline import Memory
from memory_pipeline.tools import memory_tools

memory = Memory(sys.argv[1], user_id="anna")
memory.add("I moved to Porto.")
memory.add([{"role": "user", "content": "My sister is Lea."}, {"role": "assistant", "content": "Noted."}])
id = memory.remember("Anna prefers tea.", "preference")
assert "Porto" in memory.search("Where does Anna live?")[0].content
assert "tea" in str(memory.context("What does Anna drink?"))
assert id in [item.id for item in memory.list("memory")]
assert len(memory.history(id)) == 1
assert memory.graph.facts() is not None
assert "Porto" in memory_tools(memory.reader).call("recall_memory", {"query": "Where does Anna live?"})
memory.forget(id)
assert id not in [item.id for item in memory.list("memory")]
"""

MODULES = """
import importlib, json, pkgutil
import memory_pipeline
from memory_pipeline.errors import MissingExtraError

missing = []
for module in pkgutil.walk_packages(memory_pipeline.__path__, "memory_pipeline.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except MissingExtraError:
        pass
    except ImportError as error:
        missing.append(module.name)
print(json.dumps(missing))
"""

FEATURES = """
import importlib, json, sys
from pathlib import Path
from memory_pipeline import Memory
from memory_pipeline.errors import MissingExtraError

def with_models(name, text):
    memory = Memory(f"{sys.argv[1]}/{name}")
    memory.add(["I moved to Porto.", "Porto is on the Douro."])
    Path(f"{sys.argv[1]}/{name}/config").mkdir()
    Path(f"{sys.argv[1]}/{name}/config/workspaces.yaml").write_text(text)
    return Memory(f"{sys.argv[1]}/{name}")

hosted = "defaults: {embedding: {model: openai/text-embedding-3-small, dimension: 1536}}"
reranked = "defaults: {completion: {model: openai/gpt-5-mini}, injection: {rerank: model}}"
local = "defaults: {embedding: {model: fastembed/BAAI/bge-small-en-v1.5, dimension: 384}}"
memory = Memory(f"{sys.argv[1]}/lake", user_id="anna")
memory.add("I moved to Porto.")

features = {
    "a bucket": lambda: Memory("s3://bucket/lake").add("I moved to Porto."),
    "a hosted embedder": lambda: with_models("hosted", hosted).search("Porto"),
    "a hosted reranker": lambda: with_models("reranked", reranked).context("Porto").troubles["rerank"],
    "a local embedder": lambda: with_models("local", local).search("Porto"),
    "Memory.run": lambda: memory.run(),
    "sessions": lambda: Memory(f"{sys.argv[1]}/sessions", user_id="anna").session("s1").store("k", 1),
    "Memory.forget": lambda: memory.forget(everything=True),
    "graph.query": lambda: memory.graph.query("SELECT 1"),
    "checks": lambda: importlib.import_module("memory_pipeline.checks"),
    "charts": lambda: importlib.import_module("memory_pipeline.evaluation.plot").check_plot(Path("chart.svg")),
    "MCP": lambda: importlib.import_module("memory_pipeline.tools.mcp"),
    "LangGraph": lambda: importlib.import_module("memory_pipeline.tools.langgraph"),
    "Dagster": lambda: importlib.import_module("memory_pipeline.definitions"),
    "Celery": lambda: importlib.import_module("memory_pipeline.deployment.celery_launcher"),
}
found = {}
for name, use in features.items():
    try:
        found[name] = str(use())
    except MissingExtraError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


class Installation(NamedTuple):
    """A new environment: its interpreter, and the wheel that was installed."""

    python: Path
    wheel: Path


@pytest.fixture(scope="module")
def installed(shared_folder: SharedFolder) -> Installation:
    assert UV.exists(), f"{UV} is missing; make .venv/.installed installs it"

    def install(folder: Path) -> None:
        run(UV, "build", "--quiet", "--wheel", "--out-dir", folder / "wheels", ROOT)
        # The folder is renamed when it is complete.
        run(UV, "venv", "--quiet", "--relocatable", "--python", sys.executable, folder / "environment")
        wheel = wheel_in(folder)
        python = folder / "environment/bin/python"
        run(
            *(UV, "pip", "install", "--quiet", "--link-mode", "symlink", "--python", python),
            *("--constraint", ROOT / "requirements.lock", wheel),
        )

    folder = shared_folder("installation", install)
    return Installation(folder / "environment/bin/python", wheel_in(folder))


def wheel_in(folder: Path) -> Path:
    [wheel] = (folder / "wheels").glob("*.whl")
    return wheel


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return what a command prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_", "PYTHONPATH"))}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(installed: Installation) -> None:
    package = Path(memory_pipeline.__path__[0])
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(installed.wheel) as wheel:
        packed = set(wheel.namelist())
    assert "memory_pipeline/py.typed" in packed
    assert {name for name in packed if name.startswith("memory_pipeline/")} == files
    assert any(name.startswith("dbt_like_sql/marts/") for name in packed)


def test_the_core_adds_searches_lists_and_remembers(installed: Installation, root: str) -> None:
    run(installed.python, "-c", CORE, root)
    command = installed.python.with_name("memory-pipeline")
    found = run(command, "search", "--root", root, *"--workspace default --agent default --user anna Porto".split())
    assert "I moved to Porto." in found


def test_a_missing_extra_is_named(installed: Installation, tmp_path: Path) -> None:
    extras = {
        "a bucket": "s3",
        "a hosted embedder": "models",
        "a hosted reranker": "models",
        "a local embedder": "local",
        "Memory.run": "run",
        "sessions": "sessions",
        "Memory.forget": "run",
        "graph.query": "run",
        "checks": "run",
        "charts": "plot",
        "MCP": "mcp",
        "LangGraph": "langgraph",
        "Dagster": "pipeline",
        "Celery": "cluster",
    }
    found = json.loads(run(installed.python, "-c", FEATURES, tmp_path))
    assert set(found) == set(extras)
    for name, extra in extras.items():
        assert f'pip install "memory-pipeline[{extra}]"' in found[name], name


def test_every_module_can_be_imported_or_names_its_extra(installed: Installation) -> None:
    """Only `Storage` imports the modules on S3, after it has asked for s3fs. Only Alembic loads migrations.

    The service is imported by its `server`, which asks for FastAPI first, and the explorer by its command.
    """
    missing = json.loads(run(installed.python, "-c", MODULES))
    asked_before = (
        "memory_pipeline.lake.files.s3_",
        "memory_pipeline.sessions.migrations.",
        "memory_pipeline.service.",
        "memory_pipeline.explorer.",
    )
    assert [name for name in missing if not name.startswith(asked_before)] == []


def test_a_command_names_the_extra_it_needs(installed: Installation, root: str) -> None:
    command = installed.python.with_name("memory-pipeline")
    for typed, extra in ((["run", "--root", root], "run"), (["status", "--root", root], "run")):
        done = subprocess.run([str(command), *typed], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f'pip install "memory-pipeline[{extra}]"' in done.stderr


def test_a_client_of_the_installed_package_passes_strict_mypy(installed: Installation, tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT, encoding="utf-8")
    options = f"--strict --cache-dir {os.devnull} --config-file {os.devnull} --python-executable".split()
    # In another folder than the checkout, where mypy would find the package itself.
    run(sys.executable, "-m", "mypy", *options, installed.python, client, cwd=tmp_path)

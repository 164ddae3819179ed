"""Nothing leaves the machine: neither this package nor a dependency reaches beyond loopback unless it is told to."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.lake import Lake
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import conversation
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.refusing_network import RefusingNetwork
from memory_pipeline_tests.ui.deployment import REPOSITORY, prepare_home, running_dagster

if TYPE_CHECKING:
    from pathlib import Path

_LIBRARY = """
import sys
from memory_pipeline import Memory
from memory_pipeline.lake import VectorCollection, VectorItem

memory = Memory(sys.argv[1], user_id="anna")
memory.add("I moved to Porto.", now="2024-01-15T08:00Z")
memory.run(now="2025-01-15T08:00Z")
memory.add("My dog is called Bruno.")
assert memory.search("Where does Anna live?")
assert "Bruno" in str(memory.context("Where does Anna live?", max_tokens=500))
assert memory.graph.query("SELECT count(*) FROM history").rows
VectorCollection.open(sys.argv[1], workspace_id="w", agent_id="a", dimension=2).upsert([VectorItem("a", [1, 0])])
"""
_COMMANDS = """
import json, sys
from memory_pipeline.cli import cli

for arguments in json.loads(sys.argv[1]):
    cli(arguments, standalone_mode=False)
"""
#: Ways to reach another machine; the last one is native code, which only strace sees. TEST-NET-1 answers nobody.
_CONTROLS = {
    "look up": "socket.getaddrinfo('telemetry.dagster.io', 80)",
    "connect": "socket.socket().connect(('192.0.2.1', 9))",
    "connect_ex": "socket.socket().connect_ex(('192.0.2.1', 9))",
    "child": "subprocess.run([sys.executable, '-c', 'import urllib.request as r; r.urlopen(\"http://192.0.2.1:9\")'])",
    "native": "one = _socket.socket(); one.setblocking(False); one.connect_ex(('192.0.2.1', 9))",
}


@pytest.fixture
def network(tmp_path: Path) -> RefusingNetwork:
    return RefusingNetwork(tmp_path / "network")


@pytest.mark.parametrize("way", _CONTROLS)
def test_an_attempt_is_noticed(way: str, network: RefusingNetwork) -> None:
    if way == "native" and not shutil.which("strace"):
        pytest.skip("needs strace")
    network.run([sys.executable, "-c", f"import _socket, socket, subprocess, sys; {_CONTROLS[way]}"], trace=True)
    assert len(network.attempts()) == 1, network.attempts()


def test_the_library_reaches_only_the_models_it_is_given(root: str, network: RefusingNetwork) -> None:
    with OpenAIServer() as server:
        server.answer = oracle.answer
        oracle.configure(Lake(root), server, oracle.EMBEDDING)
        result = network.run([sys.executable, "-c", _LIBRARY, root], trace=True)
        assert result.returncode == 0, result.stderr
        assert server.stats()
    assert network.attempts() == []


def test_commands_reach_nothing(root: str, tmp_path: Path, network: RefusingNetwork) -> None:
    """Also with an instance of Dagster that has no configuration."""
    home = tmp_path / "home"
    home.mkdir()
    said = tmp_path / "said.jsonl"
    said.write_text(json.dumps(conversation("I moved to Porto.")) + "\n")
    agent = ("--root", root, "--workspace", "acme", "--agent", "support")
    commands = [
        ("ingest", "--root", root, str(said)),
        ("run", "--root", root, "--now", "2024-01-16T08:00Z"),
        ("search", *agent, "Who moved?"),
        ("inject", *agent, "Who moved?"),
        ("graph", "query", *agent, "SELECT count(*) FROM facts"),
        ("status", "--root", root),
        ("mcp", *agent),  # ends with its standard input
    ]
    result = network.run([sys.executable, "-c", _COMMANDS, json.dumps(commands)], DAGSTER_HOME=str(home))
    assert result.returncode == 0, result.stderr
    assert network.attempts() == []


@pytest.mark.parametrize("settings", [".env", "dagster.yaml", None] if IS_THOROUGH else [".env"])
def test_web_server_and_daemon_reach_nothing_with_either_setting(
    settings: str | None, root: str, tmp_path: Path, network: RefusingNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without both Dagster sends telemetry, so that this test can fail. `defs/test_locations.py` has `dagster.yaml`."""
    for name, value in network.variables.items():
        monkeypatch.setenv(name, value)
    home, folder = tmp_path / "home", tmp_path / "folder"
    prepare_home(home)
    folder.mkdir()
    shutil.copy(REPOSITORY / "workspace.yaml", folder)
    if settings == ".env":
        shutil.copy(REPOSITORY / ".env", folder)
    if settings != "dagster.yaml":
        (home / "dagster.yaml").unlink()
    with running_dagster(home, root, tmp_path / "dagster.log", folder):
        pass
    found = network.attempts()
    assert (found == []) == (settings is not None), found
    assert all("telemetry.dagster.io" in attempt for attempt in found)

"""Two lakes are code locations of one Dagster: their assets, runs and pools do not mix."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
import yaml
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.run_requests import outcomes_of, run_request, under_way
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.in_process import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.settings import PLANS_RANGES, Settings
from memory_pipeline.steps.results import RunResult
from memory_pipeline.steps.scheduling.request_log import Request
from memory_pipeline_tests.building import NOW, START, conversation, hours, write
from memory_pipeline_tests.refusing_network import RefusingNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.models.factory import Models

DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "dagster.yaml"
#: Seconds, far more than the usual 40: the machine may be busy.
PATIENCE = 240
HOUR = "2024-01-15T08"
#: By location, the times of its messages. Both lakes have the first hour.
TIMES = {"sales": (f"{HOUR}:00",), "support": (f"{HOUR}:30", "2024-01-16T10:00")}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(name: str, home: Path, *command: str, **variables: str) -> Iterator[None]:
    """Run a command in a process group, with its own environment, and kill it afterwards."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MEMORY_PIPELINE_")}
    environment = {**inherited, "DAGSTER_HOME": str(home), PLANS_RANGES: "true", **variables}
    with (home / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=home,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Callable[[], bool], home: Path) -> None:
    started = time.monotonic()
    while not condition():
        if time.monotonic() > started + PATIENCE:
            pytest.fail("\n".join(path.read_text()[-3000:] for path in home.glob("*.log")))
        time.sleep(0.5)


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_one_daemon_computes_the_hours_and_days_of_two_lakes_and_reaches_no_other_machine(tmp_path: Path) -> None:
    network = RefusingNetwork(tmp_path / "network")
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(DEPLOYMENT, home / "dagster.yaml")
    lakes = {name: Lake(str(tmp_path / name)) for name in TIMES}
    for name, lake in lakes.items():
        write(lake, *(conversation("I moved to Porto.", at=at, conversation_id=at[:13]) for at in TIMES[name]))
    ports = {name: free_port() for name in TIMES}
    servers = [
        {"grpc_server": {"host": "localhost", "port": port, "location_name": name}} for name, port in ports.items()
    ]
    workspace = home / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": servers}))

    # Several processes that create the SQLite files at once can fail.
    with dg.DagsterInstance.from_config(str(home)) as instance, ExitStack() as stack:
        for name, port in ports.items():
            command = ("dagster", "code-server", "start", "-m", "memory_pipeline.definitions", "-h", "127.0.0.1")
            variables = {"MEMORY_PIPELINE_ROOT": lakes[name].storage.uri, "MEMORY_PIPELINE_LOCATION": name}
            variables |= network.variables
            stack.enter_context(running(name, home, *command, "-p", str(port), **variables))
        wait_for(lambda: all(map(answers, ports.values())), home)
        stack.enter_context(
            running("daemon", home, "dagster._daemon", "run", "-w", str(workspace), **network.variables)
        )
        entries = {name: lake.ledger for name, lake in lakes.items()}
        wait_for(
            lambda: all(
                {at[:length] for at in TIMES[name]} <= ledger.entries(index_asset(grain)).keys()
                for name, ledger in entries.items()
                for grain, length in ((Grain.WORKING, 13), (Grain.DAILY, 10))
            ),
            home,
        )
        with WorkspaceProcessContext(instance, WorkspaceFileTarget([str(workspace)])) as context:
            keys = {
                location.name: {
                    node.asset_key
                    for repository in location.get_repositories().values()
                    for node in repository.get_asset_node_snaps()
                }
                for location in context.create_request_context().code_locations
            }
        assert {name: {key.path[0] for key in own} for name, own in keys.items()} == {name: {name} for name in TIMES}
        for name, times in TIMES.items():
            stored = instance.get_materialized_partitions(dg.AssetKey([name, "messages"]))
            assert stored == {at[:13] for at in times}
        assert instance.get_materialized_partitions(dg.AssetKey("messages")) == set()
        assert {f"{name}_memory_working" for name in TIMES} <= set(instance.event_log_storage.get_concurrency_keys())
    for lake in lakes.values():
        assert lake.journal.pending() == []
    assert network.attempts() == []


@pytest.mark.parametrize("is_range", [True, False])
def test_unfinished_runs_of_one_location_do_not_block_the_other(tmp_path: Path, is_range: bool) -> None:
    names = ("sales", "support", "")
    settings = {name: Settings(root=str(tmp_path / f"lake-{name}"), start=START, location=name) for name in names}
    definitions = {name: build_definitions(each) for name, each in settings.items()}
    partitions = {name: Partitions(START, Calendar(), name) for name in names}
    periods = hours(HOUR) if is_range else hours(HOUR, "2024-01-15T12")
    request = Request("hours 1", Grain.WORKING, tuple(periods), NOW)
    with dg.DagsterInstance.ephemeral() as instance:
        for name in names:
            job = definitions[name].resolve_job_def("remember_working")
            asked = run_request(request, partitions[name], job.name)
            assert under_way(instance, partitions[name], {}, NOW) == {}
            assert outcomes_of(instance, ["hours 1"], partitions[name], NOW) == {}
            tags = {**job.run_tags, **asked.tags}
            instance.create_run_for_job(job, run_config=asked.run_config, tags=tags)
            assert under_way(instance, partitions[name], {}, NOW) == {Grain.WORKING: set(periods)}
            assert outcomes_of(instance, ["hours 1"], partitions[name], NOW).keys() == {"hours 1"}


def test_without_a_location_names_have_no_prefix(tmp_path: Path) -> None:
    definitions = build_definitions(Settings(root=str(tmp_path / "lake"), start=START))
    assert {len(key.path) for key in definitions.resolve_asset_graph().get_all_asset_keys()} == {1}


def test_all_names_of_a_location_begin_with_it(tmp_path: Path) -> None:
    definitions = build_definitions(Settings(root=str(tmp_path / "lake"), start=START, location="sales"))
    graph = definitions.resolve_asset_graph()
    assert {key.path[0] for key in graph.get_all_asset_keys()} == {"sales"}
    assert {key.asset_key.path[0] for key in graph.asset_check_keys} == {"sales"}
    parents = {parent for key in graph.get_all_asset_keys() for parent in graph.get(key).parent_keys}
    assert parents <= set(graph.get_all_asset_keys())
    repository = definitions.get_repository_def()
    nodes = [node for name in repository.job_names for node in repository.get_job(name).all_node_defs]
    pools = {node.pool for node in nodes if isinstance(node, dg.OpDefinition) and node.pool}
    assert all(pool.startswith("sales_memory_") for pool in pools)


def test_a_run_in_process_writes_the_history_of_its_location(
    tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    shutil.copy(DEPLOYMENT, tmp_path / "dagster.yaml")
    lake = Lake(str(tmp_path / "lake"))
    write(lake, conversation("I moved to Porto.", at=f"{HOUR}:00"))
    settings = Settings(lake.storage.uri, START, has_dagster_home=True, location="sales")
    day = (datetime(2024, 1, 15, tzinfo=UTC), datetime(2024, 1, 16, tzinfo=UTC))
    results = [each for each in run_all(lake, settings, models, NOW, day) if isinstance(each, RunResult)]
    assert results[0].rows > 0
    with dg.DagsterInstance.get() as instance:
        keys = instance.all_asset_keys()
        assert {key.path[0] for key in keys} == {"sales"}
        facts = dg.AssetKey(["sales", "working_facts"])
        assert facts in keys
        event = instance.get_latest_materialization_event(facts)
        assert event is not None
        assert event.asset_materialization is not None
        assert "dagster/input_data_version/sales/messages" in (event.asset_materialization.tags or {})


@pytest.mark.parametrize("name", ["Sales", "a b", "a/b", "1", "x" * 64])
def test_a_location_that_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"MEMORY_PIPELINE_LOCATION .* is not a name"):
        Settings.from_environment({"MEMORY_PIPELINE_LOCATION": name})

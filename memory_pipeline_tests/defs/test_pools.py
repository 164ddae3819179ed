"""Pools: which runs Dagster's queue holds back, and the limits that deployments set."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
import yaml
from dagster._core.op_concurrency_limits_counter import GlobalOpConcurrencyLimitsCounter

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.resources import AGENTS_POOL, MARTS_POOL, POOLS, pool_of
from memory_pipeline.domain.periods import Grain
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import START

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
#: Jobs by the pool of their runs.
HOURS, NIGHT, RETENTION, DAYS = "remember_working", "keep_memories_nightly", "expire_memory", "roll_up_daily"


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    return build_definitions(Settings(root=str(tmp_path_factory.mktemp("pools") / "lake"), start=START))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance with the configuration for one machine."""
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def ops(definitions: dg.Definitions) -> dict[str, str | None]:
    """Return the pool of each op of the deployment."""
    repository = definitions.get_repository_def()
    jobs = [repository.get_job(name) for name in repository.job_names]
    return {op.name: op.pool for job in jobs for op in job.all_node_defs if isinstance(op, dg.OpDefinition)}


def started(instance: dg.DagsterInstance, definitions: dg.Definitions, *jobs: str) -> list[str]:
    """Queue a run of each job. Return those that the queue starts before any ends."""
    for pool in POOLS:  # else the first check of a pool starts all its runs
        if pool not in instance.event_log_storage.get_concurrency_keys():
            instance.event_log_storage.initialize_concurrency_limit_to_default(pool)
    runs = [instance.create_run_for_job(definitions.resolve_job_def(job)) for job in jobs]
    storage = instance.event_log_storage
    counter = GlobalOpConcurrencyLimitsCounter(
        instance,
        runs,
        [],
        concurrency_keys=storage.get_concurrency_keys(),
        pool_limits=storage.get_pool_limits(),
        pool_granularity=instance.get_concurrency_config().pool_config.pool_granularity,
    )
    names = []
    for run in runs:
        if not counter.is_blocked(run):
            counter.update_counters_with_launched_item(run)
            names.append(run.job_name)
    return names


def test_all_ops_that_write_have_a_pool_and_checks_have_none(definitions: dg.Definitions) -> None:
    found = ops(definitions)
    # The history of runs is not in the lake.
    others = {name: pool for name, pool in found.items() if name.startswith(("check_", "report_", "prune_"))}
    writing = {name: pool for name, pool in found.items() if name not in others}
    assert writing == {
        **{f"make_{grain}": pool_of(grain) for grain in Grain},
        "session_promotions": AGENTS_POOL,
        "keep_memories": AGENTS_POOL,
        "expire": AGENTS_POOL,
        "vacuum": AGENTS_POOL,
        "make_marts": MARTS_POOL,
    }
    assert set(writing.values()) == POOLS
    assert set(others.values()) == {None}


def test_runs_that_share_a_pool_wait_and_others_do_not(
    instance: dg.DagsterInstance, definitions: dg.Definitions
) -> None:
    jobs = (HOURS, HOURS, NIGHT, RETENTION, DAYS, DAYS, "roll_up_weekly", "renew_marts")
    assert started(instance, definitions, *jobs) == [HOURS, DAYS, "roll_up_weekly", "renew_marts"]


def test_a_raised_limit_allows_more_runs(instance: dg.DagsterInstance, definitions: dg.Definitions) -> None:
    instance.event_log_storage.set_concurrency_slots(AGENTS_POOL, 3)
    jobs = (HOURS, HOURS, NIGHT, HOURS, DAYS, DAYS)
    assert started(instance, definitions, *jobs) == [HOURS, HOURS, NIGHT, DAYS]


def test_every_deployment_allows_one_run_per_pool_by_default() -> None:
    files = sorted(DEPLOY.rglob("dagster.yaml"))
    assert files
    for file in files:
        pools = yaml.safe_load(file.read_text())["concurrency"]["pools"]
        assert pools == {"default_limit": 1, "granularity": "run"}, file


def test_deployments_raise_only_existing_pools_that_allow_it() -> None:
    named: set[str] = set()
    for file in (path for path in DEPLOY.rglob("*") if path.is_file()):
        named |= set(re.findall(r"\bmemory_(?!pipeline)[a-z]+\b", file.read_text(errors="replace")))
    assert named <= POOLS, f"no such pools: {sorted(named - POOLS)}"


def test_a_deployment_sets_the_limit_of_every_pool_and_leaves_marts_at_one(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "dagster"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNS_AT_ONCE": "7"}
    subprocess.run(["sh", str(DEPLOY / "prepare.sh")], env=environment, check=True)
    words = [line.split() for line in asked.read_text().splitlines()]
    limits = {line[-2]: int(line[-1]) for line in words if "set" in line}
    assert limits.keys() == POOLS
    assert limits[MARTS_POOL] == 1
    assert max(limits.values()) == 7


def test_the_decision_names_every_pool() -> None:
    page = (REPOSITORY / "docs" / "decisions" / "0017-pools-and-writers.md").read_text()
    assert set(re.findall(r"`(memory_[a-z]+)`", page)) == POOLS

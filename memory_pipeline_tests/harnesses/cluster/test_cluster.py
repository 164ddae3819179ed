"""A year backfilled by two Celery workers, one of which is killed, equals a local run.

PostgreSQL, Redis, an S3 server, Dagster's code server and daemon, and two Celery workers run as separate processes with
the files of ``deploy/celery``. The journal contains a year. Sensors request hours, some in each run, then days, weeks,
months, quarters and the year. Half-way, one worker is killed with SIGKILL during a run.

- ``MEMORY_PIPELINE_CLUSTER_AGENTS``: number of agents, such as 50 for a short test (``make test-cluster AGENTS=50``);
- ``MEMORY_PIPELINE_CLUSTER_DAYS``: days on which they speak, a year by default (``make test-cluster DAYS=3``);
- ``MEMORY_PIPELINE_CLUSTER_TALKS``: conversations of each agent;
- ``MEMORY_PIPELINE_CLUSTER_PER_RUN``: partitions of a run;
- ``MEMORY_PIPELINE_CLUSTER_BY=backfill``: a backfill requests the hours, as in the UI, instead of the sensor. Dagster
  first writes an event for each asset and hour of the year;
- ``MEMORY_PIPELINE_TEST_S3``: another S3 server (see `s3_server.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dagster import DagsterRunStatus

from memory_pipeline.defs.assets.consolidation import OP
from memory_pipeline.defs.run_requests import PARTITION
from memory_pipeline.defs.sensors import JOURNAL_SENSOR
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.harnesses.cluster.deployment import Cluster, by_status, seconds
from memory_pipeline_tests.harnesses.cluster.services import ObjectServer, postgresql, redis_server
from memory_pipeline_tests.harnesses.cluster.year import DAYS as YEAR_DAYS
from memory_pipeline_tests.harnesses.cluster.year import START, YEAR, year
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagster._core.storage.dagster_run import RunRecord

pytestmark = pytest.mark.cluster

AGENTS = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_AGENTS", "1000"))
#: With few agents, each has more conversations, so that there is work for two workers.
TALKS = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_TALKS", max(2, 16 // AGENTS)))
DAYS = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_DAYS", YEAR_DAYS))
#: Small enough for each worker to complete a run before one is killed, large enough to have few starts: at most a week.
PER_RUN = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_PER_RUN", max(3, min(168, min(AGENTS * TALKS, DAYS * 17) // 12))))
BY_BACKFILL = os.environ.get("MEMORY_PIPELINE_CLUSTER_BY") == "backfill"
#: The timeout of a stage in seconds; far longer than any stage takes.
PATIENCE = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_PATIENCE", "7200"))
#: The maximum seconds to notice a lost worker: three checks of run monitoring, and some margin.
NOTICED = 240
DOOMED, SURVIVOR = "doomed", "survivor"
HOURS = {MESSAGES_ASSET, table_asset(Grain.WORKING), GRAPH_ASSET, MEMORIES_ASSET, index_asset(Grain.WORKING)}
_UNFINISHED = {
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
}


@dataclass
class Progress:
    """The progress of the test.

    Attributes:
        began: the monotonic time of the start.
        lines: rows of the final table.
        killed: the run during which the worker was killed, and the monotonic time.
        noticed: seconds until the run counted as failed.
        last_line: the last printed state.
    """

    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[str, str]] = field(default_factory=list)
    killed: tuple[str, float] | None = None
    noticed: float | None = None
    last_line: str = ""

    def log(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        say(f"{time.monotonic() - self.began:7.0f} s  {text}")

    def table(self) -> None:
        width = max(len(name) for name, _ in self.lines)
        for name, value in self.lines:
            say(f"  {name:<{width}}  {value}")


def test_a_cluster_with_a_killed_worker_gives_the_lake_of_one_machine(tmp_path: Path) -> None:
    progress = Progress()
    say("")
    progress.log(f"{AGENTS:,} agents with {TALKS} conversations each in {DAYS} days")
    with ExitStack() as stack:
        stack.enter_context(ended_in_order())
        server = stack.enter_context(ObjectServer())
        stack.enter_context(server.in_environment())
        root = server.new_root()
        variables = {"MEMORY_PIPELINE_ROOT": root, "MEMORY_PIPELINE_PARTITIONS_PER_RUN": str(PER_RUN)}
        variables |= {"MEMORY_PIPELINE_START": START.isoformat()} | server.environment()
        variables |= stack.enter_context(postgresql()) | stack.enter_context(redis_server(tmp_path))
        alone = tmp_path / "alone"
        messages = fill(root, str(alone))
        progress.log(f"{messages:,} messages are in the journal; PostgreSQL, Redis and S3 run")
        with Cluster(tmp_path, variables, [DOOMED, SURVIVOR]) as cluster:
            lake = Lake(root)
            progress.log("code server and two workers run")
            make_hours(cluster, lake, progress)
            roll_up(cluster, lake, progress)
            now = keep(cluster, lake, progress)
            judge(cluster, lake, progress)
        progress.log("one machine computes the same year in a folder")
        seconds_alone = run_alone(alone, variables, now)
        progress.lines.append(("one machine, one process", f"{seconds_alone:.0f} s"))
        here, there = lake_digest(Lake(str(alone))), lake_digest(lake)
    differences = differing(here, there)
    progress.lines.append(("digests compared", f"{len(here):,}; {len(differences):,} differ"))
    progress.table()
    assert len(here) > AGENTS
    assert not differences, "\n".join(differences[:40])


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that all started processes end, too."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fill(root: str, alone: str) -> int:
    """Write the year into two journals. Return the number of messages."""
    lakes = [Lake(root), Lake(alone)]
    for lake in lakes:
        lake.ensure()
    with ThreadPoolExecutor(4) as threads:
        said = list(year(AGENTS, TALKS, DAYS))
        for lake in lakes:
            list(threads.map(lake.journal.append, said))
    return sum(map(len, said))


def make_hours(cluster: Cluster, lake: Lake, progress: Progress) -> None:
    """Compute all hours of the year. Kill a worker half-way, during a run."""
    name = None
    if BY_BACKFILL:
        name = cluster.backfill(HOURS, f"{YEAR}-01-01T00", f"{YEAR}-12-31T23")
        # It would request the same hours again, which is safe but twice the work.
        cluster.sensor("stop", JOURNAL_SENSOR)
        progress.log(f"backfill {name} of the hours of {YEAR} is requested")
    cluster.start_daemon()
    progress.log("the daemon starts")
    total = len(lake.journal.pending())

    def is_done() -> bool:
        records = cluster.runs()
        left = len(lake.journal.pending())
        half = left <= total / 2
        if half and progress.killed is None:
            kill(cluster, records, progress)
        if progress.killed is not None and progress.noticed is None:
            watch(cluster, records, progress)
        assert left or progress.killed is not None, (
            "all hours were computed before a run could be killed; use more conversations"
        )
        log_state(cluster, progress, records, f"{left:,} of {total:,} journal files are left")
        return not left and progress.noticed is not None and not unfinished(records)

    wait(cluster, progress, is_done, "the hours")
    assert progress.killed is not None
    if name is not None:
        state = cluster.instance.get_backfill(name)
        assert state is not None
        progress.lines.append(("backfill of the hours", state.status.value))
        cluster.sensor("start", JOURNAL_SENSOR)


def kill(cluster: Cluster, records: list[RunRecord], progress: Progress) -> None:
    """Kill the worker if it has completed a run and is in the middle of another."""
    own = [record for record in records if cluster.worker_of(record.dagster_run) == DOOMED]
    if not any(record.dagster_run.status is DagsterRunStatus.SUCCESS for record in own):
        return
    for record in own:
        run = record.dagster_run
        if run.status is DagsterRunStatus.STARTED and seconds(record) > 1:
            if cluster.kill_worker(DOOMED, run.run_id):
                progress.killed = run.run_id, time.monotonic()
                progress.log(f"worker {DOOMED} is killed {seconds(record):.1f} s into run {run.run_id[:8]}")
            return


def watch(cluster: Cluster, records: list[RunRecord], progress: Progress) -> None:
    """Check whether Dagster has noticed the loss of the worker."""
    assert progress.killed is not None
    run_id, since = progress.killed
    [run] = [record.dagster_run for record in records if record.dagster_run.run_id == run_id]
    passed = time.monotonic() - since
    if run.status is DagsterRunStatus.FAILURE:
        progress.noticed = passed
        progress.log(f"run {run_id[:8]} counts as failed {passed:.0f} s after its worker was killed")
    else:
        assert run.status is DagsterRunStatus.STARTED, (
            f"the worker should have been killed during the run, which is {run.status}"
        )
        assert passed < NOTICED, f"run {run_id} is still {run.status.value} {passed:.0f} s after its worker was killed"


def roll_up(cluster: Cluster, lake: Lake, progress: Progress) -> None:
    """Wait until the sensors have computed all summaries."""

    def is_done() -> bool:
        now = datetime.now(UTC)
        lacking = {grain: len(grain_status(lake, grain, START, now).pending) for grain in Grain}
        records = cluster.runs()
        pending = ", ".join(f"{number} {grain}" for grain, number in lacking.items() if number)
        log_state(cluster, progress, records, f"pending: {pending or 'nothing'}")
        return not pending and not unfinished(records)

    wait(cluster, progress, is_done, "the summaries", every=5)


def keep(cluster: Cluster, lake: Lake, progress: Progress) -> datetime:
    """Consolidate all days, as a schedule requests every day.

    Return the time up to which everything is computed. The cluster uses the real clock, so the local run must use this
    time.
    """
    now = datetime.now(UTC)
    nights = pending_days(lake, START, now)
    config = {"ops": {OP: {"config": {"periods": [night.key for night in nights]}}}}
    cluster.launch("keep_memories_nightly", config, {PARTITION: str(nights[-1])})

    def is_done() -> bool:
        records = cluster.runs()
        log_state(cluster, progress, records, f"{len(nights):,} days to consolidate")
        nonlocal now
        now = datetime.now(UTC)
        return not unfinished(records) and not pending_days(lake, START, now)

    wait(cluster, progress, is_done, "the consolidation")
    return now


def judge(cluster: Cluster, lake: Lake, progress: Progress) -> None:
    """Check Dagster's records of the runs."""
    records = cluster.runs()
    assert progress.killed is not None
    assert progress.noticed is not None
    assert not unfinished(records)
    assert lake.journal.pending() == []
    assert lake.journal.quarantined() == []
    took: dict[str, Counter[str]] = {DOOMED: Counter(), SURVIVOR: Counter()}
    for record in records:
        if worker := cluster.worker_of(record.dagster_run):
            took[worker][record.dagster_run.status.value.lower()] += 1
    hours = [record for record in records if is_of_hours(record)]
    successors = [record.dagster_run for record in records if record.dagster_run.parent_run_id == progress.killed[0]]
    progress.lines += [
        ("runs", f"{len(records)}: {by_status(records)}"),
        ("runs of hours", f"{len(hours)}: {by_status(hours)}"),
        *(
            (f"  taken by {worker}", ", ".join(f"{n} {s}" for s, n in states.items()))
            for worker, states in took.items()
        ),
        ("killed run", f"{progress.killed[0]}, noticed after {progress.noticed:.0f} s"),
        ("  retried as", ", ".join(f"run {run.run_id} {run.status.value.lower()}" for run in successors)),
        ("cluster", f"{time.monotonic() - progress.began:.0f} s in all"),
    ]
    assert took[DOOMED]["success"], "one worker did nothing"
    assert took[SURVIVOR]["success"]
    failed = [record.dagster_run.run_id for record in records if record.dagster_run.status is DagsterRunStatus.FAILURE]
    assert failed == [progress.killed[0]], failed


def run_alone(root: Path, variables: dict[str, str], now: datetime) -> float:
    """Run the pipeline in one process on a folder, as of a time. Return the seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "memory_pipeline.cli", "run", "--root", str(root), "--now", now.isoformat()]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    environment["MEMORY_PIPELINE_START"] = variables["MEMORY_PIPELINE_START"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return time.monotonic() - began


def is_of_hours(record: RunRecord) -> bool:
    """Return whether a run computes hours, for a sensor or a backfill."""
    selected = {key.to_user_string() for key in record.dagster_run.asset_selection or ()}
    return bool(HOURS & selected) or record.dagster_run.job_name.endswith(f"_{Grain.WORKING}")


def unfinished(records: list[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.dagster_run.status in _UNFINISHED]


def log_state(cluster: Cluster, progress: Progress, records: list[RunRecord], state: str) -> None:
    busy = Counter(
        cluster.worker_of(record.dagster_run) or "no worker yet"
        for record in records
        if record.dagster_run.status is DagsterRunStatus.STARTED
    )
    at_work = ", ".join(f"{worker} {number}" for worker, number in sorted(busy.items()))
    line = f"{state}; runs: {by_status(records) or 'none'}; at work: {at_work or 'none'}"
    if line != progress.last_line:
        progress.log(line)
        progress.last_line = line


def wait(cluster: Cluster, progress: Progress, is_done: Callable[[], bool], what: str, every: float = 1) -> None:
    """Wait until a stage is complete."""
    began = time.monotonic()
    while not is_done():
        cluster.check()
        assert time.monotonic() < began + PATIENCE, f"{what} are not complete after {PATIENCE} s"
        time.sleep(every)
    progress.lines.append((what, f"{time.monotonic() - began:.0f} s"))

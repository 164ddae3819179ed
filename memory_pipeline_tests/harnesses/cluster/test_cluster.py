"""A year of many agents, backfilled by two Celery workers, one of which is killed, equals the year of a local run.

PostgreSQL, Redis, a server that speaks S3, Dagster's code server and daemon, and two Celery workers run as processes of
their own, with the files of ``deploy/celery``. The year lies in the journal, and the sensors have it made: hours, a
part of them in each run, then days, weeks, months, quarters and the year. Half-way one worker is killed with -9 during
a run. The lake must be the one that ``memory-pipeline run`` makes on a folder.

``MEMORY_PIPELINE_CLUSTER_AGENTS=50`` makes it small, ``MEMORY_PIPELINE_CLUSTER_TALKS`` sets the conversations of each
agent, ``MEMORY_PIPELINE_CLUSTER_PER_RUN`` the partitions of a run, and ``MEMORY_PIPELINE_TEST_S3`` names another S3
server (see `s3_server.py`). With ``MEMORY_PIPELINE_CLUSTER_BY=backfill`` the hours are asked for by a backfill, as in
the UI, for which Dagster writes an event for every one of the year's hours and assets first.
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
from memory_pipeline.steps.consolidation.days import pending_nights
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.harnesses.cluster.deployment import Cluster, by_status, seconds
from memory_pipeline_tests.harnesses.cluster.services import ObjectServer, postgresql, redis_server
from memory_pipeline_tests.harnesses.cluster.year import START, YEAR, year
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagster._core.storage.dagster_run import RunRecord

pytestmark = pytest.mark.cluster

AGENTS = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_AGENTS", "1000"))
#: Of few agents each says more, so that there is something to share.
TALKS = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_TALKS", max(2, 16 // AGENTS)))
#: Small enough that there is something to share, and large enough that there is not too much to start: a week at most.
PER_RUN = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_PER_RUN", max(3, min(168, AGENTS * TALKS // 6))))
BY_BACKFILL = os.environ.get("MEMORY_PIPELINE_CLUSTER_BY") == "backfill"
#: Far longer than any stage takes, in seconds.
PATIENCE = int(os.environ.get("MEMORY_PIPELINE_CLUSTER_PATIENCE", "7200"))
#: How long it may take to notice that a worker is gone, in seconds: three looks of run monitoring, and then some.
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
class Story:
    """What happened, for the screen.

    Attributes:
        begun: when.
        lines: of the table at the end.
        killed: the run during which the worker was killed, and when that was.
        noticed: how many seconds later the run was said to have failed.
        told: how far everything was when that was last told.
    """

    begun: float = field(default_factory=time.monotonic)
    lines: list[tuple[str, str]] = field(default_factory=list)
    killed: tuple[str, float] | None = None
    noticed: float | None = None
    told: str = ""

    def tell(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        say(f"{time.monotonic() - self.begun:7.0f} s  {text}")

    def table(self) -> None:
        """Print what came of it."""
        width = max(len(name) for name, _ in self.lines)
        for name, value in self.lines:
            say(f"  {name:<{width}}  {value}")


def test_a_cluster_with_a_killed_worker_gives_the_lake_of_one_machine(tmp_path: Path) -> None:
    story = Story()
    say("")
    story.tell(f"{AGENTS:,} agents with {TALKS} conversations each")
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
        story.tell(f"{messages:,} messages are in the journal; PostgreSQL, Redis and S3 run")
        with Cluster(tmp_path, variables, [DOOMED, SURVIVOR]) as cluster:
            lake = Lake(root)
            story.tell("code server and two workers run")
            make_hours(cluster, lake, story)
            roll_up(cluster, lake, story)
            now = keep(cluster, lake, story)
            judge(cluster, lake, story)
        story.tell("one machine makes the same year on a folder")
        seconds_alone = run_alone(alone, variables, now)
        story.lines.append(("one machine, one process", f"{seconds_alone:.0f} s"))
        here, there = lake_digest(Lake(str(alone))), lake_digest(lake)
    differences = differing(here, there)
    story.lines.append(("digests compared", f"{len(here):,}, of which {len(differences):,} differ"))
    story.table()
    assert len(here) > AGENTS
    assert not differences, "\n".join(differences[:40])


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that all started processes end, too."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows must not be cut short
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
    """Write the year into two journals; return the number of messages."""
    lakes = [Lake(root), Lake(alone)]
    for lake in lakes:
        lake.ensure()
    with ThreadPoolExecutor(4) as threads:
        said = list(year(AGENTS, TALKS))
        for lake in lakes:
            list(threads.map(lake.journal.append, said))
    return sum(map(len, said))


def make_hours(cluster: Cluster, lake: Lake, story: Story) -> None:
    """Compute all hours of the year, and kill a worker half-way, during a run."""
    name = None
    if BY_BACKFILL:
        name = cluster.backfill(HOURS, f"{YEAR}-01-01T00", f"{YEAR}-12-31T23")
        # It would ask for the same hours, which is safe, and twice the work.
        cluster.sensor("stop", JOURNAL_SENSOR)
        story.tell(f"backfill {name} of the hours of {YEAR} is asked for")
    cluster.start_daemon()
    story.tell("the daemon starts")
    # Each of the runs makes its hours; what is left of the journal tells how far they are.
    total = len(lake.journal.pending())

    def is_done() -> bool:
        records = cluster.runs()
        left = len(lake.journal.pending())
        half = left <= total / 2
        if half and story.killed is None:
            kill(cluster, records, story)
        if story.killed is not None and story.noticed is None:
            watch(cluster, records, story)
        assert left or story.killed is not None, "all hours were made before there was a run to kill; say more"
        progress(cluster, story, records, f"{left:,} of {total:,} journal files are left")
        return not left and story.noticed is not None and not unfinished(records)

    wait(cluster, story, is_done, "the hours")
    assert story.killed is not None
    if name is not None:
        state = cluster.instance.get_backfill(name)
        assert state is not None
        story.lines.append(("backfill of the hours", state.status.value))
        cluster.sensor("start", JOURNAL_SENSOR)


def kill(cluster: Cluster, records: list[RunRecord], story: Story) -> None:
    """Kill the worker if it is in the midst of a run."""
    for record in records:
        run = record.dagster_run
        if run.status is DagsterRunStatus.STARTED and cluster.worker_of(run) == DOOMED and seconds(record) > 1:
            if cluster.kill_worker(DOOMED, run.run_id):
                story.killed = run.run_id, time.monotonic()
                story.tell(f"worker {DOOMED} is killed {seconds(record):.1f} s into run {run.run_id[:8]}")
            return


def watch(cluster: Cluster, records: list[RunRecord], story: Story) -> None:
    """Check whether Dagster has noticed the loss of the worker."""
    assert story.killed is not None
    run_id, since = story.killed
    [run] = [record.dagster_run for record in records if record.dagster_run.run_id == run_id]
    passed = time.monotonic() - since
    if run.status is DagsterRunStatus.FAILURE:
        story.noticed = passed
        story.tell(f"run {run_id[:8]} is said to have failed, {passed:.0f} s after its worker was killed")
    else:
        assert run.status is DagsterRunStatus.STARTED, f"it was to be killed during the run, which is {run.status}"
        assert passed < NOTICED, f"run {run_id} is still {run.status.value} {passed:.0f} s after its worker was killed"


def roll_up(cluster: Cluster, lake: Lake, story: Story) -> None:
    """Wait until the sensors have computed all summaries."""

    def is_done() -> bool:
        now = datetime.now(UTC)
        lacking = {grain: len(grain_status(lake, grain, START, now).pending) for grain in Grain}
        records = cluster.runs()
        told = ", ".join(f"{number} {grain}" for grain, number in lacking.items() if number)
        progress(cluster, story, records, f"pending: {told or 'nothing'}")
        return not told and not unfinished(records)

    wait(cluster, story, is_done, "the summaries", every=5)


def keep(cluster: Cluster, lake: Lake, story: Story) -> datetime:
    """Have the nights of upkeep made, which a schedule asks for every night.

    Returns:
        The time as of which everything is made. The cluster goes by the real clock, and what has closed by it differs
        from what had closed when the journal took the year; so the single machine has to go by this time.
    """
    now = datetime.now(UTC)
    nights = pending_nights(lake, START, now)
    config = {"ops": {OP: {"config": {"periods": [night.key for night in nights]}}}}
    cluster.launch("keep_memories_nightly", config, {PARTITION: str(nights[-1])})

    def is_done() -> bool:
        records = cluster.runs()
        progress(cluster, story, records, f"{len(nights):,} nights of upkeep")
        nonlocal now
        now = datetime.now(UTC)
        return not unfinished(records) and not pending_nights(lake, START, now)

    wait(cluster, story, is_done, "the nights")
    return now


def judge(cluster: Cluster, lake: Lake, story: Story) -> None:
    """Check Dagster's records of the runs."""
    records = cluster.runs()
    assert story.killed is not None
    assert story.noticed is not None
    assert not unfinished(records)
    assert lake.journal.pending() == []
    assert lake.journal.quarantined() == []
    took: dict[str, Counter[str]] = {DOOMED: Counter(), SURVIVOR: Counter()}
    for record in records:
        if worker := cluster.worker_of(record.dagster_run):
            took[worker][record.dagster_run.status.value.lower()] += 1
    hours = [record for record in records if is_of_hours(record)]
    successors = [record.dagster_run for record in records if record.dagster_run.parent_run_id == story.killed[0]]
    story.lines += [
        ("runs", f"{len(records)}: {by_status(records)}"),
        ("of them of hours", f"{len(hours)}: {by_status(hours)}"),
        *(
            (f"  taken by {worker}", ", ".join(f"{n} {s}" for s, n in states.items()))
            for worker, states in took.items()
        ),
        ("killed run", f"{story.killed[0]}, of which Dagster knew {story.noticed:.0f} s later"),
        ("  what became of it", ", ".join(f"run {run.run_id} {run.status.value.lower()}" for run in successors)),
        ("cluster", f"{time.monotonic() - story.begun:.0f} s in all"),
    ]
    assert took[DOOMED]["success"], "one worker did nothing"
    assert took[SURVIVOR]["success"]
    failed = [record.dagster_run.run_id for record in records if record.dagster_run.status is DagsterRunStatus.FAILURE]
    assert failed == [story.killed[0]], failed


def run_alone(root: Path, variables: dict[str, str], now: datetime) -> float:
    """Run the pipeline in one process on a folder, as of a time; return the seconds."""
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


def progress(cluster: Cluster, story: Story, records: list[RunRecord], told: str) -> None:
    busy = Counter(
        cluster.worker_of(record.dagster_run) or "nobody yet"
        for record in records
        if record.dagster_run.status is DagsterRunStatus.STARTED
    )
    at_work = ", ".join(f"{worker} {number}" for worker, number in sorted(busy.items()))
    line = f"{told}; runs: {by_status(records) or 'none'}; at work: {at_work or 'nobody'}"
    if line != story.told:
        story.tell(line)
        story.told = line


def wait(cluster: Cluster, story: Story, is_done: Callable[[], bool], what: str, every: float = 1) -> None:
    """Wait until something is done, and tell how far it is."""
    began = time.monotonic()
    while not is_done():
        cluster.check()
        assert time.monotonic() < began + PATIENCE, f"{what} are not made after {PATIENCE} s"
        time.sleep(every)
    story.lines.append((what, f"{time.monotonic() - began:.0f} s"))

"""A deployment with the files of ``deploy/celery``: a code server, the daemon and Celery workers as processes.

Each process has its own DAGSTER_HOME with a copy of ``dagster.yaml``, as on separate machines. They only share
PostgreSQL, Redis and the lake.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import yaml
from dagster._core.storage.dagster_run import RunRecord
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

from memory_pipeline.settings import PLANS_RANGES
from memory_pipeline_tests.harnesses.cluster.services import Process, answers, free_port, until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Self

    from memory_pipeline.deployment.celery_launcher import WatchedCeleryRunLauncher

DEPLOY = Path(__file__).parents[3] / "deploy"
#: Seconds between the daemon's checks of its queue and runs; short, to save time.
LOOK_SECONDS = 2
_WORKER = [sys.executable, "-m", "celery", "--app", "dagster_celery.app", "worker", "--loglevel", "INFO"]
_BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message stack }
  }
}
"""


class Cluster:
    """A context manager that starts and stops the processes.

    Args:
        folder: the folder of homes and logs.
        variables: the addresses of PostgreSQL, Redis and the lake.
        workers: names of the Celery workers.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], workers: Sequence[str]) -> None:
        self._folder = folder
        self._variables = {**variables, "PYTHONPATH": _path("PYTHONPATH", DEPLOY / "celery"), "PYTHONUNBUFFERED": "1"}
        self._names = workers
        self._stack = ExitStack()
        self._took: dict[str, str] = {}
        self.workers: dict[str, Process] = {}
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            home = self._home("here")
            prepare = Process("prepare", ["sh", str(DEPLOY / "prepare.sh")], self._folder, self._environment(home))
            stack.callback(prepare.kill)
            port = free_port()
            module = ["-m", "memory_pipeline.definitions", "-h", "127.0.0.1", "-p", str(port)]
            code = self._start(stack, "code", [sys.executable, "-m", "dagster", "api", "grpc", *module])
            until(lambda: answers(port), code)
            location = {"host": "127.0.0.1", "port": port, "location_name": "memory_pipeline"}
            self._workspace = self._folder / "workspace.yaml"
            self._workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": location}]}))
            for name in self._names:
                self.start_worker(name, stack)
            until(lambda: prepare.ended, prepare)
            assert prepare.status == 0, prepare.said
            stack.enter_context(_environment(self._environment(home)))
            self.instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
            until(lambda: self._ready() == set(self._names), code)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_worker(self, name: str, stack: ExitStack | None = None) -> None:
        self.workers[name] = self._start(stack or self._stack, name, [*_WORKER, "--hostname", f"{name}@%h"])

    def start_daemon(self) -> None:
        """Start Dagster's daemon: sensors, schedules, the queue of runs, backfills, and run monitoring."""
        command = [sys.executable, "-m", "dagster._daemon", "run", "-w", str(self._workspace)]
        self._start(self._stack, "daemon", command)

    def backfill(self, keys: Collection[str], first: str, last: str) -> str:
        """Launch a backfill of a range of partitions, like the UI. Return its id."""
        partitions = {"ranges": [{"start": first, "end": last}]}
        wanted = [{"assetKey": {"path": [key]}, "partitions": partitions} for key in sorted(keys)]
        command = [str(Path(sys.executable).parent / "dagster-graphql"), "-w", str(self._workspace), "-t", _BACKFILL]
        variables = json.dumps({"params": {"partitionsByAssets": wanted, "title": "the year"}})
        done = self._run([*command, "-v", variables])
        answer = json.loads(done)["data"]["launchPartitionBackfill"]
        assert "backfillId" in answer, answer
        return str(answer["backfillId"])

    def sensor(self, verb: str, name: str) -> None:
        self._run([sys.executable, "-m", "dagster", "sensor", verb, name, "-w", str(self._workspace)])

    def launch(self, job: str, config: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Queue a run of a job."""
        command = [sys.executable, "-m", "dagster", "job", "launch", "-w", str(self._workspace), "-j", job]
        self._run([*command, "--config-json", json.dumps(config), "--tags", json.dumps(tags)])

    def runs(self) -> list[RunRecord]:
        """Return all runs, oldest first."""
        return list(self.instance.get_run_records())[::-1]

    def worker_of(self, run: dg.DagsterRun) -> str:
        """Return the name of the worker of a run; empty if Celery has not recorded one yet."""
        if run.run_id not in self._took:
            task = run.tags.get(DAGSTER_CELERY_TASK_ID_TAG)
            said = self.launcher.celery.backend.get_task_meta(task) if task else {}
            held = said.get("result")
            host = said.get("worker") or (held.get("hostname") if isinstance(held, dict) else None) or ""
            if not host:
                return ""
            self._took[run.run_id] = str(host).partition("@")[0]
        return self._took[run.run_id]

    @property
    def launcher(self) -> WatchedCeleryRunLauncher:
        launcher: Any = self.instance.run_launcher
        return launcher  # type: ignore[no-any-return]

    def check(self) -> None:
        """Raise an error if a process ended without being killed."""
        for process in self.processes.values():
            assert not process.ended, f"{process.name} ended: {process.said}"

    def kill_worker(self, name: str, run_id: str) -> bool:
        """Kill a worker and its child processes during a run, like the loss of its machine.

        Return False if the run has ended in the meantime; then the worker continues.
        """
        # Stop it first, so that the run cannot finish.
        self.workers[name].send(signal.SIGSTOP)
        time.sleep(0.5)  # until its last writes are in the database
        run = self.instance.get_run_by_id(run_id)
        if run is None or run.status is not dg.DagsterRunStatus.STARTED:
            self.workers[name].send(signal.SIGCONT)
            return False
        self.processes.pop(name)
        self.workers.pop(name).kill()
        return True

    def _ready(self) -> set[str]:
        replies = self.launcher.celery.control.ping(timeout=1)
        return {name.partition("@")[0] for reply in replies for name in reply}

    def _start(self, stack: ExitStack, name: str, command: list[str]) -> Process:
        process = Process(name, command, self._folder, self._environment(self._home(name)))
        self.processes[name] = process
        stack.callback(process.kill)
        return process

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, env=self._environment(self._home("here")), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    def _home(self, name: str) -> Path:
        home = self._folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        settings = yaml.safe_load((DEPLOY / "celery" / "dagster.yaml").read_text())
        settings["run_coordinator"]["config"]["dequeue_interval_seconds"] = LOOK_SECONDS
        settings["run_monitoring"]["poll_interval_seconds"] = LOOK_SECONDS
        (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
        return home

    def _environment(self, home: Path) -> dict[str, str]:
        own = {"DAGSTER_HOME": str(home), PLANS_RANGES: "true", "PATH": _path("PATH", Path(sys.executable).parent)}
        return {**os.environ, **self._variables, **own}


def by_status(records: Collection[RunRecord]) -> str:
    """Return the number of runs by status, as text."""
    found = Counter(record.dagster_run.status.value.lower() for record in records)
    return ", ".join(f"{number} {status}" for status, number in sorted(found.items()))


def _path(variable: str, first: Path) -> str:
    return os.pathsep.join(filter(None, [str(first), os.environ.get(variable)]))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def seconds(record: RunRecord) -> float:
    """Return the duration of a run, or the time since its start."""
    return (record.end_time or time.time()) - (record.start_time or time.time())

"""The launcher fails runs of killed workers. Tested with a real Celery worker and a folder as its broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
import yaml
from celery.result import AsyncResult
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

from memory_pipeline.deployment.celery_launcher import WatchedCeleryRunLauncher
from memory_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds, far more than needed.
PATIENCE = 120
WORKER = """
import os, sys, time
from celery import Celery

app = Celery("tests", broker="filesystem://", backend=sys.argv[2])
app.conf.broker_transport_options = eval(sys.argv[1])

@app.task(name="wait", track_started=True)
def wait(seconds):
    time.sleep(seconds)

@app.task(name="fail", track_started=True)
def fail():
    raise RuntimeError("no such table")

@app.task(name="die", track_started=True)
def die():
    os.kill(os.getpid(), 9)

options = ["-Q", "dagster", "-c", "1", "-n", "one@here", "--without-gossip", "--without-mingle", "-l", "WARNING"]
app.worker_main(["worker", *options])
"""


class Folder:
    """Folders that serve as broker and result backend."""

    def __init__(self, path: Path) -> None:
        for name in ("queue", "control", "done", "results"):
            (path / name).mkdir()
        self.options = {
            "data_folder_in": str(path / "queue"),
            "data_folder_out": str(path / "queue"),
            "control_folder": str(path / "control"),
            "processed_folder": str(path / "done"),
        }
        self.backend = f"file://{path / 'results'}"

    def launcher(self, **arguments: Any) -> WatchedCeleryRunLauncher:
        return WatchedCeleryRunLauncher(
            default_queue="dagster",
            broker="filesystem://",
            backend=self.backend,
            config_source={"broker_transport_options": self.options},
            **arguments,
        )

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", WORKER, repr(self.options), self.backend]
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            kill(process)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def started(launcher: WatchedCeleryRunLauncher, task: str, *arguments: object, until: str = "STARTED") -> dg.DagsterRun:
    """Send a task and return its run once the task's state is `until`."""
    result: AsyncResult[Any] = launcher.celery.send_task(task, args=arguments, queue="dagster")
    deadline = time.monotonic() + PATIENCE
    while result.state != until:
        assert time.monotonic() < deadline, f"{task} is {result.state}"
        time.sleep(0.05)
    return run_of(result.id)


def run_of(task_id: str) -> dg.DagsterRun:
    return dg.DagsterRun("made_up", tags={DAGSTER_CELERY_TASK_ID_TAG: task_id})


def check(launcher: WatchedCeleryRunLauncher, run: dg.DagsterRun, number: int) -> list[CheckRunHealthResult]:
    return [launcher.check_run_worker_health(run) for _ in range(number)]


def test_a_run_fails_after_several_checks_without_its_worker(folder: Folder) -> None:
    launcher = folder.launcher(missed_answers=2, answer_seconds=10)
    with folder.worker() as worker:
        run = started(launcher, "wait", PATIENCE)
        alive = check(launcher, run, 2)
        kill(worker)
        launcher._patience = 0.5
        dead = check(launcher, run, 2)
    assert [each.status for each in alive] == [WorkerStatus.RUNNING] * 2
    assert alive[0].run_worker_id == "one@here"
    assert [each.status for each in dead] == [WorkerStatus.RUNNING, WorkerStatus.FAILED]
    assert "one@here does not hold the run's task" in str(dead[1].msg)

    # A restarted worker of the same name answers, but does not hold the task.
    with folder.worker():
        started(launcher, "wait", 0, until="SUCCESS")
        launcher._patience = 10
        assert [each.status for each in check(launcher, run, 2)] == [WorkerStatus.RUNNING, WorkerStatus.FAILED]
        # Celery itself records a killed child process and a failed task.
        assert check(launcher, started(launcher, "die", until="FAILURE"), 1)[0].status is WorkerStatus.FAILED
        [failed] = check(launcher, started(launcher, "fail", until="FAILURE"), 1)
        assert failed.status is WorkerStatus.FAILED
        assert "no such table" in str(failed.msg)
        # The task ended but the run did not: its end was lost.
        ended = started(launcher, "wait", 0, until="SUCCESS")
        assert [each.status for each in check(launcher, ended, 2)] == [WorkerStatus.RUNNING, WorkerStatus.FAILED]


def test_a_run_without_a_recorded_task_is_left_to_its_time_limit(folder: Folder) -> None:
    launcher = folder.launcher(missed_answers=1, answer_seconds=0.1)
    assert check(launcher, dg.DagsterRun("made_up"), 3)[-1].status is WorkerStatus.RUNNING


def test_the_count_of_missed_answers_restarts_after_a_failure(folder: Folder) -> None:
    launcher = folder.launcher(missed_answers=3, answer_seconds=0.1)
    run = run_of("never sent")
    statuses = [each.status for each in check(launcher, run, 7)]
    assert statuses == [WorkerStatus.RUNNING, WorkerStatus.RUNNING, WorkerStatus.FAILED] * 2 + [WorkerStatus.RUNNING]


@pytest.mark.parametrize("arguments", [{"missed_answers": 0}, {"answer_seconds": 0.0}, {"answer_seconds": -1.0}])
def test_numbers_that_are_not_positive_are_refused(folder: Folder, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(arguments))} .* is not above zero"):
        folder.launcher(**arguments)


def test_an_instance_loads_it_by_name(tmp_path: Path) -> None:
    configuration = {
        "run_launcher": {
            "module": "memory_pipeline.deployment.celery_launcher",
            "class": "WatchedCeleryRunLauncher",
            "config": {"broker": "memory://", "backend": "cache+memory://", "missed_answers": 4},
        }
    }
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(configuration))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        launcher = instance.run_launcher
        assert isinstance(launcher, WatchedCeleryRunLauncher)
        assert launcher.supports_check_run_worker_health
        assert (launcher._enough, launcher._patience) == (4, 2.0)

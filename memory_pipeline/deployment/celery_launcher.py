"""Launch runs as Celery tasks, and fail a run if its worker is gone.

If a worker or its machine is killed, Celery still records the task as started, and Dagster's own launcher waits for the
run forever. This launcher asks the workers. In ``dagster.yaml``::

    run_launcher:
      module: memory_pipeline.deployment.celery_launcher
      class: WatchedCeleryRunLauncher
      config:
        broker: {env: MEMORY_PIPELINE_BROKER}
        backend: {env: MEMORY_PIPELINE_BACKEND}
    run_monitoring:
      enabled: true
      poll_interval_seconds: 15

Run monitoring checks each started run. After `missed_answers` consecutive checks in which no worker holds the task, the
run fails. Run retries or the sensors then request it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.states import FAILURE, REVOKED
from dagster import Field, Float, Int
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG

from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from dagster import DagsterRun

#: A busy worker answers within milliseconds, since tasks run in child processes. Swapping or a restart of the broker
#: can delay one or two answers.
_MISSED_ANSWERS, _ANSWER_SECONDS = 3, 2.0


class WatchedCeleryRunLauncher(CeleryRunLauncher):
    """A Celery launcher that fails runs of lost workers.

    Workers need ``--pool prefork`` (Celery's default): with ``solo`` they do not answer while they work.

    Args:
        missed_answers: number of consecutive checks without a worker, after which a run fails.
        answer_seconds: how long to wait for the workers' answers.
        others: options of :class:`CeleryRunLauncher`: broker, backend, include, config_source, default_queue.

    Raises:
        ConfigurationError: a number is not above zero.
    """

    def __init__(
        self, missed_answers: int = _MISSED_ANSWERS, answer_seconds: float = _ANSWER_SECONDS, **others: Any
    ) -> None:
        for name, value in (("missed_answers", missed_answers), ("answer_seconds", answer_seconds)):
            if not value > 0:
                raise ConfigurationError(
                    f"run_launcher: {name} {shown(value)} is not above zero; give a positive number, or leave it out"
                )
        self._enough, self._patience = missed_answers, answer_seconds
        self._missed: dict[str, int] = {}
        super().__init__(**others)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Return the fields of ``run_launcher.config``."""
        inherited: Any = super().config_type()
        return {
            **inherited,
            "missed_answers": Field(
                Int,
                is_required=False,
                default_value=_MISSED_ANSWERS,
                description="Consecutive checks of run monitoring without a worker that holds the run's task, after "
                "which the run fails.",
            ),
            "answer_seconds": Field(
                Float,
                is_required=False,
                default_value=_ANSWER_SECONDS,
                description="How long to wait for the workers' answers, in seconds.",
            ),
        }

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return FAILED if the run's task failed or no worker has held it for several checks, else RUNNING."""
        task_id = run.tags.get(DAGSTER_CELERY_TASK_ID_TAG)
        if task_id is None:
            # The daemon was killed after it sent the task and before it stored the task's id.
            return CheckRunHealthResult(WorkerStatus.RUNNING, "Celery task unknown; the run's time limit will end it")
        task = self.celery.backend.get_task_meta(task_id)
        if task["status"] in {FAILURE, REVOKED}:
            self._missed.pop(run.run_id, None)
            return CheckRunHealthResult(
                WorkerStatus.FAILED, f"Celery task {task['status']}: {shown(str(task['result']), 300)}"
            )
        worker = _worker_of(task)
        if holder := self._holder(task_id, worker):
            self._missed.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=holder)
        missed = self._missed[run.run_id] = self._missed.get(run.run_id, 0) + 1
        finding = f"Celery worker {worker or 'unknown'} does not hold the run's task {task_id} ({task['status']})"
        if missed < self._enough:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"{finding}, check {missed} of {self._enough}")
        del self._missed[run.run_id]
        return CheckRunHealthResult(
            WorkerStatus.FAILED, f"{finding} in {missed} checks: the worker or its machine was killed"
        )

    def _holder(self, task_id: str, worker: str | None) -> str | None:
        workers = [worker] if worker else None
        answers = self.celery.control.inspect(destination=workers, timeout=self._patience).query_task(task_id)
        return next((name for name, tasks in (answers or {}).items() if task_id in tasks), None)


def _worker_of(task: dict[str, Any]) -> str | None:
    """Return the worker of a running task, or None if it is unknown or the task has ended."""
    result = task.get("result")
    return result.get("hostname") if isinstance(result, dict) else None

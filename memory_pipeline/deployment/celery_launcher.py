"""Launches runs as Celery tasks, and notices when the worker that took one is gone.

Celery writes down that a task was started and, when it ends, how. Of a worker that was killed, or whose machine was, it
writes down nothing: the task stays started, and for Dagster's own launcher the run goes on for ever. This one asks the
workers. In ``dagster.yaml``::

    run_launcher:
      module: memory_pipeline.deployment.celery_launcher
      class: WatchedCeleryRunLauncher
      config:
        broker: {env: MEMORY_PIPELINE_BROKER}
        backend: {env: MEMORY_PIPELINE_BACKEND}
    run_monitoring:
      enabled: true
      poll_interval_seconds: 15

Run monitoring asks it about each run that has started. After `missed_answers` looks in a row at which no worker held
the task, it says that the run has failed; then run retries, or the sensors, ask for it again.
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

#: A worker that is busy answers within milliseconds, for its work is done in processes of its own. A machine that
#: swaps, or a broker that is started again, may keep it from that once or twice.
_MISSED_ANSWERS, _ANSWER_SECONDS = 3, 2.0


class WatchedCeleryRunLauncher(CeleryRunLauncher):
    """A launcher whose runs fail when their worker is gone.

    Workers must do their work in processes (``--pool prefork``, Celery's default): those of the pools ``solo`` do not
    answer while they work.

    Args:
        missed_answers: at how many looks in a row no worker must hold the task of a run that is said to have failed.
        answer_seconds: how long workers have to answer.
        others: what :class:`CeleryRunLauncher` takes: broker, backend, include, config_source, default_queue.

    Raises:
        ConfigurationError: a number is not above zero.
    """

    def __init__(
        self, missed_answers: int = _MISSED_ANSWERS, answer_seconds: float = _ANSWER_SECONDS, **others: Any
    ) -> None:
        for name, value in (("missed_answers", missed_answers), ("answer_seconds", answer_seconds)):
            if not value > 0:
                raise ConfigurationError(
                    f"run_launcher: {name} {shown(value)} is not above zero; leave it out, perhaps"
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
                description="At how many looks of run monitoring in a row no worker must hold the task of a run that "
                "is said to have failed.",
            ),
            "answer_seconds": Field(
                Float,
                is_required=False,
                default_value=_ANSWER_SECONDS,
                description="How long workers have to answer, in seconds.",
            ),
        }

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Tell whether a worker still does a run that has started, as far as can be known."""
        task_id = run.tags.get(DAGSTER_CELERY_TASK_ID_TAG)
        if task_id is None:
            # The daemon was killed between sending it and writing down as what.
            return CheckRunHealthResult(WorkerStatus.RUNNING, "its task is unknown; the run's time limit ends it")
        task = self.celery.backend.get_task_meta(task_id)
        if task["status"] in {FAILURE, REVOKED}:
            self._missed.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.FAILED, f"its Celery task: {shown(str(task['result']), 300)}")
        worker = _worker_of(task)
        if holder := self._holder(task_id, worker):
            self._missed.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=holder)
        missed = self._missed[run.run_id] = self._missed.get(run.run_id, 0) + 1
        told = f"Celery worker {worker or 'unknown'} does not hold its task {task_id} ({task['status']})"
        if missed < self._enough:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"{told}, {missed} of {self._enough} looks")
        del self._missed[run.run_id]
        return CheckRunHealthResult(
            WorkerStatus.FAILED, f"{told} any more at {missed} looks: it was killed, or its machine is gone"
        )

    def _holder(self, task_id: str, worker: str | None) -> str | None:
        """Return the worker that holds a task; None if none says so."""
        asked = [worker] if worker else None
        answers = self.celery.control.inspect(destination=asked, timeout=self._patience).query_task(task_id)
        return next((name for name, held in (answers or {}).items() if task_id in held), None)


def _worker_of(task: dict[str, Any]) -> str | None:
    """Return who said that it starts a task; None if that is not known, or the task has ended."""
    said = task.get("result")
    return said.get("hostname") if isinstance(said, dict) else None

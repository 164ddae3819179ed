"""Settings of the Celery workers, by the name under which dagster-celery looks for them; its folder is on PYTHONPATH.

With this file a worker is started by Celery itself: ``celery --app dagster_celery.app worker``. The command
``dagster-celery worker start --config-yaml`` would write the same, passwords included, to a file that it never removes,
and stand between Celery and the signal that asks it to finish what it does.
"""

from __future__ import annotations

import os

broker_url = os.environ["DAGSTER_CELERY_BROKER_URL"]
result_backend = os.environ["DAGSTER_CELERY_BACKEND_URL"]

# One run at a time and worker. It has the machine's cores: Polars, Arrow and Lance use threads.
worker_concurrency = 1
# A worker that is busy takes no second run, which would wait for it while another worker is idle.
worker_disable_prefetch = True
worker_prefetch_multiplier = 1
# Kilobytes; a process that has grown beyond it is replaced when its run has ended.
worker_max_memory_per_child = 2_000_000
# What asks whether a run's worker is alive must know which worker took it.
task_track_started = True
result_extended = True
# Seconds; Dagster keeps what became of a run.
result_expires = 86_400
# A broker that is restarted is waited for.
broker_connection_retry_on_startup = True

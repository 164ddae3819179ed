"""Settings of the Celery workers. dagster-celery imports them by this name; the folder must be on PYTHONPATH.

Start a worker with ``celery --app dagster_celery.app worker``. Do not use ``dagster-celery worker start
--config-yaml``: it writes the settings, passwords included, to a file that it never deletes, and does not pass on the
signal that asks a worker to finish.
"""

from __future__ import annotations

import os

broker_url = os.environ["DAGSTER_CELERY_BROKER_URL"]
result_backend = os.environ["DAGSTER_CELERY_BACKEND_URL"]

# One run at a time: Polars, Arrow and Lance use all cores.
worker_concurrency = 1
# A busy worker prefetches no run, which could otherwise wait while another worker is idle.
worker_disable_prefetch = True
worker_prefetch_multiplier = 1
# Kilobytes. A larger process is replaced after its run.
worker_max_memory_per_child = 2_000_000
# The launcher's liveness check needs the name of the worker.
task_track_started = True
result_extended = True
# Seconds. Dagster has its own record of each run.
result_expires = 86_400
# Wait for a broker that restarts.
broker_connection_retry_on_startup = True

"""Classes that the ``dagster.yaml`` of an instance on several machines names. Needs the extra ``cluster``."""

from memory_pipeline.errors import require

require("cluster", "dagster_celery")

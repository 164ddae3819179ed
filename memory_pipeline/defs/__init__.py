"""Dagster definitions: partitions, resources, assets, jobs, schedules and sensors. Pipeline logic is in `steps`."""

from memory_pipeline.errors import require

require("pipeline", "dagster")

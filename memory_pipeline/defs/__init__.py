"""Dagster definitions: partitions, resources, assets, jobs, schedules and sensors. Pipeline logic is in `steps`."""

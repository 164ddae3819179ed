"""The pipeline as plain functions over a lake, without Dagster. Start with :mod:`~memory_pipeline.steps.materialize`.

Each step replaces whole partitions and skips current ones.
"""

"""The pipeline as plain functions over a lake. Dagster is not imported here; :mod:`memory_pipeline.defs` calls these.

Each step replaces whole partitions and skips those that are current. Start with
:mod:`~memory_pipeline.steps.materialize`, which defines the order of the steps.
"""

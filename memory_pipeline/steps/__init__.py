"""The pipeline as plain functions over a lake. No Dagster in here: :mod:`memory_pipeline.defs` calls these.

Every step replaces whole partitions, and does nothing where the result is there already. Read
:mod:`~memory_pipeline.steps.materialize` first; it says in which order the others run.
"""

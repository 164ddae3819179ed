"""The pipeline as plain functions over a lake, without Dagster. Start with :mod:`~memory_pipeline.steps.materialize`.

Each step replaces whole partitions and skips current ones.
"""

from memory_pipeline.errors import require

require("run", "polars")

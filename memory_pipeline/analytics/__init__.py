"""Orders and runs the SQL of ``dbt_like_sql`` over the lake: the only door to DuckDB."""

from memory_pipeline.analytics.warehouse import Model, Warehouse, models_of, stale_marts

__all__ = ["Model", "Warehouse", "models_of", "stale_marts"]

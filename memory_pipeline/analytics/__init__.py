"""Orders and runs the SQL of ``dbt_like_sql`` over the lake, and makes its marts."""

from memory_pipeline.analytics.catalogue import Catalogue, catalogue, models_of, reads_of
from memory_pipeline.analytics.columns import Column, columns_of
from memory_pipeline.analytics.headers import Model
from memory_pipeline.analytics.sources import SOURCES
from memory_pipeline.analytics.warehouse import Built, Warehouse, stale_marts

__all__ = [
    "SOURCES",
    "Built",
    "Catalogue",
    "Column",
    "Model",
    "Warehouse",
    "catalogue",
    "columns_of",
    "models_of",
    "reads_of",
    "stale_marts",
]

"""Run the SQL models of ``dbt_like_sql`` over the lake and build the marts."""

from memory_pipeline.analytics.catalog import Catalog, Column, columns_of, models_of, read_catalog, reads_of
from memory_pipeline.analytics.lake_views import SOURCES
from memory_pipeline.analytics.model_files import Model
from memory_pipeline.analytics.warehouse import Built, Warehouse, stale_marts

__all__ = [
    "SOURCES",
    "Built",
    "Catalog",
    "Column",
    "Model",
    "Warehouse",
    "columns_of",
    "models_of",
    "read_catalog",
    "reads_of",
    "stale_marts",
]

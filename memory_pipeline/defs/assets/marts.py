"""The marts of ``dbt_like_sql`` as assets, made after the summaries."""

from typing import Any

import dagster as dg

from memory_pipeline.analytics import Model, Warehouse, models_of
from memory_pipeline.defs.automation import after_summaries
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.grains import SUMMARY_GRAINS
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.ledger import table_asset


def mart_assets(timezone: str) -> list[dg.AssetsDefinition]:
    """Return one asset for each mart, with its tests run before it counts as made."""
    return [_mart_asset(model, timezone) for model in models_of("marts")]


def _mart_asset(model: Model, timezone: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=model.name,
        deps=[table_asset("working"), *(table_asset(grain) for grain in SUMMARY_GRAINS)],
        description=model.description,
        group_name="marts",
        owners=["team:memory"],
        kinds={"duckdb", "sql"},
        automation_condition=after_summaries(timezone),
    )
    def mart(memory: LakeResource) -> dg.MaterializeResult[Any]:
        warehouse = Warehouse(memory.lake)
        offenders = {test.name: rows for test in models_of("tests") if (rows := warehouse.query(test.name).num_rows)}
        if offenders:
            raise LakeError(f"tests of dbt_like_sql returned rows: {offenders}; `memory-pipeline sql TEST` shows them")
        rows, changed = warehouse.build(model.name)
        return dg.MaterializeResult(metadata={"dagster/row_count": rows, "changed": changed})

    return mart

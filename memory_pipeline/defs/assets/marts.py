"""Assets of the marts of ``dbt_like_sql``. One step builds the selected ones, from one snapshot of the lake."""

# No `from __future__ import annotations` in this module: Dagster reads the context's annotation at run time.

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from memory_pipeline.analytics import SOURCES, Built, Model, Warehouse, columns_of, models_of, reads_of
from memory_pipeline.checks.check import CONSOLIDATION_ROWS, PLACES, ROWS_OF_GRAIN
from memory_pipeline.defs.partition_keys import Group, Partitions
from memory_pipeline.defs.resources import MARTS_POOL, LakeResource
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, LEDGER, MEMORIES, MESSAGES, MODEL_CALLS, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset

_OF_ROWS = {one.spec.name: tuple(place.asset for place in PLACES if place.spec is one.spec) for one in PLACES}
#: The assets that write each table of the lake. Other tables have no asset.
_ASSETS = {
    **_OF_ROWS,
    MEMORIES.name: (*_OF_ROWS[MEMORIES.name], CONSOLIDATION_ROWS.asset),
    MODEL_CALLS.name: (*(place.asset for place in ROWS_OF_GRAIN.values()), CONSOLIDATION_ROWS.asset),
    LEDGER.name: (*(place.asset for place in PLACES), *map(index_asset, Grain)),
}
#: Tables that are shown with columns, and their assets.
_WITH_COLUMNS = {spec.name: _OF_ROWS[spec.name] for spec in (MESSAGES, FACTS, SUMMARIES, GRAPH_FACTS, MEMORIES)}


def mart_assets(
    partitions: Partitions, timezone: str, on_error: Callable[[Exception], object] = lambda _: None
) -> list[dg.AssetsDefinition]:
    """Return the assets of all marts. One step builds any subset; `on_error` gets the exception before a run fails."""
    models = models_of("marts")

    @dg.multi_asset(
        name="make_marts",
        description="Builds the selected marts with DuckDB.",
        specs=[_spec(model, partitions, timezone) for model in models],
        can_subset=True,
        pool=partitions.pool(MARTS_POOL),
    )
    def make_marts(context: dg.AssetExecutionContext, memory: LakeResource) -> Iterator[dg.MaterializeResult[Any]]:
        chosen = {key.path[-1] for key in context.selected_asset_keys}
        names = [model.name for model in models if model.name in chosen]
        memory.lake.access_log.settle(datetime.now(UTC))
        memory.lake.read_receipts.settle(datetime.now(UTC))
        memory.lake.calls.settle()
        try:
            for name, built in Warehouse(memory.lake).build_all(names):
                yield dg.MaterializeResult(
                    asset_key=partitions.asset(name), metadata=_metadata(name, partitions, built)
                )
        except Exception as error:
            on_error(error)
            raise

    return [make_marts]


def _spec(model: Model, partitions: Partitions, timezone: str) -> dg.AssetSpec:
    marts, tables = reads_of(model.name)
    parts = (
        f"Incremental: a {model.incremental} is rebuilt only if its partitions changed." if model.incremental else ""
    )
    paragraphs = [model.description, f"**A row is** {model.row}", parts, f"Time zone of days: {timezone}."]
    columns = [dg.TableColumn(column.name, column.type, column.description) for column in columns_of(model.name)]
    return dg.AssetSpec(
        partitions.asset(model.name),
        deps=sorted(map(partitions.asset, {*marts, *(asset for table in tables for asset in _ASSETS.get(table, ()))})),
        description="\n\n".join(filter(None, paragraphs)),
        group_name=Group.MARTS.value,
        owners=[model.owner],
        kinds={"duckdb", "sql"},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "dagster/column_lineage": _lineage(model.name, partitions),
            "SQL": dg.MetadataValue.md(f"```sql\n{model.sql.strip()}\n```"),
        },
    )


def _lineage(name: str, partitions: Partitions) -> dg.TableColumnLineage:
    return dg.TableColumnLineage(
        {
            column.name: [
                dg.TableColumnDep(partitions.asset(asset), source)
                for table, source in column.comes_from
                for asset in _assets_with_columns(table)
            ]
            for column in columns_of(name)
        }
    )


def _assets_with_columns(table: str) -> tuple[str, ...]:
    if table in _WITH_COLUMNS:
        return _WITH_COLUMNS[table]
    return () if table in SOURCES else (table,)


def _metadata(name: str, partitions: Partitions, built: Built) -> dict[str, Any]:
    return {
        "dagster/row_count": built.rows,
        "dagster/column_lineage": _lineage(name, partitions),
        "rows": built.rows,
        "rows_read": built.read,
        "months_made": built.months,
        "bytes": built.bytes,
        "seconds": round(built.seconds, 4),
        "changed": built.changed,
    }

"""The assets of the six grains, from one factory: messages and facts by the hour, summaries by day, week, … year.

A grain's tables and its index are made by one op, so that a run is one step and the journal is acknowledged when
everything stands.
"""

# No `from __future__ import annotations` in here: Dagster reads config annotations as they stand.

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from memory_pipeline.defs.automation import roll_up
from memory_pipeline.defs.partitions import Partitions
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.periods import Calendar, Period
from memory_pipeline.lake.ledger import GRAPH_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, MESSAGES, SUMMARIES, TableSpec
from memory_pipeline.models.selection import Models
from memory_pipeline.steps.made import Made
from memory_pipeline.steps.make import make

_LOOKS = {
    MESSAGES_ASSET: "What was said, deduplicated: one row a message, from the journal. "
    "Hours in which nobody spoke stay missing; that is complete.",
    "working_facts": "Working memory: every turn as it was said, and what its sentences assert.",
    GRAPH_ASSET: "Who, what, whom, and for how long: the operations of all hours, folded for each agent. An hour is "
    "made once the graph knows its operations, whose number its rows are.",
}


class PeriodsConfig(dg.Config):
    """Which periods a run makes, where it is not given partitions.

    Scattered hours are listed here rather than covered by a range: Dagster writes an event for every partition of a
    range, and most hours are silent. In a deployment only working memory takes it: Dagster wants partitions for assets
    that are made from partitioned ones.
    """

    periods: list[str] = Field(default_factory=list)


def grain_assets(
    grain: Grain, models: Models | None, partitions: Partitions, calendar: Calendar
) -> dg.AssetsDefinition:
    """Return the assets of one grain: its table or tables, and its index.

    Without `models`, each run takes those that the lake's configuration names when it starts.
    """

    @dg.multi_asset(
        name=f"make_{grain}",
        specs=list(_specs(grain, calendar.timezone)),
        partitions_def=partitions.definitions[grain],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=f"memory_{grain}",
    )
    def make_grain(
        context: dg.AssetExecutionContext, config: PeriodsConfig, memory: LakeResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        memory.lake.ensure()
        if config.periods:
            periods = [Period.parse(grain, text) for text in config.periods]
        elif context.has_partition_key or context.has_partition_key_range:
            periods = [partitions.period(grain, key) for key in context.partition_keys]
            _refuse_open(periods, calendar)
        else:
            raise dg.Failure("no partition is chosen; choose some in the launch dialog", allow_retries=False)
        for made in make(memory.lake, models or memory.models(), grain, periods):
            # Logged one by one, as they are done: a run that fails later keeps what it made, and a run of scattered
            # hours touches no others.
            context.log_event(
                dg.AssetMaterialization(
                    made.asset,
                    partition=partitions.key(made.period),
                    metadata=_metadata(made),
                    tags={"dagster/data_version": made.output_digest},
                )
            )
        yield from ()

    return make_grain


def _refuse_open(periods: list[Period], calendar: Calendar) -> None:
    """Raise if a summary is asked for whose period, or the last week that it is made from, has not ended."""
    now = datetime.now(UTC)
    for period in periods:
        if period.grain is not Grain.WORKING and (closes := calendar.closes_at(period)) > now:
            raise dg.Failure(
                f"{period.grain} period {period} closes at {closes:%Y-%m-%d %H:%M} UTC and cannot be summarized before",
                allow_retries=False,
            )


def _specs(grain: Grain, timezone: str) -> Iterator[dg.AssetSpec]:
    finer = grain.finer
    common: dict[str, Any] = {"group_name": grain.value, "owners": ["team:memory"], "skippable": True}
    table = table_asset(grain)
    if finer is None:
        yield dg.AssetSpec(
            MESSAGES_ASSET,
            description=_LOOKS[MESSAGES_ASSET],
            kinds={"deltalake"},
            metadata=_columns(MESSAGES),
            **common,
        )
        yield dg.AssetSpec(
            table,
            deps=[MESSAGES_ASSET],
            description=_LOOKS[table],
            kinds={"deltalake"},
            metadata=_columns(FACTS),
            **common,
        )
        yield dg.AssetSpec(
            GRAPH_ASSET,
            deps=[table],
            description=_LOOKS[GRAPH_ASSET],
            kinds={"deltalake"},
            metadata=_columns(GRAPH_FACTS),
            **{**common, "group_name": "graph"},
        )
    else:
        yield dg.AssetSpec(
            table,
            deps=[table_asset(finer)],
            description=f"One {grain} summary for each agent, made from {table_asset(finer)}, each point citing it.",
            kinds={"deltalake"},
            metadata=_columns(SUMMARIES),
            automation_condition=roll_up(grain, timezone),
            **common,
        )
    yield dg.AssetSpec(
        index_asset(grain),
        deps=[table],
        description=f"What readers search: {table} as a vector index, one table for each agent.",
        kinds={"lancedb"},
        **common,
    )


def _columns(spec: TableSpec) -> dict[str, Any]:
    columns = [
        dg.TableColumn(field.name, str(field.type), description=field.metadata[b"comment"].decode())
        for field in spec.schema
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def _metadata(made: Made) -> dict[str, Any]:
    messages = {"messages": made.messages} if made.period.grain is Grain.WORKING else {}
    usage = made.usage
    asked = {
        "calls": usage.calls,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cost_usd": 0.0 if usage.cost is None else round(usage.cost, 6),
        "calls_without_price": usage.unpriced,
        "fallbacks": made.fallbacks,
        "unfinished": made.unfinished,
        "refused": made.refused,
    }
    return {
        "rows": made.rows,
        "agents": made.agents,
        **messages,
        **(asked if made.asset == table_asset(made.period.grain) else {}),
        "bytes": made.bytes,
        "seconds": round(made.seconds, 4),
        "changed": made.changed,
        "period": made.period.key,
    }

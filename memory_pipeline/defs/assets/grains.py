"""Assets of the six grains: messages and facts per hour, summaries per day, week, month, quarter and year.

One op writes a grain's tables and index, so that the journal is acknowledged once everything is written.
"""

# No `from __future__ import annotations` in this module: Dagster reads config annotations at run time.

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from memory_pipeline.defs.metadata import Provenance, index_columns, source_of, table_columns, with_previews
from memory_pipeline.defs.partition_keys import Group, Partitions
from memory_pipeline.defs.resources import LakeResource, pool_of
from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, MEMORIES, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.models.factory import Models
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import PartitionResult

_DESCRIPTIONS = {
    MESSAGES_ASSET: "Messages from the journal, one row per message, without duplicates. Hours without messages stay "
    "missing in Dagster; this is normal.",
    "working_facts": "The turns of each conversation, word for word, and the facts extracted from them.",
    GRAPH_ASSET: "The knowledge graph of each agent: subject, predicate, object and the time when it is true. Computed "
    "from all graph operations. The row count of a partition is the number of operations in that hour.",
    MEMORIES_ASSET: "Durable memories of each agent: rules, instructions, preferences and facts that never expire. "
    "Computed from the events of conversations, agents and consolidation. The row count of a partition is the number "
    "of events in that hour.",
}
_NUMBERS = (
    "\n\n*Metadata of a partition:* `rows` and `agents` in it; `calls`, `tokens_in`, `tokens_out`, `cost_usd`: model "
    "usage of the latest run; `fallbacks`: rows written by rules because a model failed; `unfinished`: rows that wait "
    "for a model; `refused`: rejected parts of model answers; `refused_because`: their number by reason"
)
_COMPRESSION = "; `compression`: tokens of the summaries per token of their sources"
UNITS = {
    Grain.DAILY: "day",
    Grain.WEEKLY: "week",
    Grain.MONTHLY: "month",
    Grain.QUARTERLY: "quarter",
    Grain.YEARLY: "year",
}
#: Numbered, since the UI sorts groups by name.


class PeriodsConfig(dg.Config):
    """The periods of a run without a partition range, since Dagster writes an event for every partition of a range."""

    periods: list[str] = Field(
        default_factory=list,
        description="Periods to process, such as 2024-01-15 or 2024-W03. By default the partitions of the run.",
    )

    def selected(self, context: dg.AssetExecutionContext, grain: Grain, partitions: Partitions) -> list[Period]:
        """Return the periods of a run: those listed here, or its partitions."""
        if self.periods:
            return [Period.parse(grain, text) for text in self.periods]
        if context.has_partition_key or context.has_partition_key_range:
            return [partitions.period(grain, key) for key in context.partition_keys]
        raise dg.Failure("no partition is selected; select some in the launch dialog", allow_retries=False)


def grain_assets(
    grain: Grain,
    models: Models | None,
    partitions: Partitions,
    calendar: Calendar,
    partitions_per_run: int | None = None,
    on_error: Callable[[Exception], object] = lambda _: None,
) -> dg.AssetsDefinition:
    """Return the assets of one grain: its tables and its index.

    By default a run uses the models of the lake's configuration when it starts, and a backfill is one run.
    `partitions_per_run` splits a backfill. `on_error` gets the exception before a run fails.
    """
    policy = dg.BackfillPolicy.multi_run(partitions_per_run) if partitions_per_run else dg.BackfillPolicy.single_run()

    @dg.multi_asset(
        name=f"make_{grain}",
        description=f"Computes {grain} summaries and their search index."
        if grain.finer
        else "Loads messages and computes facts, graph, durable memories and the search index.",
        specs=list(_specs(grain, partitions)),
        partitions_def=partitions.definitions[grain],
        backfill_policy=policy,
        pool=partitions.pool(pool_of(grain)),
    )
    def make_grain(
        context: dg.AssetExecutionContext, config: PeriodsConfig, memory: LakeResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        memory.lake.ensure()
        periods = config.selected(context, grain, partitions)
        if not config.periods:
            refuse_open([period for period in periods if grain.finer], calendar.closes_at, "summarize")
        provenance = Provenance(context.instance, partitions)
        try:
            results = materialize(memory.lake, models or memory.models(), grain, periods)
            for result, preview in with_previews(memory.lake, periods, results):
                # Logged one by one: a run that fails later keeps its finished partitions, and a run of scattered hours
                # reports no others.
                context.log_event(
                    dg.AssetMaterialization(
                        partitions.asset(result.asset),
                        partition=partitions.key(result.period),
                        metadata=_metadata(result, preview),
                        tags=provenance.tags(result),
                    )
                )
        except Exception as error:
            on_error(error)
            raise
        yield from ()

    return make_grain


def refuse_open(periods: Iterable[Period], ends_at: Callable[[Period], datetime], then: str) -> None:
    """Raise if a period has not ended; that of a summary ends with the last week among its sources."""
    now = datetime.now(UTC)
    for period in periods:
        if (end := ends_at(period)) > now:
            raise dg.Failure(
                f"{period.grain} period {period} ends at {end:%Y-%m-%d %H:%M} UTC; {then} it afterwards",
                allow_retries=False,
            )


def _specs(grain: Grain, partitions: Partitions) -> Iterator[dg.AssetSpec]:
    finer = grain.finer
    common: dict[str, Any] = {"owners": ["team:memory"], "tags": {"grain": grain.value}, "skippable": True}
    table = table_asset(grain)
    if finer is None:
        for name, spec, group in (
            (MESSAGES_ASSET, MESSAGES, Group.INGEST.value),
            (table, FACTS, Group.GRAINS.value),
            (GRAPH_ASSET, GRAPH_FACTS, Group.GRAPH.value),
            (MEMORIES_ASSET, MEMORIES, Group.MEMORIES.value),
        ):
            yield dg.AssetSpec(
                partitions.asset(name),
                deps=[partitions.asset(source)] if (source := source_of(name, grain)) else [],
                description=_DESCRIPTIONS[name] + (f"{_NUMBERS}." if name == table else ""),
                group_name=group,
                kinds={"deltalake" if spec.partition_by else "lancedb"},
                metadata={**table_columns(spec), "dagster/table_name": spec.name},
                **common,
            )
    else:
        yield dg.AssetSpec(
            partitions.asset(table),
            deps=[partitions.asset(table_asset(finer))],
            description=f"One summary per agent and {UNITS[grain]}, from {table_asset(finer)}. Each point cites its "
            f"sources. A summary is computed when the {UNITS[grain]} has closed, and again if late data changes its "
            f"sources.{_NUMBERS}{_COMPRESSION}.",
            group_name=Group.GRAINS.value,
            kinds={"deltalake"},
            metadata={**table_columns(SUMMARIES), "dagster/table_name": SUMMARIES.name},
            **common,
        )
    yield dg.AssetSpec(
        partitions.asset(index_asset(grain)),
        deps=[partitions.asset(table)],
        description=f"Search index of {table}: vectors and search terms, in LanceDB tables by shard. It is written "
        "with the table and can be rebuilt from it.",
        group_name=Group.GRAINS.value,
        kinds={"lancedb"},
        metadata=index_columns(),
        **common,
    )


def _metadata(result: PartitionResult, preview: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {} if preview is None else {"preview": dg.MetadataValue.md(preview)}
    metadata |= {"rows": result.rows, "agents": result.agents}
    if result.period.grain is Grain.WORKING:
        metadata["messages"] = result.messages
    if result.asset == MESSAGES_ASSET:
        metadata |= {
            "expired": result.expired,
            "forgotten": result.forgotten,
            "redacted": result.redacted,
            "not_captured": result.not_captured,
        }
    if result.asset == table_asset(result.period.grain):
        metadata |= {
            **usage_numbers(result.usage),
            "calls_without_price": result.usage.unpriced,
            "fallbacks": result.fallbacks,
            "unfinished": result.unfinished,
            "refused": result.refused.total(),
            "refused_because": dg.MetadataValue.json(dict(result.refused)),
        }
    if result.compression is not None:
        metadata["compression"] = round(result.compression, 4)
    if result.asset in {MESSAGES_ASSET, table_asset(result.period.grain)}:  # others have no files of one period
        metadata["bytes"] = result.bytes
    metadata |= {"seconds": round(result.seconds, 4), "changed": result.changed, "period": result.period.key}
    return metadata


def usage_numbers(usage: Usage) -> dict[str, Any]:
    """Return the calls of models and their cost, as metadata."""
    cost = 0.0 if usage.cost is None else round(usage.cost, 6)
    return {"calls": usage.calls, "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out, "cost_usd": cost}

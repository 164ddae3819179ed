"""The assets of the six grains, from one factory: messages and facts per hour, summaries per day, week, … year.

One op writes a grain's tables and index, so that a run is one step and the journal is acknowledged once everything is
written.
"""

# No `from __future__ import annotations` in this module: Dagster reads config annotations at run time.

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from memory_pipeline.defs.metadata import Provenance, index_columns, source_of, table_columns, with_previews
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import LakeResource, pool_of
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, MEMORIES, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.models.factory import Models
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import PartitionResult

_DESCRIPTIONS = {
    MESSAGES_ASSET: "Messages from the journal, one row per message, deduplicated. An hour without messages stays "
    "missing; nothing is wrong with it.",
    "working_facts": "Working memory: every turn verbatim, and the facts extracted from it.",
    GRAPH_ASSET: "The graph of each agent: subject, predicate, object and validity in time, folded from all "
    "operations. The row count of an hour is the number of operations in it.",
    MEMORIES_ASSET: "Durable memories of each agent: rules, instructions, preferences and lasting facts, folded from "
    "events of conversations, of the agent and of consolidation. They never expire. The row count of an hour is the "
    "number of events in it.",
}
_NUMBERS = (
    "\n\n*Metadata of a partition:* `rows` and `agents` it contains; `calls`, `tokens_in`, `tokens_out`, `cost_usd`: "
    "use of models in the latest run; `fallbacks`: rows written by rules because a model failed; `unfinished`: rows "
    "that wait for a model; `refused`: parts of model answers that were rejected"
)
_COMPRESSION = "; `compression`: tokens of the summaries per token of their sources"
_UNITS = {
    Grain.DAILY: "day",
    Grain.WEEKLY: "week",
    Grain.MONTHLY: "month",
    Grain.QUARTERLY: "quarter",
    Grain.YEARLY: "year",
}
#: Numbered, since the UI sorts groups by name.
_GROUPS = {grain: f"{number}_{grain}" for number, grain in enumerate(Grain, start=1)}


class PeriodsConfig(dg.Config):
    """The periods of a run that has no partition range.

    Scattered hours are listed here: Dagster writes an event for every partition of a range, and most hours are empty.
    """

    periods: list[str] = Field(default_factory=list)


def grain_assets(
    grain: Grain,
    models: Models | None,
    partitions: Partitions,
    calendar: Calendar,
    partitions_per_run: int | None = None,
    on_error: Callable[[Exception], object] = lambda _: None,
) -> dg.AssetsDefinition:
    """Return the assets of one grain: its tables and its index.

    Args:
        grain: the grain.
        models: by default each run uses the models that the lake's configuration names when it starts.
        partitions: translates periods to partition keys.
        calendar: sets the time zone in which days begin.
        partitions_per_run: splits a backfill into runs of this size; by default a backfill is one run.
        on_error: called with the exception before a run fails.
    """
    policy = dg.BackfillPolicy.multi_run(partitions_per_run) if partitions_per_run else dg.BackfillPolicy.single_run()

    @dg.multi_asset(
        name=f"make_{grain}",
        specs=list(_specs(grain)),
        partitions_def=partitions.definitions[grain],
        backfill_policy=policy,
        pool=pool_of(grain),
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
            raise dg.Failure("no partition is selected; select some in the launch dialog", allow_retries=False)
        provenance = Provenance(context.instance)
        try:
            done = materialize(memory.lake, models or memory.models(), grain, periods)
            for made, preview in with_previews(memory.lake, periods, done):
                # Logged one by one: a run that fails later keeps its finished partitions, and a run of scattered hours
                # reports no others.
                context.log_event(
                    dg.AssetMaterialization(
                        made.asset,
                        partition=partitions.key(made.period),
                        metadata=_metadata(made, preview),
                        tags=provenance.tags(made),
                    )
                )
        except Exception as error:
            on_error(error)
            raise
        yield from ()

    return make_grain


def _refuse_open(periods: list[Period], calendar: Calendar) -> None:
    """Raise if the period of a summary, or the last week among its sources, has not ended."""
    now = datetime.now(UTC)
    for period in periods:
        if period.grain is not Grain.WORKING and (closes := calendar.closes_at(period)) > now:
            raise dg.Failure(
                f"{period.grain} period {period} closes at {closes:%Y-%m-%d %H:%M} UTC; summarize it afterwards",
                allow_retries=False,
            )


def _specs(grain: Grain) -> Iterator[dg.AssetSpec]:
    finer = grain.finer
    common: dict[str, Any] = {"owners": ["team:memory"], "tags": {"grain": grain.value}, "skippable": True}
    table, group = table_asset(grain), _GROUPS[grain]
    if finer is None:
        for name, spec, group_name in (
            (MESSAGES_ASSET, MESSAGES, group),
            (table, FACTS, group),
            (GRAPH_ASSET, GRAPH_FACTS, "graph"),
            (MEMORIES_ASSET, MEMORIES, "memory"),
        ):
            yield dg.AssetSpec(
                name,
                deps=[source] if (source := source_of(name, grain)) else [],
                description=_DESCRIPTIONS[name] + (f"{_NUMBERS}." if name == table else ""),
                group_name=group_name,
                kinds={"deltalake"},
                metadata={**table_columns(spec), "dagster/table_name": spec.name},
                **common,
            )
    else:
        yield dg.AssetSpec(
            table,
            deps=[table_asset(finer)],
            description=f"One summary per agent and {_UNITS[grain]}, from {table_asset(finer)}. Each point cites its "
            f"sources. Computed once the {_UNITS[grain]} has closed, and again if late data changes its "
            f"sources.{_NUMBERS}{_COMPRESSION}.",
            group_name=group,
            kinds={"deltalake"},
            metadata={**table_columns(SUMMARIES), "dagster/table_name": SUMMARIES.name},
            **common,
        )
    yield dg.AssetSpec(
        index_asset(grain),
        deps=[table],
        description=f"Search index of {table}: vectors and terms, one LanceDB table per agent. It is written with the "
        "table and can be rebuilt from it.",
        group_name=group,
        kinds={"lancedb"},
        metadata=index_columns(),
        **common,
    )


def _metadata(made: PartitionResult, preview: str | None) -> dict[str, Any]:
    """Return the metadata of a partition. The UI plots numbers over partitions."""
    metadata: dict[str, Any] = {} if preview is None else {"preview": dg.MetadataValue.md(preview)}
    metadata |= {"rows": made.rows, "agents": made.agents}
    if made.period.grain is Grain.WORKING:
        metadata["messages"] = made.messages
    if made.asset == MESSAGES_ASSET:
        metadata |= {"expired": made.expired, "forgotten": made.forgotten}
    if made.asset == table_asset(made.period.grain):
        usage = made.usage
        metadata |= {
            "calls": usage.calls,
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "cost_usd": 0.0 if usage.cost is None else round(usage.cost, 6),
            "calls_without_price": usage.unpriced,
            "fallbacks": made.fallbacks,
            "unfinished": made.unfinished,
            "refused": made.refused,
        }
    if made.compression is not None:
        metadata["compression"] = round(made.compression, 4)
    if made.asset in {MESSAGES_ASSET, table_asset(made.period.grain)}:  # others have no files of one period
        metadata["bytes"] = made.bytes
    metadata |= {"seconds": round(made.seconds, 4), "changed": made.changed, "period": made.period.key}
    return metadata

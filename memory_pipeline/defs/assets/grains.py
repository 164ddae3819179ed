"""The assets of the six grains, from one factory: messages and facts by the hour, summaries by day, week, … year.

A grain's tables and its index are made by one op, so that a run is one step and the journal is acknowledged when
everything stands.
"""

# No `from __future__ import annotations` in here: Dagster reads config annotations as they stand.

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
    MESSAGES_ASSET: "What was said: one row a message, from the journal, without doubles. An hour in which nobody "
    "spoke stays missing, and is complete.",
    "working_facts": "Working memory: every turn as it was said, and each fact that its sentences assert.",
    GRAPH_ASSET: "Who, what, whom, and from when until when: all that each agent was told, folded into what it knows. "
    "The number of rows of an hour is that of the changes which were said in it.",
    MEMORIES_ASSET: "What each agent keeps for good: rules, instructions, preferences, lasting facts, folded from what "
    "conversations said, what the agent did itself, and the nightly upkeep. No retention plan deletes it. The number "
    "of rows of an hour is that of the events in it.",
}
#: What the numbers of a partition say, for who looks at their plots.
_NUMBERS = (
    "\n\n*Numbers of a partition:* `rows` and `agents` that it holds; `calls`, `tokens_in`, `tokens_out`, `cost_usd`: "
    "what models were asked when it was last made; `fallbacks`: rows that rules made since a model failed; "
    "`unfinished`: what waits for a model; `refused`: parts of answers that were not taken"
)
_COMPRESSION = "; `compression`: tokens of the summaries for each token that they were made from"
_UNITS = {
    Grain.DAILY: "day",
    Grain.WEEKLY: "week",
    Grain.MONTHLY: "month",
    Grain.QUARTERLY: "quarter",
    Grain.YEARLY: "year",
}
#: Grains in their order: the UI sorts groups by name.
_GROUPS = {grain: f"{number}_{grain}" for number, grain in enumerate(Grain, start=1)}


class PeriodsConfig(dg.Config):
    """Which periods a run makes, where it is not given partitions.

    Scattered hours are listed here rather than covered by a range: Dagster writes an event for every partition of a
    range, and most hours are silent.
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
    """Return the assets of one grain: its table or tables, and its index.

    Args:
        grain: which.
        models: what extracts, embeds and summarizes; without, each run takes those that the lake's configuration names
            when it starts.
        partitions: of the deployment.
        calendar: where days begin.
        partitions_per_run: into runs of how many partitions a backfill is cut; None makes it one run.
        on_error: told what a run raises before the run fails.
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
            raise dg.Failure("no partition is chosen; choose some in the launch dialog", allow_retries=False)
        provenance = Provenance(context.instance)
        try:
            done = materialize(memory.lake, models or memory.models(), grain, periods)
            for made, preview in with_previews(memory.lake, periods, done):
                # Logged one by one, as they are done: a run that fails later keeps what it made, and a run of scattered
                # hours touches no others.
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
    """Raise if a summary is asked for whose period, or the last week that it is made from, has not ended."""
    now = datetime.now(UTC)
    for period in periods:
        if period.grain is not Grain.WORKING and (closes := calendar.closes_at(period)) > now:
            raise dg.Failure(
                f"{period.grain} period {period} closes at {closes:%Y-%m-%d %H:%M} UTC and cannot be summarized before",
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
            description=f"What remains of a {_UNITS[grain]}: one summary for each agent, made from "
            f"{table_asset(finer)}, each point citing what it rests on. Made once the {_UNITS[grain]} has closed, and "
            f"again when late data changes it.{_NUMBERS}{_COMPRESSION}.",
            group_name=group,
            kinds={"deltalake"},
            metadata={**table_columns(SUMMARIES), "dagster/table_name": SUMMARIES.name},
            **common,
        )
    yield dg.AssetSpec(
        index_asset(grain),
        deps=[table],
        description=f"What readers search: {table} with vectors and words, a LanceDB table for each agent. It is made "
        "with the table, and can be made again from it.",
        group_name=group,
        kinds={"lancedb"},
        metadata=index_columns(),
        **common,
    )


def _metadata(made: PartitionResult, preview: str | None) -> dict[str, Any]:
    """Return what the UI shows of a partition; whatever is a number it plots over partitions."""
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

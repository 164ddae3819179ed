"""Consolidation of durable memories as assets: the changes of each day, and the hot indexes after it."""

# No `from __future__ import annotations` in this module: Dagster reads the context's annotation at run time.

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from importlib.metadata import version
from typing import Any

import dagster as dg

from memory_pipeline.defs.assets.grains import PeriodsConfig
from memory_pipeline.defs.metadata import table_columns
from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.defs.resources import AGENTS_POOL, LakeResource
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import MEMORIES, UPKEEP_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET, LedgerEntry
from memory_pipeline.models.factory import Models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET, UPKEEP_ASSET
from memory_pipeline.steps.consolidation.report import ConsolidationReport, DayResult

#: Name of the op. Its run config may list days.
OP = "keep_memories"

_UPKEEP = (
    "Consolidation of durable memories per day: promotions, merges, superseded values, stale and archived memories. "
    "Each event has a reason.\n\n*Metadata of a partition:* `events` of all agents; `agents` processed in the run, and "
    "their `merged`, `superseded`, `cooled`, `archived`, `promoted`, `kept` memories; `review`: stale memories that "
    "need a review; `troubles`: failed passes, which changed nothing and are retried."
)
_HOT = (
    "Hot index of each agent: its most important durable memories, one line each, within two caps, for every system "
    "prompt.\n\n*Metadata of a partition:* `entries` of the processed agents; lines that `entered` and `left`."
)
#: Agents of a preview, and characters of an agent's block.
_AGENTS, _CHARACTERS = 3, 4_000
_VERBS = {
    "merged": "MERGE",
    "superseded": "SUPERSEDE",
    "cooled": "COOL",
    "archived": "ARCHIVE",
    "promoted": "PROMOTE",
    "kept": "KEEP",
}


def upkeep_assets(
    models: Models | None,
    partitions: Partitions,
    calendar: Calendar,
    start: date,
    tell: Callable[[ConsolidationReport], None] | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of consolidation. A partition is a day, consolidated after its end.

    Args:
        models: by default each run uses the models that the lake's configuration names.
        partitions: translates periods to partition keys.
        calendar: sets the time zone in which days begin.
        start: first day of the memory.
        tell: called with the report of a run.
    """
    common: dict[str, Any] = {
        "owners": ["team:memory"],
        "kinds": {"deltalake"},
        "group_name": "memories",
        "skippable": True,
    }

    @dg.multi_asset(
        name=OP,
        specs=[
            dg.AssetSpec(
                UPKEEP_ASSET,
                deps=[MEMORIES_ASSET],
                description=_UPKEEP,
                metadata={**table_columns(UPKEEP_EVENTS), "dagster/table_name": UPKEEP_EVENTS.name},
                **common,
            ),
            dg.AssetSpec(
                HOT_INDEX_ASSET,
                deps=[UPKEEP_ASSET],
                description=_HOT,
                metadata={**table_columns(MEMORIES), "dagster/table_name": MEMORIES.name},
                **common,
            ),
        ],
        partitions_def=partitions.definitions[Grain.DAILY],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=AGENTS_POOL,  # hours and consolidation write the same tables
    )
    def keep_memories(
        context: dg.AssetExecutionContext, config: PeriodsConfig, memory: LakeResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        if config.periods:
            nights = [Period.parse(Grain.DAILY, text) for text in config.periods]
        elif context.has_partition_key or context.has_partition_key_range:
            nights = [partitions.period(Grain.DAILY, key) for key in context.partition_keys]
        else:
            raise dg.Failure("no partition is selected; select some in the launch dialog", allow_retries=False)
        _refuse_open(nights, calendar)
        lake = memory.lake
        lake.ensure()
        before = context.instance.event_log_storage.get_maximum_record_id() or 1
        done = consolidate(lake, models or memory.models(), nights, start)
        if tell is not None:
            tell(done)
        chosen = {night.key for night in nights}
        # Later days are recomputed too; they are reported if they changed.
        shown = [night for night in done.nights if night.night.key in chosen or night.changed]
        entries = lake.ledger.entries(UPKEEP_ASSET, [night.night for night in shown])
        for number, night in enumerate(shown, start=1):
            key, entry = partitions.key(night.night), entries.get(night.night.key)
            preview = _preview(lake, done) if number == len(shown) else None
            for asset, metadata in ((UPKEEP_ASSET, _numbers(night, entry)), (HOT_INDEX_ASSET, _hot(night, preview))):
                context.log_event(
                    dg.AssetMaterialization(
                        asset, partition=key, metadata=metadata, tags=_tags(asset, entry, before) if entry else {}
                    )
                )
        for night in shown:
            for trouble in night.troubles:
                context.log.error(f"{night.night}: a pass failed, the next run retries: {trouble}")
        yield from ()

    return keep_memories


def _refuse_open(nights: Sequence[Period], calendar: Calendar) -> None:
    """Raise if a day has not ended."""
    now = datetime.now(UTC)
    for night in nights:
        if (ends := calendar.bounds(night)[1]) > now:
            raise dg.Failure(
                f"day {night} ends at {ends:%Y-%m-%d %H:%M} UTC; consolidate it afterwards",
                allow_retries=False,
            )


def _tags(asset: str, entry: LedgerEntry, before: int) -> dict[str, str]:
    """Return the tags from which Dagster decides whether a day of consolidation is stale."""
    source, read = (
        (MEMORIES_ASSET, entry.input_digest) if asset == UPKEEP_ASSET else (UPKEEP_ASSET, entry.output_digest)
    )
    return {
        "dagster/data_version": entry.output_digest,
        "dagster/code_version": version("memory-pipeline"),
        f"dagster/input_data_version/{source}": read,
        f"dagster/input_event_pointer/{source}": str(before),
    }


def _numbers(night: DayResult, entry: LedgerEntry | None) -> dict[str, Any]:
    usage = night.usage
    return {
        "events": entry.rows if entry else sum(night.events.values()),
        "agents": night.agents,
        **{name: night.events[verb] for name, verb in _VERBS.items()},
        "review": len(night.review),
        "troubles": len(night.troubles),
        **({"failed": dg.MetadataValue.json(night.troubles[:20])} if night.troubles else {}),
        "calls": usage.calls,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cost_usd": 0.0 if usage.cost is None else round(usage.cost, 6),
        "changed": bool(night.changed),
        "period": night.night.key,
    }


def _hot(night: DayResult, preview: str | None) -> dict[str, Any]:
    return {
        **({} if preview is None else {"preview": dg.MetadataValue.md(preview)}),
        **({"entries": night.hot} if night.agents else {}),
        "entered": night.events["HEAT"],
        "left": night.events["CHILL"],
        "period": night.night.key,
    }


def _preview(lake: Lake, done: ConsolidationReport) -> str | None:
    """Return the hot indexes of some agents, as code blocks, since their content is untrusted."""
    configuration = lake.configuration()
    allowed = {scope: lines for scope, lines in done.hot.items() if configuration.previews(scope.workspace_id)}
    parts = [_block(scope, lines) for scope, lines in list(allowed.items())[:_AGENTS] if lines]
    return "\n\n".join(["Current hot indexes:", *parts]) if parts else None


def _block(scope: Scope, lines: Sequence[str]) -> str:
    text = [f"{scope.workspace_id} / {scope.agent_id}", *lines]
    printable = ("".join(c if c.isprintable() else " " for c in line) for line in text)
    return "\n".join(f"    {line}" for line in printable)[:_CHARACTERS]

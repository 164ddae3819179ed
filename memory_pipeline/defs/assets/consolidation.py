"""Assets of durable memories: promotion of session entries, the changes of each day, and the hot indexes after it."""

# No `from __future__ import annotations` in this module: Dagster reads the context's annotation at run time.

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from importlib.metadata import version
from typing import Any

import dagster as dg

from memory_pipeline.defs.assets.grains import PeriodsConfig, refuse_open, usage_numbers
from memory_pipeline.defs.metadata import table_columns
from memory_pipeline.defs.partition_keys import Group, Partitions
from memory_pipeline.defs.resources import AGENTS_POOL, LakeResource
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, MEMORIES
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, MEMORIES_ASSET, LedgerEntry
from memory_pipeline.models.factory import Models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET
from memory_pipeline.steps.consolidation.report import ConsolidationReport, DayResult
from memory_pipeline.steps.promotion import PROMOTION_ASSET, promote

#: Name of the op; its run config may list days.
OP = "keep_memories"

_CONSOLIDATION = (
    "Daily consolidation of durable memories: merges duplicates, resolves contradictions, promotes repeated "
    "observations to facts, and cools and archives stale memories. Each change is an event with a reason.\n\n"
    "*Metadata of a partition:* `events` of all agents; `agents` that the run processed; `merged`, `superseded`, "
    "`cooled`, `archived`, `promoted`, `kept`: number of their memories; `review`: stale memories that need a review; "
    "`troubles`: failed passes, which change nothing and are retried."
)
_HOT = (
    "Hot index of each agent: its most important durable memories, one line each, for every system prompt. The number "
    "of lines and tokens is limited.\n\n*Metadata of a partition:* `entries`: lines of the agents that the run "
    "processed; `entered` and `left`: lines added and removed."
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


def consolidation_asset(
    models: Models | None,
    partitions: Partitions,
    calendar: Calendar,
    start: date,
    on_report: Callable[[ConsolidationReport], None] | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of consolidation. A partition is a day, consolidated after its end.

    By default a run uses the models of the lake's configuration. `on_report` gets the report of a run.
    """
    common: dict[str, Any] = {
        "owners": ["team:memory"],
        "kinds": {"deltalake"},
        "group_name": Group.MEMORIES.value,
        "skippable": True,
    }

    @dg.multi_asset(
        name=OP,
        description="Consolidates durable memories and chooses the hot indexes.",
        specs=[
            dg.AssetSpec(
                partitions.asset(CONSOLIDATION_ASSET),
                deps=[partitions.asset(MEMORIES_ASSET), partitions.asset(PROMOTION_ASSET)],
                description=_CONSOLIDATION,
                metadata={**table_columns(CONSOLIDATION_EVENTS), "dagster/table_name": CONSOLIDATION_EVENTS.name},
                **common,
            ),
            dg.AssetSpec(
                partitions.asset(HOT_INDEX_ASSET),
                deps=[partitions.asset(CONSOLIDATION_ASSET)],
                description=_HOT,
                metadata={**table_columns(MEMORIES), "dagster/table_name": MEMORIES.name},
                **common,
            ),
        ],
        partitions_def=partitions.definitions[Grain.DAILY],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=partitions.pool(AGENTS_POOL),  # hours and consolidation write the same tables
    )
    def keep_memories(
        context: dg.AssetExecutionContext, config: PeriodsConfig, memory: LakeResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        days = config.selected(context, Grain.DAILY, partitions)
        refuse_open(days, lambda day: calendar.bounds(day)[1], "consolidate")
        lake = memory.lake
        lake.ensure()
        before = context.instance.event_log_storage.get_maximum_record_id() or 1
        report = consolidate(lake, models or memory.models(), days, start)
        if on_report is not None:
            on_report(report)
        requested = {day.key for day in days}
        # Later days are recomputed too; they are reported if they changed.
        shown = [result for result in report.nights if result.night.key in requested or result.changed]
        entries = lake.ledger.entries(CONSOLIDATION_ASSET, [result.night for result in shown])
        for number, result in enumerate(shown, start=1):
            key, entry = partitions.key(result.night), entries.get(result.night.key)
            preview = _preview(lake, report) if number == len(shown) else None
            for asset, metadata in (
                (CONSOLIDATION_ASSET, _numbers(result, entry)),
                (HOT_INDEX_ASSET, _hot(result, preview)),
            ):
                context.log_event(
                    dg.AssetMaterialization(
                        partitions.asset(asset),
                        partition=key,
                        metadata=metadata,
                        tags=_tags(asset, partitions, entry, before) if entry else {},
                    )
                )
        for result in shown:
            for trouble in result.troubles:
                context.log.error(f"{result.night}: a pass failed, the next run retries: {trouble}")
        yield from ()

    return keep_memories


def _tags(asset: str, partitions: Partitions, entry: LedgerEntry, before: int) -> dict[str, str]:
    sources = (
        {MEMORIES_ASSET: entry.input_digest, PROMOTION_ASSET: _PROMOTION_VERSION}
        if asset == CONSOLIDATION_ASSET
        else {CONSOLIDATION_ASSET: entry.output_digest}
    )
    tags = {"dagster/data_version": entry.output_digest, "dagster/code_version": version("memory-pipeline")}
    for source, version_read in sources.items():
        name = partitions.asset(source).to_user_string()
        tags[f"dagster/input_data_version/{name}"] = version_read
        tags[f"dagster/input_event_pointer/{name}"] = str(before)
    return tags


def _numbers(result: DayResult, entry: LedgerEntry | None) -> dict[str, Any]:
    return {
        "events": entry.rows if entry else sum(result.events.values()),
        "agents": result.agents,
        **{name: result.events[verb] for name, verb in _VERBS.items()},
        "review": len(result.review),
        "troubles": len(result.troubles),
        **({"failed": dg.MetadataValue.json(result.troubles[:20])} if result.troubles else {}),
        **usage_numbers(result.usage),
        "changed": bool(result.changed),
        "period": result.night.key,
    }


def _hot(result: DayResult, preview: str | None) -> dict[str, Any]:
    return {
        **({} if preview is None else {"preview": dg.MetadataValue.md(preview)}),
        **({"entries": result.hot} if result.agents else {}),
        "entered": result.events["HEAT"],
        "left": result.events["CHILL"],
        "period": result.night.key,
    }


def _preview(lake: Lake, report: ConsolidationReport) -> str | None:
    """Return the hot indexes of some agents, as code blocks, since their content is untrusted."""
    configuration = lake.configuration()
    allowed = {scope: lines for scope, lines in report.hot.items() if configuration.previews(scope.workspace_id)}
    parts = [_block(scope, lines) for scope, lines in list(allowed.items())[:_AGENTS] if lines]
    return "\n\n".join(["Current hot indexes:", *parts]) if parts else None


def _block(scope: Scope, lines: Sequence[str]) -> str:
    text = [f"{scope.workspace_id} / {scope.agent_id}", *lines]
    printable = ("".join(c if c.isprintable() else " " for c in line) for line in text)
    return "\n".join(f"    {line}" for line in printable)[:_CHARACTERS]


#: The data version of promotion, always the same, because days are pending by their memory events.
_PROMOTION_VERSION = "1"


def promotion_asset(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset of promotion."""

    @dg.asset(
        key=partitions.asset(PROMOTION_ASSET),
        group_name=Group.MEMORIES.value,
        owners=["team:memory"],
        kinds={"sql"},
        pool=partitions.pool(AGENTS_POOL),  # one at a time
    )
    def session_promotions(memory: LakeResource) -> dg.MaterializeResult[Any]:
        """Expired short-term entries of sessions with three accesses or more become durable memories.

        Their events are written to the journal, and the day's consolidation reads them from there. Other expired
        entries of sessions and pools are deleted.

        *Metadata:* `promoted` entries; `refused`: entries that durable memory does not accept; `expired`: deleted
        entries; `left_entries` and `left_bytes`: all entries of sessions and pools that are left in the database.
        """
        done = promote(memory.lake, datetime.now(UTC))
        figures = {name: value for name, value in asdict(done).items() if name != "reasons"}  # these name people's keys
        return dg.MaterializeResult(metadata=figures, data_version=dg.DataVersion(_PROMOTION_VERSION))

    return session_promotions

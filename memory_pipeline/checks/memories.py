"""Checks of durable memories and of their daily consolidation."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.checks.check import (
    CONSOLIDATE,
    CONSOLIDATION_ROWS,
    MEMORY_ROWS,
    SAMPLE,
    Offences,
    Severity,
    check,
    scope_names,
    total,
)
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.consolidation import RIVALS
from memory_pipeline.domain.memories.hot_index import HotEntry
from memory_pipeline.domain.memories.record import (
    MAX_HOOK,
    SETTING,
    MemoryClass,
    MemoryKind,
    Status,
    Temperature,
    match_key,
    shortened,
)
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import FIRST_YEAR, Grain, Period
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, MEMORIES_ASSET
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET, pending_days
from memory_pipeline.steps.fold_memories import stale_scopes
from memory_pipeline.steps.group import scopes_in

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from memory_pipeline.checks.check import CheckContext

_AGENTS_PER_READ = 500
#: Consolidation of a day finishes within this time of the day's end. Later it is behind.
LONGEST_WAIT = timedelta(days=1)


@check(
    "level",
    MEMORIES_ASSET,
    f"run `memory-pipeline run`; if the check still fails, {CONSOLIDATE}",
    blocks=True,
)
def stale_agents(context: CheckContext) -> Offences:  # an offender is a scope
    """Durable memories are in sync with all events of conversations, agents and consolidation."""
    lake = context.lake

    def stale_of(scopes: set[Scope]) -> set[Scope]:
        return scopes & (set(_stale(context, scopes)) | _unsynced(context))

    rows = [projection.scan(SCOPE_COLUMNS) for projection in (lake.events, lake.memory_rows)]
    scopes = {scope for part in rows for scope in scopes_in(part)}
    # Check stale scopes twice: the first read may have been between the two commits of a run.
    stale = stale_of(stale_of(scopes | _unsynced(context)))
    numbers = {"agents": len(scopes), "stale": len(stale)}
    return Offences.of(sorted(map(str, stale)), numbers)


def _unsynced(context: CheckContext) -> set[Scope]:
    """Return the scopes whose events differ from the records."""
    lake, columns = context.lake, ("id", *SCOPE_COLUMNS)
    records = pa.concat_tables(
        lake.tables.read(spec, columns=columns) for spec in (MEMORY_EVENTS, CONSOLIDATION_EVENTS)
    )
    stored = lake.events.scan(columns)
    pairs = ((records, stored), (stored, records))
    differing = [rows.filter(pc.invert(pc.is_in(rows["id"], other["id"].combine_chunks()))) for rows, other in pairs]
    return {scope for rows in differing for scope in scopes_in(rows)}


def _stale(context: CheckContext, scopes: Collection[Scope]) -> list[Scope]:
    listed = sorted(scopes, key=lambda scope: scope.key)
    found: list[Scope] = []
    for start in range(0, len(listed), _AGENTS_PER_READ):
        found += stale_scopes(context.lake, listed[start : start + _AGENTS_PER_READ])
    return found


#: Columns that decide whether a memory is active and consolidated.
_STATE = (*SCOPE_COLUMNS, "kind", "context", "is_newest", "status", "temperature", "changed_at")


@check(
    "duplicates",
    CONSOLIDATION_ASSET,
    CONSOLIDATE,
    place=MEMORY_ROWS,
    columns=("memory_id", "content", "subject", "predicate", "object", *SETTING, *_STATE),
)
def duplicates(context: CheckContext, part: pl.DataFrame) -> Offences:
    """After consolidation, no two active memories of one kind are duplicates."""
    first: dict[tuple[object, ...], tuple[str, str]] = {}
    names = []
    active = _active(context, part)
    for identifier, kind, content, target, *setting in active.select(
        "memory_id", "kind", "content", "object", "scope", *SETTING
    ).iter_rows():
        statement = (kind, match_key(MemoryKind(kind), content), *setting)
        object_key = name_key(target or "")
        other, other_object = first.setdefault(statement, (identifier, object_key))
        # Equal text with different objects states two different things.
        if other != identifier and (object_key == other_object or "" in (object_key, other_object)):
            names.append(identifier)
    return Offences.of(names, {"memories": len(active)})


@check(
    "contradictions",
    CONSOLIDATION_ASSET,
    f"{CONSOLIDATE}; `memory-pipeline memories about` lists them",
    place=MEMORY_ROWS,
    columns=("memory_id", "subject", "predicate", "object", "is_point_in_time", "memory_class", *_STATE),
)
def contradictions(context: CheckContext, part: pl.DataFrame) -> Offences:
    """After consolidation, active memories do not name different objects for a predicate that allows one."""
    stated = _active(context, part).filter(
        pl.col("kind").is_in([kind.value for kind in RIVALS]),
        pl.all_horizontal(pl.col("subject", "predicate", "object").is_not_null()),
        pl.col("memory_class") == MemoryClass.FACTUAL.value,
    )
    known: dict[tuple[object, ...], str] = {}
    names = []
    for key, workspace_id, agent_id, identifier, subject, predicate, target, kind, is_moment in stated.select(
        "scope",
        "workspace_id",
        "agent_id",
        "memory_id",
        "subject",
        "predicate",
        "object",
        "kind",
        "is_point_in_time",
    ).iter_rows():
        if context.configuration.vocabulary(Scope(workspace_id, agent_id)).holds_one(predicate):
            object_key = name_key(target)
            attribute = (key, name_key(subject), predicate, RIVALS[MemoryKind(kind)], is_moment)
            if known.setdefault(attribute, object_key) != object_key:
                names.append(identifier)
    return Offences.of(names, {"memories": len(stated)})


def _active(context: CheckContext, part: pl.DataFrame) -> pl.DataFrame:
    """Return active, recallable memories outside of contexts that the last successful consolidation has seen."""
    processed = pl.DataFrame(
        list(_processed_until(context).items()),
        schema={"scope": pl.String, "until": pl.Datetime("us", "UTC")},
        orient="row",
    )
    recalled = part.filter(
        pl.col("is_newest"),
        pl.col("status") == Status.ACTIVE.value,
        pl.col("temperature") != Temperature.COLD.value,
        pl.col("context").is_null(),
    )
    with_end = recalled.join(processed, on="scope", maintain_order="left")
    return with_end.filter(pl.col("changed_at") < pl.col("until"))


def _processed_until(context: CheckContext) -> dict[str, datetime]:
    """Return the end of the last consolidated day by key of the scope, except for scopes with a failed last day."""
    rows = context.lake.tables.read(CONSOLIDATION, columns=["id", "through", "troubles"])
    calendar = context.lake.calendar
    return {
        key: calendar.bounds(Period(Grain.DAILY, through))[1]
        for key, through, troubles in zip(
            *(rows[name].to_pylist() for name in ("id", "through", "troubles")), strict=True
        )
        if not troubles
    }


def _most(context: CheckContext, seen: list[Offences]) -> Offences:
    numbers = {"most_tokens": max(part.numbers["most_tokens"] for part in seen)}
    found = total(context, seen)
    return replace(found, numbers={**found.numbers, **numbers})


@check(
    "caps",
    HOT_INDEX_ASSET,
    CONSOLIDATE,
    description="Each hot index is within the entries and tokens that `memories` in config/workspaces.yaml allows, and "
    "lists only active memories.",
    place=MEMORY_ROWS,
    columns=(*SCOPE_COLUMNS, "is_newest", "temperature", "status", "kind", "title", "hook"),
    conclude=_most,
)
def hot_index_excess(context: CheckContext, part: pl.DataFrame) -> Offences:
    """Find scopes with too many entries or tokens in the hot index, or with inactive ones. An offender is a scope."""
    hot = part.filter(pl.col("is_newest"), pl.col("temperature") == Temperature.HOT.value)
    names, most = [], 0
    for ids, entries in hot.group_by(SCOPE_COLUMNS, maintain_order=True):
        scope = scope_of(*map(str, ids))
        settings = context.configuration.memories(scope).consolidation_settings
        tokens = sum(_tokens(*line) for line in entries.select("kind", "title", "hook").iter_rows())
        most = max(most, tokens)
        inactive = entries.filter(pl.col("status") != Status.ACTIVE.value)
        if len(entries) > settings.hot_entries or tokens > settings.hot_tokens or len(inactive):
            names.append(f"{scope}, {len(entries)} entries, {tokens} tokens, {len(inactive)} not active")
    return Offences.of(names, {"entries": len(hot), "most_tokens": most})


def _tokens(kind: str, title: str, hook: str) -> int:
    line = HotEntry("", MemoryKind(kind), " ".join(title.split()), shortened(hook, MAX_HOOK), 0)
    return count_tokens(f"{line}\n")


@check(
    "explained",
    CONSOLIDATION_ASSET,
    f"another program wrote the events: delete them; {CONSOLIDATE}",
    place=CONSOLIDATION_ROWS,
    columns=("id", "reason"),
)
def missing_reasons(_: CheckContext, part: pl.DataFrame) -> Offences:
    """Each consolidation event has a reason."""
    without = part.filter(pl.col("reason").fill_null("").str.strip_chars() == "")
    return Offences.of(without["id"], {"memories": len(part)})


@check(
    "nights",
    CONSOLIDATION_ASSET,
    f"{CONSOLIDATE}; `memory-pipeline status` lists pending days",
    severity=Severity.WARNING,
)
def unconsolidated_days(context: CheckContext) -> Offences:  # an offender is a day
    """Each day that ended more than a day ago is consolidated, late data included."""
    days = pending_days(context.lake, date(FIRST_YEAR, 1, 1), context.now - LONGEST_WAIT)
    return Offences(len(days), tuple(day.key for day in days[:SAMPLE]), {"nights": len(days)})


@check(
    "troubles",
    CONSOLIDATION_ASSET,
    "see `memory-pipeline status` for the reasons, then run `memory-pipeline consolidate` again",
    severity=Severity.WARNING,
)
def failed_passes(context: CheckContext) -> Offences:  # an offender is a scope, with its last consolidated day
    """No consolidation pass of an agent has failed and waits for a retry."""
    rows = pl.DataFrame(
        pl.from_arrow(context.lake.tables.read(CONSOLIDATION, columns=[*SCOPE_COLUMNS, "through", "troubles"]))
    )
    troubled = rows.filter(pl.col("troubles").list.len() > 0).sort(SCOPE_COLUMNS)
    return Offences.of(scope_names(troubled, "through"), {"agents": len(rows), "troubled": len(troubled)})

"""Recompute data derived from forgotten rows, and scrub summaries that can no longer be recomputed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.erasure.erasure_log import sentences_of
from memory_pipeline.lake.codec.facts import rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.index.index_rows import rows_to_index
from memory_pipeline.lake.schema_types import Holds
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.fold_graph import refold_graph, sync_operations
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import RowDigests, content_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import KeyPoint, Summary
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.erasure.scanner import SubjectScanner
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import LedgerEntry
    from memory_pipeline.models.factory import Models

_PERIODS_PER_WRITE = 400
#: Columns of summaries that are derived from their points.
_OF_POINTS = ("content", "entities")
_WITHOUT_VECTORS = [name for name in SUMMARIES.schema.names if name != "vector"]
#: The assets with rows that may outlive the facts of their hour.
_OUTLIVING = (GRAPH_ASSET, MEMORIES_ASSET)
_MARKS = ("period", "workspace_id", "agent_id", "digest", "embed_model")


def scrub_summaries(
    lake: Lake, scanner: SubjectScanner, facts: Collection[str], days: Collection[str], at: datetime, log: ErasureLog
) -> dict[Grain, set[str]]:
    """Remove from summaries the points that name a person or cite forgotten facts. Return the changed periods by grain.

    Summaries with existing sources are recomputed later. If the sources have expired, scrubbing is all that is
    possible, and the receipt has a remark on the rest. Points after the cutoff `at` remain. `days` are the days of the
    facts; for a person, all summaries are searched.
    """
    scrubbed: dict[Grain, set[str]] = {}
    fact_ids = pa.array(sorted(facts), pa.string())
    is_person = scanner.subject.kind is SubjectKind.PERSON
    for grain in SUMMARY_GRAINS if is_person else [Grain.DAILY]:
        changed: dict[str, Summary | None] = {}
        keys = None if is_person else set(days)
        for rows in scanner.parts(SUMMARIES, _WITHOUT_VECTORS, keys=keys, grain=grain.value):
            matches = scanner.said(rows, SUMMARIES)
            if grain is Grain.DAILY and facts:
                hits = pc.is_in(pc.list_flatten(rows["source_ids"]), fact_ids).to_numpy(zero_copy_only=False)
                matches[pc.list_parent_indices(rows["source_ids"]).to_numpy()[hits.astype(np.bool_)]] = True
            candidates = rows.filter(pa.array(matches))
            for summary in rows_to_summaries(candidates):
                changed[summary.id] = _scrubbed(lake.calendar, scanner, summary, facts, at)
                scrubbed.setdefault(grain, set()).add(summary.period.key)
                log.scopes.add(summary.scope)
            log.note((), candidates["content"].to_pylist())
            log.note((), sentences_of(candidates["key_points"]).to_pylist())
        if changed:
            ids = pa.array(sorted(changed), pa.string())
            new = summaries_to_rows([summary for summary in changed.values() if summary is not None])

            def without(old: pa.Table, ids: pa.Array = ids, new: pa.Table = new) -> pa.Table:
                present = new.filter(pc.is_in(new["id"], old["id"].combine_chunks()))
                return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], ids))), present])

            lake.tables.transform(SUMMARIES, scrubbed[grain], without, grain=grain.value)
            log.take(SUMMARIES.name, f"{grain} summaries that lost points", len(changed))
    return scrubbed


def _scrubbed(
    calendar: Calendar, scanner: SubjectScanner, summary: Summary, facts: Collection[str], at: datetime
) -> Summary | None:
    """Return a summary without the forgotten points; None if no point is left, or another column names the person."""
    is_own = scanner.subject.owns(summary.scope)

    def remains(point: KeyPoint) -> bool:
        if any(source in facts for source in point.source_ids):
            return False
        return point.event_at > at or not (is_own or scanner.mentions([point.sentence, *point.entities]))

    points = tuple(point for point in summary.key_points if remains(point))
    if not points:
        return None
    if _is_named_elsewhere(scanner, summary):
        return None
    places = [place for place, source in enumerate(summary.source_ids) if source not in facts]
    return replace(
        summary,
        content="\n".join(f"{calendar.day_of(point.event_at)} {point.sentence}" for point in points),
        key_points=points,
        entities=tuple(sorted({entity for point in points for entity in point.entities})),
        importance=max(point.importance for point in points),
        source_ids=tuple(summary.source_ids[place] for place in places),
        source_digests=tuple(summary.source_digests[place] for place in places if summary.source_digests),
    )


def _is_named_elsewhere(scanner: SubjectScanner, summary: Summary) -> bool:
    rows = summaries_to_rows([summary])
    others = (name for name in SUMMARIES.holding(Holds.WORDS) if name not in _OF_POINTS)
    return any(scanner.mentioned(rows[name]).any() for name in others)


def remark_expired(lake: Lake, scanner: SubjectScanner, log: ErasureLog) -> None:
    """Add remarks on data that cannot be attributed, because its sources have expired."""
    subject = scanner.subject
    is_person = subject.kind is SubjectKind.PERSON
    latest: dict[RetentionClass, str] = {}
    for scope, retention_class, through in ExpirationMarks.of(lake.tables):
        if scanner.matcher.is_within_reach((scope.workspace_id, scope.agent_id)):
            latest[RetentionClass(retention_class)] = max(through, latest.get(RetentionClass(retention_class), through))
    for retention_class, through in latest.items():
        if retention_class is RetentionClass.CONVERSATIONS:
            clue = "the names in them" if is_person else "the id of the conversation"
            log.remark(
                f"messages up to {through} have expired: facts and durable memories of that time could only be found "
                f"by {clue}"
            )
        elif retention_class.grain is Grain.WORKING and not is_person:
            log.remark(
                f"{retention_class} up to {through} have expired: in summaries of that time, this conversation cannot "
                "be told apart from others"
            )


def ancestors(
    calendar: Calendar, hours: Collection[str], scrubbed: Mapping[Grain, Collection[str]]
) -> dict[Grain, set[str]]:
    """Return the keys of the hours, of the scrubbed summaries and of all their ancestors, by grain."""
    touched: dict[Grain, set[str]] = {}
    periods = {Period.parse(Grain.WORKING, key) for key in hours}
    for grain in Grain:
        periods |= {Period.parse(grain, key) for key in scrubbed.get(grain, ())}
        touched[grain] = {period.key for period in periods}
        periods = {coarser for period in periods for coarser in calendar.derived(period)}
    return touched


def recompute(
    lake: Lake, models: Models, touched: Mapping[Grain, Collection[str]], now: datetime, log: ErasureLog
) -> None:
    """Recompute periods that were computed before and have closed."""
    for grain, keys in touched.items():
        periods = [Period.parse(grain, key) for key in sorted(keys)]
        assets = [table_asset(grain), *([MESSAGES_ASSET, *_OUTLIVING] if grain is Grain.WORKING else [])]
        computed = {key for asset in assets for key in lake.ledger.entries(asset, periods)} if periods else set()
        due = [period for period in periods if period.key in computed and _is_computable(lake, period, now)]
        parts = [*materialize(lake, models, grain, due)]
        empty = {part.period for part in parts if part.asset == table_asset(grain) and not part.rows}
        if empty:
            # A step skips hours that are and were empty, and these were emptied before it ran. Record their entries
            # here. Their graph and durable memories are in sync, even if some of their rows outlive the hour.
            in_sync = (part for part in parts if not part.rows or (part.asset in _OUTLIVING and part.period in empty))
            lake.ledger.record(part.entry for part in in_sync)
        if due:
            log.remade[grain] |= set(due)


def _is_computable(lake: Lake, period: Period, now: datetime) -> bool:
    calendar = lake.calendar
    return (calendar.bounds(period)[0] if period.grain is Grain.WORKING else calendar.closes_at(period)) <= now


def note_summaries(
    scanner: SubjectScanner, touched: Mapping[Grain, Collection[str]] | None, log: ErasureLog
) -> dict[Grain, set[str]]:
    """Add the summaries of periods, or of all, to the log. Return the keys of the periods with summaries, by grain."""
    periods: dict[Grain, set[str]] = {grain: set() for grain in SUMMARY_GRAINS}
    for grain in SUMMARY_GRAINS:
        listed = None if touched is None else set(touched.get(grain, ()))
        columns = ["id", "period", "content", "key_points", "workspace_id", "agent_id"]
        for rows in scanner.parts(SUMMARIES, columns, keys=listed, grain=grain.value):
            periods[grain] |= set(rows["period"].to_pylist())
            log.note(rows["id"].to_pylist(), rows["content"].to_pylist())
            log.note((), sentences_of(rows["key_points"]).to_pylist())
    return periods


def sync_index(
    lake: Lake, scopes: Collection[Scope], touched: Mapping[Grain, Collection[str]], dimension: int, log: ErasureLog
) -> None:
    """Bring agents' graphs and index in sync with the tables. Recomputing skipped agents without messages."""
    hours = sorted(touched.get(Grain.WORKING, ()))
    own = pa.array([scope.key for scope in scopes], pa.string())
    message_ids = lake.tables.read(MESSAGES, hours, columns=["id"])["id"].combine_chunks()
    marks = ExpirationMarks.of(lake.tables)

    def stale(operations: pa.Table) -> pa.ChunkedArray:
        mask = pc.and_(pc.is_in(operations["scope"], own), pc.invert(operations["is_edit"]))
        mask = pc.and_(mask, pc.invert(pc.is_in(operations["evidence_id"], message_ids)))
        expired = np.zeros(operations.num_rows, np.bool_)
        for retention_class in RetentionClass:
            if retention_class.grain is Grain.WORKING:
                expired |= marks.mask(operations, retention_class)
        return pc.and_not(mask, pa.chunked_array([pa.array(expired)]))

    columns = ["workspace_id", "agent_id", "scope", "period", "is_edit", "evidence_id"]
    log.take(GRAPH_OPERATIONS.name, "rows", lake.tables.drop_rows(GRAPH_OPERATIONS, hours, stale, columns))
    sync_graph(lake, scopes, hours)
    for grain in Grain:
        keys = sorted(touched.get(grain, ()))
        for start in range(0, len(keys), _PERIODS_PER_WRITE):
            _index(lake, grain, keys[start : start + _PERIODS_PER_WRITE], scopes, dimension)


def sync_graph(lake: Lake, scopes: Collection[Scope], hours: Collection[str]) -> None:
    """Sync the operations and graphs of scopes with the records of some hours, and of all hours that they have."""
    known = lake.operations.read(scopes, ["period"])["period"].to_pylist()
    refold_graph(lake, scopes, sync_operations(lake, {*hours, *known}).changed)


def _index(lake: Lake, grain: Grain, keys: list[str], scopes: Collection[Scope], dimension: int) -> None:
    spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
    own = {scope.key for scope in scopes}
    rows = rows_to_index(grain, lake.tables.read(spec, keys, scopes=own, shard=None, **fixed), dimension)
    lake.index.replace(grain, [Period.parse(grain, key) for key in keys], rows, scopes)


def enter_removal(lake: Lake, periods: Mapping[Grain, Collection[str]]) -> None:
    """Update the ledger after a removal, so that partitions need no recomputation. Stale ones remain stale."""
    changed: dict[tuple[str, str], LedgerEntry] = {}
    before: dict[Grain, Mapping[str, LedgerEntry]] = {}
    after: dict[Grain, dict[str, LedgerEntry]] = {}
    for grain in Grain:
        before[grain] = lake.ledger.entries(table_asset(grain))
        after[grain] = dict(before[grain])
        touched = [Period.parse(grain, key) for key in sorted(periods.get(grain, ())) if key in before[grain]]
        _recount(lake, grain, touched, before[grain], after[grain], changed)
        if grain.finer is not None:
            finer = grain.finer
            _relink(lake.calendar, grain, before[finer], after[finer], before[grain], after[grain])
        changed |= {(entry.asset, key): entry for key, entry in after[grain].items() if entry != before[grain][key]}
    if changed:
        lake.ledger.record(changed.values())


def _recount(
    lake: Lake,
    grain: Grain,
    periods: list[Period],
    before: Mapping[str, LedgerEntry],
    after: dict[str, LedgerEntry],
    changed: dict[tuple[str, str], LedgerEntry],
) -> None:
    """Update the entries of periods to their current rows, and those of derived assets that were in sync."""
    spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
    rows = lake.tables.read(spec, [period.key for period in periods], columns=_MARKS, shard=None, **fixed)
    derived = {
        asset: lake.ledger.entries(asset, periods)
        for asset in [index_asset(grain), *(_OUTLIVING if grain is Grain.WORKING else [])]
    }
    for period, part in by_period(rows, periods).items():
        old = before[period.key]
        if old.expired:  # its digests cover expired rows, and from now on the removed ones, too
            after[period.key] = replace(old, expired=max(old.expired, old.rows - part.num_rows))
            continue
        now = content_digest(part)
        after[period.key] = replace(old, output_digest=now, rows=part.num_rows, agents=agents_in(part))
        for asset, entries in derived.items():
            entry = entries.get(period.key)
            if entry is not None and entry.input_digest == old.output_digest:
                if asset in _OUTLIVING:
                    changed[asset, period.key] = replace(entry, input_digest=now)
                else:
                    changed[asset, period.key] = replace(
                        entry, input_digest=now, output_digest=now, rows=part.num_rows, agents=agents_in(part)
                    )


def _relink(
    calendar: Calendar,
    grain: Grain,
    before_finer: Mapping[str, LedgerEntry],
    after_finer: Mapping[str, LedgerEntry],
    before: Mapping[str, LedgerEntry],
    after: dict[str, LedgerEntry],
) -> None:
    """Update the input digest of periods with changed sources, unless they were stale before."""
    changed = {
        period
        for key, entry in after_finer.items()
        for period in calendar.derived(Period.parse(_finer(grain), key))
        if entry.output_digest != before_finer[key].output_digest
    }
    for period in changed:
        if period.key not in before:
            continue
        children = [child.key for child in calendar.sources(period)]
        then, now = (
            RowDigests.of(*(entries[key].output_digest for key in children if key in entries)).combined
            for entries in (before_finer, after_finer)
        )
        if before[period.key].input_digest == then:
            after[period.key] = replace(after[period.key], input_digest=now)


def _finer(grain: Grain) -> Grain:
    assert grain.finer is not None  # noqa: S101 - only summaries come here
    return grain.finer

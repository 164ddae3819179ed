"""Materialize partitions: run the steps of a grain in order, in batches that fit in memory."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import BUGS, DamagedLanceTableError, PartitionsError, unexpected
from memory_pipeline.lake.layout import shard_of
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
    table_of,
)
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.steps.batches import batches_of, shards_of, weights_of
from memory_pipeline.steps.extract import extract_facts
from memory_pipeline.steps.fold_graph import fold_graph
from memory_pipeline.steps.fold_memories import fold_memories
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.index import index_periods
from memory_pipeline.steps.indices import every_index
from memory_pipeline.steps.ingest import acknowledge, filter_journal, load_messages
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.results import NO_ROWS, together
from memory_pipeline.steps.scopes import enter_scopes, recompute_scopes
from memory_pipeline.steps.summaries import summarize_periods
from memory_pipeline.steps.unchanged_shards import UnchangedShards
from memory_pipeline.telemetry import step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.journal import JournalFile
    from memory_pipeline.lake.tables.ledger import LedgerEntry, Seen
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.ingest import JournalFileIds
    from memory_pipeline.steps.results import PartitionResult

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)

_ASSETS = {
    grain: (
        *((MESSAGES_ASSET, GRAPH_ASSET, MEMORIES_ASSET) if grain is Grain.WORKING else ()),
        table_asset(grain),
        index_asset(grain),
    )
    for grain in Grain
}
#: How often a batch is recomputed because a concurrent run wrote it. Then its results are entered anyway.
_ATTEMPTS = 5


def materialize(
    lake: Lake, models: Models, grain: Grain, periods: Iterable[Period], *, loads_journal: bool = True
) -> Iterator[PartitionResult]:
    """Materialize partitions of one grain. Yield one result per asset and period after each batch.

    Without `loads_journal`, pending journal files stay as they are, and hours are derived from stored records.

    Safe to repeat, to interrupt and to run concurrently: partitions are replaced whole, the ledger is written once the
    rows are in the index, and the journal is acknowledged last.

    Raises:
        ConfigurationError: the embedder differs from the one of the existing vectors.
        QualityError: some partitions failed validation; all others are complete.
        DamagedError: some partitions or their sources cannot be read; all others are complete.
        UnexpectedError: the code fails on the input of some partitions; all others are complete.
    """
    lake.indices.adopt(models.embedder)
    requested = sorted(set(periods), key=lambda period: period.key)
    weights = weights_of(lake, grain, requested)
    waiting = [*batches_of(weights, grain, requested)][::-1]
    errors: list[PartitionsError] = []
    failed: list[str] = []
    while waiting:
        batch = waiting.pop()
        started = time.perf_counter()
        usage: dict[Period, Usage] = {}
        affected: set[Scope] = set()
        attempts = 0
        while True:
            attempts += 1
            tombstones = lake.tombstones.state()
            seen = lake.ledger.seen(_ASSETS[grain], batch)
            is_entered = True
            try:
                shards = shards_of(lake, weights, batch)
                pending = lake.journal.pending() if loads_journal and grain is Grain.WORKING else ()
                files = [file for file in pending if not {*batch}.isdisjoint(file.pending_hours)]
                with (
                    step(f"materialize {grain}", {"periods": len(batch)}),
                    lake.tables.holding(),
                ):
                    results, spent, is_entered = _with_restored(
                        _materialize_batch, lake, models, grain, batch, shards, files, seen, attempts > _ATTEMPTS
                    )
            except (PartitionsError, *BUGS) as error:
                # Halve the batch until the faulty partition is alone, so that all others succeed.
                results, spent = [], {}
                if len(batch) == 1:
                    errors.append(
                        error if isinstance(error, PartitionsError) else unexpected(f"{grain} {batch[0]}", error)
                    )
                    failed.append(batch[0].key)
                else:
                    half = len(batch) // 2
                    waiting += [batch[half:], batch[:half]]
            for period, used in spent.items():
                usage[period] = usage.get(period, Usage()) + used
            # Erasure may have written its tombstone after this run read, and deleted before this run wrote.
            if lake.tombstones.state() != tombstones:
                _log.info("%s: data was erased during the run, recomputing %s", grain, _span(batch))
                affected |= _agents_of(lake, grain, batch)
            elif is_entered:
                break
            else:
                _log.info("%s: a concurrent run wrote %s, checking again", grain, _span(batch))
        if affected:
            _purge(lake, grain, affected)
        seconds = time.perf_counter() - started
        moved = {"progress": (str(grain), len(requested) - sum(map(len, waiting)), len(requested))}
        _log.info("%s: materialized %s in %.1f s", grain, _span(batch), seconds, extra=moved)
        for part in results:
            used = usage.get(part.period, Usage()) if part.asset == table_asset(grain) else Usage()
            yield replace(part, seconds=seconds / len(batch), usage=used)
    if errors:
        others = f" ({len(errors) - 1:,} more partitions failed)" if len(errors) > 1 else ""
        raise type(errors[0])(f"{errors[0]}{others}", failed) from errors[0]


def _with_restored(work: Callable[..., _Result], lake: Lake, models: Models, *args: object) -> _Result:
    """Return the result of some work, repeated after lost and damaged tables were rebuilt if it found one."""
    try:
        return work(lake, models, *args)
    except DamagedLanceTableError:
        restore_projections(lake, models.embedder, thoroughly=True)
        return work(lake, models, *args)


def _materialize_batch(
    lake: Lake,
    models: Models,
    grain: Grain,
    batch: list[Period],
    shards: Sequence[int | None],
    pending: Sequence[JournalFile],
    seen: Seen,
    is_final: bool,
) -> tuple[list[PartitionResult], dict[Period, Usage], bool]:
    """Materialize a batch. Return its results, the model usage per period, and whether the ledger was written.

    The ledger is not written if its entries of the batch differ from `seen`, unless this attempt is final.
    """
    files: dict[int | None, list[JournalFile]] = defaultdict(list)
    for file in pending:
        files[None if None in shards else shard_of(file.key, lake.shards)].append(file)
    unchanged = None if None in shards else UnchangedShards(lake, models, batch[0])
    done = {} if unchanged is None else dict(unchanged.results(files))
    held: dict[int | None, dict[JournalFile, JournalFileIds]] = {}
    processed = [shard for shard in shards if shard not in done]
    for shard in processed:
        if grain is Grain.WORKING:
            earlier = None if unchanged is None else unchanged.earlier(shard)
            results, held[shard] = _materialize_hours(lake, models, batch, files[shard], shard, earlier)
        else:
            results = summarize_periods(
                lake, models.summarizer, models.embedder, grain, batch, shard, is_fresh=models.is_fresh
            )
        indexed = index_periods(lake, grain, batch, shard)
        done[shard] = [*_as_indexed(results, indexed), *indexed]
    usage = models.store.settle(batch) if models.store else {}
    results = together([done[shard] for shard in shards])
    # Empty hours are not entered, unless they had rows: there are thousands, and pending journal files show which hours
    # need work.
    own = table_asset(grain)
    entered = {part.period for part in results if part.asset == own and _is_entered(part)}
    had_rows = {key for (asset, key), row in seen.items() if asset == own and row["rows"] > (row["expired"] or 0)}
    entered |= {part.period for part in results if part.period.key in had_rows}
    entries = (part.entry for part in results if part.period in entered or _is_entered(part))
    is_entered = lake.ledger.record(entries, None if is_final else seen)
    if is_entered:
        for shard, ids in held.items():
            acknowledge(lake, ids, batch, shard)
        if unchanged is not None:
            unchanged.store({shard: done[shard] for shard in processed})
    return results, usage, is_entered


def _materialize_hours(
    lake: Lake,
    models: Models,
    hours: list[Period],
    files: list[JournalFile],
    shard: int | None,
    earlier: Mapping[str, LedgerEntry] | None,
) -> tuple[list[PartitionResult], dict[JournalFile, JournalFileIds]]:
    """Load, extract and fold hours, of one shard or of all. Return the results, and what the journal files hold.

    `earlier` has the entries of the shard's last complete run, by asset. Without shards, they are in the ledger.
    """
    journal = filter_journal(lake, hours, files)
    ids, edits, events = journal.ids, journal.edits, journal.events
    results = load_messages(lake, hours, journal, shard)
    del journal  # its messages take much memory
    results += extract_facts(lake, models.extractor, models.embedder, hours, shard, is_fresh=models.is_fresh)

    def entries(asset: str) -> Mapping[str, LedgerEntry]:
        if earlier is None:
            return lake.ledger.entries(asset, hours)
        return {hours[0].key: earlier[asset]} if asset in earlier else {}

    results += fold_graph(lake, hours, edits, shard, entries(GRAPH_ASSET))
    results += fold_memories(lake, models.embedder, hours, events, shard, entries(MEMORIES_ASSET))
    enter_scopes(lake, hours, shard)
    return results, ids


def _agents_of(lake: Lake, grain: Grain, batch: list[Period]) -> set[Scope]:
    keys = [period.key for period in batch]
    spec, fixed = table_of(grain)
    specs = (MESSAGES, FACTS, MEMORY_EVENTS) if grain is Grain.WORKING else (spec,)
    tables = (lake.tables.read(each, keys, columns=SCOPE_COLUMNS, shard=None, **fixed) for each in specs)
    return {scope for rows in tables for scope in scopes_in(rows)}


def _purge(lake: Lake, grain: Grain, agents: set[Scope]) -> None:
    """Vacuum rows that this run wrote before it saw their tombstone."""
    working = (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS)
    for spec in working if grain is Grain.WORKING else (SUMMARIES,):
        lake.tables.purge(spec)
    for index in every_index(lake):
        index.purge(agents)
    if grain is Grain.WORKING:
        recompute_scopes(lake, agents)
        for projection in lake.projections.values():
            projection.purge(agents)


def _is_entered(part: PartitionResult) -> bool:
    """Return whether to enter a result in the ledger: it has rows, or messages without facts."""
    if part.asset in (GRAPH_ASSET, MEMORIES_ASSET) and part.input_digest != NO_ROWS:
        return True  # it was folded from facts, even if it is empty
    if part.asset in (GRAPH_ASSET, index_asset(Grain.WORKING)):
        return False  # with the facts only: an hour with edits but no messages is not part of the memory
    is_empty = not (part.rows or part.changed or part.unfinished or part.messages)
    return not is_empty or part.period.grain is not Grain.WORKING


def _as_indexed(results: list[PartitionResult], indexed: list[PartitionResult]) -> list[PartitionResult]:
    """Use the digests and counts of the index step: a concurrent run may have replaced rows since they were written."""
    of_index = {part.period: part for part in indexed}
    return [
        replace(
            part,
            output_digest=of_index[part.period].output_digest,
            rows=of_index[part.period].rows,
            agents=of_index[part.period].agents,
        )
        if part.asset == table_asset(part.period.grain)
        else part
        for part in results
    ]


def _span(periods: list[Period]) -> str:
    first, last = periods[0], periods[-1]
    return f"{first}" if first == last else f"{len(periods)} periods, {first} to {last}"

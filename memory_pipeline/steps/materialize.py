"""Materialize partitions: run the steps of a grain in order, in batches that fit in memory."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import NOTHING
from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import DamagedError, QualityError
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, index_asset, table_asset
from memory_pipeline.steps.batches import batches_of, groups_of, shares_of, weights_of
from memory_pipeline.steps.extract import extract_facts
from memory_pipeline.steps.fold import fold_graph, fold_memories
from memory_pipeline.steps.freeing import give_back
from memory_pipeline.steps.group import agents_in, by_period, scopes_in
from memory_pipeline.steps.index import index_periods
from memory_pipeline.steps.ingest import JournalBatch, acknowledge, load_messages
from memory_pipeline.steps.results import RowDigests, together
from memory_pipeline.steps.summaries import summarize_periods

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import Seen
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.results import PartitionResult
    from memory_pipeline.steps.shares import Share

_log = logging.getLogger(__name__)

#: The assets that a run enters into the ledger.
_ASSETS = {
    grain: (
        *((MESSAGES_ASSET, GRAPH_ASSET, MEMORIES_ASSET) if grain is Grain.WORKING else ()),
        table_asset(grain),
        index_asset(grain),
    )
    for grain in Grain
}
#: How often a batch is recomputed because a concurrent run wrote it. After that the results are entered anyway.
_ATTEMPTS = 5
_AGENT = ("workspace_id", "agent_id")


def materialize(lake: Lake, models: Models, grain: Grain, periods: Iterable[Period]) -> Iterator[PartitionResult]:
    """Materialize partitions of one grain. Yield one result per asset and period after each batch.

    Safe to repeat, to interrupt and to run concurrently: partitions are replaced whole, the ledger is written once the
    rows are in the index, and the journal is acknowledged last.

    Raises:
        ConfigurationError: the embedder differs from the one of the existing vectors.
        QualityError: some partitions failed validation; all others are complete.
        DamagedError: some partitions or their sources cannot be read; all others are complete.
    """
    lake.index.adopt(models.embedder)
    asked = sorted(set(periods), key=lambda period: period.key)
    weights = weights_of(lake, grain, asked)
    waiting = [*batches_of(weights, grain, asked)][::-1]
    refused: list[QualityError | DamagedError] = []
    not_made: list[str] = []
    while waiting:
        batch = waiting.pop()
        started = time.perf_counter()
        usage: dict[Period, Usage] = {}
        affected: set[Scope] = set()
        attempts = 0
        while True:
            attempts += 1
            tombstones = lake.tombstones.state()
            seen = lake.ledger.seen(_ASSETS[grain], batch) if attempts <= _ATTEMPTS else None
            is_entered = True
            try:
                shares = shares_of(lake, weights, grain, batch)
                made, spent, is_entered = _made(lake, models, grain, batch, affected, shares, seen)
            except (QualityError, DamagedError) as error:
                # Halve the batch until the faulty partition is alone, so that all others succeed.
                made, spent = [], {}
                if len(batch) == 1:
                    refused.append(error)
                    not_made.append(batch[0].key)
                else:
                    half = len(batch) // 2
                    waiting += [batch[half:], batch[:half]]
            for period, own in spent.items():
                usage[period] = usage.get(period, Usage()) + own
            # Erasure writes its tombstone first and then deletes. This run may have read before the tombstone and
            # written after the deletion, so it removes such rows itself.
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
        _log.info("%s: materialized %s in %.1f s", grain, _span(batch), seconds)
        for part in made:
            own = usage.get(part.period, Usage()) if part.asset == table_asset(grain) else Usage()
            yield replace(part, seconds=seconds / len(batch), usage=own)
    if refused:
        others = f" ({len(refused) - 1:,} more partitions failed)" if len(refused) > 1 else ""
        raise type(refused[0])(f"{refused[0]}{others}", not_made) from refused[0]


def _made(
    lake: Lake,
    models: Models,
    grain: Grain,
    batch: list[Period],
    also: Collection[Scope],
    shares: Sequence[Share],
    seen: Seen | None,
) -> tuple[list[PartitionResult], dict[Period, Usage], bool]:
    """Materialize a batch. Return its results, the model usage per period, and whether the ledger was written.

    The ledger is not written if its entries of the batch are no longer those of `seen`. Agents in `also` had rows in
    the batch and may have none now. Tables by period are computed one of `shares` after the other and committed
    together; tables of single agents are written some agents at a time.
    """
    intake: JournalBatch | None = None
    if grain is Grain.WORKING:
        intake = JournalBatch(lake, batch, shares)
        made = load_messages(lake, batch, intake.of, shares)
        made += extract_facts(lake, models.extractor, models.embedder, batch, shares)
        groups = groups_of(lake, grain, batch, {*also, *(file.scope for file in intake.held)})
        own: list[list[PartitionResult]] = []
        for group in _one_by_one(groups):
            edits, events = intake.done_by(group)
            folded = fold_graph(lake, batch, edits, group.of(also), group)
            own.append(folded + fold_memories(lake, models.embedder, batch, events, group.of(also), group))
        made += with_inactive_agents(lake, together(own))
    else:
        made = summarize_periods(lake, models.summarizer, models.embedder, grain, batch, shares)
        groups = groups_of(lake, grain, batch, also)
    usage = models.store.settle(batch) if models.store else {}
    indexed = together(
        [
            index_periods(lake, grain, batch, models.embedder.dimension, group.of(also), group)
            for group in _one_by_one(groups)
        ]
    )
    made = [*_as_indexed(made, indexed), *indexed]
    # Empty hours are not entered: there are thousands, and pending journal files show which hours need work.
    entered = {part.period for part in made if part.asset == table_asset(grain) and _is_entered(part)}
    own_entries = (part.entry for part in made if part.period in entered or _is_entered(part) or _is_due(part))
    is_entered = lake.ledger.record(own_entries, seen)
    if intake is not None and is_entered:
        for group in groups:
            acknowledge(lake, intake.held, batch, group)
    return made, usage, is_entered


def _one_by_one(shares: Sequence[Share]) -> Iterator[Share]:
    """Yield shares. If there are several, release memory after each."""
    for share in shares:
        yield share
        if len(shares) > 1:
            give_back()


def _agents_of(lake: Lake, grain: Grain, batch: list[Period]) -> set[Scope]:
    keys = [period.key for period in batch]
    if grain is Grain.WORKING:
        tables = [lake.tables.read(spec, keys, columns=_AGENT) for spec in (MESSAGES, FACTS)]
        # These tables are partitioned by agent.
        tables.append(lake.tables.read(MEMORY_EVENTS, columns=_AGENT, where=pc.field("period").isin(keys)))
    else:
        tables = [lake.tables.read(SUMMARIES, keys, columns=_AGENT, grain=grain.value)]
    return {scope for rows in tables for scope in scopes_in(rows)}


def _purge(lake: Lake, grain: Grain, agents: set[Scope]) -> None:
    """Vacuum rows that this run wrote before it saw their tombstone."""
    working = (MESSAGES, FACTS, GRAPH_OPERATIONS, GRAPH_FACTS, MEMORY_EVENTS, MEMORIES)
    for spec in working if grain is Grain.WORKING else (SUMMARIES,):
        lake.tables.purge(spec)
    lake.index.purge(agents, [grain])


def _is_due(part: PartitionResult) -> bool:
    """Return whether to enter a part even if it is empty: its input may hold more than what is left of the facts."""
    return part.asset in (GRAPH_ASSET, MEMORIES_ASSET) and part.input_digest != NOTHING


def _is_entered(part: PartitionResult) -> bool:
    """Return whether to enter a part: it has rows, or came from messages in which no fact was found."""
    if part.asset == GRAPH_ASSET:
        return False  # an hour with edits but no messages is not part of the memory
    is_silent = not (part.rows or part.changed or part.unfinished or part.messages)
    return not is_silent or part.period.grain is not Grain.WORKING


def _as_indexed(made: list[PartitionResult], indexed: list[PartitionResult]) -> list[PartitionResult]:
    """Use the digests and counts of the index step: a concurrent run may have replaced rows since they were written."""
    found = {part.period: part for part in indexed}
    return [
        replace(
            part,
            output_digest=found[part.period].output_digest,
            rows=found[part.period].rows,
            agents=found[part.period].agents,
        )
        if part.asset == table_asset(part.period.grain)
        else part
        for part in made
    ]


def _span(periods: list[Period]) -> str:
    first, last = periods[0], periods[-1]
    return f"{first}" if first == last else f"{len(periods)} periods, {first} to {last}"


# Inactive agents have memory events in an hour but no journal entries and no messages in it when it is recomputed.
#
# The fold step does not read them, but the ledger must count them however often an hour is recomputed, since its
# entries decide which days of consolidation are due.


_COLUMNS = ("workspace_id", "agent_id", "period", "id")


def with_inactive_agents(lake: Lake, made: Sequence[PartitionResult]) -> list[PartitionResult]:
    """Count the memory events of inactive agents in the results of hours. Call it before the ledger is written.

    The table is read only for hours where the ledger entry differs from what the step found. Only those can have
    inactive agents.
    """
    parts = {part.period: part for part in made if part.asset == MEMORIES_ASSET}
    entries = lake.ledger.entries(MEMORIES_ASSET, list(parts))
    lacking = [
        period
        for period, part in parts.items()
        if period.key in entries
        and entries[period.key].output_digest not in (NOTHING, (part.before or RowDigests()).combined)
    ]
    if not lacking:
        return list(made)
    keys = pa.array([period.key for period in lacking], pa.string())
    rows = lake.tables.read(MEMORY_EVENTS, columns=_COLUMNS, where=pc.field("period").isin(keys))
    whole: dict[Period, PartitionResult] = {}
    for period, own in by_period(rows, lacking).items():
        outputs = RowDigests(own["id"])
        whole[period] = replace(
            parts[period],
            rows=own.num_rows,
            agents=agents_in(own),
            outputs=outputs,
            output_digest=outputs.combined,
        )
    return [whole.get(part.period, part) if part.asset == MEMORIES_ASSET else part for part in made]

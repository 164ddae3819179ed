"""Makes partitions: which step follows which, in batches that fit in memory."""

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


# Bystanders: agents that noted something in an hour once, and say and do nothing when the hour is made again.
#
# What they noted is in the table, and no longer in the journal, so that the step, which looks at whom an hour concerns,
# passes over them. The ledger counts them all the same, however often an hour was made: nights follow from what it
# says.


_COLUMNS = ("workspace_id", "agent_id", "period", "id")


def with_inactive_agents(lake: Lake, made: Sequence[PartitionResult]) -> list[PartitionResult]:
    """Return what was made of hours, of durable memories with what agents noted that the step has not looked at.

    The table is read only where the ledger says of an hour something else than the step has found there: only then may
    there be such agents.

    Args:
        lake: where; its ledger is as it was before the hours were made.
        made: what all agents' steps have made.
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


_log = logging.getLogger(__name__)

#: What a run enters into the ledger.
_ASSETS = {
    grain: (
        *((MESSAGES_ASSET, GRAPH_ASSET, MEMORIES_ASSET) if grain is Grain.WORKING else ()),
        table_asset(grain),
        index_asset(grain),
    )
    for grain in Grain
}
#: How often a batch is made again because another run has made it meanwhile, before what was made is entered anyway.
_LOOKS = 5
_AGENT = ("workspace_id", "agent_id")


def materialize(lake: Lake, models: Models, grain: Grain, periods: Iterable[Period]) -> Iterator[PartitionResult]:
    """Make partitions of one grain, and yield what each asset of each holds once the batch is complete.

    Safe to repeat, to interrupt and to run twice at a time: partitions are replaced whole, the ledger is written when
    their rows can be found in the index, and the journal is acknowledged last.

    Args:
        lake: where.
        models: what extracts, embeds and summarizes.
        grain: of the periods.
        periods: the partitions to make, in any order.

    Raises:
        ConfigurationError: the embedder is not the one that made the vectors which are there.
        QualityError: what was made of some partitions is wrong; all others have been made.
        DamagedError: some partitions, or what they are made from, cannot be read; all others have been made.
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
        looks = 0
        while True:
            looks += 1
            tombstones = lake.tombstones.state()
            seen = lake.ledger.seen(_ASSETS[grain], batch) if looks <= _LOOKS else None
            is_entered = True
            try:
                shares = shares_of(lake, weights, grain, batch)
                made, spent, is_entered = _made(lake, models, grain, batch, affected, shares, seen)
            except (QualityError, DamagedError) as error:
                # What is wrong keeps nothing else from being made: the batch is halved until it stands alone.
                made, spent = [], {}
                if len(batch) == 1:
                    refused.append(error)
                    not_made.append(batch[0].key)
                else:
                    half = len(batch) // 2
                    waiting += [batch[half:], batch[:half]]
            for period, own in spent.items():
                usage[period] = usage.get(period, Usage()) + own
            # Whoever forgets leaves a tombstone first and looks for what to remove afterwards: what this run has read
            # before the one and written after the other, it removes itself.
            if lake.tombstones.state() != tombstones:
                _log.info("%s: something was forgotten meanwhile, %s are made again", grain, _span(batch))
                affected |= _agents_of(lake, grain, batch)
            elif is_entered:
                break
            else:
                _log.info("%s: another run has made %s meanwhile, it is looked at again", grain, _span(batch))
        if affected:
            _purge(lake, grain, affected)
        seconds = time.perf_counter() - started
        _log.info("%s: made %s in %.1f s", grain, _span(batch), seconds)
        for part in made:
            own = usage.get(part.period, Usage()) if part.asset == table_asset(grain) else Usage()
            yield replace(part, seconds=seconds / len(batch), usage=own)
    if refused:
        others = f" ({len(refused) - 1:,} more partitions were not made)" if len(refused) > 1 else ""
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
    """Make a batch; return what each asset of each period holds, and what models were asked for each period.

    Beside it, whether that is entered: not where the ledger no longer says of the batch what was `seen` there before.

    The agents in `also` had rows in it, and may have none any more. Rows of periods are made of one of `shares` after
    the other and committed together; what each agent has tables of its own for is brought level some agents at a time.
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
    # Hours without messages are not entered: there are thousands, and the journal tells when one ends.
    entered = {part.period for part in made if part.asset == table_asset(grain) and _is_entered(part)}
    own_entries = (part.entry for part in made if part.period in entered or _is_entered(part) or _is_due(part))
    is_entered = lake.ledger.record(own_entries, seen)
    if intake is not None and is_entered:
        for group in groups:
            acknowledge(lake, intake.held, batch, group)
    return made, usage, is_entered


def _one_by_one(shares: Sequence[Share]) -> Iterator[Share]:
    """Yield shares; where there are several, the memory that one took is given back before the next."""
    for share in shares:
        yield share
        if len(shares) > 1:
            give_back()


def _agents_of(lake: Lake, grain: Grain, batch: list[Period]) -> set[Scope]:
    """Return the agents that have rows in a batch."""
    keys = [period.key for period in batch]
    if grain is Grain.WORKING:
        tables = [lake.tables.read(spec, keys, columns=_AGENT) for spec in (MESSAGES, FACTS)]
        # What agents did themselves lies with the agents.
        tables.append(lake.tables.read(MEMORY_EVENTS, columns=_AGENT, where=pc.field("period").isin(keys)))
    else:
        tables = [lake.tables.read(SUMMARIES, keys, columns=_AGENT, grain=grain.value)]
    return {scope for rows in tables for scope in scopes_in(rows)}


def _purge(lake: Lake, grain: Grain, agents: set[Scope]) -> None:
    """Take off the disk what a run had written before it knew that it was forgotten."""
    working = (MESSAGES, FACTS, GRAPH_OPERATIONS, GRAPH_FACTS, MEMORY_EVENTS, MEMORIES)
    for spec in working if grain is Grain.WORKING else (SUMMARIES,):
        lake.tables.purge(spec)
    lake.index.purge(agents, [grain])


def _is_due(part: PartitionResult) -> bool:
    """Tell whether a part is entered though there is nothing in it: it may know more than is left of the facts."""
    return part.asset in (GRAPH_ASSET, MEMORIES_ASSET) and part.input_digest != NOTHING


def _is_entered(part: PartitionResult) -> bool:
    """Tell whether a part is entered: it holds something, or was made from messages in which no fact was found."""
    if part.asset == GRAPH_ASSET:
        return False  # an hour in which somebody edited it, and nobody said anything, is not one of the memory
    is_silent = not (part.rows or part.changed or part.unfinished or part.messages)
    return not is_silent or part.period.grain is not Grain.WORKING


def _as_indexed(made: list[PartitionResult], indexed: list[PartitionResult]) -> list[PartitionResult]:
    """Return what tables hold as the index last found it: another run may have replaced rows since they were made."""
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

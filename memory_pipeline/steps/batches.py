"""What is worked on at a time: batches of periods, and of a period that is too large for one, shares of its agents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.steps.shares import WHOLE, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.steps.shares import Share

#: What a batch of several periods weighs, as its messages have in the journal; it has so many hours at most.
_BATCH_BYTES, _BATCH_HOURS = 4_000_000, 400
#: The agents of one period that weighs more are cut into shares of this weight. A message of 350 bytes takes 50 kB of
#: memory on its way to its facts.
_SHARE_BYTES = 1_000_000
#: What a message weighs that has landed, and what a row weighs that a summary is made from.
_MESSAGE_BYTES, _ROW_BYTES = 500, 200
#: Periods of a batch, at most: their sources are read at once.
_BATCH_PERIODS = {
    Grain.DAILY: 31,
    Grain.WEEKLY: 26,
    Grain.MONTHLY: 24,
    Grain.QUARTERLY: 16,
    Grain.YEARLY: 10,
}
_AGENT = ("workspace_id", "agent_id")


def weights_of(lake: Lake, grain: Grain, periods: Sequence[Period]) -> dict[Period, int]:
    """Return about how many bytes of a journal each period is made from; reads no rows."""
    if grain is Grain.WORKING:
        landed = lake.tables.counts(MESSAGES)
        weights = {hour: _MESSAGE_BYTES * landed.get(hour.key, 0) for hour in periods}
        for file in lake.journal.pending():
            for hour in weights.keys() & file.pending_hours:
                weights[hour] += file.hourly_size
        return weights
    spec, fixed = _sources(grain)
    rows = lake.tables.counts(spec, **fixed)
    return {
        period: _ROW_BYTES * sum(rows.get(child.key, 0) for child in lake.calendar.children(period))
        for period in periods
    }


def batches_of(weights: Mapping[Period, int], grain: Grain, periods: Sequence[Period]) -> Iterator[list[Period]]:
    """Cut sorted periods into batches that fit in memory; a period that does not fit is a batch of its own."""
    most = _BATCH_PERIODS.get(grain, _BATCH_HOURS)
    batch: list[Period] = []
    weight = 0
    for period in periods:
        own = weights[period]
        if batch and (weight + own > _BATCH_BYTES or len(batch) == most):
            yield batch
            batch, weight = [], 0
        batch.append(period)
        weight += own
    if batch:
        yield batch


def shares_of(lake: Lake, weights: Mapping[Period, int], grain: Grain, batch: Sequence[Period]) -> Sequence[Share]:
    """Return the shares of agents in which a batch's rows are made; nearly always it is one."""
    if len(batch) > 1 or sum(weights[period] for period in batch) <= _SHARE_BYTES:
        return WHOLE
    own: Counter[Scope] = Counter()
    if grain is Grain.WORKING:
        _weigh(own, lake.tables.read(MESSAGES, [hour.key for hour in batch], columns=_AGENT), _MESSAGE_BYTES)
        for file in lake.journal.pending():
            own[file.scope] += file.hourly_size * len(set(batch).intersection(file.pending_hours))
    else:
        spec, fixed = _sources(grain)
        keys = [child.key for period in batch for child in lake.calendar.children(period)]
        _weigh(own, lake.tables.read(spec, keys, columns=_AGENT, **fixed), _ROW_BYTES)
    return cut(own, _SHARE_BYTES)


def _sources(grain: Grain) -> tuple[TableSpec, dict[str, str]]:
    """Return the table that summaries of a grain are made from, and what selects the rows of the finer grain."""
    finer = grain.finer
    return (FACTS, {}) if finer is None or finer is Grain.WORKING else (SUMMARIES, {"grain": finer.value})


def _weigh(weights: Counter[Scope], rows: pa.Table, each: int) -> None:
    for row in rows.group_by(list(_AGENT)).aggregate([([], "count_all")]).to_pylist():
        weights[Scope(row["workspace_id"], row["agent_id"])] += each * row["count_all"]

"""Batches: which periods are processed together, and which are processed shard by shard, to bound memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.values import batched
from memory_pipeline.lake.schemas import MESSAGES, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake

#: A batch of several periods weighs at most so much, as its messages do in the journal, and has so many hours at most.
_BATCH_BYTES, _BATCH_HOURS = 4_000_000, 400
#: A period that weighs more is processed shard by shard, and stored so.
_LARGE_BYTES = 8_000_000
#: The weight of a stored message, and of a row from which a summary is made.
_MESSAGE_BYTES, _ROW_BYTES = 500, 160
#: Periods of a batch, at most: their sources are read at once.
_BATCH_PERIODS = {
    Grain.DAILY: 31,
    Grain.WEEKLY: 26,
    Grain.MONTHLY: 24,
    Grain.QUARTERLY: 16,
    Grain.YEARLY: 10,
}


def weights_of(lake: Lake, grain: Grain, periods: Sequence[Period]) -> dict[Period, int]:
    """Return about how many bytes of a journal each period is made from; reads no rows."""
    if grain is Grain.WORKING:
        landed = lake.tables.counts(MESSAGES)
        weights = {hour: _MESSAGE_BYTES * landed.get(hour.key, 0) for hour in periods}
        for file in lake.journal.pending():
            for hour in weights.keys() & file.pending_hours:
                weights[hour] += file.hourly_size
        return weights
    spec, fixed = table_of(grain.finer or Grain.WORKING)
    rows = lake.tables.counts(spec, **fixed)
    return {
        period: _ROW_BYTES * sum(rows.get(child.key, 0) for child in lake.calendar.sources(period))
        for period in periods
    }


def batches_of(weights: Mapping[Period, int], grain: Grain, periods: Sequence[Period]) -> Iterator[list[Period]]:
    """Cut sorted periods into batches that fit in memory; a period that does not fit is a batch of its own."""
    return batched(periods, weights.__getitem__, _BATCH_BYTES, _BATCH_PERIODS.get(grain, _BATCH_HOURS))


def shards_of(lake: Lake, weights: Mapping[Period, int], batch: Sequence[Period]) -> Sequence[int | None]:
    """Return the shards in which a batch is processed one after the other; None stands for all of them at once."""
    is_large = len(batch) == 1 and weights[batch[0]] > _LARGE_BYTES
    return range(lake.shards) if is_large else (None,)

"""Makes partitions: which step follows which, in batches that fit in memory."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.grains import Grain
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.steps.acknowledge import acknowledge
from memory_pipeline.steps.extract import extract_facts
from memory_pipeline.steps.index import index_periods
from memory_pipeline.steps.land import land_messages
from memory_pipeline.steps.made import MESSAGES_ASSET, Made, index_asset, table_asset
from memory_pipeline.steps.summarize import summarize_periods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.selection import Models

_log = logging.getLogger(__name__)

#: A batch of hours is closed when its messages have this many bytes, or when it has this many hours.
_BATCH_BYTES, _BATCH_HOURS = 8_000_000, 400
#: Periods of a batch: their sources are read at once.
_BATCH_PERIODS = {
    Grain.DAILY: 31,
    Grain.WEEKLY: 26,
    Grain.MONTHLY: 24,
    Grain.QUARTERLY: 16,
    Grain.YEARLY: 10,
}


def assets_of(grain: Grain) -> tuple[str, ...]:
    """Return the names of the assets of a grain, in the order in which they are made."""
    first = (MESSAGES_ASSET,) if grain is Grain.WORKING else ()
    return (*first, table_asset(grain), index_asset(grain))


def make(lake: Lake, models: Models, grain: Grain, periods: Iterable[Period]) -> Iterator[Made]:
    """Make partitions of one grain, and yield what each asset of each holds once the batch is complete.

    Safe to repeat, to interrupt and to run twice at a time: partitions are replaced whole, the ledger is written when
    their rows can be found in the index, and the journal is acknowledged last.

    Args:
        lake: where.
        models: what extracts, embeds and summarizes.
        grain: of the periods.
        periods: the partitions to make, in any order.
    """
    for batch in _batches(lake, grain, sorted(set(periods), key=lambda period: period.key)):
        started = time.perf_counter()
        if grain is Grain.WORKING:
            made = land_messages(lake, batch)
            made += extract_facts(lake, models.extractor, models.embedder, batch)
        else:
            made = summarize_periods(lake, models.summarizer, models.embedder, grain, batch)
        made += index_periods(lake, grain, batch)
        # Hours of silence are not entered: there are thousands, and the journal tells when one ends.
        lake.ledger.record(part.entry for part in made if part.rows or grain is not Grain.WORKING)
        if grain is Grain.WORKING:
            acknowledge(lake, batch)
        seconds = time.perf_counter() - started
        _log.info("%s: made %s in %.1f s", grain, _span(batch), seconds)
        for part in made:
            yield replace(part, seconds=seconds / len(batch))


def _batches(lake: Lake, grain: Grain, periods: list[Period]) -> Iterator[list[Period]]:
    if grain is not Grain.WORKING:
        size = _BATCH_PERIODS[grain]
        yield from (periods[start : start + size] for start in range(0, len(periods), size))
        return
    weights = lake.tables.sizes(MESSAGES)
    for file in lake.journal.pending():
        weights[file.hour.key] = weights.get(file.hour.key, 0) + file.size
    batch: list[Period] = []
    weight = 0
    for period in periods:
        batch.append(period)
        weight += weights.get(period.key, 0)
        if weight >= _BATCH_BYTES or len(batch) >= _BATCH_HOURS:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


def _span(periods: list[Period]) -> str:
    first, last = periods[0], periods[-1]
    return f"{first}" if first == last else f"{len(periods)} periods, {first} to {last}"

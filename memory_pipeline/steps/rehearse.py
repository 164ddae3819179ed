"""Makes partitions without writing anything: what a run would ask of models, told before it asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.tables.ledger import index_asset, table_asset
from memory_pipeline.steps.admit import admit
from memory_pipeline.steps.batches import batches_of, weights_of
from memory_pipeline.steps.extract import extract_facts
from memory_pipeline.steps.land import land_messages
from memory_pipeline.steps.memories import land_events
from memory_pipeline.steps.plan import grain_status, periods_in
from memory_pipeline.steps.summarize import summarize_periods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake.rehearsal import RehearsalLake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.made import Made


def rehearse(
    lake: RehearsalLake,
    models: Models,
    start: date,
    now: datetime,
    between: tuple[datetime, datetime] | None = None,
) -> Iterator[tuple[Grain, list[Period]]]:
    """Go through all that a run would make, grain by grain, with `models` that count what they are asked.

    Each grain sees what the one below it would have made, as far as stand-ins can tell. Yields the periods of each.

    Args:
        lake: takes no writes.
        models: answer without being asked.
        start: first day of the memory.
        now: as of when.
        between: the range to make again; None for what is pending.
    """
    for grain in Grain:
        if between is None:
            periods = grain_status(lake, grain, start, now).pending
        else:
            periods = periods_in(lake, grain, *between, now)
        for batch in batches_of(weights_of(lake, grain, periods), grain, periods):
            made = _make(lake, models, grain, batch)
            indexed = [
                replace(part, asset=index_asset(grain), input_digest=part.output_digest)
                for part in made
                if part.asset == table_asset(grain)
            ]
            lake.ledger.record(part.entry for part in [*made, *indexed])
        yield grain, periods


def _make(lake: RehearsalLake, models: Models, grain: Grain, batch: list[Period]) -> list[Made]:
    if grain is not Grain.WORKING:
        return summarize_periods(lake, models.summarizer, models.embedder, grain, batch)
    admitted = admit(lake, set(batch))
    landed = land_messages(lake, batch, lambda _: admitted)
    extracted = extract_facts(lake, models.extractor, models.embedder, batch)
    # The graph asks no model; durable memories are embedded.
    events = [event for held in admitted.contents.values() for event in held.events]
    return [*landed, *extracted, *land_events(lake, models.embedder, batch, events)]

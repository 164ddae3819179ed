"""Replay: bring everything that is derived level with the records.

Records are messages, edits, corrections, memory events, tombstones, marks of expiry, and summaries whose sources have
expired.
Facts, operations, other events, folds, summaries and the index follow from them. An erasure, or the repair of damaged
rows, passes the periods and scopes of the rows that it removed. A run derives pending periods with the same steps,
after it has loaded their journal files.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import FIRST_YEAR, Grain, Period
from memory_pipeline.errors import PartitionsError
from memory_pipeline.lake.schemas import SUMMARIES
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET, table_asset
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.fold_graph import refold_graph
from memory_pipeline.steps.fold_memories import refold_memories
from memory_pipeline.steps.materialize import materialize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models


def with_ancestors(
    calendar: Calendar, hours: Iterable[str], others: Mapping[Grain, Iterable[str]]
) -> dict[Grain, set[str]]:
    """Return the keys of hours, of other periods and of the ancestors of both, by grain."""
    found: dict[Grain, set[str]] = {}
    periods = {Period.parse(Grain.WORKING, key) for key in hours}
    for grain in Grain:
        periods |= {Period.parse(grain, key) for key in others.get(grain, ())}
        found[grain] = {period.key for period in periods}
        periods = {coarser for period in periods for coarser in calendar.derived(period)}
    return found


def replay(
    lake: Lake, models: Models, periods: Mapping[Grain, Collection[str]], scopes: Collection[Scope]
) -> dict[Grain, set[str]]:
    """Derive periods again, then fold and consolidate scopes that may have lost rows. Return the derived periods.

    Pending journal files stay pending. Summaries that were never made, such as those of open periods, are left to a
    run. Consolidation goes on to the last day that was consolidated before. Safe to repeat and to interrupt.

    Raises:
        PartitionsError: some periods cannot be derived; all others are complete.
        CommitConflictError: concurrent runs kept writing the same rows.
    """
    entries = lake.ledger.entries_of([CONSOLIDATION_ASSET, *map(table_asset, Grain)])
    derived: dict[Grain, set[str]] = {}
    errors: list[PartitionsError] = []
    for grain in Grain:
        keys = set(periods.get(grain, ()))
        if grain is not Grain.WORKING:
            keys &= {*entries[table_asset(grain)], *lake.tables.keys(SUMMARIES, grain=grain.value)}
        derived[grain] = keys
        try:
            for _ in materialize(
                lake, models, grain, [Period(grain, key) for key in sorted(keys)], loads_journal=False
            ):
                pass
        except PartitionsError as error:
            errors.append(error)
    # A step finds the scopes that change in its periods, and not those that an interrupted one has changed.
    refold_graph(lake, scopes)
    refold_memories(lake, models.embedder, scopes)
    last, first_day = max(entries[CONSOLIDATION_ASSET], default=None), date(FIRST_YEAR, 1, 1)
    if last is not None:
        night = Period(Grain.DAILY, last)
        consolidate(lake, models, {*pending_days(lake, first_day, lake.calendar.bounds(night)[1]), night}, first_day)
    if errors:
        raise errors[0]
    return derived

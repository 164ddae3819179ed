"""Which nights of upkeep are to be made: read from the ledger alone, without opening a table of memory.

A night is made from what happened up to the end of its day. It is pending when its day has ended and it was never made,
when something late has come for the day, or when a pass failed. Nights are entered one for each day from the first on
which something durable happened, also those on which nothing was to be done.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import NOTHING, digest_of_all
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date, datetime

    from memory_pipeline.lake import Lake

#: Names of the assets: what each night did, and the hot index after it.
UPKEEP_ASSET, HOT_INDEX_ASSET = "memory_upkeep", "hot_index"


@dataclass(frozen=True, slots=True)
class NightStatus:
    """What nights of upkeep are there, and what is not.

    Attributes:
        made: nights that were made, in order.
        pending: closed days whose night is to be made: new ones, those with late events, those on which a pass failed.
        missing: those of `pending` that were never made.
        troubled: those of `pending` on which a pass failed.
        events: what all nights did to memories, together.
    """

    made: list[Period]
    pending: list[Period]
    missing: list[Period]
    troubled: list[Period]
    events: int


def night_status(lake: Lake, start: date, now: datetime) -> NightStatus:
    """Return the state of the upkeep as of `now`; days before `start` have no nights."""
    wanted = night_inputs(lake)
    entries = lake.ledger.entries(UPKEEP_ASSET)
    days = {day for day in wanted if day.first_day >= start}
    pending = []
    if days:
        day = min(days, key=_key)
        while lake.calendar.bounds(day)[1] <= now:
            entry = entries.get(day.key)
            if entry is None or entry.unfinished or entry.input_digest != wanted.get(day, NOTHING):
                pending.append(day)
            day = day.next()
    # What had happened before the first day was forgotten since.
    first = min((day.key for day in days), default="9999")
    lost = [key for key, entry in entries.items() if key < first and entry.input_digest != NOTHING]
    pending = [*_nights(lost), *pending]
    return NightStatus(
        made=_nights(entries),
        pending=pending,
        missing=[night for night in pending if night.key not in entries],
        troubled=[night for night in pending if night.key in entries and entries[night.key].unfinished],
        events=sum(entry.rows for entry in entries.values()),
    )


def pending_nights(lake: Lake, start: date, now: datetime) -> list[Period]:
    """Return the nights that are to be made as of `now`, in order; see :class:`NightStatus`."""
    return night_status(lake, start, now).pending


def nights_between(lake: Lake, first: date, last: date, now: datetime) -> list[Period]:
    """Return the nights of closed days from one date to another, both included."""
    days = Period.containing(Grain.DAILY, first).through(Period.containing(Grain.DAILY, last))
    return [day for day in days if lake.calendar.bounds(day)[1] <= now]


def night_inputs(lake: Lake) -> dict[Period, str]:
    """Return the days on which something durable happened, each with a digest of it."""
    digests: dict[Period, list[str]] = defaultdict(list)
    for key, entry in lake.ledger.entries(MEMORIES_ASSET).items():
        if entry.rows:
            day = lake.calendar.ancestor(Period(Grain.WORKING, key), Grain.DAILY)
            digests[day].append(f"{key} {entry.output_digest}")
    return {day: digest_of_all(parts) for day, parts in digests.items()}


def _nights(keys: Iterable[str]) -> list[Period]:
    return [Period(Grain.DAILY, key) for key in sorted(keys)]


def _key(period: Period) -> str:
    return period.key

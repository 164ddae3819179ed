"""When summaries are asked for: soon after their period has closed, and, when late data came, at the next gate.

A gate is a moment that recurs: each hour for days, the beginning of a day for weeks, of a week for months and what is
coarser. What changes between two of them is made once, at the second; so a flood of late hours becomes one roll-up.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.periods import Calendar, Period

#: How long the last messages of a period have to arrive before it is summarized.
SETTLING = timedelta(minutes=5)


def last_gate(calendar: Calendar, grain: Grain, now: datetime) -> datetime:
    """Return the latest moment, at or before `now`, at which late data of a summary grain is looked for (UTC).

    Args:
        calendar: where days begin.
        grain: of the summaries.
        now: an aware time.

    Raises:
        InputError: the grain is working, whose hours are made as soon as something arrives.
    """
    finer = grain.finer
    if finer is None:
        accepted = ", ".join(SUMMARY_GRAINS)
        raise InputError(f"grain {grain} has no gates: hours are made at once; accepted grains: {accepted}")
    span = min(finer, Grain.WEEKLY, key=lambda grain: grain.rank)
    began = calendar.ancestor(calendar.hour(now - SETTLING), span)
    return calendar.bounds(began)[0] + SETTLING


def settled_at(calendar: Calendar, period: Period) -> datetime:
    """Return the moment (UTC) from which a period of a summary grain is summarized for the first time."""
    return calendar.closes_at(period) + SETTLING


def has_passed(calendar: Calendar, period: Period, looked: datetime | None, now: datetime) -> bool:
    """Tell whether a period of a summary grain may be made: it has closed, or a gate has passed, since the last look.

    Args:
        calendar: where days begin.
        period: which.
        looked: when this was last asked; None if it never was.
        now: the time of this look.
    """
    settled = settled_at(calendar, period)
    if settled > now:
        return False
    return looked is None or settled > looked or last_gate(calendar, period.grain, now) > looked

"""Decay and freshness of durable memories.

All values are computed for an instant from stored values, so repeated calls do not compound. Days are fractional;
negative ages count as zero.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.permanence import PERMANENT_KINDS, lasts
from memory_pipeline.errors import counted

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.memories.record import DurableMemory


#: Context rot from which a memory needs a review, and from which it is archived.
REVIEW, ROTTEN = 0.7, 0.9
#: Share of the importance that remains after each day without use.
KEPT_PER_DAY = 0.99

_DAY = timedelta(days=1)
#: Half-life of the age term, and days without use after which the idle term reaches its maximum.
_HALF_LIFE, _IDLE = 30.0, 60.0
_NEVER_USED = 0.8


def faded(importance: float, days: float) -> float:
    """Return the importance after days without use: 1 % less each day."""
    return importance * math.pow(KEPT_PER_DAY, max(days, 0.0))


def rot(age_days: float, days_since_access: float | None, importance: float) -> float:
    """Return the context rot of a memory, 0 to 1: it grows with age and idle time, and with low importance.

    `age_days` counts since the memory was last stated, updated or confirmed; `days_since_access` is None if it was
    never used.
    """
    age = 1.0 - math.pow(0.5, max(age_days, 0.0) / _HALF_LIFE)
    idle = _NEVER_USED if days_since_access is None else min(max(days_since_access, 0.0) / _IDLE, 1.0)
    return 0.4 * age + 0.3 * idle + 0.3 * (1.0 - importance)


def days_between(earlier: datetime, later: datetime) -> float:
    """Return the days from `earlier` to `later`, negative if the order is reversed."""
    return (later - earlier) / _DAY


def relevance_at(memory: DurableMemory, at: datetime) -> float:
    """Return importance × confidence × e^(−decay rate · days since the last use) of a memory at an instant."""
    days = max(days_between(memory.last_used_at, at), 0.0)
    return memory.importance * memory.confidence * math.exp(-memory.decay_rate * days)


def faded_at(memory: DurableMemory, at: datetime) -> float:
    """Return a memory's importance at an instant, decayed since its last use."""
    return faded(memory.importance, days_between(memory.last_used_at, at))


def needs_review(memory: DurableMemory, at: datetime) -> bool:
    """Return whether a memory has so much context rot at an instant that somebody should review it."""
    return not lasts(memory) and rot_at(memory, at) >= REVIEW


def rot_at(memory: DurableMemory, at: datetime) -> float:
    """Return a memory's context rot at an instant."""
    accessed = memory.last_accessed_at
    since = None if accessed is None else days_between(accessed, at)
    return rot(days_between(memory.updated_at, at), since, memory.importance)


_MINUTE, _HOUR, _FRESHNESS_DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def warning(memory: DurableMemory, now: datetime) -> str | None:
    """Return a warning that a memory may be outdated, or None.

    Point-in-time memories always have one; others from a day after they were last stated, updated or confirmed.
    Permanent kinds have none.
    """
    age = now - memory.updated_at
    if memory.is_point_in_time:
        return f"a snapshot of {_ago(age)}: query the source again before relying on it"
    if memory.kind in PERMANENT_KINDS or age < _FRESHNESS_DAY:
        return None
    return f"last heard {_ago(age)}: verify it before relying on it"


def _ago(age: timedelta) -> str:
    """Return an age in words: "3 hours ago", "yesterday", "12 days ago"."""
    if age < _MINUTE:
        return "a moment ago"
    if age < _HOUR:
        return f"{counted(age // _MINUTE, 'minute')} ago"
    if age < _FRESHNESS_DAY:
        return f"{counted(age // _HOUR, 'hour')} ago"
    days = age // _FRESHNESS_DAY
    return "yesterday" if days == 1 else f"{counted(days, 'day')} ago"

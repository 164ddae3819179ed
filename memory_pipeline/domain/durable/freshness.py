"""Warnings, in words, of memories that may no longer be true, with what to do about it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.domain.durable.memory import Memory

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def warning(memory: Memory, now: datetime) -> str | None:
    """Return what to tell whoever is shown a memory; None if nothing.

    A snapshot of one moment is always warned of, everything else from the day after it was last said, updated or
    confirmed. What holds until it is revoked does not grow old.

    Args:
        memory: what is shown.
        now: the time, UTC.
    """
    age = now - memory.updated_at
    if memory.is_point_in_time:
        return f"a snapshot of {_ago(age)}: it says how things stood then; query the source again before relying on it"
    if memory.kind.is_standing or age < _DAY:
        return None
    return f"last heard {_ago(age)}: it may have changed since; verify it before relying on it"


def _ago(age: timedelta) -> str:
    """Return an age in words: "3 hours ago", "yesterday", "12 days ago"."""
    if age < _MINUTE:
        return "a moment ago"
    if age < _HOUR:
        return _counted(age // _MINUTE, "minute")
    if age < _DAY:
        return _counted(age // _HOUR, "hour")
    days = age // _DAY
    return "yesterday" if days == 1 else _counted(days, "day")


def _counted(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'} ago"

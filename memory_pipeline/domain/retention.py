"""How long memory is kept: durations, classes of memory, plans, and what has expired at a given time.

Age counts from the **end** of a period, and what is exactly as old as its duration is kept. Hours are exact; all other
durations are calendar arithmetic on the date in the deployment's zone, down to midnight: six months before 31 August is
29 February, or the 28th.

Nothing is deleted here. :func:`plan_expiry` says up to which period everything of a workspace and class may go.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import FIRST_YEAR, SUMMARY_GRAINS, Calendar, Grain, Period
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from zoneinfo import ZoneInfo

#: What is written for a duration without an end; None stands for it.
FOREVER = "forever"


class Unit(StrEnum):
    """What durations are counted in, as it is written."""

    HOURS = "h"
    DAYS = "d"
    WEEKS = "w"
    MONTHS = "mo"
    QUARTERS = "q"
    YEARS = "y"


#: A century of each.
_MOST = {
    Unit.HOURS: 876_600,
    Unit.DAYS: 36_525,
    Unit.WEEKS: 5_217,
    Unit.MONTHS: 1_200,
    Unit.QUARTERS: 400,
    Unit.YEARS: 100,
}
_DAYS_OF = {Unit.DAYS: 1, Unit.WEEKS: 7}
_MONTHS_OF = {Unit.MONTHS: 1, Unit.QUARTERS: 3, Unit.YEARS: 12}
_DURATION = re.compile(r"([1-9][0-9]{0,5})(h|d|w|mo|q|y)")

DURATION_FORM = f"a whole number of {', '.join(Unit)}, such as 48h, 30d or 6mo, at most a century"
#: What :func:`parse_duration` accepts.
DURATION_OR_FOREVER_FORM = f"{DURATION_FORM}; or {FOREVER}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A stretch of time that ends now.

    Args:
        count: how many, 1 or more, and at most a century of them.
        unit: of what.

    Raises:
        InputError: `count` is no such number.
    """

    count: int
    unit: Unit

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InputError(f"unit {shown(self.unit)} is unknown; accepted: {', '.join(Unit)}")
        if type(self.count) is not int or not 1 <= self.count <= _MOST[self.unit]:
            raise InputError(
                f"count {shown(self.count)} of unit {self.unit} is not valid; expected 1 to {_MOST[self.unit]:,}"
            )

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Read a duration such as ``48h``, ``30d``, ``6w``, ``6mo``, ``4q`` or ``2y``.

        Raises:
            InputError: `text` is none, or is longer than a century.
        """
        match = _DURATION.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) > _MOST[Unit(match[2])]:
            raise InputError(f"duration {shown(text)} is not valid; expected {DURATION_FORM}")
        return cls(int(match[1]), Unit(match[2]))

    def before(self, now: datetime, zone: ZoneInfo) -> datetime:
        """Return the instant (UTC) that lies so far back: for hours exactly, else when the day of that date began.

        It never goes back while `now` goes on. As everywhere, an hour belongs to the local day in which it starts.

        Args:
            now: an aware time.
            zone: the deployment's time zone.

        Raises:
            InputError: `now` is naive, or outside the years that memory is kept for.
        """
        calendar = Calendar(zone.key)
        today = calendar.period(Grain.DAILY, now).first_day
        if self.unit is Unit.HOURS:
            return now.astimezone(UTC) - timedelta(hours=self.count)
        day = Period.containing(Grain.DAILY, self._date_before(today))
        return calendar.bounds(day)[0]

    def may_outlive(self, other: Duration) -> bool:
        """Tell whether at any time this one reaches further back; clocks that change (for hours) do not count."""
        if self.unit in _MONTHS_OF and other.unit in _MONTHS_OF:
            return self._months > other._months
        longest, shortest = self._days[1], other._days[0]
        if other.unit is Unit.HOURS and self.unit is not Unit.HOURS:
            longest += 1  # It reaches back to midnight.
        return longest > shortest

    @property
    def _months(self) -> int:
        return self.count * _MONTHS_OF[self.unit]

    @property
    def _days(self) -> tuple[float, float]:
        """How many days it has at least and at most."""
        if self.unit is Unit.HOURS:
            return self.count / 24, self.count / 24
        if self.unit in _DAYS_OF:
            days = self.count * _DAYS_OF[self.unit]
            return days, days
        return _days_of_months(self._months)

    def _date_before(self, today: date) -> date:
        if self.unit in _DAYS_OF:
            return today - timedelta(days=self.count * _DAYS_OF[self.unit])
        year, month = divmod(today.year * 12 + today.month - 1 - self._months, 12)
        return date(year, month + 1, min(today.day, monthrange(year, month + 1)[1]))


@lru_cache(maxsize=1_200)
def _days_of_months(count: int) -> tuple[int, int]:
    """Return how many days `count` successive months have at least and at most."""

    def first_of(number: int) -> date:
        return date(number // 12, number % 12 + 1, 1)

    # After 400 years the calendar repeats itself.
    days = [(first_of(start + count) - first_of(start)).days for start in range(2_000 * 12, 2_400 * 12)]
    return min(days), max(days)


def parse_duration(text: object) -> Duration | None:
    """Read a duration, or ``forever``, which is None.

    Raises:
        InputError: `text` is neither.
    """
    if isinstance(text, str) and text == FOREVER:
        return None
    try:
        return Duration.parse(text)
    except InputError as error:
        raise InputError(f"{error}; or {FOREVER}") from None


def duration_text(duration: Duration | None) -> str:
    """Return what :func:`parse_duration` reads as `duration`."""
    return FOREVER if duration is None else str(duration)


class RetentionClass(StrEnum):
    """The classes of memory that are kept for a time of their own."""

    #: What was said: messages, and facts of kind turn.
    CONVERSATIONS = "conversations"
    #: What it asserts: all other facts, and answers of working grain.
    FACTS = "facts"
    #: Facts of kind preference and instruction.
    PREFERENCES = "preferences"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    YEARLY = "yearly"
    #: Operations of the graph.
    GRAPH = "graph"

    @property
    def grain(self) -> Grain | None:
        """The grain of its memory; None for the graph, which has none."""
        if self is RetentionClass.GRAPH:
            return None
        return Grain.WORKING if self in WORKING_CLASSES else Grain(self.value)

    @property
    def period_grain(self) -> Grain:
        """The grain of the periods by which it expires: hours for working memory and the graph."""
        return self.grain or Grain.WORKING


#: The classes of working memory.
WORKING_CLASSES = (RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES)
_SUMMARY_CLASSES = tuple(RetentionClass(grain.value) for grain in SUMMARY_GRAINS)
#: The order in which memory expires, coarse to fine.
_COARSE_FIRST = (*reversed(_SUMMARY_CLASSES), *WORKING_CLASSES, RetentionClass.GRAPH)
#: Each class that ends no later than another, which is made from it. Facts and preferences, which are of use without
#: the day that they come from, are free.
_MADE_FROM = ((RetentionClass.CONVERSATIONS, RetentionClass.DAILY), *pairwise(_SUMMARY_CLASSES))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two durations that do not fit: what is made of memory would go before the memory.

    Attributes:
        finer: the class that would be kept for longer.
        coarser: the class that is made from it.
        text: what is wrong and what would be right, for people.
    """

    finer: RetentionClass
    coarser: RetentionClass
    text: str


def contradictions(durations: Mapping[RetentionClass, Duration | None]) -> list[Contradiction]:
    """Return what does not fit among `durations`, of which all are given.

    A summary is kept for at least as long as those that it is made from, and a day for at least as long as its
    conversations, unless these are kept forever: they may be an archive.
    """
    found = []
    for finer, coarser in _MADE_FROM:
        long, short = durations[finer], durations[coarser]
        if short is None or (long is None and finer is RetentionClass.CONVERSATIONS):
            continue
        if long is None or long.may_outlive(short):
            enough = FOREVER if long is None else f"for at least {long}"
            text = (
                f"{coarser} {short} may end before {finer} {duration_text(long)}, from which it is made; "
                f"expected {coarser} to be kept {enough}, or {finer} for at most {short}"
            )
            found.append(Contradiction(finer, coarser, text))
    return found


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long each class of memory is kept; None is forever.

    Raises:
        InputError: a summary would go before what it is made from (:func:`contradictions`).
    """

    conversations: Duration | None = None
    facts: Duration | None = None
    preferences: Duration | None = None
    daily: Duration | None = None
    weekly: Duration | None = None
    monthly: Duration | None = None
    quarterly: Duration | None = None
    yearly: Duration | None = None
    graph: Duration | None = None

    def __post_init__(self) -> None:
        found = contradictions(self.durations)
        if found:
            raise InputError(f"retention is not valid: {'; '.join(each.text for each in found)}")

    @property
    def durations(self) -> dict[RetentionClass, Duration | None]:
        """The duration of each class."""
        return {kept: self.duration(kept) for kept in RetentionClass}

    def duration(self, kept: RetentionClass) -> Duration | None:
        """Return for how long a class is kept; None is forever."""
        duration: Duration | None = getattr(self, kept.value)
        return duration

    def describe(self) -> dict[str, str]:
        """Return the durations as they are written, by the names of their classes."""
        return {kept.value: duration_text(duration) for kept, duration in self.durations.items()}

    def cutoff(self, kept: RetentionClass, now: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the instant (UTC) before which periods of a class must end to be expired; None if none ever is.

        Raises:
            InputError: `now` is naive, or outside the years that memory is kept for.
        """
        duration = self.duration(kept)
        return None if duration is None else duration.before(now, zone)

    def last_expired(self, kept: RetentionClass, now: datetime, calendar: Calendar) -> Period | None:
        """Return the last period of a class that ends before its cut-off, an hour for working memory and the graph.

        Returns:
            The period, or None if nothing expires, or nothing that is so old can be remembered.

        Raises:
            InputError: `now` is naive, or outside the years that memory is kept for.
        """
        cutoff = self.cutoff(kept, now, calendar.zone)
        return None if cutoff is None else _last_ending_before(cutoff, kept.period_grain, calendar)


def _last_ending_before(instant: datetime, grain: Grain, calendar: Calendar) -> Period | None:
    # A period ends on a whole hour; the first one that does not end before the instant holds the moment before it.
    moment = instant - timedelta(microseconds=1)
    if moment.year <= FIRST_YEAR:
        return None
    return _previous(calendar.period(grain, moment))


def _previous(period: Period) -> Period | None:
    """Return the period of the same grain before this one; None where the years of memory begin."""
    if period.grain is Grain.WORKING:
        start = datetime.fromisoformat(period.key) - timedelta(hours=1)
        before = Period(Grain.WORKING, f"{start:%Y-%m-%dT%H}")
    else:
        before = Period.containing(period.grain, period.first_day - timedelta(days=1))
    return before if int(before.key[:4]) >= FIRST_YEAR else None


def _plan(working: str, daily: str, weekly: str, monthly: str, quarterly: str, yearly: str) -> Retention:
    of_hours = Duration.parse(working)
    summaries = map(Duration.parse, (daily, weekly, monthly, quarterly, yearly))
    return Retention(of_hours, of_hours, of_hours, *summaries)


#: What can be chosen by name. The graph is kept forever by each of them.
PLANS: Mapping[str, Retention] = {
    "free": _plan("48h", "30d", "6w", "6mo", "4q", "2y"),
    "starter": _plan("120h", "60d", "12w", "12mo", "8q", "4y"),
    "pro": _plan("240h", "120d", "24w", "24mo", "16q", "8y"),
    # A year of 365 days, whether or not there is a 29 February in it.
    "standard": Retention(conversations=Duration(30, Unit.DAYS), facts=Duration(365, Unit.DAYS)),
    FOREVER: Retention(),
}


@dataclass(frozen=True, slots=True)
class Expiry:
    """That all memory of a workspace and class may go up to and including a period.

    Attributes:
        workspace_id, kept: whose and which memory.
        through: the last period that goes, of `kept.period_grain`.
        cutoff: the instant (UTC) before which all that goes has ended.
        expired_before: the last period that went earlier; None if none did.
        held_back_by: the first period that is old enough and may not go yet, since its parent is not level.
    """

    workspace_id: str
    kept: RetentionClass
    through: Period
    cutoff: datetime
    expired_before: Period | None = None
    held_back_by: Period | None = None

    @property
    def is_new(self) -> bool:
        """Tell whether it reaches further than what went earlier; memory may have been imported since even if not."""
        return self.expired_before is None or self.through.key > self.expired_before.key


def plan_expiry(
    retentions: Mapping[str, Retention],
    before: Mapping[str, Mapping[RetentionClass, Period]],
    held: Mapping[Grain, Period],
    calendar: Calendar,
    now: datetime,
) -> list[Expiry]:
    """Return what has expired, whether or not there is any such memory; whoever executes it looks.

    The order is coarse to fine: memory that goes with its sources is gone before them, so that at no time it looks like
    memory whose sources changed, and is made again for nothing. Within a class workspaces are in order of their ids.

    Args:
        retentions: for how long memory is kept, by workspace.
        before: what went earlier, by workspace and class; it changes :attr:`Expiry.is_new` alone.
        held: the first period of a grain whose parent was not made from it as it is: it stays, and so does all that
            follows. Years, which have no parent, and the graph are not held.
        calendar: the deployment's.
        now: an aware time.

    Raises:
        InputError: `now` is naive, or outside the years that memory is kept for; a period in `held` has another grain.
    """
    for grain, period in held.items():
        if period.grain is not grain:
            raise InputError(f"held period {period} is of grain {period.grain}; expected {grain}")
    limits = {retention: _limits(retention, held, calendar, now) for retention in set(retentions.values())}
    plan = []
    for kept in _COARSE_FIRST:
        for workspace_id in sorted(retentions):
            limit = limits[retentions[workspace_id]].get(kept)
            if limit is not None:
                through, cutoff, held_back_by = limit
                expired_before = before.get(workspace_id, {}).get(kept)
                plan.append(Expiry(workspace_id, kept, through, cutoff, expired_before, held_back_by))
    return plan


_Limit = tuple[Period, datetime, Period | None]


def _limits(
    retention: Retention, held: Mapping[Grain, Period], calendar: Calendar, now: datetime
) -> dict[RetentionClass, _Limit]:
    """Return of each class from which anything goes the last period that does, the cut-off and what held it back."""
    limits: dict[RetentionClass, _Limit] = {}
    for kept in RetentionClass:
        cutoff = retention.cutoff(kept, now, calendar.zone)
        last = None if cutoff is None else _last_ending_before(cutoff, kept.period_grain, calendar)
        if cutoff is None or last is None:
            continue
        first_held = None if kept.grain in (None, Grain.YEARLY) else held.get(kept.period_grain)
        if first_held is None or first_held.key > last.key:
            limits[kept] = last, cutoff, None
        elif (through := _previous(first_held)) is not None:
            limits[kept] = through, cutoff, first_held
    return limits

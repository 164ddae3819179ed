"""Retention: durations, classes of memory, plans, and the periods that have expired at a given time.

Age counts from the **end** of a period. A period that is exactly as old as its duration is kept. Hours are exact; all
other durations are calendar arithmetic on the date in the deployment's zone, from midnight: six months before 31 August
is 29 February, or the 28th.

This module deletes nothing. :func:`plan_expiry` returns the last expired period of each workspace and class.
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
    from datetime import tzinfo

#: The text of an unlimited duration, which is None in Python.
FOREVER = "forever"
#: Follows the duration of a class whose expired memory moves to the archive: ``30d archive``.
ARCHIVE = "archive"


class Unit(StrEnum):
    """The unit of a duration."""

    HOURS = "h"
    DAYS = "d"
    WEEKS = "w"
    MONTHS = "mo"
    QUARTERS = "q"
    YEARS = "y"


#: A century in each unit.
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
DURATION_OR_FOREVER_FORM = f"{DURATION_FORM}; or {FOREVER}"
KEPT_FORM = f"{DURATION_OR_FOREVER_FORM}; or {ARCHIVE}, alone or after a duration, such as 30d {ARCHIVE}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time of at least one unit and at most a century.

    Raises:
        InputError: `count` is out of range, or `unit` is unknown.
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
        """Parse a duration such as ``48h``, ``30d``, ``6w``, ``6mo``, ``4q`` or ``2y``.

        Raises:
            InputError: `text` is not a duration, or is longer than a century.
        """
        match = _DURATION.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) > _MOST[Unit(match[2])]:
            raise InputError(f"duration {shown(text)} is not valid; expected {DURATION_FORM}")
        return cls(int(match[1]), Unit(match[2]))

    def before(self, now: datetime, zone: tzinfo) -> datetime:
        """Return the instant (UTC) this long before an aware `now`: exact for hours, else the start of that day.

        The result never decreases as `now` increases.

        Raises:
            InputError: `now` is naive, or outside the years of valid periods.
        """
        calendar = Calendar(str(zone))
        today = calendar.period(Grain.DAILY, now).first_day
        if self.unit is Unit.HOURS:
            return now.astimezone(UTC) - timedelta(hours=self.count)
        day = Period.containing(Grain.DAILY, self._date_before(today))
        return calendar.bounds(day)[0]

    def may_outlive(self, other: Duration) -> bool:
        """Return whether this duration can be longer than `other` at some date; clock changes are ignored."""
        if self.unit in _MONTHS_OF and other.unit in _MONTHS_OF:
            return self._months > other._months
        longest, shortest = self._days[1], other._days[0]
        if other.unit is Unit.HOURS and self.unit is not Unit.HOURS:
            longest += 1  # Durations other than hours extend back to midnight.
        return longest > shortest

    @property
    def _months(self) -> int:
        return self.count * _MONTHS_OF[self.unit]

    @property
    def _days(self) -> tuple[float, float]:
        """Minimum and maximum."""
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
    """Return the minimum and the maximum number of days in `count` successive months."""

    def first_of(number: int) -> date:
        return date(number // 12, number % 12 + 1, 1)

    # The calendar repeats after 400 years.
    days = [(first_of(start + count) - first_of(start)).days for start in range(2_000 * 12, 2_400 * 12)]
    return min(days), max(days)


def parse_duration(text: object) -> Duration | None:
    """Parse a duration, or ``forever`` as None.

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
    """Return the inverse of :func:`parse_duration`."""
    return FOREVER if duration is None else str(duration)


def parse_kept(text: object) -> tuple[Duration | str | None, bool]:
    """Parse how long a class is kept, and whether it is then archived.

    The duration of ``archive`` alone is this text: it is the one that is inherited.

    Raises:
        InputError: `text` has another form.
    """
    if text == ARCHIVE:
        return ARCHIVE, True
    length, _, outcome = text.partition(" ") if isinstance(text, str) else ("", "", "")
    if outcome == ARCHIVE:
        return Duration.parse(length), True
    return parse_duration(text), False


class RetentionClass(StrEnum):
    """The classes of memory, each with its own duration."""

    #: Messages, and facts of kind turn.
    CONVERSATIONS = "conversations"
    #: All other facts, and answers of working grain.
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
        """The grain of the memory; None for the graph."""
        if self is RetentionClass.GRAPH:
            return None
        return Grain.WORKING if self in WORKING_CLASSES else Grain(self.value)

    @property
    def period_grain(self) -> Grain:
        """The grain of the periods that expire: hours for working memory and the graph."""
        return self.grain or Grain.WORKING


WORKING_CLASSES = (RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES)
_SUMMARY_CLASSES = tuple(RetentionClass(grain.value) for grain in SUMMARY_GRAINS)
_COARSE_FIRST = (*reversed(_SUMMARY_CLASSES), *WORKING_CLASSES, RetentionClass.GRAPH)
#: Pairs of a class and the class computed from it, which is kept at least as long. Facts and preferences are not
#: restricted: they are useful without the summary of their day.
_SOURCE_OF = ((RetentionClass.CONVERSATIONS, RetentionClass.DAILY), *pairwise(_SUMMARY_CLASSES))


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two inconsistent durations: a summary of class `coarser` would expire before its sources of class `finer`.

    `text` is the error and the remedy, for users.
    """

    finer: RetentionClass
    coarser: RetentionClass
    text: str


def contradictions(durations: Mapping[RetentionClass, Duration | None]) -> list[Contradiction]:
    """Return the inconsistencies among the durations of all classes.

    A summary is kept at least as long as its sources, and a day at least as long as its conversations, unless
    conversations are kept forever: they may be an archive.
    """
    found = []
    for finer, coarser in _SOURCE_OF:
        fine, coarse = durations[finer], durations[coarser]
        if coarse is None or (fine is None and finer is RetentionClass.CONVERSATIONS):
            continue
        if fine is None or fine.may_outlive(coarse):
            expected = FOREVER if fine is None else f"for at least {fine}"
            text = (
                f"{coarser} {coarse} may expire before its sources, {finer} {duration_text(fine)}; "
                f"expected {coarser} to be kept {expected}, or {finer} for at most {coarse}"
            )
            found.append(Contradiction(finer, coarser, text))
    return found


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each class of memory is kept; None is forever.

    Attributes:
        archived: the classes whose expired memory moves to the archive. That of all others is deleted.

    Raises:
        InputError: a summary would expire before its sources (:func:`contradictions`).
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
    archived: frozenset[RetentionClass] = frozenset()

    def __post_init__(self) -> None:
        found = contradictions(self.durations)
        if found:
            raise InputError(f"retention is not valid: {'; '.join(each.text for each in found)}")

    @property
    def durations(self) -> dict[RetentionClass, Duration | None]:
        """The duration of each class."""
        return {each: self.duration(each) for each in RetentionClass}

    def duration(self, retention_class: RetentionClass) -> Duration | None:
        """Return how long a class is kept; None is forever."""
        duration: Duration | None = getattr(self, retention_class.value)
        return duration

    def describe(self) -> dict[str, str]:
        """Return the durations as texts, by class, with what happens then if that is not deletion."""
        return {
            each.value: duration_text(duration) + (f" {ARCHIVE}" if each in self.archived else "")
            for each, duration in self.durations.items()
        }

    def cutoff(self, retention_class: RetentionClass, now: datetime, zone: tzinfo) -> datetime | None:
        """Return the instant (UTC) before which expired periods of a class end; None if nothing expires.

        Raises:
            InputError: `now` is naive, or outside the years of valid periods.
        """
        duration = self.duration(retention_class)
        return None if duration is None else duration.before(now, zone)

    def last_expired(self, retention_class: RetentionClass, now: datetime, calendar: Calendar) -> Period | None:
        """Return the last expired period of a class, an hour for working memory and the graph.

        None if nothing expires, or the cut-off is before the years of valid periods.

        Raises:
            InputError: `now` is naive, or outside the years of valid periods.
        """
        cutoff = self.cutoff(retention_class, now, calendar.zone)
        return None if cutoff is None else _last_ending_before(cutoff, retention_class.period_grain, calendar)


def _last_ending_before(instant: datetime, grain: Grain, calendar: Calendar) -> Period | None:
    # Periods end on whole hours. The first one that does not end before the instant contains the moment before it.
    moment = instant - timedelta(microseconds=1)
    if moment.year <= FIRST_YEAR:
        return None
    return _previous(calendar.period(grain, moment))


def _previous(period: Period) -> Period | None:
    """Return the preceding period; None before :data:`FIRST_YEAR`."""
    if period.grain is Grain.WORKING:
        start = datetime.fromisoformat(period.key) - timedelta(hours=1)
        before = Period(Grain.WORKING, f"{start:%Y-%m-%dT%H}")
    else:
        before = Period.containing(period.grain, period.first_day - timedelta(days=1))
    return before if int(before.key[:4]) >= FIRST_YEAR else None


def _plan(working: str, daily: str, weekly: str, monthly: str, quarterly: str, yearly: str) -> Retention:
    of_hours = Duration.parse(working)
    days, weeks, months, quarters, years = map(Duration.parse, (daily, weekly, monthly, quarterly, yearly))
    return Retention(of_hours, of_hours, of_hours, days, weeks, months, quarters, years)


#: The plans by name. All of them keep the graph forever.
PLANS: Mapping[str, Retention] = {
    "free": _plan("48h", "30d", "6w", "6mo", "4q", "2y"),
    "starter": _plan("120h", "60d", "12w", "12mo", "8q", "4y"),
    "pro": _plan("240h", "120d", "24w", "24mo", "16q", "8y"),
    # 365 days, also in leap years.
    "standard": Retention(conversations=Duration(30, Unit.DAYS), facts=Duration(365, Unit.DAYS)),
    FOREVER: Retention(),
}


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expired memory of a workspace and class (`kept`).

    Attributes:
        through: the last expired period, of `kept.period_grain`.
        cutoff: the instant (UTC) before which all expired periods end.
        expired_before: the last period of the previous expiry, if any.
        held_back_by: the first period that is old enough but is kept, since its parent is not in sync with it.
    """

    workspace_id: str
    kept: RetentionClass
    through: Period
    cutoff: datetime
    expired_before: Period | None = None
    held_back_by: Period | None = None

    @property
    def is_new(self) -> bool:
        """Whether it extends the previous expiry. Even if not, older memory may have been imported since."""
        return self.expired_before is None or self.through.key > self.expired_before.key


def plan_expiry(
    retentions: Mapping[str, Retention],
    before: Mapping[str, Mapping[RetentionClass, Period]],
    held: Mapping[Grain, Period],
    calendar: Calendar,
    now: datetime,
) -> list[Expiry]:
    """Return the expired memory of each workspace and class at an aware `now`, whether or not any such memory exists.

    The order is coarse to fine, so that a summary is deleted before its sources; otherwise it would look stale and be
    recomputed in vain. Within a class, workspaces are sorted by id.

    `before` has the last periods of the previous expiry; it affects only :attr:`Expiry.is_new`. `held` has for each
    grain the first period that its parent does not include yet. It is kept, and so are all later ones. Years, which
    have no parent, and the graph are not held.

    Raises:
        InputError: `now` is naive, or outside the years of valid periods; a period in `held` has another grain.
    """
    for grain, period in held.items():
        if period.grain is not grain:
            raise InputError(f"held period {period} is of grain {period.grain}; expected {grain}")
    limits = {retention: _limits(retention, held, calendar, now) for retention in set(retentions.values())}
    plan = []
    for each in _COARSE_FIRST:
        for workspace_id in sorted(retentions):
            limit = limits[retentions[workspace_id]].get(each)
            if limit is not None:
                through, cutoff, held_back_by = limit
                expired_before = before.get(workspace_id, {}).get(each)
                plan.append(Expiry(workspace_id, each, through, cutoff, expired_before, held_back_by))
    return plan


_Limit = tuple[Period, datetime, Period | None]


def _limits(
    retention: Retention, held: Mapping[Grain, Period], calendar: Calendar, now: datetime
) -> dict[RetentionClass, _Limit]:
    """Return the last expired period, the cut-off and the holding period by class."""
    limits: dict[RetentionClass, _Limit] = {}
    for each in RetentionClass:
        cutoff = retention.cutoff(each, now, calendar.zone)
        last = None if cutoff is None else _last_ending_before(cutoff, each.period_grain, calendar)
        if cutoff is None or last is None:
            continue
        first_held = None if each.grain in (None, Grain.YEARLY) else held.get(each.period_grain)
        if first_held is None or first_held.key > last.key:
            limits[each] = last, cutoff, None
        elif (through := _previous(first_held)) is not None:
            limits[each] = through, cutoff, first_held
    return limits

"""All calendar arithmetic: periods, their keys, their bounds, and which period rolls up into which.

A :class:`Period` is a grain and a key: ``2024-01-15T08`` (an hour, always UTC), ``2024-01-15``,
``2024-W03`` (ISO 8601 year and week), ``2024-01``, ``2024-Q1``, ``2024``.

A period has one parent. A week belongs to the month, the quarter and the year of its **Thursday** (the ISO 8601 rule
for years), so the chain hour → day → week → month → quarter → year is a tree. A month's weeks and its calendar days
(:meth:`Calendar.bounds`) therefore differ by up to three days at either end.

Days begin at midnight of the deployment's time zone. Hours stay UTC: an hour belongs to the local day in which it
starts. Days consist of whole hours with any UTC offset, and have 23 or 25 hours when clocks change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import ConfigurationError, InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Grain(StrEnum):
    """The length of a period, from hour to year. Members are in order from fine to coarse."""

    WORKING = "working"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    YEARLY = "yearly"

    @property
    def rank(self) -> int:
        """0 for working memory, 5 for the year."""
        return _ORDER.index(self)

    @property
    def coarser(self) -> Grain | None:
        """The grain that this one rolls up into; None for the year."""
        return _ORDER[self.rank + 1] if self.rank + 1 < len(_ORDER) else None

    @property
    def finer(self) -> Grain | None:
        """The grain that rolls up into this one; None for working memory."""
        return _ORDER[self.rank - 1] if self.rank else None

    @classmethod
    def parse(cls, text: object) -> Grain:
        """Return the grain with this name.

        Raises:
            InputError: the name is unknown.
        """
        return one_of(cls, "grain", text)


_ORDER = tuple(Grain)

#: The grains with summaries, finest first.
SUMMARY_GRAINS = _ORDER[1:]


#: The years of valid periods. A timestamp outside them is taken for a mistake.
FIRST_YEAR, LAST_YEAR = 1900, 2999

EARLIEST = date(1973, 1, 1)

#: A time from a caller: an aware datetime, a date, or ISO 8601 text of either.
When: TypeAlias = str | date

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)

_PATTERNS = {
    Grain.WORKING: (re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2})"), "an hour in UTC such as 2024-01-15T08"),
    Grain.DAILY: (re.compile(r"(\d{4})-(\d{2})-(\d{2})"), "a date such as 2024-01-15"),
    Grain.WEEKLY: (re.compile(r"(\d{4})-W(\d{1,2})"), "an ISO week such as 2024-W03 (01 to 52, or 53 in long years)"),
    Grain.MONTHLY: (re.compile(r"(\d{4})-(\d{2})"), "a month such as 2024-01"),
    Grain.QUARTERLY: (re.compile(r"(\d{4})-Q([1-4])"), "a quarter such as 2024-Q1 (Q1 to Q4)"),
    Grain.YEARLY: (re.compile(r"(\d{4})"), "a year such as 2024"),
}


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """A grain and a key, such as ``2024-W03``. Periods of one grain sort by time, as their keys do."""

    grain: Grain
    key: str

    def __str__(self) -> str:
        return self.key

    @classmethod
    def parse(cls, grain: Grain | str, text: str) -> Period:
        """Parse the key of a period; an unpadded week such as ``2024-W3`` is accepted.

        Raises:
            InputError: the grain is unknown, or `text` is not a period of it.
        """
        grain = Grain.parse(grain)
        pattern, expected = _PATTERNS[grain]
        problem = InputError(f"{grain} period {shown(text)} is not valid; expected {expected}")
        # \d also matches other scripts' digits, hence the ASCII check.
        match = pattern.fullmatch(text) if isinstance(text, str) and text.isascii() else None
        if match is None or not FIRST_YEAR <= int(text[:4]) <= LAST_YEAR:
            raise problem
        try:
            return _FROM_PARTS[grain](*match.groups())
        except ValueError:
            raise problem from None

    @classmethod
    def containing(cls, grain: Grain, day: date) -> Period:
        """Return the period of a summary grain that contains `day`; 2024-12-30 is in week ``2025-W01``.

        Raises:
            InputError: the grain is working; use :meth:`Calendar.hour`.
        """
        if grain is Grain.DAILY:
            return cls(grain, day.isoformat())
        if grain is Grain.WEEKLY:
            year, week, _ = day.isocalendar()
            return cls(grain, f"{year:04}-W{week:02}")
        if grain is Grain.MONTHLY:
            return cls(grain, f"{day.year:04}-{day.month:02}")
        if grain is Grain.QUARTERLY:
            return cls(grain, f"{day.year:04}-Q{(day.month + 2) // 3}")
        if grain is Grain.YEARLY:
            return cls(grain, f"{day.year:04}")
        raise InputError("grain working is not accepted for a date, which has many hours; accepted: daily to yearly")

    @property
    def first_day(self) -> date:
        """The first calendar day; for an hour its UTC date."""
        return _first_day(self)

    @property
    def end_day(self) -> date:
        """The calendar day after the last day."""
        return _end_day(self)

    @property
    def number(self) -> int:
        """The ISO week, month, quarter or day within the year; the year itself; the hour within the day."""
        if self.grain is Grain.WORKING:
            return int(self.key[-2:])
        if self.grain is Grain.DAILY:
            return self.first_day.timetuple().tm_yday
        if self.grain is Grain.YEARLY:
            return int(self.key)
        return int(self.key[5:].lstrip("WQ"))

    def next(self) -> Period:
        """Return the following period of the same grain."""
        if self.grain is Grain.WORKING:
            return _hour_period(_hour_start(self) + _HOUR)
        return Period.containing(self.grain, self.end_day)

    def through(self, last: Period) -> Iterator[Period]:
        """Yield the periods from this one to `last`, both included."""
        period = self
        while period.key <= last.key:
            yield period
            period = period.next()


def _hour_from_parts(day: str, hour: str) -> Period:
    return _hour_period(datetime.fromisoformat(f"{day}T{hour}").replace(tzinfo=UTC))


def _week_from_parts(year: str, week: str) -> Period:
    return Period.containing(Grain.WEEKLY, date.fromisocalendar(int(year), int(week), 1))


_FROM_PARTS: dict[Grain, Callable[..., Period]] = {
    Grain.WORKING: _hour_from_parts,
    Grain.DAILY: lambda y, m, d: Period.containing(Grain.DAILY, date(int(y), int(m), int(d))),
    Grain.WEEKLY: _week_from_parts,
    Grain.MONTHLY: lambda y, m: Period.containing(Grain.MONTHLY, date(int(y), int(m), 1)),
    Grain.QUARTERLY: lambda y, q: Period.containing(Grain.QUARTERLY, date(int(y), int(q) * 3, 1)),
    Grain.YEARLY: lambda y: Period.containing(Grain.YEARLY, date(int(y), 1, 1)),
}


def _hour_start(period: Period) -> datetime:
    return datetime.fromisoformat(period.key).replace(tzinfo=UTC)


def hour_of(instant: datetime) -> Period:
    """Return the UTC hour that contains an aware `instant`, in every calendar.

    Raises:
        InputError: the instant is naive, or outside the years of valid periods.
    """
    return _hour_period(_checked(instant))


def _hour_period(instant: datetime) -> Period:
    return Period(Grain.WORKING, instant.isoformat()[:13])


@lru_cache(maxsize=65536)
def _first_day(period: Period) -> date:
    key = period.key
    if period.grain in (Grain.WORKING, Grain.DAILY):
        return date.fromisoformat(key[:10])
    if period.grain is Grain.WEEKLY:
        return date.fromisocalendar(int(key[:4]), int(key[6:]), 1)
    if period.grain is Grain.MONTHLY:
        return date(int(key[:4]), int(key[5:]), 1)
    if period.grain is Grain.QUARTERLY:
        return date(int(key[:4]), int(key[6:]) * 3 - 2, 1)
    return date(int(key), 1, 1)


def _end_day(period: Period) -> date:
    first = period.first_day
    if period.grain in (Grain.WORKING, Grain.DAILY):
        return first + _DAY
    if period.grain is Grain.WEEKLY:
        return first + _WEEK
    months = {Grain.MONTHLY: 1, Grain.QUARTERLY: 3, Grain.YEARLY: 12}[period.grain]
    years, month = divmod(first.month - 1 + months, 12)
    return date(first.year + years, month + 1, 1)


def start_for(day: date) -> date:
    """Return the first day of a memory that reaches back to `day`: the last 1 January up to it that is a Monday.

    All grains begin on such a day. The result is not before :data:`EARLIEST`.
    """
    years = range(day.year, EARLIEST.year, -1)
    return next((first for year in years if (first := date(year, 1, 1)).weekday() == 0), EARLIEST)


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its IANA name. Importing the others takes 60 ms, and most lakes use UTC."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The calendar of a deployment.

    `timezone` is an IANA zone name. Days and all coarser periods begin at midnight in this zone. Hours are those of
    UTC. Where a midnight is within an hour, as in Asia/Kolkata, the hour rolls up into the day that it begins in, and
    has moments of two days: see :meth:`days_of` and :meth:`hours_of`.
    """

    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            zone_of(self.timezone)
        except (KeyError, ValueError, OSError, TypeError):
            raise ConfigurationError(
                f"time zone {shown(self.timezone)} is unknown; expected an IANA name such as Europe/Berlin or UTC"
            ) from None

    @property
    def zone(self) -> tzinfo:
        """The time zone."""
        return zone_of(self.timezone)

    def instant(self, name: str, value: object, *, is_end: bool = False) -> datetime:
        """Convert a time from a caller to UTC.

        Args:
            name: name of the argument, for errors.
            value: an aware datetime, a date (its first moment in the deployment's zone), or ISO 8601 text of either.
            is_end: use the last moment of a date instead of the first.

        Raises:
            InputError: the value is not a time, has no zone, or is out of range.
        """
        expected = "expected a date such as 2024-01-15, or a time with its zone such as 2024-01-15T08:30:00+01:00"
        if isinstance(value, str):
            try:
                value = _date_or_time(value.strip())
            except ValueError:
                raise InputError(f"{name} {shown(value)} cannot be read; {expected}") from None
        if not isinstance(value, date):
            raise InputError(f"{name} {shown(value)} is neither a date nor a time; {expected}")
        try:
            if not isinstance(value, datetime):
                start, following = self.midnights(Period.containing(Grain.DAILY, value))
                return following - timedelta(microseconds=1) if is_end else start
            if value.tzinfo is not None:
                return value.astimezone(UTC)
        except OverflowError:
            raise InputError(f"{name} {value} is out of range; omit it for no limit") from None
        raise InputError(f"{name} {value.isoformat()} has no time zone; {expected}")

    def moment(self, name: str, value: object) -> datetime:
        """Convert a time as :meth:`instant` does, and check its year.

        Raises:
            InputError: the value is not a time, or is outside the years of valid periods.
        """
        return _checked(self.instant(name, value), name)

    def day_of(self, instant: datetime) -> date:
        """Return the date of an aware `instant` in the deployment's zone."""
        return _checked(instant).astimezone(self.zone).date()

    def period(self, grain: Grain, instant: datetime) -> Period:
        """Return the calendar period of `grain` that contains an aware `instant`.

        Months and coarser can differ from the period that memory *rolls up* into: the ancestor of the hour.
        """
        if grain is Grain.WORKING:
            return hour_of(instant)
        return Period.containing(grain, self.ancestor(hour_of(instant), Grain.DAILY).first_day)

    def bounds(self, period: Period) -> tuple[datetime, datetime]:
        """Return the half-open UTC range [start, end) of the calendar period, on whole hours.

        In a zone whose midnights are within hours, the period begins and ends at the next whole hour; its summary has
        what was said between its :meth:`midnights`.
        """
        if period.grain is Grain.WORKING:
            start = _hour_start(period)
            return start, start + _HOUR
        return _first_hour(self.timezone, period.first_day), _first_hour(self.timezone, period.end_day)

    def midnights(self, period: Period) -> tuple[datetime, datetime]:
        """Return the half-open UTC range [start, end) of a period; of a summary grain, from midnight to midnight."""
        if period.grain is Grain.WORKING:
            return self.bounds(period)
        return _midnight(self.timezone, period.first_day), _midnight(self.timezone, period.end_day)

    def days_of(self, hour: Period) -> tuple[Period, ...]:
        """Return the days with moments of an hour: its parent, and the next day if midnight is within the hour."""
        day = self.ancestor(hour, Grain.DAILY)
        return (day, day.next()) if self.midnights(day)[1] < self.bounds(hour)[1] else (day,)

    def hours_of(self, day: Period) -> list[Period]:
        """Return the hours with moments of a day, in order: its children, and an hour that midnight is within."""
        before, hours = self.midnights(day)[0] - timedelta(microseconds=1), self.children(day)
        return [hour_of(before), *hours] if day in self.days_of(hour_of(before)) else hours

    def sources(self, period: Period) -> list[Period]:
        """Return the finer periods that a summary is made from: the children, or the :meth:`hours_of` a day."""
        return self.hours_of(period) if period.grain is Grain.DAILY else self.children(period)

    def derived(self, period: Period) -> tuple[Period, ...]:
        """Return the coarser periods whose summaries are made from `period`: its parent, or the days of an hour."""
        if period.grain is Grain.WORKING:
            return self.days_of(period)
        parent = self.parent(period)
        return () if parent is None else (parent,)

    def parent(self, period: Period) -> Period | None:
        """Return the period that `period` rolls up into; None for a year."""
        if period.grain is Grain.WORKING:
            start = _hour_start(period)
            day = start.astimezone(self.zone).date()
            # Clocks that go back over midnight repeat the end of the previous day.
            if start < _first_hour(self.timezone, day):
                day -= _DAY
            elif start >= _first_hour(self.timezone, day + _DAY):
                day += _DAY
            return Period.containing(Grain.DAILY, day)
        coarser = period.grain.coarser
        if coarser is None:
            return None
        day = period.first_day
        if period.grain is Grain.WEEKLY:
            day += 3 * _DAY  # Thursday
        return Period.containing(coarser, day)

    def ancestor(self, period: Period, grain: Grain) -> Period:
        """Return the period of `grain` that `period` rolls up into, or the period itself.

        Raises:
            InputError: `grain` is finer than the period's.
        """
        while period.grain is not grain:
            parent = self.parent(period)
            if parent is None or grain.rank < period.grain.rank:
                raise InputError(f"period {period} has no ancestor of grain {grain}, which is finer")
            period = parent
        return period

    def children(self, period: Period) -> list[Period]:
        """Return the periods of the next finer grain that roll up into `period`, in order; empty for an hour."""
        finer = period.grain.finer
        if finer is None:
            return []
        if finer is Grain.WORKING:
            start, end = self.bounds(period)
            hours = int((end - start) / _HOUR)
            return [_hour_period(start + n * _HOUR) for n in range(hours)]
        # A month's first and last weeks may begin before it or end after it; parent() decides.
        first = Period.containing(finer, period.first_day)
        last = Period.containing(finer, period.end_day - _DAY)
        return [child for child in first.through(last) if self.parent(child) == period]

    def closes_at(self, period: Period) -> datetime:
        """Return the instant (UTC) after which no new event belongs to the period or its descendants.

        A month closes when its last week ends, up to three days into the next month.
        """
        end = self.bounds(period)[1]
        while period.grain.rank > Grain.WEEKLY.rank:
            period = self.children(period)[-1]
        return max(end, self.bounds(period)[1])

    def last_closed(self, grain: Grain, now: datetime) -> Period:
        """Return the last period of a summary grain that is closed at `now`."""
        period = self.period(grain, now)
        while self.closes_at(period) > now:
            period = Period.containing(grain, period.first_day - _DAY)
        return period


def _date_or_time(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _checked(instant: datetime, name: str = "time") -> datetime:
    if instant.tzinfo is None:
        raise InputError(f"{name} {instant.isoformat()} has no time zone; expected e.g. 2024-01-15T08:30:00+00:00")
    if not FIRST_YEAR < instant.year < LAST_YEAR:
        raise InputError(f"{name} {instant.isoformat()} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}")
    return instant.astimezone(UTC)


@lru_cache(maxsize=65536)
def _first_hour(timezone: str, day: date) -> datetime:
    """Return the first UTC hour that starts on local `day`."""
    midnight = _midnight(timezone, day)
    hour = midnight.replace(minute=0, second=0, microsecond=0)
    return hour if hour == midnight else hour + _HOUR


@lru_cache(maxsize=65536)
def _midnight(timezone: str, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone_of(timezone)).astimezone(UTC)

"""Translate periods, assets and pools to Dagster's names.

Dagster parses keys with strptime, so a week is its Monday (``2024-W03-1``) and a quarter its first month (``2024-01``).
If days do not begin in UTC, an hour's key is the local time with its offset (``2024-10-27T02:00+0200``), because
Dagster maps only between definitions of one zone.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

import dagster as dg

from memory_pipeline.domain.periods import Calendar, Grain, Period, hour_of
from memory_pipeline.errors import ConfigurationError

_FORMATS = {
    Grain.DAILY: ("%Y-%m-%d", "0 0 * * *"),
    Grain.WEEKLY: ("%G-W%V-%u", "0 0 * * 1"),
    Grain.MONTHLY: ("%Y-%m", "0 0 1 * *"),
    Grain.QUARTERLY: ("%Y-%m", "0 0 1 */3 *"),
    Grain.YEARLY: ("%Y", "0 0 1 1 *"),
}


class Group(StrEnum):
    """The groups of assets. Dagster sorts them by name."""

    INGEST = "1_ingest"
    GRAINS = "2_grains"
    GRAPH = "3_graph"
    MEMORIES = "4_memories"
    MARTS = "5_marts"


#: Tag of the runs of a location.
_LOCATION_TAG = "memory_pipeline/location"


class Partitions:
    """The partitions definitions of a deployment, and the names of its assets and pools.

    Args:
        start: the first day; a 1 January that is a Monday, so that all grains begin on it.
        calendar: sets the time zone of days.
        location: begins all names, if several lakes share a Dagster.
    """

    def __init__(self, start: date, calendar: Calendar, location: str = "") -> None:
        self._location = location
        #: Of the runs of this location.
        self.tags = {_LOCATION_TAG: location} if location else {}
        self._calendar = calendar
        self._utc = calendar.timezone == "UTC"
        self._hour_format = "%Y-%m-%dT%H" if self._utc else "%Y-%m-%dT%H:%M%z"
        first_hour = calendar.bounds(Period.containing(Grain.DAILY, start))[0].astimezone(calendar.zone)
        minutes = {
            datetime(start.year, month, 1, tzinfo=calendar.zone).utcoffset() or timedelta() for month in range(1, 13)
        }
        past_the_hour = {offset.seconds // 60 % 60 for offset in minutes}
        if len(past_the_hour) > 1:
            raise ConfigurationError(
                f"time zone {calendar.timezone} changes its clocks by less than an hour, which hourly partitions do "
                "not support; choose a zone with changes of whole hours, or UTC"
            )
        self.definitions: dict[Grain, dg.TimeWindowPartitionsDefinition] = {
            Grain.WORKING: dg.TimeWindowPartitionsDefinition(
                start=first_hour.replace(tzinfo=None),
                fmt=self._hour_format,
                cron_schedule=f"{past_the_hour.pop()} * * * *",
                timezone=calendar.timezone,
                end_offset=1,  # the current hour can be materialized
            ),
            **{
                grain: dg.TimeWindowPartitionsDefinition(
                    start=datetime(start.year, start.month, start.day),  # noqa: DTZ001  # Dagster adds the zone
                    fmt=fmt,
                    cron_schedule=cron,
                    timezone=calendar.timezone,
                )
                for grain, (fmt, cron) in _FORMATS.items()
            },
        }

    def asset(self, name: str) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([self._location, name] if self._location else name)

    def pool(self, name: str) -> str:
        """Return the name of a pool."""
        return f"{self._location}_{name}" if self._location else name

    def has_run(self, run: dg.DagsterRun) -> bool:
        """Return whether a run of a job belongs to this location."""
        return run.tags.get(_LOCATION_TAG, "") == self._location

    def key(self, period: Period) -> str:
        """Return Dagster's key of a period."""
        if period.grain is Grain.WORKING:
            start = self._calendar.bounds(period)[0]
            return start.astimezone(self._calendar.zone).strftime(self._hour_format)
        return period.first_day.strftime(_FORMATS[period.grain][0])

    def period(self, grain: Grain, key: str) -> Period:
        """Return the period of a Dagster key."""
        if grain is not Grain.WORKING:
            return Period.containing(grain, datetime.strptime(key, _FORMATS[grain][0]).date())  # noqa: DTZ007  # a date
        if self._utc:
            return hour_of(datetime.strptime(key, self._hour_format).replace(tzinfo=UTC))
        return hour_of(datetime.strptime(key, self._hour_format).astimezone(UTC))

"""Dagster's keys and the domain's periods name the same spans of time."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.defs.partition_keys import Partitions
from memory_pipeline.domain.periods import Calendar, Grain, Period, hour_of
from memory_pipeline.errors import ConfigurationError

START = date(2018, 1, 1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
PARTITIONS = {zone: Partitions(START, Calendar(zone)) for zone in ZONES}


@pytest.mark.parametrize(
    ("grain", "period", "key"),
    [
        ("working", "2024-01-15T08", "2024-01-15T08"),
        ("daily", "2024-01-15", "2024-01-15"),
        ("weekly", "2024-W03", "2024-W03-1"),
        ("weekly", "2025-W01", "2025-W01-1"),
        ("weekly", "2020-W53", "2020-W53-1"),
        ("monthly", "2024-01", "2024-01"),
        ("quarterly", "2024-Q1", "2024-01"),
        ("quarterly", "2024-Q4", "2024-10"),
        ("yearly", "2024", "2024"),
    ],
)
def test_keys_are_readable_by_strptime(grain: str, period: str, key: str) -> None:
    partitions = PARTITIONS["UTC"]
    parsed = Period.parse(grain, period)
    assert partitions.key(parsed) == key
    assert partitions.period(Grain(grain), key) == parsed
    assert partitions.definitions[Grain(grain)].has_partition_key(key)


@given(st.sampled_from(ZONES), st.sampled_from(list(Grain)), st.integers(0, 24 * 365 * 8))
def test_every_period_is_a_partition_of_the_same_span(zone: str, grain: Grain, after: int) -> None:
    calendar, partitions = Calendar(zone), PARTITIONS[zone]
    start = calendar.bounds(Period.containing(Grain.DAILY, START))[0]
    period = calendar.ancestor(hour_of(start + timedelta(hours=after)), grain)
    key = partitions.key(period)
    assert partitions.period(grain, key) == period
    window = partitions.definitions[grain].time_window_for_partition_key(key)
    begins, ends = calendar.bounds(period)
    # In zones with offsets of half an hour, days begin on the next whole UTC hour.
    slack = timedelta(minutes=30) if zone == "Asia/Kolkata" and grain is not Grain.WORKING else timedelta()
    assert timedelta() <= begins - window.start <= slack
    assert timedelta() <= ends - window.end <= slack


def test_the_repeated_hour_of_autumn_has_two_keys() -> None:
    partitions = PARTITIONS["Europe/Berlin"]
    keys = [partitions.key(hour) for hour in Calendar("Europe/Berlin").children(Period.parse("daily", "2024-10-27"))]
    assert len(set(keys)) == 25
    assert {"2024-10-27T02:00+0200", "2024-10-27T02:00+0100"} < set(keys)


def test_all_grains_begin_on_the_first_day() -> None:
    keys = {grain: definition.get_first_partition_key() for grain, definition in PARTITIONS["UTC"].definitions.items()}
    assert keys == {
        "working": "2018-01-01T00", "daily": "2018-01-01", "weekly": "2018-W01-1",
        "monthly": "2018-01", "quarterly": "2018-01", "yearly": "2018",
    }  # fmt: skip


def test_a_zone_with_clock_changes_of_half_an_hour_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Australia/Lord_Howe.*UTC"):
        Partitions(START, Calendar("Australia/Lord_Howe"))

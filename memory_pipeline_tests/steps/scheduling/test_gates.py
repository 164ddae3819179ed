"""Summaries are requested soon after their period closes; late data waits for windows that follow the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period, hour_of
from memory_pipeline.errors import InputError
from memory_pipeline.steps.scheduling.scheduler import SETTLING, has_passed, last_gate, settled_at

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
MOMENTS = st.integers(0, 20 * 366 * 86_400).map(
    lambda second: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
)
LONGEST = {Grain.DAILY: timedelta(hours=1), Grain.WEEKLY: timedelta(hours=25)}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("grain", "now", "gate"),
    [
        ("daily", "2024-01-17T10:04:59", "2024-01-17T09:05"),
        ("daily", "2024-01-17T10:05", "2024-01-17T10:05"),
        ("weekly", "2024-01-17T10:05", "2024-01-17T00:05"),
        ("weekly", "2024-01-17T00:04", "2024-01-16T00:05"),
        ("monthly", "2024-01-17T10:05", "2024-01-15T00:05"),
        ("quarterly", "2024-01-15T00:05", "2024-01-15T00:05"),
        ("yearly", "2024-01-15T00:04", "2024-01-08T00:05"),
    ],
)
def test_schedule_windows_are_hourly_daily_and_weekly(grain: str, now: str, gate: str) -> None:
    assert last_gate(Calendar(), Grain(grain), at(now)) == at(gate)


def test_schedule_windows_follow_the_time_zone() -> None:
    assert last_gate(Calendar("Europe/Berlin"), Grain.WEEKLY, at("2024-07-17T10:00")) == at("2024-07-16T22:05")
    assert last_gate(Calendar("America/New_York"), Grain.YEARLY, at("2024-01-17T10:00")) == at("2024-01-15T05:05")


def test_hours_have_no_schedule_windows() -> None:
    with pytest.raises(InputError, match=r"grain working has no gates.*accepted grains: daily, weekly"):
        last_gate(Calendar(), Grain.WORKING, at("2024-01-17"))


@given(st.sampled_from(ZONES), st.sampled_from(SUMMARY_GRAINS), MOMENTS)
def test_every_hour_day_or_week_has_a_schedule_window(zone: str, grain: Grain, now: datetime) -> None:
    gate = last_gate(Calendar(zone), grain, now)
    assert timedelta() <= now - gate < LONGEST.get(grain, timedelta(days=7, hours=1))
    assert last_gate(Calendar(zone), grain, gate) == gate
    assert last_gate(Calendar(zone), grain, gate - timedelta(microseconds=1)) < gate


@given(st.sampled_from(ZONES), st.sampled_from(SUMMARY_GRAINS), MOMENTS, st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_period_is_due_at_the_first_check_after_it_has_settled(
    zone: str, grain: Grain, now: datetime, before: int, after: int
) -> None:
    """Checks may be rare. The first check after the period has settled finds it."""
    calendar = Calendar(zone)
    period = calendar.ancestor(hour_of(now), grain)
    settled = settled_at(calendar, period)
    early, late = settled - timedelta(seconds=before + 1), settled + timedelta(seconds=after)
    assert settled == calendar.closes_at(period) + SETTLING
    assert not has_passed(calendar, period, None, early)
    assert has_passed(calendar, period, early, late)
    assert has_passed(calendar, period, None, late)


def test_a_recomputed_period_waits_for_the_next_window() -> None:
    week = Period(Grain.WEEKLY, "2024-W02")
    looked = at("2024-01-17T10:00")
    assert not has_passed(Calendar(), week, looked, at("2024-01-17T23:59"))
    assert not has_passed(Calendar(), week, looked, at("2024-01-18T00:04:59"))
    assert has_passed(Calendar(), week, looked, at("2024-01-18T00:05"))


def test_a_month_is_not_due_before_its_last_week_has_ended() -> None:
    # The week with the last Thursday of October 2024 ends on 3 November.
    assert settled_at(Calendar(), Period(Grain.MONTHLY, "2024-10")) == at("2024-11-04T00:05")
    assert settled_at(Calendar(), Period(Grain.MONTHLY, "2024-01")) == at("2024-02-01T00:05")

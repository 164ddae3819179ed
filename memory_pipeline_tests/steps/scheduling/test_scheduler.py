"""Decisions of the scheduler that three simulated years (lifecycle/test_years.py) do not show one by one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period
from memory_pipeline.steps.scheduling.planner import GrainStatus
from memory_pipeline.steps.scheduling.request_log import START_WITHIN, RequestOutcome
from memory_pipeline.steps.scheduling.scheduler import HEAL_EVERY, PATIENCE, MartSchedule, RollUps

if TYPE_CHECKING:
    from collections.abc import Iterable

CALENDAR = Calendar()
#: A Wednesday, not near a gate.
NOW = datetime(2024, 7, 17, 12, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def statuses(
    pending: Iterable[Period] = (), unfinished: Iterable[Period] = (), still_open: Iterable[Period] = ()
) -> dict[Grain, GrainStatus]:
    def of(grain: Grain, periods: Iterable[Period]) -> list[Period]:
        return sorted((period for period in periods if period.grain is grain), key=str)

    waiting = list(unfinished)
    return {
        grain: GrainStatus(
            grain=grain,
            made=[],
            empty=[],
            rows=0,
            pending=of(grain, [*pending, *waiting]),
            missing=[],
            unfinished=of(grain, waiting),
            open=of(grain, still_open),
            early=[],
        )
        for grain in Grain
    }


def chain(hour: str) -> list[Period]:
    """Return the ancestors of an hour."""
    return [CALENDAR.ancestor(Period(Grain.WORKING, hour), grain) for grain in SUMMARY_GRAINS]


def asked(rolls: RollUps, found: dict[Grain, GrainStatus], now: datetime, hours: Iterable[Period] = ()) -> list[str]:
    """Return the requested periods, after a round trip of the state through JSON."""
    requests = rolls.ask(CALENDAR, found, list(hours), {}, now)
    assert RollUps.from_record(json.loads(json.dumps(rolls.to_record()))).to_record() == rolls.to_record()
    return [str(period) for request in requests for period in request.periods]


def ended(rolls: RollUps, now: datetime) -> None:
    done, _ = rolls.attempts.settle({request.id: (RequestOutcome.DONE, "") for request in rolls.attempts.asked}, now)
    rolls.made(done)


def test_only_the_finest_stale_period_of_a_chain_is_requested() -> None:
    rolls, periods = RollUps(), chain("2023-03-08T09")
    now = NOW
    for period in periods:
        assert asked(rolls, statuses(periods[periods.index(period) :]), now) == [str(period)]
        assert asked(rolls, statuses(periods[periods.index(period) :]), now) == []  # a run is about to compute it
        now += MINUTE
        ended(rolls, now)
    assert asked(rolls, statuses(), now) == []


def test_data_after_the_last_check_waits_for_the_window() -> None:
    rolls, [day, week, *_] = RollUps(), chain("2024-03-06T09")
    assert asked(rolls, statuses(), NOW) == []
    assert asked(rolls, statuses([day]), NOW + MINUTE) == []
    assert rolls.next_look(CALENDAR, NOW + MINUTE) == datetime(2024, 7, 17, 13, 5, tzinfo=UTC)
    assert asked(rolls, statuses([day]), NOW + 35 * MINUTE) == [str(day)]
    ended(rolls, NOW + 36 * MINUTE)
    assert asked(rolls, statuses([week]), NOW + 37 * MINUTE) == []
    midnight = datetime(2024, 7, 18, 0, 5, tzinfo=UTC)
    assert asked(rolls, statuses([week]), midnight) == [str(week)]


def test_a_request_lost_by_dagster_is_repeated() -> None:
    rolls, [day, *_] = RollUps(), chain("2024-03-06T09")
    assert asked(rolls, statuses([day]), NOW) == [str(day)]  # the database fails before the run is stored
    again = rolls.next_look(CALENDAR, NOW + MINUTE)
    assert again == NOW + START_WITHIN
    assert rolls.attempts.settle({}, again - MINUTE) == ([], [])
    assert asked(rolls, statuses([day]), again - MINUTE) == []
    rolls.attempts.settle({}, again)
    assert asked(rolls, statuses([day]), again) == [str(day)]


def test_an_idle_lake_is_checked_when_the_next_period_closes_and_once_a_day() -> None:
    rolls = RollUps()
    asked(rolls, statuses(), NOW)
    assert rolls.next_look(CALENDAR, NOW) == datetime(2024, 7, 18, 0, 5, tzinfo=UTC)
    late = datetime(2024, 7, 21, 0, 6, tzinfo=UTC)
    asked(rolls, statuses(still_open=chain("2024-07-21T09")), late)
    assert rolls.next_look(CALENDAR, late) == datetime(2024, 7, 22, 0, 5, tzinfo=UTC)


def test_a_day_waits_for_hours_with_files_for_a_limited_time() -> None:
    rolls, [day, *_] = RollUps(), chain("2024-03-06T09")
    hours = [Period(Grain.WORKING, "2024-03-06T11")]
    assert asked(rolls, statuses([day]), NOW, hours) == []
    assert asked(rolls, statuses([day]), NOW + PATIENCE - MINUTE, hours) == []
    assert rolls.next_look(CALENDAR, NOW + PATIENCE - MINUTE) <= NOW + PATIENCE
    assert asked(rolls, statuses([day]), NOW + PATIENCE, hours) == [str(day)]


def test_the_wait_begins_when_the_day_closes_and_marts_do_not_wait_for_today() -> None:
    rolls, [today, *_] = RollUps(), chain("2024-07-17T09")
    hours = [Period(Grain.WORKING, "2024-07-17T12")]
    for now in (NOW, NOW + timedelta(hours=8)):
        assert asked(rolls, statuses(still_open=[today]), now, hours) == []
        assert rolls.is_level
    closed = datetime(2024, 7, 18, 0, 5, tzinfo=UTC)
    assert asked(rolls, statuses([today]), closed, hours) == []
    assert not rolls.is_level
    assert asked(rolls, statuses([today]), closed + PATIENCE, hours) == [str(today)]


def test_unfinished_periods_are_retried_every_15_minutes_finest_first() -> None:
    rolls = RollUps()
    hour, other = Period(Grain.WORKING, "2024-03-06T09"), Period(Grain.DAILY, "2024-05-05")
    day, week = chain("2024-03-06T09")[:2]
    found = statuses(unfinished=[hour, day, week, other])
    assert asked(rolls, found, NOW) == []  # requested by the run that left it so
    assert asked(rolls, found, NOW + HEAL_EVERY - MINUTE) == []
    now = NOW + HEAL_EVERY
    assert asked(rolls, found, now) == [str(hour), str(other)]
    now += MINUTE
    ended(rolls, now)
    assert asked(rolls, found, now) == [str(day)]  # the model is still down, but the retry was due
    ended(rolls, now)
    assert asked(rolls, found, now) == [str(week)]
    ended(rolls, now)
    assert asked(rolls, found, now) == []
    assert asked(rolls, found, NOW + 2 * HEAL_EVERY) == [str(hour), str(other)]
    assert asked(rolls, statuses(), NOW + 3 * HEAL_EVERY) == []
    assert rolls.last_retry is None


def test_undone_hours_without_files_are_requested() -> None:
    """A run was killed between its commits and the ledger, and another one acknowledged the file."""
    hour, with_file = Period(Grain.WORKING, "2024-03-06T09"), Period(Grain.WORKING, "2024-03-07T09")
    assert asked(RollUps(), statuses([hour, with_file]), NOW, [with_file]) == [str(hour)]


@pytest.mark.parametrize("last", [RequestOutcome.DONE, RequestOutcome.FAILED, None])
def test_marts_are_due_once_a_day_until_they_are_built(last: RequestOutcome | None) -> None:
    marts = MartSchedule()
    assert not marts.are_due(NOW)
    marts.look(CALENDAR, NOW)
    assert marts.are_due(NOW)
    name, attempt = marts.ask(NOW)
    assert attempt == 1
    assert not marts.are_due(NOW)
    marts.settle({name: (RequestOutcome.UNDER_WAY, "")}, NOW)
    assert not marts.are_due(NOW)
    now = NOW + 11 * MINUTE
    marts.settle({} if last is None else {name: (last, "no disk")}, now)
    marts = MartSchedule.from_record(json.loads(json.dumps(marts.to_record())))
    marts.look(CALENDAR, now)
    assert marts.are_due(now) is (last is None)
    assert marts.are_due(now + MINUTE) is (last is not RequestOutcome.DONE)
    marts.look(CALENDAR, now + timedelta(hours=12))
    assert marts.are_due(now + timedelta(hours=12))

"""The calendar: names, bounds and numbers of periods (H1), and that they nest without a gap or an overlap (H2)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Calendar, Grain, Period, hour_of, start_for
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.settings import Settings
from memory_pipeline_tests.effort import IS_THOROUGH

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST, LAST = date(1990, 1, 1), date(2029, 12, 31)  # 40 years, with leap years, long ISO years and every start of week

ZONES = [
    "UTC",
    "Europe/Berlin",  # days of 23 and 25 hours
    "America/Sao_Paulo",  # until 2018 clocks changed at midnight: some days begin at 01:00
    "Africa/Casablanca",  # clocks change around Ramadan
    "Asia/Kolkata",  # UTC+5:30
    "Asia/Kathmandu",  # UTC+5:45
    "Australia/Lord_Howe",  # clocks change by half an hour
    "Pacific/Apia",  # had no 30 December 2011
]


def period(name: str) -> Period:
    """Parse a period; the grain follows from the form of its name."""
    for grain in Grain:
        try:
            return Period.parse(grain, name)
        except InputError:
            continue
    raise AssertionError(name)


def forty_years(grain: Grain) -> list[Period]:
    return list(Period.containing(grain, FIRST).through(Period.containing(grain, LAST)))


def instants() -> st.SearchStrategy[datetime]:
    """Times within the forty years, in microseconds."""
    first, last = (datetime.fromisoformat(text) for text in ("1990-01-01T00:00:00", "2029-12-31T23:59:59.999999"))
    return st.datetimes(first, last, timezones=st.just(UTC))


days = st.dates(FIRST, LAST)
summary_grains = st.sampled_from(SUMMARY_GRAINS)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grain", "day", "name"),
    [
        (Grain.DAILY, date(2024, 1, 15), "2024-01-15"),
        (Grain.WEEKLY, date(2024, 1, 15), "2024-W03"),
        (Grain.WEEKLY, date(2024, 12, 30), "2025-W01"),
        (Grain.WEEKLY, date(2027, 1, 1), "2026-W53"),
        (Grain.WEEKLY, date(2021, 1, 3), "2020-W53"),
        (Grain.WEEKLY, date(2021, 1, 4), "2021-W01"),
        (Grain.MONTHLY, date(2024, 2, 29), "2024-02"),
        (Grain.QUARTERLY, date(2024, 3, 31), "2024-Q1"),
        (Grain.QUARTERLY, date(2024, 4, 1), "2024-Q2"),
        (Grain.QUARTERLY, date(2024, 12, 31), "2024-Q4"),
        (Grain.YEARLY, date(2024, 12, 31), "2024"),
    ],
)
def test_the_period_of_a_day(grain: Grain, day: date, name: str) -> None:
    assert str(Period.containing(grain, day)) == name
    assert Calendar().period(grain, datetime(day.year, day.month, day.day, 23, 59, tzinfo=UTC)).key == name


def test_the_hour_of_an_instant_is_an_hour_of_utc() -> None:
    moment = datetime(2024, 1, 1, 0, 59, 59, 999999, tzinfo=timezone(timedelta(hours=1)))
    assert str(hour_of(moment)) == "2023-12-31T23"
    assert hour_of(moment) == Calendar().period(Grain.WORKING, moment)


def test_a_day_has_no_single_hour() -> None:
    with pytest.raises(InputError, match="daily to yearly"):
        Period.containing(Grain.WORKING, FIRST)


def test_an_unpadded_week_is_read_and_written_padded() -> None:
    assert str(Period.parse(Grain.WEEKLY, "2024-W3")) == "2024-W03"
    assert Period.parse("weekly", "2024-W3") == Period.parse(Grain.WEEKLY, "2024-W03")


@pytest.mark.parametrize("grain", Grain)
def test_a_name_round_trips(grain: Grain) -> None:
    start = Period.parse(Grain.WORKING, "2023-12-25T00")
    periods = list(start.through(period("2024-03-03T23"))) if grain is Grain.WORKING else forty_years(grain)
    assert all(Period.parse(grain, str(each)) == each for each in periods)


@pytest.mark.parametrize(
    ("grain", "text", "expected"),
    [
        ("weekly", "2024-W00", "an ISO week such as 2024-W03"),
        ("weekly", "2024-W54", "01 to 52, or 53 in long years"),
        ("weekly", "2023-W53", "01 to 52, or 53 in long years"),
        ("monthly", "2024-13", "a month such as 2024-01"),
        ("monthly", "2024-00", "a month such as 2024-01"),
        ("daily", "2024-02-31", "a date such as 2024-01-15"),
        ("daily", "2023-02-29", "a date such as 2024-01-15"),
        ("daily", "1900-02-29", "a date such as 2024-01-15"),
        ("quarterly", "2024-Q5", "Q1 to Q4"),
        ("quarterly", "2024-Q0", "Q1 to Q4"),
        ("yearly", "1899", "a year such as 2024"),
        ("yearly", "3000", "a year such as 2024"),
        ("yearly", "0000", "a year such as 2024"),
        ("working", "2024-01-15T24", "an hour in UTC such as 2024-01-15T08"),
        ("working", "2024-01-15T8", "an hour in UTC such as 2024-01-15T08"),
        ("working", "2024-01-15 08", "an hour in UTC such as 2024-01-15T08"),
        ("working", "2024-01-15t08", "an hour in UTC such as 2024-01-15T08"),
        ("working", "2024-02-30T08", "an hour in UTC such as 2024-01-15T08"),
        ("daily", "2024-1-15", "a date such as 2024-01-15"),
        ("daily", "20240115", "a date such as 2024-01-15"),
        ("monthly", "2024-1", "a month such as 2024-01"),
        ("weekly", "2024W03", "an ISO week such as 2024-W03"),
        ("weekly", "2024-w03", "an ISO week such as 2024-W03"),
        ("weekly", "2024-W003", "an ISO week such as 2024-W03"),
        ("yearly", "24", "a year such as 2024"),
        ("yearly", "-2024", "a year such as 2024"),
    ],
)
def test_invalid_periods_are_rejected(grain: str, text: str, expected: str) -> None:
    with pytest.raises(InputError) as refusal:
        Period.parse(grain, text)
    assert str(refusal.value).startswith(f"{grain} period '{text}' is not valid; expected ")
    assert expected in str(refusal.value)


@pytest.mark.parametrize("grain", Grain)
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 2024",
        "2024 ",
        "2024\n",
        "2024-01-15\n",
        "2024-01-15T08\n",
        "٢٠٢٤",  # Arabic digits
        "２０２４-０１",  # full-width digits
        "2024-𝟎𝟏-𝟏𝟓",  # mathematical digits
        "2024‐01‐15",  # typographic hyphens
        "2024-W+3",
        "2024-W 3",
        "2024-W03; DROP TABLE summaries",
        "../2024",
        "2024\x00",
        "\ud800",
        pytest.param("9" * 10**6, id="1 MB"),
        None,
        2024,
        2024.0,
        True,
        b"2024",
        ["2024"],
    ],
)
def test_hostile_names_are_refused_for_every_grain(grain: Grain, text: object) -> None:
    with pytest.raises(InputError, match="is not valid; expected ") as refusal:
        Period.parse(grain, text)  # type: ignore[arg-type]
    assert len(str(refusal.value)) < 250
    assert str(refusal.value).isprintable()


@given(grain=st.sampled_from(Grain), text=st.text())
def test_any_text_is_a_period_or_an_input_error(grain: Grain, text: str) -> None:
    try:
        found = Period.parse(grain, text)
    except InputError:
        return
    assert Period.parse(grain, found.key) == found


def test_a_name_of_another_grain_is_refused() -> None:
    names = {
        Grain.WORKING: "2024-01-15T08",
        Grain.DAILY: "2024-01-15",
        Grain.WEEKLY: "2024-W03",
        Grain.MONTHLY: "2024-01",
        Grain.QUARTERLY: "2024-Q1",
        Grain.YEARLY: "2024",
    }
    for grain in Grain:
        for other, name in names.items():
            if other is grain:
                assert Period.parse(grain, name).key == name
            else:
                with pytest.raises(InputError):
                    Period.parse(grain, name)


def test_an_unknown_grain_is_refused() -> None:
    with pytest.raises(InputError, match="grain 'hourly' is unknown; accepted: working, daily"):
        Period.parse("hourly", "2024-01-15T08")


# --- bounds, numbers, order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "end"),
    [
        ("2024-01-15", "2024-01-15", "2024-01-16"),
        ("2024-W24", "2024-06-10", "2024-06-17"),
        ("2020-W53", "2020-12-28", "2021-01-04"),
        ("2025-W01", "2024-12-30", "2025-01-06"),
        ("2024-02", "2024-02-01", "2024-03-01"),
        ("2023-02", "2023-02-01", "2023-03-01"),
        ("2024-12", "2024-12-01", "2025-01-01"),
        ("2024-Q1", "2024-01-01", "2024-04-01"),
        ("2024-Q4", "2024-10-01", "2025-01-01"),
        ("2024", "2024-01-01", "2025-01-01"),
    ],
)
def test_bounds_are_half_open_and_utc(name: str, first: str, end: str) -> None:
    found = period(name)
    assert (found.first_day.isoformat(), found.end_day.isoformat()) == (first, end)
    midnights = tuple(datetime.fromisoformat(f"{day}T00:00:00+00:00") for day in (first, end))
    assert Calendar().bounds(found) == midnights


def test_bounds_of_an_hour() -> None:
    start = datetime(2024, 1, 15, 8, tzinfo=UTC)
    assert Calendar("Asia/Kathmandu").bounds(period("2024-01-15T08")) == (start, start + HOUR)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("2024-01-15T08", 8),
        ("2024-01-15T00", 0),
        ("2024-01-15", 15),
        ("2024-12-31", 366),
        ("2023-12-31", 365),
        ("2024-W03", 3),
        ("2020-W53", 53),
        ("2024-01", 1),
        ("2024-10", 10),
        ("2024-Q2", 2),
        ("2024", 2024),
    ],
)
def test_periods_have_a_number(name: str, number: int) -> None:
    assert period(name).number == number


@given(day=days, grain=summary_grains)
def test_a_period_covers_its_days(day: date, grain: Grain) -> None:
    found = Period.containing(grain, day)
    assert found.first_day <= day < found.end_day
    assert Period.containing(grain, found.first_day) == found
    assert Period.containing(grain, found.end_day - DAY) == found
    assert Period.containing(grain, found.end_day) == found.next() != found
    assert (found.number == day.isocalendar().week) if grain is Grain.WEEKLY else True


@given(moment=instants())
def test_an_hour_covers_its_instants(moment: datetime) -> None:
    hour = hour_of(moment)
    start, end = Calendar().bounds(hour)
    assert start <= moment < end == start + HOUR
    assert hour_of(end) == hour.next()


@given(one=days, other=days, grain=summary_grains)
def test_names_sort_by_time(one: date, other: date, grain: Grain) -> None:
    first, second = Period.containing(grain, one), Period.containing(grain, other)
    assert (first.key < second.key) == (first.first_day < second.first_day)
    assert (first.key == second.key) == (first == second)


@given(one=instants(), other=instants())
def test_names_of_hours_sort_by_time(one: datetime, other: datetime) -> None:
    first, second = hour_of(one), hour_of(other)
    assert (first.key <= second.key) == (one.replace(minute=0, second=0, microsecond=0) <= other)


@pytest.mark.parametrize("grain", SUMMARY_GRAINS)
def test_forty_years_without_a_gap(grain: Grain) -> None:
    periods = forty_years(grain)
    counts = {"daily": 14_610, "weekly": 2_088, "monthly": 480, "quarterly": 160, "yearly": 40}
    assert len(periods) == len(set(periods)) == counts[grain]
    assert periods == sorted(periods, key=lambda each: each.key)
    assert all(one.end_day == other.first_day for one, other in pairwise(periods))


def test_forty_years_hold_the_iso_years_of_53_weeks() -> None:
    long = {int(week.key[:4]) for week in forty_years(Grain.WEEKLY) if week.number == 53}
    assert long == {1992, 1998, 2004, 2009, 2015, 2020, 2026}


def test_through_includes_both_ends() -> None:
    def names(first: str, last: str) -> list[str]:
        return [str(each) for each in period(first).through(period(last))]

    assert names("2024-12-31T22", "2025-01-01T01") == [
        "2024-12-31T22", "2024-12-31T23", "2025-01-01T00", "2025-01-01T01",
    ]  # fmt: skip
    assert names("2024-02-28", "2024-03-01") == ["2024-02-28", "2024-02-29", "2024-03-01"]
    assert names("2020-W52", "2021-W01") == ["2020-W52", "2020-W53", "2021-W01"]
    assert names("2023-12", "2024-01") == ["2023-12", "2024-01"]
    assert names("2023-Q4", "2024-Q1") == ["2023-Q4", "2024-Q1"]
    assert names("2024", "2024") == ["2024"]
    assert names("2024", "2023") == []


# --- parents and children --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("2024-01-15T08", "2024-01-15"),
        ("2024-12-30", "2025-W01"),
        ("2027-01-01", "2026-W53"),
        ("2024-W05", "2024-02"),  # 29 January to 4 February; its Thursday is 1 February
        ("2024-W09", "2024-02"),  # 26 February to 3 March; its Thursday is 29 February
        ("2025-W01", "2025-01"),  # begins on 30 December 2024
        ("2020-W53", "2020-12"),  # ends on 3 January 2021
        ("2024-W14", "2024-04"),  # begins in March and the first quarter
        ("2024-03", "2024-Q1"),
        ("2024-04", "2024-Q2"),
        ("2024-Q4", "2024"),
    ],
)
def test_a_parent_contains_its_child(child: str, parent: str) -> None:
    calendar = Calendar()
    assert calendar.parent(period(child)) == period(parent)
    assert period(child) in calendar.children(period(parent))


def test_a_year_has_no_parent_and_an_hour_no_children() -> None:
    assert Calendar().parent(period("2024")) is None
    assert Calendar().children(period("2024-01-15T08")) == []


def test_the_weeks_of_a_month_may_cross_its_calendar_days() -> None:
    calendar = Calendar()
    new_years_eve = datetime(2024, 12, 31, 12, tzinfo=UTC)
    assert str(calendar.period(Grain.MONTHLY, new_years_eve)) == "2024-12"
    assert str(calendar.ancestor(hour_of(new_years_eve), Grain.MONTHLY)) == "2025-01"
    assert [str(week) for week in calendar.children(period("2024-12"))] == [
        "2024-W49", "2024-W50", "2024-W51", "2024-W52",
    ]  # fmt: skip


@pytest.mark.parametrize(("year", "weeks"), [("2020", 53), ("2023", 52), ("2024", 52), ("2026", 53)])
def test_a_year_is_made_from_its_iso_weeks(year: str, weeks: int) -> None:
    calendar = Calendar()
    months = [month for quarter in calendar.children(period(year)) for month in calendar.children(quarter)]
    found = [str(week) for month in months for week in calendar.children(month)]
    assert found == [f"{year}-W{number:02}" for number in range(1, weeks + 1)]


@given(moment=instants(), zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Sao_Paulo"]))
def test_every_hour_has_one_ancestor_of_each_grain_and_they_nest(moment: datetime, zone: str) -> None:
    calendar = Calendar(zone)
    hour = hour_of(moment)
    chain = [calendar.ancestor(hour, grain) for grain in Grain]
    assert chain[0] == hour
    assert [each.grain for each in chain] == list(Grain)
    for child, parent in pairwise(chain):
        assert calendar.parent(child) == parent
        assert calendar.children(parent).count(child) == 1
    local = moment.replace(minute=0, second=0, microsecond=0).astimezone(ZoneInfo(zone)).date()
    iso = local.isocalendar()
    assert [str(each) for each in chain[1:3]] == [local.isoformat(), f"{iso.year}-W{iso.week:02}"]
    assert str(chain[5]) == str(iso.year)


def test_a_finer_grain_is_no_ancestor() -> None:
    with pytest.raises(InputError, match="2024-W03 has no ancestor of grain daily, which is finer"):
        Calendar().ancestor(period("2024-W03"), Grain.DAILY)
    with pytest.raises(InputError, match="2024 has no ancestor of grain working"):
        Calendar().ancestor(period("2024"), Grain.WORKING)


@pytest.mark.parametrize("parent_grain", [Grain.WEEKLY, Grain.MONTHLY, Grain.QUARTERLY, Grain.YEARLY])
def test_the_children_of_forty_years_partition_them(parent_grain: Grain) -> None:
    calendar = Calendar()
    owned = Counter(child for parent in forty_years(parent_grain) for child in calendar.children(parent))
    child_grain = parent_grain.finer
    assert child_grain is not None
    assert set(owned.values()) == {1}
    # Every period well within the forty years has a parent.
    assert {
        child for child in forty_years(child_grain) if date(1990, 2, 1) < child.first_day < date(2029, 12, 1)
    } <= set(owned)
    for parent in forty_years(parent_grain):
        children = calendar.children(parent)
        assert all(calendar.parent(child) == parent for child in children)
        assert children == list(children[0].through(children[-1]))


@pytest.mark.parametrize("grain", [Grain.MONTHLY, Grain.QUARTERLY, Grain.YEARLY])
def test_a_period_contains_its_calendar_days_give_or_take_three_at_either_end(grain: Grain) -> None:
    calendar = Calendar()
    for each in forty_years(grain):
        first = last = each
        while first.grain is not Grain.WEEKLY:
            first, last = calendar.children(first)[0], calendar.children(last)[-1]
        assert abs(first.first_day - each.first_day) <= 3 * DAY
        assert abs(last.end_day - each.end_day) <= 3 * DAY


def test_every_hour_in_utc_is_in_one_day() -> None:
    calendar = Calendar()
    expected = datetime(1990, 1, 1, tzinfo=UTC)
    for day in forty_years(Grain.DAILY)[: None if IS_THOROUGH else 1_500]:
        for hour in calendar.children(day):
            assert hour.key == expected.strftime("%Y-%m-%dT%H")
            expected += HOUR
    assert expected == datetime(1990, 1, 1, tzinfo=UTC) + (14_610 if IS_THOROUGH else 1_500) * DAY


# --- time zones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "zone",
    [
        *(ZONES if IS_THOROUGH else ZONES[-2:]),
        "America/St_Johns",  # UTC-3:30; clocks went back at 00:01 until 2011, into the day before
    ],
)
def test_days_tile_forty_years_in_every_zone(zone: str) -> None:
    """The hours before and after a midnight belong to the days of the bounds."""
    calendar = Calendar(zone)
    bounds = [(day, *calendar.bounds(day)) for day in forty_years(Grain.DAILY)]
    assert all(end == start for (_, _, end), (_, start, _) in pairwise(bounds))
    for day, start, end in bounds:
        assert (start.minute, start.second, start.microsecond, start.utcoffset()) == (0, 0, 0, timedelta(0))
        if start < end:
            around = (start - HOUR, start, end - HOUR, end)
            owners = [calendar.parent(hour_of(moment)) == day for moment in around]
            assert owners == [False, True, True, False], day


@given(moment=instants(), zone=st.sampled_from([*ZONES, "Australia/Adelaide", "America/St_Johns", "Asia/Yangon"]))
def test_an_hour_is_a_source_of_the_days_of_its_moments(moment: datetime, zone: str) -> None:
    calendar = Calendar(zone)
    hour, day = hour_of(moment), Period.containing(Grain.DAILY, calendar.day_of(moment))
    days = calendar.days_of(hour)
    assert days == calendar.derived(hour)
    assert days[0] == calendar.parent(hour)
    for one in days:
        start, end = calendar.midnights(one)
        assert start < calendar.bounds(hour)[1]
        assert calendar.bounds(hour)[0] < end
        assert calendar.sources(one).count(hour) == 1
    if (zone, moment.year) < ("America/St_Johns", 2012):  # then, clocks went back over midnight
        return
    assert day in days
    start, end = calendar.midnights(day)
    assert start <= moment < end
    assert start.astimezone(ZoneInfo(zone)).date() == day.first_day


@pytest.mark.parametrize("zone", ZONES)
def test_hours_of_a_day_are_its_own_in_every_zone(zone: str) -> None:
    calendar = Calendar(zone)
    for day in Period.parse("daily", "2011-12-01").through(Period.parse("daily", "2013-01-31")):
        start, end = calendar.bounds(day)
        hours = calendar.children(day)
        assert len(hours) * HOUR == end - start
        assert all(calendar.parent(hour) == day for hour in hours)
        assert [calendar.bounds(hour)[0] for hour in hours] == [start + n * HOUR for n in range(len(hours))]


@pytest.mark.parametrize(
    ("zone", "day", "start", "hours"),
    [
        ("UTC", "2024-03-31", "2024-03-31T00", 24),
        ("Europe/Berlin", "2024-03-31", "2024-03-30T23", 23),
        ("Europe/Berlin", "2024-10-27", "2024-10-26T22", 25),
        ("America/Sao_Paulo", "2017-10-15", "2017-10-15T03", 23),  # 00:00 did not exist, the day began at 01:00
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17T02", 25),  # 23:00 came twice
        ("America/Sao_Paulo", "2024-10-20", "2024-10-20T03", 24),  # no change any more
        ("Africa/Casablanca", "2024-03-10", "2024-03-09T23", 25),
        ("Africa/Casablanca", "2024-04-14", "2024-04-14T00", 23),
        ("Asia/Kolkata", "2024-01-15", "2024-01-14T19", 24),  # 00:30, the first whole UTC hour of the day
        ("Asia/Kathmandu", "2024-01-15", "2024-01-14T19", 24),  # 00:45
        ("Australia/Lord_Howe", "2024-04-07", "2024-04-06T13", 25),  # half an hour more, +11 becomes +10:30
        ("Australia/Lord_Howe", "2024-10-06", "2024-10-05T14", 23),
        ("Pacific/Apia", "2011-12-29", "2011-12-29T10", 24),
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10", 0),  # skipped: the islands crossed the date line
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10", 24),
    ],
)
def test_length_and_start_of_a_day(zone: str, day: str, start: str, hours: int) -> None:
    calendar = Calendar(zone)
    children = calendar.children(period(day))
    assert calendar.bounds(period(day))[0] == datetime.fromisoformat(f"{start}:00:00+00:00")
    assert len(children) == hours
    assert hours == 0 or children[0].key == start


def test_a_week_with_a_skipped_day_still_has_seven_days() -> None:
    calendar = Calendar("Pacific/Apia")
    week = calendar.children(period("2011-W52"))
    assert [str(day) for day in week][4] == "2011-12-30"
    assert [len(calendar.children(day)) for day in week] == [24, 24, 24, 24, 0, 24, 24]


@pytest.mark.parametrize("zone", ZONES)
def test_coarser_periods_begin_with_their_first_day(zone: str) -> None:
    calendar = Calendar(zone)
    for grain in (Grain.WEEKLY, Grain.MONTHLY, Grain.QUARTERLY, Grain.YEARLY):
        bounds = [calendar.bounds(each) for each in forty_years(grain)]
        assert all(one[1] == other[0] for one, other in pairwise(bounds))
        firsts = [calendar.bounds(Period.containing(Grain.DAILY, each.first_day))[0] for each in forty_years(grain)]
        assert [start for start, _ in bounds] == firsts


def test_the_day_of_an_instant_is_the_local_day() -> None:
    moment = datetime(2024, 1, 15, 18, 40, tzinfo=UTC)  # 00:10 in Kolkata
    assert Calendar().day_of(moment) == date(2024, 1, 15)
    assert Calendar("Asia/Kolkata").day_of(moment) == date(2024, 1, 16)
    # Its UTC hour began at 23:30 of the day before, and belongs to that day.
    kolkata = Calendar("Asia/Kolkata")
    assert str(kolkata.parent(hour_of(moment))) == "2024-01-15"


@pytest.mark.parametrize(
    "zone",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../UTC",
        "Europe",
        "europe/berlin2",
        "UTC\x00",
        "Mars/Base",
        pytest.param("x" * 5000, id="long"),
    ],
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="is unknown; expected an IANA name such as Europe/Berlin or UTC"):
        Calendar(zone)


# --- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "closes"),
    [
        ("2024-01-15T08", "2024-01-15T09"),
        ("2024-01-15", "2024-01-16T00"),
        ("2024-W03", "2024-01-22T00"),
        ("2024-02", "2024-03-04T00"),  # its last week, W09, ends on Sunday 3 March
        ("2024-01", "2024-02-01T00"),  # its last week ended before it
        ("2024-Q1", "2024-04-01T00"),
        ("2020", "2021-01-04T00"),  # 2020-W53
        ("2024", "2025-01-01T00"),  # its last week ended on 29 December
    ],
)
def test_periods_close_at_the_expected_hour(name: str, closes: str) -> None:
    assert Calendar().closes_at(period(name)) == datetime.fromisoformat(f"{closes}:00:00+00:00")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia"])
@pytest.mark.parametrize("grain", SUMMARY_GRAINS)
def test_a_period_closes_after_its_end_and_after_its_children(zone: str, grain: Grain) -> None:
    calendar = Calendar(zone)
    for each in forty_years(grain)[:800]:
        end, closes = calendar.bounds(each)[1], calendar.closes_at(each)
        assert closes >= end
        assert closes - end <= 3 * DAY + HOUR
        if grain is not Grain.DAILY:
            assert closes == max(end, *(calendar.closes_at(child) for child in calendar.children(each)))


@given(moment=instants())
@settings(deadline=None)
def test_an_event_never_comes_after_its_periods_have_closed(moment: datetime) -> None:
    calendar = Calendar("Europe/Berlin")
    closings = [calendar.closes_at(calendar.ancestor(hour_of(moment), grain)) for grain in Grain]
    assert all(moment < closes for closes in closings)
    assert closings == sorted(closings)


# --- invalid times ---------------------------------------------------------------------------------------------------


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(InputError, match=r"2024-01-15T08:30:00 has no time zone; expected e\.g\."):
        hour_of(datetime.fromisoformat("2024-01-15T08:30:00"))


@pytest.mark.parametrize("year", [1, 1900, 2999, 9999])
def test_a_time_outside_the_supported_years_is_refused(year: int) -> None:
    moment = datetime(year, 6, 1, tzinfo=UTC)
    for look_up in (hour_of, Calendar("Asia/Tokyo").day_of):
        with pytest.raises(InputError, match="outside the years 1901 to 2998"):
            look_up(moment)


@pytest.mark.parametrize("moment", [datetime(1901, 1, 1, tzinfo=UTC), datetime(2998, 12, 31, 23, tzinfo=UTC)])
@pytest.mark.parametrize("offset", [-14, 0, 14])
def test_the_hour_of_every_accepted_time_round_trips(moment: datetime, offset: int) -> None:
    """Even the last accepted times have valid names and ancestors in every zone."""
    calendar = Calendar("Pacific/Auckland")
    hour = hour_of(moment.replace(tzinfo=timezone(timedelta(hours=offset))))
    for grain in Grain:
        ancestor = calendar.ancestor(hour, grain)
        assert Period.parse(grain, ancestor.key) == ancestor
        assert calendar.closes_at(ancestor) > calendar.bounds(ancestor)[0]


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "first", "last"),
    [
        (date(2024, 6, 1), "2024-05-31T22:00:00+00:00", "2024-06-01T21:59:59.999999+00:00"),
        ("2024-06-01", "2024-05-31T22:00:00+00:00", "2024-06-01T21:59:59.999999+00:00"),
        ("2024-W22-6", "2024-05-31T22:00:00+00:00", "2024-06-01T21:59:59.999999+00:00"),
        ("2024-06-01T00:00:00Z", "2024-06-01T00:00:00+00:00", "2024-06-01T00:00:00+00:00"),
        ("2024-06-01 02:00+02:00", "2024-06-01T00:00:00+00:00", "2024-06-01T00:00:00+00:00"),
        (datetime(2024, 6, 1, tzinfo=UTC), "2024-06-01T00:00:00+00:00", "2024-06-01T00:00:00+00:00"),
    ],
)
def test_a_time_is_a_date_a_datetime_or_a_text_of_either(value: object, first: str, last: str) -> None:
    calendar = Calendar("Europe/Berlin")
    assert calendar.instant("since", value).isoformat() == first
    assert calendar.instant("until", value, is_end=True).isoformat() == last
    assert calendar.moment("now", value).isoformat() == first


@pytest.mark.parametrize("value", ["", "soon", "2024-02-30", "2024-06-01T25:00Z", 5, None, True, b"2024-06-01", []])
def test_invalid_times_are_rejected_with_the_accepted_forms(value: object) -> None:
    with pytest.raises(InputError, match=r"^since .*expected a date such as 2024-01-15, or a time with its zone"):
        Calendar().instant("since", value)


@pytest.mark.parametrize("value", ["0001-01-01", "9999-12-31", "1900-06-01T00:00:00Z"])
def test_a_clock_outside_the_supported_years_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"is out of range|now .* is outside the years"):
        Calendar("Europe/Berlin").moment("now", value)


@pytest.mark.parametrize(
    ("day", "first"),
    [
        (date(2026, 5, 1), date(2024, 1, 1)),
        (date(2024, 1, 1), date(2024, 1, 1)),
        (date(2023, 12, 31), date(2018, 1, 1)),
        (date(1973, 1, 1), date(1973, 1, 1)),
        (date(1969, 7, 20), date(1973, 1, 1)),
    ],
)
def test_a_memory_begins_on_the_last_new_year_that_is_a_monday(day: date, first: date) -> None:
    assert start_for(day) == first
    assert Settings(start=first).start == first

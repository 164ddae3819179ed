"""Retention: cut-offs to the hour (H11), classes and plans (A6), and the order of expiry."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.periods import Calendar, Grain, Period, hour_of
from memory_pipeline.domain.retention import (
    PLANS,
    Duration,
    Expiry,
    Retention,
    RetentionClass,
    Unit,
    contradictions,
    duration_text,
    parse_duration,
    plan_expiry,
)
from memory_pipeline.errors import InputError
from memory_pipeline_tests.domain.test_periods import ZONES
from memory_pipeline_tests.effort import examples

NOW = datetime(2024, 6, 15, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SUMMARIES = (
    RetentionClass.DAILY,
    RetentionClass.WEEKLY,
    RetentionClass.MONTHLY,
    RetentionClass.QUARTERLY,
    RetentionClass.YEARLY,
)
#: About two years of each unit.
SOME = {Unit.HOURS: 17_520, Unit.DAYS: 730, Unit.WEEKS: 104, Unit.MONTHS: 24, Unit.QUARTERS: 8, Unit.YEARS: 2}

zones = st.sampled_from([ZoneInfo(zone) for zone in ZONES])
_FIRST, _LAST = (datetime.fromisoformat(text) for text in ("1990-01-01T00:00:00", "2029-12-31T23:59:59"))
nows = st.datetimes(_FIRST, _LAST, timezones=st.just(UTC))
durations = st.sampled_from(Unit).flatmap(lambda unit: st.builds(Duration, st.integers(1, SOME[unit]), st.just(unit)))
classes = st.sampled_from(RetentionClass)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- durations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["48h", "30d", "6w", "6mo", "4q", "2y", "1h", "876600h", "36525d", "100y", "forever"])
def test_a_duration_is_formatted_as_it_was_parsed(text: str) -> None:
    assert duration_text(parse_duration(text)) == text


@given(durations)
def test_every_duration_round_trips(duration: Duration) -> None:
    assert Duration.parse(str(duration)) == duration


@pytest.mark.parametrize(
    "text",
    [
        *[
            "3 fortnights",
            "",
            "30",
            "d",
            "0d",
            "-1d",
            "+1d",
            "01d",
            "1.5d",
            "1e2d",
            "30 d",
            " 30d",
            "30d\n",
            "30D",
            "1m",
        ],
        *["1d12h", "٣d", "876601h", "36526d", "5218w", "1201mo", "401q", "101y", "9" * 5_000 + "d", "Forever"],
        *["\ud800", "1d\x00", None, 30, True, 1.5, b"30d", ["30d"]],
    ],
)
def test_invalid_durations_are_rejected_and_shown(text: object) -> None:
    with pytest.raises(
        InputError, match=r"duration .* is not valid; expected a whole number of h, d, w, mo, q, y"
    ) as no:
        parse_duration(text)
    assert str(no.value).endswith("; or forever")
    assert len(str(no.value)) < 300
    assert str(no.value).isprintable()


def test_an_error_names_the_value() -> None:
    with pytest.raises(InputError, match=r"duration '3 fortnights' is not valid; expected .*, at most a century$"):
        Duration.parse("3 fortnights")
    with pytest.raises(InputError, match="duration 'forever' is not valid"):
        Duration.parse("forever")


@pytest.mark.parametrize("count", [0, -1, 101, True, 1.0, "1", pytest.param(10**5_000, id="huge")])
def test_a_count_is_a_number_up_to_a_century(count: int) -> None:
    with pytest.raises(InputError, match=r"count .* of unit y is not valid; expected 1 to 100"):
        Duration(count, Unit.YEARS)


def test_a_unit_is_one_of_six() -> None:
    with pytest.raises(InputError, match="unit 'm' is unknown; accepted: h, d, w, mo, q, y"):
        Duration(1, "m")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("duration", "now", "zone", "expected"),
    [
        ("6mo", "2024-08-31T00:00", "UTC", "2024-02-29T00:00"),
        ("6mo", "2023-08-31T23:59", "UTC", "2023-02-28T00:00"),
        ("1y", "2024-02-29T12:00", "UTC", "2023-02-28T00:00"),
        ("4y", "2024-02-29T12:00", "UTC", "2020-02-29T00:00"),
        ("1q", "2024-05-31T12:00", "UTC", "2024-02-29T00:00"),
        ("1mo", "2024-01-15T12:00", "UTC", "2023-12-15T00:00"),
        ("1w", "2024-01-03T12:00", "UTC", "2023-12-27T00:00"),
        ("100y", "1901-01-01T12:00", "UTC", "1801-01-01T00:00"),
        # An hour is an hour: the 31st of March had 23 in Berlin.
        ("24h", "2024-03-31T12:30", "Europe/Berlin", "2024-03-30T12:30"),
        ("1d", "2024-03-31T12:30", "Europe/Berlin", "2024-03-29T23:00"),
        ("1d", "2024-04-01T12:30", "Europe/Berlin", "2024-03-30T23:00"),
        ("1d", "2024-04-02T12:30", "Europe/Berlin", "2024-03-31T22:00"),
        # There it is the next day, or month, already.
        ("1mo", "2024-03-31T22:00", "Europe/Berlin", "2024-02-29T23:00"),
        ("1mo", "2024-03-31T21:59", "Europe/Berlin", "2024-02-28T23:00"),
        # The first hour of a local day that does not begin with an hour of UTC.
        ("1d", "2024-06-15T12:00", "Asia/Kolkata", "2024-06-13T19:00"),
        # Midnight of that day was skipped, or the day itself.
        ("1d", "2017-10-16T12:00", "America/Sao_Paulo", "2017-10-15T03:00"),
        ("1d", "2011-12-31T12:00", "Pacific/Apia", "2011-12-30T10:00"),
    ],
)
def test_a_cut_off_is_the_duration_before_now(duration: str, now: str, zone: str, expected: str) -> None:
    assert Duration.parse(duration).before(at(now), ZoneInfo(zone)) == at(expected)


@pytest.mark.parametrize("duration", ["48h", "30d", "2y"])
def test_the_time_must_be_aware_and_within_the_years_of_memory(duration: str) -> None:
    for now in (datetime(2024, 6, 15), datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)):  # noqa: DTZ001
        with pytest.raises(InputError, match=r"time .* (has no time zone|is outside the years)"):
            Duration.parse(duration).before(now, ZoneInfo("UTC"))


@given(durations, nows, st.timedeltas(timedelta(0), timedelta(days=40)), zones)
def test_a_cut_off_never_moves_back(duration: Duration, now: datetime, later: timedelta, zone: ZoneInfo) -> None:
    first = duration.before(now, zone)
    assert first.tzinfo is UTC
    assert first <= duration.before(now + later, zone)
    assert first <= now - HOUR


@given(durations, durations, nows, zones)
@example(Duration(1, Unit.MONTHS), Duration(28, Unit.DAYS), at("2024-03-31T00:00"), ZoneInfo("UTC"))
@example(Duration(2, Unit.DAYS), Duration(48, Unit.HOURS), NOW, ZoneInfo("UTC"))
def test_a_duration_that_cannot_outlive_another_never_does(
    one: Duration, other: Duration, now: datetime, zone: ZoneInfo
) -> None:
    hours = Unit.HOURS in (one.unit, other.unit)
    tolerance = DAY if hours and zone.key != "UTC" else timedelta(0)
    if not one.may_outlive(other):
        assert one.before(now, zone) + tolerance >= other.before(now, zone)


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [("31d", "1mo"), ("1mo", "30d"), ("1y", "365d"), ("366d", "1y"), ("2d", "48h"), ("73h", "3d"), ("5w", "1mo")],
)
def test_a_duration_that_may_outlive_another_sometimes_does(longer: str, shorter: str) -> None:
    one, other, zone = Duration.parse(longer), Duration.parse(shorter), ZoneInfo("UTC")
    assert one.may_outlive(other)
    assert any(one.before(NOW + n * HOUR * 7, zone) < other.before(NOW + n * HOUR * 7, zone) for n in range(3_000))


@pytest.mark.parametrize("same", [("12mo", "4q", "1y"), ("2w", "14d"), ("48h", "2d")])
def test_equal_durations_in_other_units_do_not_outlive_each_other(same: tuple[str, ...]) -> None:
    for one, other in combinations(map(Duration.parse, same), 2):
        assert not one.may_outlive(other)


# --- classes, plans and cut-offs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "cutoffs"),
    [
        ("free", "2024-06-13T12 2024-05-16 2024-05-04 2023-12-15 2023-06-15 2022-06-15"),
        ("starter", "2024-06-10T12 2024-04-16 2024-03-23 2023-06-15 2022-06-15 2020-06-15"),
        ("pro", "2024-06-05T12 2024-02-16 2023-12-30 2022-06-15 2020-06-15 2016-06-15"),
    ],
)
def test_the_cut_offs_of_the_plans(plan: str, cutoffs: str) -> None:
    retention, zone = PLANS[plan], ZoneInfo("UTC")
    working, *summaries = map(at, cutoffs.split())
    for kept in (RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES):
        assert retention.cutoff(kept, NOW, zone) == working
    assert [retention.cutoff(kept, NOW, zone) for kept in SUMMARIES] == summaries
    assert retention.cutoff(RetentionClass.GRAPH, NOW, zone) is None


def test_by_default_nothing_expires() -> None:
    assert Retention() == PLANS["forever"]
    for kept in RetentionClass:
        assert Retention().cutoff(kept, NOW, ZoneInfo("UTC")) is None
        assert Retention().last_expired(kept, NOW, Calendar()) is None


@pytest.mark.parametrize("now", [NOW, NOW.replace(year=2023)], ids=["a leap day ago", "no leap day ago"])
def test_the_standard_plan_keeps_facts_for_a_year_and_preferences_forever(now: datetime) -> None:
    standard, calendar = PLANS["standard"], Calendar()
    assert standard.describe() == {
        **Retention().describe(),
        "conversations": "30d",
        "facts": "365d",
    }

    def is_gone(kept: RetentionClass, days: int) -> bool:
        last = standard.last_expired(kept, now, calendar)
        return last is not None and hour_of(now - timedelta(days=days)).key <= last.key

    assert (is_gone(RetentionClass.FACTS, 366), is_gone(RetentionClass.FACTS, 364)) == (True, False)
    assert (is_gone(RetentionClass.CONVERSATIONS, 31), is_gone(RetentionClass.CONVERSATIONS, 29)) == (True, False)
    assert not is_gone(RetentionClass.PREFERENCES, 10_000)


def test_each_class_has_a_grain() -> None:
    working = [kept for kept in RetentionClass if kept.grain is Grain.WORKING]
    assert working == [RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES]
    assert [kept.grain for kept in SUMMARIES] == [Grain(kept.value) for kept in SUMMARIES]
    assert (RetentionClass.GRAPH.grain, RetentionClass.GRAPH.period_grain) == (None, Grain.WORKING)


@pytest.mark.parametrize(
    ("kept", "duration", "now", "last"),
    [
        (RetentionClass.FACTS, "2h", "2024-06-15T12:00", "2024-06-15T08"),  # 09 ends at the cut-off, and is kept
        (RetentionClass.FACTS, "2h", "2024-06-15T12:01", "2024-06-15T09"),
        (RetentionClass.GRAPH, "1d", "2024-06-15T12:00", "2024-06-13T22"),
        (RetentionClass.DAILY, "30d", "2024-06-15T12:00", "2024-05-14"),
        (RetentionClass.WEEKLY, "1w", "2024-06-17T00:00", "2024-W22"),  # W23 ends on Monday the 10th, at the cut-off
        (RetentionClass.WEEKLY, "1w", "2024-06-18T00:00", "2024-W23"),
        (RetentionClass.MONTHLY, "6mo", "2024-08-31T00:00", "2024-01"),
        (RetentionClass.MONTHLY, "6mo", "2024-09-01T00:00", "2024-01"),  # February ends at the cut-off
        (RetentionClass.MONTHLY, "6mo", "2024-09-02T00:00", "2024-02"),
        (RetentionClass.QUARTERLY, "4q", "2024-06-15T12:00", "2023-Q1"),
        (RetentionClass.YEARLY, "2y", "2024-12-31T23:00", "2021"),
        (RetentionClass.YEARLY, "2y", "2025-01-01T00:00", "2021"),  # 2022 ends at the cut-off
        (RetentionClass.YEARLY, "2y", "2025-01-02T00:00", "2022"),
    ],
)
def test_the_last_expired_period(kept: RetentionClass, duration: str, now: str, last: str) -> None:
    found = only(kept, Duration.parse(duration)).last_expired(kept, at(now), Calendar())
    assert found == Period.parse(kept.period_grain, last)


@settings(max_examples=examples(300))
@given(classes, durations, nows, zones)
@example(RetentionClass.DAILY, Duration(1, Unit.DAYS), at("2011-12-31T12:00"), ZoneInfo("Pacific/Apia"))
@example(RetentionClass.DAILY, Duration(2, Unit.HOURS), at("2011-12-30T12:30"), ZoneInfo("Pacific/Apia"))
def test_exactly_the_periods_that_end_before_the_cut_off_expire(
    kept: RetentionClass, duration: Duration, now: datetime, zone: ZoneInfo
) -> None:
    calendar, retention = Calendar(zone.key), only(kept, duration)
    cutoff, last = retention.cutoff(kept, now, zone), retention.last_expired(kept, now, calendar)
    assert cutoff is not None
    assert last is not None
    assert last.grain is kept.period_grain
    assert calendar.bounds(last)[1] < cutoff
    assert calendar.bounds(last.next())[1] >= cutoff


def test_nothing_expires_before_the_first_valid_year() -> None:
    for now in ("1901-01-01T00:00", "1999-06-01T00:00"):
        for kept in RetentionClass:
            assert only(kept, Duration.parse("100y")).last_expired(kept, at(now), Calendar()) is None
    first = [
        only(kept, Duration.parse("100y")).last_expired(kept, at("2002-01-03T00:00"), Calendar())
        for kept in RetentionClass
    ]
    keys = [period.key for period in first if period]
    assert keys == [*["1902-01-02T22"] * 3, "1902-01-01", "1901-W52", "1901-12", "1901-Q4", "1901", "1902-01-02T22"]


def only(kept: RetentionClass, duration: Duration) -> Retention:
    """Return a retention that keeps one class and its sources for a duration."""
    finer = [RetentionClass.CONVERSATIONS, *SUMMARIES[: SUMMARIES.index(kept)]] if kept in SUMMARIES else []
    durations: dict[str, Any] = {each.value: duration for each in (kept, *finer)}
    return Retention(**durations)


# --- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "finer", "coarser"),
    [
        ({"conversations": "60d"}, "conversations 60d", "daily 30d"),
        ({"weekly": "4w"}, "daily 30d", "weekly 4w"),
        ({"weekly": "1mo"}, "daily 30d", "weekly 1mo"),
        ({"monthly": "13mo"}, "monthly 13mo", "quarterly 4q"),
        ({"monthly": "366d", "quarterly": "12mo"}, "monthly 366d", "quarterly 12mo"),
        ({"quarterly": "forever"}, "quarterly forever", "yearly 2y"),
        ({"daily": "forever"}, "daily forever", "weekly 6w"),
    ],
)
def test_a_summary_is_kept_at_least_as_long_as_its_sources(changes: dict[str, str], finer: str, coarser: str) -> None:
    with pytest.raises(InputError, match=f"{coarser} may expire before its sources, {finer}; expected ") as no:
        changed(PLANS["free"], changes)
    (name, short), (made_from, long) = coarser.split(), finer.split()
    enough = "forever" if long == "forever" else f"for at least {long}"
    assert str(no.value).endswith(f"expected {name} to be kept {enough}, or {made_from} for at most {short}")


@pytest.mark.parametrize(
    "changes",
    [
        {"conversations": "30d"},
        {"conversations": "forever"},
        {"facts": "10y", "preferences": "forever"},
        {"graph": "1h"},
        {"weekly": "5w"},
        {"quarterly": "1y"},
        {"yearly": "forever"},
        {"conversations": "1h", "daily": "1h", "weekly": "1h", "monthly": "1h", "quarterly": "1h", "yearly": "1h"},
    ],
)
def test_consistent_durations_are_accepted(changes: dict[str, str]) -> None:
    described = changed(PLANS["free"], changes).describe()
    assert described == {**PLANS["free"].describe(), **changes}


def test_all_contradictions_are_listed() -> None:
    durations = PLANS["free"].durations | {
        RetentionClass.DAILY: Duration.parse("1h"),
        RetentionClass.QUARTERLY: Duration.parse("1q"),
    }
    found = contradictions(durations)
    assert [(each.finer, each.coarser) for each in found] == [
        (RetentionClass.CONVERSATIONS, RetentionClass.DAILY),
        (RetentionClass.MONTHLY, RetentionClass.QUARTERLY),
    ]


def changed(retention: Retention, changes: dict[str, str]) -> Retention:
    durations: dict[str, Any] = {name: parse_duration(text) for name, text in changes.items()}
    return replace(retention, **durations)


# --- the plan --------------------------------------------------------------------------------------------------------


def planned(retention: Retention, **held: str) -> dict[RetentionClass, Expiry]:
    periods = {grain: Period.parse(grain, held[grain.value]) for grain in Grain if grain.value in held}
    plan = plan_expiry({"acme": retention}, {}, periods, Calendar(), NOW)
    assert len({each.kept for each in plan}) == len(plan)
    return {each.kept: each for each in plan}


def test_a_plan_is_ordered_from_coarse_to_fine() -> None:
    plan = plan_expiry({"w": PLANS["free"], "acme": changed(PLANS["pro"], {"graph": "1y"})}, {}, {}, Calendar(), NOW)
    ranks = [each.kept.grain.rank if each.kept.grain else -1 for each in plan]
    assert ranks == sorted(ranks, reverse=True)
    assert [each.workspace_id for each in plan] == [*["acme", "w"] * 8, "acme"]
    assert [each.kept for each in plan][::2] == [*reversed(SUMMARIES), *list(RetentionClass)[:3], RetentionClass.GRAPH]
    assert plan[1] == Expiry("w", RetentionClass.YEARLY, Period(Grain.YEARLY, "2021"), at("2022-06-15"))
    assert plan[-2].through.key == "2024-06-13T10"


def test_classes_that_are_kept_forever_are_not_in_the_plan() -> None:
    plan = plan_expiry({"a": PLANS["forever"], "b": PLANS["standard"], "c": Retention()}, {}, {}, Calendar(), NOW)
    assert [(each.workspace_id, each.kept) for each in plan] == [
        ("b", RetentionClass.CONVERSATIONS),
        ("b", RetentionClass.FACTS),
    ]
    assert plan_expiry({}, {}, {}, Calendar(), NOW) == []


def test_a_held_period_and_all_later_ones_are_kept() -> None:
    plan = planned(PLANS["free"], working="2024-06-02T00", daily="2024-05-14", weekly="2024-W18", yearly="1999")
    for kept in (RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES):
        assert plan[kept].through.key == "2024-06-01T23"
        assert plan[kept].held_back_by == Period(Grain.WORKING, "2024-06-02T00")
        assert plan[kept].cutoff == at("2024-06-13T12:00")
    assert (plan[RetentionClass.DAILY].through.key, plan[RetentionClass.DAILY].held_back_by) == (
        "2024-05-13",
        Period(Grain.DAILY, "2024-05-14"),
    )
    # Held, but not old enough to expire; and a year has no parent.
    assert (plan[RetentionClass.WEEKLY].through.key, plan[RetentionClass.WEEKLY].held_back_by) == ("2024-W17", None)
    assert (plan[RetentionClass.YEARLY].through.key, plan[RetentionClass.YEARLY].held_back_by) == ("2021", None)


def test_the_graph_is_not_held_back() -> None:
    plan = planned(Retention(graph=Duration.parse("2h")), working="2000-01-01T00")
    assert list(plan) == [RetentionClass.GRAPH]
    assert (plan[RetentionClass.GRAPH].through.key, plan[RetentionClass.GRAPH].held_back_by) == ("2024-06-15T08", None)


def test_nothing_expires_if_the_first_period_is_held() -> None:
    assert RetentionClass.FACTS not in planned(PLANS["free"], working="1900-01-01T00")
    assert RetentionClass.MONTHLY not in planned(PLANS["free"], monthly="1900-01")


def test_previously_expired_periods_are_in_the_plan_and_not_new() -> None:
    went = {
        RetentionClass.DAILY: Period(Grain.DAILY, "2024-05-14"),
        RetentionClass.WEEKLY: Period(Grain.WEEKLY, "2024-W16"),
        RetentionClass.MONTHLY: Period(Grain.MONTHLY, "2024-05"),  # when months were kept for less long
    }
    plan = {
        each.kept: each for each in plan_expiry({"acme": PLANS["free"]}, {"acme": went, "w": {}}, {}, Calendar(), NOW)
    }
    assert [plan[kept].is_new for kept in (*SUMMARIES, RetentionClass.FACTS)] == [False, True, False, True, True, True]
    assert plan[RetentionClass.MONTHLY].through.key == "2023-11"
    assert plan[RetentionClass.WEEKLY].expired_before == went[RetentionClass.WEEKLY]
    assert plan[RetentionClass.YEARLY].expired_before is None


def test_a_held_period_of_another_grain_is_refused() -> None:
    held = {Grain.WORKING: Period(Grain.DAILY, "2024-01-01")}
    with pytest.raises(InputError, match="held period 2024-01-01 is of grain daily; expected working"):
        plan_expiry({}, {}, held, Calendar(), NOW)


@settings(max_examples=examples(60))
@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(list(PLANS.values()))),
    st.dictionaries(st.sampled_from(Grain), nows),
    nows,
    zones,
)
def test_a_plan_has_exactly_the_old_periods_that_are_not_held(
    retentions: dict[str, Retention], held_at: dict[Grain, datetime], now: datetime, zone: ZoneInfo
) -> None:
    calendar = Calendar(zone.key)
    held = {grain: calendar.period(grain, moment) for grain, moment in held_at.items()}
    plan = plan_expiry(retentions, {}, held, calendar, now)
    due = {(w, kept) for w, retention in retentions.items() for kept in RetentionClass if retention.duration(kept)}
    assert {(each.workspace_id, each.kept) for each in plan} == due
    for each in plan:
        assert calendar.bounds(each.through)[1] < each.cutoff
        assert each.cutoff == retentions[each.workspace_id].cutoff(each.kept, now, zone)
        stays = each.through.next()
        first_held = held.get(each.kept.period_grain)
        if each.held_back_by:
            assert each.held_back_by == first_held == stays
        else:
            assert calendar.bounds(stays)[1] >= each.cutoff
            assert each.kept is RetentionClass.YEARLY or first_held is None or first_held.key > each.through.key


def test_days_expire_in_order() -> None:
    throughs = [
        [each.through.key for each in plan_expiry({"w": PLANS["free"]}, {}, {}, Calendar("Europe/Berlin"), now)]
        for now in (NOW + n * DAY for n in range(400))
    ]
    for earlier, later in pairwise(throughs):
        assert all(one <= other for one, other in zip(earlier, later, strict=True))
    assert len({tuple(each) for each in throughs}) == 400

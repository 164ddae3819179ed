"""Requests are tracked until they end; failed ones are split and repeated, and never given up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.periods import Calendar, Grain, Period, hour_of
from memory_pipeline.steps.scheduling.request_log import Attempts, RequestOutcome, blocks, read_periods, written
from memory_pipeline_tests.effort import examples

NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FAILED, DONE = (RequestOutcome.FAILED, "no such table"), (RequestOutcome.DONE, "")


def hours(*numbers: int) -> list[Period]:
    return [hour_of(FIRST + timedelta(hours=number)) for number in numbers]


def again(attempts: Attempts) -> Attempts:
    return Attempts.from_record(json.loads(json.dumps(attempts.to_record())))


@given(st.sampled_from(list(Grain)), st.sets(st.integers(0, 20_000), max_size=60))
def test_periods_are_formatted_as_ranges_and_parsed(grain: Grain, numbers: set[int]) -> None:
    periods = {Calendar().ancestor(hour, grain) for hour in hours(*numbers)}
    text = written(periods)
    assert read_periods(grain, text) == tuple(sorted(periods, key=lambda period: period.key))
    assert len(text) <= 32 * len(list(blocks(sorted(periods, key=lambda period: period.key))))


@pytest.mark.parametrize("text", ["2024-01-01T00..", "x", "2024-01-01T00..2024-01-01", "..", "2024-01-01"])
def test_an_invalid_range_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected an hour"):
        read_periods(Grain.WORKING, text)


def test_few_blocks_are_ranges_and_many_are_lists_of_limited_length() -> None:
    ranges = Attempts().ask(Grain.WORKING, hours(*range(5), *range(10, 12), 20), NOW)
    assert [len(request.periods) for request in ranges] == [5, 2, 1]
    assert all(request.is_range for request in ranges)
    [scattered] = Attempts().ask(Grain.WORKING, hours(*range(0, 1000, 2)), NOW)
    assert not scattered.is_range
    long = Attempts().ask(Grain.WORKING, hours(*range(1000)), NOW)
    assert [len(request.periods) for request in long] == [720, 280]


def test_a_deployment_may_limit_the_size_of_requests() -> None:
    year = hours(*range(8784))
    asked = Attempts(most=168).ask(Grain.WORKING, year, NOW)
    assert {len(request.periods) for request in asked} == {168}
    assert all(request.is_range for request in asked)
    # As many hours as without the limit, in more requests.
    assert len(asked) == 32
    [first, *_] = Attempts(most=168).ask(Grain.WORKING, year[::2], NOW)
    assert len(first.periods) == 168
    assert len(Attempts(most=1).ask(Grain.WORKING, year, NOW)) == 64

    attempts = Attempts(most=168)
    attempts.ask(Grain.WORKING, year[:168], NOW)
    attempts.settle(dict.fromkeys([request.id for request in attempts.asked], FAILED), NOW)
    pieces = attempts.ask(Grain.WORKING, year[:168], NOW + MINUTE)
    assert sum(len(request.periods) for request in pieces) == 168
    assert again(attempts).most > 168, "it is a setting, and not remembered"


def test_an_import_of_two_years_is_requested_in_parts() -> None:
    attempts, pending, requests, now = Attempts(), set(hours(*range(17_520))), 0, NOW
    states = dict.fromkeys(pending, "12345678")
    while pending:
        requests += len(attempts.ask(Grain.WORKING, pending - attempts.under_way(Grain.WORKING), now, states))
        now += MINUTE
        ended = attempts.asked[: max(1, len(attempts.asked) // 2)]
        assert len(attempts.asked) <= 8
        assert len(json.dumps(attempts.to_record())) < 60_000
        pending -= {period for request in ended for period in request.periods}
        outcomes = dict.fromkeys((request.id for request in attempts.asked), (RequestOutcome.UNDER_WAY, ""))
        attempts.settle({**outcomes, **{request.id: DONE for request in ended}}, now, {})
        assert not set(ended) & set(attempts.asked)
    assert requests == 25


@settings(max_examples=examples(20), deadline=None)
@given(st.sets(st.integers(0, 500), min_size=1, max_size=5), st.sampled_from([60, 500]))
def test_bad_periods_are_isolated_while_the_others_succeed(bad_numbers: set[int], number: int) -> None:
    """In less than half an hour and with few runs, wherever the bad periods are."""
    bad = set(hours(*(n % number for n in bad_numbers)))
    attempts, pending, now, runs = Attempts(), set(hours(*range(number))), NOW, 0
    while pending != bad:
        assert now < NOW + 30 * MINUTE
        attempts.ask(Grain.WORKING, pending - attempts.under_way(Grain.WORKING), now)
        outcomes = {}
        for request in attempts.asked:
            failed = bool(bad & set(request.periods))
            outcomes[request.id] = FAILED if failed else DONE
            pending -= set() if failed else set(request.periods)
        runs += len(outcomes)
        now += MINUTE
        attempts.settle(outcomes, now)
    assert runs < 150


def test_the_delay_doubles_until_a_period_is_failing_and_is_then_an_hour() -> None:
    attempts, [hour], now = Attempts(), hours(7), NOW
    waits, changes = [], []
    for _ in range(8):
        [request] = attempts.ask(Grain.WORKING, [hour], now)
        _, found = attempts.settle({request.id: FAILED}, now)
        changes += found
        failed = now
        while not attempts.ask(Grain.WORKING, [hour], now):
            now += MINUTE
        attempts.asked.clear()
        waits.append((now - failed) / MINUTE)
    assert waits == [1, 2, 4, 8, 60, 60, 60, 60]
    [change] = changes
    assert change.periods == (hour,)
    assert change.failure is not None
    assert (change.failure.attempts, change.failure.since, change.failure.error) == (5, NOW, "no such table")
    assert list(attempts.failing()[Grain.WORKING]) == [hour]

    [request] = attempts.ask(Grain.WORKING, [hour], now)
    assert request.attempt == 9
    _, [recovered] = attempts.settle({request.id: DONE}, now)
    assert (recovered.periods, recovered.failure) == ((hour,), None)
    assert attempts.failing() == {}


def test_a_period_left_pending_by_a_successful_run_waits_and_is_not_failing() -> None:
    attempts, [hour], now = Attempts(), hours(7), NOW
    for _ in range(12):
        while not attempts.ask(Grain.WORKING, [hour], now, {hour: "before"}):
            now += MINUTE
        [request] = attempts.asked
        done, changes = attempts.settle({request.id: DONE}, now, {hour: "before"})
        assert (done, changes) == ([request], [])
    assert NOW + 8 * 15 * MINUTE <= now < NOW + 12 * 15 * MINUTE
    assert attempts.failing() == {}
    now += 15 * MINUTE
    [request] = attempts.ask(Grain.WORKING, [hour], now, {hour: "before"})
    attempts.settle({request.id: DONE}, now, {hour: "and since"})
    assert attempts.ask(Grain.WORKING, [hour], now, {hour: "and since"})  # at once


def test_failures_of_periods_that_are_no_longer_pending_are_dropped() -> None:
    attempts, found = Attempts(), hours(1, 2)
    [request] = attempts.ask(Grain.WORKING, found, NOW)
    attempts.settle({request.id: FAILED}, NOW)
    attempts.forget(Grain.WORKING, found[:1])
    assert list(attempts.failures[Grain.WORKING]) == found[:1]


def test_a_request_without_a_run_is_dropped_after_a_while() -> None:
    attempts = Attempts()
    attempts.ask(Grain.WORKING, hours(1), NOW)
    attempts.settle({}, NOW + 9 * MINUTE)
    assert attempts.under_way(Grain.WORKING) == set(hours(1))
    attempts.settle({}, NOW + 10 * MINUTE)
    assert attempts.under_way(Grain.WORKING) == set()
    assert attempts.failures[Grain.WORKING] == {}


def test_the_limit_of_requests_is_per_grain() -> None:
    attempts = Attempts()
    for number in range(20):
        attempts.ask(Grain.WORKING, hours(number * 2), NOW)
    assert len(attempts.asked) == 8
    assert attempts.ask(Grain.DAILY, [Period(Grain.DAILY, "2024-01-01")], NOW)


@pytest.mark.parametrize("record", [{}, {"asked": [], "setbacks": [[]]}, {"asked": [[1]], "setbacks": []}])
def test_an_invalid_record_is_an_error(record: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Attempts.from_record(record)

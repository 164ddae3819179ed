"""Roll-ups: each closed period with data is requested once, and again with its ancestors after late data."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from memory_pipeline.analytics import stale_marts
from memory_pipeline.defs.run_requests import ATTEMPT_TAG, REQUEST_TAG
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake import Lake
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import NOW, START, conversation, run, write
from memory_pipeline_tests.defs.ticking import HOURS, ROLL_UPS, Ticking
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.models.factory import Models

SECONDS, DAY = timedelta(seconds=30), timedelta(days=1)
FAILURE = dg.DagsterRunStatus.FAILURE


@pytest.fixture
def ticking(lake: Lake, models: Models) -> Iterator[Ticking]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Ticking(lake, instance, NOW, models)


def say(ticking: Ticking, at: datetime) -> None:
    talk = conversation(
        f"I bought thing number {at:%d%H%M}.", at=f"{at:%Y-%m-%dT%H:%M}", conversation_id=f"{at:%Y%m%d%H%M}"
    )
    write(ticking.lake, talk, now=ticking.now)


def settle(ticking: Ticking) -> dict[str, list[str]]:
    """Tick both sensors and run their requests until none is left. Return the requested periods by grain, in order."""
    asked: dict[str, list[str]] = defaultdict(list)
    while requests := ticking.tick(HOURS) + ticking.tick(ROLL_UPS, SECONDS):
        for request in requests:
            grain = ticking.grain(request)
            asked[grain or "marts"] += [period.key for period in ticking.periods(request)] if grain else ["marts"]
            ticking.execute(request)
    return dict(asked)


def test_weeks_over_the_turn_of_a_year(ticking: Ticking) -> None:
    """Messages on some days only; for nine days the daemon is down."""
    start = datetime(2026, 12, 14, tzinfo=UTC)
    spoken = {0: 9, 3: 23, 13: 4, 14: 0, 17: 12, 18: 15, 30: 8, 48: 10}
    down = range(30, 39)
    asked: dict[str, list[str]] = defaultdict(list)
    first_asked: dict[str, datetime] = {}
    for number in range(56):
        day = start + number * DAY
        quiet = number not in spoken and number - 1 not in spoken and day.weekday() and day.day > 1 and number != 39
        if number not in down and not quiet:
            ticking.now = day + timedelta(minutes=5, seconds=10)
            for grain, periods in settle(ticking).items():
                asked[grain] += periods
                first_asked |= {f"{grain} {period}": day for period in periods}
        if number in spoken:
            ticking.now = day + timedelta(hours=spoken[number], minutes=10)
            say(ticking, ticking.now - timedelta(minutes=5))
            if number not in down:
                assert settle(ticking).keys() - {"marts"} == {"working"}  # an open day is not summarized
    marts = asked.pop("marts")
    assert 8 < len(marts) < 56
    assert asked.pop("working") == ["2027-01-13T08"]  # arrived while the daemon was down
    assert asked == {
        "daily": [f"{start + n * DAY:%Y-%m-%d}" for n in spoken],
        "weekly": ["2026-W51", "2026-W52", "2026-W53", "2027-W02", "2027-W04"],
        "monthly": ["2026-12", "2027-01"],
        "quarterly": ["2026-Q4"],
        "yearly": ["2026"],
    }
    # The last week of 2026 ends on 3 January, that of January on the 31st, both at midnight.
    assert {key: f"{day:%m-%d}" for key, day in first_asked.items() if key[0] in "mqy"} == {
        "monthly 2026-12": "01-04", "quarterly 2026-Q4": "01-04", "yearly 2026": "01-04", "monthly 2027-01": "02-01",
        "marts marts": "02-01",
    }  # fmt: skip
    assert first_asked["daily 2027-01-13"] == start + 39 * DAY

    say(ticking, datetime(2026, 12, 18, 9, tzinfo=UTC))  # late by seven weeks
    again: dict[str, list[str]] = defaultdict(list)
    reasons: list[str] = []
    for later in (0, 1, 6):
        ticking.now += later * DAY
        for grain, periods in settle(ticking).items():
            again[grain] += periods
        reasons.append(ticking.reasons[ROLL_UPS] or "")
    line = "1 day waits until Monday 2027-02-01 01:05 UTC, because late data of days is summarized once an hour"
    assert line in reasons[0].splitlines()
    assert re.search(r"1 month waits until Monday 2027-02-08 00:05 UTC, .* once a week", reasons[1])
    assert "waits until" not in reasons[-1]
    del again["marts"]
    assert again == {
        "working": ["2026-12-18T09"],
        "daily": ["2026-12-18"],
        "weekly": ["2026-W51"],
        "monthly": ["2026-12"],
        "quarterly": ["2026-Q4"],
        "yearly": ["2026"],
    }
    assert not any(grain_status(ticking.lake, grain, START, ticking.now).pending for grain in Grain)


def test_pending_periods_are_requested_after_dagster_lost_its_storage(ticking: Ticking, models: Models) -> None:
    say(ticking, datetime(2025, 3, 5, 9, tzinfo=UTC))
    list(settle(ticking))
    say(ticking, datetime(2025, 3, 5, 10, tzinfo=UTC))
    [request] = ticking.tick(HOURS)
    ticking.execute(request)
    with dg.DagsterInstance.ephemeral() as new:
        fresh = Ticking(ticking.lake, new, NOW + timedelta(hours=1), models)
        assert {grain: asked for grain, asked in settle(fresh).items() if grain != "marts"} == {
            "daily": ["2025-03-05"], "weekly": ["2025-W10"], "monthly": ["2025-03"], "quarterly": ["2025-Q1"],
            "yearly": ["2025"],
        }  # fmt: skip


def test_periods_computed_elsewhere_are_not_requested(ticking: Ticking, models: Models) -> None:
    say(ticking, datetime(2025, 3, 5, 9, tzinfo=UTC))
    run(ticking.lake, models)
    assert settle(ticking).keys() == {"marts"}
    assert ticking.tick(ROLL_UPS) == ticking.tick(ROLL_UPS) == []
    assert ticking.reasons[ROLL_UPS] == "nothing has changed"


def test_a_day_waits_for_its_hours_for_a_limited_time(ticking: Ticking) -> None:
    day = datetime(2025, 3, 5, tzinfo=UTC)
    say(ticking, day + timedelta(hours=9))
    [request] = ticking.tick(HOURS)
    ticking.execute(request)
    say(ticking, day + timedelta(hours=11))
    [bad] = ticking.tick(HOURS)
    assert ticking.tick(ROLL_UPS) == []  # a run of another hour of the day is under way
    ticking.record(bad, FAILURE)
    while not (requests := ticking.tick(ROLL_UPS, timedelta(minutes=4))):
        for bad in ticking.tick(HOURS):
            ticking.record(bad, FAILURE)
    assert ticking.keys(requests) == [["2025-03-05"]]
    assert timedelta(minutes=55) < ticking.now - NOW < timedelta(minutes=75)


def test_a_failing_summary_is_reported_and_delays_only_its_ancestors(ticking: Ticking) -> None:
    for day in (5, 6, 20):
        say(ticking, datetime(2025, 3, day, 9, tzinfo=UTC))
    made: list[str] = []
    attempts = []
    while ticking.now < NOW + timedelta(hours=3):
        for request in ticking.tick(HOURS) + ticking.tick(ROLL_UPS, timedelta(minutes=4)):
            if (grain := ticking.grain(request)) and "2025-03-06" in [p.key for p in ticking.periods(request)]:
                attempts.append(request.tags[ATTEMPT_TAG])
                ticking.record(request, FAILURE)
                assert len(ticking.periods(request)) == 1 or len(attempts) < 3
            else:
                ticking.execute(request)
                made += [] if grain is None else [period.key for period in ticking.periods(request)]
    assert attempts == ["1", "2", "3", "4", "5", "6", "7"]
    # Coarser periods were computed without it once it was failing.
    assert sorted(made[3:]) == ["2025", "2025-03", "2025-03-05", "2025-03-20", "2025-Q1", "2025-W10", "2025-W12"]
    assert [event.partition for event in ticking.events] == ["2025-03-06"]
    assert "daily 2025-03-06: failing since" in (ticking.reasons[ROLL_UPS] or "")


def test_periods_of_a_manual_run_are_not_requested(ticking: Ticking) -> None:
    say(ticking, datetime(2025, 3, 5, 9, tzinfo=UTC))
    ticking.execute(ticking.tick(HOURS)[0])
    keys = ticking.definitions.resolve_assets_def("daily_summaries").keys
    by_hand = dg.DagsterRun(
        job_name="__ASSET_JOB",
        asset_selection=set(keys),
        tags={"dagster/partition": "2025-03-05"},
    )
    ticking.instance.add_run(by_hand)
    assert ticking.tick(ROLL_UPS) == []
    ticking.instance.add_run(dg.DagsterRun(job_name="roll_up_daily", tags={"dagster/partition": "no day"}))
    assert ticking.tick(ROLL_UPS) == []


def test_marts_are_requested_once_a_day_and_again_after_a_failure(ticking: Ticking) -> None:
    say(ticking, datetime(2025, 3, 5, 9, tzinfo=UTC))
    ticking.now = NOW
    requests: list[dg.RunRequest] = []
    while not requests or requests[0].job_name != "renew_marts":
        requests = ticking.tick(HOURS) or ticking.tick(ROLL_UPS, SECONDS)
        if requests and requests[0].job_name != "renew_marts":
            ticking.execute(requests[0])
    names = {key.to_user_string() for key in requests[0].asset_selection or []}
    assert names == {model.name for model in stale_marts(ticking.lake)}
    ticking.record(requests[0], FAILURE)
    assert ticking.tick(ROLL_UPS) == []
    [again] = ticking.tick(ROLL_UPS, timedelta(minutes=2))
    assert again.tags[ATTEMPT_TAG] == "2"
    ticking.record(again)
    assert ticking.tick(ROLL_UPS, timedelta(hours=5)) == []  # they are still stale, as nothing ran
    assert ticking.tick(ROLL_UPS, timedelta(hours=19))


def test_unfinished_periods_are_retried_from_fine_to_coarse_every_15_minutes(lake: Lake) -> None:
    talk = conversation("I moved to Porto.", at="2024-01-10T08:00")
    with OpenAIServer() as server, dg.DagsterInstance.ephemeral() as instance:
        server.answer = oracle.answer
        oracle.configure(lake, server)
        write(lake, talk)
        ticking = Ticking(lake, instance, NOW)
        server.faults = [Fault("500", times=None)]
        made = settle(ticking)
        assert set(made) == {*Grain, "marts"}

        assert ticking.tick(ROLL_UPS, timedelta(minutes=10)) == []
        assert "every 15 minutes" in (ticking.reasons[ROLL_UPS] or "")
        [request] = ticking.tick(ROLL_UPS, timedelta(minutes=5))
        assert (request.job_name, ticking.keys([request])) == ("finish_working", [["2024-01-10T08"]])
        assert ticking.tick(HOURS) == []  # no file is pending

        server.faults = []
        job = ticking.definitions.resolve_job_def("finish_working")
        done = job.execute_in_process(run_config=request.run_config, instance=instance, tags=dict(request.tags))
        assert done.success
        [event] = [
            event.step_materialization_data.materialization
            for event in done.all_events
            if event.is_step_materialization and event.asset_key == dg.AssetKey("working_facts")
        ]
        assert (event.metadata["calls"].value, event.metadata["fallbacks"].value) == (1, 0)
        assert event.metadata["cost_usd"].value > 0  # type: ignore[operator]  # a number
        healed = settle(ticking)
        assert {grain: healed[grain] for grain in SUMMARY_GRAINS} == {
            "daily": ["2024-01-10"], "weekly": ["2024-W02"], "monthly": ["2024-01"], "quarterly": ["2024-Q1"],
            "yearly": ["2024"],
        }  # fmt: skip
        assert not any(grain_status(lake, grain, START, ticking.now).pending for grain in Grain)
        assert request.tags[REQUEST_TAG].startswith("working 2024-01-10T08 ")

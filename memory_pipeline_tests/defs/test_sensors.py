"""The journal sensor requests exactly the hours with files, in few runs, and retries them until they are done."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.run_requests import ATTEMPT_TAG, RANGE_START, REQUEST_TAG
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.settings import Settings
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import NOW, conversation, write
from memory_pipeline_tests.defs.ticking import HOURS, Ticking
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

FAILURE, STARTED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
FIRST = datetime(2024, 5, 1, 22, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def ticking(lake: Lake, models: Models) -> Iterator[Ticking]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Ticking(lake, instance, NOW, models)


def talk(at: datetime) -> dict[str, object]:
    return conversation("I like tea.", at=at.strftime("%Y-%m-%dT%H:%M"), conversation_id=at.strftime("%Y%m%d%H%M"))


def test_an_empty_journal_requests_nothing(ticking: Ticking) -> None:
    assert ticking.tick(HOURS) == []
    assert ticking.reasons[HOURS] == "no journal file is pending"


def test_consecutive_hours_are_one_range(ticking: Ticking) -> None:
    write(ticking.lake, *(talk(FIRST + timedelta(hours=n)) for n in range(4)), talk(FIRST + timedelta(hours=9)))
    requests = ticking.tick(HOURS)
    assert all(RANGE_START in request.tags for request in requests)
    assert ticking.keys(requests) == [
        ["2024-05-01T22", "2024-05-01T23", "2024-05-02T00", "2024-05-02T01"],
        ["2024-05-02T07"],
    ]


def test_hours_before_the_first_day_wait_for_a_reload_of_the_definitions(
    lake: Lake, models: Models, ticking: Ticking
) -> None:
    MemoryWriter(lake, Scope("acme", "support")).write(
        {"conversation_id": "old", "messages": [{"role": "user", "content": "Hi.", "timestamp": "2019-05-01T08:00Z"}]}
    )
    assert ticking.tick(HOURS) == []
    reason = ticking.reasons[HOURS] or ""
    assert "1 pending hour before 2024-01-01" in reason
    assert "reload" in reason
    repository = build_definitions(Settings(lake.storage.uri), models).get_repository_def()
    hours = repository.asset_graph.get(dg.AssetKey("messages")).partitions_def
    assert hours is not None
    assert hours.get_first_partition_key() == "2018-01-01T00"


def test_scattered_hours_are_listed_in_one_run(ticking: Ticking) -> None:
    write(ticking.lake, *(talk(FIRST + timedelta(days=9 * n)) for n in range(20)))
    requests = ticking.tick(HOURS)
    assert RANGE_START not in requests[0].tags
    assert ticking.keys(requests) == [[f"{FIRST + timedelta(days=9 * n):%Y-%m-%dT%H}" for n in range(20)]]


@pytest.mark.parametrize("count", [1, 20], ids=["a range", "listed hours"])
def test_hours_of_an_unfinished_run_are_not_requested(ticking: Ticking, count: int) -> None:
    write(ticking.lake, *(talk(FIRST + timedelta(days=9 * n)) for n in range(count)))
    [request] = ticking.tick(HOURS)
    assert ticking.tick(HOURS, MINUTE) == []  # the run does not exist yet
    ticking.record(request, STARTED)
    assert ticking.tick(HOURS, timedelta(hours=1)) == []
    ticking.cursors.clear()  # even without the cursor
    assert ticking.tick(HOURS, timedelta(hours=1)) == []
    write(ticking.lake, talk(datetime(2024, 8, 8, tzinfo=UTC)))
    assert ticking.keys(ticking.tick(HOURS)) == [["2024-08-08T00"]]


def test_a_finished_hour_is_requested_again_only_after_a_new_file(ticking: Ticking) -> None:
    write(ticking.lake, talk(FIRST))
    [request] = ticking.tick(HOURS)
    ticking.execute(request)
    assert ticking.tick(HOURS) == []
    write(ticking.lake, talk(FIRST + 20 * MINUTE))
    [again] = ticking.tick(HOURS, MINUTE)
    assert ticking.keys([again]) == [["2024-05-01T22"]]
    assert (again.tags[ATTEMPT_TAG], again.run_key) == ("1", again.tags[REQUEST_TAG])
    assert again.run_key != request.run_key


def test_a_request_without_a_run_is_repeated(ticking: Ticking) -> None:
    write(ticking.lake, talk(FIRST))
    [first] = ticking.tick(HOURS)
    [second] = ticking.tick(HOURS, 11 * MINUTE)
    assert second.run_key != first.run_key
    assert second.tags[ATTEMPT_TAG] == "1"


def test_failed_hours_are_retried_without_limit_and_reported_as_failing(ticking: Ticking) -> None:
    write(ticking.lake, talk(FIRST))
    waits = []
    [request] = ticking.tick(HOURS)
    for attempt in range(1, 7):
        assert request.tags[ATTEMPT_TAG] == str(attempt)
        ticking.record(request, FAILURE)
        failed = ticking.now
        while not (found := ticking.tick(HOURS, MINUTE)):
            assert ticking.now < failed + timedelta(hours=2)
        [request] = found
        waits.append((ticking.now - failed) / MINUTE)
    # Each failure is seen at the next tick, a minute later here.
    assert waits == [2, 3, 5, 9, 61, 61]

    reason = ticking.reasons[HOURS]
    ticking.record(request, FAILURE)
    ticking.tick(HOURS, MINUTE)
    reason = ticking.reasons[HOURS] or ""
    assert "working 2024-05-01T22: failing since 2026-01-12" in reason
    assert "7 attempts" in reason
    [event] = ticking.events  # reported once, on the asset's page
    assert (event.asset_key.to_user_string(), event.partition) == ("working_facts", "2024-05-01T22")
    assert event.metadata["state"].value == "failing"
    assert event.metadata["attempts"].value == 5

    [request] = ticking.tick(HOURS, timedelta(hours=1))
    ticking.execute(request)
    assert ticking.tick(HOURS) == []
    assert ticking.reasons[HOURS] == "no journal file is pending"
    assert ticking.events[-1].metadata["state"].value == "recovered"


def test_a_failing_hour_does_not_delay_others(ticking: Ticking) -> None:
    bad, count = "2024-05-02T09", 72 if IS_THOROUGH else 13
    write(ticking.lake, *(talk(FIRST + timedelta(hours=n)) for n in range(count)))
    made: set[str] = set()
    for _ in range(200):
        for request in ticking.tick(HOURS, MINUTE):
            hours = [period.key for period in ticking.periods(request)]
            if bad in hours:
                ticking.record(request, FAILURE)
            else:
                ticking.execute(request)
                made.update(hours)
        if len(made) == count - 1:
            break
    assert len(made) == count - 1
    assert ticking.now < NOW + timedelta(minutes=30)


def test_an_hour_left_pending_by_a_successful_run_is_retried_with_waits(ticking: Ticking) -> None:
    """This happens when a budget is spent."""
    write(ticking.lake, talk(FIRST))
    [request] = ticking.tick(HOURS)
    looks = 0
    for _ in range(100):  # minutes
        if looks == 0 or request:
            ticking.record(request)
            looks += 1
        found = ticking.tick(HOURS, MINUTE)
        request = found[0] if found else None  # type: ignore[assignment]
    assert 8 <= looks <= 12
    assert ticking.events == []
    write(ticking.lake, talk(FIRST + timedelta(hours=1)))
    assert ticking.tick(HOURS)


def test_a_run_past_the_time_limit_counts_as_dead(ticking: Ticking) -> None:
    write(ticking.lake, talk(FIRST))
    ticking.now = datetime.now(UTC)  # Dagster records the start of a run by its own clock
    [request] = ticking.tick(HOURS)
    run_ = ticking.record(request, dg.DagsterRunStatus.NOT_STARTED)
    ticking.instance.report_engine_event("", run_)
    for kind in (dg.DagsterEventType.RUN_START,):
        event = dg.DagsterEvent(event_type_value=kind.value, job_name=run_.job_name)
        ticking.instance.report_dagster_event(event, run_.run_id)
    assert ticking.tick(HOURS, timedelta(hours=1)) == []
    [again] = [*ticking.tick(HOURS, timedelta(hours=1, minutes=5)), *ticking.tick(HOURS, 2 * MINUTE)]
    assert again.tags[ATTEMPT_TAG] == "2"


@pytest.mark.parametrize(
    "cursor", ["", "no JSON", "[]", '{"version": 99}', '{"version": 1}', '{"version": 1, "asked": 3}', "[" * 100_000]
)
def test_an_invalid_cursor_is_ignored(ticking: Ticking, cursor: str) -> None:
    write(ticking.lake, talk(FIRST))
    ticking.cursors[HOURS] = cursor
    assert ticking.keys(ticking.tick(HOURS)) == [["2024-05-01T22"]]


def test_hours_before_the_first_day_or_in_the_future_are_not_requested(ticking: Ticking, models: Models) -> None:
    write(ticking.lake, talk(FIRST))
    ticking.definitions = build_definitions(Settings(ticking.lake.storage.uri, date(2029, 1, 1)), models)
    assert ticking.tick(HOURS) == []
    ticking.definitions = build_definitions(Settings(ticking.lake.storage.uri), models, lambda: FIRST - timedelta(1))
    assert ticking.tick(HOURS) == []


def test_hours_finished_by_another_run_are_dropped(ticking: Ticking, models: Models) -> None:
    write(ticking.lake, talk(FIRST))
    [request] = ticking.tick(HOURS)
    ticking.record(request, FAILURE)
    list(materialize(ticking.lake, models, Grain.WORKING, ticking.periods(request)))  # as `memory-pipeline run` does
    assert ticking.tick(HOURS) == []
    write(ticking.lake, talk(FIRST + 5 * MINUTE))
    [again] = ticking.tick(HOURS)
    assert again.tags[ATTEMPT_TAG] == "1"

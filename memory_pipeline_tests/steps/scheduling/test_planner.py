"""The planner finds pending, missing, open and early periods from journal and ledger."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status, periods_in
from memory_pipeline_tests.building import NOW, START, conversation, hours, run, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.models.factory import Models


def names(periods: Sequence[object]) -> list[str]:
    return [str(period) for period in periods]


def test_pending_hours_are_those_of_journal_files(lake: Lake) -> None:
    write(lake, conversation("a"), conversation("b", at="2024-03-01T00:30", conversation_id="c2"))
    status = grain_status(lake, Grain.WORKING, START, NOW)
    assert names(status.pending) == names(status.missing) == ["2024-01-15T08", "2024-03-01T00"]
    assert status.made == []


def test_hours_before_the_first_day_and_in_the_future_wait(lake: Lake) -> None:
    write(lake, conversation("early", at="2024-01-15T08:00"), conversation("future", at="2026-01-12T20:00"))
    status = grain_status(lake, Grain.WORKING, date(2029, 1, 1), NOW)
    assert names(status.early) == ["2024-01-15T08", "2026-01-12T20"]
    status = grain_status(lake, Grain.WORKING, START, NOW)
    assert (names(status.pending), names(status.open)) == (["2024-01-15T08"], ["2026-01-12T20"])


def test_a_period_is_pending_once_it_has_closed(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto.", at="2024-01-31T12:00"))
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-31T12")))
    day_after = datetime(2024, 2, 1, tzinfo=UTC)
    assert names(grain_status(lake, Grain.DAILY, START, datetime(2024, 1, 31, 23, 59, tzinfo=UTC)).open) == [
        "2024-01-31"
    ]
    assert names(grain_status(lake, Grain.DAILY, START, day_after).pending) == ["2024-01-31"]
    run(lake, models, now=day_after)
    assert names(grain_status(lake, Grain.WEEKLY, START, day_after).open) == ["2024-W05"]
    # 31 January 2024 is a Wednesday; its week belongs to February, which has its Thursday.
    run(lake, models, now=datetime(2024, 2, 5, tzinfo=UTC))
    assert names(grain_status(lake, Grain.MONTHLY, START, datetime(2024, 2, 20, tzinfo=UTC)).open) == ["2024-02"]


def test_a_month_waits_for_its_last_week(lake: Lake, models: Models) -> None:
    # The week of 28 October to 3 November 2024 has its Thursday in October.
    write(lake, conversation("I ran 20 km.", at="2024-11-02T12:00"))
    run(lake, models, now=datetime(2024, 11, 3, 23, tzinfo=UTC))
    assert names(grain_status(lake, Grain.MONTHLY, START, datetime(2024, 11, 3, 23, tzinfo=UTC)).open) == []
    made = run(lake, models, now=datetime(2024, 11, 4, tzinfo=UTC))
    assert (names(made[Grain.WEEKLY]), names(made[Grain.MONTHLY])) == (["2024-W44"], ["2024-10"])


def test_work_interrupted_by_a_crash_is_pending(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."))
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert lake.journal.pending() == []
    status = grain_status(lake, Grain.DAILY, START, NOW)
    assert names(status.pending) == names(status.missing) == ["2024-01-15"]


def test_a_range_selects_every_closed_period_that_overlaps_it(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto.", at="2024-12-30T08:00"))
    run(lake, models)
    since, until = datetime(2024, 12, 30, tzinfo=UTC), datetime(2024, 12, 31, tzinfo=UTC)
    found = {grain: names(periods_in(lake, grain, since, until, NOW)) for grain in Grain}
    assert found == {
        "working": ["2024-12-30T08"], "daily": ["2024-12-30"], "weekly": ["2025-W01"],
        "monthly": ["2025-01"], "quarterly": ["2025-Q1"], "yearly": ["2025"],
    }  # fmt: skip
    soon = datetime(2024, 12, 31, 1, tzinfo=UTC)
    assert {grain: len(periods_in(lake, grain, since, until, soon)) for grain in Grain} == {
        "working": 1, "daily": 1, "weekly": 0, "monthly": 0, "quarterly": 0, "yearly": 0,
    }  # fmt: skip

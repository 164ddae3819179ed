"""The marts of dbt_like_sql match their descriptions, and its tests find invalid rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.domain.retention import FOREVER, Retention, RetentionClass, parse_duration
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import LedgerEntry
from memory_pipeline_tests.analytics.rows import (
    call,
    event,
    fact,
    memory,
    message,
    put,
    put_calls,
    put_events,
    put_hours,
    put_mark,
    put_memories,
    put_summaries,
    summary,
)
from memory_pipeline_tests.building import conversation, run, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models

DAY = Period(Grain.DAILY, "2024-01-15")
WEEK = Period(Grain.WEEKLY, "2024-W03")
TESTS = [model.name for model in models_of("tests")]


@pytest.fixture
def empty(lake: Lake) -> Lake:
    lake.ensure()
    return lake


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Warehouse(lake).query(name).to_pylist()
    return rows


def test_every_model_runs_over_an_empty_lake(lake: Lake) -> None:
    warehouse = Warehouse(lake)
    found = {model.name: warehouse.query(model.name).num_rows for model in models_of()}
    # The configuration exists without any memory.
    assert {name: rows for name, rows in found.items() if rows} == {"stg_retention": len(RetentionClass)}


def test_a_lake_built_by_the_pipeline_passes_all_tests(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto.", "My dog is called Bruno."))
    run(lake, models)
    warehouse = Warehouse(lake)
    assert {name: warehouse.query(name).num_rows for name in TESTS} == dict.fromkeys(TESTS, 0)
    rows = {row["grain"]: row for row in warehouse.query("memory_growth").to_pylist()}
    assert list(rows) == ["working", "daily", "weekly", "monthly", "quarterly", "yearly"]
    # Two turns and two statements, each with the prefix "Anna: ".
    assert rows["working"]["rows"] == 4
    assert rows["working"]["characters_in"] == len("Anna: I moved to Porto.") + len("Anna: My dog is called Bruno.")
    assert rows["working"]["characters_out"] == 2 * rows["working"]["characters_in"]
    assert rows["daily"]["characters_in"] == rows["working"]["characters_in"]
    assert (rows["weekly"]["first_period"], rows["weekly"]["last_period"]) == ("2024-W03", "2024-W03")
    [covered] = {row["share_covered"] for row in warehouse.query("coverage").to_pylist()}
    assert covered == 1
    made = {row["asset"]: row for row in warehouse.query("partitions").to_pylist()}
    assert (made["working_facts"]["rows"], made["daily_summaries"]["period"]) == (4, "2024-01-15")
    assert made["daily_summaries"]["bytes"] > 0
    assert made["daily_index"]["bytes"] is None


def test_memory_counts_with_the_day_that_its_hours_roll_up_into(root: str) -> None:
    lake = Lake(root, "Europe/Berlin")
    lake.ensure()
    # 23:00 UTC on 31 January is 1 February in Berlin.
    put_hours(lake, fact("2024-01-31T22", text="é"), fact("2024-01-31T22", text="abc", kind="preference"))
    put_hours(lake, fact("2024-01-31T23", "b"))
    put(lake, MESSAGES, [message("2024-01-31T20", "c", "of a tool")])
    rows = {(row["agent_id"], row["kept"]): row for row in rows_of(lake, "memory_by_period")}
    said = rows["a", "conversations"]
    assert (said["month"], said["period"], said["material_for"]) == ("2024-01", "2024-01-31", "2024-01-31")
    assert said["ends_on"] == date(2024, 2, 1)
    assert (said["rows"], said["messages"], said["characters_in"], said["characters_out"]) == (1, 1, 1, 1)
    # The turn has two bytes; the message of the hour belongs to the last fact.
    assert said["bytes"] == 2 + 3
    assert (rows["a", "preferences"]["rows"], rows["a", "preferences"]["characters_in"]) == (1, 0)
    assert (rows["b", "conversations"]["month"], rows["b", "conversations"]["period"]) == ("2024-02", "2024-02-01")
    assert (rows["c", "conversations"]["rows"], rows["c", "conversations"]["messages"]) == (0, 1)
    # An agent with only tool messages remembers nothing.
    assert {row["agent_id"] for row in rows_of(lake, "memory_growth")} == {"a", "b"}


def test_compression_compares_rows_with_their_sources(empty: Lake) -> None:
    put_hours(empty, fact("2024-01-15T08", text="x" * 40, kind="event"), fact("2024-01-15T08", text="y" * 100))
    source = "working:2024-01-15T08:acme-a-event"
    put_summaries(empty, summary(empty, DAY, [source], [[source]], text="z" * 10))
    found = {row["grain"]: row for row in rows_of(empty, "compression")}
    assert (found["daily"]["characters_in"], found["daily"]["characters_out"], found["daily"]["ratio"]) == (
        40,
        10,
        0.25,
    )
    assert (found["working"]["characters_in"], found["working"]["characters_out"]) == (100, 140)
    assert (found["daily"]["agents"], found["daily"]["tokens_in"], found["daily"]["tokens_out"]) == (1, 7, 3)


def test_survival_is_the_share_of_cited_sources(empty: Lake) -> None:
    day = summary(empty, DAY, ["f1", "f2", "f3", "f4"], [["f1", "f2"], ["f2"], ["f3"]])
    tuesday = Period(Grain.DAILY, "2024-01-16")
    gone = "daily:2024-01-17:acme-a"
    other = summary(empty, tuesday, ["f5"], [["f5"]])
    week = summary(empty, WEEK, [day["id"], other["id"], gone], [[f"{day['id']}#1", f"{gone}#0"]])
    put_summaries(empty, day, other, week)
    found = {(row["grain"], row["period"]): row for row in rows_of(empty, "survival")}
    monday = found["daily", "2024-01-15"]
    assert (monday["offered"], monday["cited"], monday["share_cited"]) == (4, 3, 0.75)
    # Three points of Monday and one of Tuesday exist; the other days have none.
    assert (found["weekly", "2024-W03"]["offered"], found["weekly", "2024-W03"]["cited"]) == (4, 1)
    assert found["weekly", "2024-W03"]["month"] == "2024-01"


def test_coverage_distinguishes_missing_from_expired(empty: Lake) -> None:
    put_hours(empty, *(fact("2024-01-15T08", agent) for agent in ("a", "b", "c")))
    source = "working:2024-01-15T08:acme-a-turn"
    put_summaries(empty, summary(empty, DAY, [source], [[source]]))
    put_mark(empty, "daily", "2024-01-15", agent="b")
    [day, week] = rows_of(empty, "coverage")
    assert day["closes_at"] == datetime(2024, 1, 16, tzinfo=UTC)
    assert [day[f"agents_{what}"] for what in ("with_material", "with_summary", "expired", "missing")] == [3, 1, 1, 1]
    assert day["share_covered"] == 0.5
    assert (week["grain"], week["agents_with_material"], week["agents_missing"]) == ("weekly", 1, 1)


def test_entities_are_counted_by_message_and_month(empty: Lake) -> None:
    both = ("Bruno", "Porto")
    put_hours(empty, fact("2024-01-15T08", entities=both), fact("2024-01-15T08", kind="event", entities=both[:1]))
    put_hours(empty, fact("2024-01-20T08", "b"))
    put_hours(empty, fact("2024-02-20T08"))
    found = {(row["month"], row["entity"]): row for row in rows_of(empty, "entities_over_time")}
    bruno = found["2024-01", "Bruno"]
    assert (bruno["mentions"], bruno["facts"], bruno["agents"]) == (2, 3, 2)
    assert bruno["first_mentioned_at"] == datetime(2024, 1, 15, 8, 30, tzinfo=UTC)
    assert bruno["last_mentioned_at"] == datetime(2024, 1, 20, 8, 30, tzinfo=UTC)
    assert set(found) == {("2024-01", "Bruno"), ("2024-01", "Porto"), ("2024-02", "Bruno")}


def test_cost_is_reported_by_day_of_request_and_by_period(empty: Lake) -> None:
    # One request for two agents; the price of the second is unknown, and the third failed.
    shared = call("2024-01-20T08", 2, agent="b", request=1)
    read = call("2024-01-20T08", 5, agent="c") | {"purpose": "reading"}  # for no period
    put_calls(empty, call("2024-01-20T08", 1), shared, call("2024-01-20T08", 3, None), read)
    put_calls(empty, call("2024-02-01T08", 4, 0.25, outcome="timeout"))
    by_day = {(row["day"], row["agent_id"]): row for row in rows_of(empty, "model_cost")}
    first = by_day[date(2024, 1, 20), "a"]
    assert (first["month"], first["calls"], first["cost_usd"], first["calls_without_price"]) == ("2024-01", 2, 0.5, 1)
    assert [by_day[date(2024, 1, 20), agent]["calls"] for agent in "bc"] == [0, 1]
    assert by_day[date(2024, 2, 1), "a"]["failed"] == 1
    by_period = {row["month"]: row for row in rows_of(empty, "cost_by_period")}
    assert {row["period"] for row in by_period.values()} == {"2024-01-15"}
    assert (by_period["2024-01"]["calls"], by_period["2024-01"]["cost_usd"]) == (2, 1.0)
    empty.ledger.record([LedgerEntry("daily_summaries", "2024-01-15", "i", "o", 1, 1)])
    [made] = rows_of(empty, "partitions")
    assert (made["calls"], made["cost_usd"]) == (3, 1.25)


def test_durable_memories_are_counted_by_kind_status_and_temperature(empty: Lake) -> None:
    day = datetime(2024, 1, 15, 8, 30, tzinfo=UTC)
    later, accessed = day + timedelta(days=2), day + timedelta(days=4)
    put_memories(
        empty,
        memory(1, 1, newest=False, content="x" * 100, importance=1.0, temperature="hot"),
        memory(2, 1, updated_at=later, changed_at=later, content="é", embed_model="test", access_count=3),
        memory(1, 2, last_accessed_at=accessed, importance=0.7),
        memory(1, 3, kind="rule", temperature="hot"),
        memory(1, 4, status="archived", temperature="cold"),
        memory(1, 1, agent="b"),
    )
    rows = {tuple(row[name] for name in ("agent_id", "kind", "status", "temperature")): row
            for row in rows_of(empty, "memory_inventory")}  # fmt: skip
    assert list(rows) == [
        ("a", "fact", "active", "warm"),
        ("a", "fact", "archived", "cold"),
        ("a", "rule", "active", "hot"),
        ("b", "fact", "active", "warm"),
    ]
    warm = rows["a", "fact", "active", "warm"]
    assert (warm["memories"], warm["versions"], warm["accesses"], warm["without_vector"]) == (2, 3, 3, 1)
    assert (warm["characters"], warm["mean_importance"], warm["mean_confidence"]) == (
        1 + len("Bruno is a dog."),
        0.6,
        1,
    )
    # Ages count until the last event of the agent: two days for one, four for the other.
    assert (warm["as_of"], warm["mean_age_days"]) == (accessed, 3.0)
    assert rows["b", "fact", "active", "warm"]["mean_age_days"] == 0


def test_changes_of_durable_memories_are_counted_by_month_editor_and_verb(empty: Lake) -> None:
    put_events(
        empty,
        event(1, "REMEMBER"),
        event(2, "REMEMBER", memory_id="memory:2024-01-15T08:" + "2" * 32),
        event(3, "REMEMBER", period="2024-02-01T23", is_edit=True),
        event(4, "COOL", night="2024-01-31"),
        event(5, "COOL", night="2024-01-30"),
        event(6, "HEAT", night="2024-02-01", agent="b"),
    )
    names = ("month", "agent_id", "made_by", "verb", "events", "memories", "days")
    assert [tuple(row[name] for name in names) for row in rows_of(empty, "memory_changes")] == [
        ("2024-01", "a", "consolidation", "COOL", 2, 1, 2),
        ("2024-01", "a", "conversation", "REMEMBER", 2, 2, 1),
        ("2024-02", "a", "agent", "REMEMBER", 1, 1, 1),
        ("2024-02", "b", "consolidation", "HEAT", 1, 1, 1),
    ]


@pytest.mark.parametrize(
    ("duration", "zone"),
    [("1mo", "UTC"), *((each, "Europe/Berlin") for each in ("48h", "30d", "6w", "6mo", "4q", "2y", FOREVER))],
)
def test_the_forecast_agrees_with_retention(root: str, duration: str, zone: str) -> None:
    lake = Lake(root, zone)
    lake.ensure()
    ends = ["2024-01-31", "2024-02-28", "2024-02-29", "2024-08-30", "2024-08-31", "2024-12-31"]
    days = {f"w{number}": Period(Grain.DAILY, day) for number, day in enumerate(ends)}
    put_summaries(lake, *(summary(lake, day, [], [], workspace=workspace) for workspace, day in days.items()))
    retention = dict.fromkeys((kept.value for kept in RetentionClass if kept is not RetentionClass.GRAPH), duration)
    lake.storage.write("config/workspaces.yaml", json.dumps({"defaults": {"retention": retention}}).encode())
    found = {row["workspace_id"]: row for row in rows_of(lake, "retention_forecast")}
    assert found.keys() == days.keys()
    for workspace, day in days.items():
        row = found[workspace]
        assert (row["kept"], row["duration"], row["rows"]) == ("daily", duration, 1)
        if duration == FOREVER:
            assert (row["expires_month"], row["first_expires_on"]) == (None, None)
            continue
        late = row["first_expires_on"] - _expires_on(day, duration, lake.calendar)
        assert abs(late) <= timedelta(days=1 if duration.endswith("h") else 0), day
        assert row["expires_month"] == f"{row['first_expires_on']:%Y-%m}"


def _expires_on(day: Period, duration: str, calendar: Calendar) -> date:
    """Return the first date on which a day has expired, according to retention."""
    durations: dict[str, Any] = {kept.value: parse_duration(duration) for kept in RetentionClass}
    retention = Retention(**durations)
    end, today = calendar.bounds(day)[1], day.first_day
    while True:
        noon = datetime(today.year, today.month, today.day, 12, tzinfo=calendar.zone)
        cutoff = retention.cutoff(RetentionClass.DAILY, noon, calendar.zone)
        assert cutoff is not None
        if end < cutoff:
            return today
        today += timedelta(days=1)


def test_a_configured_workspace_is_forecast_by_its_own_plan(empty: Lake) -> None:
    for workspace in ("mine", "yours"):
        put_summaries(
            empty, summary(empty, Period(Grain.DAILY, f"2024-01-{15 + len(workspace)}"), [], [], workspace=workspace)
        )
    text = "defaults: {retention: {plan: free}}\nworkspaces: {mine: {retention: {plan: starter}}}"
    empty.storage.write("config/workspaces.yaml", text.encode())
    assert {row["workspace_id"]: row["duration"] for row in rows_of(empty, "retention_forecast")} == {
        "mine": "60d",
        "yours": "30d",
    }


def doubled(lake: Lake, spec: TableSpec, rows: list[dict[str, Any]], **fixed: str) -> None:
    put(lake, spec, [*rows, *rows], **fixed)


def plant_stale_growth(lake: Lake) -> None:
    """Store growth of other rows, with a state that says it is up to date."""
    from memory_pipeline.analytics.warehouse import MartState, made_digest
    from memory_pipeline.lake.tables.marts import Marts

    put_hours(lake, fact("2024-01-15T08"))
    Warehouse(lake).build("memory_by_period")
    marts, name = Marts(lake.storage), "memory_by_period"
    rows = Warehouse(lake).query(name)
    wrong = rows.set_column(rows.schema.names.index("rows"), "rows", pa.array([2], pa.int64()))
    state = MartState.read(lake.storage, name)
    assert state is not None
    files = marts.replace(name, wrong, column="month", values=None).files
    MartState(state.sql, made_digest(files), state.versions, state.inputs).write(lake.storage, name)


OFFENCES: dict[str, Callable[[Lake], object]] = {
    "one_summary_for_each_agent_and_period": lambda lake: doubled(
        lake, SUMMARIES, [summary(lake, DAY, [], [])], grain="daily"
    ),
    "model_calls_have_unique_ids": lambda lake: put_calls(lake, call("2024-01-15T08", 1), call("2024-01-15T08", 1)),
    "cost_is_never_negative": lambda lake: put_calls(lake, call("2024-01-15T08", 1, -1.0)),
    "growth_adds_up": plant_stale_growth,
    "one_newest_version_of_each_memory": lambda lake: put_memories(lake, memory(1), memory(3)),
}


def test_each_sql_test_has_a_violation_here() -> None:
    assert set(OFFENCES) == set(TESTS)


@pytest.mark.parametrize("name", OFFENCES)
def test_a_sql_test_finds_the_violation(empty: Lake, name: str) -> None:
    OFFENCES[name](empty)
    [offender] = rows_of(empty, name)
    if name == "growth_adds_up":
        assert offender["rows_in_growth"] == 2


@pytest.mark.parametrize("name", ["nothing", "", "../x", "memory_growth; DROP TABLE facts"])
def test_an_unknown_model_is_refused(lake: Lake, name: str) -> None:
    with pytest.raises(InputError, match=r"SQL model .* is unknown; accepted: "):
        Warehouse(lake).query(name)
    with pytest.raises(InputError, match=r"SQL model .* is unknown; accepted: "):
        Warehouse(lake).build(name)

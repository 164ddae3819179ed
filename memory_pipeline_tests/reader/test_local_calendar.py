"""Readers show days, and understand days in questions, in their own time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools import memory_tools
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import run
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import CopiedLake

IDS: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support"}
#: In Tokyo (UTC+9) it is the 16th, in Los Angeles (UTC-8) the 15th.
SAID = datetime(2024, 1, 15, 23, 30, tzinfo=UTC)
NOW = datetime(2024, 1, 17, 3, tzinfo=UTC)
DAYS = {"UTC": "2024-01-15", "Asia/Tokyo": "2024-01-16", "America/Los_Angeles": "2024-01-15"}
ZONES = pytest.mark.parametrize("zone", DAYS)


@pytest.fixture(params=["pending", "processed"])
def lake(copied: CopiedLake, models: Models, request: pytest.FixtureRequest) -> Lake:
    def fill(folder: Path) -> None:
        writer = MemoryWriter.open(str(folder), **IDS)
        message = {"role": "user", "name": "Anna", "content": "I moved to Porto.", "timestamp": SAID}
        writer.write({"conversation_id": "c1", "messages": [message]}, now=NOW)
        writer.remember("Anna has a boat.", now=SAID)
        if request.param == "processed":
            run(Lake(str(folder)), models, NOW)

    return copied(f"reader-local-calendar-{request.param}", fill)


def reader_in(lake: Lake, zone: str | None) -> MemoryReader:
    return MemoryReader.open(lake.storage.uri, **IDS, timezone=zone)


@ZONES
def test_days_are_shown_in_the_time_zone_of_the_reader(lake: Lake, zone: str) -> None:
    reader, day = reader_in(lake, zone), DAYS[zone]
    [hit] = reader.search_memory(query="Porto", now=NOW)
    assert (str(hit.date), hit.starts_at) == (day, SAID)
    recalled = {str(item.date) for item in reader.recall("Where does Anna live, and what does she have?", now=NOW)}
    assert recalled == {day}
    block = reader.inject_knowledge("Where does Anna live?", now=NOW).block
    assert f"[{day}] Anna: I moved to Porto." in str(block)
    assert {str(fact.since) for fact in reader.graph.facts()} == {day}
    assert f"[{day}] Anna: I moved to Porto." in memory_tools(reader, now=NOW).call("search_memory", {"query": "Porto"})


@ZONES
def test_days_in_arguments_are_those_of_the_reader(lake: Lake, zone: str) -> None:
    reader, day = reader_in(lake, zone), date.fromisoformat(DAYS[zone])
    for days, count in (((day, day), 1), ((day.replace(day=day.day + 1), None), 0), ((None, day.replace(day=14)), 0)):
        assert len(reader.search_memory(since=days[0], until=days[1], now=NOW)) == count
        found = reader.recall("Where does Anna live?", since=days[0], until=days[1], now=NOW)
        assert len([item for item in found if "Porto" in item.content]) == count


@pytest.mark.parametrize(("zone", "is_near"), [("UTC", False), ("Asia/Tokyo", True), ("America/Los_Angeles", True)])
def test_yesterday_in_a_question_is_that_of_the_reader(lake: Lake, zone: str, is_near: bool) -> None:
    """It is 03:00 UTC on the 17th: yesterday is the 16th in UTC and Tokyo, and the 15th in Los Angeles."""
    question = "What did Anna say yesterday about Porto?"
    scores = [
        sum((reader.search_memory(query=question, explain=True, now=NOW)[0].parts or {}).values())
        for reader in (reader_in(lake, zone), reader_in(lake, "UTC"))
    ]
    assert (scores[0] > scores[1]) is is_near


@pytest.mark.parametrize("lake", ["processed"], indirect=True)
def test_periods_of_summaries_are_those_of_the_lake(lake: Lake) -> None:
    for zone in DAYS:
        [hit] = reader_in(lake, zone).search_memory("daily", now=NOW)
        assert (hit.period, str(hit.date)) == ("2024-01-15", "2024-01-15")
        assert len(reader_in(lake, zone).search_memory("daily", since="2024-01-15", until="2024-01-15", now=NOW)) == 1


@pytest.mark.parametrize("lake", ["pending"], indirect=True)
def test_the_default_is_the_time_zone_of_the_agent_and_then_of_the_lake(lake: Lake) -> None:
    assert reader_in(lake, None).local_calendar.timezone == "UTC"
    file = Path(f"{lake.storage.uri}.yaml")
    file.write_text("workspaces: {acme: {agents: {support: {timezone: Asia/Tokyo}}}}")
    assert call("config", "--root", lake.storage.uri, "--put", str(file)).exit_code == 0
    assert reader_in(lake, None).local_calendar.timezone == "Asia/Tokyo"
    assert reader_in(lake, "Europe/Berlin").for_user("anna").local_calendar.timezone == "Europe/Berlin"


@pytest.mark.parametrize("lake", ["pending"], indirect=True)
@ZONES
def test_commands_take_the_time_zone_of_the_reader(lake: Lake, zone: str) -> None:
    scope = ["--root", lake.storage.uri, "--workspace", "acme", "--agent", "support", "--timezone", zone]
    found = read("search", "Porto", *scope, "--now", NOW.isoformat())
    assert {one["date"] for one in found["hits"]} == {DAYS[zone]}


def test_an_unknown_time_zone_is_refused(root: str) -> None:
    with pytest.raises(ConfigurationError, match="time zone 'Mars/Olympus' is unknown"):
        MemoryReader.open(root, **IDS, timezone="Mars/Olympus")

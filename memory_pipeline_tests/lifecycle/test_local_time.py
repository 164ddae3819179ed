"""Relative days are resolved on the speaker's clock, by rules and by a model behind an HTTP server."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, conversation, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.oracle import configure, models_at

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support"}
#: English words, which rules know too, and Finnish ones, which only the model knows.
WORDS = {
    "yesterday": "eilen",
    "tonight": "tänä iltana",
    "on Monday": "maanantaina",
    "this morning": "tänä aamuna",
}
#: A time, the user's time zone unless the time says it, a word, and the day that it means.
SAID = [
    ("2024-01-16T00:10:00+09:00", None, "yesterday", "2024-01-15"),
    ("2024-01-15T23:50:00+09:00", None, "yesterday", "2024-01-14"),
    ("2024-01-15T22:00:00Z", "Asia/Tokyo", "this morning", "2024-01-16"),
    ("2024-01-14T14:50:00Z", "Asia/Tokyo", "on Monday", "2024-01-08"),
    ("2024-01-15T15:10:00Z", "Asia/Tokyo", "on Monday", "2024-01-15"),
    ("2024-01-16T07:30:00Z", "America/Los_Angeles", "tonight", "2024-01-15"),
    ("2024-01-16T08:30:00Z", "America/Los_Angeles", "tonight", "2024-01-16"),
    ("2024-01-16T07:30:00Z", "America/Los_Angeles", "yesterday", "2024-01-14"),
    # Clocks in Los Angeles change on 10 March and 3 November, in Berlin on 31 March and 27 October.
    ("2024-03-11T06:30:00Z", "America/Los_Angeles", "yesterday", "2024-03-09"),
    ("2024-03-11T07:30:00Z", "America/Los_Angeles", "yesterday", "2024-03-10"),
    ("2024-11-04T07:30:00Z", "America/Los_Angeles", "tonight", "2024-11-03"),
    ("2024-11-05T08:30:00Z", "America/Los_Angeles", "on Monday", "2024-11-04"),
    ("2024-03-30T23:30:00Z", "Europe/Berlin", "yesterday", "2024-03-30"),
    ("2024-03-31T22:30:00Z", "Europe/Berlin", "this morning", "2024-04-01"),
    ("2024-10-26T22:30:00Z", "Europe/Berlin", "tonight", "2024-10-27"),
    ("2024-10-27T22:30:00Z", "Europe/Berlin", "yesterday", "2024-10-26"),
    ("2024-10-28T23:30:00Z", "Europe/Berlin", "on Monday", "2024-10-28"),
]
_MESSAGE = re.compile(r"^\[(\d+)\] (\d{4}-\d{2}-\d{2}) (\w+) \d{2}:\d{2} user Anna: (.*)$", re.MULTILINE)


def meant(word: str, today: date) -> date:
    """Return the day that a word means, said on a day."""
    if word == "yesterday":
        return today - timedelta(days=1)
    return today - timedelta(days=today.weekday() if word == "on Monday" else 0)


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the day of each message, read from the local date in the question."""
    facts = []
    for number, day, weekday, text in _MESSAGE.findall(body["messages"][1]["content"]):
        today = date.fromisoformat(day)
        assert f"{today:%A}" == weekday
        word = next(word for word, finnish in WORDS.items() if word in text or finnish in text)
        facts.append(
            {
                "content": "Anna näki: Dr. Meyer." if "Näin" in text else "Anna saw Dr. Meyer.",
                "kind": "event",
                "importance": 0.5,
                "confidence": 0.9,
                "entities": ["Anna"],
                "date": meant(word, today).isoformat(),
                "messages": [int(number)],
                "durable": None,
                "point_in_time": False,
                "subject": None,
                "predicate": None,
                "object": None,
            }
        )
    return {"summary": "They spoke.", "facts": facts, "operations": []}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        server.answer = answer
        yield server


def written(root: str, *, in_finnish: bool) -> dict[str, str]:
    """Write a conversation for each case. Return the expected days by conversation."""
    writer = MemoryWriter.open(root, **IDS)
    for number, (timestamp, zone, word, _) in enumerate(SAID):
        text = f"Näin Dr. Meyerin {WORDS[word]}." if in_finnish else f"I saw Dr. Meyer {word}."
        message = {"role": "user", "name": "Anna", "content": text, "timestamp": timestamp}
        writer.write({"conversation_id": f"c{number}", "timezone": zone, "messages": [message]}, now=NOW)
    return {f"c{number}": day for number, (*_, day) in enumerate(SAID)}


def days(lake: Lake, kind: str) -> dict[str, str]:
    rows = [row for row in lake.tables.read(FACTS).to_pylist() if row["kind"] == kind]
    return {row["conversation_id"]: f"{row['mentioned_at']:%Y-%m-%d}" for row in rows if row["mentioned_at"]}


def test_by_rules(root: str) -> None:
    expected = written(root, in_finnish=False)
    lake = Lake(root)
    run(lake, default_models())
    assert days(lake, "turn") == expected


@pytest.mark.parametrize("in_finnish", [True, False] if IS_THOROUGH else [True])
def test_by_a_model(root: str, server: OpenAIServer, in_finnish: bool) -> None:
    expected = written(root, in_finnish=in_finnish)
    lake = Lake(root)
    configure(
        lake,
        server,
        "  summaries: {{daily: {{model: deterministic}}}}",
        text="""
defaults:
  extraction: {{model: openai/oracle, api_base: "{url}", attempts: 1}}
""",
    )
    run(lake, models_at(lake))
    assert days(lake, "event") == expected


#: A zone, and when 15 January begins in UTC.
MIDNIGHTS = [
    ("Asia/Kathmandu", "2024-01-14T18:15Z"),
    ("Asia/Kolkata", "2024-01-14T18:30Z"),
    ("America/St_Johns", "2024-01-15T03:30Z"),
]


@pytest.mark.parametrize(("zone", "midnight"), MIDNIGHTS if IS_THOROUGH else MIDNIGHTS[:1])
def test_days_begin_at_midnight_in_zones_with_half_hours_too(zone: str, midnight: str, root: str) -> None:
    """Summaries, dates in questions, and late messages of an hour with moments of two days."""
    lake, models = Lake(root, zone), default_models()
    begins = datetime.fromisoformat(midnight)

    def say(**minutes: int) -> None:
        for word, minute in minutes.items():
            at = f"{begins + timedelta(minutes=minute):%Y-%m-%dT%H:%M}"
            write(lake, conversation(f"I bought a {word}.", at=at, conversation_id=word))
        run(lake, models)

    say(tent=-5)  # the next day has a source in this hour, and nothing to summarise
    say(lamp=5, boat=0, coat=-1, sofa=600)
    expected = {"2024-01-14": {"tent", "coat"}, "2024-01-15": {"lamp", "boat", "sofa"}}
    for day, words in expected.items():
        [summary] = lake.tables.read(SUMMARIES, [day], grain="daily").to_pylist()
        assert {word for each in expected.values() for word in each if word in summary["content"]} == words
        start, end = lake.calendar.midnights(Period.parse("daily", day))
        assert (summary["period_start"], summary["period_end"]) == (start, end)
        hits = MemoryReader(lake, ACME, models.embedder).search_memory(since=day, until=day, now=NOW)
        assert {hit.conversation_id for hit in hits} == words
    assert run(lake, models) == {grain: [] for grain in Grain}
    failed = [finding for finding in run_checks(CheckContext(lake, NOW), all_checks()) if finding.is_error]
    assert failed == []

"""Searching: what was written is found at once and once, within its window, in nobody else's memory."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.grains import Grain
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.deterministic import HashingEmbedder
from memory_pipeline.models.selection import Models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.make import make
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, conversation, hours, run, write

JANUARY = datetime(2024, 1, 16, 8, tzinfo=UTC)


@pytest.fixture
def reader(root: str, models: Models) -> MemoryReader:
    return MemoryReader(Lake(root), ACME, models.embedder)


def contents(reader: MemoryReader, query: str | None = None, now: datetime = JANUARY, **options: Any) -> list[str]:
    return [hit.content for hit in reader.search_memory(query_text=query, now=now, **options)]


def test_a_turn_is_found_right_after_it_was_written_and_once_after_the_run(root: str, models: Models) -> None:
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support")
    writer.write(conversation("I moved to Porto with Bruno."), now=NOW)
    [before] = reader.search_memory(query_text="Porto", now=JANUARY)
    run(Lake(root), models)
    [after] = reader.search_memory(query_text="Porto", now=JANUARY)
    assert after == before
    [newest] = reader.search_memory(now=JANUARY)
    assert newest.content == "Anna: I moved to Porto with Bruno."


def test_a_turn_is_found_once_at_every_moment_while_its_hour_is_made(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, reader: MemoryReader
) -> None:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    seen = []

    def looking(name: str) -> None:
        from memory_pipeline.steps import make as steps

        step = getattr(steps, name)

        def looked(*args: Any) -> Any:
            result = step(*args)
            seen.append((name, contents(reader, "Porto"), contents(reader)))
            return result

        monkeypatch.setattr(steps, name, looked)

    for name in ("land_messages", "extract_facts", "index_periods", "acknowledge"):
        looking(name)
    list(make(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    found = ["Anna: I moved to Porto."]
    assert seen == [(name, found, found) for name in ("land_messages", "extract_facts", "index_periods", "acknowledge")]


def test_readers_never_miss_a_turn_while_hours_are_made(root: str, models: Models, reader: MemoryReader) -> None:
    lake = Lake(root)
    texts = [f"Parcel {number} is for Porto." for number in range(12)]
    for number, text in enumerate(texts):
        write(lake, conversation(text, at=f"2024-01-15T{number:02}:00", conversation_id=f"c{number}"))
    wrong: list[list[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = sorted(contents(reader, max_results=100))
            if found != sorted(f"Anna: {text}" for text in texts):
                wrong.append(found)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(12):
        list(make(lake, models, Grain.WORKING, hours(f"2024-01-15T{number:02}")))
    done.set()
    thread.join()
    assert wrong == []


def test_the_range_is_applied_before_the_limit(root: str, models: Models, reader: MemoryReader) -> None:
    for day in ("2024-01-15", "2024-01-10", "2024-04-01", "2024-04-02", "2024-04-03"):
        write(Lake(root), conversation(f"Tea on {day}.", at=f"{day}T08:00", conversation_id=day))
    run(Lake(root), models)
    january: dict[str, Any] = {"now": JANUARY, "minimum_days_ago": 1, "maximum_days_ago": 30, "max_results": 2}
    assert sorted(contents(reader, "tea", **january)) == ["Anna: Tea on 2024-01-10.", "Anna: Tea on 2024-01-15."]


def test_both_ends_of_the_range_are_included(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation("I moved to Porto.", at="2024-01-15T08:00"))
    run(Lake(root), models)
    said = datetime(2024, 1, 15, 8, tzinfo=UTC)
    exactly, later = said + timedelta(days=3), said + timedelta(days=3, seconds=1)
    assert contents(reader, now=exactly, maximum_days_ago=3)
    assert not contents(reader, now=later, maximum_days_ago=3)
    assert contents(reader, now=exactly, minimum_days_ago=3)
    assert not contents(reader, now=exactly - timedelta(seconds=1), minimum_days_ago=3)


def test_without_a_query_the_newest_come_first(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation("First.", "Second.", "Third."))
    run(Lake(root), models)
    write(Lake(root), conversation("Fourth.", at="2024-01-15T09:00", conversation_id="tail"))
    assert contents(reader, max_results=3) == ["Anna: Fourth.", "Anna: Third.", "Anna: Second."]


def test_a_message_of_many_sentences_is_one_hit(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation("I moved to Porto. My Porto flat has a balcony. Porto is hilly."))
    run(Lake(root), models)
    assert len(contents(reader, "Porto")) == 1


@pytest.mark.parametrize("grain", [grain.value for grain in Grain])
def test_every_grain_is_found_after_its_period_has_closed(
    root: str, models: Models, reader: MemoryReader, grain: str
) -> None:
    write(Lake(root), conversation("I moved to Porto with my dog Bruno.", at="2024-03-12T08:00"))
    run(Lake(root), models)
    # A year after it ended, the yearly summary is as old as the default range allows.
    [hit] = reader.search_memory(grain, query_text="Porto", now=datetime(2024, 12, 31, 23, tzinfo=UTC))
    assert "Porto" in hit.content
    assert str(hit).startswith(f"[{hit.date}] ")
    assert hit.date.isoformat() == {
        "working": "2024-03-12", "daily": "2024-03-12", "weekly": "2024-03-11",
        "monthly": "2024-03-01", "quarterly": "2024-01-01", "yearly": "2024-01-01",
    }[grain]  # fmt: skip


def test_a_yearly_summary_ages_from_the_end_of_its_year(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation("I moved to Porto.", at="2024-03-12T08:00"))
    run(Lake(root), models)
    assert contents(reader, grain="yearly", now=datetime(2025, 12, 31, tzinfo=UTC))
    assert not contents(reader, grain="yearly", now=datetime(2026, 1, 2, tzinfo=UTC))


def test_the_better_match_comes_first(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation(
        "The weather is nice.", "My sister Clara studies marine biology in Bergen.", "I had soup for lunch.",
        "We talked about the budget.", "Bergen is rainy.",
    ))  # fmt: skip
    run(Lake(root), models)
    assert contents(reader, "What does Clara study?")[0].endswith("marine biology in Bergen.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grain": "hourly"}, "accepted: working, daily"),
        ({"minimum_days_ago": -1}, "minimum_days_ago -1 is out of range"),
        ({"minimum_days_ago": 9, "maximum_days_ago": 8}, "minimum_days_ago 9 is greater than maximum_days_ago 8"),
        ({"maximum_days_ago": 40_000}, "accepted: 0 to 36525"),
        ({"maximum_days_ago": float("nan")}, "maximum_days_ago nan is not a number of days"),
        ({"maximum_days_ago": "7"}, "maximum_days_ago '7' is not a number of days"),
        ({"max_results": 0}, "max_results 0 is not accepted; expected 1 to 100"),
        ({"max_results": 101}, "max_results 101"),
        ({"max_results": True}, "max_results True"),
        ({"query_text": 5}, "query_text 5"),
        ({"query_text": "x" * 1_000_000}, "1,000,000 characters"),
        ({"query_text": "\ud800"}, "not valid Unicode"),
        ({"now": datetime(2024, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_arguments_that_are_not_accepted_are_named(reader: MemoryReader, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reader.search_memory(**{"now": JANUARY, **options})


@pytest.mark.parametrize(
    "query", ["", "   ", "\x00", "the of and", "'; DROP TABLE facts; --", '"', "🚲", "日本語", "a\nb"]
)
def test_any_text_can_be_asked(root: str, models: Models, reader: MemoryReader, query: str) -> None:
    write(Lake(root), conversation("I moved to Porto.", "My bike 🚲 is red."))
    run(Lake(root), models)
    assert contents(reader, query)


def test_a_pending_file_without_anything_memorable_is_no_hindrance(root: str, reader: MemoryReader) -> None:
    write(Lake(root), conversation("You are Juniper.", role="system", conversation_id="s"), conversation("Hello."))
    assert contents(reader, "Juniper") == contents(reader) == ["Anna: Hello."]


def test_a_file_acknowledged_between_listing_and_reading_is_no_hindrance(
    root: str, models: Models, reader: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Lake(root), conversation("I moved to Porto."))
    stale = reader._lake.journal.pending(ACME)
    run(Lake(root), models)
    monkeypatch.setattr(reader._lake.journal, "pending", lambda _: stale)
    assert contents(reader, "Porto") == ["Anna: I moved to Porto."]


def test_a_long_tail_is_searched_as_well_as_a_short_one(root: str, reader: MemoryReader) -> None:
    texts = [f"Parcel {number} went to Oslo." for number in range(50)]
    for hour in range(8):
        write(Lake(root), conversation(*texts, at=f"2024-01-15T{hour:02}:00", conversation_id=f"c{hour}"))
    write(Lake(root), conversation("My zebra is called Otto.", at="2024-01-15T03:30", conversation_id="rare"))
    assert contents(reader, "zebra", max_results=1) == ["Anna: My zebra is called Otto."]
    assert contents(reader, max_results=1) == ["Anna: Parcel 49 went to Oslo."]


def test_an_unknown_agent_remembers_nothing(root: str) -> None:
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="nobody")
    assert reader.search_memory(query_text="anything") == []
    assert reader.search_memory("yearly") == []


def test_another_embedder_than_the_pipelines_is_refused(root: str, models: Models) -> None:
    write(Lake(root), conversation("I moved to Porto."))
    run(Lake(root), models)
    other = MemoryReader(Lake(root), ACME, HashingEmbedder(128))
    with pytest.raises(ConfigurationError, match="with which they cannot be compared"):
        other.search_memory(query_text="Porto", now=JANUARY)


def test_a_date_is_that_of_the_lakes_own_zone(root: str, models: Models) -> None:
    write(Lake(root, "Europe/Berlin"), conversation("I moved to Porto.", at="2024-01-15T23:30"))
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support")
    [hit] = reader.search_memory(now=NOW, maximum_days_ago=1000)
    assert hit.date.isoformat() == "2024-01-16"


def test_scopes_with_the_same_texts_never_cross(root: str, models: Models) -> None:
    scopes = [Scope("acme", "support"), Scope("acme", "sales"), Scope("globex", "support")]
    lake = Lake(root)
    for scope in scopes:
        write(lake, conversation(f"I moved to Porto for {scope.workspace_id} {scope.agent_id}.", scope=scope))
    run(lake, models)
    for scope in scopes:
        write(lake, conversation("Still Porto.", at="2024-01-15T09:00", conversation_id="tail", scope=scope))
    for scope in scopes:
        reader = MemoryReader(Lake(root), scope, models.embedder)
        for grain in Grain:
            hits = reader.search_memory(grain, 0, 1000, 100, "Porto", now=NOW)
            assert hits
            own = f"for {scope.workspace_id} {scope.agent_id}."
            assert all(own in hit.content or "Still" in hit.content for hit in hits)
            for hit in hits:
                for other in scopes:
                    if other != scope and (grain is not Grain.WORKING or "Still" not in hit.content):
                        with pytest.raises(InputError, match="nothing by the id"):
                            MemoryReader(Lake(root), other, models.embedder).expand(hit.id)

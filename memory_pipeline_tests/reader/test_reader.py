"""Search: a message is found at once, exactly once, in its range of days, and only by its own agent."""

from __future__ import annotations

import shutil
import threading
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.factory import Models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.search.index_overlay import DEFAULT_ROWS
from memory_pipeline.search.row_block import RowBlock
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, PROCESSES, conversation, hours, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.index_rows import give_own_table
from memory_pipeline_tests.reader.ways import WAYS, Said, keep, make_hours, readers, talk, write_talks

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

JANUARY = datetime(2024, 1, 16, 8, tzinfo=UTC)


@pytest.fixture(scope="session")
def porto(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of one message, with summaries of all grains; tests only read it."""

    def fill(folder: Path) -> None:
        write(Lake(str(folder)), conversation("I moved to Porto with my dog Bruno.", at="2024-03-12T08:00"))
        run(Lake(str(folder)), models)

    return shared_folder("reader-porto", fill)


@pytest.fixture
def reader(root: str, models: Models) -> MemoryReader:
    return MemoryReader(Lake(root), ACME, models.embedder)


def contents(reader: MemoryReader, query: str | None = None, now: datetime = JANUARY, **options: Any) -> list[str]:
    return [hit.content for hit in reader.search_memory(query=query, now=now, **options)]


def test_a_turn_is_found_right_after_it_was_written_and_once_after_the_run(root: str, models: Models) -> None:
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support")
    writer.write(conversation("I moved to Porto with Bruno."), now=NOW)
    [before] = reader.search_memory(query="Porto", now=JANUARY)
    make_hours(root, models)
    [after] = reader.search_memory(query_text="Porto", now=JANUARY)  # the earlier name
    assert after == before
    [newest] = reader.search_memory(now=JANUARY)
    assert newest.content == "Anna: I moved to Porto with Bruno."


def test_a_turn_is_found_once_at_every_moment_of_materialization(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, reader: MemoryReader
) -> None:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    seen = []

    def looking(name: str) -> None:
        from memory_pipeline.steps import materialize as steps

        step = getattr(steps, name)

        def looked(*args: Any, **named: Any) -> Any:
            result = step(*args, **named)
            seen.append((name, contents(reader, "Porto"), contents(reader)))
            return result

        monkeypatch.setattr(steps, name, looked)

    for name in ("load_messages", "extract_facts", "index_periods", "acknowledge"):
        looking(name)
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    found = ["Anna: I moved to Porto."]
    assert seen == [(name, found, found) for name in ("load_messages", "extract_facts", "index_periods", "acknowledge")]


def test_readers_never_miss_a_turn_during_materialization(root: str, models: Models, reader: MemoryReader) -> None:
    lake = Lake(root)
    texts = [f"Parcel {number} is for Porto." for number in range(12 if IS_THOROUGH else 4)]
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
    for number in range(len(texts)):
        list(materialize(lake, models, Grain.WORKING, hours(f"2024-01-15T{number:02}")))
    done.set()
    thread.join()
    assert wrong == []


def test_the_range_is_applied_before_the_limit(root: str, models: Models, reader: MemoryReader) -> None:
    for day in ("2024-01-15", "2024-01-10", "2024-04-01", "2024-04-02", "2024-04-03"):
        write(Lake(root), conversation(f"Tea on {day}.", at=f"{day}T08:00", conversation_id=day))
    make_hours(root, models)
    january: dict[str, Any] = {"now": JANUARY, "minimum_days_ago": 1, "maximum_days_ago": 30, "max_results": 2}
    assert sorted(contents(reader, "tea", **january)) == ["Anna: Tea on 2024-01-10.", "Anna: Tea on 2024-01-15."]


def test_both_ends_of_the_range_are_included(porto: Path, models: Models) -> None:
    reader = MemoryReader(Lake(str(porto)), ACME, models.embedder)
    said = datetime(2024, 3, 12, 8, tzinfo=UTC)
    exactly, later = said + timedelta(days=3), said + timedelta(days=3, seconds=1)
    assert contents(reader, now=exactly, maximum_days_ago=3)
    assert not contents(reader, now=later, maximum_days_ago=3)
    assert contents(reader, now=exactly, minimum_days_ago=3)
    assert not contents(reader, now=exactly - timedelta(seconds=1), minimum_days_ago=3)


@pytest.mark.parametrize("grain", [grain.value for grain in Grain])
def test_every_grain_is_found_after_its_period_has_closed(porto: Path, models: Models, grain: str) -> None:
    reader = MemoryReader(Lake(str(porto)), ACME, models.embedder)
    # A year after it ended, the yearly summary is as old as the default range allows.
    [hit] = reader.search_memory(grain, query="Porto", now=datetime(2025, 1, 1, tzinfo=UTC))
    assert "Porto" in hit.content
    assert str(hit).startswith(f"⁍ [{hit.date}] ")
    assert hit.date.isoformat() == {
        "working": "2024-03-12", "daily": "2024-03-12", "weekly": "2024-03-11",
        "monthly": "2024-03-01", "quarterly": "2024-01-01", "yearly": "2024-01-01",
    }[grain]  # fmt: skip


@pytest.mark.parametrize(
    ("grain", "first", "last"),
    [
        ("daily", "2024-03-12", "2024-03-12"),
        ("weekly", "2024-03-11", "2024-03-17"),
        ("monthly", "2024-03-01", "2024-03-31"),
        ("quarterly", "2024-01-01", "2024-03-31"),
        ("yearly", "2024-01-01", "2024-12-31"),
    ],
)
def test_a_summary_is_found_by_its_own_dates(porto: Path, models: Models, grain: str, first: str, last: str) -> None:
    start, end, day = date.fromisoformat(first), date.fromisoformat(last), timedelta(days=1)
    for rows in (DEFAULT_ROWS, 0):
        reader = MemoryReader(Lake(str(porto)), ACME, models.embedder, resident_rows=rows)

        def found(since: date | None, until: date | None, reader: MemoryReader = reader) -> list[str]:
            hits = reader.search_memory(grain, query="Porto", since=since, until=until, now=NOW)
            return [hit.period for hit in hits]

        [own] = found(start, end)
        assert found(start, start) == found(end, end) == [own]  # any day of the period finds it
        assert found(None, start - day) == found(end + day, None) == []
        # It did not exist before it was made, whatever the range of dates.
        hits = reader.search_memory(grain, since=start, until=end, now=datetime.combine(end, time(23), UTC))
        assert list(hits) == []


def test_a_yearly_summary_ages_from_the_end_of_its_year(porto: Path, models: Models) -> None:
    reader = MemoryReader(Lake(str(porto)), ACME, models.embedder)
    assert contents(reader, grain="yearly", now=datetime(2025, 12, 31, tzinfo=UTC))
    assert not contents(reader, grain="yearly", now=datetime(2026, 1, 2, tzinfo=UTC))


def test_the_better_match_comes_first(root: str, models: Models, reader: MemoryReader) -> None:
    write(Lake(root), conversation(
        "The weather is nice.", "My sister Clara studies marine biology in Bergen.", "I had soup for lunch.",
        "We talked about the budget.", "Bergen is rainy.",
    ))  # fmt: skip
    make_hours(root, models)
    assert contents(reader, "What does Clara study?")[0].endswith("marine biology in Bergen.")


def test_a_pending_file_without_memorable_content_is_skipped(root: str, reader: MemoryReader) -> None:
    write(Lake(root), conversation("You are Juniper.", role="system", conversation_id="s"), conversation("Hello."))
    assert contents(reader, "Juniper") == contents(reader) == ["Anna: Hello."]


def test_a_file_acknowledged_between_listing_and_reading_is_skipped(
    root: str, models: Models, reader: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Lake(root), conversation("I moved to Porto."))
    stale = reader._lake.journal.entries(ACME)
    assert stale
    make_hours(root, models)
    monkeypatch.setattr(reader._lake.journal, "entries", lambda _: stale)
    assert contents(reader, "Porto") == ["Anna: I moved to Porto."]


def test_many_pending_entries_are_searched(root: str, reader: MemoryReader) -> None:
    texts = [f"Parcel {number} went to Oslo." for number in range(50)]
    for hour in range(8):
        write(Lake(root), conversation(*texts, at=f"2024-01-15T{hour:02}:00", conversation_id=f"c{hour}"))
    write(Lake(root), conversation("My zebra is called Otto.", at="2024-01-15T03:30", conversation_id="rare"))
    assert contents(reader, "zebra", max_results=1) == ["Anna: My zebra is called Otto."]
    assert contents(reader, max_results=1) == ["Anna: Parcel 49 went to Oslo."]


def test_an_unknown_agent_remembers_nothing(root: str) -> None:
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="nobody")
    assert reader.search_memory(query="anything") == []
    assert reader.search_memory("yearly") == []


def test_another_embedder_than_the_pipelines_is_refused(porto: Path) -> None:
    other = MemoryReader(Lake(str(porto)), ACME, HashingEmbedder(128))
    with pytest.raises(ConfigurationError, match="cannot be compared with those of"):
        other.search_memory(query="Porto", now=datetime(2024, 3, 13, tzinfo=UTC))


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
                        with pytest.raises(InputError, match="is unknown in the memory of"):
                            MemoryReader(Lake(root), other, models.embedder).expand(hit.id)


def test_every_write_and_commit_is_visible_to_the_next_search(root: str, models: Models) -> None:
    open_readers = [MemoryReader(Lake(root), ACME, models.embedder, resident_rows=rows) for rows in (100, 100, 0, 0)]
    expected: list[str] = []
    for number in range(3):
        write_talks(
            root, talk(f"c{number}", f"2024-01-15T0{number}:00", Said("Anna", f"Parcel {number} is for Porto."))
        )
        expected.insert(0, f"Anna: Parcel {number} is for Porto.")
        for reader in open_readers:
            assert contents(reader) == expected  # pending, the newest of them
            assert sorted(contents(reader, "parcel")) == sorted(expected)
        make_hours(root, models)
        for reader in open_readers:
            assert reader._states()[0].index.rows(Grain.WORKING).pending is None
            assert contents(reader) == expected  # from the index
            assert sorted(contents(reader, "parcel")) == sorted(expected)


def _tell_elsewhere(root: str) -> None:
    """Write and run in another process, and leave a second message in the journal."""
    from memory_pipeline.models.factory import default_models

    write_talks(root, talk("elsewhere", "2024-01-15T10:00", Said("Ben", "Bruno has a new vet.")))
    make_hours(root, default_models())
    write_talks(root, talk("elsewhere again", "2024-01-15T11:00", Said("Ben", "Bruno is well.")))


def test_changes_of_another_process_are_visible_to_the_next_search(root: str, models: Models) -> None:
    write_talks(root, talk("here", "2024-01-15T08:00", Said("Anna", "I moved to Porto with Bruno.")))
    make_hours(root, models)
    open_readers = [MemoryReader(Lake(root), ACME, models.embedder, resident_rows=rows) for rows in (100, 0)]
    for reader in open_readers:
        assert contents(reader, "Bruno") == ["Anna: I moved to Porto with Bruno."]
    process = PROCESSES.Process(target=_tell_elsewhere, args=(root,))
    process.start()
    process.join()
    assert process.exitcode == 0
    for reader in open_readers:
        expected = ["Ben: Bruno is well.", "Ben: Bruno has a new vet.", "Anna: I moved to Porto with Bruno."]
        assert contents(reader) == expected
        assert contents(reader, "vet")[0] == expected[1]
        assert sorted(contents(reader, "Bruno")) == sorted(expected)


def held_rows(reader: MemoryReader) -> int:
    """Count the index rows that a reader holds, without computed points of summaries."""
    segments: dict[int, RowBlock] = {}

    def look(kept: object) -> None:
        if isinstance(kept, RowBlock):
            segments[id(kept)] = kept
        elif isinstance(kept, dict | list | tuple):
            for one in kept.values() if isinstance(kept, dict) else kept:
                look(one)
        elif is_dataclass(kept):
            for field in fields(kept):
                look(getattr(kept, field.name))

    for overlay in reader._states()[0].index._grains.values():
        look(vars(overlay))
        look(vars(overlay._top))
    return sum("#" not in id for part in segments.values() for id in part.rows["id"].to_pylist())


@pytest.fixture
def large(walked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the lake in which the agent has an index table of its own."""
    folder = shutil.copytree(walked, tmp_path / "large")
    give_own_table(folder, ACME, monkeypatch)
    return folder


def test_searches_never_exceed_resident_rows(large: Path, models: Models) -> None:
    for most in (0, 1, 3, 5, 100):
        reader = MemoryReader(Lake(str(large)), ACME, models.embedder, resident_rows=most)
        for grain in [*Grain, Grain.WORKING, Grain.DAILY]:
            assert contents(reader, "Porto", now=NOW, grain=grain, maximum_days_ago=1_000)
            assert held_rows(reader) <= most
        assert (held_rows(reader) > 0) == (most > 0)


def test_recall_never_exceeds_resident_rows(large: Path, models: Models) -> None:
    for most in (0, 1, 2, 4, 100):
        reader = MemoryReader(Lake(str(large)), ACME, models.embedder, resident_rows=most)
        assert reader.recall("Porto", now=NOW)
        assert held_rows(reader) <= most


def test_results_are_correct_with_zero_one_and_five_speakers(tmp_path: Path, models: Models) -> None:
    """Speakers have a name, or are user and agent. A question that names a speaker finds what they said."""
    five = ["Anna Lee", "Ben", "Chloé", "Dan O'Neil", "Эмма"]
    talks = [
        talk(
            "nameless",
            "2024-01-15T08:00",
            Said(None, "My bicycle is red."),
            Said(None, "Red bicycles are fast.", "assistant"),
            Said(None, "Be polite.", "system"),
            Said(None, '{"bicycles": 1}', "tool"),
        ),
        talk("one", "2024-01-15T09:00", Said("Zoe", "My bicycle is blue."), Said("Zoe", "It squeaks.")),
        talk("five", "2024-01-15T10:00", *(Said(name, f"My bicycle is number {n}.") for n, name in enumerate(five))),
    ]
    keep(tmp_path, models, talks)
    found = readers(tmp_path, models)
    for way in WAYS:
        reader = found[way]
        newest = contents(reader)
        assert newest[::-1] == [
            "User: My bicycle is red.",
            "Agent: Red bicycles are fast.",
            "Zoe: My bicycle is blue.",
            "Zoe: It squeaks.",
            *(f"{name}: My bicycle is number {n}." for n, name in enumerate(five)),
        ]
        for n, name in enumerate(five):
            assert contents(reader, person=name) == [f"{name}: My bicycle is number {n}."]
            assert contents(reader, f"Which bicycle has {name}?")[0] == f"{name}: My bicycle is number {n}."
        assert contents(reader, "red bicycle", person="user") == ["User: My bicycle is red."]
        assert contents(reader, person="AGENT") == ["Agent: Red bicycles are fast."]
        assert contents(reader, "Zoe", person="zoe")[0] in ("Zoe: My bicycle is blue.", "Zoe: It squeaks.")


def test_naming_the_only_speaker_changes_no_order(root: str, models: Models) -> None:
    write_talks(root, talk("one", "2024-01-15T09:00", Said("Zoe", "My bicycle is blue."), Said("Zoe", "It squeaks.")))
    make_hours(root, models)
    for rows in (100, 0):
        reader = MemoryReader(Lake(root), ACME, models.embedder, resident_rows=rows)
        hits = reader.search_memory(query="Which colour is Zoe's bicycle?", now=JANUARY, explain=True)
        assert [hit.content for hit in hits] == ["Zoe: My bicycle is blue.", "Zoe: It squeaks."]
        assert {(hit.parts or {})["speaker"] for hit in hits} == {0}

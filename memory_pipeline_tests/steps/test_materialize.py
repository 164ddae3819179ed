"""Rows are the same whether partitions are computed once, twice, out of order, in parts or after a fault."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.ingest import load_messages
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status, journal_hours
from memory_pipeline_tests.building import (
    ACME,
    NOW,
    START,
    conversation,
    hours,
    index_rows,
    run,
    table_rows,
    versions,
    write,
)
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory_pipeline.domain.facts import ConversationHour, Extraction
    from memory_pipeline.domain.summaries import Assignment, Condensation
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

OTHER = Scope("acme", "sales")
TALKS = [
    conversation("I moved to Porto last week.", "My dog is called Bruno."),
    conversation("Bruno ate my passport on Tuesday.", at="2024-01-15T10:00", conversation_id="c2"),
    conversation("I will fly to Oslo in March.", at="2024-02-20T09:00", conversation_id="c3"),
    conversation("Oslo was cold and I lost 40 euros.", at="2024-03-30T23:58", conversation_id="c4"),
    conversation("The contract is worth 9,000 euros.", at="2024-12-30T11:00", conversation_id="c5", scope=OTHER),
]


@pytest.fixture
def straight(shared_folder: SharedFolder, models: Models) -> Lake:
    """A lake computed in order; tests that write copy it."""

    def fill(folder: Path) -> None:
        write(Lake(str(folder)), *TALKS)
        run(Lake(str(folder)), models)

    return Lake(str(shared_folder("made_straight", fill)))


@pytest.fixture
def only_hours(shared_folder: SharedFolder, models: Models) -> Lake:
    """A lake with hours but no summaries."""

    def fill(folder: Path) -> None:
        write(Lake(str(folder)), *TALKS)
        make_hours(Lake(str(folder)), models)

    return Lake(str(shared_folder("made_hours", fill)))


def make_hours(lake: Lake, models: Models) -> None:
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, NOW).pending))


def make_days(lake: Lake, models: Models) -> None:
    make_hours(lake, models)
    list(materialize(lake, models, Grain.DAILY, grain_status(lake, Grain.DAILY, START, NOW).pending))


@pytest.fixture
def filled(straight: Lake, root: str) -> Lake:
    """A copy of `straight`."""
    shutil.copytree(straight.storage.uri, root)
    return Lake(root)


def test_a_run_computes_every_grain_and_empties_the_journal(straight: Lake) -> None:
    assert straight.journal.pending() == []
    assert sorted(map(str, _made(straight, Grain.WEEKLY))) == ["2024-W03", "2024-W08", "2024-W13", "2025-W01"]
    assert sorted(map(str, _made(straight, Grain.MONTHLY))) == ["2024-01", "2024-02", "2024-03", "2025-01"]
    assert sorted(map(str, _made(straight, Grain.YEARLY))) == ["2024", "2025"]
    assert set(straight.tables.read(MESSAGES)["content"].to_pylist()) >= {"I moved to Porto last week."}


def test_a_second_run_writes_nothing(filled: Lake, models: Models) -> None:
    lake = filled
    tables, index = versions(lake), index_rows(lake, [ACME, OTHER])
    assert not any(run(lake, models).values())
    for grain in Grain:
        every = [
            Period(grain, key)
            for key in lake.ledger.entries("working_facts" if grain is Grain.WORKING else f"{grain}_summaries")
        ]
        assert not any(made.changed for made in materialize(lake, models, grain, every))
    assert versions(lake) == tables
    assert index_rows(lake, [ACME, OTHER]) == index


@pytest.mark.parametrize("seed", range(2 if IS_THOROUGH else 1))
def test_partitions_computed_in_any_order_give_the_same_lake(
    straight: Lake, tmp_path: Path, models: Models, seed: int
) -> None:
    shuffled = Lake(str(tmp_path / "shuffled"))
    rng = random.Random(seed)
    for talk in rng.sample(TALKS, len(TALKS)):
        write(shuffled, talk)
    pending = sorted(shuffled.journal.pending_hours(), key=str)
    for hour in rng.sample(pending, len(pending)):
        list(materialize(shuffled, models, Grain.WORKING, [hour]))
    for grain in SUMMARY_GRAINS:
        periods = _made(straight, grain)
        shuffled_periods = rng.sample(periods, len(periods))
        for first in range(0, len(periods), 2):
            list(materialize(shuffled, models, grain, shuffled_periods[first : first + 2]))

    assert table_rows(shuffled) == table_rows(straight)
    assert index_rows(shuffled, [ACME, OTHER]) == index_rows(straight, [ACME, OTHER])


def _made(lake: Lake, grain: Grain) -> list[Period]:
    return [Period(grain, key) for key in lake.ledger.entries(f"{grain}_summaries")]


def test_sending_a_conversation_again_adds_nothing(filled: Lake, models: Models) -> None:
    lake = filled
    rows = table_rows(lake)
    for _ in range(2):
        write(lake, TALKS[0])
        assert [str(hour) for hour in run(lake, models)[Grain.WORKING]] == ["2024-01-15T08"]
    assert table_rows(lake) == rows
    assert lake.journal.pending() == []


def test_a_conversation_that_grows_adds_only_what_is_new(lake: Lake, models: Models) -> None:
    write(lake, conversation("I like tea."))
    make_hours(lake, models)
    write(lake, conversation("I like tea.", "I like coffee too."))
    make_hours(lake, models)
    assert sorted(lake.tables.read(MESSAGES)["content"].to_pylist()) == ["I like coffee too.", "I like tea."]


def test_other_content_under_a_known_id_is_set_aside_in_any_order(tmp_path: Path, models: Models) -> None:
    first, second = conversation("I live in Porto."), conversation("I live in Oslo.")
    outcomes = []
    for name, order in {"forward": (0, 1), "backward": (1, 0)}.items():
        lake = Lake(str(tmp_path / name))
        for position in order:
            write(lake, (first, second)[position], now=NOW.replace(second=position))
            make_hours(lake, models)
        outcomes.append((table_rows(lake), [r.reason for r in lake.journal.quarantined()]))
    assert outcomes[0] == outcomes[1]
    tables, reasons = outcomes[0]
    assert [row["content"] for row in tables["messages"]] == ["I live in Porto."]
    assert len(reasons) == 1
    assert "already used for other content" in reasons[0]


def test_late_data_recomputes_exactly_its_ancestors(filled: Lake, models: Models) -> None:
    lake = filled
    write(lake, conversation("I was born in 1984.", at="2024-01-15T14:00", conversation_id="late"))
    made = {grain: [str(period) for period in periods] for grain, periods in run(lake, models).items()}
    assert made == {
        "working": ["2024-01-15T14"], "daily": ["2024-01-15"], "weekly": ["2024-W03"],
        "monthly": ["2024-01"], "quarterly": ["2024-Q1"], "yearly": ["2024"],
    }  # fmt: skip


def test_a_late_message_of_one_agent_does_not_change_summaries_of_others(lake: Lake, models: Models) -> None:
    write(lake, TALKS[0], conversation("We sold 300 bikes.", scope=OTHER))
    run(lake, models)
    before = {row["agent_id"]: row for row in lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()}
    asked: list[str] = []

    class Counting:
        method = models.summarizer.method

        def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
            asked.extend(assignment.period.key for assignment in assignments)
            return models.summarizer.summarize(assignments)

    write(lake, conversation("My sister is Clara.", at="2024-01-15T20:00", conversation_id="late"))
    run(lake, replace(models, summarizer=Counting()))
    after = {row["agent_id"]: row for row in lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()}
    assert asked == ["2024-01-15", "2024-W03", "2024-01", "2024-Q1", "2024"]
    assert after["sales"] == before["sales"]
    assert after["support"] != before["support"]


def test_a_day_without_assertions_is_summarized_from_its_turns(lake: Lake, models: Models) -> None:
    write(lake, conversation("Hm?", "Ok then."))
    make_days(lake, models)
    [summary] = lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()
    assert "Ok then." in summary["content"]


def test_a_period_without_material_has_a_ledger_entry_but_no_row(lake: Lake, models: Models) -> None:
    [table, index] = materialize(lake, models, Grain.DAILY, [Period.parse("daily", "2024-05-01")])
    assert (table.rows, index.rows, table.changed) == (0, 0, False)
    assert lake.ledger.entries("daily_summaries")["2024-05-01"].rows == 0
    assert lake.tables.read(SUMMARIES).num_rows == 0


def test_an_hour_without_facts_and_its_ancestors_have_ledger_entries(lake: Lake, models: Models) -> None:
    write(lake, conversation("The balance is 40 euros.", role="tool"))
    made = run(lake, models)
    assert all(len(periods) == 1 for periods in made.values())
    for grain in Grain:
        status = grain_status(lake, grain, START, NOW)
        assert (status.empty, status.made, status.pending) == (made[grain], [], [])
        assert [entry.rows for entry in lake.ledger.entries(index_asset(grain)).values()] == [0]
    assert lake.tables.read(SUMMARIES).num_rows == 0
    before = versions(lake)
    assert not any(run(lake, models).values())
    assert versions(lake) == before

    write(lake, conversation("I moved to Porto.", conversation_id="late"))
    assert all(run(lake, models).values())
    assert all(grain_status(lake, grain, START, NOW).rows for grain in Grain)


def test_an_hour_without_facts_does_not_change_an_existing_day(filled: Lake, models: Models) -> None:
    write(filled, conversation("The balance is 40 euros.", role="tool", at="2024-01-15T14:00", conversation_id="t"))
    made = {grain: [str(period) for period in periods] for grain, periods in run(filled, models).items() if periods}
    assert made == {"working": ["2024-01-15T14"]}


def test_hours_without_messages_have_no_ledger_entry(lake: Lake, models: Models) -> None:
    list(materialize(lake, models, Grain.WORKING, hours("2024-05-01T00", "2024-05-01T01")))
    assert lake.ledger.entries("working_facts") == {}


def test_tool_and_system_messages_are_kept_and_are_never_facts(lake: Lake, models: Models) -> None:
    write(
        lake,
        conversation("The balance is 40 euros.", role="tool", conversation_id="t"),
        conversation("You are Juniper and you live in Porto.", role="system", conversation_id="s"),
    )
    make_days(lake, models)
    assert lake.tables.read(MESSAGES).num_rows == 2
    assert lake.tables.read(FACTS).num_rows == 0
    assert lake.journal.pending() == []


def test_a_file_that_arrives_during_the_run_of_its_hour_stays_pending(lake: Lake, models: Models) -> None:
    write(lake, conversation("I like tea."))

    class Interrupted:
        method = models.extractor.method

        def extract(self, passages: Sequence[ConversationHour], recall: Any) -> list[Extraction]:
            if len(lake.journal.pending()) == 1:
                write(lake, conversation("I like coffee.", conversation_id="meanwhile"))
            return models.extractor.extract(passages, recall)

    list(materialize(lake, replace(models, extractor=Interrupted()), Grain.WORKING, hours("2024-01-15T08")))
    [left] = lake.journal.pending()
    assert [message.content for message in lake.journal.read(left)[0]] == ["I like coffee."]
    make_hours(lake, models)
    assert lake.journal.pending() == []
    assert lake.tables.read(MESSAGES).num_rows == 2


def spanning(lake: Lake) -> list[Period]:
    """Write a conversation of four hours. Return the hours."""
    parts = [conversation(f"I lost {number} pens.", at=f"2024-01-15T{8 + number:02}:00") for number in range(4)]
    messages = [{**part["messages"][0], "id": f"m{number}"} for number, part in enumerate(parts)]
    write(lake, {**parts[0], "messages": messages})
    return hours(*(f"2024-01-15T{8 + number:02}" for number in range(4)))


@pytest.mark.parametrize("order", [(3, 1, 0, 2), (0, 1, 2, 3)] if IS_THOROUGH else [(3, 1, 0, 2)])
def test_a_conversation_of_many_hours_is_loaded_hour_by_hour(
    lake: Lake, models: Models, tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Its file stays until the last hour is loaded. Until then readers find the other hours in the journal."""
    whole = Lake(str(tmp_path / "whole"))
    spanning(whole)
    make_hours(whole, models)
    own, reader = spanning(lake), MemoryReader(lake, ACME, models.embedder)
    [file] = lake.journal.pending()
    broken = b'{"timestamp": "2024-01-15T09:00:00+00:00", "role": "robot"}\n'
    lake.storage.write(file.path, (lake.storage.read(file.path) or b"") + broken)
    for done, number in enumerate(order, start=1):
        assert lake.storage.is_there(file.path)
        list(materialize(lake, models, Grain.WORKING, [own[number]]))
        left = sorted((own[each] for each in order[done:]), key=str)
        assert grain_status(lake, Grain.WORKING, START, NOW).pending == left
        assert list(journal_hours(lake, START, NOW)) == left
        tail = [fact for file in PendingJournal(lake, ACME).files().values() for fact in file.facts]
        assert sorted({hour_of(fact.event_at) for fact in tail}, key=str) == left
        assert len(reader.search_memory("working", 0, 9_999, now=NOW)) == 4
    assert lake.storage.list("journal/pending") == []
    assert len(lake.journal.quarantined()) == 1
    make_days(lake, models)
    assert table_rows(lake)["facts"] == table_rows(whole)["facts"]
    assert index_rows(lake, [ACME])[ACME, Grain.WORKING] == index_rows(whole, [ACME])[ACME, Grain.WORKING]


def test_a_run_of_one_hour_does_not_read_the_records_of_others(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = spanning(lake)
    lines = Counter[str]()

    def counted(line: bytes) -> dict[str, object]:
        lines["is_read"] += 1
        return parse_json(line)

    monkeypatch.setattr("memory_pipeline.lake.journal.parse_json", counted)
    list(materialize(lake, models, Grain.WORKING, own[:1]))
    assert lines["is_read"] == 1


def test_a_file_waits_for_an_hour_that_has_not_begun(lake: Lake, models: Models) -> None:
    own = spanning(lake)
    now = lake.calendar.bounds(own[3])[0] - timedelta(minutes=1)
    for _ in range(2):
        run(lake, models, now)
        status = grain_status(lake, Grain.WORKING, START, now)
        assert (status.pending, status.open) == ([], own[3:]), "hours that are done are not made again"
    run(lake, models)
    assert lake.journal.pending() == []


@pytest.mark.parametrize("moment", ["while it extracts", "while it indexes"])
def test_concurrent_runs_of_one_hour_lose_nothing(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other run loads, indexes and acknowledges a newer message of the same hour in the meantime."""
    write(lake, conversation("I moved to Porto."))
    overtaken: list[bool] = []

    def overtake() -> None:
        if not overtaken:
            overtaken.append(True)
            other = Lake(lake.storage.uri)
            write(other, conversation("I bought a canoe.", conversation_id="newer"))
            make_days(other, models)
            assert other.journal.pending() == []

    class Slow:
        method = models.extractor.method

        def extract(self, passages: Sequence[ConversationHour], recall: Any) -> list[Extraction]:
            overtake()
            return models.extractor.extract(passages, recall)

    mine = replace(models, extractor=Slow()) if moment == "while it extracts" else models
    replace_index = lake.index.replace

    def slow_index(*args: Any, **kwargs: Any) -> set[str]:
        overtake()
        written = replace_index(*args, **kwargs)
        found = set(lake.index.read([ACME], None, "grain = 'working'")["content"].to_pylist())
        assert "Anna: I bought a canoe." in found, "an acknowledged message is never missing from the index"
        return written

    monkeypatch.setattr(lake.index, "replace", slow_index)
    list(materialize(lake, mine, Grain.WORKING, hours("2024-01-15T08")))
    said = {"Anna: I moved to Porto.", "Anna: I bought a canoe."}
    assert set(lake.tables.read(FACTS)["content"].to_pylist()) == said
    assert set(lake.index.read([ACME], None, "grain = 'working'")["content"].to_pylist()) == said
    make_days(lake, models)
    for grain in (Grain.WORKING, Grain.DAILY):
        assert not grain_status(lake, grain, START, NOW).pending


def test_data_that_arrives_after_loading_is_not_acknowledged(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, conversation("I moved to Porto."))
    step = "memory_pipeline.steps.materialize.load_messages"

    def land_then_receive(*args: Any) -> Any:
        made = load_messages(*args)
        monkeypatch.setattr(step, load_messages)
        write(lake, conversation("I moved to Rome."))  # the same id, another text
        [path] = [file.path for file in lake.journal.pending()][-1:]
        lake.storage.write(path.replace("__", "__0"), b"{broken")
        return made

    monkeypatch.setattr(step, land_then_receive)
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert len(lake.journal.pending()) == 2
    make_hours(lake, models)
    assert lake.journal.pending() == []
    assert len(lake.journal.quarantined()) == 2


def test_steps_that_fail_lose_nothing(
    lake: Lake, only_hours: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs stop at a step, each further than the one before."""
    write(lake, *TALKS)

    def broken(*args: object, **named: object) -> None:
        raise OSError("the disk is full")

    for step in ("extract_facts", "index_periods", "acknowledge"):
        with monkeypatch.context() as patch:
            patch.setattr(f"memory_pipeline.steps.materialize.{step}", broken)
            with pytest.raises(OSError, match="disk is full"):
                make_hours(lake, models)
        assert lake.journal.pending(), step
    make_hours(lake, models)
    assert table_rows(lake) == table_rows(only_hours)
    assert index_rows(lake, [ACME, OTHER]) == index_rows(only_hours, [ACME, OTHER])
    assert lake.journal.pending() == []


def test_a_deleted_index_is_rebuilt(filled: Lake, models: Models) -> None:
    lake = filled
    before = index_rows(lake, [ACME])
    shutil.rmtree(lake.storage.locate("projections"))
    again = Lake(lake.storage.uri)
    for grain in Grain:
        keys = again.ledger.entries("working_facts" if grain is Grain.WORKING else f"{grain}_summaries")
        list(materialize(again, models, grain, [Period(grain, key) for key in keys]))
    assert index_rows(again, [ACME]) == before

"""Retention deletes expired rows, keeps what was computed from them, and never recomputes it without them."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.retention import PLANS, Duration, Retention, RetentionClass, Unit
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.lake import CONFIGURATION, Lake
from memory_pipeline.lake.schemas import (
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    FACTS,
    GRAPH_OPERATIONS,
    IS_FACT,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.repair import find_damage, repair
from memory_pipeline.steps.results import Expiration, ExpiredShare
from memory_pipeline.steps.retention import Inventory, expire, held_back
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import (
    ACME,
    START,
    conversation,
    hours,
    index_rows,
    memory_rows,
    run,
    table_rows,
    versions,
    write,
)
from memory_pipeline_tests.damaging import damage, file_of
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

#: Under the free plan, hours have expired and days have not.
SOON = datetime(2024, 2, 5, 9, tzinfo=UTC)
#: Days and weeks have expired, months have not.
LATER = datetime(2024, 4, 20, 9, tzinfo=UTC)
OTHER = Scope("acme", "sales")
KEEPER = Scope("keeper", "support")
TALKS = [
    conversation("I moved to Porto last week.", "My dog is called Bruno."),
    conversation("Bruno ate my passport on Tuesday.", at="2024-01-15T10:00", conversation_id="c2"),
    conversation("I will fly to Oslo in March.", at="2024-01-23T09:00", conversation_id="c3"),
    conversation("The contract is worth 9,000 euros.", at="2024-01-15T08:00", conversation_id="c5", scope=OTHER),
    conversation("My cat is called Mila.", at="2024-01-15T08:00", conversation_id="c6", scope=KEEPER),
]


def configure(lake: Lake, text: str) -> None:
    lake.ensure()
    lake.storage.write(CONFIGURATION, text.encode())


def expire_at(lake: Lake, now: datetime, **options: Any) -> Expiration:
    return expire(lake, START, now, **options)


@pytest.fixture(scope="module")
def made_once(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of two workspaces, one of which keeps everything; tests copy it."""

    def fill(path: Path) -> None:
        made = Lake(str(path))
        configure(made, "workspaces: {acme: {retention: {plan: free}}}")
        write(made, *TALKS, now=SOON)
        run(made, models, SOON)

    return shared_folder("expiring", fill)


@pytest.fixture
def kept(made_once: Path, root: str) -> Lake:
    """A copy of `made_once`, up to the day on which hours have expired."""
    return Lake(shutil.copytree(made_once, root))


@pytest.fixture
def expired(made_once: Path, shared_folder: SharedFolder, root: str) -> Lake:
    """The same, without the rows that had expired by then."""
    folder = shared_folder("expired", lambda path: expire_at(Lake(str(shutil.copytree(made_once, path))), SOON))
    return Lake(shutil.copytree(folder, root))


@pytest.fixture
def expired_later(made_once: Path, shared_folder: SharedFolder, root: str, models: Models) -> Lake:
    """The same, computed up to the day on which days and weeks have expired, and without them."""

    def fill(path: Path) -> None:
        made = Lake(str(shutil.copytree(made_once, path)))
        run(made, models, LATER)
        expire_at(made, LATER)

    return Lake(shutil.copytree(shared_folder("expired-later", fill), root))


def contents(lake: Lake, spec: Any = FACTS, **fixed: str) -> set[str]:
    return set(lake.tables.read(spec, shard=None, **fixed)["content"].to_pylist())


def summaries(lake: Lake) -> dict[tuple[Any, ...], str]:
    rows = [row for grain in SUMMARY_GRAINS for row in lake.tables.read(SUMMARIES, grain=grain.value).to_pylist()]
    return {(row["grain"], row["period"], row["workspace_id"], row["agent_id"]): row["content"] for row in rows}


def test_hours_expire_as_the_dry_run_reports_and_their_summaries_stay(kept: Lake) -> None:
    before = summaries(kept)
    held = table_rows(kept)
    shown = expire_at(kept, SOON, dry_run=True)
    assert table_rows(kept) == held
    done = expire_at(kept, SOON)
    assert shown.expired == done.expired
    assert shown.rows == done.rows > 0
    assert {(each.expiry.kept, each.rows) for each in done.expired if each.rows} >= {(RetentionClass.FACTS, 5)}
    assert contents(kept, MESSAGES) == {"My cat is called Mila."}
    assert contents(kept) == {"Anna: My cat is called Mila."}
    assert summaries(kept) == before
    # The index matches the tables.
    for scope, rows in (((ACME, 0)), (OTHER, 0), (KEEPER, 2)):
        assert kept.index.count(scope, Grain.WORKING) == rows
    assert kept.index.count(ACME, Grain.DAILY) == 2
    assert ExpirationMarks.of(kept.tables).through(ACME, RetentionClass.FACTS) == "2024-02-03T07"
    assert ExpirationMarks.of(kept.tables).through(KEEPER, RetentionClass.FACTS) is None
    # Bytes are freed.
    assert done.files > 0
    assert done.bytes > 0
    facts = Path(kept.storage.uri) / "tables" / "facts"
    left = {path.parent.parent.name for path in facts.rglob("*.parquet") if "_delta_log" not in str(path)}
    assert left == {"period=2024-01-15T08"}


def test_another_retention_is_tried_without_a_change(kept: Lake, models: Models) -> None:
    """It names the rows that would go under it, by table, grain and workspace, and their share of the bytes."""
    held = table_rows(kept)

    def tried(retention: Retention, now: datetime = SOON) -> list[ExpiredShare]:
        return Inventory(kept, held_back(kept, START, now), now, retention).sizes()

    assert tried(Retention()) == []
    found = {(one.table, one.grain, one.workspace_id): one for one in tried(PLANS["free"])}
    # This configuration keeps the memory of the workspace keeper.
    assert {workspace for *_, workspace in found} == {"acme", "keeper"}
    assert {key[:2] for key in found} == {(name, Grain.WORKING) for name in ("messages", "facts", "index")}
    assert {key[2]: one.rows for key, one in found.items() if key[0] == "messages"} == {"acme": 5, "keeper": 1}
    sizes = {name: sum(kept.tables.sizes(spec).values()) for name, spec in (("messages", MESSAGES), ("facts", FACTS))}
    for name, size in sizes.items():
        assert size - 2 <= sum(one.bytes for key, one in found.items() if key[0] == name) <= size
    assert tried(Retention(daily=Duration(1, Unit.DAYS))) != []
    assert table_rows(kept) == held
    # What goes is what it said.
    configure(kept, "defaults: {retention: {plan: free}}")
    done = expire_at(kept, SOON)
    assert done.rows == sum(one.rows for one in found.values() if one.table != "index")
    assert tried(PLANS["free"]) == []


def test_what_another_retention_keeps_can_be_read(kept: Lake) -> None:
    inventory = Inventory(kept, held_back(kept, START, SOON), SOON, Retention(facts=Duration(1, Unit.DAYS)))
    left = inventory.kept(Grain.WORKING, ["content", "kind"])
    assert set(left["kind"].to_pylist()) >= {"turn"}
    assert 0 < left.num_rows < kept.tables.read(FACTS).num_rows
    assert inventory.kept(Grain.DAILY, ["id"]).num_rows == kept.tables.read(SUMMARIES, grain="daily").num_rows


def test_expired_periods_are_not_pending_and_a_second_run_writes_nothing(expired: Lake, models: Models) -> None:
    before = versions(expired)
    assert not any(run(expired, models, SOON).values())
    again = expire_at(expired, SOON)
    assert again.rows == 0
    assert versions(expired) == before


def test_the_status_separates_expired_periods(made_once: Path, expired: Lake) -> None:
    before = grain_status(Lake(str(made_once)), Grain.WORKING, START, SOON)
    after = grain_status(expired, Grain.WORKING, START, SOON)
    assert after.rows == expired.tables.read(FACTS).num_rows < before.rows
    assert [str(period) for period in after.made] == ["2024-01-15T08"]
    assert [str(period) for period in after.expired] == ["2024-01-15T10", "2024-01-23T09"]


def test_late_data_of_an_expired_hour_is_added_to_its_ancestors_only(expired: Lake, models: Models) -> None:
    before = summaries(expired)
    [day_before] = _days(expired, ACME, "2024-01-15")
    write(expired, conversation("My sister works in room 12.", at="2024-01-15T09:00", conversation_id="late"), now=SOON)
    made = run(expired, models, SOON)
    assert {grain.value: [str(period) for period in periods] for grain, periods in made.items() if periods} == {
        "working": ["2024-01-15T09"],
        "daily": ["2024-01-15"],
        "weekly": ["2024-W03"],
        "monthly": ["2024-01"],
    }
    after = summaries(expired)
    changed = {key for key in after if after[key] != before.get(key)}
    assert {key[2:] for key in changed} == {("acme", "support")}
    day = after["daily", "2024-01-15", "acme", "support"]
    for line in before["daily", "2024-01-15", "acme", "support"].splitlines():
        assert line in day
    assert "room 12" in day
    assert "room 12" in after["monthly", "2024-01", "acme", "support"]
    # The points of the day keep their citations.
    [day_after] = _days(expired, ACME, "2024-01-15")
    cited = {source for point in day_after["key_points"] for source in point["source_ids"]}
    assert all(source.startswith("working:2024-01-15T") for source in cited)
    assert set(day_before["source_ids"]) < set(day_after["source_ids"])
    assert cited <= set(day_after["source_ids"])
    # It is deleted the next night, and nothing changes any more.
    assert expire_at(expired, SOON).rows > 0
    assert "room 12" not in str(contents(expired))
    assert not any(run(expired, models, SOON).values())
    assert summaries(expired) == after
    for grain in SUMMARY_GRAINS:
        every = [Period(grain, key) for key in expired.ledger.entries(f"{grain}_summaries")]
        assert not any(made.changed for made in materialize(expired, models, grain, every))
    assert not any(run(expired, models, SOON).values())
    assert summaries(expired) == after


def _days(lake: Lake, scope: Scope, key: str) -> list[dict[str, Any]]:
    rows = lake.tables.read(SUMMARIES, [key], grain="daily").to_pylist()
    return [row for row in rows if (row["workspace_id"], row["agent_id"]) == (scope.workspace_id, scope.agent_id)]


def test_a_conversation_sent_again_after_it_expired_changes_no_summary(expired: Lake, models: Models) -> None:
    before = summaries(expired)
    write(expired, *TALKS, now=SOON)
    run(expired, models, SOON)
    assert summaries(expired) == before
    expire_at(expired, SOON)
    assert contents(expired) == {"Anna: My cat is called Mila."}


def test_late_data_of_one_agent_does_not_change_expired_hours_of_others(expired: Lake, models: Models) -> None:
    before = summaries(expired)
    write(
        expired,
        conversation("My fish is called Otto.", at="2024-01-15T08:30", conversation_id="c7", scope=KEEPER),
        now=SOON,
    )
    run(expired, models, SOON)
    after = summaries(expired)
    assert {key for key in after if after[key] != before.get(key)} == {
        (grain, period, "keeper", "support")
        for grain, period in (("daily", "2024-01-15"), ("weekly", "2024-W03"), ("monthly", "2024-01"))
    }
    assert not any(run(expired, models, SOON).values())


def test_late_data_of_an_expired_period_is_added_to_the_finest_summary_that_is_kept(
    expired_later: Lake, models: Models
) -> None:
    lake = expired_later
    marks = ExpirationMarks.of(lake.tables)
    assert marks.through(ACME, RetentionClass.WEEKLY) is not None
    assert marks.through(ACME, RetentionClass.MONTHLY) is None
    before = summaries(lake)
    for number, text in enumerate(("My sister works in room 12.", "I am allergic to nuts."), start=1):
        write(lake, conversation(text, at=f"2024-01-15T1{number}:00", conversation_id=f"late{number}"), now=LATER)
        made = run(lake, models, LATER)
        assert {grain.value: [str(period) for period in periods] for grain, periods in made.items() if periods} == {
            "working": [f"2024-01-15T1{number}"],
            "daily": ["2024-01-15"],
            "weekly": ["2024-W03"],
            "monthly": ["2024-01"],
            "quarterly": ["2024-Q1"],
        }
    lines = Counter(summaries(lake)["monthly", "2024-01", "acme", "support"].splitlines())
    assert {*before["monthly", "2024-01", "acme", "support"].splitlines()} < set(lines)
    assert lines.keys() >= {"2024-01-15 Anna: My sister works in room 12.", "2024-01-15 Anna: I am allergic to nuts."}
    assert max(lines.values()) == 1
    # The message and the finer summaries are deleted the next night, and nothing changes any more.
    assert expire_at(lake, LATER).rows > 0
    after = summaries(lake)
    assert {key for key in after if after[key] != before.get(key)} == {
        ("monthly", "2024-01", "acme", "support"),
        ("quarterly", "2024-Q1", "acme", "support"),
    }
    assert "room 12" not in str(contents(lake))
    assert not any(run(lake, models, LATER).values())
    for grain in SUMMARY_GRAINS:
        every = [Period(grain, key) for key in lake.ledger.entries(f"{grain}_summaries")]
        assert not any(made.changed for made in materialize(lake, models, grain, every))
    assert summaries(lake) == after
    assert not [finding for finding in run_checks(CheckContext(lake, LATER), all_checks()) if finding.is_error]


@pytest.mark.parametrize("subject", [Subject.conversation(ACME, "late"), Subject.person("acme", ["Zora"])])
def test_late_data_of_an_expired_period_can_be_erased(expired_later: Lake, models: Models, subject: Subject) -> None:
    lake = expired_later
    before = summaries(lake)
    texts = ("Zora is allergic to nuts.", "My sister Zora lives in Ghent.")
    write(lake, conversation(*texts, at="2024-01-15T11:00", conversation_id="late"), now=LATER)
    run(lake, models, LATER)
    month = "monthly", "2024-01", "acme", "support"
    assert all(text in summaries(lake)[month] for text in texts)
    forget(lake, models, subject, LATER)
    assert summaries(lake)[month] == before[month]
    assert "Zora" not in str(summaries(lake))


def test_a_message_is_dropped_and_counted_if_all_summaries_of_its_time_have_expired(root: str, models: Models) -> None:
    lake = Lake(root)
    configure(lake, "defaults: {retention: {plan: free}}")
    write(lake, *TALKS, now=SOON)
    years_later = datetime(2028, 2, 1, tzinfo=UTC)
    run(lake, models, years_later)
    expire_at(lake, years_later)
    before = table_rows(lake)
    write(lake, conversation("I forgot to say this.", at="2024-01-15T09:00", conversation_id="late"), now=years_later)
    [hour] = hours("2024-01-15T09")
    made = {each.asset: each for each in materialize(lake, models, Grain.WORKING, [hour])}
    assert made["messages"].expired == 1
    assert lake.journal.pending() == []
    after = table_rows(lake)
    before["ledger"], after["ledger"] = [], []
    assert after == before
    assert not any(run(lake, models, years_later).values())
    # A writer leaves it out.
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    for at, counts in (("2024-01-15T09:30:00Z", (1, 0)), ("2027-12-15T09:30:00Z", (0, 1))):
        message = {"role": "user", "content": "I forgot this, too.", "timestamp": at}
        receipt = writer.write({"conversation_id": at[:4], "messages": [message]}, now=years_later)
        assert (receipt.expired, len(receipt.accepted)) == counts


def test_a_new_agent_may_import_old_conversations(expired_later: Lake, models: Models) -> None:
    kept = expired_later
    new = Scope("acme", "new")
    write(kept, conversation("I used to live in Ghent.", at="2024-01-15T08:00", scope=new), now=LATER)
    run(kept, models, LATER)
    assert "Ghent" in summaries(kept)["monthly", "2024-01", "acme", "new"]
    expire_at(kept, LATER)
    left = {key[0] for key in summaries(kept) if key[3] == "new"}
    assert left == {"monthly", "quarterly"}


def test_nothing_expires_before_its_parent_is_current(lake: Lake, models: Models) -> None:
    configure(lake, "defaults: {retention: {plan: free}}")
    write(lake, TALKS[0], now=SOON)
    list(materialize(lake, models, Grain.WORKING, grain_status(lake, Grain.WORKING, START, SOON).pending))
    done = expire_at(lake, SOON)
    assert done.rows == 0
    # The first hour that is held back is the first of its day.
    assert {each.expiry.held_back_by for each in done.expired} >= {Period.parse("working", "2024-01-15T00")}
    run(lake, models, SOON)
    assert expire_at(lake, SOON).rows > 0


def test_classes_of_working_memory_expire_separately(lake: Lake, models: Models) -> None:
    configure(lake, "defaults: {retention: {plan: standard}}")
    tea = conversation("I prefer tea to coffee.", at="2024-01-16T08:00", conversation_id="c9")
    write(lake, *TALKS[:2], tea, now=SOON)
    run(lake, models, SOON)
    before = contents(lake)
    operations = lake.tables.read(GRAPH_OPERATIONS).num_rows
    expire_at(lake, LATER)
    kinds = set(lake.tables.read(FACTS)["kind"].to_pylist())
    assert "turn" not in kinds
    assert "preference" in kinds
    assert lake.tables.read(MESSAGES).num_rows == 0
    assert contents(lake) == {text for text in before if text in contents(lake)}
    # Late data of such an hour does not replace facts that cannot be extracted again.
    left = lake.tables.read(FACTS)
    write(lake, conversation("My bike is blue.", at="2024-01-15T08:50", conversation_id="late"), now=LATER)
    run(lake, models, LATER)
    assert set(left["id"].to_pylist()) <= set(lake.tables.read(FACTS)["id"].to_pylist())
    assert lake.tables.read(GRAPH_OPERATIONS).num_rows >= operations
    next_year = datetime(2025, 2, 1, 9, tzinfo=UTC)
    run(lake, models, next_year)
    expire_at(lake, next_year)
    assert set(lake.tables.read(FACTS)["kind"].to_pylist()) == {"preference"}


def test_facts_are_listed_after_their_messages_have_gone(lake: Lake, models: Models) -> None:
    configure(lake, "defaults: {retention: {plan: standard}}")
    said = ["I prefer tea to coffee. My dog is called Bruno. Nice weather.", "I live in Porto."]
    write(lake, conversation(*said, at="2024-01-16T08:00", conversation_id="c9"), now=SOON)
    run(lake, models, SOON)
    readers = [MemoryReader(lake, ACME, models.embedder, resident_rows=rows) for rows in (1_000, 0)]

    def listed(**options: Any) -> list[str]:
        [hits, same] = [reader.search_memory(now=LATER, **options) for reader in readers]
        assert hits.total == len(hits) == len(same) == same.total
        assert [hit.content for hit in hits] == [hit.content for hit in same]
        return [hit.content for hit in hits]

    assert listed() == [f"Anna: {text}" for text in reversed(said)]
    expire_at(lake, LATER)
    assert listed() == ["Anna: I live in Porto.", "Anna: I prefer tea to coffee."]  # one hit per message
    assert listed(query="tea")[0] == "Anna: I prefer tea to coffee."
    later = "My bike is blue. I bought it in Oslo."
    write(lake, conversation(later, at="2024-04-19T08:00", conversation_id="c10"), now=LATER)
    expected = [f"Anna: {later}", "Anna: I live in Porto.", "Anna: I prefer tea to coffee."]
    assert listed() == expected
    run(lake, models, LATER)
    assert listed() == expected
    assert listed(until=date(2024, 4, 1)) == expected[1:]
    for reader in readers:
        assert [hit.content for hit in reader.search_memory(max_results=1, offset=1, now=LATER)] == expected[1:2]


def test_the_graph_expires_if_configured(lake: Lake, models: Models) -> None:
    configure(lake, "workspaces: {acme: {retention: {graph: 30d}}}")
    write(
        lake,
        conversation("I live in Porto."),
        conversation("My sister lives in Oslo.", "I live in Ghent.", at="2024-04-15T08:00", conversation_id="c2"),
        now=LATER,
    )
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08", "2024-04-15T08")))
    said = {row["target"] for row in lake.graph_rows.scan(where=IS_FACT).to_pylist()}
    assert "Porto" in said
    expire_at(lake, LATER)
    left = {row["target"] for row in lake.graph_rows.scan(where=IS_FACT).to_pylist()}
    assert left == said - {"Porto"}
    # Recomputing the hour does not restore it.
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    assert {row["target"] for row in lake.graph_rows.scan(where=IS_FACT).to_pylist()} == left


def test_damaged_rows_are_made_again_where_their_agent_still_has_the_sources(
    made_once: Path, root: str, models: Models
) -> None:
    lake = Lake(shutil.copytree(made_once, root))
    # The messages of one workspace expire, its facts and summaries do not. The other workspace keeps everything.
    configure(lake, "workspaces: {acme: {retention: {conversations: 48h, facts: forever, preferences: forever}}}")
    expire_at(lake, SOON)
    hour, day, only_expired = "2024-01-15T08", "2024-01-15", "2024-01-15T10"
    own = pc.field("workspace_id") == "keeper"
    before = [lake.tables.read(FACTS, where=own), lake.tables.read(SUMMARIES, where=own, grain="daily")]
    alone = file_of(lake, FACTS, only_expired)
    for path in (file_of(lake, FACTS, hour), file_of(lake, SUMMARIES, day, grain="daily"), alone):
        damage(path, "cut")
    losses = {each.key: each.loss for each in find_damage(lake)}
    assert losses.keys() == {hour, day, only_expired}
    assert all("acme/support" in loss and "keeper" not in loss for loss in losses.values())
    with pytest.raises(DamagedError):  # a run drops nothing
        list(materialize(lake, models, Grain.WORKING, hours(hour)))
    assert repair(lake, models, find_damage(lake)) == []
    assert [lake.tables.read(FACTS, [hour]), lake.tables.read(SUMMARIES, where=own, grain="daily")] == before
    forget(lake, models, Subject.agent(KEEPER), SOON)


def test_damaged_rows_may_be_lost_if_the_index_does_not_know_them(expired: Lake, models: Models) -> None:
    hour = "2024-01-15T08"
    damage(file_of(expired, FACTS, hour), "cut")
    assert [each.loss for each in find_damage(expired)] == [""]
    expired.index.delete("workspace_id = 'keeper'", [KEEPER])
    assert "unknown" in find_damage(expired)[0].loss
    with pytest.raises(DamagedError):
        list(materialize(expired, models, Grain.WORKING, hours(hour)))
    repair(expired, models, find_damage(expired))
    assert contents(expired) == {"Anna: My cat is called Mila."}


def test_missing_messages_of_one_workspace_are_noticed_though_another_has_expired(
    expired: Lake, models: Models
) -> None:
    hour = "2024-01-15T08"
    expired.tables.remove(MESSAGES, [hour])
    with pytest.raises(DamagedError):
        list(materialize(expired, models, Grain.WORKING, hours(hour)))
    assert contents(expired) == {"Anna: My cat is called Mila."}


def test_over_a_year_expired_classes_are_deleted_and_memories_kept(lake: Lake, models: Models) -> None:
    configure(lake, "defaults: {retention: {plan: free}}")
    day = date(2024, 1, 3)
    standing = {"My favourite bread is rye.": "preference", "Always answer me in English.": "instruction"}
    write(lake, conversation(*standing, "I moved to Porto.", at=f"{day}T10:00"), now=_noon(day))
    while day < date(2025, 2, 1):
        write(
            lake,
            conversation(f"Order {day:%m%d} was sent.", at=f"{day}T08:00", conversation_id=f"{day}"),
            now=_noon(day),
        )
        day += timedelta(days=97 if IS_THOROUGH else 199)
        run(lake, models, _noon(day))
        consolidate(lake, models, pending_days(lake, START, _noon(day)), START)
        assert not grain_status(lake, Grain.WORKING, START, _noon(day)).pending
        before = {spec: lake.tables.version(spec) for spec in (MEMORY_EVENTS, CONSOLIDATION_EVENTS, CONSOLIDATION)}
        expire_at(lake, _noon(day))
        for kept in RetentionClass:
            if kept.grain is None:
                continue
            retention = lake.configuration().retention("acme")
            last = retention.last_expired(kept, _noon(day), lake.calendar)
            periods = (
                lake.tables.read(SUMMARIES, grain=kept.grain.value)["period"]
                if kept.grain in SUMMARY_GRAINS
                else lake.tables.read(FACTS)["period"]
            )
            assert last is not None
            assert not pc.any(pc.less_equal(periods, last.key)).as_py(), (kept, day)
        assert {spec: lake.tables.version(spec) for spec in before} == before
        held = {row["content"]: row for row in memory_rows(lake).to_pylist() if row["is_newest"]}
        assert {text: held[f"Anna: {text}"]["kind"] for text in standing} == standing
        assert {held[f"Anna: {text}"]["status"] for text in standing} == {"active"}
        assert "Anna: I moved to Porto." in held
    assert not lake.tables.keys(FACTS)
    assert not lake.tables.keys(MESSAGES)
    assert not any(run(lake, models, _noon(day)).values())
    assert index_rows(lake, [ACME])
    reader = MemoryReader(lake, ACME, models.embedder)
    assert reader.search_memory("yearly", 0, 800, now=_noon(day))
    failed = [finding for finding in run_checks(CheckContext(lake, _noon(day)), all_checks()) if not finding.passed]
    assert not failed


def _noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def test_an_hour_with_expired_facts_and_a_graph_is_not_pending(lake: Lake, models: Models) -> None:
    configure(lake, "workspaces: {acme: {retention: {plan: free}}}")
    write(lake, conversation("I live in Porto."), now=SOON)
    run(lake, models, LATER)
    expire_at(lake, LATER)
    assert lake.tables.read(GRAPH_OPERATIONS).num_rows
    # The late message is dropped, but its hour is processed.
    write(lake, conversation("I forgot to say this.", conversation_id="late"), now=LATER)
    run(lake, models, LATER)
    assert not any(grain_status(lake, grain, START, LATER).pending for grain in Grain)
    assert lake.tables.read(GRAPH_OPERATIONS).num_rows


def test_the_memory_of_users_expires_and_scopes_without_rows_are_no_longer_listed(lake: Lake, models: Models) -> None:
    configure(lake, "defaults: {per_user: true, retention: {plan: free}}")
    group = {"users": ["anna", "ben"]}
    said = [
        conversation("The weather was bad on Monday.", name=None) | {"user_id": "anna"},
        conversation("The weather was fine on Monday.", name=None) | group,
        conversation("The weather is fine today.", name=None, at="2029-12-31T09:00") | {"user_id": "ben"},
    ]
    far = datetime(2030, 1, 2, tzinfo=UTC)
    for talk in said:
        messages = read_messages(talk, Admission(START, far), lake.new_scope).messages
        lake.members.add(messages)
        lake.journal.append(messages)
    run(lake, models, far)
    assert len(known_scopes(lake)) == 3
    expire_at(lake, far)
    assert {scope.identity for scope in known_scopes(lake)} == {"user:ben"}
    assert {scope.identity for scope in scopes_in(lake.tables.read(FACTS))} == {"user:ben"}

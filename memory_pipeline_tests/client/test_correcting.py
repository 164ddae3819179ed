"""A wrong statement is withdrawn from everything that rests on it, and is not learned again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.client import correcting
from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest
from memory_pipeline_tests.searching import places_of

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline_tests.conftest import CopiedLake

NOW = datetime(2025, 2, 3, 9, tzinfo=UTC)
LATER = NOW + timedelta(days=400)
WRONG = "My sister Nadia lives in Lisbon."
RIGHT = "My sister Nadia lives in Faro."


def fill(folder: Path) -> None:
    """A year ago Anna said something wrong among true things; the pipeline has summarized it at all grains."""
    memory = Memory(folder, user_id="anna")
    memory.add(
        [
            {"role": "user", "content": f"I work at Contoso. {WRONG} I like tea."},
            {"role": "assistant", "content": "Ok."},
        ],
        conversation_id="talk",
        now=NOW,
    )
    memory.add("I have a dog called Bruno.", conversation_id="other", now=NOW + timedelta(days=40))
    memory.run(now=LATER)


@pytest.fixture
def memory(copied: CopiedLake) -> Memory:
    return Memory(copied("corrected", fill).storage.uri, user_id="anna")


def reopened(memory: Memory) -> Memory:
    return Memory(memory.lake.storage.uri, user_id="anna")


def known(memory: Memory, now: datetime = LATER) -> str:
    """Return everything that memory derives, as text."""
    memory = reopened(memory)
    grains = ("working", "daily", "weekly", "monthly", "quarterly", "yearly")
    hits = [hit.content for grain in grains for hit in memory.reader.search_memory(grain, 0, 3_000, 50, None, now=now)]
    graph = [f"{one.source} {one.label} {one.target}" for one in memory.graph.facts()]
    memories = [one.content for one in memory.list(limit=100)]
    return "\n".join([*hits, *graph, *memories])


def wrong_id(memory: Memory) -> str:
    return next(hit.id for hit in memory.search("Where does Nadia live?", now=LATER) if "Lisbon" in hit.content)


def assert_corrected(memory: Memory) -> None:
    assert "Lisbon" not in known(memory)
    assert all(one in known(memory) for one in ("Contoso", "tea", "Bruno"))
    assert reopened(memory).check(now=LATER) == ()


def test_a_plan_names_what_rests_on_the_statement_and_changes_nothing(memory: Memory) -> None:
    before = lake_digest(memory.lake)
    plan = memory.correct(wrong_id(memory), dry_run=True, now=LATER)
    assert plan.id is None
    assert {one.what for one in plan.radius.rests_on} >= {"fact", "daily", "weekly", "monthly", "quarterly", "yearly"}
    assert plan.radius.partitions["yearly"] == ("2025",)
    assert not differing(before, lake_digest(reopened(memory).lake))


def test_a_plan_names_the_reads_that_handed_it_to_a_model(memory: Memory) -> None:
    handed = memory.context("Where does Nadia live?", conversation={"conversation_id": "trip"}, now=LATER)
    assert "Lisbon" in str(handed)
    memory.context("What is the name of the dog?", max_tokens=60, now=LATER)
    agent = Memory(memory.lake.storage.uri)
    agent.add("The office of Contoso is in Braga.", conversation_id="office", now=LATER)
    memory.context("Where is the office of Contoso?", now=LATER)
    plan = memory.correct(wrong_id(memory), dry_run=True, now=LATER)
    [trip] = [one for one in plan.radius.handed_over if one.conversation_id == "trip"]
    assert (trip.receipt_id, trip.agent_id, trip.operation) == (handed.receipt_id, "default", "context")
    assert any("Lisbon" in text for text in trip.texts)
    assert not any("Bruno" in text for one in plan.radius.handed_over for text in one.texts)
    assert any("trip" in line and handed.receipt_id in line for line in plan.lines())
    # The same once a run has moved them to the table, and the receipt itself tells of the correction.
    memory.lake.read_receipts.settle()
    done = memory.correct(wrong_id(memory), now=LATER)
    assert [one.receipt_id for one in done.radius.handed_over] == [one.receipt_id for one in plan.radius.handed_over]
    receipt = reopened(memory).receipt(handed.receipt_id)
    assert receipt is not None
    assert any(item.state == "withdrawn" and "Lisbon" in item.text for item in receipt.items)


def test_the_reads_of_other_users_are_told_to_the_agent_alone(memory: Memory) -> None:
    agent = Memory(memory.lake.storage.uri)
    office = agent.add("The office of Contoso is in Braga.", now=LATER).accepted[0]
    for user in ("anna", "ben"):
        read = Memory(memory.lake.storage.uri, user_id=user)
        assert "Braga" in str(read.context("Where is the office of Contoso?", now=LATER + timedelta(minutes=1)))
    own = reopened(memory).correct(office, dry_run=True, now=LATER).radius.handed_over
    assert [len(one.texts) > 0 for one in own] == [True]
    every = Memory(memory.lake.storage.uri).correct(office, dry_run=True, now=LATER).radius.handed_over
    assert len(every) == 2


def test_a_withdrawn_statement_is_in_no_grain_and_the_rest_stays(memory: Memory) -> None:
    assert "Lisbon" in known(memory)
    done = memory.correct(wrong_id(memory), reason="it was her cousin", now=LATER)
    assert [quote for quotes in done.quotes.values() for quote in quotes] == [WRONG]
    assert_corrected(memory)
    [one] = reopened(memory).corrections()
    assert (one.id, one.quotes, one.reason) == (done.id, (WRONG,), "it was her cousin")
    # The message stays in history as it was said.
    assert WRONG in reopened(memory).conversations.get("talk")[0].content
    assert all("Lisbon" not in item.content for trace in memory.trace("talk") for item in trace.learned)


def test_a_line_of_a_yearly_summary_leads_to_the_statement(memory: Memory) -> None:
    year = memory.reader.search_memory("yearly", 0, 3_000, 1, None, now=LATER)[0]
    line = next(place for place, text in enumerate(year.content.splitlines()) if "Lisbon" in text)
    memory.correct(f"{year.id}#{line}", words="lisbon", now=LATER)
    assert_corrected(memory)


def test_what_replaces_it_is_known_from_the_same_day(memory: Memory) -> None:
    memory.correct(wrong_id(memory), RIGHT, now=LATER)
    assert_corrected(memory)
    hit = next(hit for hit in reopened(memory).search("Where does Nadia live?", now=LATER) if "Faro" in hit.content)
    assert NOW - hit.starts_at < timedelta(seconds=1)
    assert known(memory).count("Faro") >= 6


def test_it_is_not_learned_again_by_a_run_or_an_import(memory: Memory) -> None:
    memory.correct(wrong_id(memory), now=LATER)
    imported = {"role": "user", "content": f"Hello. {WRONG}", "timestamp": NOW + timedelta(days=3)}
    memory.add([imported], conversation_id="imported", now=LATER)
    assert "Lisbon" not in known(memory)
    call("run", "--root", memory.lake.storage.uri, "--from", "2025-01-01", "--to", "2026-12-31", "--fresh")
    reopened(memory).run(now=LATER + timedelta(days=1))
    assert_corrected(memory)


def test_what_is_said_after_the_correction_counts(memory: Memory) -> None:
    memory.correct(wrong_id(memory), now=LATER)
    memory.add(WRONG, now=LATER + timedelta(hours=1))
    assert "Lisbon" in known(memory, LATER + timedelta(hours=2))


def test_an_undone_correction_leaves_what_was_there_before(memory: Memory) -> None:
    before = known(memory)
    done = memory.correct(wrong_id(memory), RIGHT, now=LATER)
    assert done.id is not None
    reopened(memory).undo(done.id, now=LATER)
    assert sorted(known(memory).splitlines()) == sorted(before.splitlines())
    with pytest.raises(InputError, match="no correction in force has the id"):
        memory.undo(done.id, now=LATER)


def test_a_pending_statement_is_withdrawn_at_once(memory: Memory) -> None:
    now = LATER + timedelta(days=1)
    memory.add("My brother Otto lives in Braga. I also like coffee.", conversation_id="new", now=now)
    hit = next(hit for hit in memory.search("Where does Otto live?", now=now) if "Braga" in hit.content)
    memory.correct(hit.id if hit.kind != "turn" else memory.trace("new")[0].learned[0].id, now=now)
    for _ in range(2):
        found = known(memory, now)
        assert "Braga" not in found
        assert "coffee" in found
        reopened(memory).run(now=now)


def test_an_interrupted_correction_is_finished_by_the_next_run(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(correcting, "make_again", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            memory.correct(wrong_id(memory), now=LATER)
    reopened(memory).run(now=LATER)
    assert_corrected(memory)
    assert not memory.lake.corrections.unfinished()


def test_an_erasure_removes_corrections_of_what_it_erases(memory: Memory) -> None:
    memory.correct(wrong_id(memory), RIGHT, reason="Nadia said so", now=LATER)
    memory.forget(conversation_id="talk", now=LATER)
    assert memory.corrections() == []
    assert places_of(memory.lake, ["Lisbon", "Faro", "Nadia"]) == {}


def test_other_users_cannot_correct_it(memory: Memory) -> None:
    message = memory.trace("talk")[0].message.id
    other = Memory(memory.lake.storage.uri, user_id="ben")
    for identifier in (wrong_id(memory), message):
        with pytest.raises(InputError):
            other.correct(identifier, now=LATER)


def test_a_memory_that_an_agent_stored_is_changed_by_its_own_means(memory: Memory) -> None:
    stored = memory.remember("Anna prefers trains.", now=LATER)
    with pytest.raises(InputError, match="stored by an agent"):
        reopened(memory).correct(stored, now=LATER)


def test_an_import_is_rolled_back_and_may_be_sent_again(memory: Memory) -> None:
    before = known(memory)
    said = [
        {"role": "user", "content": f"I own {count} boats in Tavira.", "timestamp": NOW + timedelta(days=count)}
        for count in (2, 3)
    ]
    talk = {"conversation_id": "old", "source": "import:elsewhere", "messages": said}
    memory.writer.write(talk, now=LATER)
    memory.run(now=LATER)
    assert "Tavira" in known(memory)
    [plan] = memory.rollback(source="import:elsewhere", dry_run=True, now=LATER)
    assert (plan.id, len(plan.quotes)) == (None, 2)
    [done] = memory.rollback(source="import:elsewhere", now=LATER)
    memory.writer.write(talk, now=LATER)
    reopened(memory).run(now=LATER)
    assert sorted(known(memory).splitlines()) == sorted(before.splitlines())
    assert done.id is not None
    memory.undo(done.id, now=LATER)
    assert "Tavira" in known(memory)


def test_a_span_of_receipt_is_rolled_back_also_while_it_is_pending(memory: Memory) -> None:
    before = known(memory)
    memory.add("I own two boats in Tavira.", now=LATER + timedelta(hours=1))
    memory.rollback(since=LATER + timedelta(minutes=1), now=LATER + timedelta(hours=2))
    assert sorted(known(memory, LATER + timedelta(hours=3)).splitlines()) == sorted(before.splitlines())
    with pytest.raises(InputError, match="none is given"):
        memory.rollback()


def test_random_corrections_and_undoings_leave_no_trace(memory: Memory) -> None:
    before, source = known(memory), random.Random(3)
    undone: list[str] = []
    for _ in range(4):
        hits = [hit for hit in reopened(memory).search("Anna", now=LATER, limit=20) if hit.grain == "working"]
        if hits:
            done = reopened(memory).correct(source.choice(hits).id, now=LATER + timedelta(seconds=len(undone)))
            assert done.id is not None
            undone.append(done.id)
    for identifier in source.sample(undone, len(undone)):
        reopened(memory).undo(identifier, now=LATER + timedelta(hours=1))
    assert sorted(known(memory).splitlines()) == sorted(before.splitlines())


def test_the_commands_plan_correct_list_and_undo(memory: Memory) -> None:
    own = ["--root", memory.lake.storage.uri, "--user", "anna"]
    identifier = wrong_id(memory)
    assert "nothing is changed yet" in call("correct", identifier, *own, "--dry-run").output
    done = read("correct", identifier, *own, "--reason", "wrong")
    assert "wrong" in call("corrections", *own).output
    assert call("undo", done["id"], *own).exit_code == 0
    assert "Lisbon" in known(memory)

"""What `forget` would erase, what rests on it, and who was handed it: known before anything is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.erasure.correct import BlastRadius
    from memory_pipeline.erasure.forget import ErasurePreview
    from memory_pipeline_tests.conftest import CopiedLake

NOW = datetime(2025, 2, 3, 9, tzinfo=UTC)
LATER = NOW + timedelta(days=400)
ALL = {"turn", "fact", "graph", "memory", "daily", "weekly", "monthly", "quarterly", "yearly"}


def fill(folder: Path) -> None:
    memory = Memory(folder, user_id="anna")
    memory.add("I live in Porto.", conversation_id="talk", now=NOW)
    memory.add("My brother Otto is a nurse.", conversation_id="other", now=NOW + timedelta(days=40))
    memory.run(now=LATER)
    memory.add("I work at Contoso.", conversation_id="new", now=LATER)


@pytest.fixture
def memory(copied: CopiedLake) -> Memory:
    return Memory(copied("forgetting", fill).storage.uri, user_id="anna")


def radius(plan: ErasurePreview) -> BlastRadius:
    assert plan.radius is not None
    return plan.radius


def test_the_plan_of_a_conversation_is_that_of_a_correction_of_its_messages(memory: Memory) -> None:
    handed = memory.context("Where does Anna live?", now=LATER)
    before = lake_digest(memory.lake)
    plan = radius(memory.forget(conversation_id="talk", dry_run=True, now=LATER))
    assert {one.what for one in plan.rests_on} == ALL
    assert all("Otto" not in one.content for one in plan.rests_on if one.what in {"fact", "graph", "memory", "daily"})
    assert [one.receipt_id for one in plan.handed_over] == [handed.receipt_id]
    [message] = [one.message.id for one in memory.trace("talk")]
    assert plan == memory.correct(message, dry_run=True, now=LATER).radius
    assert not differing(before, lake_digest(Memory(memory.lake.storage.uri).lake))


def test_the_plan_of_a_user_has_all_memory_and_pending_messages(memory: Memory) -> None:
    stored = memory.remember("Anna prefers trains.", now=LATER)
    handed = memory.context("Where does Anna work?", now=LATER + timedelta(minutes=1))
    assert "Contoso" in str(handed)
    plan = radius(memory.forget(everything=True, dry_run=True, now=LATER + timedelta(minutes=2)))
    assert {"2025-02-03T09", "2025-03-15T09"} <= {*plan.partitions["working"]}
    assert any("Otto" in one.content for one in plan.rests_on)
    assert [one.receipt_id for one in plan.handed_over] == [handed.receipt_id]
    memory.run(now=LATER + timedelta(days=1))
    later = radius(memory.forget(everything=True, dry_run=True, now=LATER + timedelta(days=1)))
    assert stored in {one.id for one in later.rests_on}


def test_the_plan_of_a_memory_names_the_reads_that_handed_it_over(memory: Memory) -> None:
    stored = memory.remember("Anna prefers trains.", now=LATER)
    handed = memory.context("How does Anna like to travel, by trains?", now=LATER + timedelta(minutes=1))
    assert "trains" in str(handed)
    plan = radius(memory.forget(stored, dry_run=True))
    assert [one.content for one in plan.rests_on] == ["Anna prefers trains."]
    assert [one.receipt_id for one in plan.handed_over] == [handed.receipt_id]
    assert memory.reader.memories.get(stored) is not None
    with pytest.raises(InputError, match="is unknown"):
        memory.forget(f"{stored[:-4]}ffff", dry_run=True)


def test_the_command_prints_it_before_it_asks(memory: Memory) -> None:
    handed = memory.context("Where does Anna live?", conversation={"conversation_id": "trip"}, now=LATER)
    memory.lake.read_receipts.settle()
    who = ["--root", memory.lake.storage.uri, "--workspace", "default", "--user", "anna"]
    printed = call("forget", *who, "--dry-run")
    assert printed.exit_code == 0
    assert "yearly: " in printed.output
    assert any("for trip: " in line and handed.receipt_id in line for line in printed.output.splitlines())
    found = read("forget", *who, "--dry-run")["found"]["radius"]
    assert {one["what"] for one in found["rests_on"]} == ALL
    assert found["handed_over"][0]["conversation_id"] == "trip"
    assert found["partitions"]["yearly"] == ["2025", "2026"]

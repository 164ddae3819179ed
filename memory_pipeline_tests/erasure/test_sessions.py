"""Erasure of sessions and pools: what goes, what stays, and what a verification finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, preview, verify
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.sessions.store import SessionStore
from memory_pipeline.steps.promotion import promote
from memory_pipeline_tests.erasure.lakes import assert_verified
from memory_pipeline_tests.sessions.conftest import database, postgresql_url

if TYPE_CHECKING:
    from memory_pipeline.domain.sessions import Entry
    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.models.factory import Models

__all__ = ["database", "postgresql_url"]

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
SECRET = "qx-4711-zebra"


@pytest.fixture
def in_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep sessions in a file of the lake. Erasure does not depend on the database; two tests use both."""
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)


def used(root: str, agent_id: str = "support", user_id: str | None = None, text: str = "nothing") -> Memory:
    """Return a memory with one entry of each kind, and a saved session."""
    memory = Memory(root, agent_id=agent_id, user_id=user_id)
    session = memory.session("s1")
    session.store("k", {"said": text}, now=NOW)
    session.scratch_pad.append(text, now=NOW)
    session.short_term.store("k", text, now=NOW)
    session.persist(now=NOW)
    memory.pool("board").write("k", text, now=NOW)
    memory.pool("own", type="agent_private").write("k", text, now=NOW)
    return memory


def left(memory: Memory) -> list[bool]:
    session = memory.session("s1")
    parts = [
        session.exists("k", now=LATER),
        bool(session.scratch_pad.read(now=LATER)),
        bool(session.short_term.keys(now=LATER)),
    ]
    pools = [memory.pool("board"), memory.pool("own", type="agent_private")]
    return [*parts, *(bool(pool.read(now=LATER)) for pool in pools)]


def saved(memory: Memory) -> int:
    return len(list(Path(memory.lake.storage.uri, "sessions", "saved").glob("*.json")))


def removed(report: ErasureReport) -> dict[str, int]:
    return {part.what: part.count for part in report.removed if part.place == "sessions"}


@pytest.mark.usefixtures("database")
def test_a_pool_keeps_the_values_that_do_not_name_the_person(root: str, models: Models) -> None:
    pool = Memory(root, agent_id="a").pool("board", scope="global")
    for key, value in (("Anna's size", 38), ("order", {"for": ["Anna"]}), ("price", 3), ("note", "Ben called.")):
        pool.write(key, value, now=NOW)
    alone = Memory(root, agent_id="a").pool("alone", scope="global")
    alone.write("who", "Anna", now=NOW)
    report = forget(Lake(root), models, Subject.person("default", ["Anna"]), LATER)
    assert removed(report) == {"entries": 1, "pools that lost the values with the name": 1}
    assert pool.snapshot(now=LATER) == ({"price": 3, "note": "Ben called."}, 5)
    assert alone.snapshot(now=LATER) == ({}, 0)
    assert_verified(Lake(root), report)


def test_a_pool_that_changes_during_the_erasure_is_tried_again(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Memory(root, agent_id="a").pool("board", scope="global")
    pool.merge({"size": "Anna has 38.", "price": 3}, now=NOW)
    replace, writes = SessionStore.replace, [4, 5]

    def late(store: SessionStore, entry: Entry, value: str) -> bool:
        if writes:
            pool.write("price", writes.pop(0), now=NOW)
        return replace(store, entry, value)

    monkeypatch.setattr(SessionStore, "replace", late)
    report = forget(Lake(root), models, Subject.person("default", ["Anna"]), LATER)
    assert pool.read(now=LATER) == {"price": 5}
    assert removed(report) == {"pools that lost the values with the name": 1}
    assert_verified(Lake(root), report)


def test_the_copy_of_an_empty_session_is_erased(root: str, models: Models) -> None:
    Memory(root, user_id="anna-71").session("s1").persist(now=NOW)
    Memory(root, user_id="ben").session("s1").persist(now=NOW)
    subject = Subject.user("default", "anna-71")
    report = forget(Lake(root), models, subject, LATER)
    assert removed(report) == {"saved sessions": 1}
    assert_verified(Lake(root), report)


@pytest.mark.usefixtures("database")
def test_a_user_is_erased_from_sessions_and_pools_and_others_stay(root: str, models: Models) -> None:
    anna, ben = used(root, user_id="anna-71", text=SECRET), used(root, user_id="ben")
    agent = used(root)
    subject = Subject.user("default", "anna-71")
    assert preview(Lake(root), subject, LATER).counts["sessions"] == 5
    report = forget(Lake(root), models, subject, LATER)
    assert removed(report) == {"entries": 5, "saved sessions": 1}
    assert (left(anna), left(ben), left(agent)) == ([False] * 5, [True] * 5, [True] * 5)
    assert saved(agent) == 2
    assert_verified(Lake(root), report)
    for path in Path(root).rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert removed(forget(Lake(root), models, subject, LATER)) == {}
    anna.session("s1").store("k", SECRET, now=LATER + timedelta(seconds=1))
    anna.session("s1").persist(now=LATER + timedelta(seconds=1))
    assert_verified(Lake(root), report)  # what is written later is no finding


@pytest.mark.usefixtures("in_sqlite")
def test_an_agent_is_erased_with_the_sessions_of_its_users(root: str, models: Models) -> None:
    support, anna, sales = used(root), used(root, user_id="anna"), used(root, "sales", "anna")
    report = forget(Lake(root), models, Subject.agent(support._scope), LATER)
    assert removed(report) == {"entries": 8, "saved sessions": 2}
    # The pools that agents share are not the agent's.
    assert (left(support), left(anna), left(sales)) == ([False] * 3 + [True, False],) * 2 + ([True] * 5,)
    assert_verified(Lake(root), report)


@pytest.mark.usefixtures("in_sqlite")
def test_a_person_is_erased_where_others_name_the_person(root: str, models: Models) -> None:
    ben = used(root, user_id="ben", text="Call Anna Müller tomorrow.")
    cleo = used(root, user_id="cleo")
    report = forget(Lake(root), models, Subject.person("default", ["Anna Müller"]), LATER)
    assert removed(report) == {"entries": 5, "saved sessions": 1}
    assert (left(ben), left(cleo)) == ([False] * 5, [True] * 5)
    assert_verified(Lake(root), report)


@pytest.mark.usefixtures("in_sqlite")
def test_a_conversation_is_erased_with_the_session_of_its_id(root: str, models: Models) -> None:
    anna = used(root, user_id="anna")
    anna.session("s2").store("k", 1, now=NOW)
    report = anna.forget(conversation_id="s1", now=LATER)
    assert report is not None
    assert removed(report) == {"entries": 3, "saved sessions": 1}
    assert left(anna) == [False, False, False, True, True]
    assert anna.session("s2").exists("k", now=LATER)


@pytest.mark.usefixtures("in_sqlite")
def test_what_was_begun_before_the_cutoff_goes_even_if_it_was_changed_later(root: str, models: Models) -> None:
    anna = used(root, user_id="anna-71", text=SECRET)
    anna.session("s1").scratch_pad.append("later", now=LATER + timedelta(minutes=1))
    forget(Lake(root), models, Subject.user("default", "anna-71"), LATER)
    assert anna.session("s1").scratch_pad.read(now=LATER) == []


@pytest.mark.usefixtures("in_sqlite")
@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_entry_goes_although_its_session_was_saved_or_loaded_after_the_cutoff(
    root: str, models: Models, *, is_loaded: bool
) -> None:
    session = used(root, user_id="anna-71", text=SECRET).session("s1")
    if is_loaded:
        session.clear(now=NOW)
        session.load(now=LATER + timedelta(seconds=1))
    session.persist(now=LATER + timedelta(seconds=1))
    report = forget(Lake(root), models, Subject.user("default", "anna-71"), LATER)
    assert removed(report)["saved sessions"] == 1
    assert not session.load(now=LATER)
    assert not session.keys(now=LATER)
    assert_verified(Lake(root), report)


@pytest.mark.usefixtures("in_sqlite")
@pytest.mark.parametrize("is_run", [False, True])
def test_a_conversation_is_erased_with_the_memories_that_its_session_became(
    root: str, models: Models, *, is_run: bool
) -> None:
    anna = Memory(root, user_id="anna")
    for session_id in ("s1", "s2"):
        short = anna.session(session_id).short_term
        short.store("k", f"The code of {session_id} is {SECRET}-{session_id}.", ttl=60, now=NOW)
        for _ in range(3):
            short.retrieve("k", now=NOW)
    assert promote(anna.lake, NOW + timedelta(minutes=2)).promoted == 2
    if is_run:
        anna.run(now=NOW + timedelta(days=1))
    report = anna.forget(conversation_id="s1", now=LATER)
    assert report is not None
    anna.run(now=NOW + timedelta(days=2))
    [left] = anna.reader.memories.list()
    assert left.content == f"The code of s2 is {SECRET}-s2."
    assert_verified(anna.lake, report)
    for path in Path(root).rglob("*"):
        assert not path.is_file() or f"{SECRET}-s1".encode() not in path.read_bytes(), path


@pytest.mark.usefixtures("in_sqlite")
def test_a_user_of_one_agent_keeps_the_pools_that_agents_share_and_the_receipt_says_so(root: str) -> None:
    anna = used(root, user_id="anna")
    report = anna.forget(everything=True, now=LATER)
    assert report is not None
    assert left(anna) == [False, False, False, True, False]
    assert any("pools" in text for text in report.not_covered)


@pytest.mark.usefixtures("in_sqlite")
def test_a_verification_finds_an_entry_that_is_left(root: str, models: Models) -> None:
    anna = used(root, user_id="anna-71")
    report = forget(Lake(root), models, Subject.user("default", "anna-71"), LATER)
    anna.session("s1").store("k", SECRET, now=NOW + timedelta(seconds=1))
    [finding] = verify(Lake(root), report).findings
    assert "an entry" in finding.what
    assert SECRET not in str(finding)


def test_an_erasure_refuses_to_miss_sessions_in_another_database(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", f"sqlite:///{tmp_path}/sessions.db")
    anna = used(root, user_id="anna")
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS")
    with pytest.raises(ConfigurationError, match="MEMORY_PIPELINE_SESSIONS"):
        anna.forget(everything=True, now=LATER)

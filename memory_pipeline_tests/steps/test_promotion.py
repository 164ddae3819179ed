"""Promotion of short-term entries: once, whatever is killed between the two stores."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import ConfigurationError, LakeError
from memory_pipeline.sessions.store import SessionStore
from memory_pipeline.steps.promotion import Promotion, promote
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.sessions.conftest import database, postgresql_url
from memory_pipeline_tests.sessions.racing import promote_and_die

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["database", "postgresql_url"]

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SOON, NIGHT = NOON + timedelta(minutes=30), NOON + timedelta(hours=12, minutes=40)


def stored(memory: Memory, key: str, value: object, reads: int, type_: str = "observation") -> None:
    short = memory.session("s1").short_term
    short.store(key, value, type_, now=NOON)
    for _ in range(reads):
        short.retrieve(key, now=NOON)


def done(memory: Memory, now: datetime) -> tuple[int, int, int]:
    found = promote(memory.lake, now)
    return found.promoted, found.refused, found.expired


def contents(memory: Memory) -> set[tuple[str, str]]:
    return {(each.kind.value, each.content) for each in memory.reader.memories.list()}


@pytest.mark.usefixtures("database")
def test_used_entries_become_durable_and_the_rest_go_when_they_expire(root: str) -> None:
    memory = Memory(root, user_id="anna")
    stored(memory, "plan", "Anna wants the invoice by mail.", 5)
    stored(memory, "limits", {"seats": 4}, 3, "tool_result")
    stored(memory, "idle", "Nobody asked for this.", 1)
    memory.session("s1").store("k", 1, now=NOON)
    memory.session("s1").persist(now=NOON)
    assert done(memory, SOON) == (0, 0, 0)
    assert memory.session("s1").short_term.keys(now=SOON) == ["idle", "limits", "plan"], "live entries stay"
    assert done(memory, NIGHT) == (2, 0, 2)
    assert contents(memory) == {
        ("observation", "Anna wants the invoice by mail."),
        ("tool_output", 'limits: {"seats":4}'),
    }
    assert memory.read("plan", session_id="s1", now=NIGHT) == ("long_term", "Anna wants the invoice by mail.")
    assert done(memory, NIGHT) == (0, 0, 0)
    assert memory.session("s1").short_term.keys(now=NOON) == []
    assert list(Path(root, "sessions", "saved").glob("*.json")) == []
    assert contents(Memory(root, user_id="ben")) == contents(Memory(root)) == set()


@pytest.mark.usefixtures("database")
def test_what_is_left_in_the_store_is_counted(root: str) -> None:
    memory = Memory(root, user_id="anna")
    stored(memory, "plan", "Anna wants the invoice by mail.", 3)
    stored(memory, "idle", "Zoë", 0)  # 6 bytes as JSON
    Memory(root, workspace_id="corp", agent_id="other").pool("board").write("k", "four", now=NOON)  # {"k":"four"}
    assert promote(memory.lake, SOON) == Promotion(left_entries=3, left_bytes=51)
    assert promote(memory.lake, NIGHT) == Promotion(promoted=1, expired=1, left_entries=1, left_bytes=12)


@pytest.mark.usefixtures("database")
def test_expired_entries_that_were_used_are_promoted_too(root: str) -> None:
    memory = Memory(root)
    stored(memory, "plan", "The office moves in May.", 3, "reflection")
    assert done(memory, NIGHT) == (1, 0, 0)
    assert contents(memory) == {("reflection", "The office moves in May.")}


@pytest.mark.usefixtures("database")
def test_a_kill_between_the_stores_loses_and_doubles_nothing(root: str) -> None:
    memory = Memory(root, user_id="anna")
    stored(memory, "plan", "Anna wants the invoice by mail.", 4)
    stored(memory, "tea", "Anna drinks green tea.", 4)
    url = os.environ.get("MEMORY_PIPELINE_SESSIONS")
    process = PROCESSES.Process(target=promote_and_die, args=(root, url, NIGHT.isoformat()))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(memory.session("s1").short_term.keys(now=NOON)) == 2
    assert len(contents(memory)) == 2
    memory.run(now=NIGHT)  # what was promoted is in the tables now; the entries are promoted again
    memory.run(now=NIGHT + timedelta(days=1))
    found = memory.reader.memories.list()
    assert sorted((each.content, each.version) for each in found) == [
        ("Anna drinks green tea.", 1),
        ("Anna wants the invoice by mail.", 1),
    ]
    assert memory.session("s1").short_term.keys(now=NOON) == []
    assert done(memory, NIGHT + timedelta(days=2)) == (0, 0, 0)


@pytest.mark.parametrize("value", [{"a": 1}, [1, "two"], 0, False, 2.5, "text"])
@pytest.mark.parametrize("key", ["plan", "k" * 256])
def test_a_promoted_value_is_read_as_it_was_stored(root: str, key: str, value: object) -> None:
    memory = Memory(root)
    stored(memory, key, value, 3)
    assert done(memory, NIGHT) == (1, 0, 0)
    assert memory.read(key, session_id="s1", now=NIGHT) == ("long_term", value)


def test_an_entry_that_changes_during_its_promotion_stays(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    memory = Memory(root)
    stored(memory, "plan", "The office moves in May.", 3)
    delete = SessionStore.delete

    def late(store: SessionStore, entries: Iterable[Any], *, changed: bool = True) -> int:
        memory.session("s1").short_term.store("plan", "The office moves in June.", now=NIGHT)
        return delete(store, entries, changed=changed)

    with monkeypatch.context() as patch:
        patch.setattr(SessionStore, "delete", late)
        assert promote(memory.lake, NIGHT).promoted == 0
    assert memory.session("s1").short_term.retrieve("plan", now=NIGHT) == "The office moves in June."


def test_what_durable_memory_refuses_stays_and_is_named(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    memory = Memory(root, user_id="anna")
    stored(memory, "long", "x" * 30_000, 3)
    stored(memory, "plan", "The office moves in May.", 3)
    assert done(memory, SOON) == (0, 0, 0)
    for promoted in (1, 0):
        [found] = [one for one in memory.run(now=NIGHT) if isinstance(one, Promotion)]
        [reason] = found.reasons
        assert (found.promoted, found.refused, found.left_entries) == (promoted, 1, 1)
        assert [part in reason for part in ("'long' of session 's1'", "20,000", "xxx")] == [True, True, False]
    assert "20,000" in caplog.text
    memory.session("s1").short_term.remove("long")
    assert done(memory, NIGHT) == (0, 0, 0)


def test_a_lake_without_sessions_costs_nothing_and_one_elsewhere_is_not_missed(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    memory = Memory(root)
    memory.add("I moved to Porto.", now=NOON)
    assert done(memory, NIGHT) == (0, 0, 0)
    assert not Path(root, "sessions").exists()
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", f"sqlite:///{tmp_path}/sessions.db")
    assert done(memory, NIGHT) == (0, 0, 0)
    memory.session("s1").store("k", 1, now=NOON)
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS")
    with pytest.raises(ConfigurationError, match="MEMORY_PIPELINE_SESSIONS"):
        promote(memory.lake, NIGHT)
    with pytest.raises(ConfigurationError, match="MEMORY_PIPELINE_SESSIONS"):
        memory.run(now=NIGHT)
    assert not memory.lake.journal.pending()  # all else was processed


def test_a_run_processes_the_lake_although_the_database_is_down(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(root)
    monkeypatch.setenv("MEMORY_PIPELINE_SESSIONS", "postgresql://user:hidden@127.0.0.1:1/db")
    memory.lake.ensure()
    memory.lake.storage.write("state/sessions.json", b'{"database": "postgresql://127.0.0.1:1/db"}')
    memory.add("I moved to Porto.", now=NOON)
    with pytest.raises(LakeError, match="127"):
        memory.run(now=NIGHT)
    assert not memory.lake.journal.pending()

"""The commands `sessions …`."""

from __future__ import annotations

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.sessions.conftest import database, postgresql_url

__all__ = ["database", "postgresql_url"]

A = ["--workspace", "acme", "--agent", "support"]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, root: str) -> Memory:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    memory = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    session = memory.session("s1")
    session.store("step", 3)
    session.scratch_pad.append("a note")
    session.short_term.store("topic", "chairs")
    memory.pool("board").write("k", 1)
    Memory(root, workspace_id="acme", agent_id="other").session("s9").store("secret", 1)
    return memory


def test_sessions_are_listed_shown_and_cleared(memory: Memory) -> None:
    assert [(row["kind"], row["name"], row["identity"], row["entries"]) for row in read("sessions", "list", *A)] == [
        ("pool", "board", "user:anna", 1),
        ("short_term", "s1", "user:anna", 1),
        ("value", "s1", "user:anna", 2),
    ]
    assert "s9" not in call("sessions", "list", *A).stdout
    user = ["--user", "anna"]
    values = {(row["part"], row["key"]): row["value"] for row in read("sessions", "show", "s1", *A, *user)}
    assert values == {
        ("value", "step"): 3,
        ("scratch_pad", "scratch_pad"): ["a note"],
        ("short_term", "topic"): "chairs",
    }
    assert "a note" in call("sessions", "show", "s1", *A, *user).stdout
    assert "no such session" in call("sessions", "show", "s1", *A).stderr
    assert read("sessions", "clear", "s1", *A) == {"deleted": 0}
    assert read("sessions", "clear", "s1", *A, *user) == {"deleted": 3}
    assert memory.session("s1").retrieve("step") is None
    assert memory.pool("board").read("k") == 1


@pytest.mark.usefixtures("database")
def test_stats_count_the_entries_of_each_agent_and_user(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    monkeypatch.setenv("MEMORY_PIPELINE_AGENT", "ignored")
    anna = Memory(root, workspace_id="acme", agent_id="support", user_id="anna")
    anna.session("s1").store("name", "Zoë")  # 6 bytes as JSON
    anna.session("s2").short_term.store("topic", "chairs")  # 8 bytes
    for _ in range(2):
        anna.session("s2").short_term.retrieve("topic")
    anna.pool("board").write("k", 1)
    Memory(root, workspace_id="acme", agent_id="sales").session("s1").store("text", "x" * 98)
    Memory(root, workspace_id="corp", agent_id="sales").session("s1").store("k", None)

    def counts(*options: str) -> tuple[list[int], list[list[object]]]:
        [one] = read("sessions", "stats", *options)
        names = ["entries", "bytes", "accesses"]
        owner = ["workspace_id", "agent_id", "identity"]
        return [one[name] for name in names], [[row[name] for name in owner + names] for row in one["users"]]

    sales, support = ["acme", "sales", "", 1, 100, 0], ["acme", "support", "user:anna", 2, 14, 2]
    pools = ["acme", "", "user:anna", 1, 7, 0]
    assert counts() == ([5, 125, 2], [sales, support, pools, ["corp", "sales", "", 1, 4, 0]])
    assert counts("--workspace", "acme") == ([4, 121, 2], [sales, support, pools])
    assert counts("--workspace", "acme", "--agent", "support") == ([2, 14, 2], [support])
    assert counts("--limit", "1") == ([5, 125, 2], [sales])
    assert counts("--workspace", "nobody") == ([0, 0, 0], [])
    listed = read("sessions", "list", "--workspace", "acme", "--agent", "sales")
    assert [(row["entries"], row["bytes"]) for row in listed if row["kind"] == "value"] == [(1, 100)]


def test_stats_for_people_say_where_the_entries_are_and_whether_rows_are_missing(memory: Memory) -> None:
    every = call("sessions", "stats")
    assert "sessions.db: entries 5, bytes " in every.stdout
    assert "user:anna" in every.stdout
    assert every.stderr == ""
    assert "--limit" in call("sessions", "stats", "--limit", "1").stderr
    assert isinstance(call("sessions", "stats", "--agent", "support").exception, InputError)
    assert call("sessions", "stats", "--limit", "0").exit_code == 2


def test_a_lake_without_sessions_has_none(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    Memory(root).add("Hello, I live in Porto.")
    assert "no sessions" in call("sessions", "list").stderr
    assert "no sessions" in call("sessions", "stats").stderr
    assert read("sessions", "stats") == []

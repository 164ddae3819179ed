"""The commands `sessions …`."""

from __future__ import annotations

import pytest

from memory_pipeline import Memory
from memory_pipeline_tests.invoking import call, read

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


def test_a_lake_without_sessions_has_none(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    Memory(root).add("Hello, I live in Porto.")
    assert "no sessions" in call("sessions", "list").stderr

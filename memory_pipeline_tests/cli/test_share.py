"""The commands `share`, `unshare`, `shares` and `team`."""

from __future__ import annotations

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.users import OF_AGENT, write_users

A = ["--workspace", "acme", "--agent", "support"]


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    write_users(root)


def reads(root: str, user: str | None = None) -> list[str] | None:
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support", user_id=user, on_behalf_of="sales")
    try:
        return [hit.content for hit in reader.newest("working", 50)]
    except AccessDeniedError:
        return None


def test_an_agent_shares_its_memory_and_takes_it_back(root: str) -> None:
    assert reads(root) is None
    assert "sales has access to the memory of acme/support" in call("share", "sales", *A).stdout
    assert any(OF_AGENT in text for text in reads(root) or ())
    [row] = read("shares", *A)
    assert (row["to_agent"], row["level"]) == ("sales", "read")
    assert read("unshare", "sales", *A)["had_access"]
    assert reads(root) is None
    assert "had no grant" in call("unshare", "sales", *A).stdout
    assert [row["access"] for row in read("shares", *A, "--history")] == ["grant", "revoke"]
    assert "revoke" in call("shares", *A, "--history").stdout
    assert "nobody" in call("shares", *A).stderr


def test_the_memory_of_a_user_is_shared_by_name(root: str) -> None:
    call("share", "sales", *A, "--user", "anna")
    assert reads(root) is None
    assert len(reads(root, "anna") or ()) > 0
    assert reads(root, "ben") is None
    assert read("shares", *A) == []
    assert len(read("shares", *A, "--user", "anna")) == 1


def test_a_team_gets_what_is_shared_with_it(root: str) -> None:
    call("share", "--team", "office", *A)
    call("team", "add", "office", "sales", *A)
    assert reads(root)
    assert read("team", "remove", "office", "sales", *A)["was_member"]
    assert reads(root) is None
    assert "not a member" in call("team", "remove", "office", "sales", *A).stdout


def test_a_context_is_shared_alone(root: str) -> None:
    support = Memory(root, workspace_id="acme", agent_id="support")
    support.contexts.create("runbooks")
    shared = read("share", "sales", "--context", "runbooks", *A)
    assert shared["context"] == "runbooks"
    assert reads(root) is None
    assert [row["context"] for row in read("shares", "--context", "runbooks", *A)] == ["runbooks"]
    sales = Memory(root, workspace_id="acme", agent_id="sales").of_agent("support")
    assert sales.contexts.entries("runbooks") == []
    assert isinstance(call("share", "sales", "--context", "runbook", *A).exception, InputError)
    assert read("unshare", "sales", "--context", "runbooks", *A)["had_access"]
    assert read("shares", *A) == []


@pytest.mark.parametrize("given", [[], ["support"], ["sales", "--team", "office"]])
def test_an_invalid_receiver_is_refused(given: list[str]) -> None:
    assert isinstance(call("share", *given, *A).exception, InputError)

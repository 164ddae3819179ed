"""The commands `share`, `unshare`, `shares` and `team`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import ACCESS_LOG
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.users import IN_GROUP, OF_AGENT, pins_in, write_users

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

A = ["--workspace", "acme", "--agent", "support"]
FOR_SALES = [*A, "--on-behalf-of", "sales"]


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch, shared_folder: SharedFolder, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    users = shared_folder("cli-users-shared", lambda folder: write_users(str(folder / "lake")))
    shutil.copytree(users / "lake", root)


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
    assert "had no such grant" in call("unshare", "sales", *A).stdout
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
    assert read("unshare", "sales", *A) | {"left": ["context runbooks"]} == read("unshare", "sales", *A)
    assert read("unshare", "sales", "--context", "runbooks", *A) == {
        "to": "sales", "team": None, "context": "runbooks", "had_access": True, "left": [],
    }  # fmt: skip
    assert read("shares", *A) == []


@pytest.mark.parametrize("given", [[], ["support"], ["sales", "--team", "office"]])
def test_an_invalid_receiver_is_refused(given: list[str]) -> None:
    assert isinstance(call("share", *given, *A).exception, InputError)


def log(root: str) -> list[dict[str, Any]]:
    lake = Lake(root)
    lake.access_log.settle(datetime.now(UTC))
    return sorted(lake.tables.read(ACCESS_LOG).to_pylist(), key=lambda row: str(row["called_at"]))


#: Runs commands one after another, each of which must end with the given exit code.
SCRIPT = """
import json, sys
from memory_pipeline.cli import main

typed, expected = json.loads(sys.argv[1]), int(sys.argv[2])
for sys.argv[1:] in typed:
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    assert code == expected, sys.argv
"""


def test_commands_read_for_another_agent_under_a_grant_and_are_logged(root: str) -> None:
    commands = {
        "search_memory": ["search", "office", "--now", "2024-01-16"],
        "recall": ["recall", "When does the office open?", "--now", "2024-01-16"],
        "inject_knowledge": ["inject", "When does the office open?", "--now", "2024-01-16"],
        "memories.list": ["memories", "list"],
        "memories.search": ["memories", "search", "office"],
        "graph.query": ["graph", "query", "SELECT count(*) FROM facts"],
    }

    def in_one_process(code: int) -> subprocess.CompletedProcess[str]:
        typed = json.dumps([[*command, *FOR_SALES] for command in commands.values()])
        script = [sys.executable, "-c", SCRIPT, typed, str(code)]
        return subprocess.run(script, capture_output=True, text=True, check=True)

    denied = in_one_process(2)
    assert denied.stdout == ""
    assert denied.stderr.count("'sales' may not read") == len(commands)
    call("share", "sales", *A)
    in_one_process(0)
    assert [(row["asking_agent"], row["operation"], row["outcome"]) for row in log(root)] == [
        ("sales", operation, outcome) for outcome in ("denied", "ok") for operation in commands
    ]


def test_a_grant_opens_the_memory_of_the_named_user_alone(root: str) -> None:
    search = ["search", "--grain", "working", "--now", "2024-01-16", "--max-results", "50", *FOR_SALES]
    call("share", "sales", *A, "--user", "anna")
    found = call(*search, "--user", "anna").output
    assert pins_in(found) == {"anna"}
    assert OF_AGENT not in found
    assert IN_GROUP not in found
    assert isinstance(call(*search, "--user", "ben").exception, AccessDeniedError)
    assert isinstance(call(*search).exception, AccessDeniedError)
    call("unshare", "sales", *A, "--user", "anna")
    assert isinstance(call(*search, "--user", "anna").exception, AccessDeniedError)


def test_another_agent_needs_a_grant_for_preferences() -> None:
    prefer, preferences = ["memories", "prefer", "anna", "tea", "green"], ["memories", "preferences", "anna"]
    assert isinstance(call(*prefer, *FOR_SALES).exception, AccessDeniedError)
    call("share", "sales", *A, "--user", "anna", "--level", "write")
    call(*prefer, *FOR_SALES)
    assert read(*preferences, *A) == read(*preferences, *FOR_SALES) == {"tea": "green"}
    call("unshare", "sales", *A, "--user", "anna")
    assert isinstance(call(*preferences, *FOR_SALES).exception, AccessDeniedError)


def test_reading_for_the_agent_itself_needs_no_grant(root: str) -> None:
    assert OF_AGENT in call("search", "--now", "2024-01-16", *A, "--on-behalf-of", "support").output
    assert log(root) == []


def test_an_operator_lists_all_users_for_no_agent() -> None:
    assert isinstance(call("search", "--all-users", *FOR_SALES).exception, InputError)
    assert call("mcp", *FOR_SALES).exit_code == 2

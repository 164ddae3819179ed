"""The commands `contexts …`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline_tests.invoking import call, read

A = ["--workspace", "acme", "--agent", "support"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)


def started(*arguments: str) -> Any:
    """Run a command of the group in a new interpreter; return its JSON."""
    command = [sys.executable, "-m", "memory_pipeline.cli", "contexts", *arguments, *A, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def runbooks() -> str:
    """A context with one entry and a snapshot of it."""
    read("contexts", "create", "runbooks", *A, "--type", "knowledge_base", "--now", "2024-01-15")
    put = read("contexts", "put", "runbooks", "retry", "Pause before a retry.", *A, "--now", "2024-01-16")
    read("contexts", "snapshot", "runbooks", "january", *A, "--now", "2024-01-17")
    return str(put["id"])


def test_every_command_has_help() -> None:
    for command in "list create put get remove entries search snapshot snapshots restore archive unarchive".split():
        assert command in call("contexts", "--help").output
        assert "--workspace" in call("contexts", command, "--help").output


def test_a_context_is_filled_and_restored_by_separate_processes() -> None:
    def here(*arguments: str) -> Any:
        return read("contexts", *arguments, *A)

    made = here("create", "runbooks", "--type", "knowledge_base", "--description", "What to do.")
    assert (made["name"], made["type"], made["description"]) == ("runbooks", "knowledge_base", "What to do.")
    first = here("put", "runbooks", "retry", "Pause before a retry.", "--value", '{"pause": 60}')
    assert here("snapshot", "runbooks", "january")["label"] == "january"
    assert list(here("snapshots", "runbooks")) == ["january"]
    assert started("put", "runbooks", "retry", "Never retry.") == first
    here("put", "runbooks", "night", "Do not call at night.")
    assert here("get", "runbooks", "retry")["content"] == "Never retry."
    assert started("restore", "runbooks", "january") == {"restored": 2}
    found = here("get", "runbooks", "retry")
    assert (found["content"], json.loads(found["value"]), found["version"]) == (
        "Pause before a retry.",
        {"pause": 60},
        3,
    )


def test_text_for_people(runbooks: str) -> None:
    assert call("contexts", "get", "runbooks", "retry", *A).output == "Pause before a retry.\n"
    [_, _, row] = call("contexts", "list", *A).output.splitlines()
    assert row.split()[:5] == ["runbooks", "knowledge_base", "agent", "False", "2024-01-15"]
    assert call("contexts", "snapshots", "runbooks", *A).output == "2024-01-17 00:00  january\n"
    read("contexts", "create", "empty", *A)
    assert call("contexts", "snapshots", "empty", *A).output == "it has no snapshots\n"
    assert call("contexts", "list", "--workspace", "other").output == "there are no contexts\n"
    assert call("contexts", "entries", "runbooks", *A).output == "retry: Pause before a retry.\n"
    assert call("contexts", "entries", "empty", *A).output == "there are no such entries\n"
    assert call("contexts", "search", "runbooks", "When to retry?", *A).output == "retry: Pause before a retry.\n"
    assert call("contexts", "remove", "runbooks", "retry", *A).output == "removed\n"
    assert call("contexts", "remove", "runbooks", "retry", *A).output == "there was no such entry\n"


def test_filters_find_the_entries_alone(runbooks: str) -> None:
    read("memories", "remember", "A retry costs a minute.", *A)
    added = read("memories", "remember", "Say why you retry.", *A, "--context", "runbooks")["id"]
    keyed = read("memories", "remember", "Pause twice.", *A, "--context", "runbooks", "--key", "retry")["id"]
    assert keyed == runbooks
    entries = {runbooks, added}
    assert {one["id"] for one in read("memories", "list", *A, "--context", "runbooks")} == entries
    found = read("memories", "search", "retry", *A, "--context", "runbooks")
    assert {one["memory"]["id"] for one in found} == entries
    assert read("contexts", "get", "runbooks", "retry", *A)["content"] == "Pause twice."


def test_entries_of_an_archived_context_are_found_in_the_archive(runbooks: str) -> None:
    search = ["memories", "search", "retry", *A, "--context", "runbooks"]
    assert call("contexts", "archive", "runbooks", *A).output == "archived: 1 entry\n"
    assert read(*search) == []
    assert [one["memory"]["id"] for one in read(*search, "--archive")] == [runbooks]
    assert read("contexts", "list", *A)[0]["is_archived"]
    assert isinstance(call("contexts", "put", "runbooks", "a", "b", *A).exception, InputError)
    assert read("contexts", "unarchive", "runbooks", *A) == {"unarchived": 1}
    assert [one["memory"]["id"] for one in read(*search)] == [runbooks]


def test_a_context_of_a_user_is_apart(runbooks: str) -> None:
    assert read("contexts", "list", *A, "--user", "anna") == []
    read("contexts", "create", "trip", *A, "--user", "anna")
    read("contexts", "put", "trip", "hotel", "By the harbour.", *A, "--user", "anna")
    assert [one["name"] for one in read("contexts", "list", *A)] == ["runbooks"]
    assert isinstance(call("contexts", "get", "trip", "hotel", *A).exception, InputError)


def test_another_agent_needs_a_grant_until_it_is_revoked(runbooks: str) -> None:
    put = ["contexts", "put", "runbooks", "night", "Do not call.", *A, "--on-behalf-of", "sales"]
    assert isinstance(call(*put).exception, AccessDeniedError)
    call("share", "sales", *A, "--level", "write")
    entry = read("memories", "show", str(read(*put)["id"]), *A)
    assert (entry["editor"], entry["context"]) == ("agent:sales", "runbooks")
    call("unshare", "sales", *A)
    assert isinstance(call(*put).exception, AccessDeniedError)
    call("share", "sales", *A, "--context", "runbooks")
    assert isinstance(call(*put).exception, AccessDeniedError)
    for command in (["entries", "runbooks"], ["search", "runbooks", "night"], ["get", "runbooks", "retry"]):
        assert read("contexts", *command, *A, "--on-behalf-of", "sales"), command
        assert isinstance(call("contexts", *command, *A, "--on-behalf-of", "support2").exception, AccessDeniedError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "contexts"], "'contexts' is reserved"),
        (["create", "runbooks"], "has the type knowledge_base, not agent_memory"),
        (["put", "nowhere", "k", "text"], "context 'nowhere' is unknown; create it first"),
        (["put", "runbooks", "k", " "], "content ' ' is not accepted"),
        (["get", "runbooks", "none"], "context 'runbooks' has no entry 'none'"),
        (["snapshot", "nowhere", "january"], "context 'nowhere' is unknown"),
        (["snapshots", "nowhere"], "context 'nowhere' is unknown"),
        (["restore", "runbooks", "may"], "has no snapshot 'may'; it has: january"),
        (["archive", "nowhere"], "context 'nowhere' is unknown"),
        (["unarchive", "nowhere"], "context 'nowhere' is unknown"),
    ],
)
def test_errors_name_the_value(runbooks: str, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        raise call("contexts", *arguments, *A).exception or AssertionError


@pytest.mark.parametrize(
    "command",
    [["list"], ["get", "a", "b"], ["snapshots", "a"], ["restore", "a", "b"], ["put", "a", "b", "c"]],
    ids=lambda words: words[0],
)
def test_only_create_makes_a_lake(root: str, command: list[str]) -> None:
    with pytest.raises(InputError, match="there is no memory lake at"):
        raise call("contexts", *command, *A, "--user", "anna").exception or AssertionError
    assert not Lake(root).exists


def test_stored_text_cannot_steer_the_terminal() -> None:
    name = "a\u202eb\x1b[31m"
    for command in (["create", name], ["put", name, "k", "\x1b[2Jtext"], ["snapshot", name, "x\u202ey"]):
        assert not {"\u202e", "\x1b"} & set(call("contexts", *command, *A).output)
    for command in (["list"], ["get", name, "k"], ["snapshots", name]):
        assert not {"\u202e", "\x1b"} & set(call("contexts", *command, *A).output)

"""The option --user of all commands, and the commands `agents`, `users` and `members`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from memory_pipeline.cli import cli
from memory_pipeline.errors import InputError
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.building import run
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.users import EVERYBODY, GROUP, IN_GROUP, LATER, OF_AGENT, PINS, STRANGER, is_for, write_users

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

SCOPE = ["--workspace", "acme", "--agent", "support"]
NOW = ["--now", LATER.isoformat()]
#: Commands that read memory, with --now where they have it.
READING = [
    ["search", "PIN of the safe", *NOW],
    ["search", *NOW],
    ["recall", "What is the PIN?", *NOW],
    ["inject", "What is the PIN?", *NOW],
    ["memories", "list", *NOW],
    ["memories", "search", "PIN of the safe", *NOW],
    ["graph", "query", "SELECT * FROM history"],
]
#: Commands that read or write no memory of one user.
WITHOUT = {
    "config", "consolidate", "convert locomo", "users", "members remove", "forget", "team add", "team remove",
    "sessions list", "sessions stats", "serve",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)


@pytest.fixture(params=["pending", "processed"])
def users(root: str, shared_folder: SharedFolder, request: pytest.FixtureRequest) -> None:
    def fill(folder: Path) -> None:
        lake = write_users(str(folder / "lake"))
        if request.param == "processed":
            run(lake, default_models())

    shutil.copytree(shared_folder(f"cli-users-{request.param}", fill) / "lake", root)


def for_user(user: str | None) -> list[str]:
    return SCOPE if user is None else [*SCOPE, "--user", user]


def test_every_command_about_the_memory_of_an_agent_takes_a_user() -> None:
    def commands(name: str, one: click.Command) -> Iterator[tuple[str, click.Command]]:
        if isinstance(one, click.Group):
            for part, each in one.commands.items():
                yield from commands(f"{name} {part}".strip(), each)
        else:
            yield name, one

    options = {name: {option.name for option in one.params} for name, one in commands("", cli)}
    assert {name for name, names in options.items() if "agent_id" in names and "user_id" not in names} <= WITHOUT


@pytest.mark.parametrize("users", ["processed"], indirect=True)
@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:2]))
@pytest.mark.usefixtures("users")
def test_a_user_is_shown_the_own_pin_and_no_other(command: list[str]) -> None:
    found = {user: call(*command, *for_user(user)) for user in (None, *EVERYBODY)}
    if command[0] == "graph":  # a PIN is no fact of the graph
        assert "Oslo" in found["ben"].stdout
        assert not any("Oslo" in found[user].stdout for user in (None, "anna", "cleo", STRANGER))
        return
    assert all(is_for(user, [result.stdout]) for user, result in found.items())


@pytest.mark.usefixtures("users")
def test_the_group_is_seen_by_its_members_and_the_agents_own_memory_by_all() -> None:
    for user in (None, *EVERYBODY):
        found = " ".join(hit["content"] for hit in read("search", *NOW, *for_user(user))["hits"])
        assert OF_AGENT in found
        assert (IN_GROUP in found) == (user in GROUP)


@pytest.mark.parametrize("users", ["processed"], indirect=True)
@pytest.mark.usefixtures("users")
def test_an_id_of_another_user_finds_nothing() -> None:
    [memory] = [one for one in read("memories", "list", *for_user("anna")) if "safe" in one["content"]]
    [hit] = [one for one in read("search", *NOW, *for_user("anna"))["hits"] if "Porto" in one["content"]]
    assert "1111" in call("memories", "show", memory["id"], *for_user("anna")).stdout
    for user in (None, "ben", STRANGER):
        for command in (
            ["memories", "show", memory["id"]],
            ["expand", hit["id"]],
            ["memories", "forget", memory["id"]],
        ):
            result = call(*command, *for_user(user))
            assert isinstance(result.exception, InputError)
            assert "1111" not in result.output
    assert memory["id"] in {one["id"] for one in read("memories", "list", *for_user("anna"))}


@pytest.mark.usefixtures("users")
def test_a_change_for_a_user_is_seen_by_that_user_alone() -> None:
    read("memories", "remember", "Never call before ten.", "--kind", "rule", *NOW, *for_user("ben"))
    read("graph", "insert", "Ben", "likes", "tea", *NOW, *for_user("ben"))
    read("memories", "prefer", "ben", "language", "Norwegian", *NOW, *SCOPE)
    for user in (None, *EVERYBODY):
        contents = {one["content"] for one in read("memories", "list", *for_user(user))}
        assert ("Never call before ten." in contents) == (user == "ben")
        assert bool(read("graph", "facts", "ben", *for_user(user))["facts"]) == (user == "ben")
        assert any("Norwegian" in text for text in contents) == (user == "ben")
    assert read("memories", "preferences", "ben", *SCOPE) == {"language": "Norwegian"}
    listed = read("memories", "list", "--preferences-of", "ben", *for_user("ben"))
    assert [one["key"] for one in listed] == ["language"]


@pytest.mark.parametrize("users", ["pending"], indirect=True)
@pytest.mark.usefixtures("users")
def test_ingest_gives_conversations_without_a_user_to_the_user(tmp_path: Path) -> None:
    def talk(number: int, **audience: Any) -> dict[str, Any]:
        message = {"role": "user", "content": f"Note {number}.", "timestamp": f"2024-01-15T10:0{number}:00Z"}
        return {"conversation_id": f"c{number}", "messages": [message], **audience}

    speaker = talk(4)
    speaker["messages"][0]["user_id"] = "ben"
    file = tmp_path / "talks.jsonl"
    talks = [talk(1), talk(2, user_id="ben"), talk(3, users=["ben", "cleo"]), speaker]
    file.write_text("\n".join(map(json.dumps, talks)))
    assert read("ingest", str(file), *for_user("anna"))[str(file)]["accepted"] == 4
    notes = {
        user: {hit["content"][-2] for hit in read("search", *NOW, *for_user(user))["hits"] if "Note" in hit["content"]}
        for user in (None, *EVERYBODY)
    }
    assert notes == {None: set(), "anna": {"1"}, "ben": {"2", "3", "4"}, "cleo": {"3"}, STRANGER: set()}


@pytest.mark.usefixtures("users")
def test_a_change_for_a_group_is_seen_by_its_members_alone(tmp_path: Path) -> None:
    read("memories", "remember", "The boat is sold.", "--group", "team", *NOW, *SCOPE)
    read("graph", "insert", "Boat", "owned_by", "Cleo", "--users", "ben", "--users", "cleo", *NOW, *SCOPE)
    message = {"role": "user", "content": "We meet on Friday.", "timestamp": "2024-01-15T10:00:00Z"}
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"conversation_id": "c9", "messages": [message]}))
    read("ingest", str(file), "--users", "anna", "--users", "cleo", "--group", "crew", *SCOPE)
    seen = {
        user: (
            "The boat is sold." in {one["content"] for one in read("memories", "list", *for_user(user))},
            bool(read("graph", "facts", "boat", *for_user(user))["facts"]),
            "We meet on Friday." in call("search", "Friday", *NOW, *for_user(user)).stdout,
        )
        for user in (None, *EVERYBODY)
    }
    assert seen == {
        None: (False, False, False), "anna": (True, False, True), "ben": (True, True, False),
        "cleo": (False, True, True), STRANGER: (False, False, False),
    }  # fmt: skip
    groups = {one["group"]: one["users"] for one in read("users", *SCOPE)["groups"]}
    assert groups["group:team"] == ["anna", "ben"]
    assert groups["group:crew"] == ["anna", "cleo"]
    [memory] = [one for one in read("memories", "list", *for_user("anna")) if "sold" in one["content"]]
    assert read("memories", "forget", memory["id"], "--group", "group:team", *NOW, *SCOPE) == {"forgotten": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--group", "nobody"], "--group 'nobody' has no members yet; name them with --users"),
        (["--users", "anna,ben"], "--users 'anna,ben' is one user; repeat --users for each member"),
        (["--user", "anna", "--users", "ben", "--users", "cleo"], "user_id 'anna' and users are both given"),
    ],
)
@pytest.mark.parametrize("users", ["pending"], indirect=True)
@pytest.mark.usefixtures("users")
def test_a_group_needs_its_members(options: list[str], message: str) -> None:
    result = call("memories", "remember", "Tea is at four.", *options, *SCOPE)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


@pytest.mark.usefixtures("users")
def test_agents_and_users_are_listed_with_their_activity() -> None:
    [agent] = read("agents")
    assert (agent["workspace_id"], agent["agent_id"]) == ("acme", "support")
    assert (agent["users"], agent["groups"]) == (len(PINS), 1)
    assert agent["first_at"].startswith("2024-01-15T08")
    listed = read("users", *SCOPE)
    assert [user["user_id"] for user in listed["users"]] == sorted(PINS)
    assert all(user["last_at"].startswith("2024-01-16T00") for user in listed["users"])
    [group] = listed["groups"]
    assert (group["group"], group["users"]) == ("group:team", list(GROUP))
    assert "support" in call("agents").stdout
    assert "anna, ben" in call("users", *SCOPE).stdout
    assert read("agents", "--workspace", "other") == []


@pytest.mark.usefixtures("users")
def test_a_removed_member_no_longer_sees_the_group() -> None:
    assert read("members", "remove", "ben", "--group", "group:team", *SCOPE) == {"users": ["anna"]}
    assert IN_GROUP not in call("search", *NOW, *for_user("ben")).stdout
    assert IN_GROUP in call("search", *NOW, *for_user("anna")).stdout
    again = call("members", "remove", "ben", "--group", "group:team", *SCOPE)
    assert "user 'ben' is not a member of 'group:team'; accepted: 'anna'" in str(again.exception)
    unknown = call("members", "remove", "ben", "--group", "user:ben", *SCOPE)
    assert "user 'ben' is not a member of 'group:user:ben'; it has no members" in str(unknown.exception)


@pytest.mark.usefixtures("users")
def test_an_operator_lists_the_entries_of_all_users() -> None:
    found = read("search", "PIN", "--all-users", *NOW, *SCOPE)
    assert {tuple(hit["users"]) for hit in found["hits"]} == {(user,) for user in PINS}
    assert "memory of anna, ben" in call("search", "boat", "--all-users", *NOW, *SCOPE).stdout
    refused = call("search", "--all-users", *for_user("anna"))
    assert "--user and --all-users do not go together" in str(refused.exception)


def test_the_sources_of_a_memory_name_its_user(root: str) -> None:
    run(write_users(root), default_models())
    for hit in read("search", *NOW, *for_user("anna"))["hits"]:
        first = call("expand", hit["id"], *for_user("anna")).stdout.splitlines()[0]
        assert first.endswith(f"(memory of {hit['identity']})" if hit["identity"] else hit["content"])

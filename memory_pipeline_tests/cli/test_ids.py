"""The ids of workspace, agent and user: from the environment, and by default those of `Memory`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline_tests.building import conversation
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.users import LATER, write_users

NOW = ["--now", LATER.isoformat()]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """The ids of a user, in the environment."""
    write_users(root)
    for name, value in (("WORKSPACE", "acme"), ("AGENT", "support"), ("USER", "anna")):
        monkeypatch.setenv(f"MEMORY_PIPELINE_{name}", value)


def contents(*options: str) -> set[str]:
    return {one["content"] for one in read("memories", "list", *options)}


def test_without_ids_the_command_line_and_memory_share_an_agent(root: str, tmp_path: Path) -> None:
    Memory(root).add("I moved to Porto.", now=LATER)
    [hit] = read("search", "Porto", *NOW)["hits"]
    assert hit["content"] == "User: I moved to Porto."
    talk = conversation("I like tea.")
    del talk["workspace_id"], talk["agent_id"]
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(talk), encoding="utf-8")
    assert read("ingest", str(file))[str(file)]["accepted"] == 1
    read("memories", "remember", "Anna likes green tea.", *NOW)
    assert [hit.content for hit in Memory(root).search("like tea", 1, sources="turns", now=LATER)] == [
        "Anna: I like tea."
    ]
    assert any("green" in one.content for one in Memory(root).reader.memories.list())
    [agent] = read("agents")
    assert (agent["workspace_id"], agent["agent_id"]) == ("default", "default")


@pytest.mark.usefixtures("ids")
def test_the_environment_names_them(tmp_path: Path) -> None:
    assert "1111" in call("search", "PIN", *NOW).stdout
    assert "2222" in call("search", "PIN", "--user", "ben", *NOW).stdout, "an option takes precedence"
    read("memories", "remember", "Never call before ten.", *NOW)
    assert "Never call before ten." in contents()
    assert "Never call before ten." not in contents("--user", "ben")
    talk = conversation("I like tea.")
    del talk["workspace_id"], talk["agent_id"]
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(talk), encoding="utf-8")
    read("ingest", str(file))
    assert "I like tea." in call("search", "tea", *NOW).stdout
    assert "I like tea." not in call("search", "tea", "--user", "ben", *NOW).stdout
    assert read("users")["groups"][0]["group"] == "group:team"
    assert read("search", "PIN", "--all-users", *NOW)["total"] == 3, "operators see all users nevertheless"
    assert "env var: MEMORY_PIPELINE_AGENT" in call("search", "--help").stdout


@pytest.mark.parametrize(
    "command",
    [
        ["memories", "forget", "--subject", "anna"],
        ["graph", "delete", "Anna", "likes", "tea"],
        ["members", "remove", "ben", "--group", "team"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_that_delete_do_not_take_the_default_agent(command: list[str]) -> None:
    result = call(*command, "--workspace", "default")
    assert result.exit_code == 2
    assert "Missing option '--agent' (env var: 'MEMORY_PIPELINE_AGENT')" in result.stderr


@pytest.mark.usefixtures("ids")
def test_what_is_erased_does_not_depend_on_the_environment() -> None:
    whole = call("forget", "--dry-run")
    assert isinstance(whole.exception, InputError)
    assert "no subject to erase is given" in str(whole.exception)
    assert read("forget", "--user", "ben", "--dry-run")["subject"].get("agent_id") is None, "of all agents"
    assert read("forget", "--agent", "support", "--dry-run")["subject"]["kind"] == "agent"
    one = read("forget", "--conversation", "default", "--dry-run")["subject"]
    assert (one["agent_id"], one.get("user_id")) == ("support", None)


@pytest.mark.usefixtures("ids")
def test_an_agent_of_the_environment_can_be_changed() -> None:
    assert read("memories", "forget", "--subject", "anna", *NOW) == {"forgotten": 1}
    assert read("members", "remove", "ben", "--group", "team") == {"users": ["anna"]}

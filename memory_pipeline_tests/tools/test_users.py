"""Tools for a user: they read and change the memory of the user of their reader, whatever a model or a client says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.store.base import InvalidNamespaceError

from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools import MemoryTools, memory_tools
from memory_pipeline.tools.langgraph import MemoryStore
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import NOW, run
from memory_pipeline_tests.tools.test_mcp import EVER, connected
from memory_pipeline_tests.users import (
    EVERYBODY,
    GROUP,
    IN_GROUP,
    LATER,
    OF_AGENT,
    PINS,
    STRANGER,
    is_for,
    lake_of,
    write_users,
)

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

AGENT = {"workspace_id": "acme", "agent_id": "support"}
#: Arguments with which a model may try to read another user's memory.
TRIES: list[dict[str, Any]] = [
    {"user_id": "ben"},
    {"user": "ben"},
    {"users": "all"},
    {"namespace": ["memories", "ben"]},
    {"scope": "user:ben"},
]


@pytest.fixture(scope="module")
def lake(shared_folder: SharedFolder) -> str:
    def fill(folder: Path) -> None:
        run(write_users(str(folder / "lake")), default_models())

    return str(shared_folder("tools-users", fill) / "lake")


@pytest.fixture
def changing(shared_folder: SharedFolder, root: str) -> str:
    users = shared_folder("tools-users-pending", lambda folder: write_users(str(folder / "lake")))
    return str(shutil.copytree(users / "lake", root))


def reader_for(root: str, user: str | None) -> MemoryReader:
    return MemoryReader.open(root, workspace_id="acme", agent_id="support", user_id=user)


def tools_for(root: str, user: str | None, *, is_writing: bool = False) -> MemoryTools:
    writer = MemoryWriter.open(root, **AGENT, user_id=user) if is_writing else None
    return memory_tools(reader_for(root, user), writer, now=LATER)


CALLS = [
    ("search_memories", {"query": "PIN of the safe"}),
    ("search_memories", {}),
    ("recall_memory", {"query": "What is the PIN?"}),
    ("search_memories", {"grain": "daily"}),
]


# Functions


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_functions_show_a_user_the_own_pin_and_no_other(lake: str, call: tuple[str, dict[str, Any]]) -> None:
    for user in (None, *EVERYBODY):
        tools = memory_tools(reader_for(lake, user), now=NOW if call[1].get("grain") else LATER)
        text = tools.call(call[0], {**call[1], **(EVER if call[0] == "search_memories" else {})})
        assert not text.startswith("Error")
        assert is_for(user, [text])


@pytest.mark.parametrize("extra", TRIES, ids=str)
def test_no_argument_of_a_model_changes_whose_memory_is_read(lake: str, extra: dict[str, Any]) -> None:
    tools = tools_for(lake, "anna")
    for one in tools.functions:
        properties = one["function"]["parameters"]["properties"]
        assert not {"user_id", "user", "users", "scope", "namespace", "agent_id", "workspace_id"} & properties.keys()
        answer = tools.call(one["function"]["name"], json.dumps(extra))
        assert answer.startswith("Error: argument")
        assert is_for(None, [answer])


def test_ids_of_another_user_are_unknown(lake: str) -> None:
    memory = next(one.id for one in reader_for(lake, "ben").memories.list() if "safe" in one.content)
    hit = next(one.id for one in reader_for(lake, "ben").search_memory(now=LATER) if "Oslo" in one.content)
    for identifier in (memory, hit):
        assert "2222" in tools_for(lake, "ben").call("get_memory", {"id": identifier})
        for user in (None, "anna", STRANGER):
            answer = tools_for(lake, user).call("get_memory", {"id": identifier})
            assert answer.startswith("Error")
            assert is_for(None, [answer])


def test_what_a_tool_remembers_is_seen_by_the_user_alone(changing: str) -> None:
    answer = tools_for(changing, "ben", is_writing=True).call("add_memory", {"text": "The alarm code is 9876."})
    assert answer.startswith("Remembered")
    for user in (None, *EVERYBODY):
        assert ("9876" in tools_for(changing, user).call("recall_memory", {"query": "alarm code"})) == (user == "ben")


def test_shared_memories_are_recalled_but_not_changed(changing: str) -> None:
    shared = MemoryWriter.open(changing, **AGENT).remember("The shop is closed on Mondays.", now=LATER)
    tools = tools_for(changing, "anna", is_writing=True)
    assert "closed on Mondays" in tools.call("recall_memory", {"query": "When is the shop closed?"})
    own = next(one for one in reader_for(changing, "anna").memories.list() if "safe" in one.content)
    tools.call("recall_memory", {"query": "PIN of the safe, shop closed on Mondays"})
    Lake(changing).access_log.settle()
    used = reader_for(changing, "anna").memories.get(own.id)
    assert used is not None
    assert used.access_count
    for name, arguments in (("update_memory", {"text": "It is open."}), ("delete_memory", {})):
        answer = tools.call(name, {"id": shared, **arguments})
        assert (
            answer == f"Error: memory {shared} is shared with others and can only be read; remember a new one instead"
        )


@pytest.mark.parametrize(("reads", "writes"), [("anna", None), (None, "anna"), ("anna", "ben")])
def test_reader_and_writer_of_different_users_are_refused(changing: str, reads: str | None, writes: str | None) -> None:
    with pytest.raises(InputError, match="open both for the same agent and user"):
        memory_tools(reader_for(changing, reads), MemoryWriter.open(changing, **AGENT, user_id=writes))


def test_users_of_one_memory_have_tools_too(root: str) -> None:
    lake_of(root, per_user=False)
    writer = MemoryWriter.open(root, **AGENT, user_id="anna")
    tools = memory_tools(reader_for(root, "anna"), writer, now=LATER)
    assert writer.scope.identity == ""
    assert tools.call("add_memory", {"text": "The alarm code is 9876."}).startswith("Remembered")


# MCP


def test_an_mcp_client_sees_the_memory_of_the_servers_user(lake: str) -> None:
    user = "anna"
    with connected(lake, "--user", user) as connection:
        texts = [
            connection.call("search_memories", {"query": "PIN of the safe", **EVER})[0],
            connection.call("search_memories", EVER)[0],
            connection.call("recall_memory", {"query": "What is the PIN?"})[0],
            connection.read("memory://summaries/daily/2024-01-15"),
        ]
        assert is_for(user, texts)
        assert OF_AGENT in texts[1]
        assert IN_GROUP in texts[1]
        for extra in TRIES:
            text, is_error = connection.call("search_memories", {"query": "PIN", **extra})
            assert is_error
            assert is_for(None, [text])
        listed = connection.portal.call(connection.client.list_resources).resources
        assert len({str(one.uri) for one in listed}) == len(listed)


def test_an_mcp_client_writes_to_the_memory_of_the_servers_user(changing: str) -> None:
    with connected(changing, "--user", "ben", "--allow-writing") as connection:
        text, is_error = connection.call("add_memory", {"text": "The alarm code is 9876."})
        assert not is_error, text
    for user in (None, *EVERYBODY):
        kept = [one.content for one in reader_for(changing, user).memories.list()]
        assert any("9876" in content for content in kept) == (user == "ben")


# LangGraph


@pytest.fixture(scope="module")
def store(lake: str) -> MemoryStore:
    return MemoryStore(reader_for(lake, None), now=lambda: NOW)


def contents(items: Any) -> list[str]:
    return [item.value["content"] for item in items]


def test_a_namespace_of_a_user_holds_what_the_user_sees(store: MemoryStore) -> None:
    for user in EVERYBODY:
        place = ("memories", user)
        assert is_for(user, contents(store.search(place, query="PIN of the safe", limit=50)))
        assert is_for(user, contents(store.search((*place, "working"), limit=50)))
        found = store.search((*place, "working"), limit=50)
        assert {item.namespace for item in found} == {(*place, "working")}
        assert any(IN_GROUP in content for content in contents(found)) == (user in GROUP)
        again = store.get(found[0].namespace, found[0].key)
        assert again is not None
        assert again.value == found[0].value
        assert (*place, "working") in store.list_namespaces(prefix=place)


def test_without_a_user_a_store_holds_the_agents_own_memory(store: MemoryStore) -> None:
    for place in ((), ("working",), ("durable",), ("daily",)):
        assert is_for(None, contents(store.search(place, limit=50)))
    assert OF_AGENT in " ".join(contents(store.search(("working",))))
    assert [store.search(place) for place in (("memories",), ("memories", "*"))] == [[], []]
    assert not any(name[0] == "memories" for name in store.list_namespaces())


def test_an_item_of_another_user_is_not_found(store: MemoryStore) -> None:
    own = store.search(("memories", "ben", "durable"), query="safe", limit=1)[0]
    assert own.value["content"].count(PINS["ben"])
    assert store.get(("memories", "anna", "durable"), own.key) is None
    assert store.get(("durable",), own.key) is None


def test_a_store_of_one_user_refuses_another(lake: str) -> None:
    store = MemoryStore(reader_for(lake, "anna"), now=lambda: NOW)
    assert is_for("anna", contents(store.search(("durable",), limit=50)))
    assert is_for("anna", contents(store.search(("memories", "anna"), limit=50)))
    with pytest.raises(InputError, match="this reader is for user 'anna', not 'ben'"):
        store.search(("memories", "ben"))
    with pytest.raises(InputError, match="this reader is for user 'anna', not 'ben'"):
        store.get(("memories", "ben", "durable"), "memory:2024-01-15T08:0")
    with pytest.raises(InvalidNamespaceError):
        store.search(("memories", "ben.memories"))

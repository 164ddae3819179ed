"""Agent B changes the memory of agent A: before, during and after grants of each level."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import ACCESS_LOG
from memory_pipeline.memories.contexts import Contexts
from memory_pipeline.memories.writer import MemoryEventWriter
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools import memory_tools
from memory_pipeline.writer import GrantedWriter, MemoryWriter
from memory_pipeline_tests.building import run
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models

SAID = "The vault was built by Doctor Silva."


def writer_of(root: str, agent: str, user_id: str | None = None) -> MemoryWriter:
    return MemoryWriter.open(root, workspace_id="acme", agent_id=agent, user_id=user_id)


def known(root: str, agent: str = "A", user_id: str | None = None) -> list[str]:
    reader = MemoryReader.open(root, workspace_id="acme", agent_id=agent, user_id=user_id)
    return sorted(memory.content for memory in reader.memories.list())


@pytest.fixture
def memory_id(root: str) -> str:
    """The id of a memory of agent A."""
    return writer_of(root, "A").remember(SAID)


def changes(memory_id: str) -> dict[str, Callable[[GrantedWriter], object]]:
    return {
        "remember": lambda writer: writer.remember("The vault is green."),
        "update": lambda writer: writer.update(memory_id, importance=0.9),
        "boost": lambda writer: writer.boost(memory_id),
        "reduce": lambda writer: writer.reduce(memory_id),
        "confirm": lambda writer: writer.confirm(memory_id),
        "touch": lambda writer: writer.touch([memory_id]),
        "set_preference": lambda writer: writer.set_preference("A", "tone", "short"),
        "delete_preference": lambda writer: writer.delete_preference("A", "tone"),
        "change_memories": lambda writer: writer.change_memories([{"memory": "REMEMBER", "content": "It has a door."}]),
        "link": lambda writer: writer.link(memory_id, writer.remember("The vault is cold."), "supports"),
        "unlink": lambda writer: writer.unlink(memory_id, writer.remember("The vault is cold."), "supports"),
        "contexts": lambda writer: writer.contexts.create("board"),
        "contexts: put": lambda writer: writer.contexts.put("board", "a", "The vault has a key."),
        "contexts: snapshot": lambda writer: [writer.contexts.snapshot("board", "first")],
        "contexts: remove": lambda writer: [writer.contexts.remove("board", "b")],
        "contexts: restore": lambda writer: [writer.contexts.restore("board", "first")],
        "contexts: archive": lambda writer: [writer.contexts.archive("board")],
        "contexts: unarchive": lambda writer: [writer.contexts.unarchive("board")],
        "contexts: delete": lambda writer: [writer.contexts.delete("board")],
        "forget": lambda writer: writer.forget(memory_id),
        "forget of nothing": lambda writer: [writer.forget(kind="plan")],
    }


#: These need the level read.
READS: dict[str, Callable[[GrantedWriter], object]] = {
    "contexts: list": lambda writer: [writer.contexts.list()],
    "contexts: get": lambda writer: writer.contexts.get("runbooks", "retry"),
    "contexts: entries": lambda writer: writer.contexts.entries("runbooks"),
    "contexts: search": lambda writer: writer.contexts.search("runbooks", "retry"),
    "contexts: snapshots": lambda writer: [writer.contexts.snapshots("runbooks")],
}


def share(writer: GrantedWriter) -> bool:
    writer.grant("C")
    return True


SHARES: dict[str, Callable[[GrantedWriter], object]] = {
    "grant": share,
    "accessible_by": lambda writer: [writer.accessible_by("C")],
    "grants": lambda writer: [writer.grants()],
    "access_history": lambda writer: [writer.access_history()],
    "revoke": lambda writer: [writer.revoke("C")],
}


def done(ways: dict[str, Callable[[GrantedWriter], object]], writer: GrantedWriter) -> set[bool]:
    found = set()
    for way in ways.values():
        try:
            found.add(bool(way(writer)))
        except AccessDeniedError:
            found.add(False)
    return found


def test_each_change_needs_its_level_at_each_call(root: str, memory_id: str) -> None:
    a, b = writer_of(root, "A"), writer_of(root, "B").of_agent("A")
    a.contexts.create("runbooks")
    a.contexts.put("runbooks", "retry", "Pause before a retry.")
    before = known(root)
    ways = changes(memory_id)
    assert done(READS, b) == done(ways, b) == done(SHARES, b) == {False}
    a.grant("B")
    assert (done(READS, b), done(ways, b), done(SHARES, b)) == ({True}, {False}, {False})
    assert known(root) == before
    a.grant("B", level="write")
    assert (done(ways, b), done(SHARES, b)) == ({True}, {False})
    a.grant("B", level="admin")
    assert done(SHARES, b) == {True}
    files = len(list(Path(root).rglob("*.jsonl")))
    assert a.revoke("B")
    assert done(READS, b) == done(ways, b) == done(SHARES, b) == {False}
    assert done({**READS, **ways}, writer_of(root, "C").of_agent("A")) == {False}
    assert len(list(Path(root).rglob("*.jsonl"))) == files


def test_every_public_method_of_contexts_is_tried() -> None:
    tried = {name.removeprefix("contexts: ") for name in {**READS, **changes("")} if name.startswith("contexts: ")}
    assert {name for name in dir(Contexts) if not name.startswith("_")} == {*tried, "create"}


def test_a_grant_of_a_context_opens_nothing_else(root: str, memory_id: str) -> None:
    a, b = (Memory(root, workspace_id="acme", agent_id=name) for name in "AB")
    for name in ("runbooks", "board"):
        a.contexts.create(name)
        a.contexts.put(name, "retry", f"Pause before a retry, says {name}.")
    shared = b.of_agent("A")
    with pytest.raises(
        InputError, match="no context of the agent itself is named 'runbook'; there is: 'board', 'runbooks'"
    ):
        a.grant("B", context="runbook")
    a.grant("B", context="runbooks", level="write")
    a.grant("*", context="board")
    assert [(one.context, one.to_agent, one.level) for one in a.grants()] == [
        ("board", "*", "read"), ("runbooks", "B", "write"),
    ]  # fmt: skip
    assert [one.to_agent for one in a.grants(context="runbooks")] == ["B"]
    found = shared.contexts.search("runbooks", "What to do before a retry?")
    assert [one.memory.content for one in found] == ["Pause before a retry, says runbooks."]
    entry = shared.contexts.put("runbooks", "retry", "Never retry.")
    assert a.history(entry)[-1].editor == "agent:B"
    assert [one.content for one in shared.contexts.entries("runbooks")] == ["Never retry."]
    assert [one.key for one in shared.contexts.entries("board")] == ["retry"]
    own = {*known(root)}
    closed: list[Callable[[], object]] = [
        shared.contexts.list,
        lambda: shared.contexts.put("board", "retry", "Retry."),
        lambda: shared.contexts.put("contexts", "runbooks", "Retry."),
        lambda: shared.contexts.put("secrets", "retry", "Retry."),
        lambda: shared.contexts.create("secrets"),
        lambda: shared.contexts.search("secrets", "retry"),
        lambda: shared.reader.memories.list(context="runbooks"),
        lambda: shared.reader.get(entry),
        lambda: shared.reader.search_memory(query="vault"),
        lambda: shared.writer.update(entry, "Retry."),
        lambda: shared.writer.remember("Retry.", context="runbooks"),
        lambda: shared.writer.link(entry, memory_id, "supports"),
        lambda: shared.writer.forget(entry),
        lambda: shared.writer.grant("C", context="runbooks"),
        lambda: shared.writer.grants(context="runbooks"),
        lambda: shared.pool().read(),
        lambda: b.of_agent("A", "anna").contexts.get("runbooks", "retry"),
        lambda: Memory(root, workspace_id="other", agent_id="B").of_agent("A").contexts.entries("runbooks"),
    ]
    for way in closed:
        with pytest.raises(AccessDeniedError):
            way()
    assert {*known(root)} == own
    assert shared.contexts.remove("runbooks", "retry")
    a.revoke("B", context="runbooks")
    with pytest.raises(AccessDeniedError):
        shared.contexts.get("runbooks", "retry")
    b.lake.access_log.settle(datetime.now(UTC))
    rows = b.lake.tables.read(ACCESS_LOG).to_pylist()
    assert {(row["operation"], row["outcome"]) for row in rows} >= {
        ("contexts.search", "ok"), ("contexts.entries", "ok"), ("remember", "ok"), ("forget", "ok"),
        ("contexts.get", "denied"), ("contexts.put", "denied"), ("access_history", "denied"),
        ("share_with_agent", "denied"),
    }  # fmt: skip
    assert [row["result_ids"] for row in rows if row["operation"] == "contexts.search" and row["level"]] == [[entry]]


def test_an_administrator_of_a_context_shares_it(root: str) -> None:
    a, b, c = (Memory(root, workspace_id="acme", agent_id=name) for name in "ABC")
    a.contexts.create("runbooks")
    a.add_to_team("office", "B")
    a.grant(team="office", context="runbooks", level="admin")
    b.of_agent("A").writer.grant("C", context="runbooks")
    assert c.of_agent("A").contexts.entries("runbooks") == []
    assert {one.to_agent or one.to_team for one in b.of_agent("A").writer.grants(context="runbooks")} == {"C", "office"}
    with pytest.raises(AccessDeniedError):
        b.of_agent("A").writer.grant("C")
    a.contexts.create("a secret plan")
    with pytest.raises(AccessDeniedError):
        b.of_agent("A").writer.grant("C", context="a secret plan")
    a.writer.forget(a.contexts._known("runbooks").id)
    with pytest.raises(InputError, match="'runbooks'") as caught:
        b.of_agent("A").writer.grant("D", context="runbooks")
    assert "secret" not in str(caught.value)
    with pytest.raises(AccessDeniedError):  # the grant is left, but no context comes back by it
        b.of_agent("A").contexts.create("runbooks")
    with pytest.raises(InputError, match="'runbooks' is unknown"):
        b.of_agent("A").contexts.get("runbooks", "retry")
    assert a.remove_from_team("office", "B")
    with pytest.raises(AccessDeniedError):
        b.of_agent("A").writer.revoke("C", context="runbooks")


def test_a_denial_does_not_reveal_whether_a_context_exists(root: str) -> None:
    writer_of(root, "A").contexts.create("runbooks")
    told = set()
    for owner, name in (("A", "runbooks"), ("A", "nothing"), ("Z", "runbooks")):
        contexts = writer_of(root, "B").of_agent(owner).contexts
        for way in (contexts.entries, contexts.snapshots):
            with pytest.raises(AccessDeniedError) as caught:
                way(name)
            told.add(str(caught.value).replace(f"'{owner}'", "…").replace(f"'{name}'", "…"))
    assert len(told) == 1


def test_every_public_method_of_the_writer_is_tried() -> None:
    public = {name for name in dir(GrantedWriter) if not name.startswith("_")}
    assert {name for name in dir(MemoryEventWriter) if not name.startswith("_")} <= public
    assert public - set(changes("")) - set(SHARES) == {
        *("scope", "users", "add_to_team", "remove_from_team"),
        "share_with_agent",  # the old name of grant
    }


def test_a_denial_does_not_reveal_whether_an_agent_user_or_memory_exists(root: str, memory_id: str) -> None:
    writer_of(root, "A", "anna").remember("Anna likes figs.")
    told = set()
    for owner, user in (("A", None), ("Z", None), ("A", "anna"), ("A", "nobody"), ("Z", "anna")):
        writer = writer_of(root, "B").of_agent(owner, user)
        for one in (memory_id, "memory:2024-01-01T00:00:zz"):
            with pytest.raises(AccessDeniedError) as caught:
                writer.forget(one)
            told.add(str(caught.value).replace(f"'{owner}'", "…").replace(f" of user '{user}'", ""))
    assert len(told) == 1
    with pytest.raises(AccessDeniedError):
        writer_of(f"{root}-missing", "B").of_agent("A", "anna")
    with pytest.raises(AccessDeniedError):
        writer_of(f"{root}-missing", "B").of_agent("A").remember("x")
    assert not Path(f"{root}-missing").exists()


def test_the_editor_is_the_agent_that_wrote(root: str, memory_id: str, models: Models) -> None:
    name = "B" * 256
    writer_of(root, "A").grant(name, level="write")
    b = writer_of(root, name).of_agent("A")
    b.update(memory_id, "The vault was built by Doctor Costa.", reason="a letter of hers")
    new = b.remember("The vault is green.")
    with pytest.raises(InputError, match="'Anna'"):
        b.remember("The vault is red.", editor="Anna")
    run(Lake(root), models)
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="A")
    assert [one.editor for one in reader.memories.history(memory_id)] == ["agent", f"agent:{name}"]
    assert [one.editor for one in reader.memories.history(new)] == [f"agent:{name}"]
    assert known(root, name) == []


def test_the_memory_of_a_user_needs_a_grant_that_names_the_user(root: str) -> None:
    a = writer_of(root, "A")
    a.grant("B", level="admin")
    anna = writer_of(root, "B").of_agent("A", "anna")
    with pytest.raises(AccessDeniedError, match="'anna'"):
        anna.remember("Anna likes figs.")
    with pytest.raises(AccessDeniedError, match="'anna'"):
        writer_of(root, "B").of_agent("A").grant("C", user_id="anna")
    a.grant("B", user_id="anna", level="admin")
    anna.remember("Anna likes figs.")
    anna.grant("C", user_id="anna")
    assert (known(root), known(root, user_id="anna")) == ([], ["Anna likes figs."])
    assert {(one.to_agent, one.by_agent) for one in writer_of(root, "A", "anna").grants()} == {("B", None), ("C", "B")}


def test_an_administrator_grants_and_revokes_but_changes_no_team(root: str, memory_id: str) -> None:
    a, b = writer_of(root, "A"), writer_of(root, "B").of_agent("A")
    a.grant(team="office", user_id="anna")
    a.grant("B", level="admin")
    b.grant("C", level="write")
    writer_of(root, "C").of_agent("A").boost(memory_id)
    assert b.revoke("C")
    with pytest.raises(AccessDeniedError):
        writer_of(root, "C").of_agent("A").boost(memory_id)
    assert [(one.verb.value, one.by_agent) for one in a.access_history()][-2:] == [("grant", "B"), ("revoke", "B")]
    with pytest.raises(InputError, match="teams of agent 'A'"):
        b.add_to_team("office", "C")
    assert b.revoke("B")
    with pytest.raises(AccessDeniedError):
        b.grants()


def test_a_team_of_the_agent_writes(root: str, memory_id: str) -> None:
    a, b = writer_of(root, "A"), writer_of(root, "B").of_agent("A")
    a.grant(team="office", level="write")
    with pytest.raises(AccessDeniedError):
        b.boost(memory_id)
    a.add_to_team("office", "B")
    assert b.boost(memory_id) == memory_id


def test_a_time_in_the_future_is_refused(root: str) -> None:
    a = writer_of(root, "A")
    later = datetime.now(UTC) + timedelta(hours=1)
    for change in (a.grant, a.revoke):
        with pytest.raises(InputError, match="in the future"):
            change("B", now=later)
    assert a.access_history() == []


def test_memory_writes_for_another_agent(root: str, memory_id: str) -> None:
    a, b = (Memory(root, workspace_id="acme", agent_id=name) for name in "AB")
    planner = b.of_agent("A")
    with pytest.raises(AccessDeniedError):
        planner.writer.remember("The vault is green.")
    a.grant("B", level="write")
    planner.writer.remember("The vault is green.")
    assert {one.memory.content for one in planner.reader.memories.search("vault")} == {SAID, "The vault is green."}
    a.grant(team="office", level="write")
    a.add_to_team("office", "C")

    async def shared() -> list[object]:
        c = AsyncMemory(root, workspace_id="acme", agent_id="C")
        new = await c.of_agent("A").writer.remember("The vault is old.")
        own = AsyncMemory(root, workspace_id="acme", agent_id="A")
        await own.add_to_team("office", "D")
        return [new, await own.remove_from_team("office", "C"), len(await own.access_history())]

    new, was_member, events = asyncio.run(shared())
    assert (was_member, events) == (True, 5)
    assert a.history(str(new))[0].editor == "agent:C"


def test_tools_change_the_memory_of_another_agent(root: str, memory_id: str) -> None:
    b = Memory(root, workspace_id="acme", agent_id="B")
    tools = memory_tools(b.reader, b.writer)
    given = {"text": "The vault is green.", "agent": "A"}
    denied = tools.outcome("remember", given)
    assert denied.is_error
    assert tools.call("remember", {**given, "agent": "Z"}) == denied.text.replace("'A'", "'Z'")
    a = writer_of(root, "A")
    a.grant("B")
    assert tools.outcome("forget", {"id": memory_id, "agent": "A"}).is_error
    # To read leaves no trace in the memory of the other agent.
    assert "Silva" in tools.call("get_memory", {"id": memory_id, "agent": "A"})
    a.grant("B", level="write")
    assert "Silva" in tools.call("get_memory", {"id": memory_id, "agent": "A"})
    own = MemoryReader.open(root, workspace_id="acme", agent_id="A")
    assert [one.access_count for one in own.memories.list()] == [0]
    assert tools.call("remember", given).startswith("In the memory of agent 'A':\nRemembered")
    update = {"id": memory_id, "text": "Doctor Costa built it.", "agent": "A"}
    assert not tools.outcome("update_memory", update).is_error
    assert known(root) == ["Doctor Costa built it.", "The vault is green."]
    assert not tools.outcome("forget", {"id": memory_id, "agent": "A"}).is_error
    assert (known(root), known(root, "B")) == (["The vault is green."], [])
    assert tools.outcome("remember_fact", {"subject": "A", "predicate": "is", "object": "B", "agent": "A"}).is_error
    granted = memory_tools(b.reader.of_agent("A"), b.writer.of_agent("A"))
    assert "only be read" in granted.call("remember_fact", {"subject": "A", "predicate": "is", "object": "B"})


def test_commands_act_for_another_agent(root: str, memory_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    a, b = ["--workspace", "acme", "--agent", "A"], ["--on-behalf-of", "B"]
    assert isinstance(call("memories", "remember", "It is green.", *a, *b).exception, AccessDeniedError)
    call("share", "B", *a, "--level", "admin")
    call("memories", "remember", "It is green.", *a, *b)
    assert known(root) == ["It is green.", SAID]
    assert read("memories", "forget", memory_id, *a, *b) == {"forgotten": 1}
    call("share", "C", *a, *b)
    assert [(row["to_agent"], row["by_agent"]) for row in read("shares", *a, *b)] == [("B", ""), ("C", "B")]
    assert read("unshare", "B", *a, *b)["had_access"]
    assert isinstance(call("shares", *a, *b).exception, AccessDeniedError)
    group = ["--group", "board", "--users", "anna", "--users", "ben"]
    assert isinstance(call("memories", "remember", "x", *a, *b, *group).exception, InputError)


def test_grants_go_with_their_own_workspace(root: str, memory_id: str) -> None:
    writer_of(root, "A").grant("B", level="admin")
    other = MemoryWriter(Lake(root), Scope("other", "B")).of_agent("A")
    with pytest.raises(AccessDeniedError):
        other.boost(memory_id)


def test_all_agents_of_the_workspace_may_read_but_not_write(root: str, memory_id: str) -> None:
    a, c = writer_of(root, "A"), writer_of(root, "C").of_agent("A")
    a.grant("*")
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="A", on_behalf_of="C")
    assert reader.memories.list()
    with pytest.raises(AccessDeniedError):
        c.boost(memory_id)
    with pytest.raises(InputError, match="only read"):
        a.grant("*", level="write")
    with pytest.raises(InputError, match="only read"):
        a.add_to_team("office", "*")
    assert a.revoke("*")
    with pytest.raises(AccessDeniedError):
        reader.memories.list()


def test_a_private_pool_is_read_and_written_as_granted(root: str) -> None:
    a, b = (Memory(root, workspace_id="acme", agent_id=name) for name in "AB")
    own = a.pool("notes", type="agent_private")
    own.write("k", 1)
    shared = b.of_agent("A").pool("notes")
    writes: list[Callable[[], object]] = [
        lambda: shared.write("k", 2),
        lambda: shared.merge({"k": 2}),
        lambda: shared.remove("k"),
        shared.clear,
    ]
    reads: list[Callable[[], object]] = [lambda: shared.read("k"), shared.read, shared.snapshot, shared.statistics]
    for way in (*reads, *writes):
        with pytest.raises(AccessDeniedError):
            way()
    a.grant("*")
    assert shared.read("k") == 1
    for way in writes:
        with pytest.raises(AccessDeniedError):
            way()
    a.grant("B", level="write")
    shared.write("k", 3)
    assert (own.read("k"), b.pool("notes", type="agent_private").read("k")) == (3, None)
    a.revoke("B")
    a.revoke("*")
    for way in (*reads, *writes):
        with pytest.raises(AccessDeniedError):
            way()
    b.lake.access_log.settle(datetime.now(UTC))
    found = b.lake.tables.read(ACCESS_LOG).to_pylist()
    assert {(row["operation"], row["outcome"], row["level"]) for row in found} == {
        ("pool.read", "denied", None),
        ("pool.write", "denied", None),
        ("pool.read", "ok", "read"),
        ("pool.read", "ok", "write"),
        ("pool.write", "ok", "write"),
    }


def test_the_log_takes_no_text_of_an_agent_without_a_grant(root: str, memory_id: str) -> None:
    b = writer_of(root, "B").of_agent("A")
    for verb in ("x" * 1_000_000, "\x1b[2J", None, ["REMEMBER"]):
        with pytest.raises(AccessDeniedError):
            b.change_memories([{"memory": verb}, {"memory": "BOOST", "memory_id": memory_id}])
        with pytest.raises(AccessDeniedError):
            b.change_memories([{"memory": verb}])
    lake = Lake(root)
    b._lake.access_log.flush()
    lake.access_log.settle(datetime.now(UTC))
    assert {row["operation"] for row in lake.tables.read(ACCESS_LOG).to_pylist()} == {"boost", "change_memories"}


def test_the_pool_of_a_team_is_for_its_members(root: str) -> None:
    a, b, c = (Memory(root, workspace_id="acme", agent_id=name) for name in "ABC")
    own = a.pool("board", type="team_shared", team="red")
    own.write("k", 1)
    shared = b.of_agent("A").pool("board", team="red")
    ways: list[Callable[[], object]] = [shared.read, shared.statistics, lambda: shared.write("k", 2), shared.clear]
    for way in ways:
        with pytest.raises(AccessDeniedError, match="in no team 'red' of agent 'A'"):
            way()
    a.add_to_team("red", "B")
    a.add_to_team("blue", "C")
    shared.write("k", 2, expected_version=1)
    assert own.read("k") == 2

    async def wrote() -> list[object]:
        agents = [AsyncMemory(root, workspace_id="acme", agent_id=name) for name in "AB"]
        boards = [
            agents[0].pool("board", type="team_shared", team="red"),
            agents[1].of_agent("A").pool("board", team="red"),
        ]
        await boards[1].write("l", 5)
        return [await board.read("l") for board in boards]

    assert asyncio.run(wrote()) == [5, 5]
    # The pool of a user is for members that work for the user, or have a grant of the user's memory.
    anna = Memory(root, workspace_id="acme", agent_id="A", user_id="anna")
    anna.pool("board", type="team_shared", team="red").write("k", 7)
    with pytest.raises(AccessDeniedError):
        b.of_agent("A", "anna").pool("board", team="red").read()
    own_user = Memory(root, workspace_id="acme", agent_id="B", user_id="anna")
    assert own_user.of_agent("A", "anna").pool("board", team="red").read("k") == 7
    a.grant("B", user_id="anna")
    assert b.of_agent("A", "anna").pool("board", team="red").read("k") == 7
    # To name the team is not enough: this is the pool of a team that C keeps.
    assert c.pool("board", type="team_shared", team="red").read() == {}
    with pytest.raises(AccessDeniedError):
        c.of_agent("A").pool("board", team="red").read()
    assert a.remove_from_team("red", "B")
    for way in ways:
        with pytest.raises(AccessDeniedError):
            way()
    assert own.read("k") == 2


def test_a_memory_for_a_user_shares_the_contexts_of_the_user(root: str) -> None:
    anna = Memory(root, workspace_id="acme", agent_id="A", user_id="anna")
    anna.contexts.create("trip")
    anna.contexts.put("trip", "hotel", "By the harbour.")
    anna.grant("B", context="trip")
    assert [(one.scope.user_id, one.context) for one in anna.grants()] == [("anna", "trip")]
    b = Memory(root, workspace_id="acme", agent_id="B")
    assert [one.content for one in b.of_agent("A", "anna").contexts.entries("trip")] == ["By the harbour."]
    for other in (None, "ben"):
        with pytest.raises(AccessDeniedError):
            b.of_agent("A", other).contexts.entries("trip")
    assert anna.revoke("B", context="trip")


def test_no_lake_is_made_for_a_stranger(root: str) -> None:
    with pytest.raises(AccessDeniedError):
        Memory(f"{root}-missing", agent_id="B").of_agent("A").pool()
    assert not Path(f"{root}-missing").exists()


def test_what_an_admin_granted_ends_with_the_admin(root: str, memory_id: str) -> None:
    """Also further down, by teams and for contexts, whatever the clocks said; grants of the owner stay."""
    owner, past = writer_of(root, "A"), datetime(2024, 1, 15, 12, tzinfo=UTC)
    owner.contexts.create("notes")
    owner.add_to_team("heads", "B", now=past)
    owner.grant(team="heads", level="admin", now=past)
    # The clock of B is ahead, that of A behind.
    admin = writer_of(root, "B").of_agent("A")
    admin.grant("C", level="admin", now=past + timedelta(hours=1))
    writer_of(root, "C").of_agent("A").grant("D", now=past)
    admin.grant("E", context="notes")
    admin.grant("F")
    owner.grant("F")  # the same, by the owner
    assert {grant.to_agent or grant.to_team for grant in owner.grants()} == {"heads", "C", "D", "E", "F"}
    owner.remove_from_team("heads", "B", now=past)
    assert {grant.to_agent or grant.to_team for grant in owner.grants()} == {"heads", "F"}
    with pytest.raises(AccessDeniedError):
        MemoryReader.open(root, workspace_id="acme", agent_id="D").of_agent("A").search_memory(query="vault")
    assert MemoryReader.open(root, workspace_id="acme", agent_id="F").of_agent("A").memories.list()
    owner.add_to_team("heads", "B")  # what ended does not come back
    assert {grant.to_agent or grant.to_team for grant in owner.grants()} == {"heads", "F"}
    owner.grant("D", now=past)
    assert "D" in {grant.to_agent for grant in owner.grants()}

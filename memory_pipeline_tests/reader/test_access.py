"""Agent B tries each path to the memory of agent A: before, during and after a grant. Agent C never gets in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline.domain.access import AccessEvent, AccessLevel, AccessVerb
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import AccessDeniedError, InputError, LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools import memory_tools
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import conversation, run, write
from memory_pipeline_tests.users import lake_of

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import CopiedLake

A = Scope("acme", "A")
ASKED = "Which code opens the vault?"


@pytest.fixture
def uri(copied: CopiedLake, models: Models) -> str:
    """A lake with memory of all kinds of agent A: processed, and pending."""

    def fill(folder: Path) -> None:
        lake = Lake(str(folder))
        writer = MemoryWriter(lake, A)
        write(lake, conversation("The code of the vault is 4711.", scope=A))
        writer.remember("The vault was built by Doctor Silva.", now="2024-01-15T09:00Z")
        writer.graph.insert("Silva", "lives_in", "Porto", now="2024-01-15T09:00Z")
        run(lake, models)
        write(lake, conversation("The vault opens at nine.", at="2024-02-01T08:00", scope=A, conversation_id="c2"))

    return copied("reader-access", fill).storage.uri


def reader_of(
    uri: str, owner: str, asking: str, user_id: str | None = None, workspace_id: str = "acme"
) -> MemoryReader:
    return MemoryReader.open(uri, workspace_id=workspace_id, agent_id=owner, user_id=user_id, on_behalf_of=asking)


def writer_of(uri: str, agent: str = "A", **options: str) -> MemoryWriter:
    return MemoryWriter.open(uri, workspace_id="acme", agent_id=agent, **options)


def ways(uri: str) -> dict[str, Callable[[MemoryReader], object]]:
    """Return the ways to read what A knows of the vault, by name. Each returns something that is true if it is read."""
    own = MemoryReader.open(uri, workspace_id="acme", agent_id="A")
    [memory] = own.memories.list()
    hit = own.search_memory("working", 0, 36_525, 10, "code of the vault")[0]
    [day] = own.newest(Grain.DAILY, 1)
    return {
        "search": lambda reader: reader.search_memory("working", 0, 36_525, 10, ASKED),
        "newest by search": lambda reader: reader.search_memory("daily", 0, 36_525),
        "newest": lambda reader: reader.newest("working", 5),
        "inject": lambda reader: reader.inject_knowledge(ASKED).parts,
        "context": lambda reader: reader.context(ASKED).parts,
        "recall": lambda reader: reader.recall(ASKED),
        "receipts": lambda reader: reader.receipts(),
        "receipt": lambda reader: reader.receipt(reader.receipts()[0]),
        "summaries": lambda reader: reader.summaries_of("daily", day.period),
        "get a fact": lambda reader: reader.get(hit.id),
        "get a memory": lambda reader: reader.get(memory.id),
        "expand": lambda reader: reader.expand(day.id),
        "scopes": lambda reader: reader.scopes,
        "list memories": lambda reader: reader.memories.list(),
        "search memories": lambda reader: reader.memories.search("vault"),
        "memory": lambda reader: reader.memories.get(memory.id),
        "history": lambda reader: reader.memories.history(memory.id),
        "past memory": lambda reader: reader.memories.get(memory.id, now=memory.created_at + timedelta(hours=1)),
        "graph": lambda reader: reader.graph.facts_about("Silva"),
        "graph search": lambda reader: reader.graph.search("Where does Silva live?"),
        "graph neighbours": lambda reader: reader.graph.neighbors("Silva", 1),
        "graph history": lambda reader: reader.graph.history("Silva"),
        "of a user": lambda reader: reader.for_user("anna").search_memory("working", 0, 36_525, 10, ASKED),
    }


#: A way that answers with nothing rather than with an error: nobody asked for these memories.
SILENT: dict[str, Callable[[MemoryReader], object]] = {
    "imagine": lambda reader: reader.imagine([ASKED]),
}


def attempt(way: Callable[[MemoryReader], object], reader: MemoryReader) -> bool:
    """Return whether a way reads something."""
    try:
        return bool(way(reader))
    except AccessDeniedError:
        return False


def test_every_way_is_closed_before_a_grant_open_during_it_and_closed_after_a_revoke(uri: str) -> None:
    every = {**ways(uri), **SILENT}
    opened = {name: reader_of(uri, "A", name) for name in "BC"}
    closed = dict.fromkeys(every, False)

    def reached(reader: MemoryReader) -> dict[str, bool]:
        return {name: attempt(way, reader) for name, way in every.items()}

    assert reached(opened["B"]) == reached(opened["C"]) == closed
    for name in ways(uri):
        with pytest.raises(AccessDeniedError, match="'B' may not read"):
            every[name](opened["B"])
    writer_of(uri).grant("B")
    for reader in (opened["B"], reader_of(uri, "A", "B")):
        assert reached(reader) == dict.fromkeys(every, True)
    assert reached(opened["C"]) == closed
    assert writer_of(uri).revoke("B")
    for reader in (opened["B"], reader_of(uri, "A", "B")):
        assert reached(reader) == closed


def test_every_public_member_of_a_reader_is_tried() -> None:
    public = {name for name in dir(MemoryReader) if not name.startswith("_")}
    # Tried below, or not memory.
    others = {"open", "open_tables", "note_uses", "calendar", "scope", "of_agent", "hot_index", "search_archive"}
    source = Path(__file__).read_text("utf-8")
    assert {name for name in public - others if f"reader.{name}" not in source} == set()


def test_hot_index_and_archive_are_closed_too(uri: str) -> None:
    reader = reader_of(uri, "A", "B")
    for way in (reader.hot_index, lambda: reader.search_archive("vault")):
        with pytest.raises(AccessDeniedError):
            way()


def test_a_denial_does_not_reveal_whether_an_agent_or_user_exists(uri: str) -> None:
    told = set()
    for owner, user in (("A", None), ("Z", None), ("A", "anna"), ("A", "nobody"), ("Z", "anna")):
        with pytest.raises(AccessDeniedError) as caught:
            reader_of(uri, owner, "B", user).search_memory(query=ASKED)
        told.add(str(caught.value).replace(f"'{owner}'", "…").replace(f" of user '{user}'", ""))
    assert len(told) == 1
    with pytest.raises(AccessDeniedError):
        reader_of(f"{uri}-missing", "A", "B", "anna").search_memory(query=ASKED)


def test_a_grant_does_not_cross_workspaces(uri: str) -> None:
    writer_of(uri).grant("B")
    other = reader_of(uri, "A", "B", workspace_id="other")
    with pytest.raises(AccessDeniedError):
        other.search_memory(query=ASKED)


def test_the_memory_of_a_user_needs_a_grant_that_names_the_user(uri: str) -> None:
    for user, said in (("anna", "Anna's locker is number twelve."), ("ben", "Ben's locker is number seven.")):
        message = {"role": "user", "content": said, "timestamp": "2024-02-02T08:00:00Z"}
        writer_of(uri, user_id=user).write({"conversation_id": user, "messages": [message]})
    group = writer_of(uri, users=["anna", "ben"], group_id="board")  # type: ignore[arg-type]
    message = {
        "role": "user",
        "user_id": "anna",
        "content": "Our locker is green.",
        "timestamp": "2024-02-03T08:00:00Z",
    }
    group.write({"conversation_id": "group", "messages": [message]})

    def lockers(reader: MemoryReader) -> set[str]:
        found = reader.search_memory("working", 0, 36_525, 50, "locker")
        return {hit.content for hit in found if "locker" in hit.content}

    writer = writer_of(uri)
    writer.grant("B")
    anna, ben = (reader_of(uri, "A", "B", user) for user in ("anna", "ben"))
    assert lockers(anna) == lockers(ben) == set()
    writer.grant("B", user_id="anna")
    assert {text.partition(": ")[2] for text in lockers(anna)} == {"Anna's locker is number twelve."}
    assert lockers(ben) == set()
    assert writer.revoke("B")
    assert lockers(anna)
    with pytest.raises(AccessDeniedError):
        reader_of(uri, "A", "B").newest("working", 1)
    assert writer.revoke("B", user_id="anna")
    with pytest.raises(AccessDeniedError):
        lockers(anna)
    with pytest.raises(InputError, match="group:board"):
        group.grant("B")
    with pytest.raises(InputError, match="'anna'"):
        writer_of(uri, user_id="anna").grant("B", user_id="ben")


def test_a_memory_that_all_users_share_is_not_shared_by_the_name_of_one(root: str) -> None:
    lake_of(root, per_user=False)
    writer = writer_of(root)
    with pytest.raises(InputError, match="leave out user_id"):
        writer.grant("B", user_id="anna")
    writer.grant("B")
    assert [one.to_agent for one in writer.grants()] == ["B"]


def test_teams_change_who_reads(uri: str) -> None:
    writer, reader = writer_of(uri), reader_of(uri, "A", "B")
    writer.grant(team="sales")
    # An agent cannot let itself in by a team of its own.
    writer_of(uri, "B").add_to_team("sales", "B")
    with pytest.raises(AccessDeniedError):
        reader.newest("working", 1)
    writer.add_to_team("sales", "B")
    assert reader.newest("working", 1)
    assert writer.remove_from_team("sales", "B")
    with pytest.raises(AccessDeniedError):
        reader.newest("working", 1)
    assert not writer.remove_from_team("sales", "B")


def test_an_agent_that_reads_for_itself_needs_no_grant(uri: str) -> None:
    assert reader_of(uri, "A", "A").newest("working", 1)
    own = MemoryReader.open(uri, workspace_id="acme", agent_id="A")
    assert own.of_agent("A").newest("working", 1)
    # Nor does a reader of another agent lead on to memory that was shared with that one alone.
    writer_of(uri).grant("B")
    writer_of(uri, "D").grant("A")
    assert own.of_agent("D").newest("working", 1) == []
    with pytest.raises(AccessDeniedError):
        reader_of(uri, "A", "B").of_agent("D").newest("working", 1)


def test_changes_are_written_once_kept_in_order_and_listed(uri: str) -> None:
    writer = writer_of(uri)
    ahead = AccessEvent(A, AccessVerb.GRANT, "B", None, AccessLevel.READ, datetime(2100, 1, 1, tzinfo=UTC))
    Lake(uri).access.add(ahead)  # by a clock that is ahead
    writer.grant("B")
    assert len(writer.access_history()) == 1
    assert writer.revoke("B")
    assert not writer.revoke("B")
    assert not writer.revoke("C")
    assert writer.grants() == []
    writer.grant("B", level="write")
    assert [one.verb.value for one in writer.access_history()] == ["grant", "revoke", "grant"]
    assert [(one.to_agent, one.level) for one in writer.grants()] == [("B", "write")]
    assert [one.level for one in writer.grants(now="2100-01-01T00:00Z")] == [
        "write"
    ]  # a clock that was ahead is passed
    with pytest.raises(InputError, match="'root'"):
        writer.grant("C", level="root")


def test_a_damaged_file_closes_the_memory(uri: str) -> None:
    writer = writer_of(uri)
    writer.grant("B")
    writer.revoke("B")
    for path in Path(uri).rglob("*.access.json"):
        if '"revoke"' in path.read_text("utf-8"):
            path.write_text("{", "utf-8")
    with pytest.raises(LakeError, match="not a valid grant"):
        reader_of(uri, "A", "B").newest("working", 1)


def test_a_grant_copied_to_another_agent_does_not_open_its_memory(uri: str) -> None:
    writer_of(uri).grant("B")
    write(Lake(uri), conversation("The safe is empty.", scope=Scope("acme", "D"), conversation_id="d"))
    [granted] = Path(uri).rglob("*.access.json")
    [folder] = [path for path in granted.parent.parent.iterdir() if path.name.startswith("acme-d-")]
    (folder / granted.name).write_bytes(granted.read_bytes())
    with pytest.raises(LakeError, match="not a valid grant"):
        reader_of(uri, "D", "B").newest("working", 1)


def test_processing_keeps_grants(uri: str, models: Models) -> None:
    writer_of(uri).grant("B")
    reader = reader_of(uri, "A", "B")
    run(Lake(uri), models)
    assert reader.search_memory("working", 0, 36_525, 10, "When does the vault open?")[0].content.endswith("nine.")
    assert Lake(uri).journal.pending() == []


def test_memory_shares_and_retrieves(uri: str) -> None:
    a, b, c = (Memory(uri, workspace_id="acme", agent_id=name) for name in "ABC")
    with pytest.raises(AccessDeniedError):
        b.search_shared(ASKED, agent="A")
    a.grant("B")
    assert [one.to_agent for one in a.grants()] == ["B"]
    assert "Anna: The code of the vault is 4711." in [hit.content for hit in b.search_shared(ASKED, agent="A")]
    assert not b.search(ASKED)
    with pytest.raises(AccessDeniedError):
        c.search_shared(ASKED, agent="A")
    assert a.revoke("B")
    with pytest.raises(AccessDeniedError):
        b.search_shared(ASKED, agent="A")


async def _shared(uri: str) -> tuple[int, bool, int]:
    a, b = (AsyncMemory(uri, workspace_id="acme", agent_id=name) for name in "AB")
    await a.grant("B")
    found = await b.search_shared(ASKED, "A", limit=1, person="Anna")
    return len(found), await a.revoke("B"), len(await a.grants())


def test_memory_is_shared_with_await(uri: str) -> None:
    import asyncio

    assert asyncio.run(_shared(uri)) == (1, True, 0)


def test_tools_read_the_memory_of_another_agent_and_say_so(uri: str) -> None:
    tools = memory_tools(MemoryReader.open(uri, workspace_id="acme", agent_id="B"), max_tokens=200)
    wanted = {"query": ASKED, "maximum_days_ago": 36_525, "agent": "A"}
    denied = tools.outcome("search_memory", wanted)
    assert denied.is_error
    assert "4711" not in denied.text
    assert tools.call("search_memory", {**wanted, "agent": "Z"}) == denied.text.replace("'A'", "'Z'")
    writer_of(uri).grant("B")
    found = tools.outcome("search_memory", wanted)
    assert not found.is_error
    assert found.text.startswith("From the memory of agent 'A':\n")
    assert "4711" in found.text
    assert len(found.text.encode()) <= 800
    hit = reader_of(uri, "A", "B").search_memory("working", 0, 36_525, 10, "code 4711")[0]
    for name, given in (("recall_memory", {"query": ASKED}), ("get_memory", {"id": hit.id})):
        assert "4711" in tools.call(name, {**given, "agent": "A"})
        assert "4711" not in tools.call(name, given)
    # The model names whose memory it reads, never who reads.
    for name in ("on_behalf_of", "workspace_id", "asking"):
        assert tools.outcome("search_memory", {**wanted, name: "A"}).is_error
    writer_of(uri).revoke("B")
    assert tools.call("search_memory", wanted) == denied.text

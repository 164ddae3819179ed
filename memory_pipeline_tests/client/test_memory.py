"""The memory of a user as one object."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import litellm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import ConfigurationError, InputError, LakeError
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.memories import MemoryOverlay, queries
from memory_pipeline.steps import housekeeping
from memory_pipeline_tests.index_rows import Embedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.models.factory import Models

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def contents(memory: Memory, kind: str | None = "fact") -> list[str]:
    """Return everything, oldest first."""
    found, cursor = [], None
    while True:
        page = memory.list(kind, cursor=cursor, limit=2)
        found += [hit.content for hit in page]
        if page.cursor is None:
            return found[::-1]
        cursor = page.cursor


def test_a_run_cleans_files_once_a_day(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def versions() -> int:
        return sum(1 for _ in Path(memory.lake.storage.uri).rglob("projections/index-*/_versions/*.manifest"))

    memory.add("I moved to Porto.", now=NOW)
    memory.run(now=NOW + 40 * DAY)  # writes facts, days, weeks and a month
    assert versions() == 1
    memory.add("I work at Acme.", now=NOW + DAY)
    memory.run(now=NOW + 40 * DAY)
    written = versions()
    assert written > 2
    monkeypatch.setattr(housekeeping, "_EVERY", timedelta())
    memory.run(now=NOW + 40 * DAY)
    assert versions() < written
    assert memory.search("Where does Anna live?", now=NOW + 40 * DAY)


def test_five_lines(root: str) -> None:
    memory = Memory(root, user_id="anna")
    memory.add("I moved to Porto.")
    assert memory.search("Where does Anna live?")[0].content == "User: I moved to Porto."
    assert Memory(root, user_id="ben").search("Where does Anna live?") == []


def test_search_has_no_age_limit_and_sees_what_was_said_before_now(memory: Memory) -> None:
    memory.add("My dog is called Bruno.", now=NOW - 4_000 * DAY)
    memory.add("Bruno is brown.", now=NOW)
    assert len(memory.search("Bruno")) == 2
    assert [hit.content for hit in memory.search("Bruno", now=NOW - 3 * DAY)] == ["User: My dog is called Bruno."]
    with pytest.raises(InputError, match="limit 0 is not accepted"):
        memory.search("Bruno", 0)


def test_a_list_adds_only_its_new_end(memory: Memory) -> None:
    talk: list[Any] = []
    counts = []
    conversation_id = None
    for turn in range(4):
        talk += [{"role": "user", "content": "ok" if turn else "Hello."}, {"role": "assistant", "content": "Fine."}]
        receipt = memory.add(talk, conversation_id=conversation_id)
        conversation_id = receipt.conversation_id
        counts.append((len(receipt.accepted), len(receipt.repeated)))
    assert counts == [(2, 0), (2, 2), (2, 4), (2, 6)]
    window = [*talk[-3:], {"role": "user", "content": "Bye."}]
    receipt = memory.add(window, conversation_id=conversation_id)
    assert (len(receipt.accepted), len(receipt.repeated)) == (1, 3)
    # The last answer is made again.
    again = [*talk, {"role": "user", "content": "Bye."}, {"role": "assistant", "content": "Ciao."}]
    assert len(memory.add(again, conversation_id=conversation_id).accepted) == 1
    other = [*talk, {"role": "user", "content": "Bye."}, {"role": "assistant", "content": "See you."}]
    assert len(memory.add(other, conversation_id=conversation_id).edited) == 1
    assert contents(memory)[-2:] == ["User: Bye.", "Agent: See you."]
    assert len(contents(memory)) == 10


def test_the_history_is_known_after_a_run_and_in_another_process(root: str, memory: Memory) -> None:
    talk = [{"role": "user", "content": "I moved to Porto."}, {"role": "assistant", "content": "Lovely."}]
    first = memory.add(talk, now=NOW)
    memory.run(now=NOW + DAY)
    again = Memory(root, user_id="anna")
    receipt = again.add([*talk, {"role": "user", "content": "Yes."}], conversation_id=first.conversation_id)
    assert receipt.repeated == first.accepted
    assert contents(again) == ["User: I moved to Porto.", "Agent: Lovely.", "User: Yes."]


def test_messages_with_ids_and_times_are_known_by_these(memory: Memory) -> None:
    talk = [{"id": "a", "role": "user", "content": "One."}, {"id": "b", "role": "user", "content": "One."}]
    first = memory.add(talk, conversation_id="c", now=NOW)
    assert len(first.accepted) == 2
    assert memory.add(talk[1:], conversation_id="c", now=NOW + DAY).repeated == first.accepted[1:]
    assert memory.add(talk[:1], conversation_id="c", now=NOW + DAY).repeated == first.accepted[:1]
    edit = {"id": "a", "role": "user", "content": "Two."}
    assert memory.add([edit], conversation_id="c", now=NOW + DAY).edited == first.accepted[:1]
    with pytest.raises(InputError, match="already used for other content"):
        memory.add([edit | {"role": "assistant"}], conversation_id="c", now=NOW + DAY)
    timed = {"role": "user", "content": "Timed.", "timestamp": (NOW - DAY).isoformat()}
    assert len(memory.add([timed], conversation_id="c", now=NOW).accepted) == 1
    assert len(memory.add([timed], conversation_id="c", now=NOW).repeated) == 1
    later = {**timed, "timestamp": (NOW - DAY / 2).isoformat()}
    assert len(memory.add([later], conversation_id="c", now=NOW).accepted) == 1


def test_messages_of_all_clients_are_accepted(memory: Memory) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    answer = litellm.ModelResponse(choices=[{"message": {"role": "assistant", "content": "From LiteLLM."}}])
    said: list[tuple[object, list[str]]] = [
        ("A text.", ["user A text."]),
        (["Two", {"role": "assistant", "content": "texts."}], ["user Two", "assistant texts."]),
        (answer, ["assistant From LiteLLM."]),
        (answer.choices[0].message, ["assistant From LiteLLM."]),
        (
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {}}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t1", "content": "7"},
                {"role": "assistant", "content": None},
            ],
            ["system Be brief.", "user See:\n[image]", 'tool [tool call] look({"x": 1})', "tool 7"],
        ),
        (
            [
                SystemMessage("Be kind."),
                HumanMessage("Look."),
                AIMessage("", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "t1"}]),
                ToolMessage("7", tool_call_id="t1"),
                AIMessage("Seven."),
            ],
            ["system Be kind.", "user Look.", 'tool [tool call] look({"x": 1})', "tool 7", "assistant Seven."],
        ),
        (
            [
                {"role": "user", "content": [{"type": "text", "text": "Look."}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "7"}]}
                    ],
                },
            ],
            ["user Look.", "assistant I look.", 'tool [tool call] look({"x": 1})', "tool [tool result] 7"],
        ),
        (
            [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
                {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"x": 1}', "id": "fc"},
                {"type": "function_call_output", "call_id": "t1", "output": "7"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Seven."}]},
            ],
            ["user Look.", 'tool [tool call] look({"x": 1})', "tool 7", "assistant Seven."],
        ),
    ]
    for number, (messages, expected) in enumerate(said):
        memory.add(messages, conversation_id=f"c{number}")
        found = [
            record
            for file in memory.lake.journal.pending()
            for record in map(json.loads, (memory.lake.storage.read(file.path) or b"").splitlines())
            if record["conversation_id"] == f"c{number}"
        ]
        found.sort(key=lambda record: record["turn"])
        assert [f"{record['role']} {record['content']}" for record in found] == expected


@pytest.mark.parametrize("messages", [None, 3, b"text", {"role": "nobody", "content": "Hi."}, [3], "", [], [[]]])
def test_what_is_no_message_is_refused_and_nothing_is_written(memory: Memory, messages: object) -> None:
    with pytest.raises(InputError):
        memory.add(["Hello.", *messages] if isinstance(messages, list) and messages else messages)
    assert memory.list() == []


def test_what_was_not_read_of_a_list_is_counted_and_named(memory: Memory) -> None:
    talk = [
        {"role": "user", "parts": [{"text": "Look."}], "createdAt": "2026-03-01T09:00:00Z", "editedAt": 5},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "Seven.", "created_at": "last week"},
    ]
    receipt = memory.add(talk, tags="phone", now=NOW)
    assert (len(receipt.accepted), receipt.empty, receipt.unread_times) == (2, 1, ("created_at", "editedAt"))
    [first, _] = memory.conversations.get(receipt.conversation_id)
    assert (first.sent_at, first.tags) == (NOW - DAY, ("phone",))
    assert memory.search("look", tag="phone", now=NOW)[0].content == "User: Look."
    memory.remember("Prefers tea.", tags="drinks", now=NOW)
    assert memory.reader.memories.list()[0].tags == ("drinks",)
    with pytest.raises(InputError, match="tags"):
        memory.add("Hello.", tags=5, now=NOW)  # type: ignore[arg-type]  # that is the point
    for odd in (talk[1], {"role": "user", "body": "Look."}):
        with pytest.raises(InputError, match="message 1: content is missing"):
            memory.add(odd, now=NOW)
    with pytest.raises(InputError, match="message 3: content is missing"):
        memory.add([*talk[:2], {"role": "user"}], now=NOW)


def test_a_path_is_an_address_and_a_name_no_embedder(tmp_path: Path) -> None:
    Memory(tmp_path / "lake").add("I moved to Porto.")
    assert Memory(str(tmp_path / "lake")).search("Porto")
    with pytest.raises(InputError, match="embedder 'name' is not an object"):
        Memory(tmp_path, embedder="name")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigurationError, match="s3://bucket"):
        Memory(Path("s3://bucket/prefix")).search("Porto")


def test_a_run_and_a_search_use_the_given_embedder(tmp_path: Path) -> None:
    memory = Memory(tmp_path, user_id="anna", embedder=Embedder([1.0] * 8, 8))
    memory.add("I moved to Porto.", now=NOW)
    memory.remember("Prefers tea.", now=NOW)
    memory.run(now=NOW + 2 * DAY)
    assert memory.lake.index.embedder() == ("test", 8)
    rows = [memory.lake.tables.read(spec, columns=["embed_model"], shard=None) for spec in (FACTS, SUMMARIES)]
    assert {name for one in rows for name in one["embed_model"].to_pylist()} == {"test"}
    assert memory.search("Porto", now=NOW + 3 * DAY)
    with pytest.raises(ConfigurationError, match="test"):
        Memory(tmp_path, user_id="anna").search("Porto")


def test_a_broken_store_is_an_error_at_first_use_alone(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.write_text("a file")
    memory = Memory(root, user_id="anna")
    for use in (lambda: memory.add("Hello."), lambda: memory.search("Hello."), lambda: memory.lake):
        with pytest.raises(LakeError, match="Not a directory"):
            use()
    [problem] = memory.check()
    assert str(root) in problem
    root.unlink()
    assert memory.check() == ()
    memory.add("Hello.")
    assert memory.check() == ()
    memory.lake.storage.write("lake.json", b"{}")
    assert "format" in Memory(root).check()[0]
    for wrong in ({"timezone": "Mars"}, {"user_id": ""}, {"agent_id": 5}):
        with pytest.raises((ConfigurationError, InputError)):
            Memory(root, **wrong)


def test_context_has_what_fits_and_the_most_important_memories(memory: Memory) -> None:
    memory.add(["I moved to Porto.", "My dog is called Bruno."], now=NOW)
    memory.remember("Never call before ten in the morning.", "rule", now=NOW)
    memory.run(now=NOW + DAY)
    text = str(memory.context("Where do I live?", 300, now=NOW + 2 * DAY))
    assert "Porto" in text
    assert "Never call before ten" in text
    assert "Never call before ten" in str(memory.context(now=NOW + 2 * DAY))
    small = memory.context("Where do I live?", 60, now=NOW + 2 * DAY)
    assert 0 < small.tokens <= 60
    assert memory.add(text).recalled == 1
    assert not Memory(memory.lake.storage.uri, user_id="ben").context("Where does Anna live?").parts


def test_durable_memories_are_remembered_listed_and_forgotten(memory: Memory) -> None:
    one = memory.remember("Prefers tea.", "preference", tags=["drinks"], now=NOW)
    memory.writer.update(one, "Prefers green tea.", now=NOW + DAY)
    assert [version.content for version in memory.history(one)] == ["Prefers tea.", "Prefers green tea."]
    assert contents(memory, "memory") == ["Prefers green tea."]
    assert memory.forget(one) is None
    assert contents(memory, "memory") == []
    assert [version.status.value for version in memory.history(one)][-1] == "deprecated"


def test_a_conversation_and_a_user_are_erased(root: str, memory: Memory) -> None:
    memory.add("I moved to Porto.", conversation_id="c1")
    memory.add("My dog is called Bruno.", conversation_id="c2")
    ben = Memory(root, user_id="ben")
    ben.add("I live in Oslo.")
    memory.add("We meet at noon.", users=["anna", "ben"])
    memory.run()
    report = memory.forget(conversation_id="c1")
    assert report is not None
    assert ("messages", 1) in {(one.place, one.count) for one in report.removed}
    assert contents(memory) == ["User: My dog is called Bruno.", "user:anna: We meet at noon."]
    memory.forget(everything=True)
    assert contents(memory) == []
    assert contents(ben)[0] == "User: I live in Oslo."
    for wrong in ({}, {"conversation_id": "c1", "everything": True}):
        with pytest.raises(InputError, match="give one"):
            memory.forget(**wrong)  # type: ignore[call-overload]  # that is the point


def test_list_returns_summaries_and_memories_too(memory: Memory) -> None:
    memory.add(["I moved to Porto.", "My dog is called Bruno."], now=NOW - 40 * DAY)
    memory.run(now=NOW)
    page = memory.list()
    assert {hit.grain for hit in page} >= {"durable", "working", "daily", "weekly", "monthly"}
    assert [hit.grain for hit in memory.list("summary")][:2] == ["monthly", "weekly"]
    assert {hit.grain for hit in memory.list(since=NOW - 39 * DAY)} <= {"weekly", "monthly"}
    for wrong in ({"kind": "facts"}, {"cursor": "x"}, {"cursor": "e30="}, {"limit": 0}, {"limit": 101}):
        with pytest.raises(InputError):
            memory.list(**wrong)
    with pytest.raises(InputError, match="cursor"):
        memory.list("memory", cursor=memory.list("fact", limit=1).cursor)


@settings(max_examples=10, deadline=None)
@given(
    seconds=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    late=st.lists(st.integers(0, 4), max_size=4),
    limit=st.integers(1, 5),
)
def test_a_walk_returns_each_item_once_while_others_are_written(
    seconds: Sequence[int], late: Sequence[int], limit: int
) -> None:
    with TemporaryDirectory() as root:
        memory = Memory(root, user_id="anna")
        memory.add([said(f"Early {n}", at) for n, at in enumerate(seconds)], conversation_id="c", now=NOW + DAY)
        rest = [said(f"Late {n}", at) for n, at in enumerate(late)]
        found, cursor = [], None
        while True:
            page = memory.list(cursor=cursor, limit=limit)
            found += [hit.content for hit in page if "Early" in hit.content]
            if rest:
                memory.add([rest.pop()], conversation_id="late", now=NOW + DAY)
            if page.cursor is None:
                break
            cursor = page.cursor
        assert sorted(found) == sorted(f"User: Early {n}." for n in range(len(seconds)))


def said(text: str, at: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{text}.", "timestamp": (NOW + timedelta(seconds=at)).isoformat()}


def test_yesterday_is_meant_on_the_clock_of_the_user(root: str) -> None:
    memory = Memory(root, user_id="kenji", timezone="Asia/Tokyo")
    memory.add("I saw Dr. Meyer yesterday.", now=datetime(2024, 1, 15, 22, tzinfo=UTC))
    [hit] = memory.search("Dr. Meyer")
    assert str(hit.date) == "2024-01-16"
    found = memory.search("When did I see Dr. Meyer?", since="2024-01-16")
    assert [hit.id for hit in found] == [hit.id]


def test_async_memory_has_the_same_methods(root: str) -> None:
    async def talk() -> None:
        memory = AsyncMemory(root, user_id="anna")
        await asyncio.gather(*(memory.add(f"I like {word}.") for word in ("figs", "kites", "rain")))
        assert len(await memory.search("What do I like?")) == 3
        assert "figs" in str(await memory.context("Do I like figs?"))
        one = await memory.remember("Prefers tea.", "preference")
        assert len(await memory.history(one)) == 1
        assert len(await memory.list("fact")) == 3
        assert len(await memory.conversations.list()) == 3
        fact = await memory.facts.store("Anna likes figs.", subject="Anna")
        assert [each.id for each in await memory.facts.facts_about("Anna")] == [fact]
        await memory.run()
        assert "figs" in {fact.target for fact in await memory.graph.facts()}
        await memory.forget(one)
        await memory.forget(everything=True)
        assert await memory.list() == []

    asyncio.run(talk())
    names = {name for name in vars(Memory) if not name.startswith("_")}
    assert names - set(vars(AsyncMemory)) == {"new_conversation_id"}


SCRIPT = """
import sys
from memory_pipeline import Memory
memory = Memory(sys.argv[1], user_id="anna")
conversation = {"conversation_id": "chat"}
print(memory.context(sys.argv[2], conversation=conversation, only_new=True))
memory.add(sys.argv[2], conversation_id="chat")
"""


def test_a_conversation_is_told_nothing_twice_by_two_processes(root: str, models: Models) -> None:
    memory = Memory(root, user_id="anna")
    memory.add("I moved to Porto.", conversation_id="before")
    memory.remember("Anna's sister is called Ines.")

    def told(prompt: str) -> str:
        return subprocess.check_output([sys.executable, "-c", SCRIPT, root, prompt], text=True)

    assert "Porto" in told("Where do I live? I like kites.")
    second = told("Who lives in Porto, and who likes kites?")
    assert ("Porto" in second, "kites" in second) == (False, False)
    about = {"conversation_id": "chat"}
    for is_new in (True, False):
        assert ("Ines" in str(memory.context("sister", conversation=about, only_new=True))) is is_new
    assert "Porto" in str(memory.context("Porto", conversation={"conversation_id": "other"}, only_new=True))
    assert "session" not in {hit.kind for hit in memory.search("Porto", tiers="all")}
    memory.session("chat").clear()
    assert "Porto" in str(memory.context("Porto", conversation=about, only_new=True))
    # What was told may quote what is erased.
    forget(memory.lake, models, Subject.conversation(Scope("default", "default"), "before"), datetime.now(UTC))
    assert memory.session("chat").told.items() == memory.session("other").told.items() == {}
    with pytest.raises(InputError, match="conversation_id"):
        memory.context("Porto", only_new=True)


def test_what_was_told_counts_from_now(memory: Memory) -> None:
    memory.remember("Anna's sister is called Ines.", now=NOW)

    def told(at: timedelta) -> bool:
        about = {"conversation_id": "chat"}
        return bool(memory.context("sister", conversation=about, only_new=True, now=NOW + at).parts)

    assert [told(timedelta(hours=hour)) for hour in (2, 3, 25, 27)] == [True, False, False, True]
    assert told(timedelta(hours=1))  # before it was told
    assert not told(timedelta(hours=4))


def test_a_page_reads_its_own_memories_alone_and_statistics_all(
    memory: Memory, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"The box of number {number} holds {number * 7} pins." for number in range(250)]
    memory.writer.change_memories([{"memory": "REMEMBER", "content": text} for text in texts[:200]], now=NOW)
    memory.run(now=NOW + DAY)
    memory.writer.change_memories([{"memory": "REMEMBER", "content": text} for text in texts[200:]], now=NOW + DAY)
    memory = Memory(root, user_id="anna")
    read = []

    def counted(overlay: MemoryOverlay, where: str, *columns: Any) -> Any:
        read.append(where.count("memory:"))
        return rows(overlay, where, *columns)

    rows = MemoryOverlay.rows
    monkeypatch.setattr(MemoryOverlay, "rows", counted)
    pages = [memory.list("memory", limit=100)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(memory.list("memory", cursor=cursor, limit=100))
    assert sorted(hit.content for page in pages for hit in page) == sorted(texts)
    assert len(read) <= len(pages) + 1  # once for the keys that pending entries are compared with
    assert max(read) <= 101
    assert len(memory.list("memory", since=NOW + DAY, limit=100)) == 50
    size = sum(map(len, texts))
    assert memory.stats()["long_term"][:2] == (250, size)
    monkeypatch.setattr(queries, "MAX_LISTED", 100)
    assert memory.stats()["long_term"][:2] == (250, size)


def test_importing_the_package_imports_nothing_heavy(tmp_path: Path) -> None:
    script = "import sys, memory_pipeline; print([x for x in ('lancedb', 'pyarrow', 'dagster') if x in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, text=True).strip() == "[]"

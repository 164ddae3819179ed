"""The verbs of sessions, tiers and pools, through the front: what each does, and who may call it."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline.client import async_memory as views
from memory_pipeline.client.conversations import Conversations
from memory_pipeline.client.facts import FactStore
from memory_pipeline.client.sharing import AgentPool
from memory_pipeline.client.tiers import TierValue
from memory_pipeline.domain.memories.record import DurableMemory
from memory_pipeline.errors import AccessDeniedError, InputError
from memory_pipeline.graph import Graph
from memory_pipeline.graph.graph import Facts
from memory_pipeline.memories.contexts import Contexts
from memory_pipeline.sessions.views import KeyValues, ScratchPad, SessionMemory, ShortTermMemory
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def agent(root: str, name: str, **options: Any) -> Memory:
    return Memory(root, agent_id=name, **options)


def test_a_shared_value_is_for_one_agent_of_the_workspace_and_one_user(root: str) -> None:
    a, b = (agent(root, name, user_id="anna") for name in "AB")
    assert a.share_with_agent("B", "plan", {"step": 2}, now=NOW) == 1
    assert b.retrieve_shared("A", "plan", now=after(1)) == {"step": 2}
    assert b.retrieve_shared("A", "other", "none", now=after(1)) == "none"
    others = (agent(root, "C", user_id="anna"), agent(root, "B"), agent(root, "B", user_id="ben"), a)
    elsewhere = agent(root, "B", user_id="anna", workspace_id="elsewhere")
    for other in (*others, elsewhere):
        assert other.retrieve_shared("A", "plan", now=after(1)) is None
        assert other.retrieve_shared("B", "plan", now=after(1)) is None
    assert b.retrieve_shared("A", "plan", now=after(3600)) is None  # an hour, as values of sessions
    a.share_with_agent("B", "plan", 3, ttl=300, now=NOW)
    assert [b.retrieve_shared("A", "plan", now=after(second)) for second in (299, 300)] == [3, None]


def test_shared_values_are_found_with_the_shared_tier_and_not_as_a_session(root: str) -> None:
    a, b = agent(root, "A"), agent(root, "B")
    a.share_with_agent("B", "plan", "Sail to Faro", now=NOW)
    assert [hit.kind for hit in b.search("Faro", tiers="all", now=after(1))] == ["shared"]
    assert a.search("Faro", tiers="all", now=after(1)) == []
    assert b.session("A").items(now=after(1)) == {}
    assert b.stats(now=after(1))["shared"].entries == 1


@pytest.mark.parametrize("forgotten", ["A", "B"])
def test_an_erasure_of_either_agent_removes_what_was_shared(root: str, forgotten: str) -> None:
    agent(root, "A").share_with_agent("B", "plan", 1)
    agent(root, forgotten).add("I moved to Porto.")
    agent(root, "C").share_with_agent("B", "plan", 2)
    b = agent(root, "B")
    b.forget(conversation_id="A")  # no session has this id
    assert b.retrieve_shared("A", "plan") == 1
    agent(root, forgotten).forget(everything=True)
    assert b.retrieve_shared("A", "plan") is None
    assert b.retrieve_shared("C", "plan") == (2 if forgotten == "A" else None)


def test_the_old_calls_of_sharing_are_accepted(root: str) -> None:
    a, b = agent(root, "A"), agent(root, "B")
    a.add("The code of the vault is 4711.")
    old: Any = a
    old.share_with_agent("B", level="write")
    old.share_with_agent(team="office")
    with pytest.raises(TypeError, match="value"):
        old.share_with_agent("B", "plan")  # a forgotten value shares no memory
    assert [(one.to_agent, one.to_team, one.level) for one in a.grants()] == [
        ("B", None, "write"),
        (None, "office", "read"),
    ]
    asking: Any = b
    for hits in (
        b.search_shared("code", "A"),
        asking.retrieve_shared("code", agent="A", limit=1),
        asking.retrieve_shared(query="code", agent="A"),
    ):
        assert [hit.content for hit in hits] == ["User: The code of the vault is 4711."]


def test_a_stranger_may_read_a_public_pool_and_neither_write_nor_clear_it(root: str) -> None:
    a = agent(root, "A")
    pool = a.pool("notes", type="agent_private")
    pool.write("k", 1)
    a.pool("other", type="agent_private").write("k", 1)
    seen = {name: agent(root, name).of_agent("A").pool("notes") for name in "BC"}
    writes: list[Callable[[], object]] = [
        *(lambda: seen["C"].write("k", 2), lambda: seen["C"].merge({"k": 2})),
        *(lambda: seen["C"].remove("k"), seen["C"].clear, seen["C"].public_read),
        lambda: seen["C"].grant("C", "write"),
    ]
    for way in (seen["C"].read, *writes):
        with pytest.raises(AccessDeniedError):
            way()
    pool.public_read()
    pool.grant("B", "write")
    assert [pool.accessible_by(*asked) for asked in (("C",), ("C", "write"), ("B", "write"), ("B", "admin"))] == [
        *(True, False, True, False)
    ]
    assert seen["C"].read("k") == 1
    for way in writes:
        with pytest.raises(AccessDeniedError):
            way()
    seen["B"].write("k", 2)
    with pytest.raises(AccessDeniedError):  # of another pool, and of the memory
        agent(root, "B").of_agent("A").pool("other").read()
    with pytest.raises(AccessDeniedError):
        agent(root, "B").search_shared("k", "A")
    pool.public_read(is_public=False)
    assert pool.revoke("B")
    for other in seen.values():
        with pytest.raises(AccessDeniedError):
            other.read()
    assert pool.read("k") == 2


def test_a_pool_is_granted_to_a_team_and_by_an_admin(root: str) -> None:
    a, b, c = (agent(root, name, user_id="anna") for name in "ABC")
    pool = a.pool("notes", type="agent_private")
    pool.write("k", 1)
    a.add_to_team("office", "C")
    pool.grant(team="office")
    pool.grant("B", "admin")
    assert c.of_agent("A", "anna").pool("notes").read("k") == 1
    shared = b.of_agent("A", "anna").pool("notes")
    shared.grant("D", "write")
    assert shared.accessible_by("D", "write")
    assert agent(root, "D").of_agent("A", "anna").pool("notes").write("k", 2) == 2
    pool.revoke("B")
    assert not pool.accessible_by("D")
    assert [one.context for one in a.grants()] == ["pool:notes"]


@pytest.mark.parametrize(
    "options", [{}, {"scope": "global"}, {"run": "r"}, {"type": "agent_private", "scope": "account"}]
)
def test_other_pools_have_no_grants(root: str, options: dict[str, str]) -> None:
    with pytest.raises(InputError, match="agent_private"):
        agent(root, "A").pool("notes", **options).grant("B")


def test_no_context_opens_a_pool(root: str) -> None:
    with pytest.raises(InputError, match="reserved"):
        agent(root, "A").contexts.create("pool:notes")


def test_one_tier_is_read_and_written_with_a_life_and_a_type(root: str) -> None:
    memory = Memory(root, user_id="anna")
    for tier in ("shared", "long_term", "short_term", "session"):
        memory.write("city", tier, tier=tier, now=NOW)
    for tier in ("shared", "long_term", "short_term", "session"):
        assert memory.read("city", tier=tier, now=after(1)) == TierValue(tier, tier)
    assert memory.read("town", tier="shared", now=after(1)) is None
    memory.write("city", "Faro", tier="short_term", type="reflection", ttl=60, now=NOW)
    assert [one.type for one in memory.session().short_term.list(now=after(59))] == ["reflection"]
    assert memory.read("city", tier="short_term", now=after(60)) is None
    memory.write("city", "Faro", ttl=60, now=NOW)
    assert memory.read("city", now=after(60)) == TierValue("long_term", "long_term")
    for tier, options in (("session", {"type": "reflection"}), ("long_term", {"ttl": 60}), ("warm", {})):
        with pytest.raises(InputError, match=tier if not options else "leave it out"):
            memory.write("city", 1, tier=tier, now=NOW, **options)
    with pytest.raises(InputError, match="ttl 0"):
        memory.write("city", 1, ttl=0)
    with pytest.raises(InputError, match="tier 'warm'"):
        memory.read("city", tier="warm")


def test_consolidation_of_a_session_promotes_what_was_read(root: str) -> None:
    memory = Memory(root, user_id="anna")
    for session in ("s1", "s2"):
        for key in ("used", "unused"):
            memory.write(key, f"The {key} note of {session}.", tier="short_term", session_id=session)
        for _ in range(3):
            memory.read("used", session_id=session)
    long: Any = "x" * 30_000
    memory.write("long", long, tier="short_term", session_id="s1")
    for _ in range(3):
        memory.read("long", session_id="s1")
    done = memory.consolidate("s1")
    assert (done.promoted, done.refused, len(done.reasons)) == (1, 1, 1)
    assert memory.read("used", session_id="s1") == TierValue("long_term", "The used note of s1.")
    assert memory.session("s1").short_term.keys() == ["long", "unused"]
    assert memory.session("s2").short_term.keys() == ["unused", "used"]
    assert memory.consolidate("s1").promoted == 0
    assert Memory(root).consolidate("s2").promoted == 0  # the session of no user


def test_messages_and_notes_of_a_session(root: str) -> None:
    session = Memory(root).session("s1")
    for text in ("Hello.", "Good day."):
        session.append_to_conversation({"role": "user", "content": text}, now=NOW)
    assert [one["content"] for one in session.conversation_context.retrieve("conversation", now=after(1))] == [
        *("Hello.", "Good day.")
    ]
    session.scratch_pad.append("first", now=NOW)
    session.store_scratch_pad("second", ttl=60, now=NOW)
    assert [session.scratch_pad.read(now=after(second)) for second in (59, 60)] == [["second"], []]


def test_the_memory_of_a_workflow_is_for_its_run(root: str) -> None:
    agent(root, "A").workflow_memory("r1").write("step", 2)
    assert agent(root, "B").workflow_memory("r1").read() == {"step": 2}
    assert agent(root, "B").workflow_memory("r2").read() == {}


def test_the_verbs_can_be_awaited(root: str) -> None:
    async def used() -> list[object]:
        a, b = AsyncMemory(root, agent_id="A"), AsyncMemory(root, agent_id="B")
        await a.share_with_agent("B", "plan", 1)
        await a.grant("B")
        await a.write("city", "Porto", tier="short_term", type="reflection", ttl=60)
        found = [await b.retrieve_shared("A", "plan"), await a.accessible_by("B"), (await a.consolidate()).promoted]
        pool = a.pool("notes", type="agent_private")
        await pool.public_read()
        return [*found, await pool.accessible_by("C"), await a.read("city", tier="short_term")]

    assert asyncio.run(used()) == [1, True, 0, True, TierValue("short_term", "Porto")]


def test_a_memory_at_a_fixed_time_answers_as_its_calls_with_that_time(root: str) -> None:
    memory = Memory(root, user_id="anna")
    then, later = memory.with_now(NOW), memory.with_now(after(86_400))
    assert (said := then.add("I moved to Porto.").conversation_id).startswith("2026-03-02T09:00")
    tea = then.remember("Anna likes tea.")
    later.writer.update(tea, "Anna likes coffee.")
    then.contexts.create("trip")
    then.session("s1").short_term.store("k", 1)
    then.pool("board").write("k", 1, ttl=60)
    agent(root, "B", user_id="anna").with_now(NOW).share_with_agent("default", "k", 1)
    assert [one.created_at.replace(microsecond=0) for one in memory.contexts.list()] == [NOW]
    assert [one.last_at for one in later.conversations.list(active_within=timedelta(days=1))] == [NOW]
    assert [then.session("s1").short_term.exists("k"), later.session("s1").short_term.exists("k")] == [True, False]
    assert [then.pool("board").read("k"), later.pool("board").read("k")] == [1, None]
    assert [then.retrieve_shared("B", "k"), later.retrieve_shared("B", "k")] == [1, None]
    for fixed, at, drink in ((then, NOW, "tea"), (later, after(86_400), "coffee")):
        found = fixed.reader.memories.list()
        assert found == memory.reader.memories.list(now=at)
        assert f"Anna likes {drink}." in [one.content for one in found]
    assert then.search("Porto", now=after(-864_000)) == []  # a call has its own
    assert later.search("Porto")[0].conversation_id == said
    assert [hit.conversation_id for hit in asyncio.run(AsyncMemory(root, user_id="anna").with_now(NOW).search("Porto"))]
    assert then.with_now(after(86_400)).session("s1").short_term.keys() == []
    with pytest.raises(InputError, match="now 'yesterday'"):
        memory.with_now("yesterday")


def test_a_deleted_context_is_gone_with_its_entries_and_may_be_created_again(root: str) -> None:
    contexts = Memory(root).contexts
    contexts.create("trip", "project_context")
    for key in ("hotel", "train"):
        contexts.put("trip", key, f"The {key} is booked.")
    contexts.put("trip", "plane", "The plane is booked.")
    contexts.remove("trip", "plane")
    contexts.snapshot("trip", "draft")
    contexts.archive("trip")
    contexts.create("other")
    contexts.put("other", "hotel", "No hotel.")
    assert contexts.delete("trip") == 2
    assert [one.name for one in contexts.list()] == ["other"]
    assert Memory(root).search("Is the train booked?", sources=("contexts",), minimum_score=0.9) == []
    for use in (contexts.delete, contexts.entries, lambda name: contexts.put(name, "hotel", "Again.")):
        with pytest.raises(InputError, match="'trip' is unknown"):
            use("trip")
    contexts.create("trip", "tool_cache")
    assert contexts.entries("trip") == []
    assert contexts.restore("trip", "draft") == 2
    assert [one.content for one in contexts.entries("other")] == ["No hotel."]


def test_the_scope_of_a_context_says_who_reads_it(root: str) -> None:
    a, b, c = (agent(root, name) for name in "ABC")
    a.add_to_team("office", "B")
    for name, options in (
        ("own", {}),
        ("of office", {"scope": "team", "team": "office"}),
        ("of all", {"scope": "global"}),
    ):
        assert a.contexts.create(name, **options).scope == options.get("scope", "agent")
        a.contexts.put(name, "k", "A line.")
    assert [(one.name, one.scope) for one in a.contexts.list()] == [
        ("of all", "global"),
        ("of office", "team"),
        ("own", "agent"),
    ]
    for other, names in ((b, {"of office", "of all"}), (c, {"of all"})):
        for name in ("own", "of office", "of all"):
            if name in names:
                assert other.of_agent("A").contexts.get(name, "k")
            else:
                with pytest.raises(AccessDeniedError):
                    other.of_agent("A").contexts.get(name, "k")
            with pytest.raises(AccessDeniedError):
                other.of_agent("A").contexts.delete(name)
    assert a.revoke("*", context="of all")
    assert {one.scope for one in a.contexts.list()} == {"agent", "team"}
    for options in ({"scope": "team"}, {"team": "office"}, {"scope": "account"}):
        with pytest.raises(InputError, match=r"team|scope"):
            a.contexts.create("other", **options)
    assert len(a.contexts.list()) == 3


def test_an_entry_may_be_the_summary_of_a_conversation_and_has_an_editor(root: str) -> None:
    memory = Memory(root)
    memory.contexts.create("trip")
    text = "Anna booked a hotel and a train."
    fields: dict[str, Any] = {"context": "trip", "key": "monday", "source_type": "workflow"}
    known = memory.remember(text, "conversation_summary", editor="planner", **fields)
    assert [(one.kind, one.editor) for one in memory.history(known)] == [("conversation_summary", "planner")]
    assert [one.id for one in memory.reader.memories.list(kind="conversation_summary", context="trip")] == [known]


async def _typed(memory: AsyncMemory) -> None:
    """Mypy checks these types. Nobody calls it."""
    assert_type(await memory.facts.facts_about("Anna"), list[DurableMemory])
    assert_type(await memory.pool("board").snapshot(), tuple[dict[str, Any], int])
    assert_type(await memory.session("s1").short_term.touch_access("k"), int)
    assert_type(await memory.of_agent("A").contexts.get("c", "k"), DurableMemory | None)
    assert_type(await memory.graph.facts_about("Anna"), Facts)
    assert_type(await memory.conversations.prune(timedelta(1)), int)
    await memory.session("s1").store("k", 1, life=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("view", "part"),
    [
        (AsyncMemory, Memory),
        (views.AsyncConversations, Conversations),
        (views.AsyncFacts, FactStore),
        (views.AsyncContexts, Contexts),
        (views.AsyncGraph, Graph),
        (views.AsyncSession, SessionMemory),
        (views.AsyncKeyValues, KeyValues),
        (views.AsyncShortTerm, ShortTermMemory),
        (views.AsyncScratchPad, ScratchPad),
        (views.AsyncPool, AgentPool),
    ],
)
def test_every_method_can_be_awaited(view: type, part: type) -> None:
    def methods(cls: type) -> set[str]:
        return {name for name, one in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")}

    left_out = {"new_conversation_id"} | ({"joining", "around", "mentions"} if part is Graph else set())
    assert methods(part) - left_out <= methods(view)


def test_the_verbs_on_the_command_line(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    memory = Memory(root, user_id="anna")
    memory.contexts.create("trip")
    anna = ["--user", "anna"]
    in_session = ["--tier", "short_term", "--session", "s1", *anna]
    call("sessions", "write", "city", '{"name": "Porto"}', "--ttl", "600", *in_session)
    for _ in range(3):
        city = read("sessions", "read", "city", *in_session)
        assert city == {"tier": "short_term", "value": {"name": "Porto"}}
    assert read("sessions", "consolidate", "--session", "s1", *anna)["promoted"] == 1
    assert read("sessions", "read", "city", "--session", "s1", *anna)["tier"] == "long_term"
    assert "'town'" in str(call("sessions", "read", "town", *anna).exception)
    assert read("sessions", "share", "planner", "plan", "[1, 2]", *anna)["version"] > 0
    assert read("sessions", "retrieve", "default", "plan", "--agent", "planner", *anna) == [1, 2]
    assert read("sessions", "retrieve", "default", "plan", "--agent", "planner") is None
    ids = ["--workspace", "default", "--agent", "default"]
    assert read("contexts", "delete", "trip", *ids, *anna) == {"deleted": 0}
    assert call("contexts", "delete", "trip", *anna).exit_code == 2  # a command that deletes has no default agent
    call("share", "planner", "--context", "pool:notes", *ids)
    assert memory.with_now(NOW).pool("notes", type="agent_private").accessible_by("planner") is False  # of no user
    assert Memory(root).pool("notes", type="agent_private").accessible_by("planner")

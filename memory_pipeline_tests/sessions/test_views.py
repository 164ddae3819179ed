"""Sessions, short-term entries and pools, in SQLite and in PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError, VersionConflictError
from memory_pipeline.steps.promotion import promote

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("database")

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOSTILE = [
    "../../etc/passwd",
    "'; DROP TABLE memory_pipeline_entries; --",
    "%s :key {0} \\",
    "ключ 🔑",
    "k" * 256,
    "🔑" * 256,
]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def test_a_value_lives_until_its_time_is_over(memory: Memory) -> None:
    session = memory.session("s1")
    assert session.store("step", {"n": 3}, ttl=300, now=at(0)) == 1
    assert session.retrieve("step", now=at(299)) == {"n": 3}
    assert session.exists("step", now=at(299))
    assert session.retrieve("step", "none", now=at(300)) == "none"
    assert (session.exists("step", now=at(300)), session.keys(now=at(300))) == (False, [])
    session.store("default", 1, now=at(0))
    assert session.retrieve("default", now=at(3599)) == 1
    assert session.retrieve("default", now=at(3600)) is None
    session.store("half", 1, ttl=timedelta(seconds=0.5), now=at(0))
    assert (session.exists("half", now=at(0.4)), session.exists("half", now=at(0.5))) == (True, False)


def test_values_are_replaced_listed_and_removed(memory: Memory) -> None:
    session = memory.session("s1")
    assert [session.store("b", value, now=at(0)) for value in (1, None)] == [1, 2]
    session.store("a", [1, "two", {"three": 3.5}], now=at(0))
    assert session.keys(now=at(1)) == ["a", "b"]
    assert (session.retrieve("a", now=at(1)), session.retrieve("b", "none", now=at(1))) == (
        [1, "two", {"three": 3.5}],
        None,
    )
    assert [session.remove("a", now=at(1)) for _ in range(2)] == [True, False]
    assert not session.remove("b", now=at(4_000))  # expired before
    assert session.keys(now=at(1)) == []


def test_the_parts_of_a_session_have_keys_of_their_own(memory: Memory) -> None:
    session = memory.session("s1")
    parts = [
        session,
        session.task_state,
        session.intermediate_results,
        session.conversation_context,
        session.tool_state,
    ]
    for number, part in enumerate(parts):
        part.store("same", number, now=at(0))
    assert [part.retrieve("same", now=at(1)) for part in parts] == [0, 1, 2, 3, 4]
    session.scratch_pad.append("first", now=at(0))
    assert session.scratch_pad.append({"second": "it's"}, now=at(1)) == 2
    assert session.scratch_pad.read(now=at(2)) == ["first", {"second": "it's"}]
    assert session.task_state.clear(now=at(2)) == 1
    assert session.clear(now=at(2)) == 5
    assert (session.keys(now=at(2)), session.scratch_pad.read(now=at(2))) == ([], [])
    session.scratch_pad.append("again", ttl=10, now=at(3))
    assert session.scratch_pad.read(now=at(13)) == []
    session.scratch_pad.append("anew", now=at(14))
    assert session.scratch_pad.read(now=at(15)) == ["anew"]


def test_a_full_scratch_pad_refuses_more_and_keeps_what_it_has(memory: Memory) -> None:
    pad = memory.session("s1").scratch_pad
    pad.append("x" * 900_000, now=at(0))
    with pytest.raises(InputError, match="full"):
        pad.append("y" * 200_000, now=at(1))
    assert len(pad.read(now=at(2))) == 1


def test_another_user_agent_workspace_or_lake_has_another_session(root: str) -> None:
    owners: list[dict[str, Any]] = [
        {"user_id": "anna"},
        {"user_id": "ben"},
        {},
        {"agent_id": "sales"},
        {"user_id": "anna", "agent_id": "sales"},
        {"workspace_id": "acme"},
    ]
    memories = [*(Memory(root, **owner) for owner in owners), Memory(f"{root}-2", user_id="anna")]
    for number, memory in enumerate(memories):
        memory.session("s1").store("k", number, now=at(0))
        memory.pool("board", scope="agent").write("k", number, now=at(0))
    assert [memory.session("s1").retrieve("k", now=at(1)) for memory in memories] == [*range(7)]
    assert [memory.pool("board", scope="agent").read("k", now=at(1)) for memory in memories] == [*range(7)]
    assert memories[0].session("s2").keys(now=at(1)) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_keys_ids_and_values_are_plain_text(root: str, text: str) -> None:
    memory = Memory(root, user_id=text, agent_id=text, workspace_id=text)
    session = memory.session(text)
    session.store(text, {text: [text, "\x00\u2028"]}, now=at(0))
    assert session.retrieve(text, now=at(1)) == {text: [text, "\x00\u2028"]}
    session.short_term.store(text, text, now=at(0))
    assert session.short_term.list(now=at(1))[0][:2] == (text, text)
    pool = memory.pool(text, run=text)
    pool.write(text, text, now=at(0))
    assert pool.read(now=at(1)) == {text: text}
    assert memory.pool(text, type="task_scoped", scope="team", team=text, task=text).write(text, 1, now=at(0)) == 1
    assert session.persist(now=at(1)) == 2


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda memory: memory.session("s").store("", 1), "key"),
        (lambda memory: memory.session("s").store("k" * 257, 1), "key"),
        (lambda memory: memory.session("s").store("k\n", 1), "key"),
        (lambda memory: memory.session("s").store("k", object()), "value"),
        (lambda memory: memory.session("s").store("k", float("nan")), "value"),
        (lambda memory: memory.session("s").store("k", {1: "one"}), "name 1"),
        (lambda memory: memory.session("s").store("k", "\ud800"), "Unicode"),
        (lambda memory: memory.session("s").store("k", "x" * 1_000_000), "1,000,002 bytes"),
        (lambda memory: memory.session("s").store("k", nested(102)), "levels"),
        (lambda memory: memory.session("s").store("k", nested(100_000)), "levels"),
        (lambda memory: memory.session("s").store("k", 1, ttl=0), "ttl 0"),
        (lambda memory: memory.session("s").store("k", 1, ttl=-1), "ttl -1"),
        (lambda memory: memory.session("s").store("k", 1, ttl=86_401), "86,400"),
        (lambda memory: memory.session("s").store("k", 1, ttl=float("nan")), "ttl"),
        (lambda memory: memory.session("s").store("k", 1, ttl=True), "ttl"),
        (lambda memory: memory.session("s").store("k", 1, now=datetime(2026, 1, 1)), "now"),  # noqa: DTZ001
        (lambda memory: memory.session(""), "session_id"),
        (lambda memory: memory.session("s").short_term.store("k", 1, "dream"), "observation"),
        (lambda memory: memory.session("s").short_term.list("dream"), "observation"),
        (lambda memory: memory.pool("p", type="public"), "agent_private"),
        (lambda memory: memory.pool("p", scope="galaxy"), "global"),
        (lambda memory: memory.pool("p", scope="team"), "needs team"),
        (lambda memory: memory.pool("p", task="t"), "takes no task"),
        (lambda memory: memory.pool("p", run="r", type="shared"), "blackboard"),
        (lambda memory: memory.pool("p", run="r", team="t"), "no scope, team or task"),
        (lambda memory: memory.pool("p").write("k", 1, expected_version=-1), "expected_version"),
        (lambda memory: memory.pool("p").write("k", 1, expected_version="1"), "expected_version"),
        (lambda memory: memory.pool("p").merge([1]), "mapping"),
        (lambda memory: memory.write("k", 1, tier="cold"), "long_term"),
        (lambda memory: memory.search("k", tiers="cold"), "long_term"),
        (lambda memory: memory.search("k", tiers=()), "tiers is empty"),
    ],
)
def test_bad_input_is_refused_with_what_is_accepted(
    memory: Memory, call: Callable[[Memory], object], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        call(memory)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_short_term_entries_count_reads_and_live_on_when_refreshed(memory: Memory) -> None:
    short = memory.session("s1").short_term
    short.store("plan", "Call Anna.", "task_context", now=at(0))
    assert [short.retrieve("plan", now=at(1)) for _ in range(3)] == ["Call Anna."] * 3
    [entry] = short.list(now=at(2))
    assert (entry.key, entry.type, entry.accesses, entry.expires_at) == ("plan", "task_context", 3, at(3_600))
    assert short.refresh_ttl("plan", now=at(1_800))
    [entry] = short.list("task_context", now=at(5_399))
    assert entry.expires_at == at(5_400)
    assert short.list("observation", now=at(2)) == []
    assert short.touch_access("plan", now=at(5_399)) == 4
    assert (short.touch_access("plan", now=at(5_400)), short.list(now=at(5_400))) == (0, [])
    assert not short.refresh_ttl("plan", now=at(5_400))
    short.store("plan", "Call Ben.", now=at(5_400))
    [entry] = short.list(now=at(5_401))
    assert (entry.value, entry.type, entry.accesses) == ("Call Ben.", "observation", 0)


def test_a_saved_session_is_restored_for_the_rest_of_its_time(memory: Memory) -> None:
    session = memory.session("s1")
    session.store("short", 1, ttl=300, now=at(0))
    session.store("long", 2, ttl=3_000, now=at(0))
    session.tool_state.store("cursor", "c", now=at(0))
    session.scratch_pad.append("note", now=at(0))
    session.short_term.store("plan", "Call Anna.", "reflection", now=at(0))
    assert [session.short_term.touch_access("plan", now=at(1)) for _ in range(2)] == [1, 2]
    assert session.persist(now=at(100)) == 5
    session.clear(now=at(100))
    session.short_term.clear(now=at(100))
    session.store("other", 3, now=at(150))
    assert memory.session("s2").load(now=at(200)) == 0
    assert Memory(str(memory.lake.storage.uri), user_id="ben").session("s1").load(now=at(200)) == 0
    assert session.load(now=at(299)) == 5
    assert session.retrieve("short", now=at(299)) == 1
    assert session.retrieve("short", now=at(300)) is None
    assert session.load(now=at(1_000)) == 4
    assert session.keys(now=at(1_000)) == ["long", "other"]
    assert (session.tool_state.retrieve("cursor", now=at(3_599)), session.scratch_pad.read(now=at(3_599))) == (
        "c",
        ["note"],
    )
    assert session.tool_state.retrieve("cursor", now=at(3_600)) is None
    [entry] = session.short_term.list(now=at(1_000))
    assert (entry.key, entry.value, entry.type, entry.accesses) == ("plan", "Call Anna.", "reflection", 2)


def test_a_pool_has_one_version_and_refuses_a_stale_one(memory: Memory) -> None:
    pool = memory.pool("board")
    assert pool.snapshot(now=at(0)) == ({}, 0)
    assert pool.write("plan", {"step": 1, "owner": "a"}, expected_version=0, now=at(0)) == 1
    assert pool.write("status", "open", now=at(1)) == 2
    assert pool.merge({"plan": {"step": 2}}, now=at(2)) == 3
    assert pool.read(now=at(3)) == {"plan": {"step": 2, "owner": "a"}, "status": "open"}
    with pytest.raises(VersionConflictError, match="version 3, not 2") as raised:
        pool.write("status", "done", expected_version=2, now=at(3))
    assert raised.value.version == 3
    with pytest.raises(VersionConflictError):
        pool.merge({"status": "done"}, expected_version=0, now=at(3))
    assert pool.write("status", "done", expected_version=3, now=at(4)) == 4
    assert pool.remove("status", now=at(5)) == 5
    assert (pool.read("status", "none", now=at(6)), pool.read("plan", now=at(6))) == ("none", {"step": 2, "owner": "a"})
    figures = pool.statistics(now=at(7))
    assert (figures.version, figures.keys, figures.reads) == (5, 1, 3)
    assert (figures.created_at, figures.updated_at, figures.expires_at) == (at(0), at(5), None)
    with pytest.raises(InputError, match="bytes"):
        pool.write("large", "x" * 1_000_000, now=at(8))
    assert [pool.clear(now=at(9)) for _ in range(2)] == [True, False]
    assert pool.statistics(now=at(9)).version == 0


def test_a_version_is_never_used_twice(memory: Memory) -> None:
    """Whoever read a pool before it was removed or expired does not overwrite the new one."""
    pool, values = memory.pool("board"), memory.session("s1")
    seen, last = set[int](), 0
    for place in range(4):
        start = 1_000 * place
        old = pool.write("plan", place, ttl=100, now=at(start))
        for one in (old, pool.write("plan", 0, expected_version=old, now=at(start + 1))):
            assert one not in seen
            seen.add(one)
        before, last = last, values.store("k", place, ttl=100, now=at(start))
        assert last > before
        if place % 2:  # else they expire, and a run deletes them
            pool.clear(now=at(start + 2))
            values.clear(now=at(start + 2))
        else:
            promote(memory.lake, at(start + 500))
        pool.write("plan", "new", expected_version=0, now=at(start + 600))
        for stale in seen:
            with pytest.raises(VersionConflictError):
                pool.write("plan", "stale", expected_version=stale, now=at(start + 601))
        seen.add(pool.snapshot(now=at(start + 602))[1])
        pool.clear(now=at(start + 603))


def test_a_pool_expires_as_its_writes_say(memory: Memory) -> None:
    pool = memory.pool("board")
    pool.write("a", 1, ttl=100, now=at(0))
    pool.write("b", 2, now=at(50))
    assert pool.read(now=at(99)) == {"a": 1, "b": 2}
    assert pool.snapshot(now=at(100)) == ({}, 0)
    with pytest.raises(VersionConflictError):
        pool.write("c", 3, expected_version=2, now=at(100))
    pool.write("c", 3, expected_version=0, now=at(100))
    assert pool.read(now=at(200)) == {"c": 3}


def test_a_pool_is_seen_by_those_in_its_scope(root: str) -> None:
    anna: dict[str, Any] = {"user_id": "anna"}
    writer = Memory(root, agent_id="a", **anna)
    same_user = Memory(root, agent_id="b", **anna)
    other_user = Memory(root, agent_id="a", user_id="ben")
    no_user = Memory(root, agent_id="a")
    elsewhere = Memory(root, agent_id="a", workspace_id="other", **anna)
    readers = [writer, same_user, other_user, no_user, elsewhere]
    pools: list[tuple[dict[str, str], set[Memory]]] = [
        ({}, {writer, same_user}),
        ({"scope": "global"}, {writer, same_user, other_user, no_user}),
        ({"type": "agent_private"}, {writer}),
        ({"scope": "agent"}, {writer}),
        ({"type": "agent_private", "scope": "global"}, {writer, other_user, no_user}),
        ({"type": "team_shared", "team": "red"}, {writer}),
        ({"type": "task_scoped", "task": "t1"}, {writer, same_user}),
        ({"run": "r1"}, {writer, same_user}),
        ({"run": "r1", "type": "blackboard"}, {writer, same_user}),
    ]
    for number, (named, _) in enumerate(pools):
        writer.pool("board", **named).write(f"k{number}", number, now=at(0))
    for named, seen in pools:
        assert {reader for reader in readers if reader.pool("board", **named).read(now=at(1))} == seen, named
    for other in ({"type": "team_shared", "team": "blue"}, {"type": "task_scoped", "task": "t2"}, {"run": "r2"}):
        assert writer.pool("board", **other).read(now=at(1)) == {}
    assert writer.pool("board", run="r1").read("k7", now=at(86_399)) == 7
    assert writer.pool("board", run="r1").read(now=at(86_400)) == {}


def test_expired_entries_leave_the_table_and_used_short_term_ones_wait(memory: Memory) -> None:
    from memory_pipeline.domain.sessions import micros_of
    from memory_pipeline.sessions.store import session_store

    session = memory.session("s1")
    session.store("k", 1, ttl=10, now=at(0))
    session.store("later", 1, ttl=20, now=at(0))
    for key in ("used", "unused"):
        session.short_term.store(key, 1, ttl=10, now=at(0))
    for _ in range(3):
        session.short_term.touch_access("used", now=at(1))
    memory.pool("board").write("k", 1, ttl=10, now=at(0))
    store = session_store(memory.lake)
    moment = micros_of(at(10))
    assert [store.delete_expired(moment) for _ in range(2)] == [3, 0]
    assert sorted(stored.entry.key for stored in store.stored()) == ["later", "used"]
    assert [stored.entry.key for stored in store.stored(is_used=True)] == ["used"]

"""Several processes and threads on one database: nothing is lost, and what was stored survives a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import AsyncMemory, Memory
from memory_pipeline_tests.building import NOW, PROCESSES
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.sessions.racing import append, count_up, migrate, store_and_die

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT, ROUNDS = (8, 1_000) if IS_THOROUGH else (4, 40)


def together(function: Callable[..., None], *arguments: Any, named: bool = True) -> None:
    """Run a function in processes that start at the same time."""
    barrier = PROCESSES.Barrier(COUNT)
    processes = []
    for number in range(COUNT):
        own = (*arguments[:2], f"p{number}", *arguments[2:]) if named else arguments
        processes.append(PROCESSES.Process(target=function, args=(*own, barrier)))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * COUNT


def url() -> str | None:
    return os.environ.get("MEMORY_PIPELINE_SESSIONS")


@pytest.mark.usefixtures("database")
def test_compare_and_sets_of_many_processes_lose_none(root: str) -> None:
    pool = Memory(root).pool("board")
    together(count_up, root, url(), ROUNDS)
    assert pool.read("counter") == COUNT * ROUNDS
    assert pool.statistics().version == 2 * COUNT * ROUNDS
    last = {f"p{number}-{each}": ROUNDS - 5 + each for number in range(COUNT) for each in range(5)}
    assert pool.read() == {"counter": COUNT * ROUNDS, **last}


@pytest.mark.usefixtures("database")
def test_notes_of_many_processes_are_all_kept_in_order(root: str) -> None:
    pad = Memory(root).session("shared").scratch_pad
    together(append, root, url(), ROUNDS)
    notes = pad.read()
    assert sorted(map(tuple, notes)) == sorted(
        (f"p{number}", each) for number in range(COUNT) for each in range(ROUNDS)
    )
    for number in range(COUNT):
        assert [each for name, each in notes if name == f"p{number}"] == [*range(ROUNDS)]


@pytest.mark.usefixtures("database")
def test_values_survive_the_kill_of_their_process(root: str) -> None:
    process = PROCESSES.Process(target=store_and_die, args=(root, url(), NOW.isoformat()))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    session = Memory(root).session("s1")
    assert sorted(session.retrieve(key, now=NOW) for key in session.keys(now=NOW)) == [*range(100)]


def test_one_of_many_processes_migrates_a_file(tmp_path: str) -> None:
    together(migrate, f"sqlite:///{tmp_path}/new.db", named=False)


def test_one_of_many_processes_migrates_a_server(postgresql_url: str) -> None:
    import psycopg2

    with_own = f"{postgresql_url.rpartition('/')[0]}/raced"
    connection = psycopg2.connect(postgresql_url)
    connection.autocommit = True
    connection.cursor().execute("CREATE DATABASE raced")
    connection.close()
    together(migrate, with_own, named=False)


@pytest.mark.usefixtures("database")
def test_a_forked_process_has_connections_of_its_own(root: str) -> None:
    session = Memory(root).session("s1")
    session.store("parent", 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            session.store("child", session.retrieve("parent") + 1)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    session.store("parent", 3)
    assert (session.retrieve("child"), session.retrieve("parent")) == (2, 3)


@pytest.mark.usefixtures("database")
def test_async_methods_do_the_same_concurrently(root: str) -> None:
    memory = AsyncMemory(root, user_id="anna")

    async def work() -> None:
        session, pool = memory.session("s1"), memory.pool("board", scope="global")
        await asyncio.gather(*(session.store(f"k{number}", number) for number in range(50)))
        assert len(await session.keys()) == 50
        await session.task_state.store("step", 1)
        assert await session.task_state.retrieve("step") == 1
        await asyncio.gather(*(session.scratch_pad.append(number) for number in range(20)))
        assert sorted(await session.scratch_pad.read()) == [*range(20)]
        await asyncio.gather(*(pool.write(f"k{number}", number) for number in range(20)))
        assert (await pool.statistics()).version == 20
        await memory.write("city", "Porto", tier="shared")
        found = await memory.read("city")
        assert found is not None
        assert tuple(found) == ("shared", "Porto")
        assert (await memory.stats())["session"].entries == 52
        assert [hit.kind for hit in await memory.search("Porto", tiers=["shared"])] == ["shared"]

    asyncio.run(work())

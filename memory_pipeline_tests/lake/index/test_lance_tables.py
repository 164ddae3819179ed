"""Access to lancedb: one process creates a table, lost writes are retried, and tables are compacted occasionally."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.lance_tables import Databases, retry_lance_commit, run_coroutine
from memory_pipeline.lake.index.maintenance import compact
from memory_pipeline.lake.leases import Leases
from memory_pipeline_tests.building import PROCESSES

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False)])
CONFLICTS = (
    "lance error: Retryable commit conflict for version 7: preempted by concurrent transaction Update",
    "lance error: Too many concurrent writers. Attempted 10 times",
)


class Client:
    """A client of a lake with its own tables."""

    def __init__(self, root: str) -> None:
        self.databases = Databases(Storage(root))

    def table(self, name: str = "table", folder: str = "acme") -> Any | None:
        return run_coroutine(self.databases.table(folder, name))

    def create(self, name: str = "table", folder: str = "acme") -> Any:
        return run_coroutine(self.databases.create(folder, name, SCHEMA))

    def add(self, *ids: str) -> Any:
        return self.commit(lambda table: table.add(rows(*ids)))

    def commit(self, write: Callable[[Any], Awaitable[Any]], name: str = "table") -> Any:
        def find() -> Awaitable[Any]:
            return self.databases.create("acme", name, SCHEMA)

        return run_coroutine(self.databases.commit("acme", name, find, write, same=None))

    def ids(self) -> list[str]:
        found = run_coroutine(self.create().query().to_arrow())
        return sorted(found["id"].to_pylist())

    def fragments(self) -> int:
        return int(run_coroutine(self.create().stats())["fragment_stats"]["num_fragments"])


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@pytest.fixture
def client(root: str) -> Client:
    return Client(root)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.lake.commit_retry._LONGEST_PAUSE", 0)


def losing(times: int, message: str, write: Callable[[], Awaitable[Any]] | None = None) -> Callable[[], Awaitable[Any]]:
    """Return a write that fails a number of times and then runs `write`, or returns the number of attempts."""
    tried = 0

    async def attempt() -> Any:
        nonlocal tried
        tried += 1
        if tried <= times:
            raise RuntimeError(message)
        return tried if write is None else await write()

    return attempt


def test_looking_up_a_missing_table_returns_none_and_creates_nothing(root: str, client: Client) -> None:
    assert client.table() is None
    assert not list(Path(root).rglob("*.lance"))


def test_a_table_is_created_once_in_the_folder_of_its_workspace(root: str, client: Client) -> None:
    client.add("a")
    client.create()
    Client(root).create()
    assert client.ids() == ["a"]
    assert Path(root, "acme", "table.lance").is_dir()
    assert client.table(folder="other") is None
    assert client.table("other") is None
    assert not list(Path(root, "state", "lance").glob("*.json"))


@pytest.mark.on_s3(always=True)
def test_writes_are_immediately_visible_to_others(root: str, client: Client) -> None:
    other = Client(root)
    assert other.table() is None
    for number in range(3):
        client.add(str(number))
        assert other.ids() == client.ids() == [str(n) for n in range(number + 1)]


def test_creating_a_table_waits_for_another_creator(root: str, client: Client) -> None:
    claims = Leases(Storage(root), "state/lance", lambda: datetime.now(UTC))
    key = digest("acme", "table")
    assert claims.claim(key, timedelta(minutes=1))
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(client.create)
        with pytest.raises(TimeoutError):
            making.result(timeout=0.2)
        assert Client(root).table() is None
        claims.release(key)
        assert making.result(timeout=5) is not None


@pytest.mark.parametrize("left_behind", [b"", b'{"host": "gone", "pid": 1, "until": "2024-01-15T08:00:00+00:00"}'])
def test_a_dead_creator_of_a_table_is_not_waited_for(root: str, client: Client, left_behind: bytes) -> None:
    Storage(root).write(f"state/lance/{digest('acme', 'table')}.json", left_behind)
    client.add("a")
    assert client.ids() == ["a"]


def test_threads_create_each_table_once(root: str) -> None:
    clients = [Client(root) for _ in range(4)]
    start = threading.Barrier(len(clients))

    def fill(number: int) -> None:
        start.wait()
        for name in "abcde":
            table = clients[number].create(name)
            run_coroutine(retry_lance_commit(partial(table.add, rows(str(number)))))

    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(fill, range(len(clients))))
    for name in "abcde":
        found = run_coroutine(clients[0].create(name).query().to_arrow())
        assert sorted(found["id"].to_pylist()) == ["0", "1", "2", "3"]


def _fill(root: str, word: str, start: Any) -> None:
    client = Client(root)
    start.wait(60)
    for turn in range(10):
        client.add(f"{word}-{turn}")


def test_processes_that_create_and_write_the_same_table_lose_nothing(root: str) -> None:
    start = PROCESSES.Barrier(2)
    other = PROCESSES.Process(target=_fill, args=(root, "theirs", start))
    other.start()
    _fill(root, "ours", start)
    other.join()
    assert other.exitcode == 0
    assert Client(root).ids() == sorted(f"{word}-{turn}" for word in ("ours", "theirs") for turn in range(10))


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("message", CONFLICTS)
def test_a_lost_write_is_retried(client: Client, message: str) -> None:
    assert run_coroutine(retry_lance_commit(losing(3, message))) == 4
    table = client.create()
    lost = losing(3, message, lambda: table.add(rows("a")))
    result = client.commit(lambda _: lost())
    assert result.version == 2
    assert client.ids() == ["a"]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("message", CONFLICTS)
def test_a_write_that_always_loses_raises(client: Client, message: str) -> None:
    with pytest.raises(CommitConflictError, match="changed by others 20 times; try again") as caught:
        run_coroutine(retry_lance_commit(losing(20, message)))
    assert message in str(caught.value.__cause__)
    assert run_coroutine(retry_lance_commit(losing(19, message))) == 20


def test_other_errors_are_not_retried(client: Client) -> None:
    with pytest.raises(RuntimeError, match=r"^the disk is full$"):
        run_coroutine(retry_lance_commit(losing(1, "the disk is full")))


def test_a_table_with_many_small_files_is_compacted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.lake.index.lance_tables.COMPACT_EVERY", 10)
    for number in range(8):
        client.add(str(number))
    assert client.fragments() == 8
    client.add("8")  # the tenth version
    assert client.fragments() == 1
    assert client.ids() == [str(number) for number in range(9)]


def test_a_small_table_is_compacted_whole_while_others_read_and_write(root: str, client: Client) -> None:
    client.add("0")
    done = threading.Event()

    def write() -> None:
        own = Client(root)
        for number in range(1, 30):
            own.add(str(number))
            own.commit(lambda table, number=number: table.delete(f"id = '{number - 1}'"))  # type: ignore[misc]

    def read() -> int:
        own, looks = Client(root), 0
        while not done.is_set():
            own.table()
            assert run_coroutine(own.databases.read("acme", "table", lambda table: table.count_rows(), 0)) in {1, 2}
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        writing, reading = pool.submit(write), pool.submit(read)
        while not writing.done():
            run_coroutine(client.databases.edit("acme", "table", lambda table: compact(table, None, 2), 0))
        done.set()
        writing.result()
        assert reading.result()
    run_coroutine(client.databases.edit("acme", "table", lambda table: compact(table, None, 1), 0))
    assert client.ids() == ["29"]
    assert len(list(Path(root, "acme", "table.lance", "_versions").glob("*.manifest"))) <= 2


def test_small_files_are_not_merged_with_larger_ones(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.lake.index.maintenance._WHOLE_ROWS", 0)
    client.add(*(f"first {number:03}" for number in range(500)))
    bytes_written = 0
    for number in range(256):
        client.add(f"later {number:03}")
        if number % 16 == 15:
            bytes_written += run_coroutine(compact(client.create(), None))
    one = rows("later 000").nbytes
    assert client.fragments() <= 6  # one of 500, one of each power of two
    assert bytes_written <= 6 * 256 * one
    assert len(client.ids()) == 756


def test_a_few_small_files_are_kept_and_files_with_deleted_rows_are_rewritten(client: Client) -> None:
    for number in range(5):
        client.add(*(f"{number} {place}" for place in range(10)))
    assert run_coroutine(compact(client.create(), None)) == 0
    assert client.fragments() == 5
    client.commit(lambda table: table.delete("id LIKE '3 %' AND id < '3 6'"))
    assert run_coroutine(compact(client.create(), None)) > 0
    stats = run_coroutine(client.create().list_versions())[-1]
    assert int(stats["metadata"]["total_deletion_file_rows"]) == 0
    assert len(client.ids()) == 44


@pytest.mark.usefixtures("_impatient")
def test_a_write_succeeds_although_its_compaction_always_loses(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    async def lost(table: Any, same: str | None) -> None:
        tried.append(table)
        raise RuntimeError(CONFLICTS[0])

    monkeypatch.setattr("memory_pipeline.lake.index.lance_tables.COMPACT_EVERY", 2)
    monkeypatch.setattr("memory_pipeline.lake.index.lance_tables.compact", lost)
    assert client.add("a").version == 2
    assert len(tried) == 20
    assert client.ids() == ["a"]


@pytest.mark.on_s3(always=True)
def test_an_outdated_handle_can_compact(root: str, client: Client) -> None:
    table = client.create()
    other = Client(root)
    for number in range(3):
        other.add(str(number))
    run_coroutine(compact(table, None, least=3))
    assert other.fragments() == 1
    assert other.ids() == client.ids() == ["0", "1", "2"]


def test_coroutines_return_results_and_raise_errors_to_many_threads() -> None:
    async def half(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: run_coroutine(half(number)), range(0, 40, 2))) == list(range(20))
    with pytest.raises(ValueError, match=r"^3 is odd$"):
        run_coroutine(half(3))


def test_all_lakes_of_a_process_share_one_thread(tmp_path: Path) -> None:
    names = []
    for number in range(5):
        client = Client(str(tmp_path / str(number)))
        client.create()
        names = [thread.name for thread in threading.enumerate() if thread.name == "memory-index"]
    assert len(names) == 1

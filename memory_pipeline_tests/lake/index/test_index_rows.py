"""Rows are removed from index and disk by period and kind, unnoticed by readers and writers."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake, VectorCollection, VectorItem
from memory_pipeline.lake.collections.collection import drop_collections
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import shard_tables
from memory_pipeline.lake.index.filters import Filter
from memory_pipeline.lake.index.lance_internals import has_vanished
from memory_pipeline.lake.index.shard_tables import ShardTables
from memory_pipeline.lake.index.table_roster import TableRoster
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.layout import SHARDS, scope_in, shard_of
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline_tests.building import ACME, PROCESSES
from memory_pipeline_tests.index_rows import index_folder, older, put_rows
from memory_pipeline_tests.lake.index.test_vector_index import rows

#: In another workspace and another shard than ACME.
SALES = Scope("beta", "sales")
AXIS = [1.0] + [0.0] * 7
#: Rows of a period; readers must see all or none.
WHOLE = 4


def hour(number: int) -> str:
    return f"2024-01-{number // 24 + 1:02}T{number % 24:02}"


def fill(index: VectorIndex, *numbers: int, scope: Scope = ACME, word: str = "word", **options: Any) -> None:
    """Write an agent's hours in one commit."""
    parts = [rows(hour(n), *(f"{word} {n} {m}" for m in range(WHOLE)), **options) for n in numbers]
    periods = [Period.parse("working", hour(n)) for n in numbers]
    put_rows(index, Grain.WORKING, periods, {scope: pa.concat_tables(parts)})


def numbers(index: VectorIndex, scope: Scope = ACME) -> Counter[int]:
    """Return the number of rows of each of an agent's hours."""
    found = index.load(scope, Grain.WORKING, HashingEmbedder(8)).rows["period"].to_pylist()
    return Counter((int(key[8:10]) - 1) * 24 + int(key[11:13]) for key in found)


def holds(root: str, word: str) -> bool:
    folder = index_folder(root, ACME)
    return any(word.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def index(root: str) -> VectorIndex:
    return VectorIndex(Storage(root))


def test_rows_up_to_a_period_are_removed_from_disk(root: str, index: VectorIndex) -> None:
    fill(index, 0, 1, word="secret")
    fill(index, 2, 3, 4)
    fill(index, 0, scope=SALES)
    untouched = sorted(path for path in index_folder(root, SALES).rglob("*"))
    assert index.delete(f"({older(hour(2))}) OR ({older(hour(9), 'none')})") == 3 * WHOLE
    assert numbers(index) == numbers(VectorIndex(Storage(root))) == {3: WHOLE, 4: WHOLE}
    assert not holds(root, "secret")
    assert not holds(root, "word 2")
    assert holds(root, "word 3")
    assert sorted(path for path in index_folder(root, SALES).rglob("*")) == untouched
    assert index.delete(older(hour(2))) == 0


def test_a_few_removed_rows_of_a_large_file_are_removed_from_disk(root: str, index: VectorIndex) -> None:
    """LanceDB keeps deleted rows that are less than a tenth of a file."""
    fill(index, 0, word="secret")
    fill(index, *range(1, 40))
    fill(index, 40)
    index.purge([ACME])  # which puts all of it into one file
    assert len(list(index_folder(root, ACME).glob("data/*"))) == 1
    index.delete(older(hour(0)))
    assert numbers(index) == dict.fromkeys(range(1, 41), WHOLE)
    assert not holds(root, "secret")
    assert not list(index_folder(root, ACME).glob("_deletions/*"))
    assert len(list(index_folder(root, ACME).glob("_versions/*.manifest"))) == 1


def test_an_emptied_table_is_dropped_and_recreated(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows cached from the old table must not be attributed to a new one, which counts versions from one again."""
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    reader = VectorIndex(Storage(root))
    fill(index, 0)
    first = reader.version(ACME)
    assert reader.is_large(ACME)
    assert numbers(reader) == {0: WHOLE}
    assert index.delete(older(hour(5))) == WHOLE
    assert not index_folder(root, ACME, is_large=True).exists()
    for one in (index, reader):
        assert numbers(one) == {}
        assert not one.is_large(ACME)
        assert one.newest(ACME, Grain.WORKING, Filter(), 5).num_rows == 0
        assert one.load(ACME, Grain.WORKING, HashingEmbedder(8))[0].num_rows == 0
        assert one.count(ACME, Grain.WORKING) == 0
    fill(index, 7)
    second = reader.version(ACME)
    assert first is not None
    assert second is not None
    assert second > first
    assert numbers(reader) == numbers(index) == {7: WHOLE}


def test_a_recreated_table_has_a_different_version(
    index: VectorIndex, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    monkeypatch.setattr("memory_pipeline.lake.index.lance_tables._TRUSTED", 0)
    reader = VectorIndex(Storage(root))
    fill(index, 0)
    first = reader.version(ACME)
    index.delete(older(hour(5)))
    fill(index, 7)
    assert reader.version(ACME) != first
    assert numbers(reader) == {7: WHOLE}


# Two scopes in one shard.

#: In the shard of ACME.
BESIDE = next(
    scope
    for number in range(1000)
    for scope in [Scope("acme", f"agent-{number}")]
    if shard_of(scope.key, SHARDS) == shard_of(ACME.key, SHARDS)
)


def test_a_write_to_one_scope_leaves_the_rows_beside_it(root: str, index: VectorIndex) -> None:
    fill(index, 0, 1, 2, scope=BESIDE)
    fill(index, 0, 1)
    fill(index, 1, digest="new")
    fill(index, 0, scope=BESIDE, digest="new")
    periods = [Period.parse("working", hour(number)) for number in (0, 1)]
    put_rows(index, Grain.WORKING, periods, {ACME: rows(hour(1), "one")})
    for one in (index, VectorIndex(Storage(root))):
        assert numbers(one) == {1: 1}
        assert numbers(one, BESIDE) == dict.fromkeys(range(3), WHOLE)


def test_a_write_of_whole_periods_removes_scopes_without_rows(index: VectorIndex) -> None:
    fill(index, 0, 1)
    fill(index, 0, 1, scope=BESIDE)
    fill(index, 0, 1, scope=SALES)
    index.replace(Grain.WORKING, [Period.parse("working", hour(0))], rows(hour(0)).slice(0, 0))
    assert [numbers(index, scope) for scope in (ACME, BESIDE, SALES)] == [{1: WHOLE}] * 3


def test_a_scope_with_many_rows_moves_to_a_table_of_its_own(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = VectorIndex(Storage(root))
    fill(index, 0, 1)
    fill(index, 0, scope=BESIDE)
    assert not reader.is_large(ACME)
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 3 * WHOLE)
    fill(index, 2)
    for one in (index, reader, VectorIndex(Storage(root))):
        assert (one.is_large(ACME), one.is_large(BESIDE)) == (True, False)
        assert numbers(one) == dict.fromkeys(range(3), WHOLE)
        assert numbers(one, BESIDE) == {0: WHOLE}
        assert one.search(ACME, Grain.WORKING, Filter(), 50, AXIS, "word").num_rows == 3 * WHOLE
        assert sum(map(len, one.numbers(ACME).values())) == 3 * WHOLE
    shard = VectorIndex(Storage(root)).scan_all(Grain.WORKING, None, ["scope"])["scope"].to_pylist()
    assert Counter(shard) == {ACME.key: 3 * WHOLE, BESIDE.key: WHOLE}, "the shard has no copies"


def _grow(root: str, writer: int) -> None:
    index = VectorIndex(Storage(root))
    shard_tables.LARGE_FROM = 4 * WHOLE
    for number in range(4):
        fill(index, 4 * writer + number)


def test_rows_written_while_a_scope_moves_are_not_lost(root: str) -> None:
    writers = [PROCESSES.Process(target=_grow, args=(root, n)) for n in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 3
    index = VectorIndex(Storage(root))
    assert index.is_large(ACME)
    assert numbers(index) == dict.fromkeys(range(12), WHOLE)


class KilledError(Exception):
    """Ends a write as a kill does."""


def test_compaction_moves_a_scope_that_grew_in_small_writes(
    index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 20 * WHOLE)
    for number in range(20):
        fill(index, number)
        fill(index, number, scope=BESIDE) if number % 2 else None
    assert not index.is_large(ACME)
    index.compact()
    assert (index.is_large(ACME), index.is_large(BESIDE)) == (True, False)
    assert numbers(index) == dict.fromkeys(range(20), WHOLE)
    assert numbers(index, BESIDE) == dict.fromkeys(range(1, 20, 2), WHOLE)


def test_a_restore_that_is_cut_short_is_noticed(root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(index, 0)
    rows_before = index.read([ACME], None, "grain = 'working'")
    name = index_folder(root, ACME).stem
    shutil.rmtree(index_folder(root, ACME))

    async def killed(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(ShardTables, "_create", killed)
        with pytest.raises(KilledError):
            index.restore(name, lambda: rows_before)
    other = VectorIndex(Storage(root))
    assert other.damage_of(name)
    other.restore(name, lambda: rows_before)
    assert numbers(other) == {0: WHOLE}


@pytest.mark.parametrize("is_listed", [False, True])
def test_what_a_killed_move_leaves_is_not_read_and_is_purged(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    fill(index, 0, 1, word="secret")
    fill(index, 0, scope=BESIDE)

    true_add = TableRoster.add

    async def killed(_: Any) -> None:
        raise KilledError

    def add(roster: TableRoster, name: str) -> None:
        if scope_in(name):
            raise KilledError
        true_add(roster, name)

    with monkeypatch.context() as patch:
        patch.setattr(shard_tables, "LARGE_FROM", 1)
        if is_listed:
            patch.setattr(ShardTables, "_clear_shards", killed)
        else:
            patch.setattr(TableRoster, "add", add)
        with pytest.raises(KilledError):
            fill(index, 2)
    other = VectorIndex(Storage(root))
    fill(other, 0)
    fill(other, 1)
    assert numbers(other) == dict.fromkeys(range(3), WHOLE)
    other.purge([ACME])
    assert other.is_large(ACME) is is_listed
    assert not any(b"secret" in path.read_bytes() for path in Path(root).rglob("*") if path.is_file())
    listed = other.scan_all(Grain.WORKING, None, ["scope"])["scope"].to_pylist()
    assert Counter(listed) == {ACME.key: 3 * WHOLE, BESIDE.key: WHOLE}


def test_a_purge_writes_rows_and_indices_anew_and_deletes_what_was_left_behind(root: str, index: VectorIndex) -> None:
    for number in range(6):
        fill(index, number)
    fill(index, 0, word="secret")
    fill(index, 0)
    assert holds(root, "secret")
    before = {path for path in index_folder(root, ACME).rglob("*") if path.is_file()}
    old, young = (index_folder(root, ACME) / "data" / f"{name}.lance" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"left behind")
    os.utime(old, (time.time() - 7200,) * 2)
    index.purge([ACME, SALES])
    after = {path for path in index_folder(root, ACME).rglob("*") if path.is_file()}
    assert not before & after - {path for path in after if "_versions" in path.parts}
    assert not holds(root, "secret")
    assert (old in after, young in after) == (False, True)
    assert numbers(index) == dict.fromkeys(range(6), WHOLE)
    fill(index, 6)
    assert numbers(VectorIndex(Storage(root))) == dict.fromkeys(range(7), WHOLE)


def test_removing_an_agent_removes_its_collections_and_keeps_other_agents(root: str, index: VectorIndex) -> None:
    lake = Lake(root)
    dotted = Scope("acme", "support.default")
    for scope in (ACME, SALES, dotted, BESIDE):
        fill(index, 0, scope=scope)
        VectorCollection(lake, scope, 2).upsert([VectorItem(id="a", vector=[1, 0], content="kept")])
    mine = VectorCollection(lake, ACME, 2, "documents")
    mine.upsert([VectorItem(id="a", vector=[1, 0], content="kept")])
    assert index.delete(f"scope = '{ACME.key}'") == WHOLE
    assert index.delete(f"scope = '{ACME.key}'") == 0
    drop_collections(lake, {ACME})
    drop_collections(lake, {ACME})  # safe to run twice
    assert numbers(index) == {}
    assert numbers(index, dotted) == numbers(index, BESIDE) == {0: WHOLE}
    assert len(VectorCollection(lake, dotted, 2).search([1, 0])) == 1
    assert mine.search([1, 0]) == []
    assert mine.stats().items == 0
    assert mine.delete(["a"]) == 0
    mine.upsert([VectorItem(id="b", vector=[0, 1], content="new")])
    assert [match.id for match in mine.search([0, 1])] == ["b"]


def test_a_removed_collection_can_be_recreated_with_another_dimension(root: str) -> None:
    lake = Lake(root)
    VectorCollection(lake, ACME, 2).upsert([VectorItem(id="a", vector=[1, 0], content="")])
    drop_collections(lake, {ACME})
    assert VectorCollection(lake, ACME, 3).upsert([VectorItem(id="a", vector=[1, 0, 0], content="")]) == 1


# --- concurrency -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "vanished"),
    [
        ("lance error: Not found: tmp/lake/vectordb/acme/support__working.lance/_versions, …", True),
        ("Table 'x' was not found", True),
        ("[Errno 2] No such file or directory: 'x'", True),
        ("lance error: Retryable commit conflict for version 7", False),
        ("the disk is full", False),
    ],
)
def test_errors_about_missing_files_are_recognized(message: str, vanished: bool) -> None:
    assert has_vanished(RuntimeError(message)) is vanished


def test_a_write_to_a_table_being_dropped_is_not_lost(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process finds a table empty; before it drops it, another writes to it."""
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    fill(index, 0)
    dropper = VectorIndex(Storage(root))
    writing: list[threading.Thread] = []

    def overtaken(storage: Storage, path: str) -> bool:
        if not writing:
            writing.append(threading.Thread(target=fill, args=(index, 9)))
            writing[0].start()
            time.sleep(0.3)
        return Path(storage.locate(path)).exists()

    monkeypatch.setattr(Storage, "has", overtaken)
    dropper.delete(older(hour(0)))
    writing[0].join()
    assert numbers(VectorIndex(Storage(root))) == {9: WHOLE}


def _churn(root: str, done: Callable[[], bool], seconds: float) -> None:
    """Write, remove, purge, and empty another agent's table, until the others are done."""
    index = VectorIndex(Storage(root))
    until = time.monotonic() + seconds
    number = 0
    while not done() and time.monotonic() < until:
        fill(index, *range(2, 5), word=f"text{number}", digest=str(number))
        fill(index, 0, scope=SALES)
        index.delete(f"({older(hour(3))}) OR ({older(hour(0), 'beta')})")
        index.purge([ACME])
        number += 1


def _read_many(root: str, reads: int) -> None:
    """Read in all ways during writes, removals and purges."""
    index = VectorIndex(Storage(root))
    for _ in range(reads):
        found = numbers(index)
        # New rows are added before the ones that they replace are deleted.
        assert {count for number, count in found.items() if number < 50} <= {WHOLE, 2 * WHOLE}, found
        assert found[49] == WHOLE
        assert index.version(ACME)
        assert index.newest(ACME, Grain.WORKING, Filter(), 3).num_rows >= 3
        assert index.load(ACME, Grain.WORKING, HashingEmbedder(8))[0].num_rows >= WHOLE
        assert index.count(SALES, Grain.WORKING) in (0, WHOLE)
        assert numbers(index, SALES) in ({}, {0: WHOLE})


def _write_many(root: str, writer: int, writes: int) -> None:
    index = VectorIndex(Storage(root))
    for number in range(writes):
        fill(index, 50 + 30 * writer + number)
        fill(index, 50 + 30 * writer + number, scope=SALES)


def test_threads_read_during_writes_removals_and_purges(root: str, index: VectorIndex) -> None:
    fill(index, 49, word="stays")
    finished = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        churning = pool.submit(_churn, root, finished.is_set, 60)
        reading = [pool.submit(_read_many, root, 4) for _ in range(2)]
        try:
            for read in reading:
                read.result()
        finally:
            finished.set()
        churning.result()


def test_a_thread_and_a_process_write_during_drops_and_purges(root: str, index: VectorIndex) -> None:
    fill(index, 49, word="stays")
    process = PROCESSES.Process(target=_write_many, args=(root, 1, 3))
    process.start()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_write_many, root, 0, 3)
        _churn(root, lambda: writing.done() and not process.is_alive(), 60)
        writing.result()
    process.join()
    assert process.exitcode == 0
    written = {50 + 30 * writer + number for writer in range(2) for number in range(3)}
    for scope in (ACME, SALES):
        found = numbers(VectorIndex(Storage(root)), scope)
        assert written <= set(found)
        assert set(found.values()) == {WHOLE}

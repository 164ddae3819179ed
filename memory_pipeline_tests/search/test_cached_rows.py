"""What readers keep for other processes: used if it is sound and current, gone with the rows, and never in the way."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import scope_cache, shard_tables
from memory_pipeline.lake.index.scope_cache import CACHE, CacheEntry, ScopeCache
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.search import index_overlay, vector_sketch
from memory_pipeline.search.index_overlay import GrainOverlay, IndexOverlay, ResidentRows
from memory_pipeline.search.row_block import RowBlock
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline_tests.building import ACME, NOW, conversation, run, write
from memory_pipeline_tests.index_rows import Embedder, Row, axis, by_period, fact, put_rows, scoped

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.models.factory import Models


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep and patch small scopes, too, and rebuild nothing."""
    monkeypatch.setattr(index_overlay, "CACHED_FROM", 1)
    monkeypatch.setattr(index_overlay, "_PATCHED_FROM", 1)
    monkeypatch.setattr(GrainOverlay, "_start_rebuild", lambda *_: None)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which methods read rows of the index from its tables."""
    found: list[str] = []
    for name in ("load", "take"):
        method = getattr(VectorIndex, name)

        def counted(self: VectorIndex, *args: Any, name: str = name, method: Any = method) -> Any:
            found.append(name)
            return method(self, *args)

        monkeypatch.setattr(VectorIndex, name, counted)
    return found


@pytest.fixture(params=["mapped", "compressed"])
def form(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """How files are written: large ones are mapped, small ones are compressed."""
    monkeypatch.setattr(scope_cache, "_MAPPED_FROM", 0 if request.param == "mapped" else 1 << 30)
    return str(request.param)


TEA = [fact("tea", vector=axis(1)), fact("tea again?", 1, turn=1, role="assistant"), fact("milk 2", 120, tags=["a"])]


def put(root: str, *rows: Row) -> None:
    """Replace the hours of the rows, like another process."""
    periods = [Period.parse(Grain.WORKING, period) for period in by_period(rows)]
    put_rows(VectorIndex(Storage(root)), Grain.WORKING, periods, scoped(ACME, rows))


def overlay(root: str, embedder: Embedder | None = None, most: int = 100) -> IndexOverlay:
    lake = Lake(root)
    return IndexOverlay(lake, ACME, embedder or Embedder(), PendingJournal(lake, ACME), ResidentRows(most))


def opened(root: str) -> list[tuple[RowBlock, np.ndarray[Any, Any] | None]]:
    """Return the rows that a new process has."""
    table = overlay(root).rows(Grain.WORKING).table
    assert table is not None
    return [(part.segment, part.live) for part in table.parts]


def said(root: str) -> list[str]:
    found: list[str] = []
    for block, live in opened(root):
        contents = block.rows["content"].to_pylist()
        found += [one for place, one in enumerate(contents) if live is None or live[place]]
    return sorted(found)


def cache_files(root: str) -> list[Path]:
    return sorted(path for path in Path(root, CACHE).rglob("*") if path.is_file())


def assert_equal(one: RowBlock, other: RowBlock) -> None:
    """Compare all that blocks consist of."""
    left, right = one.cache_entry(1), other.cache_entry(1)
    assert left.arrays.keys() == right.arrays.keys()
    for name in left.arrays:
        np.testing.assert_array_equal(left.arrays[name], right.arrays[name], name)
    assert left.tables == right.tables
    assert left.values == right.values


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("sketched_from", [1, 1_000])
def test_a_new_process_has_equal_rows_and_reads_no_table(
    root: str, loads: list[str], monkeypatch: pytest.MonkeyPatch, sketched_from: int
) -> None:
    monkeypatch.setattr(vector_sketch, "SKETCHED_FROM", sketched_from)
    put(root, *TEA)
    [(first, _)] = opened(root)
    [(second, _)] = opened(root)
    assert loads == ["load"]
    assert_equal(first, second)
    assert second.rows.equals(first.rows)
    for word in ("tea", "milk", "unknown"):
        assert second.holding(word).tolist() == first.holding(word).tolist()
    vector = np.array(axis(1), np.float32)
    assert second.vectors.nearest(vector, 1).tolist() == first.vectors.nearest(vector, 1).tolist()


def test_a_small_file_is_compressed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, *(fact(f"tea {number}", number, vector=axis(1)) for number in range(200)))
    sizes = []
    for mapped_from in (0, 1 << 20):
        monkeypatch.setattr(scope_cache, "_MAPPED_FROM", mapped_from)
        shutil.rmtree(Path(root, CACHE), ignore_errors=True)
        opened(root)
        sizes += [path.stat().st_size for path in cache_files(root)]
    assert sizes[1] < sizes[0] / 2


def test_only_the_owner_may_read_the_files(root: str) -> None:
    put(root, *TEA)
    opened(root)
    assert [path.stat().st_mode & 0o777 for path in cache_files(root)] == [0o600]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:-100],
    "empty": lambda _: b"",
    "foreign": lambda _: b"PK" + bytes(5_000),
    "first bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "a bit in the middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "end of zeros": lambda data: data[:-24] + bytes(24),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_ignored_and_written_again(root: str, loads: list[str], damage: Any) -> None:
    put(root, *TEA)
    wanted = said(root)
    [path] = cache_files(root)
    path.write_bytes(damage(path.read_bytes()))
    assert said(root) == said(root) == wanted
    assert loads == ["load", "load"], "once more, and then no more"


def test_files_of_others_are_ignored(root: str, loads: list[str]) -> None:
    put(root, *TEA)
    said(root)
    [path] = cache_files(root)
    other = replace(ACME, agent_id="other")
    table = path.parent.name
    cache = ScopeCache(Storage(root), lambda _: 1)
    cache.store(table, other, "working", str(Embedder().dimension), CacheEntry(1, {}, {}, {}))
    [foreign] = set(cache_files(root)) - {path}
    shutil.copy(foreign, path)
    assert said(root) == ["milk 2", "tea", "tea again?"]
    assert loads == ["load", "load"]


def test_a_reader_with_another_embedder_does_not_find_the_rows(root: str) -> None:
    put(root, *TEA)
    said(root)
    index = Lake(root).index
    assert index.version(ACME) is not None
    assert index.cached(ACME, Grain.WORKING, overlay(root).form) is not None
    other = Embedder()
    other.name = "another"
    assert index.cached(ACME, Grain.WORKING, overlay(root, other).form) is None


def test_rows_that_were_only_added_are_added_to_cached_ones(root: str, loads: list[str]) -> None:
    put(root, *TEA)
    said(root)
    put(root, *TEA, fact("oats", 240))
    assert said(root) == ["milk 2", "oats", "tea", "tea again?"]
    assert loads == ["load", "take"]


@pytest.mark.parametrize("rows", [TEA[:2], [*TEA[:2], TEA[2] | {"content": "rye", "digest": "e"}]])
def test_what_is_cached_goes_with_rows_that_are_removed_or_changed(root: str, rows: list[Row]) -> None:
    put(root, *TEA)
    said(root)
    periods = [Period.parse(Grain.WORKING, period) for period in by_period(TEA)]
    put_rows(VectorIndex(Storage(root)), Grain.WORKING, periods, scoped(ACME, rows))
    assert cache_files(root) == []
    assert said(root) == sorted(row["content"] for row in rows)


def test_deleted_and_purged_rows_are_not_cached(root: str) -> None:
    put(root, *TEA)
    said(root)
    index = VectorIndex(Storage(root))
    index.delete("content = 'tea'")
    assert cache_files(root) == []
    assert said(root) == ["milk 2", "tea again?"]
    assert len(cache_files(root)) == 1
    index.purge([ACME])
    assert cache_files(root) == []


def test_rows_that_are_removed_while_they_are_read_are_not_cached(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, *TEA)
    load = VectorIndex.load

    def slowly(self: VectorIndex, *args: Any) -> Any:
        loaded = load(self, *args)
        VectorIndex(Storage(root)).delete("content = 'tea'")
        return loaded

    monkeypatch.setattr(VectorIndex, "load", slowly)
    opened(root)
    assert cache_files(root) == []


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no modes")
def test_a_place_that_cannot_be_written_changes_nothing(root: str, loads: list[str]) -> None:
    put(root, *TEA)
    Path(root, CACHE).write_text("a file in the place of the folder")
    assert said(root) == said(root) == ["milk 2", "tea", "tea again?"]
    assert loads == ["load", "load"]


def test_housekeeping_deletes_what_is_not_of_the_newest_version(root: str) -> None:
    lake = Lake(root)
    lake.ensure()
    put(root, *TEA)
    said(root)
    [path] = cache_files(root)
    clean_files(lake, NOW)
    assert cache_files(root) in ([path], []), "a compaction may have made another version"
    said(root)
    put(root, *TEA, fact("oats", 240))
    assert len(cache_files(root)) == 1
    clean_files(lake, NOW)
    assert cache_files(root) == []


def test_a_scope_that_gets_a_table_of_its_own_leaves_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, *TEA)
    said(root)
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    put(root, *TEA, fact("oats", 240))
    assert said(root) == ["milk 2", "oats", "tea", "tea again?"]
    assert [path.parent.name.count("-") for path in cache_files(root)] == [2]


@pytest.fixture
def large(root: str, monkeypatch: pytest.MonkeyPatch) -> IndexOverlay:
    """A reader of a scope with a table of its own, and more rows than it may hold."""
    monkeypatch.undo()
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    monkeypatch.setattr(index_overlay, "CACHED_FROM", 1)
    monkeypatch.setattr(index_overlay, "_PATCHED_FROM", 1)
    monkeypatch.setattr(index_overlay, "_LATER", 0)
    put(root, *TEA)
    return overlay(root, most=1)


def _finish_layouts() -> None:
    for thread in threading.enumerate():
        if thread.name == "memory-layout":
            thread.join()


def test_rows_that_are_too_many_to_hold_are_laid_out_in_a_file_and_mapped(root: str, large: IndexOverlay) -> None:
    assert large.rows(Grain.WORKING).table is None, "the first search does not wait"
    assert large.rows(Grain.WORKING).table is None
    _finish_layouts()
    assert len(cache_files(root)) == 1
    table = large.rows(Grain.WORKING).table
    assert table is not None
    assert sorted(table.rows["content"].to_pylist()) == ["milk 2", "tea", "tea again?"]
    put(root, *TEA, fact("oats", 240))
    patched = large.rows(Grain.WORKING).table
    assert patched is not None
    assert sorted(patched.rows["content"].to_pylist()) == ["milk 2", "oats", "tea", "tea again?"]
    assert sum(large.resident._held.values()) == 1, "only the row that is in no file"


def test_rows_are_not_laid_out_without_memory_for_them(
    root: str, large: IndexOverlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_overlay, "available_memory", lambda: 10_000)
    for _ in range(3):
        assert large.rows(Grain.WORKING).table is None
    _finish_layouts()
    assert cache_files(root) == []


_SEARCH = """
import sys
from datetime import datetime
from memory_pipeline import Memory
memory = Memory(sys.argv[1], workspace_id="acme", agent_id="support")
now = datetime.fromisoformat(sys.argv[2])
hits = memory.search("Where does Anna live?", now=now)
context = str(memory.context("Where does Anna live?", now=now))
heavy = {"lancedb", "polars", "litellm", "deltalake", "duckdb"} & set(sys.modules)
assert not heavy, heavy
print([hit.id for hit in hits], context)
"""


def _lake_of_anna(root: str, models: Models) -> Lake:
    lake = Lake(root)
    talk = conversation("I moved to Porto.", "Remember that I am allergic to Zanzibarium tea.", "My brother is Bob.")
    write(lake, talk, conversation("I sell bicycles in Vienna.", name="Dora", conversation_id="c2"))
    run(lake, models)
    return lake


def test_a_first_search_imports_no_heavy_library(root: str, models: Models) -> None:
    _lake_of_anna(root, models)
    memory = Memory(root, workspace_id="acme", agent_id="support")
    hits, context = (
        memory.search("Where does Anna live?", now=NOW),
        str(memory.context("Where does Anna live?", now=NOW)),
    )
    assert cache_files(root)
    told = subprocess.run(
        [sys.executable, "-c", _SEARCH, root, NOW.isoformat()], check=True, capture_output=True, text=True
    )
    assert told.stdout == f"{[hit.id for hit in hits]} {context}\n"


def test_an_erasure_leaves_nothing_in_cached_files(root: str, models: Models) -> None:
    lake = _lake_of_anna(root, models)
    memory = Memory(root, workspace_id="acme", agent_id="support")
    memory.search("Zanzibarium tea", now=NOW)
    memory.context("Zanzibarium tea", now=NOW)
    assert any(b"Zanzibarium" in path.read_bytes() for path in cache_files(root))
    receipt = forget(lake, models, Subject.person("acme", ["Anna"]), NOW)
    assert not any(b"Zanzibarium" in path.read_bytes() for path in Path(root).rglob("*") if path.is_file())
    assert verify(lake, receipt).ok
    again = Memory(root, workspace_id="acme", agent_id="support")
    assert all("Dora" in hit.content for hit in again.search("bicycles", now=NOW))
    assert cache_files(root)
    assert verify(lake, receipt).ok


def test_verification_finds_remnants_in_cached_files(root: str, models: Models) -> None:
    lake = _lake_of_anna(root, models)
    Memory(root, workspace_id="acme", agent_id="support").search("Zanzibarium tea", now=NOW)
    before = {path: path.read_bytes() for path in cache_files(root)}
    receipt = forget(lake, models, Subject.person("acme", ["Anna"]), NOW)
    for path, data in before.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert {finding.file for finding in verify(lake, receipt).findings} >= {
        path.relative_to(root).as_posix() for path in before if path.name.endswith("working")
    }


def test_rows_of_a_bucket_are_cached_in_the_users_folder(
    s3_root: str, tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    put(s3_root, *TEA)
    assert said(s3_root) == said(s3_root) == ["milk 2", "tea", "tea again?"]
    assert loads == ["load"]
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not Storage(s3_root).has(CACHE)
    VectorIndex(Storage(s3_root)).delete("content = 'tea'")
    index = Lake(s3_root).index
    assert index.cached(ACME, "working", "8") is None
    assert not path.exists(), "the next process deletes what was erased meanwhile, whatever it reads"

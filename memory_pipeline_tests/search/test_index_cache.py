"""Changes of a large cached table: a reader finds the same as one opened after the change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Calendar, Grain, Period
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import shard_tables
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.search import candidates
from memory_pipeline.search.candidates import IndexCache
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.index_rows import DIMENSION, Row, axis, by_period, fact, put_rows, scoped

if TYPE_CHECKING:
    from memory_pipeline.search.candidates import CachedRows


@pytest.fixture(autouse=True)
def patched_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch small tables too, and rebuild only when a test asks for it."""
    monkeypatch.setattr(candidates, "_PATCHED_FROM", 1)
    monkeypatch.setattr(candidates, "_IDLE", 0)
    monkeypatch.setattr(IndexCache, "_start_rebuild", lambda *_: None)


def put(index: VectorIndex, *rows: Row) -> None:
    """Replace the hours of the rows, like another process."""
    periods = [Period.parse(Grain.WORKING, period) for period in by_period(rows)]
    put_rows(index, Grain.WORKING, periods, scoped(ACME, rows))


def said(parts: list[CachedRows] | None) -> list[str]:
    """Return the contents of current rows, sorted; each must be unique."""
    assert parts is not None
    found: list[str] = []
    for segment, stands in parts:
        contents = segment.rows["content"].to_pylist()
        found += contents if stands is None else [one for one, there in zip(contents, stands, strict=True) if there]
    return sorted(found)


@pytest.fixture
def index(root: str) -> VectorIndex:
    return VectorIndex(Storage(root))


@pytest.fixture
def held(root: str, index: VectorIndex) -> IndexCache:
    put(index, fact("tea", vector=axis(1)), fact("milk", 1, vector=axis(2)), fact("rye", 120, vector=axis(3)))
    found = IndexCache(VectorIndex(Storage(root)), ACME, DIMENSION, 100, Calendar())
    assert said(found.parts(Grain.WORKING)) == ["milk", "rye", "tea"]
    return found


def test_added_changed_and_deleted_rows_are_visible_at_once(held: IndexCache, index: VectorIndex) -> None:
    whole = (held.parts(Grain.WORKING) or [])[-1].segment
    put(index, fact("tea", vector=axis(1)), fact("oats", 2, vector=axis(4)))
    parts = held.parts(Grain.WORKING)
    assert said(parts) == ["oats", "rye", "tea"]
    assert parts is not None
    assert parts[-1].segment is whole, "it was not laid out anew while a search waits"
    put(index, fact("barley", 121, vector=axis(5)))
    assert said(held.parts(Grain.WORKING)) == ["barley", "oats", "tea"]
    again = held.parts(Grain.WORKING)
    assert again is not None
    assert said(again) == ["barley", "oats", "tea"]
    assert [part.segment for part in again][-1] is whole


def test_rows_keep_their_vectors(held: IndexCache, index: VectorIndex) -> None:
    put(index, fact("oats", 120, vector=axis(6)))
    wanted = {"tea": axis(1), "milk": axis(2), "rye": axis(3), "oats": axis(6)}
    near = {
        content: float(segment.vectors.nearness(np.array(wanted[content], np.float32), np.array([row]))[0])
        for segment, _ in held.parts(Grain.WORKING) or []
        for row, content in enumerate(segment.rows["content"].to_pylist())
    }
    assert near == pytest.approx(dict.fromkeys(wanted, 1.0))


def test_a_compaction_changes_nothing(held: IndexCache, index: VectorIndex) -> None:
    put(index, fact("oats", 240, vector=axis(4)))
    index.purge([ACME])  # rewrites every row
    assert said(held.parts(Grain.WORKING)) == ["milk", "oats", "rye", "tea"]


def test_a_recreated_table_is_read_whole(held: IndexCache, index: VectorIndex) -> None:
    index.remove_scope(ACME)
    assert said(held.parts(Grain.WORKING)) == []
    put(index, fact("oats", 2))
    assert said(held.parts(Grain.WORKING)) == ["oats"]


def test_large_changes_are_read_whole(held: IndexCache, index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_MOST_PATCHED", 2)
    put(index, *(fact(f"row {number}", 240 + number) for number in range(3)))
    parts = held.parts(Grain.WORKING)
    assert parts is not None
    assert len(parts) == 1
    assert said(parts) == ["milk", "row 0", "row 1", "row 2", "rye", "tea"]


def test_rows_that_outgrow_the_cache_are_evicted(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    put(index, fact("tea"), fact("milk", 1))
    held = IndexCache(VectorIndex(Storage(root)), ACME, DIMENSION, 2, Calendar())
    assert said(held.parts(Grain.WORKING)) == ["milk", "tea"]
    put(index, fact("rye", 120))
    assert held.parts(Grain.WORKING) is None
    assert held._held == {}


def test_the_layout_is_rebuilt_in_a_thread(
    held: IndexCache, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(candidates, "_PATCHED_FROM", 1)
    put(index, fact("oats", 240, vector=axis(4)))
    deadline = time.monotonic() + 60
    while len(held.parts(Grain.WORKING) or []) != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    parts = held.parts(Grain.WORKING)
    assert parts is not None
    assert [part.live for part in parts] == [None]
    assert said(parts) == ["milk", "oats", "rye", "tea"]


def test_writes_of_other_agents_in_the_shard_load_nothing(held: IndexCache, index: VectorIndex) -> None:
    [before] = held.parts(Grain.WORKING) or []
    rows = [fact("theirs", 240)]
    for scope in (Scope("acme", f"agent-{number}") for number in range(32)):
        put_rows(index, Grain.WORKING, [Period.parse(Grain.WORKING, rows[0]["period"])], scoped(scope, rows))
    [after] = held.parts(Grain.WORKING) or []
    assert after.segment is before.segment

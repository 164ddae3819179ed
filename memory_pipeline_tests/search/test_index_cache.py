"""Changes of a large cached table: a reader finds the same as one opened after the change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import shard_tables
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.search import index_overlay
from memory_pipeline.search.index_overlay import GrainOverlay, IndexOverlay, ResidentRows
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.index_rows import Embedder, Row, axis, by_period, fact, put_rows, scoped

if TYPE_CHECKING:
    from memory_pipeline.search.index_overlay import CachedRows


@pytest.fixture(autouse=True)
def patched_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch small tables too, and rebuild only when a test asks for it."""
    monkeypatch.setattr(index_overlay, "_PATCHED_FROM", 1)
    monkeypatch.setattr(index_overlay, "_IDLE", 0)
    monkeypatch.setattr(GrainOverlay, "_start_rebuild", lambda *_: None)


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


def overlay(root: str, most: int = 100) -> IndexOverlay:
    lake = Lake(root)
    return IndexOverlay(lake, ACME, Embedder(), PendingJournal(lake, ACME), ResidentRows(most))


def parts_of(held: IndexOverlay) -> list[CachedRows] | None:
    table = held.rows(Grain.WORKING).table
    return None if table is None else table.parts


@pytest.fixture
def index(root: str) -> VectorIndex:
    return VectorIndex(Storage(root))


@pytest.fixture
def held(root: str, index: VectorIndex) -> IndexOverlay:
    put(index, fact("tea", vector=axis(1)), fact("milk", 1, vector=axis(2)), fact("rye", 120, vector=axis(3)))
    found = overlay(root)
    assert said(parts_of(found)) == ["milk", "rye", "tea"]
    return found


def test_added_changed_and_deleted_rows_are_visible_at_once(held: IndexOverlay, index: VectorIndex) -> None:
    whole = (parts_of(held) or [])[-1].segment
    put(index, fact("tea", vector=axis(1)), fact("oats", 2, vector=axis(4)))
    parts = parts_of(held)
    assert said(parts) == ["oats", "rye", "tea"]
    assert parts is not None
    assert parts[-1].segment is whole, "it was not laid out anew while a search waits"
    put(index, fact("barley", 121, vector=axis(5)))
    assert said(parts_of(held)) == ["barley", "oats", "tea"]
    again = parts_of(held)
    assert again is not None
    assert said(again) == ["barley", "oats", "tea"]
    assert [part.segment for part in again][-1] is whole


def test_rows_keep_their_vectors(held: IndexOverlay, index: VectorIndex) -> None:
    put(index, fact("oats", 120, vector=axis(6)))
    wanted = {"tea": axis(1), "milk": axis(2), "rye": axis(3), "oats": axis(6)}
    near = {
        content: float(segment.vectors.nearness(np.array(wanted[content], np.float32), np.array([row]))[0])
        for segment, _ in parts_of(held) or []
        for row, content in enumerate(segment.rows["content"].to_pylist())
    }
    assert near == pytest.approx(dict.fromkeys(wanted, 1.0))


def test_a_compaction_changes_nothing(held: IndexOverlay, index: VectorIndex) -> None:
    put(index, fact("oats", 240, vector=axis(4)))
    index.purge([ACME])  # rewrites every row
    assert said(parts_of(held)) == ["milk", "oats", "rye", "tea"]


def test_a_recreated_table_is_read_whole(held: IndexOverlay, index: VectorIndex) -> None:
    index.delete(f"scope = '{ACME.key}'")
    assert said(parts_of(held)) == []
    put(index, fact("oats", 2))
    assert said(parts_of(held)) == ["oats"]


def test_large_changes_are_read_whole(held: IndexOverlay, index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_overlay, "_MOST_PATCHED", 2)
    put(index, *(fact(f"row {number}", 240 + number) for number in range(3)))
    parts = parts_of(held)
    assert parts is not None
    assert len(parts) == 1
    assert said(parts) == ["milk", "row 0", "row 1", "row 2", "rye", "tea"]


def test_rows_that_outgrow_the_cache_are_evicted(
    root: str, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    put(index, fact("tea"), fact("milk", 1))
    held = overlay(root, 2)
    assert said(parts_of(held)) == ["milk", "tea"]
    put(index, fact("rye", 120))
    assert parts_of(held) is None
    assert held.resident._held == {}


def test_the_layout_is_rebuilt_in_a_thread(
    held: IndexOverlay, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(index_overlay, "_PATCHED_FROM", 1)
    put(index, fact("oats", 240, vector=axis(4)))
    deadline = time.monotonic() + 60
    while len(parts_of(held) or []) != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    parts = parts_of(held)
    assert parts is not None
    assert [part.live for part in parts] == [None]
    assert said(parts) == ["milk", "oats", "rye", "tea"]


def test_writes_of_other_agents_in_the_shard_load_nothing(held: IndexOverlay, index: VectorIndex) -> None:
    [before] = parts_of(held) or []
    rows = [fact("theirs", 240)]
    for scope in (Scope("acme", f"agent-{number}") for number in range(32)):
        put_rows(index, Grain.WORKING, [Period.parse(Grain.WORKING, rows[0]["period"])], scoped(scope, rows))
    [after] = parts_of(held) or []
    assert after.segment is before.segment

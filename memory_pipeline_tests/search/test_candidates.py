"""The cache of an index: never stale, never too large."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index import shard_tables
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.search.index_overlay import IndexOverlay, ResidentRows
from memory_pipeline_tests.building import ACME, PROCESSES
from memory_pipeline_tests.index_rows import Embedder, Row, axis, by_period, fact, put_rows, scoped, summary

if TYPE_CHECKING:
    from memory_pipeline.search.row_block import RowBlock


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the rows of an agent to a table of its own, as if they were many."""
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)


def put(root: str, *rows: Row, grain: Grain = Grain.WORKING) -> None:
    """Replace the periods of the rows, like another process."""
    index = VectorIndex(Storage(root))
    periods = [Period.parse(grain, period) for period in by_period(rows)]
    put_rows(index, grain, periods, scoped(ACME, rows))


def resident(root: str, most: int = 100) -> IndexOverlay:
    lake = Lake(root)
    return IndexOverlay(lake, ACME, Embedder(), PendingJournal(lake, ACME), ResidentRows(most))


def segment(held: IndexOverlay, grain: Grain) -> RowBlock | None:
    """Return the cached rows of a grain, which are in one part; None if they are too many to cache."""
    table = held.rows(grain).table
    if table is None:
        return None
    [part] = table.parts
    return part.segment


def contents(part: RowBlock | None) -> list[str]:
    assert part is not None
    return sorted(part.rows["content"].to_pylist())


def test_a_table_is_read_once_while_nothing_is_written(root: str) -> None:
    put(root, fact("tea", vector=axis(1)))
    held = resident(root)
    first = segment(held, Grain.WORKING)
    assert contents(first) == ["tea"]
    assert segment(held, Grain.WORKING) is first


def test_a_missing_table_is_empty_until_it_is_created(root: str) -> None:
    held = resident(root)
    assert contents(segment(held, Grain.WORKING)) == []
    put(root, fact("tea"))
    assert contents(segment(held, Grain.WORKING)) == ["tea"]


def test_writes_of_another_object_are_visible_at_once(root: str) -> None:
    put(root, fact("tea"))
    held = resident(root)
    assert contents(segment(held, Grain.WORKING)) == ["tea"]
    put(root, fact("tea"), fact("milk", 1))
    assert contents(segment(held, Grain.WORKING)) == ["milk", "tea"]
    put(root, fact("milk", 1))
    assert contents(segment(held, Grain.WORKING)) == ["milk"]


def test_writes_of_another_process_are_visible_at_once(root: str) -> None:
    put(root, fact("tea"))
    held = resident(root)
    assert contents(segment(held, Grain.WORKING)) == ["tea"]
    process = PROCESSES.Process(target=put, args=(root, fact("milk", 120)))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert contents(segment(held, Grain.WORKING)) == ["milk", "tea"]


@pytest.mark.usefixtures("large")
def test_a_table_that_is_too_large_is_not_cached(root: str) -> None:
    put(root, *(fact(f"row {n}", n) for n in range(3)))
    assert segment(resident(root, 2), Grain.WORKING) is None
    assert segment(resident(root, 0), Grain.WORKING) is None
    assert len(contents(segment(resident(root, 3), Grain.WORKING))) == 3


@pytest.mark.usefixtures("large")
def test_a_table_is_evicted_when_it_outgrows_the_cache_and_cached_when_it_shrinks(root: str) -> None:
    put(root, fact("tea"), fact("milk", 1))
    held = resident(root, 2)
    assert segment(held, Grain.WORKING) is not None
    put(root, fact("tea"), fact("milk", 1), fact("water", 2))
    assert segment(held, Grain.WORKING) is None
    assert held.resident._held == {}
    put(root, fact("tea"))
    assert contents(segment(held, Grain.WORKING)) == ["tea"]


def test_the_least_recently_used_tables_are_evicted(root: str) -> None:
    put(root, *(fact(f"row {n}", n) for n in range(3)))
    put(root, summary("a day"), summary("another", 16), grain=Grain.DAILY)
    put(root, summary("a week") | {"period": "2024-W03"}, grain=Grain.WEEKLY)
    held = resident(root, 5)
    working, daily = segment(held, Grain.WORKING), segment(held, Grain.DAILY)
    assert segment(held, Grain.WORKING) is working  # now the most recently used
    segment(held, Grain.WEEKLY)
    assert [one._grain for one in held.resident._held] == [Grain.WORKING, Grain.WEEKLY]
    assert segment(held, Grain.WORKING) is working
    assert segment(held, Grain.DAILY) is not daily


@pytest.mark.parametrize("most", [0, 1])
def test_the_cache_never_exceeds_its_limit(root: str, most: int) -> None:
    for grain, period in ((Grain.DAILY, "2024-01-15"), (Grain.WEEKLY, "2024-W03"), (Grain.MONTHLY, "2024-01")):
        put(root, summary("tea") | {"period": period}, grain=grain)
    held = resident(root, most)
    for grain in (Grain.DAILY, Grain.WEEKLY, Grain.MONTHLY, Grain.DAILY):
        segment(held, grain)
        assert sum(held.resident._held.values()) <= most


@pytest.mark.usefixtures("large")
def test_points_belong_to_the_newest_summaries(root: str) -> None:
    put(root, summary("tea\nmilk"), grain=Grain.DAILY)
    held = resident(root)
    points = held.points(Grain.DAILY)
    assert held.points(Grain.DAILY) is points
    put(root, summary("water"), grain=Grain.DAILY)
    assert contents(held.points(Grain.DAILY)) == ["water"]
    assert resident(root, 0).points(Grain.DAILY) is None


def test_threads_see_whole_tables_while_others_write(root: str) -> None:
    put(root, fact("row 0"))
    held = resident(root)
    written = 1

    def read(_: int) -> list[tuple[int, int, int]]:
        seen = []
        for _ in range(12):
            least = written
            part = segment(held, Grain.WORKING)
            assert part is not None
            seen.append((least, len(part), written))
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, n) for n in range(4)]
        for number in range(1, 6):
            put(root, *(fact(f"row {n}", n) for n in range(number + 1)))
            written = number + 1
        for least, found, most in (each for future in reading for each in future.result()):
            assert least <= found <= most + 1

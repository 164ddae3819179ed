"""The overlay of stored rows and pending journal entries: each fact counts once, and only changes are read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from memory_pipeline.overlay import Overlay, PendingFile, PendingJournal
from memory_pipeline_tests.building import ACME
from memory_pipeline_tests.graph.line_edits import write_edits
from memory_pipeline_tests.memories.keeping import minute, remember, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memory_pipeline.lake import Lake

TEA, MILK, RYE = (remember(f"Anna likes {name}.", minute(at)) for at, name in enumerate(("tea", "milk", "rye")))


class Rows(NamedTuple):
    """Stored rows: the ids of events."""

    ids: frozenset[str]


class Ids(Overlay[Rows, list[str], tuple[str, ...]]):
    """The ids of all events: those in `table`, and pending ones. `calls` are the calls of its methods."""

    def __init__(self, pending: PendingJournal | None, *stored: str) -> None:
        super().__init__(pending)
        self.table = frozenset(stored)
        self.calls: list[str] = []
        self.after_read: Callable[[], object] = lambda: None
        self.during_fold: Callable[[], object] = lambda: None

    def _stored(self, known: Rows | None) -> Rows:
        rows = known if known is not None and known.ids == self.table else Rows(self.table)
        if rows is not known:
            self.calls.append("stored")
        self.after_read()
        return rows

    def _recorded(self, files: Sequence[PendingFile]) -> list[list[str]]:
        self.calls.append(f"recorded {len(files)}")
        self.after_read()
        return [[event.id for event in file.events] for file in files]

    def _fold(self, base: Rows, pending: Mapping[str, list[str]]) -> tuple[str, ...]:
        self.calls.append("fold")
        self.during_fold()
        waiting = [one for ids in pending.values() for one in ids if one not in base.ids]
        return (*sorted(base.ids), *waiting)


@pytest.fixture
def ids(lake: Lake) -> Ids:
    lake.ensure()
    return Ids(PendingJournal(lake, ACME), "a stored one")


def test_nothing_is_computed_again_without_a_change(ids: Ids) -> None:
    first = ids.snapshot()
    assert ids.calls == ["stored", "fold"]
    assert ids.snapshot() is first
    assert ids.calls == ["stored", "fold"]


def test_a_new_entry_is_read_once_and_does_not_reload_the_table(ids: Ids, lake: Lake) -> None:
    ids.snapshot()
    for event in (TEA, MILK):
        ids.calls.clear()
        write(lake, event)
        assert ids.snapshot()[-1] == event.id
        assert ids.calls == ["recorded 1", "fold"]
    assert ids.snapshot() == ("a stored one", TEA.id, MILK.id)


def test_a_file_without_records_computes_nothing(ids: Ids, lake: Lake) -> None:
    first = ids.snapshot()
    write_edits(lake, "INSERT Anna | likes | tea")
    assert ids.snapshot() is first
    assert ids.calls == ["stored", "fold", "recorded 1"]


class Unverified(Ids):
    """Does not look whether the table has changed since, as for index rows."""

    def _is_current(self, sources: object) -> bool:  # as in the base class
        return True


def test_entries_committed_between_the_two_reads_count_once(lake: Lake) -> None:
    """The journal is read first: an entry may then be in the table, too, but is never missing in both."""
    ids = Unverified(PendingJournal(lake, ACME), "a stored one")
    write(lake, TEA)

    def commit() -> None:
        ids.table |= {TEA.id}
        lake.journal.acknowledge(lake.journal.pending())
        ids.after_read = lambda: None

    ids.after_read = commit  # of either
    for _ in range(2):
        assert sorted(ids.snapshot()) == sorted(["a stored one", TEA.id])


def test_rows_that_change_during_the_fold_are_folded_again(ids: Ids) -> None:
    changes = iter(["b", "c"])

    def change() -> None:
        ids.table |= {one for one in [next(changes, None)] if one is not None}

    ids.during_fold = change
    assert ids.snapshot() == ("a stored one", "b", "c")
    assert ids.calls == ["stored", "fold"] * 3
    assert ids.snapshot() == ("a stored one", "b", "c")
    assert len(ids.calls) == 6


def test_rows_that_always_change_are_an_error(ids: Ids) -> None:
    numbers = iter(range(99))

    def change() -> None:
        ids.table = frozenset([str(next(numbers))])

    ids.during_fold = change
    with pytest.raises(RuntimeError, match="changed 10 times while it was read; retry later"):
        ids.snapshot()
    ids.during_fold = lambda: None
    assert ids.snapshot() == ("9",)


def test_new_entries_during_the_fold_wait_for_the_next_query(ids: Ids, lake: Lake) -> None:
    """Otherwise an agent that is written to without a pause could not be read."""
    events = iter([TEA, MILK, RYE])
    ids.during_fold = lambda: write(lake, next(events))
    assert ids.snapshot() == ("a stored one",)
    assert ids.snapshot() == ("a stored one", TEA.id)
    assert ids.calls.count("stored") == 1


def test_after_a_drop_stored_rows_are_read_again_and_entries_are_not(ids: Ids, lake: Lake) -> None:
    write(lake, TEA)
    first = ids.snapshot()
    ids.calls.clear()
    ids.drop()
    assert ids.snapshot() == first
    assert ids.calls == ["stored", "fold"]


def test_an_overlay_without_a_journal_is_its_stored_rows(lake: Lake) -> None:
    write(lake, TEA)
    assert Ids(None, "b", "a").snapshot() == ("a", "b")


def test_overlays_of_two_scopes_are_independent(lake: Lake) -> None:
    other = replace(ACME, agent_id="sales")
    mine, theirs = (Ids(PendingJournal(lake, scope), scope.agent_id) for scope in (ACME, other))
    first = theirs.snapshot()
    write(lake, TEA)
    assert mine.snapshot() == (ACME.agent_id, TEA.id)
    assert theirs.snapshot() is first


def test_threads_find_every_entry_once_while_entries_are_written_and_committed(ids: Ids, lake: Lake) -> None:
    events = [remember(f"Number {number}.", minute(number)) for number in range(12)]
    written: list[str] = []
    is_done = threading.Event()

    def read(_: int) -> int:
        count = 0
        while not is_done.is_set() or not count:
            least = list(written)
            found = ids.snapshot()
            assert len(found) == len(set(found))
            assert set(least) <= set(found)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, number) for number in range(4)]
        try:
            for number, event in enumerate(events):
                write(lake, event)
                written.append(event.id)
                if number % 3 == 2:
                    ids.table |= set(written)
                    lake.journal.acknowledge(lake.journal.pending())
        finally:
            is_done.set()
        assert all(future.result() for future in reading)
    assert set(ids.snapshot()) == {"a stored one", *written}

"""A lost table is rebuilt once, however many notice the loss, and no row that is written meanwhile is lost."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import CommitConflictError, DamagedError
from memory_pipeline.lake.codec.codec import with_digest
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.scoped_rows import ScopedRows

if TYPE_CHECKING:
    from collections.abc import Callable

ANNA = Scope("acme", "anna")
SCHEMA = pa.schema(dict.fromkeys(["id", "scope", "workspace_id", "agent_id", "identity", "digest"], pa.string()))
WRITERS, RECORDS = 2, 4
PROCESSES = multiprocessing.get_context("spawn")


def opened(root: str) -> ScopedRows:
    return ScopedRows(Storage(root), "things", SCHEMA, 1)


def rows(*ids: str) -> pa.Table:
    return with_digest(
        pa.Table.from_pylist(
            [
                dict(zip(SCHEMA.names, (each, ANNA.key, ANNA.workspace_id, ANNA.agent_id, "", ""), strict=True))
                for each in ids
            ],
            schema=SCHEMA,
        )
    )


def ids(things: ScopedRows) -> list[str]:
    return sorted(things.scan(["id"])["id"].to_pylist())


def put(things: ScopedRows, identifier: str, records: Callable[[], pa.Table]) -> None:
    """Write a row whose record exists, as a run does: if the table is lost, restore it first."""
    while True:
        try:
            things.replace(rows(identifier), [ANNA], f"id = '{identifier}'")
            return
        except CommitConflictError:  # the table was lost again and again
            continue
        except DamagedError:
            things.restore("things-000", records)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def lose(root: str) -> None:
    shutil.rmtree(Path(root, "projections", "things-000.lance"), ignore_errors=True)


def test_one_thread_restores_a_lost_table_and_another_waits(root: str) -> None:
    records = ["a"]
    opened(root).replace(rows("a"), [ANNA])
    lose(root)
    reading, is_added = Event(), Event()
    reads: list[list[str]] = []

    def slow() -> pa.Table:
        reads.append(list(records))
        found = rows(*records)
        reading.set()
        assert is_added.wait(10)
        return found

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(opened(root).restore, "things-000", slow)
        assert reading.wait(10)
        second = pool.submit(opened(root).restore, "things-000", slow)
        records.append("b")  # after the first has read
        third = pool.submit(put, opened(root), "b", slow)
        is_added.set()
        for each in (first, second, third):
            each.result(30)
    assert reads == [["a"]]
    assert ids(opened(root)) == ["a", "b"]


def test_rows_written_to_a_damaged_table_before_it_is_dropped_are_restored(root: str) -> None:
    """A record may be committed between the noticing of the damage and the rebuilding."""
    things = opened(root)
    things.replace(rows("a"), [ANNA])
    for path in Path(root, "projections", "things-000.lance", "data").iterdir():
        path.write_bytes(b"")
    records = ["a"]

    def read() -> pa.Table:
        assert not Path(root, "projections", "things-000.lance").exists()
        return rows(*records)

    assert things.damage_of("things-000")
    records.append("b")
    things.restore("things-000", read)
    assert ids(opened(root)) == ["a", "b"]


def test_a_table_that_is_whole_is_not_restored(root: str) -> None:
    things = opened(root)
    things.replace(rows("a"), [ANNA])
    things.restore("things-000", lambda: pytest.fail("the records were read"))
    assert ids(things) == ["a"]


def test_a_table_without_records_is_no_longer_expected(root: str) -> None:
    opened(root).replace(rows("a"), [ANNA])
    lose(root)
    things = opened(root)
    things.restore("things-000", rows)
    assert things.roster.tables() == set()
    put(things, "b", rows)
    assert ids(things) == ["b"]


def _write(root: str, writer: int) -> None:
    things = opened(root)

    def records() -> pa.Table:
        return rows(*(path.name for path in Path(root, "records").iterdir()))

    for number in range(RECORDS):
        identifier = f"{writer}-{number}"
        Path(root, "records", identifier).touch()
        put(things, identifier, records)
        if number % 2:
            lose(root)


def test_processes_that_lose_and_restore_a_table_lose_no_row(root: str) -> None:
    Path(root, "records").mkdir(parents=True)
    writers = [PROCESSES.Process(target=_write, args=(root, number)) for number in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
    assert [process.exitcode for process in writers] == [0] * WRITERS
    things = opened(root)
    put(things, "last", lambda: rows(*(path.name for path in Path(root, "records").iterdir()), "last"))
    assert ids(things) == sorted([*(path.name for path in Path(root, "records").iterdir()), "last"])

"""Purges remove deleted data from disk and log while readers and writers are active."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memory_pipeline.errors import DamagedError, InputError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.lake.tables.vacuum import Purged
from memory_pipeline_tests.building import PROCESSES

SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("owner", "id")])
THINGS = TableSpec("things", SCHEMA, partition_by=("owner",))
#: Rows of a partition; readers must see all or none.
WHOLE = 5


def things(*owners: str, text: str = "thing") -> pa.Table:
    rows = [{"owner": owner, "id": f"{text} {number}"} for owner in owners for number in range(WHOLE)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def files_of(root: str) -> list[Path]:
    return [path for path in Path(root, "tables", "things").rglob("*") if path.is_file()]


def found_in(root: str, word: str) -> list[Path]:
    """Return the files and folders that contain a word or have it in their name."""
    paths = Path(root, "tables", "things").rglob("*")
    return [path for path in paths if word in path.name or (path.is_file() and word.encode() in path.read_bytes())]


@pytest.fixture
def tables(root: str) -> Tables:
    return Tables(Storage(root))


def test_removed_rows_leave_no_trace_in_files_log_or_names(root: str, tables: Tables) -> None:
    for number in range(3):
        tables.replace(THINGS, ["acme~a", "acme~gone"], things("acme~a", "acme~gone", text=f"text{number}"))
    before = {path: path.stat().st_size for path in files_of(root) if path.suffix == ".parquet"}
    tables.remove(THINGS, ["acme~gone"])
    kept = tables.read(THINGS)
    assert found_in(root, "acme~gone")
    purged = tables.purge(THINGS)
    after = [path for path in files_of(root) if path.suffix == ".parquet" and "_delta_log" not in path.parts]
    assert len(after) == 1
    assert purged == Purged(5, sum(size for path, size in before.items() if path not in after))
    assert found_in(root, "acme~gone") == []
    assert found_in(root, "text0") == []
    for reader in (tables, Tables(Storage(root))):
        assert reader.read(THINGS).equals(kept)
        assert reader.keys(THINGS) == ["acme~a"]


def test_a_purge_of_a_clean_table_changes_nothing(root: str, tables: Tables) -> None:
    assert tables.purge(THINGS) == Purged()
    tables.replace(THINGS, ["a"], things("a"))
    tables.replace(THINGS, ["a"], things("a", text="other"))
    assert tables.purge(THINGS).files == 1
    before = {path: path.read_bytes() for path in files_of(root)}
    assert tables.purge(THINGS) == Tables(Storage(root)).purge(THINGS) == Purged()
    assert {path: path.read_bytes() for path in files_of(root)} == before


def test_a_table_can_be_written_and_purged_repeatedly(root: str, tables: Tables) -> None:
    for number in range(4):
        tables.replace(THINGS, ["a"], things("a", text=f"text{number}"))
        tables.replace(THINGS, ["b"], things("b", text=f"text{number}"))
        assert tables.purge(THINGS).files == (2 if number else 0)
        assert len([path for path in files_of(root) if ".checkpoint." in path.name]) == 1
    assert set(Tables(Storage(root)).read(THINGS)["id"].to_pylist()) == {f"text3 {n}" for n in range(WHOLE)}


def test_removed_files_are_kept_during_the_grace_period(root: str, tables: Tables) -> None:
    tables.replace(THINGS, ["a"], things("a"))
    tables.remove(THINGS, ["a"])
    assert tables.purge(THINGS, grace=timedelta(minutes=1)) == Purged()
    assert found_in(root, "owner=a")
    assert tables.purge(THINGS, grace=timedelta(days=1)) == Purged()
    tables.replace(THINGS, ["b"], things("b"))
    assert tables.purge(THINGS).files == 1
    assert found_in(root, "owner=a") == []


def test_old_files_of_no_version_are_deleted(root: str, tables: Tables) -> None:
    tables.replace(THINGS, ["a"], things("a"))
    old, young = (Path(root, "tables", "things", "owner=z", f"part-{name}.parquet") for name in ("old", "young"))
    for path in (old, young):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left behind")
    hours_ago = time.time() - 3 * 3600
    os.utime(old, (hours_ago, hours_ago))
    for path in files_of(root):
        if "owner=a" in path.parts:
            os.utime(path, (hours_ago, hours_ago))
    assert tables.purge(THINGS) == Purged()
    assert tables.purge(THINGS, orphans=timedelta(hours=4)) == Purged()
    assert tables.purge(THINGS, orphans=timedelta(hours=2)) == Purged(1, len(b"left behind"))
    assert not old.exists()
    assert young.exists()
    assert tables.read(THINGS).num_rows == WHOLE


def test_old_log_entries_are_deleted_and_recent_ones_overwritten(root: str, tables: Tables) -> None:
    for number in range(4):
        tables.replace(THINGS, ["a"], things("a", text=f"text{number}"))
    log = Path(root, "tables", "things", "_delta_log")
    hours_ago = time.time() - 3 * 3600
    for version in (0, 1):
        os.utime(log / f"{version:020}.json", (hours_ago, hours_ago))
    tables.purge(THINGS)
    names = sorted(path.name for path in log.glob("*.json"))
    assert names[0] == f"{2:020}.json"
    assert [(log / name).read_bytes() for name in names[:2]] == [b"purged\n"] * 2


def test_a_purge_after_a_vacuum_deletes_the_remaining_files(root: str, tables: Tables) -> None:
    tables.replace(THINGS, ["acme~gone"], things("acme~gone"))
    tables.remove(THINGS, ["acme~gone"])
    for number in range(20):
        tables.replace(THINGS, ["a"], things("a", text=f"text{number}"))
    later = datetime.now(UTC) + timedelta(hours=2)
    tables.vacuum("tables/things", later, later, dry_run=False)
    assert any(".checkpoint." in path.name for path in found_in(root, "acme~gone"))
    Tables(Storage(root)).purge(THINGS)
    assert found_in(root, "acme~gone") == []
    assert found_in(root, "text18") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grace": timedelta(seconds=-1)}, r"grace '-1 day, 23:59:59' is not accepted; expected 0 or more"),
        ({"orphans": timedelta(minutes=59)}, r"orphans '0:59:00' is not accepted; expected an hour or more"),
    ],
)
def test_harmful_durations_are_refused(tables: Tables, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tables.purge(THINGS, **arguments)


def test_a_mart_is_purged_by_its_path_while_it_is_open(root: str, tables: Tables) -> None:
    def write(marts: Marts, rows: dict[str, list[Any]]) -> bool:
        return marts.replace("m", pa.table(rows), column=None, values=None).changed

    assert tables.purge_path("marts/m") == Purged()
    first, other = Marts(Storage(root)), Marts(Storage(root))
    write(first, {"a": ["secret"]})
    assert not write(other, {"a": ["secret"]})
    write(first, {"a": ["public"]})
    assert tables.purge_path("marts/m").files == 1
    assert not [path for path in Path(root, "marts").rglob("*.parquet") if b"secret" in path.read_bytes()]
    assert not write(other, {"a": ["public"]})
    assert write(other, {"b": [1]})


# --- concurrency -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_readers_and_writers_from_before_a_purge_retry(root: str, commits: int) -> None:
    """Their handles are of a version that no longer exists."""
    first, other = Tables(Storage(root)), Tables(Storage(root))
    first.replace(THINGS, ["a", "gone"], things("a", "gone"))
    first.read(THINGS)
    seen: list[list[str]] = []

    def change(old: pa.Table) -> pa.Table:
        seen.append(old["owner"].unique().to_pylist())
        if len(seen) == 1:
            other.remove(THINGS, ["gone"])
            for number in range(commits):
                other.replace(THINGS, ["c"], things("c", text=str(number)))
            other.purge(THINGS)
        return pa.concat_tables([old, things("b")])

    first.transform(THINGS, ["gone", "b"], change)
    assert seen == [["gone"], []], "what was removed is not written again"
    expected = ["a", "b", "c"] if commits else ["a", "b"]
    assert first.keys(THINGS) == Tables(Storage(root)).keys(THINGS) == expected
    assert sorted(first.read(THINGS)["owner"].unique().to_pylist()) == expected


def test_a_lost_file_is_reported_until_its_partition_is_replaced(root: str, tables: Tables) -> None:
    tables.replace(THINGS, ["a"], things("a"))
    (file,) = [path for path in files_of(root) if path.suffix == ".parquet"]
    file.unlink()
    with pytest.raises(DamagedError, match=file.name):
        tables.read(THINGS)
    tables.replace(THINGS, ["a"], things("a", text="new"))
    assert tables.read(THINGS)["id"].to_pylist() == things("a", text="new")["id"].to_pylist()


def _churn(root: str, done: Callable[[], bool], seconds: float) -> None:
    """Replace, remove and purge partitions until the others are done."""
    tables = Tables(Storage(root))
    until = time.monotonic() + seconds
    number = 0
    while not done() and time.monotonic() < until:
        owners = [f"w{number % 3}", f"w{(number + 1) % 3}"]
        tables.replace(THINGS, owners, things(*owners, text=f"text{number}"))
        tables.remove(THINGS, [f"w{(number + 2) % 3}"])
        tables.drop_rows(THINGS, None, lambda rows: pa.compute.equal(rows["owner"], "w1"), ["owner"])
        tables.purge(THINGS)
        number += 1


def _read_many(root: str, reads: int) -> int:
    """Read during removals and purges. Return the number of reads that found rows."""
    tables = Tables(Storage(root))
    found = 0
    for _ in range(reads):
        rows = tables.read(THINGS)
        found += bool(rows.num_rows)
        counts = {row["values"]: row["counts"] for row in rows["owner"].value_counts().to_pylist()}
        assert {count for owner, count in counts.items() if not owner.startswith("log")} <= {WHOLE}, counts
        assert counts["stays"] == WHOLE
        assert "stays" in tables.sizes(THINGS)
        assert tables.state(THINGS, ["stays"])
    return found


def _append_many(root: str, writer: int, rows: int) -> None:
    tables = Tables(Storage(root))
    for number in range(rows):
        row = pa.Table.from_pylist([{"owner": f"log{writer % 2}", "id": f"{writer}-{number}"}], schema=SCHEMA)
        tables.transform(THINGS, [f"log{writer % 2}"], lambda old, row=row: pa.concat_tables([old, row]))  # type: ignore[misc]


def test_threads_read_whole_partitions_during_removals_and_purges(root: str) -> None:
    Tables(Storage(root)).replace(THINGS, ["stays"], things("stays"))
    finished = threading.Event()
    with ThreadPoolExecutor(9) as pool:
        churning = pool.submit(_churn, root, finished.is_set, 60)
        reading = [pool.submit(_read_many, root, 15) for _ in range(8)]
        try:
            assert [read.result() for read in reading] == [15] * 8
        finally:
            finished.set()
        churning.result()


def test_processes_read_and_write_during_removals_and_purges(root: str) -> None:
    Tables(Storage(root)).replace(THINGS, ["stays"], things("stays"))
    workers = [PROCESSES.Process(target=_read_many, args=(root, 25)) for _ in range(2)]
    workers += [PROCESSES.Process(target=_append_many, args=(root, writer, 8)) for writer in range(2)]
    for worker in workers:
        worker.start()
    _churn(root, lambda: not any(worker.is_alive() for worker in workers), 60)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    rows = Tables(Storage(root)).read(THINGS, ["log0", "log1"])["id"].to_pylist()
    assert sorted(rows) == sorted(f"{writer}-{number}" for writer in range(2) for number in range(8))

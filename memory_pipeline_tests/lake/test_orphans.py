"""Vacuum deletes old unneeded files while others read, write, die or vacuum."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancedb
import pytest
from deltalake import DeltaTable

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index import projection
from memory_pipeline.lake.index.lance_internals import lance_table, lance_tables
from memory_pipeline.lake.layout import PROJECTIONS
from memory_pipeline.lake.orphans import AGE, last_vacuum, unnamed_files, vacuum
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.vacuum import Purged
from memory_pipeline.steps.housekeeping import clean_daily, clean_files
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.faults.rows import indexed, ledger
from memory_pipeline_tests.index_rows import index_folder, put_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory_pipeline.lake.files.storage import Storage

ANNA = Scope("acme", "anna")
TABLE = index_folder("", ANNA).as_posix()
DAY = Period.parse("daily", "2024-01-15")
#: Changes of a lake, each of which replaces a file of a table and a version of the index.
CHANGES = 17


def later(hours: float = 2) -> datetime:
    """Return a time at which files written now are old enough."""
    return datetime.now(UTC) + timedelta(hours=hours)


def change(lake: Lake, *texts: str) -> None:
    for text in texts:
        lake.tables.replace(LEDGER, ["a"], ledger("a", text))
        put_rows(lake.index, Grain.DAILY, [DAY], {ANNA: indexed(DAY.key, text)})


def made(root: str, changes: int = CHANGES) -> Lake:
    lake = Lake(root)
    lake.ensure()
    lake.tables.replace(LEDGER, ["b"], ledger("b", "of b"))
    change(lake, *(f"text {number}" for number in range(changes)))
    return lake


def held(root: str) -> tuple[list[str], list[str]]:
    lake = Lake(root)
    rows = lake.tables.read(LEDGER)["period"].to_pylist()
    return sorted(rows), lake.index.read([ANNA], ["content"], "grain = 'daily'")["content"].to_pylist()


def files(storage: Storage) -> dict[str, int]:
    return {entry.path: entry.size for entry in storage.list("") if not entry.path.startswith("state/")}


def gone(found: Mapping[str, Purged], kinds: Collection[str] = ("replaced", "logs", "versions")) -> Purged:
    return sum((found[kind] for kind in kinds), Purged())


@pytest.mark.on_s3(always=True)
def test_a_vacuum_deletes_exactly_what_its_dry_run_reports(root: str) -> None:
    changes = 3 if root.startswith("s3") else CHANGES
    lake = made(root, changes)
    before, rows = files(lake.storage), held(root)
    assert gone(vacuum(lake.storage, lake.tables, datetime.now(UTC))) == Purged()
    assert before.items() <= files(lake.storage).items()
    before = files(lake.storage)  # with a checkpoint that the dry run does not predict

    shown = vacuum(lake.storage, lake.tables, later(), dry_run=True)
    assert shown["replaced"].files == changes - 1
    assert files(lake.storage) == before
    lake.storage.delete(["state/vacuum.json"])
    found = vacuum(lake.storage, lake.tables, later())
    assert (found["replaced"], found["versions"]) == (shown["replaced"], shown["versions"])
    after = files(lake.storage)
    assert gone(found) == Purged(len(before.keys() - after.keys()), sum(before[path] for path in before.keys() - after))
    assert held(root) == rows
    assert len([path for path in after if path.endswith(".parquet") and "_delta_log" not in path]) == 2
    assert len([path for path in after if path.endswith(".manifest")]) == 1
    if changes == CHANGES:  # enough for a checkpoint
        assert len([path for path in after if "_delta_log" in path]) <= 6  # with the record of the vacuum
    assert unnamed_files(lake.storage) == []

    lake.storage.delete(["state/vacuum.json"])
    assert gone(vacuum(lake.storage, lake.tables, later())) == Purged()
    assert files(lake.storage) == after
    change(Lake(root), "text of tomorrow")
    assert held(root) == (["of b", "text of tomorrow"], ["text of tomorrow"])


def test_a_vacuum_keeps_the_files_of_open_readers(root: str) -> None:
    lake = made(root, 3)
    table = DeltaTable(str(Path(root, "tables", "ledger")))
    scan = lake.tables.dataset(LEDGER)
    opened: Any = lancedb.connect(Path(root, PROJECTIONS)).open_table(Path(TABLE).stem)
    opened.checkout(opened.version)
    for path in Path(root).rglob("*"):  # old files that are replaced only now
        os.utime(path, (0, 0))
    change(lake, "new")
    vacuum(lake.storage, lake.tables, datetime.now(UTC))
    assert sorted(table.to_pyarrow_table()["period"].to_pylist()) == ["of b", "text 2"]
    assert sorted(scan.to_table()["period"].to_pylist()) == ["of b", "text 2"]
    assert opened.to_arrow()["content"].to_pylist() == ["text 2"]
    # Versions before it were superseded long ago.
    found = lance_table(lake.storage, TABLE)
    assert found is not None
    assert len(found.manifests) <= 1 + 2
    vacuum(lake.storage, lake.tables, later())
    assert lake.index.read([ANNA], ["content"], "grain = 'daily'")["content"].to_pylist() == ["new"]
    with pytest.raises(FileNotFoundError):
        scan.to_table()


def test_a_handle_that_was_idle_during_a_vacuum_reads_and_writes_the_newest_version(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = made(root, 1), Lake(root)
    other.tables.replace(LEDGER, ["c"], ledger("c", "of c"))
    assert other.index.count(ANNA, Grain.DAILY) == 1
    change(lake, *(f"later {number}" for number in range(CHANGES)))
    vacuum(lake.storage, lake.tables, later())
    monkeypatch.setattr("memory_pipeline.lake.tables.handles._YOUNG", 0)  # as after ten minutes
    assert sorted(other.tables.read(LEDGER)["period"].to_pylist()) == [f"later {CHANGES - 1}", "of b", "of c"]
    other.tables.replace(LEDGER, ["c"], ledger("c", "of c again"))
    change(other, "the last")
    assert held(root) == (["of b", "of c again", "the last"], ["the last"])


def _change_for_ever(root: str) -> None:
    lake = Lake(root)
    for number in range(100_000):
        change(lake, f"text {number}")


def test_only_old_files_of_killed_writers_are_deleted(root: str) -> None:
    lake = made(root, 2)
    writer = PROCESSES.Process(target=_change_for_ever, args=(root,))
    writer.start()
    version = lake.tables.version(LEDGER)
    while lake.tables.version(LEDGER) < version + 3:
        pass
    os.kill(writer.pid or 0, signal.SIGKILL)
    writer.join()
    halves = [Path(root, TABLE, "data", "half.lance"), Path(root, "tables/ledger/bucket=a/part-half.parquet")]
    for half in halves:
        half.write_bytes(b"half")
    rows = held(root)
    vacuum(lake.storage, lake.tables, datetime.now(UTC), age=timedelta(0))
    assert all(half.exists() for half in halves)
    assert held(root) == rows
    vacuum(lake.storage, lake.tables, later())
    assert not any(half.exists() for half in halves)
    assert unnamed_files(lake.storage) == []
    assert held(root) == rows


def _vacuum_often(root: str, times: int) -> None:
    lake = Lake(root)
    for _ in range(times):
        clean_files(lake, datetime.now(UTC), age=timedelta(0))


@pytest.mark.on_s3
def test_concurrent_vacuums_and_a_writer_lose_nothing(root: str) -> None:
    lake = made(root, 3)
    with ThreadPoolExecutor(2) as pool:
        vacuums = [pool.submit(_vacuum_often, root, 2) for _ in range(2)]
        written = 0
        while not all(each.done() for each in vacuums):
            change(lake, f"beside {written}")
            assert lake.index.read([ANNA], ["content"], "grain = 'daily'")["content"].to_pylist() == [
                f"beside {written}"
            ]
            written += 1
    for each in vacuums:
        each.result()
    assert held(root) == ([f"beside {written - 1}", "of b"], [f"beside {written - 1}"])
    assert unnamed_files(lake.storage) == []


def test_the_next_vacuum_completes_a_killed_one(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(root)
    rows = held(root)
    delete = lake.storage.delete

    def some(paths: Any) -> None:
        delete(list(paths)[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(lake.storage, "delete", some)
    with pytest.raises(KeyboardInterrupt):
        vacuum(lake.storage, lake.tables, later())
    assert held(root) == rows
    monkeypatch.undo()
    vacuum(lake.storage, lake.tables, later())
    assert unnamed_files(lake.storage) == []
    assert held(root) == rows
    found = lance_table(lake.storage, TABLE)
    assert found is not None
    assert len(found.manifests) == 1


@pytest.mark.parametrize("content", [b"", b"half of a manifest"])
def test_a_table_with_a_damaged_manifest_is_skipped_and_others_are_vacuumed(root: str, content: bytes) -> None:
    lake = made(root)
    found = lance_table(lake.storage, TABLE)
    assert found is not None
    Path(root, found.manifests[-1].path).write_bytes(content)
    log = Path(root, "tables", "facts", "_delta_log", f"{0:020}.json")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"nonsense")
    before = {path for path in files(lake.storage) if path.startswith(TABLE)}
    gone_of = clean_files(lake, later()).old_versions
    assert gone_of["replaced"].files == CHANGES - 1
    assert gone_of["versions"] == Purged()
    assert {path for path in files(lake.storage) if path.startswith(TABLE)} == before


def test_many_small_files_are_merged(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(root, 1)
    monkeypatch.setattr(projection, "_MOST_FILES", 1_000)  # as if others had left writers no gap
    for number in range(40):
        day = f"2024-02-{number % 28 + 1:02}"
        put_rows(lake.index, Grain.DAILY, [Period.parse("daily", day)], {ANNA: indexed(day, f"{number}")})
    rows = sorted(held(root)[1])
    monkeypatch.undo()
    cleaned = clean_files(lake, later())
    assert (cleaned.compacted, cleaned.bytes_written > 0) == (1, True)
    assert sorted(held(root)[1]) == rows
    [found] = lance_tables(lake.storage)
    assert found.data_files <= 2
    assert clean_files(lake, later()).compacted == 0


def test_a_vacuum_is_due_once_a_day(root: str) -> None:
    lake = made(root, 1)
    now = datetime.now(UTC)
    clean_files(lake, now, dry_run=True)
    assert last_vacuum(lake.storage) is None
    assert clean_daily(lake, now) is not None
    assert last_vacuum(lake.storage) == now
    assert clean_daily(lake, now + timedelta(hours=23)) is None
    assert clean_daily(lake, now + timedelta(hours=24)) is not None


def test_a_negative_age_is_refused(root: str) -> None:
    lake = made(root, 1)
    with pytest.raises(InputError, match=r"age '-1 day, 23:00:00' is negative; expected 0 or more"):
        vacuum(lake.storage, lake.tables, datetime.now(UTC), age=-AGE)

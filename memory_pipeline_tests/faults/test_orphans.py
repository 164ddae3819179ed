"""Files of killed processes are reported, and deleted once they are an hour old; live files are kept."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from memory_pipeline.cli.common import cli
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.orphans import AGE, LEFT_BEHIND, vacuum
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline_tests.faults.rows import indexed, ledger
from memory_pipeline_tests.index_rows import index_folder, older, put_rows

if TYPE_CHECKING:
    from memory_pipeline.lake.files.storage import Storage

ANNA = Scope("acme", "anna")
TABLE = index_folder("", ANNA).as_posix()
#: Files as killed writers leave them, and their kinds.
ORPHANS = {
    "tables/ledger/bucket=a/part-00000-dead-c000.zstd.parquet": "tables",
    f"{TABLE}/data/dead.lance": "index",
    f"{TABLE}/_transactions/9-dead.txn": "index",
    f"{TABLE}/_deletions/0-7-12345678901234567890.arrow": "index",
    f"{TABLE}/_indices/0d6d1c58-3bb5-4d35-9a1c-6f2c2b9a5c11/part_0_docs.lance": "index",
    "projections/index-999.lance/data/dead.lance": "index",
    "state/created-twice-01H00000000000000000000000": "partial",
}
#: Files that only a local disk shows.
PARTIAL = {
    "journal/pending/acme/anna/.2024-01-15T08__01H.jsonl.01HQ0000000000000000000000": "partial",
    "tables/ledger/bucket=a/part-00000-half.parquet#1": "partial",
}


@pytest.fixture
def whole(root: str) -> Lake:
    """A lake with rows in tables and index, deleted rows, indices and old versions."""
    lake = Lake(root)
    lake.ensure()
    lake.tables.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1", "2"), ledger("b", "3")]))
    lake.tables.replace(LEDGER, ["b"], ledger("b", "4"))
    days = [Period.parse("daily", f"2024-01-{day}") for day in range(15, 20)]
    put_rows(lake.index, Grain.DAILY, days, {ANNA: pa.concat_tables([indexed(day.key, "one", "two") for day in days])})
    lake.index.delete(older("2024-01-15", grain="daily"))
    put_rows(lake.index, Grain.DAILY, days[1:2], {ANNA: indexed("2024-01-16", "three")})
    return lake


def files(storage: Storage) -> set[str]:
    return {entry.path for entry in [*storage.list(""), *storage.partial()]}


def held(lake: Lake) -> tuple[list[str], list[str], int]:
    """Return what readers find: table rows, search results and deleted rows."""
    fresh = Lake(lake.storage.uri)
    return (
        sorted(fresh.tables.read(LEDGER)["period"].to_pylist()),
        sorted(fresh.index.read([ANNA], ["content"], "grain = 'daily'")["content"].to_pylist()),
        fresh.index.count(ANNA, Grain.DAILY),
    )


def leave_behind(root: str) -> dict[str, str]:
    """Write files like those of killed writers. Return them with their kinds."""
    left = ORPHANS | PARTIAL
    for path in left:
        file = Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"dead")
    return left


def without_old_versions(lake: Lake) -> Lake:
    """Vacuum with an advanced clock, and delete the record of that vacuum."""
    vacuum(lake.storage, lake.tables, datetime.now(UTC) + 2 * AGE)
    lake.storage.delete(["state/vacuum.json"])
    return lake


def make_older(root: str) -> None:
    """Set the modification times of all files two hours back."""
    for file in Path(root).rglob("*"):
        then = file.stat().st_mtime - 7200
        os.utime(file, (then, then))


def test_each_kind_of_orphan_is_reported_then_deleted_and_nothing_else(whole: Lake, root: str) -> None:
    without_old_versions(whole)
    before, rows = files(whole.storage), held(whole)
    left = leave_behind(root)
    now = datetime.now(UTC)
    young = vacuum(whole.storage, whole.tables, now, dry_run=True)
    assert {kind: purged.files for kind, purged in young.items() if purged.files} == {}

    make_older(root)
    shown = vacuum(whole.storage, whole.tables, now, dry_run=True)
    assert {kind: (purged.files, purged.bytes) for kind, purged in shown.items() if purged.files} == {
        kind: (count, 4 * count) for kind in set(left.values()) if (count := list(left.values()).count(kind))
    }
    assert files(whole.storage) == before | left.keys()

    assert vacuum(whole.storage, whole.tables, now) == shown
    assert not left.keys() & files(whole.storage)
    gone = before - files(whole.storage)
    assert not gone, f"these were in use: {gone}"
    assert held(whole) == rows
    again = vacuum(whole.storage, whole.tables, now)
    assert {kind for kind, purged in again.items() if purged.files} == set()


def test_an_unchanged_index_table_is_not_scanned_again(whole: Lake, root: str) -> None:
    make_older(root)
    make_older(root)
    vacuum(whole.storage, whole.tables, datetime.now(UTC))
    old = Path(root, f"{TABLE}/data/dead.lance")
    old.write_bytes(b"dead")
    then = time.time() - 4 * 3600
    os.utime(old, (then, then))
    assert vacuum(whole.storage, whole.tables, datetime.now(UTC))["index"].files == 0
    fresh = Path(root, f"{TABLE}/data/fresh.lance")
    fresh.write_bytes(b"dead")
    assert vacuum(whole.storage, whole.tables, datetime.now(UTC))["index"].files == 1
    assert fresh.exists()
    assert not old.exists()


def test_leases_of_dead_processes_are_deleted_and_others_kept(whole: Lake, root: str) -> None:
    now = datetime.now(UTC)
    living = Leases(whole.storage, "calls/claims", lambda: now)
    assert living.claim("living", timedelta(days=1))
    dead = {"host": "elsewhere", "pid": 1, "process": "x", "until": (now - 2 * AGE).isoformat(), "id": "y"}
    whole.storage.write("calls/claims/dead.json", json.dumps(dead).encode())
    whole.storage.write("calls/claims/dead.0123456789abcdef.json", json.dumps(dead).encode())
    make_older(root)
    assert vacuum(whole.storage, whole.tables, now, dry_run=True)["claims"].files == 2
    assert vacuum(whole.storage, whole.tables, now)["claims"].files == 2
    assert [entry.path for entry in whole.storage.list("calls/claims")] == ["calls/claims/living.json"]


def test_the_command_reports_orphans_in_a_dry_run_and_a_run(whole: Lake, root: str) -> None:
    leave_behind(root)
    make_older(root)
    run = CliRunner()
    shown = run.invoke(cli, ["expire", "--dry-run", "--root", root], catch_exceptions=False).output
    assert "left by killed processes: partial: 3 files, 12 bytes would be deleted" in shown
    done = json.loads(run.invoke(cli, ["expire", "--json", "--root", root], catch_exceptions=False).output)
    assert done["left_behind"]["index"] == {"files": 5, "bytes": 20}
    assert not (ORPHANS | PARTIAL).keys() & files(whole.storage)


def test_on_s3_orphans_and_unfinished_uploads_are_deleted(s3_root: str) -> None:
    lake = Lake(s3_root)
    lake.ensure()
    lake.tables.replace(LEDGER, ["a", "b"], pa.concat_tables([ledger("a", "1"), ledger("b", "3")]))
    lake.tables.drop_rows(LEDGER, None, lambda rows: pc.equal(rows["period"], "1"), ["period"])
    day = Period.parse("daily", "2024-01-15")
    put_rows(lake.index, Grain.DAILY, [day], {ANNA: indexed(day.key, "one", "two")})
    rows = held(without_old_versions(lake))
    for path in ORPHANS:
        lake.storage.write(path, b"dead")
    bucket = lake.storage._bucket  # no public function leaves an unfinished upload
    assert bucket is not None
    key = s3_root.removeprefix(f"s3://{bucket.store.bucket}/") + "/tables/ledger/part-half.parquet"
    bucket.store.files.call_s3("create_multipart_upload", Bucket=bucket.store.bucket, Key=key)
    before = files(lake.storage)

    # The times of files on a server cannot be changed, so the clock is advanced.
    later = datetime.now(UTC) + 2 * AGE
    shown = vacuum(lake.storage, lake.tables, later, dry_run=True)
    assert {kind: shown[kind].files for kind in LEFT_BEHIND} == {
        "tables": 1, "index": 5, "partial": 1, "claims": 0, "uploads": 1,
    }  # fmt: skip
    assert files(lake.storage) == before
    assert vacuum(lake.storage, lake.tables, later) == shown
    assert before - files(lake.storage) == ORPHANS.keys()
    assert lake.storage.abandoned_uploads(later, abort=False) == []
    assert held(lake) == rows

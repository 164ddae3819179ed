"""Turns: a writer that keeps losing against faster ones succeeds, and a turn ends with its holder."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.lake import commit_retry
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.handles import turn_at
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.concurrency.rivals import append_slowly, append_until, ledger_row, take_and_stay
from memory_pipeline_tests.effort import IS_THOROUGH

if TYPE_CHECKING:
    import pytest

    from memory_pipeline_tests.concurrency.rivals import Rivals

TURN = f"state/turns/tables.{LEDGER.name}.json"


class Watched(Storage):
    """Counts the checks for the turn of another writer."""

    looks = 0

    def read(self, path: str) -> bytes | None:
        self.looks += path == TURN
        return super().read(path)


def append(tables: Tables, period: str) -> None:
    tables.transform(LEDGER, ["shared"], lambda old: pa.concat_tables([old, ledger_row("shared", period)]))


def periods(root: str) -> list[str]:
    found: list[str] = Tables(Storage(root)).read(LEDGER)["period"].to_pylist()
    return sorted(found)


def test_a_slow_writer_succeeds_among_fast_writers(rivals: Rivals, root: str) -> None:
    append(Tables(Storage(root)), "seed")
    rounds = 3 if IS_THOROUGH else 1
    quick = [partial(append_until, root, number, 0) for number in range(1, rivals.count)]
    # Fast writers continue until this one is done. Without turns it would always lose.
    most, *added = rivals.do([partial(append_slowly, root, 0, rounds, seconds=2.0 if IS_THOROUGH else 0.5), *quick])
    assert most <= 3 + rivals.count, "each commit that is in progress when the turn is taken may still win once"
    wanted = [f"{number}-{each}" for number, count in enumerate(added, start=1) for each in range(count)]
    assert periods(root) == sorted(["seed", *(f"0-{each}" for each in range(rounds)), *wanted])
    assert Storage(root).list("state/turns") == []


def test_a_killed_process_loses_its_turn(root: str) -> None:
    storage = Storage(root)
    process = PROCESSES.Process(target=take_and_stay, args=(root,))
    process.start()
    while storage.read("taken") is None:
        time.sleep(0.05)
    other = turn_at(storage, f"tables/{LEDGER.name}")
    held = json.loads(storage.read(TURN) or b"")
    assert held["pid"] == process.pid
    process.kill()
    process.join()
    assert not other.heed(), "no live process holds the turn"
    other.take(timedelta(minutes=1))
    assert json.loads(storage.read(TURN) or b"")["pid"] == os.getpid()
    other.give_back()
    assert storage.read(TURN) is None


def test_waiting_for_a_turn_is_limited(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_retry, "_PATIENCE", 0.2)
    tables = Tables(Storage(root))
    append(tables, "one")
    theirs = Leases(Storage(root), "state/turns", lambda: datetime.now(UTC))
    assert theirs.claim(f"tables.{LEDGER.name}", timedelta(hours=1))
    append(tables, "two")
    assert periods(root) == ["one", "two"]
    assert Storage(root).read(TURN) is not None, "the other process still holds it"


def test_only_frequent_writers_check_for_a_turn(root: str) -> None:
    storage = Watched(root)
    tables = Tables(storage)
    append(Tables(Storage(root)), "seed")
    append(tables, "one")
    assert storage.looks == 0
    append(tables, "two")
    assert storage.looks == 1


def test_a_writer_that_notices_other_writers_checks_for_a_turn(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.lake.tables.handles._OFTEN", 0.0)
    storage = Watched(root)
    tables = Tables(storage)
    append(Tables(Storage(root)), "seed")
    append(tables, "one")
    append(tables, "two")
    assert storage.looks == 0
    append(Tables(Storage(root)), "theirs")
    append(tables, "three")
    assert storage.looks == 1

"""Leases: one of many threads and processes gets a claim, which ends with its process or its time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.leases import Leases
from memory_pipeline_tests.building import PROCESSES

LEASE = timedelta(minutes=5)
KEY = digest("a question")
NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claims(root: str, clock: Clock) -> Leases:
    return Leases(Storage(root), "calls/claims", clock)


def files(root: str) -> list[str]:
    return [entry.path for entry in Storage(root).list("calls")]


@pytest.fixture(scope="module")
def dead_pid() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left_behind(root: str, key: str = KEY, **fields: object) -> None:
    """Write the lease of another process on this host, or with other `fields`."""
    record: dict[str, object] = {
        "host": socket.gethostname(),
        "pid": 1,
        "process": "another",
        "until": (NOW + LEASE).isoformat(),
        "id": "x",
    }
    Storage(root).write(f"calls/claims/{key}.json", json.dumps(record | fields).encode())


@pytest.mark.on_s3(always=True)
def test_a_lease_excludes_others_until_it_is_released(root: str, clock: Clock) -> None:
    mine, theirs = claims(root, clock), claims(root, clock)
    assert mine.claim(KEY, LEASE)
    assert not mine.claim(KEY, LEASE)
    assert not theirs.claim(KEY, LEASE)
    assert theirs.claim(digest("another question"), LEASE)
    mine.release(KEY)
    assert theirs.claim(KEY, LEASE)


def test_no_file_remains_after_all_leases_are_released(root: str, clock: Clock) -> None:
    mine = claims(root, clock)
    mine.claim(KEY, LEASE)
    mine.release(KEY)
    mine.release(KEY)
    assert files(root) == []


def test_a_lease_is_not_flushed_to_disk(root: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(_: int) -> None:
        raise AssertionError("flushed")

    monkeypatch.setattr(os, "fsync", flush)
    mine = claims(root, clock)
    assert mine.claim(KEY, LEASE)
    mine.release(KEY)


@pytest.mark.on_s3(always=True)
def test_leases_of_others_are_not_released(root: str, clock: Clock) -> None:
    mine, theirs = claims(root, clock), claims(root, clock)
    mine.claim(KEY, LEASE)
    theirs.release(KEY)
    assert not theirs.claim(KEY, LEASE)


@pytest.mark.on_s3(always=True)
def test_a_lease_expires_after_its_duration(root: str, clock: Clock) -> None:
    mine, theirs = claims(root, clock), claims(root, clock)
    mine.claim(KEY, LEASE)
    clock.now += LEASE - timedelta(seconds=1)
    assert not theirs.claim(KEY, LEASE)
    clock.now += timedelta(seconds=1)
    assert theirs.claim(KEY, LEASE)


@pytest.mark.on_s3(always=True)
def test_a_lease_taken_over_by_another_is_not_released(root: str, clock: Clock) -> None:
    mine, theirs, third = (claims(root, clock) for _ in range(3))
    mine.claim(KEY, LEASE)
    clock.now += LEASE
    assert theirs.claim(KEY, LEASE)
    mine.release(KEY)
    assert not third.claim(KEY, LEASE)
    theirs.release(KEY)
    assert files(root) == []


@pytest.mark.on_s3(always=True)
def test_an_expired_lease_that_was_not_taken_over_is_released(root: str, clock: Clock) -> None:
    mine = claims(root, clock)
    mine.claim(KEY, LEASE)
    clock.now += LEASE
    mine.release(KEY)
    assert files(root) == []


def test_a_thread_does_not_release_a_lease_taken_over_by_another_thread(root: str, clock: Clock) -> None:
    mine = claims(root, clock)
    mine.claim(KEY, LEASE)
    clock.now += LEASE
    assert mine.claim(KEY, LEASE)
    mine.release(KEY)  # the first holder, too late
    assert not mine.claim(KEY, LEASE)
    mine.release(KEY)
    assert files(root) == []


@pytest.mark.on_s3
def test_a_lease_ends_with_its_process(root: str, clock: Clock, dead_pid: int) -> None:
    left_behind(root, pid=dead_pid)
    assert claims(root, clock).claim(KEY, LEASE)


def test_a_lease_of_a_live_process_lasts_until_it_expires(root: str, clock: Clock) -> None:
    left_behind(root, pid=1)
    assert not claims(root, clock).claim(KEY, LEASE)


def test_a_lease_of_an_earlier_process_with_this_pid_is_stale(root: str, clock: Clock) -> None:
    """In a restarted container, processes have the same ids as before."""
    left_behind(root, pid=os.getpid(), process="another")
    assert claims(root, clock).claim(KEY, LEASE)


def test_leases_of_other_hosts_end_only_by_expiry(root: str, clock: Clock, dead_pid: int) -> None:
    left_behind(root, host="elsewhere", pid=dead_pid)
    assert not claims(root, clock).claim(KEY, LEASE)
    clock.now += LEASE
    assert claims(root, clock).claim(KEY, LEASE)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b'{"until": "tomorrow"}', b'{"until": "2099-01-01T00:00:00", "host": "x", "pid": 1}'],
)
def test_an_unreadable_lease_is_stale(root: str, clock: Clock, content: bytes) -> None:
    """Leases are not flushed, so a power cut may leave an empty file."""
    Storage(root).write(f"calls/claims/{KEY}.json", content)
    assert claims(root, clock).claim(KEY, LEASE)


@pytest.mark.parametrize("pid", [0, -1, 2**80, "x"])
def test_a_lease_of_a_missing_process_is_stale(root: str, clock: Clock, pid: object) -> None:
    left_behind(root, pid=pid)
    assert claims(root, clock).claim(KEY, LEASE)


@pytest.mark.on_s3
def test_threads_exclude_each_other(root: str, clock: Clock) -> None:
    mine, theirs = claims(root, clock), claims(root, clock)
    keys = [digest(number) for number in range(40)]
    gate = threading.Barrier(16)

    def take(number: int) -> list[str]:
        gate.wait()
        return [key for key in keys if (mine if number % 2 else theirs).claim(key, LEASE)]

    with ThreadPoolExecutor(16) as pool:
        won = [key for each in pool.map(take, range(16)) for key in each]
    assert sorted(won) == sorted(keys)


def test_one_of_many_threads_takes_over_each_lease_of_a_dead_process(root: str, clock: Clock, dead_pid: int) -> None:
    keys = [digest(number) for number in range(40)]
    for key in keys:
        left_behind(root, key, pid=dead_pid)
    # Separate objects, so that they share no memory.
    each = [claims(root, clock) for _ in range(16)]
    gate = threading.Barrier(16)

    def take(mine: Leases) -> list[str]:
        gate.wait()
        return [key for key in keys if mine.claim(key, LEASE)]

    with ThreadPoolExecutor(16) as pool:
        won = Counter(key for taken in pool.map(take, each) for key in taken)
    assert won == Counter(keys)


@pytest.mark.on_s3(always=True)
def test_a_takeover_interrupted_by_a_kill_can_be_completed_by_another(root: str, clock: Clock, dead_pid: int) -> None:
    left_behind(root, pid=dead_pid)
    stopped = Leases(_Dying(root), "calls/claims", clock)
    with pytest.raises(OSError, match="killed"):
        stopped.claim(KEY, LEASE)
    assert len(files(root)) == 2
    [right] = [path for path in files(root) if path != f"calls/claims/{KEY}.json"]
    record = json.loads(Storage(root).read(right) or b"")
    Storage(root).write(right, json.dumps(record | {"pid": dead_pid}).encode())
    mine = claims(root, clock)
    assert mine.claim(KEY, LEASE)
    assert not claims(root, clock).claim(KEY, LEASE)
    mine.release(KEY)
    assert files(root) == []


class _Dying(Storage):
    """Fails when it is about to replace a lease."""

    def write(self, path: str, data: bytes) -> None:
        raise OSError("killed")


def _race(root: str, keys: list[str], start: Any, won: Any) -> None:
    mine = Leases(Storage(root), "calls/claims", lambda: NOW)
    start.wait()
    won.put([key for key in keys if mine.claim(key, LEASE)])
    start.wait()  # a dead process holds no lease


def test_only_one_of_several_processes_gets_each_lease(root: str, clock: Clock, dead_pid: int) -> None:
    new = [digest("new", number) for number in range(100)]
    held = [digest("held", number) for number in range(100)]
    for key in held:
        left_behind(root, key, pid=dead_pid)
    keys = [key for pair in zip(new, held, strict=True) for key in pair]
    start, won = PROCESSES.Barrier(4), PROCESSES.SimpleQueue()
    racers = [PROCESSES.Process(target=_race, args=(root, keys, start, won)) for _ in range(4)]
    for racer in racers:
        racer.start()
    counts = Counter(key for _ in racers for key in won.get())
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0] * 4
    assert counts == Counter(keys)
    assert [path for path in files(root) if Path(path).name.count(".") > 1] == []

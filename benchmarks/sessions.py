"""Session state: operations a second in one process, milliseconds of a read, and compare-and-sets of eight processes.

Last, what a grant adds to a search: its check, and the log of access.

The database is a file of SQLite in the lake, or the one that ``MEMORY_PIPELINE_SESSIONS`` names. A write is committed
when it returns. *the driver alone* runs the same two statements without this package.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.generator import WORKSPACE, agent_name, busy, query
from benchmarks.measure import Table, milliseconds, p50, progress, quantile
from memory_pipeline import Memory
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import VersionConflictError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from benchmarks.measure import Cell

_KEYS, _RUNS, _PROCESSES = 1_000, 5, 8
_VALUE = {"step": 3, "text": "the customer asks for the invoice of January, again"}


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    root, count = str(folder / "lake"), 2_000 if quick else 10_000
    session = Memory(root, user_id="anna").session("s1")

    def pair(number: int) -> None:
        session.store(f"k{number % _KEYS}", _VALUE)
        session.retrieve(f"k{number * 7 % _KEYS}")

    where = "the database that is set" if os.environ.get("MEMORY_PIPELINE_SESSIONS") else "SQLite"
    rows: list[dict[str, Cell]] = [
        _rate("half reads, half committed writes", pair, count),
        _rate("the driver alone, SQLite", _driver(folder / "driver.db"), count),
    ]
    progress("operations are measured")
    reads = [milliseconds(lambda number: session.retrieve(f"k{number % _KEYS}"), number) for number in range(count)]
    rows_of_reads: list[dict[str, Cell]] = [
        {"reads": count, "p50 ms": p50(reads), "p99 ms": quantile(reads, 0.99), "max ms": max(reads)}
    ]
    return [
        Table("sessions", f"two operations, {count:,} times, {_RUNS} runs; {where}", rows),
        Table("sessions, reads", "a read of a warm session", rows_of_reads),
        Table(
            "sessions, compare-and-set", "processes that count up in one pool", [_race(root, 100 if quick else 1_000)]
        ),
        _shared(str(folder / "shared"), 300 if quick else 2_000),
    ]


def _shared(root: str, count: int) -> Table:
    """Search one agent's memory by turns as this agent, and as another one under a grant among twenty others."""
    lake = Lake(root)
    writer = MemoryWriter.open(root, workspace_id=WORKSPACE, agent_id=agent_name(0))
    for one in busy(1, 60, 1_800):
        writer.write(one)
    list(run_all(lake, default_models(), datetime.now(UTC)))
    own = MemoryReader.open(root, workspace_id=WORKSPACE, agent_id=agent_name(0))
    for number in range(20):
        writer.grant(f"other {number}")
    writer.grant("asking")
    shared = MemoryReader.open(root, workspace_id=WORKSPACE, agent_id=agent_name(0), on_behalf_of="asking")
    questions = [query(random.Random(number)) for number in range(count)]
    ways = {"own memory": own, "under a grant, logged": shared}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count):
        for name, reader in ways.items() if number % 2 else reversed(ways.items()):
            spent[name].append(milliseconds(partial(_search, reader, questions), number))
    differences = [after - before for before, after in zip(*spent.values(), strict=True)]
    rows: list[dict[str, Cell]] = [
        {"way": name, "searches": count, "p50 ms": p50(taken), "p99 ms": quantile(taken, 0.99)}
        for name, taken in spent.items()
    ]
    added = p50(differences) / p50(spent["own memory"])
    return Table("shared memory, search", f"1,800 messages, 21 grants; the median pair differs by {added:+.1%}", rows)


def _search(reader: MemoryReader, questions: list[str], number: int) -> None:
    reader.search_memory(Grain.WORKING, 0, 36_525, 10, questions[number])


def _rate(what: str, action: Callable[[int], object], count: int) -> dict[str, Cell]:
    rates, busy = [], []
    for _ in range(_RUNS):
        started, started_cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            action(number)
        rates.append(2 * count / (time.perf_counter() - started))
        busy.append(500_000 * (time.process_time() - started_cpu) / count)
    return {
        "what": what,
        "median operations/s": p50(rates),
        "best": max(rates),
        "worst": min(rates),
        "CPU µs an operation": p50(busy),
    }


def _driver(path: Path) -> Callable[[int], object]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT)")

    def pair(number: int) -> None:
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (f"k{number % _KEYS}", str(_VALUE)))
        connection.execute("SELECT value FROM entries WHERE key = ?", (f"k{number * 7 % _KEYS}",)).fetchone()

    return pair


def _race(root: str, rounds: int) -> dict[str, Cell]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(_PROCESSES + 1)
    processes = [context.Process(target=_count_up, args=(root, rounds, barrier)) for _ in range(_PROCESSES)]
    for process in processes:
        process.start()
    barrier.wait()
    started = time.perf_counter()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - started
    total, found = _PROCESSES * rounds, Memory(root).pool("board").read("counter")
    return {
        "processes": _PROCESSES,
        "compare-and-sets": total,
        "lost": total - found,
        "seconds": seconds,
        "a second": total / seconds,
    }


def _count_up(root: str, rounds: int, barrier: Barrier) -> None:
    pool = Memory(root).pool("board")
    barrier.wait()
    for _ in range(rounds):
        while True:
            values, version = pool.snapshot()
            try:
                pool.write("counter", values.get("counter", 0) + 1, expected_version=version)
                break
            except VersionConflictError:
                continue

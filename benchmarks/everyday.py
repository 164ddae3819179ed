"""What a user meets in the first week: the cost of writes, first searches, runs and disk, beside the goals.

Three lakes of one user with short messages (about 60 characters):

- *pending*: messages added one by one, ten to a conversation, and never processed, at three sizes.
- *processed*: 500 conversations of 20 messages (``--quick``: 100), ingested and processed in one run.
- *tiny*: 150 messages of 30 agents, each with five messages in one hour.

A row is one action. Seconds are CPU seconds of all threads. Rows with "process" measure a new process, with its
imports. The last column of the table of growth is the exponent that fits the three sizes: 0 if the cost does not grow,
1 if it grows as the number of entries does. SQLite is measured beside the writes: a row, committed with
``synchronous=FULL``, and a search of FTS5. `benchmarks/peers.py` compares searches with LanceDB, Chroma and mem0.
"""

from __future__ import annotations

import math
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.generator import START, query, text
from benchmarks.measure import Table, bytes_below, progress, versions
from memory_pipeline import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Cell

_SIZES, _QUICK_SIZES = (100, 1_000, 10_000), (50, 100, 200)
_TALKS, _EACH = 500, 20
#: A list that a chat sends again at each turn.
_LISTED = 800
_LATER = START + timedelta(days=400)
_REPEATED = 20

_FIRST_SEARCH = """
import sys
from datetime import datetime
from memory_pipeline import Memory
found = Memory(sys.argv[1], user_id="anna").search(sys.argv[2], now=datetime.fromisoformat(sys.argv[3]))
assert found
"""


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    sizes = _QUICK_SIZES if quick else _SIZES
    growth = Table(
        "Pending entries of one user, never processed", "CPU milliseconds; the exponent fits the three sizes"
    )
    by_size = [_pending(folder / f"pending-{size}", size) for size in sizes]
    for what, goal in _GOALS.items():
        costs = [found[what] for found in by_size]
        named: dict[str, Cell] = {f"{size:,}": cost for size, cost in zip(sizes, costs, strict=True)}
        growth.rows.append({"action": what, **named, "goal": goal, "exponent": _exponent(sizes, costs)})
    growth.rows += [
        {"action": what, **dict.fromkeys(map(_named, sizes), cost), "goal": "", "exponent": 0.0}
        for what, cost in _sqlite(folder / "sqlite.db", sizes[0]).items()
    ]
    runs = Table("A lake in daily use", "CPU seconds, megabytes or numbers")
    runs.rows += _processed(folder / "processed", _TALKS // 5 if quick else _TALKS)
    runs.rows += _tiny(folder / "tiny")
    return [growth, runs]


def _named(size: int) -> str:
    return f"{size:,}"


_GOALS = {
    "add": "3",
    "add to a known conversation": "3",
    "Memory(…) and add": "15",
    "add a list of 800 stored messages, and one": "15",
    "first search of a process": "500, 2,000",
    "search after a write": "",
}


def _cpu(action: Callable[[], object], times: int = 1) -> float:
    """Return the CPU milliseconds of one call."""
    started = time.process_time()
    for _ in range(times):
        action()
    return 1_000 * (time.process_time() - started) / times


def _process(*command: str) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _pending(root: Path, size: int) -> dict[str, float]:
    source, memory = random.Random(size), Memory(root, user_id="anna")
    for number in range(size):
        memory.add(text(source), conversation_id=f"talk {number // 10}", now=START + timedelta(minutes=37 * number))
    progress(f"{size:,} messages are pending")
    found = {
        "add": _cpu(lambda: memory.add(text(source), now=_LATER), _REPEATED),
        "add to a known conversation": _cpu(
            lambda: memory.add(text(source), conversation_id="talk 0", now=_LATER), _REPEATED
        ),
        "Memory(…) and add": _cpu(lambda: Memory(root, user_id="anna").add(text(source), now=_LATER), _REPEATED),
    }
    asked = (sys.executable, "-c", _FIRST_SEARCH, str(root), query(source), _LATER.isoformat())
    found["first search of a process"] = 1_000 * _process(*asked)
    listed: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[at % 2], "content": f"{text(source)} ({at})"} for at in range(_LISTED)
    ]
    memory.add(listed, conversation_id="long", now=_LATER)

    def turn() -> None:
        listed.append({"role": "user", "content": text(source)})
        memory.add(listed, conversation_id="long", now=_LATER)

    turn()
    found["add a list of 800 stored messages, and one"] = _cpu(turn, 3)
    memory.search(query(source), now=_LATER)
    memory.add(text(source), now=_LATER)
    found["search after a write"] = _cpu(lambda: memory.search(query(source), now=_LATER))
    return found


def _sqlite(file: Path, size: int) -> dict[str, float]:
    source, database = random.Random(2), sqlite3.connect(file)
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE VIRTUAL TABLE said USING fts5(content)")

    def add() -> None:
        with database:
            database.execute("INSERT INTO said VALUES (?)", (text(source),))

    for _ in range(size):
        add()
    words = " OR ".join(f'"{word}"' for word in query(source).rstrip("?").split())
    found = {
        "SQLite: a committed row": _cpu(add, _REPEATED),
        "SQLite: a search of FTS5": _cpu(
            lambda: database.execute("SELECT content FROM said(?) ORDER BY rank LIMIT 10", (words,)).fetchall(), 5
        ),
    }
    database.close()
    return found


def _processed(root: Path, talks: int) -> list[dict[str, Cell]]:
    source, memory, written = random.Random(3), Memory(root, user_id="anna"), 0
    for number in range(talks):
        at = START + timedelta(days=number // 5, hours=9 + 2 * (number % 5))
        messages = [
            {
                "role": ("user", "assistant")[turn % 2],
                "content": text(source),
                "timestamp": (at + timedelta(minutes=turn)).isoformat(),
            }
            for turn in range(_EACH)
        ]
        written += sum(len(message["content"]) for message in messages)
        memory.add(messages, conversation_id=f"talk {number}", now=at + timedelta(hours=1))
    progress(f"{talks * _EACH:,} messages are written")
    command = str(Path(sys.executable).with_name("memory-pipeline"))
    now = _LATER.isoformat()
    rows: list[dict[str, Cell]] = []

    def row(action: str, cost: float, goal: str) -> None:
        rows.append({"action": action, "now": cost, "goal": goal})

    steps = (
        sys.executable,
        "-c",
        "import sys; from memory_pipeline import Memory; Memory(sys.argv[1]).run()",
        str(root),
    )
    row(f"process: run of {talks * _EACH:,} messages", _process(*steps), "15")
    row("process: first search", _process(sys.executable, "-c", _FIRST_SEARCH, str(root), query(source), now), "0.5")
    row(
        "process: the next first search",
        _process(sys.executable, "-c", _FIRST_SEARCH, str(root), query(source), now),
        "0.5",
    )
    _process(command, "run", "--root", str(root))  # builds the marts, which the library does not
    row("process: run with nothing new", _process(command, "run", "--root", str(root)), "1")
    row("process: check", _process(command, "check", "--root", str(root)), "4")
    before, files = versions(memory.lake), _files(root)
    late = {
        "role": "user",
        "content": "I moved to Porto.",
        "timestamp": (START + timedelta(days=9, hours=9)).isoformat(),
    }
    memory.add([late], conversation_id="talk 45", now=_LATER)
    row("process: run after a late message", _process(*steps), "2")
    after = versions(memory.lake)
    row("its commits to tables of records", float(sum(after.values()) - sum(before.values())), "25")
    row("its files", float(_files(root) - files), "")
    row("bytes of the lake for each byte of text", bytes_below(root) / written, "15")
    return rows


def _tiny(root: Path) -> list[dict[str, Cell]]:
    source = random.Random(4)
    for agent in range(30):
        memory = Memory(root, agent_id=f"agent {agent}")
        for _ in range(5):
            memory.add(text(source), now=START + timedelta(hours=9))
    Memory(root).run(now=_LATER)
    found: list[dict[str, Cell]] = [
        {"action": "150 messages of 30 agents: files", "now": float(_files(root)), "goal": "300"},
        {"action": "150 messages of 30 agents: megabytes", "now": bytes_below(root) / 1e6, "goal": "3"},
    ]
    shutil.rmtree(root)
    return found


def _files(root: Path) -> int:
    return sum(path.is_file() for path in root.rglob("*"))


def _exponent(sizes: tuple[int, ...], costs: list[float]) -> float:
    """Return the slope of the least-squares line through the logarithms."""
    across, up = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
    return round(slope / sum((x - middle) ** 2 for x in across), 2)

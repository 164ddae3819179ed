"""What memory adds to a chat: seconds before and after each call of a wrapped client.

One user has 6,000 facts (``--quick``: 600), written over three months and processed. A chat of 20 turns runs through
:meth:`memory_pipeline.Memory.wrap`; the model is a function that answers at once. *context* and *add* are the methods
that the wrapper calls, each in a memory that was opened once. The first call of a new object reads the index.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.generator import START, query, text
from benchmarks.measure import Table, p50, progress, quantile
from memory_pipeline import Memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.measure import Cell

_DAYS, _TURNS, _CALLS = 90, 20, 50


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`."""
    root, source = str(folder / "lake"), random.Random(1)
    memory, written, day = Memory(root, user_id="anna"), 0, 0
    while written < (600 if quick else 6_000):
        at = START + timedelta(days=day % _DAYS, hours=day // _DAYS)
        messages = [
            {"role": "user", "content": text(source), "timestamp": (at + timedelta(minutes=n)).isoformat()}
            for n in range(50)
        ]
        memory.add(messages, now=at + timedelta(hours=1))
        written, day = written + len(messages), day + 1
    progress(f"{written:,} messages are written")
    now = START + timedelta(days=_DAYS + 1)
    memory.run(now=now)

    queries = [query(source) for _ in range(_CALLS)]
    rows: list[dict[str, Cell]] = []

    def measure(what: str, action: Callable[[str], object], count: int = _CALLS) -> None:
        seconds = []
        for one in queries[:count]:
            started = time.perf_counter()
            action(one)
            seconds.append(1_000 * (time.perf_counter() - started))
        rows.append({"call": what, "calls": count, "p50 ms": p50(seconds), "p95 ms": quantile(seconds, 0.95)})

    fresh = Memory(root, user_id="anna")
    measure("context, first", fresh.context, 1)
    measure("context", fresh.context)
    talk = fresh.add("Hello.").conversation_id
    measure("add, one turn", lambda one: fresh.add(one, conversation_id=talk))
    measure("search", fresh.search)
    return [
        Table("chat", f"a user with {written:,} messages", rows),
        Table("chat, wrapped", f"a chat of {_TURNS} turns", [_wrapped(root, queries)]),
    ]


def _wrapped(root: str, queries: list[str]) -> dict[str, Cell]:
    """Run a chat; return the milliseconds before and after the calls."""
    called: list[float] = []

    def model(**_: Any) -> Any:
        called.append(time.perf_counter())
        return SimpleNamespace(choices=[SimpleNamespace(message={"role": "assistant", "content": "I see."})])

    chat = Memory(root, user_id="anna").wrap(model)
    messages: list[Any] = []
    before, after = [], []
    for one in queries[:_TURNS]:
        messages.append({"role": "user", "content": one})
        started = time.perf_counter()
        messages.append(chat(messages=messages).choices[0].message)
        before.append(1_000 * (called[-1] - started))
        after.append(1_000 * (time.perf_counter() - called[-1]))
    return {
        "before, first": before[0],
        "before, p50": p50(before[1:]),
        "before, p95": quantile(before[1:], 0.95),
        "after, p50": p50(after),
        "after, p95": quantile(after, 0.95),
    }

"""Latency of searches next to writers, runs and compaction on the same lake and machine.

A reader in a separate process reads the memory of one agent of 20. At a fixed pace it alternates ``search_memory`` and
``recall``: first alone (*idle*), then next to three busy processes (*load*):

- a writer adds a conversation of 6 messages to an agent five times a second, in turns, the reader's agent included;
- a runner computes pending hours, then the summaries that follow, in a loop;
- a keeper compacts: it purges tables in turns and rewrites the index of an agent.

The same runs on S3, if ``moto`` is installed. Its server is a separate Python process with latencies of milliseconds,
so figures differ from a real store's.

*processor* is the CPU time of the querying thread, which other processes hardly affect: the extra cost of a query under
load. The rest of the wall time is waiting for a core, the disk or the store. *changed* counts queries after a change of
the agent's table, which make the reader read rows.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.generator import START, WORKSPACE, agent_name, conversation, query
from benchmarks.measure import Table, p50, progress, quantile
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from benchmarks.measure import Cell

_AGENTS = 20
#: Hours with messages of the reader's agent and of each other agent, and messages per hour.
_OWN, _OTHERS = (60, 45), (6, 20)
_PACE, _WARM_UP = 0.05, 20
_SCOPE = Scope(WORKSPACE, agent_name(0))
#: A time at which all periods have closed.
_NOW = START + timedelta(days=400)


class _Asked(NamedTuple):
    """A query: its kind, wall and CPU milliseconds, and whether the table had changed before."""

    what: str
    clock: float
    processor: float
    has_changed: bool


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with a lake below `folder`, and with one on S3."""
    table = Table(
        "latency under load",
        f"milliseconds; {_AGENTS} agents, a question every {_PACE * 1000:.0f} ms; times: to idle in the same run",
    )
    questions = 200 if quick else 1_000
    table.rows += _measured("a folder", str(folder / "lake"), questions)
    with ExitStack() as stack, suppress(ImportError):
        from memory_pipeline_tests.s3_server import S3Server

        server = stack.enter_context(S3Server())
        stack.enter_context(server.in_environment())
        table.rows += _measured("S3 (moto)", server.new_root(), questions // 4)
    return [table]


def _measured(place: str, root: str, questions: int) -> list[dict[str, Cell]]:
    _fill(root)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stop = context.Event()
    reader = context.Process(target=_read, args=(root, theirs))
    others = [context.Process(target=work, args=(root, stop)) for work in (_write, _make, _keep)]
    started: list[Any] = []
    try:
        reader.start()
        started.append(reader)
        found = {}
        for phase in ("idle", "load"):
            if phase == "load":
                for process in others:
                    process.start()
                    started.append(process)
                time.sleep(10)  # imports
            progress(f"{place}: {questions} questions, {phase}")
            ours.send(questions)
            found[phase] = ours.recv()
        ours.send(0)
    finally:
        stop.set()
        for process in started:
            process.join(60)
            process.kill()
    return [row for what in ("search_memories", "recall") for row in _rows(place, what, found)]


def _rows(place: str, what: str, found: dict[str, list[_Asked]]) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    idle = 0.0
    for phase, asked in found.items():
        own = [each for each in asked if each.what == what]
        clock, processor = [each.clock for each in own], [each.processor for each in own]
        idle = idle or quantile(clock, 0.99)
        row: dict[str, Cell] = {"lake": place, "question": what, "phase": phase, "p50": p50(clock)}
        row |= {"p99": quantile(clock, 0.99), "times": quantile(clock, 0.99) / idle, "longest": max(clock)}
        row |= {"p50, processor": p50(processor), "p99, processor": quantile(processor, 0.99)}
        row["changed"] = sum(each.has_changed for each in own)
        rows.append(row)
    return rows


# --- processes -------------------------------------------------------------------------------------------------------


def _read(root: str, commands: Connection) -> None:
    """Run the requested number of queries and send their times, until zero are requested."""
    reader = MemoryReader.open(root, workspace_id=_SCOPE.workspace_id, agent_id=_SCOPE.agent_id)
    index, source = Lake(root).index, random.Random("load")
    ways: dict[str, Callable[[str], object]] = {
        "search_memories": lambda text: reader.search_memory("working", 0, 500, 10, text, now=_NOW),
        "recall": lambda text: reader.recall(text, now=_NOW),
    }
    for number in range(_WARM_UP):
        for way in ways.values():
            way(query(random.Random(number)))
    while count := commands.recv():
        asked, version = [], index.version(_SCOPE)
        for number in range(count):
            name = list(ways)[number % len(ways)]
            text, before = query(source), version
            version = index.version(_SCOPE)
            started, worked = time.perf_counter(), time.thread_time()
            ways[name](text)
            took, busy = time.perf_counter() - started, time.thread_time() - worked
            asked.append(_Asked(name, took * 1000, busy * 1000, version != before))
            time.sleep(max(0.0, _PACE - took))
        commands.send(asked)


def _write(root: str, stop: Any) -> None:
    """Write conversations for the agents in turns."""
    lake, source, number = Lake(root), random.Random("writer"), 0
    admission = Admission(START.date(), _NOW, lake.calendar)
    while not stop.is_set():
        hour = START + timedelta(hours=_OWN[0] + number // 40)
        talk = conversation(source, agent_name(number % _AGENTS), hour, 6)
        talk["conversation_id"] = f"written {number}"
        lake.journal.append(read_messages(talk, admission).messages)
        number += 1
        time.sleep(0.2)


def _make(root: str, stop: Any) -> None:
    """Compute pending periods, grain by grain, in a loop."""
    lake, models = Lake(root), default_models()
    while not stop.is_set():
        for grain in Grain:
            with suppress(CommitConflictError):
                for _ in materialize(lake, models, grain, grain_status(lake, grain, START.date(), _NOW).pending):
                    if stop.is_set():
                        return


def _keep(root: str, stop: Any) -> None:
    """Compact tables and index in turns."""
    lake, number = Lake(root), 0
    specs = list(TABLES.values())
    while not stop.is_set():
        with suppress(CommitConflictError):
            lake.tables.purge(specs[number % len(specs)])
            lake.index.purge([Scope(WORKSPACE, agent_name(number % _AGENTS))])
        number += 1
        time.sleep(1)


def _fill(root: str) -> None:
    """Build a lake with memory of all agents, most of it of the reader's."""
    lake, source = Lake(root), random.Random("filled")
    lake.ensure()
    admission = Admission(START.date(), _NOW, lake.calendar)
    for agent in range(_AGENTS):
        hours, messages = _OWN if agent == 0 else _OTHERS
        for hour in range(hours):
            talk = conversation(source, agent_name(agent), START + timedelta(hours=hour), messages)
            lake.journal.append(read_messages(talk, admission).messages)
    models = default_models()
    for grain in Grain:
        for _ in materialize(lake, models, grain, grain_status(lake, grain, START.date(), _NOW).pending):
            pass
    progress(f"{lake.index.count(_SCOPE, Grain.WORKING):,} facts of the reader's agent, process {os.getpid()}")

"""Cost and limits of one lake: its goals, and the figures of this version.

Each line is measured in a process of its own, after a small lake was computed in it, so that imports do not count. CPU
time does not depend on other work on the machine; wall time does. The peak is that of the process, including about
330 MB of libraries and models.

- *An hour*: every agent has three messages; messages, facts, graph, memories and index are written. Commits are those
  of the Delta and Lance tables, files the new ones of tables and projections.
- *Again*: the same hour in a new process, with nothing to write. *One more speaker*: in a warm process.
- *With history*: the same in a lake with a year of memory (:mod:`benchmarks.history`), which also serves the reader and
  the erasure.
- *Log of three years*: tables of messages and of facts with a partition for each of 26,280 hours.
- *S3*: requests between the process and moto's server, counted by a proxy.

    python -m benchmarks scale                                             # 100, 1,000, 10,000 agents; history: 1,000
    python -m benchmarks.scale --agents 1000 10000 --history-agents 10000 --s3-agents
    python -m benchmarks.scale --agents 100000 --only hour
    python -m benchmarks.history FOLDER --agents 10000                     # takes long: keep it, and measure on copies
    python -m benchmarks.scale --history FOLDER
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.generator import START, WORKSPACE, agent_name, conversation, query
from benchmarks.history import EACH, NOW, findings, grow, said
from benchmarks.measure import Table, memory, milliseconds, p50, progress, versions
from memory_pipeline.domain.periods import Grain, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from benchmarks.measure import Cell
    from memory_pipeline_tests.fault_proxy import FaultProxy

#: The measured hour and day are after the year of the history.
_HOUR = NOW + timedelta(hours=9)
_PARTS = ("hour", "users", "history", "log", "scope", "s3")
_THREE_YEARS = 26_280
#: Hours per commit of the long log.
_HOURS_A_COMMIT = 240
_LARGE_SCOPE = 50_000
_READERS, _LOG_COMMITS = 20, 9
_S3_RUNS = ("hour", "again", "one more", "day")

Measured = dict[str, float]


def run(
    folder: Path,
    *,
    quick: bool,
    agents: Sequence[int] = (),
    history_agents: int = 0,
    history: str | None = None,
    s3_agents: Sequence[int] | None = None,
    only: Sequence[str] = (),
) -> list[Table]:
    """Measure, with lakes below `folder`.

    Args:
        folder: for lakes.
        quick: fewer agents, and a log of 1,000 hours.
        agents: numbers of agents that speak in an hour, in an empty lake.
        history_agents: number of agents of the history.
        history: a lake of :mod:`benchmarks.history`, which is copied; else a new one is written.
        s3_agents: numbers of agents on S3.
        only: some of hour, users, history, log, scope and s3; all by default.
    """
    goals = Table("scale", "each line in a process of its own; CPU and peak are of the process")
    parts = only or _PARTS
    for number in (agents or ((10, 40) if quick else (100, 1_000, 10_000))) if "hour" in parts else ():
        goals.rows += _hours(str(folder / f"empty-{number}"), number, f"{number:,} agents")
    if "users" in parts:
        number = max(agents or (40 if quick else 10_000,))
        pending = _child("pending", str(folder / "pending"), number)
        goals.rows += [
            _row(f"{number:,} users pending", name, pending, goal)
            for name, goal in (("write: CPU ms", "5"), ("open, first search: ms", "150"), ("next search: ms", ""))
        ]
        users = _hours(str(folder / "users"), number, f"{number:,} users of one agent", "users")
        goals.rows += [{**row, "measured": str(row["measured"]).replace("an agent", "a user")} for row in users]
    if "scope" in parts:
        messages = _LARGE_SCOPE // 25 if quick else _LARGE_SCOPE
        found = _child("scope", str(folder / "scope"), messages)
        where = f"{messages:,} messages of one scope"
        goals.rows += [_row(where, "peak MB", found, "1,000"), _row(where, "CPU s", found)]
    if "log" in parts:
        hours = 1_000 if quick else _THREE_YEARS
        found = _child("log", str(folder / "log"), hours)
        goals.rows += [_row(f"log of {hours:,} hours", name, found, "150") for name in found]
    if "history" in parts:
        goals.rows += _with_history(folder, history, history_agents or (20 if quick else 1_000))
    tables = [goals]
    if "s3" in parts:
        remote = (1, 10) if s3_agents is None else s3_agents
        tables.append(Table("scale, S3", "requests of one run", [row for number in remote for row in _on_s3(number)]))
    return tables


def _row(where: str, name: str, found: Measured, goal: str = "") -> dict[str, Cell]:
    return {"what": where, "measured": name, "figure": found[name], "at most": goal}


def _hours(root: str, agents: int, where: str, first: str = "hour") -> Iterator[dict[str, Cell]]:
    """Measure an hour of many agents, the same hour again, with one more speaker, and the summaries of the day."""
    found = {name: _child(name, root, agents) for name in (first, "again", "one more", "day")}
    hour = found[first]
    hour["CPU ms an agent"] = hour["CPU s"] * 1_000 / agents
    goals = {"CPU ms an agent": "8", "peak MB": "1,000", "wall s": "", "commits": "", "files": ""}
    yield from (_row(f"{where}: an hour", name, hour, goal) for name, goal in goals.items())
    yield from (_row(f"{where}: again", name, found["again"]) for name in ("CPU s", "peak MB", "commits"))
    yield _row(f"{where}: one more speaker", "wall s", found["one more"], "1")
    yield from (_row(f"{where}: day's summaries", name, found["day"]) for name in ("CPU s", "peak MB", "commits"))


def _with_history(folder: Path, history: str | None, agents: int) -> Iterator[dict[str, Cell]]:
    root = str(folder / "history")
    if history is None:
        grow(Lake(root), agents)
    else:
        progress(f"copying {history}")
        shutil.copytree(history, root)
        agents = len(Lake(root).memory_rows.scan(["agent_id"])["agent_id"].unique())
    where = f"{agents:,} agents with history"
    valid = _child("valid", root, agents)
    yield from (_row(where, name, valid, "0") for name in valid)
    yield _row(where, "open, first search: ms", _child("reader", root, agents), "150")
    yield from _hours(root, agents, where)
    yield _row(where, "erase one agent: wall s", _child("erase", root, agents), "30")


def _on_s3(agents: int) -> Iterator[dict[str, Cell]]:
    """Measure the runs of a number of agents on a new server. A proxy for each run counts only its requests."""
    from memory_pipeline_tests.fault_proxy import FaultProxy
    from memory_pipeline_tests.s3_server import S3Server

    with S3Server() as server:
        root = server.new_root()
        for name in _S3_RUNS:
            if name == "hour":
                with server.in_environment():
                    _speak(Lake(root), range(agents))
            with FaultProxy(server.url) as proxy, server.in_environment(proxy.url):
                _child(f"s3 {name}", root, agents)
                yield {"agents": agents, "run": name, "requests": proxy.requests, **_counted(proxy)}


def _counted(proxy: FaultProxy) -> dict[str, Cell]:
    return {method: int(proxy.counts[method]) for method in ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")}


# In a process of its own.


def _child(name: str, root: str, number: int) -> Measured:
    """Measure in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--child", name, root, str(number)],
        check=True,
        stdout=subprocess.PIPE,
    )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    progress(f"{name}, {number:,}: {', '.join(f'{key} {value:,.1f}' for key, value in measured.items())}")
    return measured


def _speak(
    lake: Lake, agents: Sequence[int], messages: int = EACH, at: datetime = _HOUR, *, are_users: bool = False
) -> None:
    lake.ensure()
    for agent in agents:
        lake.journal.append(said(agent, at, messages, lake if are_users else None))


def _compute(lake: Lake, grain: Grain, at: datetime = _HOUR) -> None:
    list(materialize(lake, _models(), grain, [lake.calendar.ancestor(hour_of(at), grain)]))


#: Models keep caches of words, which a worker fills once.
_models = cache(default_models)


def _warm_up() -> None:
    """Exclude late imports and caches of words."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(folder)
        _speak(lake, range(2))
        _compute(lake, Grain.WORKING)
        _compute(lake, Grain.DAILY)
    gc.collect()


@contextmanager
def _measuring(root: str) -> Iterator[Measured]:
    """Measure the block: seconds, peak memory, commits and new files."""
    found: Measured = {}
    before = _written(root)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    started, cpu = time.perf_counter(), _cpu()
    yield found
    found |= {"wall s": time.perf_counter() - started, "CPU s": _cpu() - cpu, "peak MB": memory()[1]}
    found |= {name: number - before[name] for name, number in _written(root).items()}


def _written(root: str) -> dict[str, int]:
    """Return the number of commits to tables and projections, and of their files."""
    names = [name for part in ("tables", "projections") for _, _, names in os.walk(Path(root, part)) for name in names]
    of_lance = sum(name.endswith(".manifest") for name in names)
    return {"commits": sum(versions(Lake(root)).values()) + of_lance, "files": len(names)}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _hour(root: str, agents: int) -> Measured:
    _speak(Lake(root), range(agents))
    return _again(root, agents)


def _users(root: str, users: int) -> Measured:
    _speak(Lake(root), range(users), are_users=True)
    return _again(root, users)


def _pending(root: str, users: int) -> Measured:
    """Measure writers and readers of users in a warm process; nothing is processed."""
    _speak(Lake(root), range(users), are_users=True)
    writes, firsts, nexts = [], [], []
    for number in range(_READERS):
        ids: dict[str, Any] = {"workspace_id": WORKSPACE, "agent_id": "agent", "user_id": agent_name(number)}
        writer = MemoryWriter.open(root, **ids)
        talk = conversation(random.Random(number), "agent", _HOUR + timedelta(hours=1), EACH)
        cpu = _cpu()
        writer.write(talk, now=_HOUR + timedelta(hours=2))
        writes.append((_cpu() - cpu) * 1_000)
        started = time.perf_counter()
        reader = MemoryReader.open(root, **ids)
        asked = [time.perf_counter()]
        for turn in range(2):
            reader.search_memory(query=query(random.Random(turn)), now=_HOUR + timedelta(hours=2))
            asked.append(time.perf_counter())
        firsts.append((asked[1] - started) * 1_000)
        nexts.append((asked[2] - asked[1]) * 1_000)
    return {"write: CPU ms": p50(writes), "open, first search: ms": p50(firsts), "next search: ms": p50(nexts)}


def _again(root: str, _: int) -> Measured:
    with _measuring(root) as found:
        _compute(Lake(root), Grain.WORKING)
    return found


def _one_more(root: str, agents: int) -> Measured:
    lake = Lake(root)
    _compute(lake, Grain.WORKING)
    _speak(lake, [agents + 1])
    with _measuring(root) as found:
        _compute(lake, Grain.WORKING)
    return found


def _day(root: str, _: int) -> Measured:
    with _measuring(root) as found:
        _compute(Lake(root), Grain.DAILY)
    return found


def _on_s3_run(name: str) -> Callable[[str, int], Measured]:
    def compute(root: str, agents: int) -> Measured:
        if name == "one more":
            _speak(Lake(root), [agents + 1])
        _compute(Lake(root), Grain.DAILY if name == "day" else Grain.WORKING)
        return {}

    return compute


def _scope(root: str, messages: int) -> Measured:
    _speak(Lake(root), [0], messages)
    return _again(root, 1)


def _log(root: str, hours: int) -> Measured:
    """Return the milliseconds to open a table with a partition for each hour, and to commit another hour."""
    sample = Lake(f"{root}-sample")
    _speak(sample, [0], 1)
    _compute(sample, Grain.WORKING)
    found: Measured = {}
    for spec in (MESSAGES, FACTS):
        rows, lake = sample.tables.read(spec), Lake(root)
        lake.ensure()
        keys = [f"{START + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(hours + _LOG_COMMITS)]
        progress(f"{hours:,} hours of {spec.name}")
        for start in range(0, hours, _HOURS_A_COMMIT):
            some = keys[start : min(start + _HOURS_A_COMMIT, hours)]
            lake.tables.replace(spec, some, pa.concat_tables([_in_hour(rows, key) for key in some]))
        times = []
        for key in keys[hours:]:
            row, started = _in_hour(rows, key), time.perf_counter()
            Lake(root).tables.replace(spec, [key], row)
            times.append((time.perf_counter() - started) * 1_000)
        found[f"{spec.name}: ms"] = p50(times)
    return found


def _in_hour(rows: pa.Table, key: str) -> pa.Table:
    place = rows.schema.get_field_index("period")
    return rows.set_column(place, rows.schema.field(place), pa.array([key] * rows.num_rows, pa.string()))


def _valid(root: str, _: int) -> Measured:
    """Return the failed checks, and the commits of a run of an hour of the history."""
    lake = Lake(root)
    failed = findings(lake)
    if failed:
        progress("; ".join(failed))
    hours = lake.tables.keys(MESSAGES)
    old = Period(Grain.WORKING, hours[len(hours) // 2])
    with _measuring(root) as found:
        list(materialize(lake, _models(), Grain.WORKING, [old]))
    return {"failed checks": len(failed), "commits of an old hour": found["commits"]}


def _reader(root: str, agents: int) -> Measured:
    """Return the milliseconds to open a reader and to search once, for different agents in a warm process."""
    source = random.Random(1)

    def search(agent: int) -> object:
        reader = MemoryReader.open(root, workspace_id=WORKSPACE, agent_id=agent_name(agent))
        return reader.search_memory(query=query(source), now=NOW)

    search(0)
    times = [milliseconds(search, 1 + number % (agents - 1)) for number in range(min(_READERS, agents - 1))]
    return {"open, first search: ms": p50(times)}


def _erase(root: str, agents: int) -> Measured:
    scope = Scope(WORKSPACE, agent_name(agents // 2))
    with _measuring(root) as found:
        forget(Lake(root), _models(), Subject.agent(scope), NOW)
    left = Lake(root).memory_rows.read([scope]).num_rows
    return {"erase one agent: wall s": found["wall s"], "left": left}


_MEASUREMENTS: dict[str, Callable[[str, int], Measured]] = {
    "hour": _hour,
    "users": _users,
    "pending": _pending,
    "again": _again,
    "one more": _one_more,
    "day": _day,
    "scope": _scope,
    "log": _log,
    "valid": _valid,
    "reader": _reader,
    "erase": _erase,
    **{f"s3 {name}": _on_s3_run(name) for name in _S3_RUNS},
}


def main() -> None:
    """Measure with the given numbers of agents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="The cost and limits of one lake.")
    parser.add_argument("--agents", nargs="*", type=int, default=[], metavar="N", help="agents in an empty lake")
    parser.add_argument("--history-agents", type=int, default=0, metavar="N", help="agents with a history")
    parser.add_argument("--history", metavar="FOLDER", help="a lake of `python -m benchmarks.history`; it is copied")
    parser.add_argument("--s3-agents", nargs="*", type=int, metavar="N", help="agents on S3; none: no S3")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=[], help="some parts; all by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "ROOT", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of each partition that it leaves out of an index
    if arguments.child:
        name, root, number = arguments.child
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _warm_up()
            print(json.dumps(_MEASUREMENTS[name](root, int(number))))
        return
    with tempfile.TemporaryDirectory(prefix="memory-scale-", ignore_cleanup_errors=True) as folder:
        tables = run(
            Path(folder),
            quick=arguments.quick,
            agents=arguments.agents,
            history_agents=arguments.history_agents,
            history=arguments.history,
            s3_agents=arguments.s3_agents,
            only=arguments.only,
        )
    if arguments.json:
        print(json.dumps([asdict(table) for table in tables], indent=1))
    else:
        print("\n".join(line for table in tables for line in table.lines()))


if __name__ == "__main__":
    main()

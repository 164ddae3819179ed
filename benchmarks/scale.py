"""The cost of an hourly run with 1, 100, 1,000 and 10,000 agents, extrapolated to a million.

Four runs are measured for each number of agents, each in a separate process with its own peak memory:

- *all speak*: every agent has three messages in an hour, in an empty lake;
- *again*: the same hour recomputed, with nothing to write;
- *one speaks*: the next hour of this lake, in which one agent speaks;
- *the day*: the summaries of that day, of all agents.

CPU time does not depend on other work on the machine; wall time does. Commits are versions of the Delta tables and of
the index tables. In a folder, objects are new files. On S3 a proxy counts requests between the process and moto's
server, which keeps a bucket in memory and answers within milliseconds, so wall time there says little.

Each quantity is fitted as ``a + b × agents`` by least squares of the relative error, so that small lakes count as much
as large ones, and as a power of the agents between the two largest numbers. The line gives the figures for a million
agents. Money is requests times a price per request, an argument.

    python -m benchmarks scale                          # a folder up to 10,000 agents, S3 up to 300
    python -m benchmarks.scale --agents 1 10 100 --s3-agents 1 10 --put-price 0.005 --get-price 0.0004 --json
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.generator import START, agent_name, conversation
from benchmarks.measure import Table, memory, progress, versions
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measure import Cell
    from memory_pipeline_tests.fault_proxy import FaultProxy

#: Messages of an agent in the hour in which it speaks.
_EACH = 3
_FIRST, _SECOND = START + timedelta(hours=9), START + timedelta(hours=10)
_NOW = START + timedelta(days=30)
_MILLION = 1_000_000
_RUNS = ("all speak", "again", "one speaks", "the day")
#: Fitted columns.
_FITTED = ("cpu s", "peak MB", "commits", "index commits", "objects", "MB written", "requests")

Measured = dict[str, "Cell"]


def run(
    folder: Path,
    *,
    quick: bool,
    agents: Sequence[int] = (),
    s3_agents: Sequence[int] | None = None,
    put_price: float = 0.005,
    get_price: float = 0.0004,
) -> list[Table]:
    """Measure, with lakes below `folder` and on a server that is started.

    Args:
        folder: for lakes.
        quick: up to 100 agents on a folder, 10 on S3.
        agents: numbers of agents on a folder.
        s3_agents: numbers of agents on S3.
        put_price: of a thousand requests that write or list, in any currency.
        get_price: of a thousand requests that read.
    """
    agents = agents or ((1, 10, 100) if quick else (1, 100, 1_000, 10_000))
    if s3_agents is None:
        s3_agents = (1, 10) if quick else (1, 10, 100, 300)
    local = {number: _on_folder(folder / f"lake-{number}", number) for number in agents}
    tables = list(_tables("folder", local))
    if s3_agents:
        remote = {number: _on_s3(number) for number in s3_agents}
        tables += [*_tables("S3", remote), _money(remote, put_price, get_price)]
    return tables


def _on_folder(folder: Path, agents: int) -> dict[str, Measured]:
    """Measure the runs of a number of agents in a folder."""
    found = {}
    for name in _RUNS:
        _prepare(str(folder), name, agents)
        before = _files(folder)
        found[name] = _child(str(folder), name)
        after = _files(folder)
        new = after.keys() - before.keys()
        changed = {path for path in after.keys() & before.keys() if after[path] != before[path]}
        found[name] |= {
            "index commits": sum("/_versions/" in path for path in new),
            "objects": len(new) + len(changed),
            "MB written": sum(after[path][0] for path in new | changed) / 1e6,
        }
        progress(f"{agents:,} agents, {name}: {found[name]['cpu s']:.1f} s, {found[name]['peak MB']:.0f} MB")
    return found


def _on_s3(agents: int) -> dict[str, Measured]:
    """Measure the runs of a number of agents on a new server, counting requests in a proxy."""
    from memory_pipeline_tests.fault_proxy import FaultProxy
    from memory_pipeline_tests.s3_server import S3Server

    found = {}
    with S3Server() as server:
        root = server.new_root()
        for name in _RUNS:
            with server.in_environment():
                _prepare(root, name, agents)
            # A proxy for each run, so that only its requests are counted.
            with FaultProxy(server.url) as proxy, server.in_environment(proxy.url):
                found[name] = _child(root, name) | _counted(proxy)
            progress(f"S3, {agents:,} agents, {name}: {found[name]['requests']:,} requests")
    return found


def _counted(proxy: FaultProxy) -> Measured:
    methods = {method: int(proxy.counts[method]) for method in ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")}
    return {"requests": proxy.requests, **methods, "MB written": proxy.bytes_in / 1e6, "MB read": proxy.bytes_out / 1e6}


def _prepare(root: str, name: str, agents: int) -> None:
    """Write the journal of a run."""
    if name in ("again", "the day"):
        return
    hour = _FIRST if name == "all speak" else _SECOND
    lake = Lake(root)
    lake.ensure()
    source = random.Random(f"scale {name}")
    for number in range(agents if name == "all speak" else 1):
        talk = conversation(source, agent_name(number), hour, _EACH)
        messages, _, _ = read_messages(talk, Admission(START.date(), _NOW, lake.calendar))
        lake.journal.append(messages)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in _walk(folder)}


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for place, _, names in os.walk(folder):
        for name in names:
            yield (path := Path(place, name)), path.stat()


def _child(root: str, name: str) -> Measured:
    """Measure one run in a separate process."""
    made = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--child", root, name], check=True, stdout=subprocess.PIPE
    )
    measured: Measured = json.loads(made.stdout.splitlines()[-1])
    return measured


def _measure(root: str, name: str) -> Measured:
    """Compute one run in this process, which does nothing else."""
    from memory_pipeline.models.factory import default_models
    from memory_pipeline.steps.materialize import materialize

    # Exclude late imports and caches of words.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _prepare(folder, "all speak", 2)
        models = default_models()
        for grain, period in ((Grain.WORKING, _hour("all speak")), (Grain.DAILY, _day())):
            list(materialize(Lake(folder), models, grain, [period]))
    gc.collect()
    lake, models = Lake(root), default_models()
    before, (held, _) = versions(lake), memory()
    lake = Lake(root)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    started, cpu = time.perf_counter(), _cpu()
    if name == "the day":
        list(materialize(lake, models, Grain.DAILY, [_day()]))
    else:
        list(materialize(lake, models, Grain.WORKING, [_hour(name)]))
    wall, spent = time.perf_counter() - started, _cpu() - cpu
    _, peak = memory()
    after = versions(Lake(root))
    return {
        "wall s": wall,
        "cpu s": spent,
        "peak MB": peak,
        "before MB": held,
        "commits": sum(after[table] - max(before[table], 0) for table in after),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _hour(name: str) -> Period:
    return Period(Grain.WORKING, f"{_SECOND if name == 'one speaks' else _FIRST:%Y-%m-%dT%H}")


def _day() -> Period:
    return Period(Grain.DAILY, f"{_FIRST:%Y-%m-%d}")


def _tables(where: str, found: dict[int, dict[str, Measured]]) -> Iterator[Table]:
    """Yield the tables of measurements and of their fits."""
    for name in _RUNS:
        rows: list[dict[str, Cell]] = [{"agents": number, **runs[name]} for number, runs in found.items()]
        yield Table(f"{name}, {where}", "one run in a process of its own", rows)
        if len(found) > 2:
            fits = [
                _fit(list(found), column, [float(row[column]) for row in rows])
                for column in _FITTED
                if column in rows[0]
            ]
            yield Table(f"{name}, {where}: fitted", "a + b × agents; residuals as shares of what was measured", fits)


def _fit(agents: list[int], column: str, values: list[float]) -> dict[str, Cell]:
    fixed, each = line(agents, values)
    residuals = [
        abs(fixed + each * number - value) / max(value, 1e-9) for number, value in zip(agents, values, strict=True)
    ]
    return {
        "quantity": column,
        "a": fixed,
        "b": each,
        "worst residual": max(residuals),
        "exponent": exponent(agents[-2:], values[-2:]),
        "a million": fixed + each * _MILLION,
    }


def line(agents: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return a and b of the line with the least squared relative errors."""
    numbers, found = np.asarray(agents, float), np.asarray(values, float)
    weights = 1 / np.maximum(found, 1e-9)
    matrix = np.stack([weights, numbers * weights], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(matrix, found * weights, rcond=None)
    return float(fixed), float(each)


def exponent(agents: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent of growth between two numbers of agents. 1 is linear."""
    (few, many), (less, more) = agents, values
    return math.log(max(more, 1e-9) / max(less, 1e-9)) / math.log(many / few)


def _money(found: dict[int, dict[str, Measured]], put_price: float, get_price: float) -> Table:
    """Return the price of a run's requests, and of a run with a million agents."""
    rows: list[dict[str, Cell]] = []
    for name in _RUNS:
        costs = []
        for runs in found.values():
            writes = sum(float(runs[name][method]) for method in ("PUT", "POST", "LIST"))
            reads = sum(float(runs[name][method]) for method in ("GET", "HEAD"))
            costs.append((writes * put_price + reads * get_price) / 1_000)
        fixed, each = line(list(found), costs) if len(found) > 1 else (0.0, costs[0] / next(iter(found)))
        rows.append({"run": name, "a": fixed, "b": each, "a million": fixed + each * _MILLION})
    note = f"at {put_price} a thousand writes and listings, {get_price} a thousand reads; deletions cost nothing"
    return Table("money for requests, S3", note, rows)


def main() -> None:
    """Measure with the given numbers of agents and prices."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="What an hourly run costs.")
    parser.add_argument("--agents", nargs="*", type=int, default=[], metavar="N", help="agents on a folder")
    parser.add_argument("--s3-agents", nargs="*", type=int, metavar="N", help="agents on S3; none: no S3")
    parser.add_argument("--put-price", type=float, default=0.005, help="of 1,000 requests that write or list")
    parser.add_argument("--get-price", type=float, default=0.0004, help="of 1,000 requests that read")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("ROOT", "RUN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measure(*arguments.child)))
        return
    with tempfile.TemporaryDirectory(prefix="memory-scale-", ignore_cleanup_errors=True) as folder:
        tables = run(
            Path(folder),
            quick=arguments.quick,
            agents=arguments.agents,
            s3_agents=arguments.s3_agents,
            put_price=arguments.put_price,
            get_price=arguments.get_price,
        )
    if arguments.json:
        print(json.dumps([asdict(table) for table in tables], indent=1))
    else:
        print("\n".join(line for table in tables for line in table.lines()))


if __name__ == "__main__":
    main()

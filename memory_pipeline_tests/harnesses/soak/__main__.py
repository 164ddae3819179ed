"""The command line of the soak test."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline_tests.fault_proxy import FaultProxy
from memory_pipeline_tests.harnesses.cluster.services import postgresql, url_of
from memory_pipeline_tests.harnesses.soak import plan as plans
from memory_pipeline_tests.harnesses.soak.conducting import MARK, Conductor, part
from memory_pipeline_tests.harnesses.soak.judging import Judge, Verdict
from memory_pipeline_tests.harnesses.soak.plan import Operation, Plan
from memory_pipeline_tests.harnesses.soak.reading import Reader
from memory_pipeline_tests.harnesses.soak.shared import SESSIONS, SharedFolder
from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE = "MEMORY_PIPELINE_SESSIONS"
#: Queries to the idle lake.
_IDLE = 100


def soak(
    seconds: float,
    plan: Plan,
    folder: Path,
    *,
    on_s3: bool,
    pace: float = 2.0,
    verbose: bool = False,
    on_signal: bool = False,
    idle: int = _IDLE,
) -> list[Verdict]:
    """Run a soak test. Return the verdict on each invariant.

    Args:
        seconds: the duration of the traffic.
        plan: the actions, kills and faults.
        folder: an empty folder for the shared files and, unless it is on S3, the lake.
        on_s3: use a local S3 server behind a proxy that injects faults, and PostgreSQL for sessions.
        pace: the minimum seconds of a tick.
        verbose: print each event.
        on_signal: end early and cleanly on Ctrl-C; only in the main thread.
        idle: the number of queries to the idle lake, for comparison with those under load.
    """
    with ExitStack() as stack:
        proxy: FaultProxy | None = None
        environment: dict[str, str] = {}
        root = str(folder / "lake")
        if on_s3:
            server = stack.enter_context(S3Server())
            proxy = stack.enter_context(FaultProxy(server.url, plan.seed))
            environment = {**server.environment(proxy.url), **stack.enter_context(_sessions(folder))}
            root = server.new_root()
            stack.enter_context(server.in_environment())  # this process bypasses the proxy
        shared = SharedFolder.make(folder, root, plan)
        lake = shared.lake()
        lake.ensure()
        lake.storage.write(CONFIGURATION, plans.CONFIGURATION)
        conductor = Conductor(shared, environment, proxy, pace, verbose=verbose)
        stack.callback(conductor.end)
        if on_signal:

            def stop(*_: Any) -> None:
                click.echo("  ending early; press Ctrl-C again to end at once", err=True)
                conductor.stopped = True
                signal.signal(signal.SIGINT, signal.default_int_handler)

            signal.signal(signal.SIGINT, stop)
        conductor.conduct(seconds)
        now = plan.now(conductor.tick)
        for kind in ("steps", "expire", "run"):
            conductor.do(Operation(conductor.tick, "end", kind, now))
        if proxy is not None:
            conductor.counts["requests"], conductor.counts["bytes"] = proxy.requests, proxy.bytes_in + proxy.bytes_out
        conductor.end()
        click.echo(_account(conductor))
        rest = _idle(shared, idle)
        busy = sorted(second for each in conductor.latencies.values() for second in each)
        ratio = part(busy, 0.99) / part(rest, 0.99) if part(rest, 0.99) else 0.0
        click.echo(
            f"reads under load: p50 {part(busy, 0.5) * 1e3:.1f} ms, p99 {part(busy, 0.99) * 1e3:.1f} ms; idle: p50 "
            f"{part(rest, 0.5) * 1e3:.1f} ms, p99 {part(rest, 0.99) * 1e3:.1f} ms; p99 {ratio:.1f} times as long"
        )
        asked = f"{conductor.counts['reads'] + conductor.counts['own reads']:,} answers"
        verdicts = [Verdict("every answer and operation during the soak was right", asked, conductor.wrong)]
        for verdict in [verdicts[0], *Judge(shared, Lake(root), now).verdicts(), _left_over(shared)]:
            click.echo(str(verdict))
            verdicts.append(verdict)
        return verdicts[1:]


@contextmanager
def _sessions(folder: Path) -> Iterator[dict[str, str]]:
    """Set the variable of the database for sessions, and yield it: PostgreSQL, or SQLite if that is not installed."""
    before = os.environ.get(_VARIABLE)
    with ExitStack() as stack:
        try:
            os.environ[_VARIABLE] = url_of(stack.enter_context(postgresql()))
        except pytest.fail.Exception:
            os.environ[_VARIABLE] = f"sqlite:///{folder / SESSIONS}"
        stack.callback(lambda: os.environ.pop(_VARIABLE) if before is None else os.environ.update({_VARIABLE: before}))
        yield {_VARIABLE: os.environ[_VARIABLE]}


def _account(conductor: Conductor) -> str:
    counts = [f"  {count:>9,} {name}" for name, count in sorted(conductor.counts.items())]
    failures = [f"  {count:>9,} {name}" for name, count in conductor.failures.most_common(20)]
    return "\n".join(["done", *counts, *(["failed and retried", *failures] if failures else [])])


def _idle(shared: SharedFolder, count: int) -> list[float]:
    """Query the idle lake. Return the sorted times of the answers, without the first fifth."""
    Reader(shared, 99, count).run()
    from memory_pipeline_tests.harnesses.soak.shared import Tail

    times = [record["seconds"] for record in Tail(shared.reading("r99")).read() if "seconds" in record]
    return sorted(times[len(times) // 5 :])


def _left_over(shared: SharedFolder) -> Verdict:
    """Return a verdict on leftover processes. Linux only."""
    mark = f"{MARK}={shared.folder}".encode()
    left: list[str] = []
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes().split(b"\0"):
                    left.append(path.parent.name + " " + (path.parent / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        if not left:
            break
        time.sleep(0.2)
    return Verdict("no process is left", f"{len(left)} processes", left)


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="Duration of the traffic.")
@click.option("--seed", default=1, show_default=True, help="Determines all actions, kills and faults.")
@click.option("--folder", "in_folder", is_flag=True, help="Use a local folder, without network faults.")
@click.option("--root", type=click.Path(path_type=Path), help="Folder of the run; by default a temporary one.")
@click.option("--agents", default=4, show_default=True, help="Number of agents.")
@click.option("--writers", default=2, show_default=True, help="Number of writing processes.")
@click.option("--readers", default=2, show_default=True, help="Number of reading processes.")
@click.option("--pace", default=2.0, show_default=True, help="Minimum seconds of a tick; a day has seven.")
@click.option("--keep", is_flag=True, help="Keep all files even if all invariants hold.")
@click.option("--verbose", is_flag=True, help="Print each event.")
def main(
    minutes: float,
    seed: int,
    in_folder: bool,
    root: Path | None,
    agents: int,
    writers: int,
    readers: int,
    pace: float,
    keep: bool,
    verbose: bool,
) -> None:
    """Simulate traffic on a lake with kills and faults, then check all invariants.

    The lake is on a local S3 server behind a proxy that injects faults; with --folder, it is in a folder. Exit code 1
    if an invariant fails; all files are then kept.
    """
    folder = (root or Path(tempfile.mkdtemp(prefix="soak-"))).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"--root {folder} is not empty; name a new folder")
    plan = Plan(seed, agents, writers, readers)
    click.echo(f"soak of {minutes:g} minutes, seed {seed}, in {folder}")
    verdicts = soak(
        minutes * 60, plan, folder, on_s3=not in_folder, pace=pace, verbose=verbose, on_signal=True
    )  # fmt: skip
    violated = [verdict for verdict in verdicts if verdict.wrong]
    if violated:
        flags = f"{' --folder' if in_folder else ''} --agents {agents} --writers {writers} --readers {readers}"
        again = (
            f"python -m memory_pipeline_tests.harnesses.soak --minutes {minutes:g} --seed {seed}{flags} --pace {pace:g}"
        )
        click.echo(
            f"{len(violated)} of {len(verdicts)} invariants do not hold. Files are in {folder}; repeat with: {again}"
        )
        sys.exit(1)
    click.echo(f"all {len(verdicts)} invariants hold")
    if not keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.pop("DAGSTER_HOME", None)
    main()

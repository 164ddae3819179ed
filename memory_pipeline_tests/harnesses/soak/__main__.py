"""The command line of a soak. See :mod:`memory_pipeline_tests.harnesses.soak`."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline_tests.fault_proxy import FaultProxy
from memory_pipeline_tests.harnesses.soak import course as courses
from memory_pipeline_tests.harnesses.soak.conducting import MARK, Conductor, part
from memory_pipeline_tests.harnesses.soak.course import Course, Operation
from memory_pipeline_tests.harnesses.soak.judging import Judge, Verdict
from memory_pipeline_tests.harnesses.soak.reading import Reader
from memory_pipeline_tests.harnesses.soak.station import Station
from memory_pipeline_tests.s3_server import S3Server

#: Queries to the lake at rest.
_IDLE = 100


def soak(
    seconds: float,
    course: Course,
    folder: Path,
    *,
    on_s3: bool,
    pace: float = 2.0,
    verbose: bool = False,
    on_signal: bool = False,
    idle: int = _IDLE,
) -> list[Verdict]:
    """Soak a lake; return what must hold, and whether it does.

    Args:
        seconds: how long traffic goes on.
        course: what is done.
        folder: where the soak meets; it must be empty. The lake lies there too, unless it is on S3.
        on_s3: on a server that speaks S3, which is started, behind a proxy that disturbs.
        pace: seconds that a tick takes at least.
        verbose: tell each event.
        on_signal: end early and cleanly on Ctrl-C; only in the main thread.
        idle: how many questions are asked of the lake at rest, to compare with those under load.
    """
    with ExitStack() as stack:
        proxy: FaultProxy | None = None
        environment: dict[str, str] = {}
        root = str(folder / "lake")
        if on_s3:
            server = stack.enter_context(S3Server())
            proxy = stack.enter_context(FaultProxy(server.url, course.seed))
            environment = server.environment(proxy.url)
            root = server.new_root()
            stack.enter_context(server.in_environment())  # this process reaches it undisturbed
        station = Station.make(folder, root, course)
        lake = Lake(root)
        lake.ensure()
        lake.storage.write(CONFIGURATION, courses.CONFIGURATION)
        conductor = Conductor(station, environment, proxy, pace, verbose=verbose)
        stack.callback(conductor.end)  # whatever happens
        if on_signal:

            def stop(*_: Any) -> None:
                click.echo("  ending early; once more to end at once", err=True)
                conductor.stopped = True
                signal.signal(signal.SIGINT, signal.default_int_handler)

            signal.signal(signal.SIGINT, stop)
        conductor.conduct(seconds)
        now = course.now(conductor.tick)
        for kind in ("steps", "expire", "run"):
            conductor.do(Operation(conductor.tick, "end", kind, now))
        if proxy is not None:
            conductor.counts["requests"], conductor.counts["bytes"] = proxy.requests, proxy.bytes_in + proxy.bytes_out
        conductor.end()
        click.echo(_account(conductor))
        rest = _idle(station, idle)
        busy = sorted(second for each in conductor.latencies.values() for second in each)
        ratio = part(busy, 0.99) / part(rest, 0.99) if part(rest, 0.99) else 0.0
        click.echo(
            f"reads under load: p50 {part(busy, 0.5) * 1e3:.1f} ms, p99 {part(busy, 0.99) * 1e3:.1f} ms; at rest: p50 "
            f"{part(rest, 0.5) * 1e3:.1f} ms, p99 {part(rest, 0.99) * 1e3:.1f} ms; p99 {ratio:.1f} times as long"
        )
        asked = f"{conductor.counts['reads'] + conductor.counts['own reads']:,} answers"
        verdicts = [Verdict("every answer and operation was right while it went on", asked, conductor.wrong)]
        for verdict in [verdicts[0], *Judge(station, Lake(root), now).verdicts(), _left_over(station)]:
            click.echo(str(verdict))
            verdicts.append(verdict)
        return verdicts[1:]


def _account(conductor: Conductor) -> str:
    """Return lines that summarize a soak."""
    counts = [f"  {count:>9,} {name}" for name, count in sorted(conductor.counts.items())]
    failures = [f"  {count:>9,} {name}" for name, count in conductor.failures.most_common(20)]
    return "\n".join(["it did", *counts, *(["what failed, and was tried again", *failures] if failures else [])])


def _idle(station: Station, count: int) -> list[float]:
    """Query the idle lake. Return the times of the answers, without the first ones."""
    Reader(station, 99, count).run()
    from memory_pipeline_tests.harnesses.soak.station import Tail

    times = [record["seconds"] for record in Tail(station.reading("r99")).read() if "seconds" in record]
    return sorted(times[len(times) // 5 :])


def _left_over(station: Station) -> Verdict:
    """Return leftover processes of the soak. Linux only."""
    mark = f"{MARK}={station.folder}".encode()
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
    return Verdict("no process is left", f"{len(left)} are", left)


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="How long traffic goes on.")
@click.option("--seed", default=1, show_default=True, help="Decides what is done, killed and disturbed, and when.")
@click.option("--folder", "in_folder", is_flag=True, help="In a folder, with kills and without faults of a network.")
@click.option("--root", type=click.Path(path_type=Path), help="Where it happens; a new folder for temporary files.")
@click.option("--agents", default=4, show_default=True, help="How many agents.")
@click.option("--writers", default=2, show_default=True, help="How many processes write.")
@click.option("--readers", default=2, show_default=True, help="How many processes read.")
@click.option("--pace", default=2.0, show_default=True, help="Seconds that a tick takes at least; seven are a day.")
@click.option("--keep", is_flag=True, help="Leave everything where it is, even if all is well.")
@click.option("--verbose", is_flag=True, help="Tell each event.")
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
    course = Course(seed, agents, writers, readers)
    click.echo(f"soak of {minutes:g} minutes, seed {seed}, in {folder}")
    verdicts = soak(
        minutes * 60, course, folder, on_s3=not in_folder, pace=pace, verbose=verbose, on_signal=True
    )  # fmt: skip
    violated = [verdict for verdict in verdicts if verdict.wrong]
    if violated:
        flags = f"{' --folder' if in_folder else ''} --agents {agents} --writers {writers} --readers {readers}"
        again = (
            f"python -m memory_pipeline_tests.harnesses.soak --minutes {minutes:g} --seed {seed}{flags} --pace {pace:g}"
        )
        click.echo(f"{len(violated)} of {len(verdicts)} do not hold. Everything lies in {folder}; again: {again}")
        sys.exit(1)
    click.echo(f"all {len(verdicts)} hold")
    if not keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    os.environ.pop("DAGSTER_HOME", None)
    main()

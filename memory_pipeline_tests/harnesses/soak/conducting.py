"""Run a soak: start and kill processes, set the clock, inject faults and print progress."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline_tests.fault_proxy import Fault
from memory_pipeline_tests.harnesses.soak.fork_server import ForkServer
from memory_pipeline_tests.harnesses.soak.operating import STEPS
from memory_pipeline_tests.harnesses.soak.plan import Operation
from memory_pipeline_tests.harnesses.soak.processes import FreshProcess, Process
from memory_pipeline_tests.harnesses.soak.shared import Clock, Log, Tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memory_pipeline_tests.fault_proxy import FaultProxy
    from memory_pipeline_tests.harnesses.soak.shared import SharedFolder

#: A variable of all processes of a soak, to find leftover ones.
MARK = "MEMORY_PIPELINE_SOAK"
#: Seconds until an operation counts as stuck, until a fault is over, and between two lines of progress.
_STUCK, _CALM_AFTER, _PRINT_EVERY = 600.0, 10.0, 10.0
#: Retries of a failed operation.
_ATTEMPTS = 8
#: Texts of retryable errors: other writers committed first.
_OVERTAKEN = ("lost against other writers", "writers keep adding data")
_PAUSE = 0.05


@dataclass
class Lane:
    """A queue of operations, and the process of the first one."""

    waiting: list[Operation] = field(default_factory=list)
    process: Process | None = None
    kills: list[float] = field(default_factory=list)
    failures: int = 0


class Conductor:
    """Conducts one soak.

    Args:
        shared: the shared folder.
        environment: variables with which processes find the lake.
        proxy: injects network faults; None without a network.
        pace: the minimum seconds of a tick.
        verbose: print each event.
    """

    def __init__(
        self,
        shared: SharedFolder,
        environment: Mapping[str, str],
        proxy: FaultProxy | None,
        pace: float,
        *,
        verbose: bool,
    ) -> None:
        self._shared = shared
        self._plan = shared.plan
        self._proxy = proxy
        self._pace = pace
        self._verbose = verbose
        unwanted = ("MEMORY_PIPELINE_", "DAGSTER_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self._environment = {**kept, **environment, MARK: str(shared.folder), "POLARS_MAX_THREADS": "2"}
        self._fork_server = ForkServer(self._environment, shared.folder)
        self._events = Log(shared.folder / "events.jsonl")
        self._lanes: dict[str, Lane] = {}
        self._clients: dict[str, Process] = {}
        self._tails = {f"w{n}": Tail(shared.oracle(f"w{n}")) for n in range(self._plan.writers)}
        self._readings = {f"r{n}": Tail(shared.reading(f"r{n}")) for n in range(self._plan.readers)}
        self._reached = dict.fromkeys(self._tails, -1)
        self._rough_until = 0.0
        self._printed_at = self._began = time.monotonic()
        self._is_ending = False
        self.tick = -1
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.failures: Counter[str] = Counter()
        self.latencies: dict[str, list[float]] = {}
        self.stopped = False

    # The plan.

    def conduct(self, seconds: float) -> None:
        """Run for the given seconds, then finish all started work."""
        self._began = time.monotonic()
        deadline = self._began + seconds
        self._begin_tick(0)
        for name in (*self._tails, *self._readings):
            self._start_client(name)
        tick = 0
        while True:
            began = time.monotonic()
            while not self._may_go_on(tick, began):
                self._pump()
            if self._plan.looks(tick):
                self._rest()
                self._look()
            if self.stopped or time.monotonic() >= deadline:
                break
            tick += 1
            self._begin_tick(tick)
        self._rest()
        self._set_clock(is_over=True)
        self._is_ending = True
        while self._clients:
            self._pump()
        self._print_progress(force=True)

    def _begin_tick(self, tick: int) -> None:
        self.tick = tick
        trouble = self._plan.trouble(tick)
        self._event("tick", tick=tick, now=self._plan.now(tick).isoformat())
        for operation in self._plan.operations(tick):
            self._lanes.setdefault(operation.lane, Lane()).waiting.append(operation)
        for name, after in trouble.kills:
            if name in self._clients:
                self._clients[name].kill_at = time.monotonic() + after
        self._disturb(trouble.faults, trouble.latency)
        self._set_clock()

    def _may_go_on(self, tick: int, began: float) -> bool:
        """Return whether the next tick may begin: writers are done, and operations are not too far behind."""
        is_written = all(reached >= tick for reached in self._reached.values())
        is_keeping_up = all(not lane.waiting for lane in self._lanes.values())
        return is_written and is_keeping_up and time.monotonic() - began >= self._pace

    def _rest(self) -> None:
        """Wait without faults until only readers are at work."""
        self._disturb((), 0.0)
        while any(lane.waiting or lane.process for lane in self._lanes.values()) or not all(
            reached >= self.tick for reached in self._reached.values()
        ):
            self._pump()

    def _look(self) -> None:
        now = self._plan.now(self.tick)
        self.do(Operation(self.tick, "look", "run", now))
        self.do(Operation(self.tick, "look", "check", now))

    def do(self, operation: Operation) -> None:
        """Complete an operation while nothing else starts."""
        self._lanes.setdefault(operation.lane, Lane()).waiting.append(operation)
        while any(lane.waiting or lane.process for lane in self._lanes.values()):
            self._pump()

    def _pump(self) -> None:
        self._fork_server.look()
        for lane in self._lanes.values():
            self._advance(lane)
        for name, client in list(self._clients.items()):
            self._watch_client(name, client)
        self._read()
        is_rough = self._is_rough()
        if is_rough != self._shared.clock.is_rough:
            self._set_clock()
        self._print_progress()
        time.sleep(_PAUSE)

    def _advance(self, lane: Lane) -> None:
        if lane.process is None:
            if lane.waiting:
                lane.kills, lane.failures = list(lane.waiting[0].kills), 0
                self._start_operation(lane)
            return
        process = lane.process
        if process.kill_if_due():
            self._count_kill(process.name, lane.waiting[0].kind)
        code = process.child.code
        if code is None:
            if time.monotonic() - process.started > _STUCK:
                self._complain(f"{process.name} has not ended after {_STUCK:.0f} s")
                process.kill_at = time.monotonic()
            return
        operation = lane.waiting[0]
        if code == 0:
            self.counts[f"done {operation.kind}"] += 1
            self._event("done", what=operation.name, seconds=round(time.monotonic() - process.started, 2))
        if code == 0 or (not process.was_killed and not self._may_fail(process, operation, lane)):
            lane.waiting.pop(0)
            lane.process = None
        else:
            self._start_operation(lane)

    def _may_fail(self, process: Process, operation: Operation, lane: Lane) -> bool:
        """Record a failed operation. Return whether to retry it."""
        lane.failures += 1
        last = process.said.strip().splitlines()[-1:] or ["no output"]
        is_rough = self._is_rough()
        was_overtaken = any(words in process.said for words in _OVERTAKEN)
        self._event("failed", what=process.name, said=process.said[-500:], is_rough=is_rough)
        self.failures[f"{operation.kind}: {last[0][:150]}"] += 1
        if operation.kind == "check":
            failed = [line for line in process.said.splitlines() if line.startswith("FAILED")]
            self._complain(f"{process.name}: {'; '.join(failed) or last[0]}")
            return False
        if not is_rough and not was_overtaken:
            self._complain(f"{process.name} failed: {last[0][:300]}")
        if lane.failures >= _ATTEMPTS:
            self._complain(f"{process.name} failed {lane.failures} times and is given up")
            return False
        return True

    def _start_operation(self, lane: Lane) -> None:
        operation = lane.waiting[0]
        process = self._spawn(operation.name, ["operating", *self._command(operation)], own=operation.kind == "process")
        if lane.kills:
            process.kill_at = process.started + lane.kills.pop(0)
        lane.process = process

    def _command(self, operation: Operation) -> list[str]:
        now, root = operation.now.isoformat(), self._shared.root
        if operation.kind == "steps":
            return [STEPS, root, now]
        kind = "run" if operation.kind == "process" else operation.kind
        command = [kind, "--root", root, "--now", now]
        if operation.subject is None:
            return command
        subject = self._plan.subject(operation.subject)
        receipt = self._shared.receipt(operation.subject)
        receipt.unlink(missing_ok=True)  # a killed process may leave an empty one
        command += ["--workspace", subject.workspace_id, "--yes", "--receipt", str(receipt)]
        if subject.agent_id is not None:
            command += ["--agent", subject.agent_id]
        if subject.kind is SubjectKind.CONVERSATION:
            command += ["--conversation", str(subject.conversation_id)]
        return [*command, *(part for name in subject.names for part in ("--person", name))]

    def _start_client(self, name: str) -> None:
        module = "writing" if name.startswith("w") else "reading"
        self._clients[name] = self._spawn(name, [module, str(self._shared.folder), name[1:]])

    def _watch_client(self, name: str, client: Process) -> None:
        if client.kill_if_due():
            self._count_kill(name, "writer" if name.startswith("w") else "reader")
        code = client.child.code
        if code is None:
            return
        if not client.was_killed and code == 0 and self._is_ending:
            del self._clients[name]
            return
        if not client.was_killed:
            last = client.said.strip().splitlines()[-1:] or ["no output"]
            self.failures[f"{name}: {last[0][:150]}"] += 1
            if not self._is_rough():
                self._complain(f"{name} ended with {code}: {last[0][:300]}")
        self._start_client(name)

    def _spawn(self, name: str, what: list[str], *, own: bool = False) -> Process:
        log = self._shared.folder / "logs" / f"{name.replace('/', '-')}.log"
        log.touch()
        said_before = log.stat().st_size
        self._event("start", what=name)
        start = self._start_fresh if own else self._fork_server.start
        return Process(name, start(what, log), log, said_before)

    def _start_fresh(self, what: list[str], log: Path) -> FreshProcess:
        return FreshProcess(what[1:], self._environment, self._shared.folder, log)

    def end(self) -> None:
        for lane in self._lanes.values():
            if lane.process is not None:
                lane.process.child.kill()
        self._fork_server.end()

    def _disturb(self, faults: tuple[tuple[str, float], ...], latency: float) -> None:
        if self._proxy is None:
            return
        if self._proxy.faults and not faults:
            self._rough_until = time.monotonic() + _CALM_AFTER
        self._proxy.faults = [
            Fault(kind, probability=share, times=None, delay=0.5 if kind == "slow" else None) for kind, share in faults
        ]
        self._proxy.latency = latency
        if faults:
            self._event("faults", faults=faults, latency=latency)

    def _is_rough(self) -> bool:
        return self._proxy is not None and (bool(self._proxy.faults) or time.monotonic() < self._rough_until)

    def _set_clock(self, *, is_over: bool = False) -> None:
        now = self._plan.now(self.tick)
        self._shared.set_clock(Clock(self.tick, now, is_over or self._is_ending, self._is_rough()))

    def _read(self) -> None:
        for name, tail in self._tails.items():
            for record in tail.read():
                self._read_oracle(name, record)
        for name, tail in self._readings.items():
            for record in tail.read():
                self._read_answer(name, record)

    def _read_oracle(self, name: str, record: dict[str, Any]) -> None:
        match record["is"]:
            case "tick":
                self._reached[name] = record["tick"]
            case "done":
                action = self._plan.action(record["action"])
                self.counts[f"did {action.kind}"] += 1
                self.counts["messages"] += len(action.body["messages"]) if action.kind == "talk" else 0
            case "dropped":
                self.counts["dropped"] += 1
            case "looked":
                self.counts["own reads"] += 1
            case "failed":
                self.failures[f"writer: {record['what'][:150]}"] += 1
                if not record["is_rough"]:
                    self._complain(f"{record['action']} failed: {record['what'][:300]}")
            case "wrong":
                self._complain(record["what"])

    def _read_answer(self, name: str, record: dict[str, Any]) -> None:
        if "failed" in record:
            self.failures[f"reader, {record['what']}: {record['failed'][:150]}"] += 1
            if not record["is_rough"]:
                self._complain(f"{name}, {record['what']}: {record['failed'][:300]}")
            return
        self.counts["reads"] += 1
        self.counts["reads of the guest"] += record["what"] == "guest"
        self.counts["denied reads of the guest"] += record.get("is_denied", False)
        self.latencies.setdefault(record["what"], []).append(record["seconds"])
        for wrong in record.get("wrong", ()):
            self._complain(f"{name}, {record['what']}: {wrong}")

    def _complain(self, what: str) -> None:
        self.wrong.append(what)
        self._event("wrong", what=what)
        click.echo(f"  WRONG at tick {self.tick}: {what}", err=True)

    def _count_kill(self, name: str, kind: str) -> None:
        self.counts[f"killed {kind}"] += 1
        self._event("kill", what=name)

    def _event(self, event: str, **more: Any) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._events.append({"event": event, "at": at, **more})
        if self._verbose:
            click.echo(f"  {at:8.2f} {event} {more}", err=True)

    def _print_progress(self, *, force: bool = False) -> None:
        if not force and time.monotonic() - self._printed_at < _PRINT_EVERY:
            return
        self._printed_at = time.monotonic()
        runs = sum(count for name, count in self.counts.items() if name.startswith("done "))
        kills = sum(count for name, count in self.counts.items() if name.startswith("killed "))
        requests = ""
        if self._proxy is not None:
            struck = sum(self._proxy.counts[kind] for kind in ("500", "503", "reset", "lost", "half", "slow"))
            requests = f" | {struck:,} faults in {self._proxy.requests:,} requests"
        times = sorted(second for each in self.latencies.values() for second in each)
        seconds, now = time.monotonic() - self._began, self._plan.now(self.tick)
        click.echo(
            f"{seconds:6.0f} s | tick {self.tick} | {now:%Y-%m-%d %H:%M} | "
            f"{self.counts['messages']:,} messages | {runs:,} runs | {kills:,} kills{requests} | "
            f"{self.counts['reads']:,} reads, p50 {part(times, 0.5) * 1e3:.0f} ms, p99 {part(times, 0.99) * 1e3:.0f} ms"
            f" | {len(self.wrong)} wrong"
        )


def part(times: list[float], share: float) -> float:
    """Return a quantile of sorted times; 0 if there are none."""
    return times[min(len(times) - 1, int(len(times) * share))] if times else 0.0

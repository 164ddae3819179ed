"""The service: 50 clients at once, one search beside the library in this process, and memory with 1,000 users.

::

    python -m benchmarks service

The bare route is FastAPI alone, with one route that calls the library, without tokens, limits or metrics.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Table, progress
from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.tokens import ServiceToken
from memory_pipeline.lake import Lake

if TYPE_CHECKING:
    from benchmarks.measure import Cell

_BARE = """
import sys
from functools import cache
import uvicorn
from fastapi import FastAPI, Header
from memory_pipeline import Memory
from memory_pipeline.lake import Lake
app, lake = FastAPI(), Lake(sys.argv[1])
memory = cache(lambda user: Memory(lake, user_id=user))

@app.post("/v1/search")
def search(given: dict, x_memory_user: str = Header()):
    return [{"id": hit.id, "content": hit.content, "score": hit.score} for hit in memory(x_memory_user).search(**given)]

@app.post("/v1/memories", status_code=201)
def add(given: dict, x_memory_user: str = Header()):
    return {"accepted": memory(x_memory_user).add(**given).accepted}

@app.get("/health/live")
def live():
    return {}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", access_log=False)
"""


class Served:
    """A server in a process of its own."""

    def __init__(self, command: list[str], port: int) -> None:
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"the server did not start: {' '.join(command)}")
            time.sleep(0.05)

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> float:
        """Its resident memory in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


async def _asked(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str, body: object, headers: str
) -> int:
    """Send a request on an open connection; return the status."""
    reader, writer = streams
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    status = int((await reader.readline()).split()[1])
    length = 0
    while (line := await reader.readline()) not in {b"\r\n", b""}:
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    await reader.readexactly(length)
    return status


async def _client(port: int, number: int, users: int, token: str, until: float, took: list[float]) -> int:
    errors, count = 0, number
    streams = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        count += 7
        headers = f"Authorization: Bearer {token}\r\nX-Memory-User: user{count % users}\r\n"
        began = time.perf_counter()
        if count % 5 == 0:
            status = await _asked(streams, "/v1/memories", {"messages": f"Parcel {count} came at nine."}, headers)
        else:
            status = await _asked(streams, "/v1/search", {"query": "When did the parcel come?", "limit": 5}, headers)
        took.append(time.perf_counter() - began)
        errors += status >= 400
    streams[1].close()
    return errors


def load(served: Served, token: str, clients: int, users: int, seconds: float) -> dict[str, Cell]:
    """Return what clients at once saw."""
    took: list[float] = []

    async def all_clients() -> list[int]:
        until = time.monotonic() + seconds
        return await asyncio.gather(*(_client(served.port, one, users, token, until, took) for one in range(clients)))

    cpu, began = served.cpu, time.monotonic()
    errors = sum(asyncio.run(all_clients()))
    spent, elapsed = served.cpu - cpu, time.monotonic() - began
    took.sort()
    return {
        "requests a second": len(took) / elapsed,
        "p50 ms": 1_000 * took[len(took) // 2],
        "p99 ms": 1_000 * took[int(len(took) * 0.99)],
        "CPU ms": 1_000 * spent / len(took),
        "errors": errors,
        "resident MB": served.resident,
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _fill(root: str, users: int) -> None:
    lake = Lake(root)
    for number in range(users):
        texts = [f"Parcel {number}-{one} came at {one + 7} on Monday, from {'ABCDEF'[one]} street." for one in range(6)]
        Memory(lake, user_id=f"user{number}").add(texts, now=datetime(2026, 1, 5, 12, tzinfo=UTC))
    Memory(lake).run(now=datetime(2026, 1, 20, tzinfo=UTC))


def _in_process(root: str, users: int, count: int) -> float:
    """Return the CPU seconds of one search in this process, for users whose memory is open."""
    lake = Lake(root)
    memories = [Memory(lake, user_id=f"user{number}") for number in range(min(20, users))]
    for memory in memories:
        memory.search("When did the parcel come?", 5)
    began = time.process_time()
    for number in range(count):
        memories[number % len(memories)].search("When did the parcel come?", 5)
    return (time.process_time() - began) / count


def _one_client(served: Served, token: str, users: int, count: int) -> float:
    """Return the CPU seconds of one search in the server, for the same users."""

    async def ask(times: int) -> None:
        streams = await asyncio.open_connection("127.0.0.1", served.port)
        for number in range(times):
            headers = f"Authorization: Bearer {token}\r\nX-Memory-User: user{number % min(20, users)}\r\n"
            body = {"query": "When did the parcel come?", "limit": 5}
            assert await _asked(streams, "/v1/search", body, headers) < 400
        streams[1].close()

    asyncio.run(ask(200))
    began = served.cpu
    asyncio.run(ask(count))
    return (served.cpu - began) / count


def run(folder: Path, *, quick: bool = False) -> list[Table]:
    """Measure the service beside a bare route and the library."""
    users, clients, seconds, count = (20, 5, 2.0, 100) if quick else (1_000, 50, 60.0, 2_000)
    root = str(folder / "lake")
    _fill(root, users)
    bare_file = folder / "bare.py"
    bare_file.write_text(_BARE)
    token, text = ServiceToken.new(Scope("default", "default"), "write", datetime.now(UTC), is_for_many_users=True)
    loads = Table(
        f"{clients} clients at once for {seconds:.0f} s",
        "Four searches to one write, of 1,000 users. CPU: of the server, for a request.",
    )
    costs = Table("One search", "CPU of the process that searches, for 20 users whose memory is open.")
    progress("bare route")
    bare = Served([sys.executable, str(bare_file), root, str(port := _free_port())], port)
    of_bare = _one_client(bare, text, users, count)
    loads.rows.append({"server": "bare route", **load(bare, text, clients, users, seconds)})
    bare.stop()
    progress("service")
    Lake(root).tokens.add(token)
    command = [sys.executable, "-m", "memory_pipeline.cli", "serve", "--root", root, "--rate", "0"]
    served = Served([*command, "--port", str(port := _free_port())], port)
    of_service = _one_client(served, text, users, count)
    loads.rows.append({"server": "service", **load(served, text, clients, users, seconds)})
    served.stop()
    own = _in_process(root, users, count)
    for name, cpu in (("in process", own), ("bare route", of_bare), ("service", of_service)):
        costs.rows.append({"way": name, "CPU ms": 1_000 * cpu, "times": cpu / own})
    return [loads, costs]

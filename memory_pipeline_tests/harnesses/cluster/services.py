"""PostgreSQL, Redis and an S3 server, started and stopped for a test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pytest
import redis

from memory_pipeline_tests.s3_server import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: The timeout for the start of a server in seconds; generous, because the machine may be busy.
PATIENCE = 300
_PASSWORD = "for-one-test"


class Process:
    """A process and its children in one process group, with a log file.

    Args:
        name: the name of the log file, and in errors.
        command: the command line.
        folder: the working folder, which also has the log.
        variables: additional environment variables.
        user: the user to run as; None for the current one.
    """

    def __init__(
        self, name: str, command: list[str], folder: Path, variables: Mapping[str, str], user: str | None = None
    ) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        environment = {**os.environ, **variables}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True, user=user
            )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-4000:]

    def send(self, what: signal.Signals) -> None:
        """Send a signal to it and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, what)

    def stop(self, patience: float = 20) -> None:
        """Interrupt the process. Kill it if it does not end in time."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()


def until(there: Callable[[], bool], process: Process, patience: float = PATIENCE) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + patience
    while not there():
        assert not process.ended or there(), f"{process.name} ended: {process.said}"
        assert time.monotonic() < deadline, f"{process.name} does not answer: {process.said}"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def postgresql() -> Iterator[dict[str, str]]:
    """Run a PostgreSQL server with an empty database. Yield the variables of its address for Dagster."""
    programs = _programs()
    # It refuses to run as root, and needs access to all parent folders.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="memory-pipeline-postgresql-"))
    secret, data, port = folder / "password", folder / "data", free_port()
    secret.write_text(_PASSWORD)
    if user is not None:
        owner = pwd.getpwnam(user)
        for path in (folder, secret):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    try:
        made = ["-D", str(data), "-U", "dagster", "-A", "scram-sha-256", "--pwfile", str(secret)]
        subprocess.run([str(programs / "initdb"), *made], check=True, capture_output=True, user=user, cwd=folder)
        # The data is temporary, so durability is not needed.
        options = {
            "listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": "", "fsync": "off",
            "max_connections": "200",
        }  # fmt: skip
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        server = Process("postgresql", [str(programs / "postgres"), "-D", str(data), *settings], folder, {}, user)
        try:
            variables = {
                "DAGSTER_PG_HOST": "127.0.0.1", "DAGSTER_PG_PORT": str(port), "DAGSTER_PG_USERNAME": "dagster",
                "DAGSTER_PG_PASSWORD": _PASSWORD, "DAGSTER_PG_DB": "postgres",
            }  # fmt: skip
            until(lambda: _takes_sessions(port), server)
            yield variables
        finally:
            server.stop()  # SIGKILL would leave shared memory behind
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def url_of(variables: Mapping[str, str]) -> str:
    """Return the address of the server whose variables :func:`postgresql` yields."""
    host, port, user, password, database = (
        variables[f"DAGSTER_PG_{name}"] for name in ("HOST", "PORT", "USERNAME", "PASSWORD", "DB")
    )
    return f"postgresql://{user}:{password}@{host}:{port}/{database}"


@contextmanager
def redis_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Redis server. Yield the variables of its address for Celery."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.fail("redis-server is not installed; on Debian: apt-get install redis-server")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = Process("redis", command, folder, {})
    try:
        until(lambda: answers(port), server)
        assert redis.Redis(port=port).ping()
        url = f"redis://127.0.0.1:{port}"
        yield {"DAGSTER_CELERY_BROKER_URL": f"{url}/0", "DAGSTER_CELERY_BACKEND_URL": f"{url}/1"}
    finally:
        server.kill()


class ObjectServer(S3Server):
    """The server of :mod:`.object_server`, or the one that ``MEMORY_PIPELINE_TEST_S3`` names."""

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "memory_pipeline_tests.harnesses.cluster.object_server",
            "--bucket",
            self.bucket,
        ]
        # Only the test handles Ctrl-C, and stops the server last.
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().split()[-1]


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs, which Debian does not put on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    if there is None:
        pytest.fail("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return Path(there).parent


def _takes_sessions(port: int) -> bool:
    try:
        psycopg2.connect(host="127.0.0.1", port=port, user="dagster", password=_PASSWORD, dbname="postgres").close()
    except psycopg2.OperationalError:
        return False
    return True

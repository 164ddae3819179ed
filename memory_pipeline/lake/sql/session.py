"""Sessions of DuckDB: one for the warehouse, and a locked one for SQL that agents write.

SQL of agents is untrusted, and DuckDB cannot be contained in this process: a single call of `list_distinct` or
`quantile_cont` runs for minutes without checking for an interrupt, the memory limit does not count what `repeat`
builds, and a thread cannot be killed. So a :class:`Session` runs its queries in a separate process, which the operating
system limits, and which is killed if it does not answer. Its limits are in :mod:`memory_pipeline.lake.sql.worker`, the
accepted SQL in :mod:`memory_pipeline.domain.sql_guard`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import pickle  # nosec B403  # _Unpickler builds plain values alone
import re
import subprocess  # nosec B404  # for our own interpreter and script
import sys
import threading
import time
import unicodedata
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memory_pipeline.domain.values import count_of, number_of
from memory_pipeline.errors import InputError, LakeError, shown
from memory_pipeline.operating_system import SharedFile, options_of_child, share, unshare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import duckdb
    import pyarrow as pa

    Tables = Mapping[str, pa.Table] | Callable[[], Mapping[str, pa.Table]]

MAX_CHARACTERS = 20_000
MAX_ROWS = 10_000
MAX_SECONDS = 60.0
#: Seconds that the process may take to start, and to answer after a query's time limit. It usually ends itself before
#: the second, unless it is stopped or the machine is very busy.
_START_SECONDS = 60.0
_GRACE_SECONDS = 3.0
_SCRIPT = Path(__file__).with_name("worker.py")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: The only types built when an answer is unpickled.
_BUILT = {
    ("datetime", "date"): dt.date,
    ("datetime", "datetime"): dt.datetime,
    ("datetime", "timedelta"): dt.timedelta,
    ("datetime", "timezone"): dt.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
}


def connect() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB session for trusted SQL: it installs nothing, sees no Python variables, and uses UTC."""
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "python_enable_replacements": False})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, as plain Python values; times are in UTC.

    `is_cut` means that there were more rows, or that a text longer than 20,000 characters was cut (it ends with `…`;
    bytes are cut without a mark). Times beyond the year 9999, times of day and UUIDs are texts.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_cut: bool


class Session:
    """Read-only SQL over exactly the given tables, in a separate process that keeps them between queries.

    The tables are written once to memory that the process maps. It starts in the background, and restarts after a query
    had to be killed. Threads may share a session; their queries run one at a time. Close it; otherwise it ends with the
    interpreter.

    Args:
        tables: by name (letters, digits and `_`), or a function that returns them, called once.
        is_graph: whether they are the tables ``facts`` and ``entities`` of a graph, and SQL may walk through it by the
            functions in :mod:`memory_pipeline.lake.sql.walks`.

    Raises:
        InputError: a name or a table is invalid.
        LakeError: no process can be started.
    """

    def __init__(self, tables: Tables, *, is_graph: bool = False) -> None:
        self._is_graph = is_graph
        self._lock = threading.Lock()
        provided = tables() if callable(tables) else tables
        folded = set()
        for name in provided:
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name.casefold() in folded:
                raise InputError(
                    f"table {shown(name)} is not accepted; expected distinct names of letters, digits and _"
                )
            folded.add(name.casefold())
        self._process: _Process | None = None
        self._is_closed = False
        self._files: dict[str, SharedFile] = {}
        self._end = weakref.finalize(self, _close_files, self._files)
        for name, table in provided.items():
            self._files[name] = _shared(name, table)
        self._process = _Process(self._files, is_graph=self._is_graph)

    def close(self) -> None:
        """End the process and release the tables, after the running query."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.end()
                self._process = None
            self._end()

    def ask(self, sql: str, *, max_rows: int = 100, max_seconds: float = 5.0) -> QueryResult:
        """Answer one SELECT.

        Args:
            sql: at most 20,000 characters.
            max_rows: further rows are cut; 1 to 10,000.
            max_seconds: time limit of the query, 0.01 to 60, without the start of the process and queries of other
                threads.

        Raises:
            InputError: the query is refused, wrong, or took too much; the message says what to write instead.
            LakeError: the session is closed, or its process could not be started.
        """
        _check_query(sql, max_rows, max_seconds)
        with self._lock:
            if self._is_closed:
                raise LakeError("the SQL session is closed; open another one")
            if self._process is None or self._process.has_ended():
                self._process = _Process(self._files, is_graph=self._is_graph)
            try:
                answer = self._process.answer({"sql": sql, "max_rows": max_rows, "max_seconds": max_seconds})
            except BaseException:
                # Also if a caller's thread is interrupted: a late answer must not be returned for the next query.
                self._process.end()
                self._process = None
                raise
            if answer[0] is False and answer[2]:
                self._process.end()
                self._process = None
        if not answer[0]:
            raise InputError(f"the query failed: {answer[1]}")
        return QueryResult(*answer[1:])


class _Process:
    def __init__(self, files: Mapping[str, SharedFile], *, is_graph: bool) -> None:
        self._is_ready = False
        # No environment, so it contains no keys. Imports use this process's paths.
        paths = [str(Path(path).absolute()) for path in sys.path]
        start = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
        try:
            self._process = subprocess.Popen(  # noqa: S603  # nosec B603  # our own interpreter and script
                [sys.executable, "-I", "-c", start, str(_SCRIPT), *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                **options_of_child(files.values()),
            )
        except OSError as error:
            raise LakeError(f"the process for SQL cannot be started: {error}") from error
        self.end = weakref.finalize(self, _end, self._process)
        self._send({"tables": dict(files), "is_graph": is_graph})

    def has_ended(self) -> bool:
        """Whether the process was ended between two queries."""
        return self._process.poll() is not None

    def answer(self, question: Mapping[str, object]) -> tuple[Any, ...]:
        """Return the process's answer to a question; its first value says whether it succeeded."""
        if not self._is_ready:
            ready = self._received(_START_SECONDS)
            if ready is None or not ready[0]:
                why = ready[1] if ready else "it did not start"
                raise LakeError(f"the process for queries cannot serve these tables: {why}")
            self._is_ready = True
        seconds = float(str(question["max_seconds"]))
        started = time.monotonic()
        self._send(question)
        answer = self._received(seconds + _GRACE_SECONDS)
        if answer is not None:
            return answer
        # The process is gone, so the elapsed time decides which limit it was.
        if time.monotonic() - started < seconds:
            raise InputError(
                "the query failed: it took more memory than a query may have; build shorter texts and lists"
            )
        raise InputError(f"the query failed: it took longer than {seconds:g} s; read fewer rows, or nest less")

    def _send(self, message: Mapping[str, object]) -> None:
        content = json.dumps(message).encode()
        assert self._process.stdin is not None  # noqa: S101  # nosec B101  # it was asked for
        try:
            self._process.stdin.write(len(content).to_bytes(8, "big") + content)
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, and so has its output, which is read next

    def _received(self, seconds: float) -> tuple[Any, ...] | None:
        """Return the next answer, or None if there is none in time, or never will be."""
        content: list[bytes] = []
        # A thread, because Windows cannot wait for a pipe with a time limit. It ends with the answer or the process.
        reading = threading.Thread(target=lambda: content.append(self._read()), daemon=True)
        reading.start()
        reading.join(seconds)
        if not content or not content[0]:
            return None
        values = _Unpickler(io.BytesIO(content[0])).load()
        return values if isinstance(values, tuple) else None

    def _read(self) -> bytes:
        """Return the content of the next message; empty if the process has ended."""
        assert self._process.stdout is not None  # noqa: S101  # nosec B101  # it was asked for
        with suppress(ValueError):  # closed
            length = int.from_bytes(self._process.stdout.read(8), "big")
            content = self._process.stdout.read(length)
            return content if len(content) == length else b""
        return b""


class _Unpickler(pickle.Unpickler):
    """Builds plain values only, so that even a compromised process cannot run code here."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BUILT:
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return _BUILT[module, name]


def _check_query(sql: object, max_rows: object, max_seconds: object) -> None:
    if not isinstance(sql, str):
        raise InputError(f"sql {shown(sql)} is not accepted; expected a text")
    if not sql.strip():
        raise InputError("sql is empty; expected one SELECT")
    if len(sql) > MAX_CHARACTERS:
        raise InputError(f"sql has {len(sql):,} characters; expected at most {MAX_CHARACTERS:,}")
    for character in sql:
        if character not in "\n\r\t" and unicodedata.category(character) in {"Cc", "Cs"}:
            raise InputError(f"sql has the character {character!a}; leave it out, or write chr({ord(character)})")
    count_of("max_rows", max_rows, 1, MAX_ROWS)
    number_of("max_seconds", max_seconds, 0.01, MAX_SECONDS)


def _shared(name: str, table: object) -> SharedFile:
    """Return a file for the process, with the table in Arrow's IPC format."""
    import pyarrow as pa

    if not isinstance(table, pa.Table) or not table.num_columns:
        raise InputError(f"table {shown(name)} is not accepted; expected an Arrow table with at least one column")

    def write(file: IO[bytes]) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    return share(write)


def _close_files(files: dict[str, SharedFile]) -> None:
    while files:
        unshare(files.popitem()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
    process.wait()

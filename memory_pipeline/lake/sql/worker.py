"""The process that parses, checks and runs SQL of agents: see :mod:`~memory_pipeline.lake.sql.session`.

Run as a script, it imports little of this package, so that it starts in a fraction of a second. It receives the tables
and then one query after the other on stdin, and answers on stdout. A message is its length (8 bytes, big-endian) and
its content: JSON on the way in, a pickle of plain values on the way out.

Three layers, each of which would stop most attacks alone:

1. the operating system: no environment, no new files or sockets, no writing to files, a limited address space, and an
   alarm, which no code can postpone, that ends a query that does not end itself;
2. DuckDB's settings: no external access, no extensions, no changes of settings, no spilling to disk;
3. the parsed tree: one SELECT, made of the nodes, tables, functions and types that
   :mod:`memory_pipeline.domain.sql_guard` lists.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import json
import mmap
import os
import pickle  # nosec B403  # only written here
import sys
import threading
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
from duckdb.func import SPECIAL

from memory_pipeline.domain.sql_guard import SqlGuard
from memory_pipeline.errors import InputError
from memory_pipeline.lake.sql.walks import FUNCTIONS, Walks
from memory_pipeline.operating_system import SharedFile, confine_process, set_alarm

#: DuckDB's memory limit for a query, in bytes. It does not count what scalar functions build, hence the second limit:
#: the address space that the process may use beyond that with its tables registered.
MEMORY = 512 * 1024**2
HEADROOM = 1536 * 1024**2
#: Seconds after the time limit at which the alarm ends the process, if the query ignores the interrupt.
GRACE = 0.5
#: The longest text in an answer, and the whole answer, in characters.
TEXT = 20_000
ANSWER = 1_000_000

_SETTINGS = {
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "enable_logging": "false",
    # Last, because it prevents further changes.
    "lock_configuration": "true",
}

#: The process must end after these errors: DuckDB refuses further queries, or memory is fragmented.
_WORN = (duckdb.FatalException, duckdb.InternalException, duckdb.OutOfMemoryException, MemoryError)


class QueryWorker:
    """The locked session over the given tables; answers one query at a time. A graph has table functions that walk."""

    def __init__(self, tables: dict[str, pa.Table], *, is_graph: bool = False) -> None:
        self._connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "allow_unsigned_extensions": False,
                "python_enable_replacements": False,
                "memory_limit": f"{MEMORY // 1024**2}MiB",
                "temp_directory": "",
                "threads": min(4, os.cpu_count() or 1),
                "async_threads": 1,
                "max_expression_depth": 250,
            }
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            self._connection.register(name, table)
            # Triggers the imports of DuckDB's client for scanning and returning a table, while imports are possible.
            view = self._connection.table(name)
            view.filter(duckdb.ColumnExpression(view.columns[0]).isnull()).limit(1).fetchall()
        self._walks = Walks(tables["facts"], tables["entities"]) if is_graph else None
        if self._walks is not None:
            self._create_functions(self._walks)
        self._connection.execute("SELECT TIMESTAMPTZ '2024-01-01', uuid(), 1.5::DECIMAL(3, 1)").fetchall()
        views = self._connection.execute("SELECT view_name FROM duckdb_views() WHERE internal").fetchall()
        self._rules = SqlGuard(
            {name: table.column_names for name, table in tables.items()},
            [view for (view,) in views],
            FUNCTIONS if is_graph else (),
        )
        for setting, value in _SETTINGS.items():
            self._connection.execute(f"SET {setting} = {value}")

    def _create_functions(self, walks: Walks) -> None:
        """Create the table functions of a graph. The guard refuses the functions of values below them."""
        for name, (arguments, columns) in FUNCTIONS.items():
            names = [argument.partition(" ")[0] for argument in arguments.split(", ")]
            self._connection.create_function(
                f"_{name}",
                getattr(walks, name),
                ["BIGINT" if one == "depth" else "VARCHAR" for one in names],
                f"STRUCT({columns})[]",
                null_handling=SPECIAL,
            )
            called = f"SELECT unnest(_{name}({', '.join(names)}), max_depth := 2)"
            self._connection.execute(f"CREATE MACRO {name}({arguments}) AS TABLE {called}")
            # The first call imports what a function in Python needs, while imports are possible.
            self._connection.execute(f"FROM {name}({', '.join('NULL' for _ in names[1:])})").fetchall()

    def answer(
        self, sql: str, max_rows: int, max_seconds: float
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]], bool]:
        """Return the columns, the rows and whether something was cut.

        Raises:
            InputError: the query is not allowed, or one row of its answer is too big.
            duckdb.Error: the query is wrong, or took too much time or memory.
        """
        timer = threading.Timer(max_seconds, self._connection.interrupt)
        timer.daemon = True
        set_alarm(max_seconds + GRACE)
        timer.start()
        try:
            self._rules.judge_kinds([statement.type.name for statement in self._connection.extract_statements(sql)])
            [(tree,)] = self._connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()
            self._rules.judge(tree)
            if self._walks is None:
                return self._run(sql, max_rows)
            self._walks.is_cut = False
            columns, rows, is_cut = self._run(sql, max_rows)
            return columns, rows, is_cut or self._walks.is_cut
        finally:
            # The rest of an answer would hold its memory until the next query.
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("SELECT 1")
            timer.cancel()
            timer.join()
            set_alarm(0)

    def _run(self, sql: str, max_rows: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]], bool]:
        result = self._connection.execute(sql)
        columns = tuple(_cut(column[0], [TEXT]) for column in result.description)
        rows: list[tuple[Any, ...]] = []
        left = [ANSWER]
        while row := result.fetchone():
            if len(rows) == max_rows:
                return columns, rows, True
            plain = tuple(_plain(value, left) for value in row)
            if left[0] < 0:
                if rows:
                    return columns, rows, True
                raise InputError(
                    f"the first row has more than {ANSWER:,} characters; select fewer columns, or the beginning of a "
                    "text with left(text, 1000)"
                )
            rows.append(plain)
        # A cut text has left its mark.
        return columns, rows, len(left) > 1


def _cut(text: str, left: list[int]) -> str:
    left[0] -= min(len(text), TEXT)
    if len(text) <= TEXT:
        return text
    left.append(0)
    return text[:TEXT] + "…"


def _plain(value: Any, left: list[int]) -> Any:
    """Return `value` as plain Python, with long texts cut; subtract its length in characters from `left[0]`."""
    if left[0] < 0:
        return None
    if isinstance(value, dict):
        return {_plain(key, left): _plain(item, left) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item, left) for item in value)
    if isinstance(value, bytes):
        left[0] -= min(len(value), TEXT)
        if len(value) > TEXT:
            left.append(0)
        return value[:TEXT]
    if isinstance(value, dt.datetime):
        # Naive times (no zone in SQL, or infinity) are in the session's zone, which is UTC.
        value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    elif value is not None and not isinstance(value, (bool, int, float, decimal.Decimal, dt.date, dt.timedelta)):
        # Including times of day and UUIDs.
        return _cut(str(value), left)
    left[0] -= 8
    return value


def _trouble(error: BaseException, max_seconds: float) -> str:
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, duckdb.InterruptException):
        return f"it took longer than {max_seconds:g} s; read fewer rows, or join on equal columns"
    if isinstance(error, (MemoryError, duckdb.OutOfMemoryException)):
        return f"it took more than {MEMORY // 1024**2} MB of memory; read fewer rows or columns, or group by less"
    # DuckDB quotes the query after an empty line.
    said = " ".join(str(error).partition("\n\nLINE ")[0].split()) or type(error).__name__
    said = said.rpartition("executing the UDF: InputError: ")[2]  # raised by the table functions
    return "".join(character if character.isprintable() else " " for character in said)[:400]


def tables_in(files: dict[str, SharedFile]) -> dict[str, pa.Table]:
    """Return the tables of the files, by name, without a copy, and close the files."""
    tables = {}
    for name, shared in files.items():
        with open(shared, "rb") as file:  # noqa: PTH123 - it may be a descriptor
            content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        tables[name] = pa.ipc.open_file(content).read_all()
    return tables


def _message(stream: BinaryIO) -> dict[str, Any] | None:
    length = stream.read(8)
    return json.loads(stream.read(int.from_bytes(length, "big"))) if len(length) == 8 else None


def _reply(stream: BinaryIO, *values: object) -> None:
    content = pickle.dumps(values)
    stream.write(len(content).to_bytes(8, "big") + content)
    stream.flush()


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer the queries from `source` on `target` until `source` ends."""
    message = _message(source)
    if message is None:
        return
    try:
        desk = QueryWorker(tables_in(message["tables"]), is_graph=message["is_graph"])
    except (duckdb.Error, pa.ArrowException) as error:
        _reply(target, False, _trouble(error, 0), True)
        return
    confine_process(HEADROOM)
    _reply(target, True)
    while (message := _message(source)) is not None:
        try:
            _reply(target, True, *desk.answer(message["sql"], message["max_rows"], message["max_seconds"]))
        except (InputError, duckdb.Error, MemoryError, ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            _reply(target, False, _trouble(error, message["max_seconds"]), isinstance(error, _WORN))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)

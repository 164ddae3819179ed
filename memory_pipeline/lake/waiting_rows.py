"""Rows of logs that wait in memory: a thread writes them to a file a few seconds later, or at the exit.

So a read costs no request, and a reader without write access reads too. A killed process loses the rows of its last
seconds. A file is ``{folder}/{ulid}.jsonl``, with a row a line; a run moves its rows to a table.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from ulid import ULID

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.lake.files.storage import Storage

_log = logging.getLogger(__name__)

#: Seconds until rows are written.
DELAY: Final = 5.0
#: Most rows that wait for a file; more are dropped.
_MOST_ROWS: Final = 10_000
#: Errors of a line that is no row. Those of PyArrow are among them, and that of JSON that is nested too deep.
_NO_ROW: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError, InputError)
#: The rows that wait, by process, address of the lake and folder, with a storage that writes them, and the lock of each
#: process. A fork has neither the threads of its parent nor a right to its rows.
_WAITING: dict[tuple[int, str, str], tuple[Storage, list[dict[str, object]]]] = {}
_LOCKS: dict[int, threading.Lock] = {}


def append(storage: Storage, folder: str, row: dict[str, object]) -> None:
    """Let a row wait. It gets an id when it is written, unless it has one."""
    place = os.getpid(), storage.uri, folder
    with _lock():
        is_first = place not in _WAITING
        _, rows = _WAITING.setdefault(place, (storage, []))
        if len(rows) < _MOST_ROWS:
            rows.append(row)
    if is_first:
        atexit.unregister(_write_all)
        atexit.register(_write_all)  # again: what is registered last runs first, so before connections are closed
        timer = threading.Timer(DELAY, _write, place)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:  # the interpreter shuts down, and writes them at its exit
            _log.debug("the rows of a log wait for the exit: %s", error)


def flush(storage: Storage, folder: str) -> None:
    """Write the waiting rows of this process to a file, also those of other objects for the same lake."""
    _write(os.getpid(), storage.uri, folder)


def files_in(
    storage: Storage, folder: str, parsed: Callable[[Sequence[bytes]], list[dict[str, Any]]]
) -> Iterator[tuple[str, list[dict[str, Any]], list[Rejection]]]:
    """Yield the files of a folder: the path, the rows, and the lines that are none. `parsed` returns those of lines."""
    for entry in storage.list(folder):
        lines = (storage.read(entry.path) or b"").splitlines()
        try:
            yield entry.path, parsed(lines), []
        except _NO_ROW:
            yield entry.path, *_one_by_one(entry.path, lines, parsed)


def _one_by_one(
    path: str, lines: Sequence[bytes], parsed: Callable[[Sequence[bytes]], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[Rejection]]:
    rows, rejected = list[dict[str, Any]](), []
    for number, line in enumerate(lines, 1):
        try:
            rows += parsed([line])
        except _NO_ROW as error:
            reason = f"not a row of the log of {path.partition('/')[0]}: {type(error).__name__}: {error}"
            rejected.append(Rejection(reason, f"{path}:{number}", line.decode(errors="replace")))
    return rows, rejected


def _lock() -> threading.Lock:
    return _LOCKS.setdefault(os.getpid(), threading.Lock())


def _write(process: int, uri: str, folder: str) -> None:
    with _lock():
        if (waiting := _WAITING.pop((process, uri, folder), None)) is None:
            return
    storage, rows = waiting
    try:
        first = secrets.token_hex(12)
        numbered = ({"id": f"{first}{number:08x}", **row} for number, row in enumerate(rows))
        data = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in numbered)
        storage.write(f"{folder}/{ULID()}.jsonl", data.encode(errors="replace"))
    except Exception as error:  # noqa: BLE001  # no read may fail because of its log
        _log.warning("%d rows of %s are lost: %s: %s", len(rows), folder, type(error).__name__, error)


def _write_all() -> None:
    for process, uri, folder in list(_WAITING):
        if process == os.getpid():
            _write(process, uri, folder)

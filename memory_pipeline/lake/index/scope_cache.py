"""Files with what a reader made of the rows of a scope, so that the next process maps them and reads no table.

A reader ignores a file that is damaged, of another form or of another scope, and never fails or waits because a file is
missing. The files of a local lake are in its folder ``cache``, by table. A commit that removes or changes rows of a
table deletes its files. The files of a bucket are in the user's cache folder. There, a process that looks for the first
time deletes all files that are not of the newest version of their table.

A file has arrays and Arrow tables, then their places as JSON, and a checksum. In a large file, they are as they are in
memory, and are mapped. In a small one, they are compressed: a quarter of the bytes, read in a few milliseconds.
"""

from __future__ import annotations

import io
import json
import logging
import mmap
import os
import struct
import threading
import zlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.files.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader

    from numpy.typing import NDArray

    from memory_pipeline.domain.scopes import Scope

_log = logging.getLogger(__name__)

#: The folder of the caches in a local lake.
CACHE: Final = "cache"
#: Length of the places, checksum of all before, and the name of this kind of file.
_END: Final = struct.Struct("<QI8s")
_MAGIC: Final = b"MPCACHE1"
#: Increase it if anything that is cached is made differently: files of before are then not used.
_FORM: Final = 3
#: A scope with so many rows at a grain is worth files.
CACHED_FROM: Final = 1_000
_ALIGNMENT, _CHUNK = 64, 1 << 20
#: Files with at least so many bytes are mapped.
_MAPPED_FROM: Final = 32 << 20
#: The compression of smaller ones.
_CODEC: Final = "zstd"


class CacheEntry(NamedTuple):
    """What was made of rows of a scope at a version of their table: arrays, tables and values for JSON."""

    version: int | None
    arrays: Mapping[str, NDArray[Any]]
    tables: Mapping[str, pa.Table]
    values: Mapping[str, Any]


class ScopeCache:
    """The cache files of a lake. Safe to use from several threads and processes.

    Args:
        storage: the lake's files.
        version_of: returns the newest version of a table by its name, or None without a table.
    """

    def __init__(self, storage: Storage, version_of: Callable[[str], int | None]) -> None:
        self._lake = storage
        self._version_of = version_of
        self._files: Storage | None = None
        self._lock = threading.Lock()

    def find(self, table: str, scope: Scope, part: str, form: str) -> CacheEntry | None:
        """Return what is cached of a scope, or None. Its version may be an earlier one.

        Args:
            table: the name of the table that has the rows.
            scope: of the rows.
            part: tells what was made of them from other things, in the name of the file.
            form: how it was made; another form is not found.
        """
        files = self._place()
        if files is None:
            return None
        path = Path(files.file_path(_path(table, scope, part)))
        try:
            with path.open("rb") as file:
                return _read(file, _owner(scope, part, form))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            _log.debug("%s is not used: %s", path, error)
            return None

    def has(self, table: str, scope: Scope, version: int) -> bool:
        """Return whether something is cached of a scope's rows at a version of their table."""
        files = self._place()
        if files is None:
            return False
        names = [name for name in files.names(f"{CACHE}/{table}") if name.startswith(_name(scope))]
        heads = (_head_in(Path(files.file_path(f"{CACHE}/{table}/{name}"))) for name in names)
        return any(head["version"] == version and head["of"][0] == _made_by() for head in heads if head)

    def store(self, table: str, scope: Scope, part: str, form: str, entry: CacheEntry) -> None:
        """Keep what was made of rows, unless its table has changed meanwhile. Does nothing if that is not possible."""
        files = self._place()
        if files is None or entry.version is None:
            return
        path = _path(table, scope, part)
        try:
            files.write_parts(path, _written(entry, _owner(scope, part, form)))
            # Who changes rows deletes files after the commit, and would miss one that is written later.
            if self._version_of(table) != entry.version:
                files.delete([path])
        except (OSError, LakeError) as error:
            _log.debug("%s is not cached: %s", path, error)

    def forget(self, table: str) -> None:
        """Delete what is cached of a table's rows, in a local lake."""
        if self._lake.is_local:
            folder = f"{CACHE}/{table}"
            self._lake.delete([f"{folder}/{name}" for name in self._lake.names(folder)])
            self._lake.remove(folder)  # with unfinished files; may stop if another process does the same

    def forget_stale(self) -> int:
        """Delete what is not of the newest version of its table. Return the number of deleted files."""
        files = self._place()
        return 0 if files is None else sum(self._forget_stale(files, table) for table in files.folders(CACHE))

    def _forget_stale(self, files: Storage, table: str) -> int:
        newest = self._version_of(table)
        stale = [
            entry.path
            for entry in files.list(f"{CACHE}/{table}")
            if (_head_in(Path(files.file_path(entry.path))) or {}).get("version") != newest
        ]
        files.delete(stale)
        files.leave([f"{CACHE}/{table}"])
        return len(stale)

    def _place(self) -> Storage | None:
        """Return where the files are; None if there is no such place."""
        with self._lock:
            if self._files is None and self._lake.is_local:
                self._files = self._lake
            elif self._files is None:
                with suppress(OSError, RuntimeError, LakeError):  # such as a user without a home
                    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
                    self._files = files = Storage(base / "memory-pipeline" / digest("lake", self._lake.uri))
                    for table in files.folders(CACHE):
                        self._forget_stale(files, table)
            return self._files


def tables_in(data: bytes) -> list[pa.Table] | None:
    """Return the tables in the bytes of a file of a cache; None for other or damaged files."""
    with suppress(ValueError, KeyError, TypeError, pa.ArrowException):
        places = _head(io.BytesIO(data))[0]["tables"].values()
        return [pa.ipc.open_stream(data[at : at + length]).read_all() for at, length in places]
    return None


def _path(table: str, scope: Scope, part: str) -> str:
    return f"{CACHE}/{table}/{_name(scope)}.{part}"


def _name(scope: Scope) -> str:
    """Return how the files of a scope begin: not with its key, because an erasure may search for that."""
    return digest(CACHE, scope.key)


def _owner(scope: Scope, part: str, form: str) -> list[str]:
    return [_made_by(), digest(part, form, scope.key, scope.workspace_id, scope.agent_id, scope.identity)]


@cache
def _made_by() -> str:
    """Return what made a file: another version of the package may lay out rows differently."""
    return f"{version('memory-pipeline')} {_FORM}"


def _written(entry: CacheEntry, owner: list[str]) -> Iterator[memoryview | bytes]:
    """Yield the parts of a file."""
    places: dict[str, list[object]] = {}
    tables: dict[str, list[int]] = {}
    at = checksum = 0
    size = sum(value.nbytes for value in (*entry.arrays.values(), *entry.tables.values()))
    codec = None if size >= _MAPPED_FROM else _CODEC

    def add(data: memoryview | bytes) -> Iterator[memoryview | bytes]:
        nonlocal at, checksum
        for part in (data, bytes(-len(data) % _ALIGNMENT)):
            checksum = zlib.crc32(part, checksum)
            at += len(part)
            yield part

    for name, array in entry.arrays.items():
        whole = np.ascontiguousarray(array)
        numbers = memoryview(whole.reshape(-1).view(np.uint8).data)
        stored = numbers if codec is None else pa.compress(numbers, codec, asbytes=True)
        places[name] = [at, len(stored), whole.dtype.str, *whole.shape]
        yield from add(stored)
    for name, table in entry.tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table.combine_chunks())
        data = memoryview(sink.getvalue())
        tables[name] = [at, len(data)]
        yield from add(data)
    head = {"of": owner, "version": entry.version, "codec": codec}
    text = json.dumps({**head, "arrays": places, "tables": tables, "values": entry.values}).encode()
    yield from (text, _END.pack(len(text), zlib.crc32(text, checksum), _MAGIC))


def _read(file: BufferedReader, owner: list[str]) -> CacheEntry | None:
    """Return what a file has, or None if it is of others. Raise a ValueError if it is damaged."""
    head, size = _head(file)
    if head["of"] != owner:
        return None
    # Mapped pages count as memory of the process, so the checksum reads the file instead.
    file.seek(0)
    checksum, left, buffer = 0, size - _END.size, bytearray(_CHUNK)
    while left:
        count = file.readinto(memoryview(buffer)[: min(left, _CHUNK)])
        if not count:
            raise ValueError("it is shorter than it was")
        checksum = zlib.crc32(memoryview(buffer)[:count], checksum)
        left -= count
    file.seek(size - _END.size)
    if checksum != _END.unpack(file.read(_END.size))[1]:
        raise ValueError("its checksum is wrong")
    mapped = pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    codec: str | None = head["codec"]

    def array(at: int, length: int, dtype: str, *shape: int) -> NDArray[Any]:
        count = int(np.prod(shape, dtype=np.int64))
        stored = mapped.slice(at, length)
        whole = stored if codec is None else pa.decompress(stored, count * np.dtype(dtype).itemsize, codec)
        return np.frombuffer(whole, dtype, count).reshape(shape)

    arrays = {name: array(*place) for name, place in head["arrays"].items()}
    tables = {
        name: pa.ipc.open_stream(mapped.slice(at, length)).read_all() for name, (at, length) in head["tables"].items()
    }
    return CacheEntry(head["version"], arrays, tables, head["values"])


def _head(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the places and the size of a file. Raise a ValueError if it is no file of a cache."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        raise ValueError("it is too short")
    file.seek(size - _END.size)
    length, _, magic = _END.unpack(file.read(_END.size))
    if magic != _MAGIC or length > size - _END.size:
        raise ValueError("it is no file of a cache")
    file.seek(size - _END.size - length)
    head: dict[str, Any] = json.loads(file.read(length))
    return head, size


def _head_in(path: Path) -> dict[str, Any] | None:
    """Return the places of a file, or None for another kind of file."""
    with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
        return _head(file)[0]
    return None

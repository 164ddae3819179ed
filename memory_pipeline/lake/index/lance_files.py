"""The files of Lance tables: which of them a version names, and which no reader needs any more.

A version of a table is a manifest, which names its files. This module reads manifests as bytes and never opens a table.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake.files.storage import FileInfo, Storage

#: A file that is younger than this may belong to a write that has not committed yet.
LONGEST_WRITE = timedelta(hours=1)
#: How many manifests are read at once.
_THREADS = 8
_TABLE = re.compile(r"(vectordb/[^/]+/[^/]+\.lance)/(.+)")
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest")
_NAMED = re.compile(r"data/(?P<data>[^/]+)|_transactions/(?P<transaction>[^/]+)|_indices/(?P<index>[^/]+)/.+")
_DELETIONS = re.compile(r"_deletions/\d+-(\d+)-(\d+)\.\w+")
#: How a manifest ends that is whole.
_END = b"LANC"
#: Manifests of today's format count down from here, so that the newest one is listed first.
_COUNTED_DOWN, _DIGITS = 2**64 - 1, 20


@dataclass(frozen=True, slots=True)
class LanceFiles:
    """What lies in the folder of one table.

    Attributes:
        path: of the folder, below the lake's root.
        manifests: of the versions, oldest first.
        others: all other files.
    """

    path: str
    manifests: list[FileInfo]
    others: list[FileInfo]

    @property
    def changed_at(self) -> datetime:
        """When the last file was written, UTC."""
        return max(entry.modified_at for entry in (*self.manifests, *self.others))

    @property
    def data_files(self) -> int:
        """How many files hold rows, of whatever version."""
        return sum(entry.path.startswith(f"{self.path}/data/") for entry in self.others)

    def superseded(self, before: datetime) -> list[FileInfo]:
        """Return the manifests of versions that were no longer the newest one at `before`."""
        return [old for old, new in pairwise(self.manifests) if new.modified_at < before]

    def unneeded(self, storage: Storage, before: datetime, now: datetime) -> tuple[list[FileInfo], list[FileInfo]]:
        """Return what can be deleted: old versions with the files that only they name, and files that none names.

        The manifests come first: a process that is killed while it deletes leaves files that no version names.

        Args:
            storage: the lake's files.
            before: versions that were superseded before this time are not needed.
            now: the time. Files that no version names count from :data:`LONGEST_WRITE` before it on.
        """
        superseded = self.superseded(before)
        with ThreadPoolExecutor(_THREADS) as pool:
            paths = [entry.path for entry in self.manifests]
            read = dict(zip(paths, pool.map(storage.read, paths), strict=True))
        # Another process deletes versions right now, or one is damaged: then nobody can tell what it names.
        if not all(data is not None and data.endswith(_END) for data in read.values()):
            return [], []
        kept = b"".join(read[entry.path] or b"" for entry in self.manifests[len(superseded) :])
        old = b"".join(read[entry.path] or b"" for entry in superseded)
        versions, unnamed = list(superseded), []
        for entry in self.others:
            name = entry.path.removeprefix(f"{self.path}/")
            if _is_named(name, kept, is_table=bool(self.manifests)):
                continue
            if old and _is_named(name, old, is_table=False):
                versions.append(entry)
            elif entry.modified_at < now - LONGEST_WRITE:
                unnamed.append(entry)
        return versions, unnamed


def lance_tables(storage: Storage, workspace_id: str | None = None) -> Iterator[LanceFiles]:
    """Yield the files of each Lance table of the lake, or of one workspace."""
    for name in storage.folders("vectordb"):
        if not name.startswith("_") and workspace_id in (None, name):
            yield from _tables_in(storage, f"vectordb/{name}")


def lance_table(storage: Storage, path: str) -> LanceFiles | None:
    """Return the files of the table in the folder `path`; None where there is none."""
    return next(_tables_in(storage, path), None)


def _tables_in(storage: Storage, folder: str) -> Iterator[LanceFiles]:
    entries = [entry for entry in storage.list(folder) if _TABLE.fullmatch(entry.path)]
    for path, group in groupby(entries, key=_table_of):
        manifests: list[tuple[int, FileInfo]] = []
        others: list[FileInfo] = []
        for entry in group:
            number = _version_of(entry.path.removeprefix(f"{path}/"))
            if number is None:
                others.append(entry)
            else:
                manifests.append((number, entry))
        manifests.sort(key=lambda each: each[0])
        yield LanceFiles(path, [entry for _, entry in manifests], others)


def _table_of(entry: FileInfo) -> str:
    found = _TABLE.fullmatch(entry.path)
    assert found is not None  # noqa: S101 - others were left out
    return found[1]


def _version_of(name: str) -> int | None:
    """Return the number of the version whose manifest has a name; None of other files."""
    found = _MANIFEST.fullmatch(name)
    if found is None:
        return None
    return _COUNTED_DOWN - int(found[1]) if len(found[1]) == _DIGITS else int(found[1])


def _is_named(name: str, versions: bytes, *, is_table: bool) -> bool:
    """Tell whether versions may name a file; one that is of no known kind belongs to the table, if it is one."""
    deletions = _DELETIONS.fullmatch(name)
    if deletions is not None:
        # A version says of them what their names say, in numbers: fields 2 and 3 of a message.
        return b"\x10" + _varint(int(deletions[1])) + b"\x18" + _varint(int(deletions[2])) in versions
    found = _NAMED.fullmatch(name)
    if found is None:
        return is_table
    own = found["data"] or found["transaction"]
    if own:
        return own.encode() in versions
    try:
        return UUID(found["index"]).bytes in versions
    except ValueError:
        return is_table


def _varint(number: int) -> bytes:
    """Return a number as protocol buffers write it."""
    written = bytearray()
    while number > 0x7F:  # seven bits a byte
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)

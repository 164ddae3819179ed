"""Knowledge of Lance tables beyond lancedb's API: file names, manifests, row ids and errors.

A version of a table is a manifest, which lists its files. This module reads manifests as bytes, without opening a
table, to find files that no reader needs. ``AsyncTable.optimize(cleanup_older_than=…)`` deletes such files too, but
first rewrites nearly the whole table, measures a version's age from its creation instead of its replacement, does not
list files, and keeps files of killed writers for a week.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from memory_pipeline.lake.files.storage import FileInfo, Storage

#: The versions of lancedb for which this was verified.
LANCEDB = ("0.40.0",)
#: A younger file may belong to a write that has not committed yet.
LONGEST_WRITE = timedelta(hours=1)
#: Number of manifests read concurrently.
_THREADS = 8
_TABLE = re.compile(r"((?:vectordb/[^/]+|projections)/[^/]+\.lance)/(.+)")
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest")
_NAMED = re.compile(r"data/(?P<data>[^/]+)|_transactions/(?P<transaction>[^/]+)|_indices/(?P<index>[^/]+)/.+")
_DELETIONS = re.compile(r"_deletions/\d+-(\d+)-(\d+)\.\w+")
#: Files with rows, of a table or of its indices.
_ROWS = re.compile(r"data/[^/]+\.lance|_indices/[^/]+/.*")
#: LanceDB's errors for a file that is truncated or was written by another program.
_DAMAGED = re.compile(
    r"LanceError\((IO|Arrow|Schema|Index|CorruptFile)\)|[Cc]orrupt|[Dd]ecod|too small|panick"
    r"|Invalid (range|input, file)"
)
#: The beginning of a transaction in a manifest, up to its id.
_TRANSACTION = re.compile(rb"(?:\x08[\x80-\xff]*[\x00-\x7f])?\x12\x24([0-9a-f-]{36})")
#: The last bytes of a complete manifest.
_END = b"LANC"
#: Names of manifests count down from here, so that the newest is listed first.
_COUNTED_DOWN, _DIGITS = 2**64 - 1, 20


@dataclass(frozen=True, slots=True)
class LanceFiles:
    """The files in the folder of one table.

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
        """The number of files with rows, of any version."""
        return sum(entry.path.startswith(f"{self.path}/data/") for entry in self.others)

    def superseded(self, before: datetime) -> list[FileInfo]:
        """Return the manifests of versions that were superseded before a time."""
        return [old for old, new in pairwise(self.manifests) if new.modified_at < before]

    def unneeded(self, storage: Storage, before: datetime, now: datetime) -> tuple[list[FileInfo], list[FileInfo]]:
        """Return the files to delete: old versions with the files that only they list, and files that no version lists.

        The manifests come first: if a process is killed while deleting, it leaves files that no version lists.

        Args:
            storage: the lake's files.
            before: versions superseded before this time are not needed.
            now: the time. Files that no version lists must be :data:`LONGEST_WRITE` older.
        """
        superseded = self.superseded(before)
        read = self._manifests(storage)
        if read is None:
            return [], []
        kept = _listed(read[entry.path] for entry in self.manifests[len(superseded) :])
        old = b"".join(read[entry.path] for entry in superseded)
        versions, unnamed = list(superseded), []
        for entry in self.others:
            name = entry.path.removeprefix(f"{self.path}/")
            if is_named(name, kept, is_table=bool(self.manifests)):
                continue
            if old and is_named(name, old, is_table=False):
                versions.append(entry)
            elif entry.modified_at < now - LONGEST_WRITE:
                unnamed.append(entry)
        return versions, unnamed

    def unread_indices(self, storage: Storage) -> list[FileInfo]:
        """Return the files of indices, of any age, that no version lists."""
        indices = [entry for entry in self.others if is_of_index(entry.path)]
        read = self._manifests(storage) if indices else None
        if read is None:
            return []
        listed, is_table = _listed(read[entry.path] for entry in self.manifests), bool(self.manifests)
        names = ((entry, entry.path.removeprefix(f"{self.path}/")) for entry in indices)
        return [entry for entry, name in names if not is_named(name, listed, is_table=is_table)]

    def _manifests(self, storage: Storage) -> dict[str, bytes] | None:
        """Return the bytes of all manifests, or None if the files of some version are unknown.

        Another process is deleting versions then, or one is damaged.
        """
        paths = [entry.path for entry in self.manifests]
        if storage.is_local:
            read = list(map(storage.read, paths))
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                read = list(pool.map(storage.read, paths))
        known = {path: data for path, data in zip(paths, read, strict=True) if data is not None and data.endswith(_END)}
        return known if len(known) == len(paths) else None


def lance_tables(storage: Storage) -> Iterator[LanceFiles]:
    """Yield the files of each Lance table of the lake."""
    yield from _tables_in(storage, "projections")
    for name in storage.folders("vectordb"):
        yield from _tables_in(storage, f"vectordb/{name}")


def lance_table(storage: Storage, path: str) -> LanceFiles | None:
    """Return the files of the table in the folder `path`, or None."""
    return next(_tables_in(storage, path), None)


def _tables_in(storage: Storage, folder: str) -> Iterator[LanceFiles]:
    entries = [entry for entry in storage.list(folder) if table_of(entry.path)]
    for path, group in groupby(entries, key=lambda entry: str(table_of(entry.path))):
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


def _version_of(name: str) -> int | None:
    """Return the version number in the name of a manifest, or None for other files."""
    found = _MANIFEST.fullmatch(name)
    if found is None:
        return None
    return _COUNTED_DOWN - int(found[1]) if len(found[1]) == _DIGITS else int(found[1])


def newest_manifest(names: Iterable[str]) -> tuple[int, str] | None:
    """Return the number and the name of the newest of the manifests in a folder, or None without one."""
    versions = ((number, name) for name in names if (number := _version_of(f"_versions/{name}")) is not None)
    return max(versions, default=None)


def metadata_in(manifest: bytes, key: bytes) -> bytes | None:
    """Return the value of a key in the metadata of a table's schema, of less than 128 bytes, or None."""
    # An entry of a map is a protobuf message: field 1 is the key, field 2 the value.
    place = manifest.find(b"\x0a" + bytes([len(key)]) + key + b"\x12")
    if place < 0:
        return None
    start = place + len(key) + 4
    return manifest[start : start + manifest[start - 1]]


def table_of(path: str) -> str | None:
    """Return the folder of the table that a file belongs to, or None for other files."""
    found = _TABLE.fullmatch(path)
    return None if found is None else found[1]


def holds_rows(name: str) -> bool:
    """Return whether a file of a table holds rows, by its name in the table's folder."""
    return _ROWS.fullmatch(name) is not None


def is_of_index(path: str) -> bool:
    """Return whether a file of a table belongs to an index."""
    return "/_indices/" in path


def is_manifest(name: str) -> bool:
    """Return whether a file of a table is a manifest, by its name in the table's folder."""
    return name.startswith("_versions/") and name.endswith(".manifest")


def files_of(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers of the files that contain rows, by the rows' ids."""
    return ids >> np.uint64(32)


def places_of(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the positions of rows in their files, by the rows' ids."""
    return ids & np.uint64(0xFFFFFFFF)


def files_with_deletions(storage: Storage, path: str) -> set[int]:
    """Return the numbers of the files with deleted rows, of the table in the folder `path`."""
    return {int(entry.path.rpartition("/")[2].partition("-")[0]) for entry in storage.list(f"{path}/_deletions")}


def has_vanished(error: Exception) -> bool:
    """Return whether an error says that a table, or a file of one of its versions, is missing."""
    text = str(error).lower()
    return "not found" in text or "no such file" in text


def is_conflict(error: Exception) -> bool:
    """Return whether an error says that another process committed first."""
    text = str(error)
    return "commit conflict" in text or "concurrent writers" in text


def is_damage(error: Exception) -> bool:
    """Return whether an error says that a file is missing or damaged."""
    return has_vanished(error) or _DAMAGED.search(str(error)) is not None


def is_named(name: str, versions: bytes, *, is_table: bool) -> bool:
    """Return whether versions may list a file. An unknown kind of file counts as listed if there is a table.

    Args:
        name: of the file in the table's folder.
        versions: the bytes of their manifests.
        is_table: whether there is a table.
    """
    deletions = _DELETIONS.fullmatch(name)
    if deletions is not None:
        # Versions store the numbers of such a name, as fields 2 and 3 of a protobuf message.
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


def _listed(manifests: Iterable[bytes]) -> bytes:
    """Return what manifests, the oldest first, list: the newest first, where most names are found at once."""
    return b"".join(map(_without_transaction, [*manifests][::-1]))


def _without_transaction(manifest: bytes) -> bytes:
    """Return a manifest without the transaction that it begins with, which names the files that a compaction replaced.

    Its size precedes it, and its first fields are the version that it read and its own id, which name its file, too.
    """
    end = 4 + int.from_bytes(manifest[:4], "little")
    found = _TRANSACTION.match(manifest, 4, end)
    own = found and found[1] + b".txn"
    return manifest[end:] if own and own in manifest[end:] else manifest


def _varint(number: int) -> bytes:
    """Return a number as a protobuf varint."""
    written = bytearray()
    while number > 0x7F:  # seven bits per byte
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)

"""Knowledge of Delta logs beyond deltalake's API: file names, and how to purge.

The log has a file for each version, and occasional checkpoints that describe the whole table. Versions before a
checkpoint are only history; they name removed partitions and files.

Young versions cannot be deleted: a writer that started earlier could commit under one of their numbers, unnoticed. They
cannot be emptied either: a reader would take them for commits without effect. They are overwritten by a text that is
not a commit, so that readers and writers fail, start over, and find the checkpoint. Versions older than any running
reader or writer are deleted.

``DeltaTable.cleanup_metadata`` deletes versions older than a table property. A value of zero loses commits; with larger
ones the names stay. Measurements are in docs/decisions/0002-delta-tables.md.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.lake.files.storage import FileInfo, Storage

#: The versions of deltalake for which this was verified.
DELTALAKE = ("1.6.6",)
#: The longest time that a reader or writer may use a version.
IN_FLIGHT = timedelta(hours=1)
#: The table property that says how long checkpoints name removed files.
RETENTION = "delta.deletedFileRetentionDuration"
#: A vacuum writes a checkpoint after this many commits, if they take this share of the last checkpoint's bytes.
_MANY, _PART = 16, 0.25
#: Not a valid commit.
_STUB = b"purged\n"
_FILE = re.compile(r"(\d{20})\.(json|checkpoint\..+|.+\.json)")
#: How entries begin that add or remove files.
_CHANGES = (b'{"add":', b'{"remove":', b'"predicate":')


class Log:
    """The log files of the table at `path` below the lake's root."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._folder = f"{path}/_delta_log"

    def needs_checkpoint(self, version: int) -> bool:
        """Return whether the commits since the last checkpoint justify the size of another one."""
        checkpoints, commits = self._files()
        latest = max(checkpoints, default=-1)
        since = sum(entry.size for number, entry in commits.items() if number > latest)
        size = sum(entry.size for entry in checkpoints.get(latest, ()))
        return version - latest >= _MANY and since >= _PART * size

    def superseded(self, before: datetime) -> list[FileInfo]:
        """Return the log entries older than a time that a checkpoint older than that time replaces."""
        checkpoints, commits = self._files()
        whole = [
            number for number, entries in checkpoints.items() if all(entry.modified_at < before for entry in entries)
        ]
        latest = max(whole, default=-1)
        old = [entry for number, entry in commits.items() if number < latest and entry.modified_at < before]
        return old + [entry for number, entries in checkpoints.items() if number < latest for entry in entries]

    def is_purged(self) -> bool:
        """Return whether nothing has changed since the last purge."""
        checkpoints, commits = self._files()
        latest = max(checkpoints, default=None)
        if latest is None or len(checkpoints) > 1 or latest not in commits:
            return False
        # Only a purge writes its checkpoint after such a commit; other checkpoints name removed files.
        if RETENTION.encode() not in (self._storage.read(commits[latest].path) or b""):
            return False
        return not any(self._changes(entry) for entry in commits.values())

    def purge(self, version: int) -> None:
        """Delete everything before the checkpoint of a version."""
        checkpoints, commits = self._files()
        # The version's own commit is young, so its time is close to now.
        deadline = commits[version].modified_at - IN_FLIGHT
        before = [entry for number, entry in commits.items() if number < version]
        for entry in before:
            if entry.modified_at >= deadline and entry.size != len(_STUB):
                self._storage.overwrite(entry.path, _STUB)
        self._storage.delete(entry.path for entry in before if entry.modified_at < deadline)
        self._storage.delete(
            entry.path for number, entries in checkpoints.items() if number < version for entry in entries
        )

    def _changes(self, entry: FileInfo) -> bool:
        if entry.size == len(_STUB):
            return False
        data = self._storage.read(entry.path) or b""
        return any(word in data for word in _CHANGES)

    def _files(self) -> tuple[dict[int, list[FileInfo]], dict[int, FileInfo]]:
        checkpoints: dict[int, list[FileInfo]] = {}
        commits: dict[int, FileInfo] = {}
        for entry in self._storage.list(self._folder):
            found = _FILE.fullmatch(entry.path.rpartition("/")[2])
            if found is not None and found[2] == "json":
                commits[int(found[1])] = entry
            elif found is not None:
                checkpoints.setdefault(int(found[1]), []).append(entry)
        return checkpoints, commits

"""What this package knows of the log of Delta tables beyond deltalake's interface: names of files, and how to purge.

The log is a file for each version and now and then a checkpoint, which says by itself what the table holds. Versions
before a checkpoint are only history, which names partitions and files that were removed since.

They must not simply be deleted: a writer that began before could then commit under the number of one of them, where
nobody would see it; nor be emptied: a reader that found them before would take them for commits without effect. So what
stands in a young one is replaced by a word that is no commit, at which both stop, look again, and find the checkpoint.
Old ones, that no writer or reader can still be at, are deleted.

``DeltaTable.cleanup_metadata`` deletes what is older than a property of the table says: with nought it loses commits,
with more the names stay. Figures are in docs/decisions/0002-delta-tables.md.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.lake.files.storage import FileInfo, Storage

#: The versions of deltalake of which this was found to hold.
DELTALAKE = ("1.6.6",)
#: How long a writer or a reader may be at a version at most.
IN_FLIGHT = timedelta(hours=1)
#: The property of a table that says how long checkpoints name files that were removed.
RETENTION = "delta.deletedFileRetentionDuration"
#: A vacuum writes a checkpoint after so many commits whose entries take so large a part of the last one's bytes.
_MANY, _PART = 16, 0.25
#: What is no commit.
_STUB = b"purged\n"
_FILE = re.compile(r"(\d{20})\.(json|checkpoint\..+|.+\.json)")
#: What commits say that put files in or take them out.
_CHANGES = (b'{"add":', b'{"remove":', b'"predicate":')


def commit_path(path: str, version: int) -> str:
    """Return where the commit of a version of the table at `path` lies, once there is one."""
    return f"{path}/_delta_log/{version:020}.json"


class Log:
    """The log, as files, of the table at `path` below the lake's root."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._folder = f"{path}/_delta_log"

    def needs_checkpoint(self, version: int) -> bool:
        """Tell whether so much was committed since the last checkpoint that another is worth its bytes."""
        checkpoints, commits = self._files()
        latest = max(checkpoints, default=-1)
        since = sum(entry.size for number, entry in commits.items() if number > latest)
        size = sum(entry.size for entry in checkpoints.get(latest, ()))
        return version - latest >= _MANY and since >= _PART * size

    def superseded(self, before: datetime) -> list[FileInfo]:
        """Return the entries that a checkpoint stands for which was there at `before`, as far as they are as old."""
        checkpoints, commits = self._files()
        whole = [
            number for number, entries in checkpoints.items() if all(entry.modified_at < before for entry in entries)
        ]
        latest = max(whole, default=-1)
        old = [entry for number, entry in commits.items() if number < latest and entry.modified_at < before]
        return old + [entry for number, entries in checkpoints.items() if number < latest for entry in entries]

    def is_purged(self) -> bool:
        """Tell whether nothing was changed since it was last purged."""
        checkpoints, commits = self._files()
        latest = max(checkpoints, default=None)
        if latest is None or len(checkpoints) > 1 or latest not in commits:
            return False
        # Only a purge writes its checkpoint after such a commit; others name files that were removed.
        if RETENTION.encode() not in (self._storage.read(commits[latest].path) or b""):
            return False
        return not any(self._changes(entry) for entry in commits.values())

    def purge(self, version: int) -> None:
        """Take away all that lies before the checkpoint of a version."""
        checkpoints, commits = self._files()
        # The version's own commit is young, so that its time is now's.
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
        """Return the files of checkpoints and of commits by version."""
        checkpoints: dict[int, list[FileInfo]] = {}
        commits: dict[int, FileInfo] = {}
        for entry in self._storage.list(self._folder):
            found = _FILE.fullmatch(entry.path.rpartition("/")[2])
            if found is not None and found[2] == "json":
                commits[int(found[1])] = entry
            elif found is not None:
                checkpoints.setdefault(int(found[1]), []).append(entry)
        return checkpoints, commits

"""Takes from the disk what a Delta table no longer holds, and what its log says of it, beside readers and writers.

The log is a file for each version and now and then a checkpoint, which says by itself what the table holds. Versions
before a checkpoint are only history, which names partitions and files that were removed since.

They must not simply be deleted: a writer that began before could then commit under the number of one of them, where
nobody would see it; nor be emptied: a reader that found them before would take them for commits without effect. So what
stands in a young one is replaced by a word that is no commit, at which both stop, look again, and find the checkpoint.
Old ones, that no writer or reader can still be at, are deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_pipeline.lake.files.storage import FileInfo, Storage

#: How long a writer or a reader may be at a version at most.
_IN_FLIGHT = _HOUR = timedelta(hours=1)
#: How long checkpoints name files that were removed, and what it is where nobody has set it.
_RETENTION, _USUALLY = "delta.deletedFileRetentionDuration", "interval 1 weeks"
#: A vacuum writes a checkpoint after so many commits whose entries take so large a part of the last one's bytes.
_MANY, _PART = 16, 0.25
#: Of an hour: a time of grace is rounded up to hours, but not because some seconds have passed.
_MOMENTS = 0.05
_STUB = b"purged\n"
_FILE = re.compile(r"(\d{20})\.(json|checkpoint\..+|.+\.json)")
#: What commits say that put files in or take them out.
_CHANGES = (b'{"add":', b'{"remove":', b'"predicate":')


@dataclass(frozen=True, slots=True)
class Purged:
    """What left the disk: files and their bytes, without those of the log."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Purged) -> Purged:
        return Purged(self.files + other.files, self.bytes + other.bytes)


class Purge:
    """Purges a table, once or in several attempts.

    Args:
        storage: where it lies.
        path: of the table, below the root.
        grace: how long removed files stay.
        orphans: how old files must be that the log does not know; None leaves them.

    Raises:
        InputError: a duration is not accepted.
    """

    def __init__(self, storage: Storage, path: str, grace: timedelta, orphans: timedelta | None) -> None:
        if grace < timedelta(0):
            raise InputError(f"grace {shown(str(grace))} is not accepted; expected 0 or more")
        if orphans is not None and orphans < _HOUR:
            raise InputError(f"orphans {shown(str(orphans))} is not accepted; expected an hour or more")
        self.purged = Purged()
        self._storage = storage
        self._path = path
        self._grace = ceil(grace / _HOUR)
        self._orphans = None if orphans is None else ceil(orphans / _HOUR)

    def make(self, table: Any) -> Purged:
        """Purge a table, of which a handle of deltalake's is given; return what has gone, also by attempts before."""
        found = self._vacuum(table, self._grace)
        if self._orphans is not None:
            found += self._vacuum(table, self._orphans, full=True)
        if found or self._orphans is not None:
            self._storage.prune(self._path)
        log = Log(self._storage, self._path)
        if not log.is_purged():
            log.purge(self._checkpoint(table))
        return self.purged

    def _vacuum(self, table: Any, hours: int, *, full: bool = False) -> int:
        """Delete files that were removed so many hours ago, if `full` also others as old; return how many."""
        before = self._found(table, hours, full=full)
        if not before:  # what is found is gone already, and only the log speaks of it
            return 0
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=full)
        gone = before.keys() - self._storage.sizes(before, self._path).keys()
        self.purged += Purged(len(gone), sum(before[name] for name in gone))
        return len(gone)

    def _found(self, table: Any, hours: int, *, full: bool) -> dict[str, int]:
        """Return the files that :meth:`_vacuum` would delete, with their bytes."""
        table.update_incremental()
        root = self._storage.locate(self._path)
        found = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=full)
        return self._storage.sizes(
            {f"{self._path}/{name.removeprefix(root).lstrip('/')}" for name in found}, self._path
        )

    def _checkpoint(self, table: Any) -> int:
        """Write a checkpoint that names no files that were removed before the time of grace; return its version."""
        table.update_incremental()
        table.alter.set_table_properties({_RETENTION: f"interval {self._grace} hours"})
        version: int = table.version()
        table.create_checkpoint()
        table.alter.set_table_properties({_RETENTION: _USUALLY})
        return version


class Vacuum(Purge):
    """Deletes what is older, once or in several attempts; what is younger, and the log of it, stays for others.

    Args:
        storage: where the table lies.
        path: of the table, below the root.
        before: what was removed from the table before this time goes.
        now: the time. Files that no version names count from an hour before it on.
        dry_run: only count.
    """

    def __init__(self, storage: Storage, path: str, before: datetime, now: datetime, *, dry_run: bool) -> None:
        super().__init__(storage, path, timedelta(), None)
        self.found = dict.fromkeys(("replaced", "tables", "logs"), Purged())
        self._before = before
        self._left_before = min(before, now - _IN_FLIGHT)
        self._dry_run = dry_run

    def clean(self, table: Any) -> dict[str, Purged]:
        """Clean a table, of which a handle of deltalake's is given; return what has gone, also by attempts before."""
        log = Log(self._storage, self._path)
        replaced, left = _hours_since(self._before), _hours_since(self._left_before)
        if self._dry_run:
            old = self._found(table, replaced, full=False)
            unnamed = self._found(table, left, full=True)
            self._count("replaced", old.values())
            self._count("tables", [unnamed[name] for name in unnamed.keys() - old.keys()])
        else:
            for kind, hours in (("replaced", replaced), ("tables", left)):
                self.purged = Purged()
                self._vacuum(table, hours, full=kind == "tables")
                self.found[kind] += self.purged
            if self.found["replaced"].files or self.found["tables"].files:
                self._storage.prune(self._path)
            table.update_incremental()
            if log.needs_checkpoint(table.version()):
                table.create_checkpoint()
        entries = log.superseded(self._left_before)
        self._count("logs", [entry.size for entry in entries])
        if not self._dry_run:
            self._storage.delete(entry.path for entry in entries)
        return self.found

    def _count(self, kind: str, sizes: Collection[int]) -> None:
        self.found[kind] += Purged(len(sizes), sum(sizes))


def _hours_since(moment: datetime) -> int:
    """Return how many hours ago a moment was, rounded up, by the clock, as deltalake counts."""
    return max(0, ceil((datetime.now(UTC) - moment) / _HOUR - _MOMENTS))


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
        if _RETENTION.encode() not in (self._storage.read(commits[latest].path) or b""):
            return False
        return not any(self._changes(entry) for entry in commits.values())

    def purge(self, version: int) -> None:
        """Take away all that lies before the checkpoint of a version."""
        checkpoints, commits = self._files()
        # The version's own commit is young, so that its time is now's.
        deadline = commits[version].modified_at - _IN_FLIGHT
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

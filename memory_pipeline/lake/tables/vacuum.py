"""Deletes data files and log entries that a Delta table no longer needs, beside readers and writers.

deltalake deletes data files and writes checkpoints; :mod:`~memory_pipeline.lake.tables.delta_log` deletes the history
before a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.tables.delta_log import IN_FLIGHT, RETENTION, Log

if TYPE_CHECKING:
    from collections.abc import Collection

    from memory_pipeline.lake.files.storage import Storage

_HOUR = timedelta(hours=1)
#: How long checkpoints name removed files by default.
_USUALLY = "interval 1 weeks"
#: In hours: a few extra seconds do not round grace up to the next hour.
_MOMENTS = 0.05


@dataclass(frozen=True, slots=True)
class Purged:
    """Deleted files and their bytes, without those of the log."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Purged) -> Purged:
        return Purged(self.files + other.files, self.bytes + other.bytes)


class Purge:
    """Purges the table at `path`, in one or several attempts.

    Removed files are kept for `grace`, and files unknown to the log for `orphans`; None keeps them.

    Raises:
        InputError: a duration is invalid.
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
        """Purge a table, given a deltalake handle. Return the deleted files, including those of earlier attempts."""
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
        """Delete files removed at least `hours` ago (with `full`, also unknown ones that old). Return their number."""
        before = self._found(table, hours, full=full)
        if not before:  # the files are gone already, and only the log names them
            return 0
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=full)
        gone = before.keys() - self._storage.sizes(before, self._path).keys()
        self.purged += Purged(len(gone), sum(before[name] for name in gone))
        return len(gone)

    def _found(self, table: Any, hours: int, *, full: bool) -> dict[str, int]:
        table.update_incremental()
        root = self._storage.locate(self._path)
        found = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=full)
        return self._storage.sizes(
            {f"{self._path}/{name.removeprefix(root).lstrip('/')}" for name in found}, self._path
        )

    def _checkpoint(self, table: Any) -> int:
        """Write a checkpoint without files removed before the grace period. Return its version."""
        table.update_incremental()
        table.alter.set_table_properties({RETENTION: f"interval {self._grace} hours"})
        version: int = table.version()
        table.create_checkpoint()
        table.alter.set_table_properties({RETENTION: _USUALLY})
        return version


class Vacuum(Purge):
    """Deletes old files of the table at `path`, in one or several attempts. Younger files and their log entries stay.

    Files removed from the table before `before` are deleted. Files that no version lists must be an hour older than
    `now`.
    """

    def __init__(self, storage: Storage, path: str, before: datetime, now: datetime, *, dry_run: bool) -> None:
        super().__init__(storage, path, timedelta(), None)
        self.found = dict.fromkeys(("replaced", "tables", "logs"), Purged())
        self._before = before
        self._left_before = min(before, now - IN_FLIGHT)
        self._dry_run = dry_run

    def clean(self, table: Any) -> dict[str, Purged]:
        """Clean a table, given a deltalake handle. Return the deleted files, including those of earlier attempts."""
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
    """Return how many hours ago a moment was, rounded up, by the system clock, as deltalake does."""
    return max(0, ceil((datetime.now(UTC) - moment) / _HOUR - _MOMENTS))

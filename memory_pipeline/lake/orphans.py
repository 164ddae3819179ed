"""Deletes unneeded files: those of old versions, and remains of killed processes.

==============  =====================================================================================================
kind            what it is
==============  =====================================================================================================
replaced        data files that the newest version of a table or a mart does not list
logs            entries of tables' logs before a checkpoint, which contains them
tables          data files of tables and marts that no version lists
versions        old versions of Lance tables, with the files that only they list
index           files of Lance tables that no version lists, and all of a table that was never finished
partial         unfinished writes on a disk, and remains of a probe of an S3 server
claims          expired claims of processes that are gone
uploads         unfinished multipart uploads to S3
==============  =====================================================================================================

Running readers may still use `replaced` and `versions`, which are kept for an age that the caller sets. The other kinds
are kept for an hour, for running writers.
Model answers that are not in the tables yet (``calls/pending``) are not remains: the next run moves them there.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

from memory_pipeline.errors import CommitConflictError, DamagedError, InputError, shown
from memory_pipeline.lake.index.lance_internals import LONGEST_WRITE, lance_tables
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.tables.handles import newest
from memory_pipeline.lake.tables.vacuum import Purged

if TYPE_CHECKING:
    from memory_pipeline.lake.files.storage import FileInfo, Storage
    from memory_pipeline.lake.tables.tables import Tables

_log = logging.getLogger(__name__)

#: How long files of old versions are kept by default, and remains of killed processes at least.
AGE = LONGEST_WRITE
#: Remains of killed processes; all other kinds belong to old versions.
LEFT_BEHIND = ("tables", "index", "partial", "claims", "uploads")
_KINDS = ("replaced", "logs", "tables", "versions", "index", "partial", "claims", "uploads")
_NEVER, _EVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
#: Time of the last vacuum, and the time after which a Lance table must have changed to be searched again.
_LOOKED = "state/vacuum.json"
_CLAIMS = ("calls/claims", "state/turns", "state/lance")
#: Duration of the claims taken here.
_MOMENT = timedelta(minutes=1)
#: Left by a probe that was killed: see :mod:`~memory_pipeline.lake.files.s3_probe`.
_LOOKS = "state/created-twice-"


def vacuum(
    storage: Storage, tables: Tables, now: datetime, *, age: timedelta = AGE, dry_run: bool = False
) -> dict[str, Purged]:
    """Delete unneeded files. Return their number and bytes, by kind.

    Safe to repeat, to interrupt and to run beside writers, readers and other calls.

    Replaced files are kept for `age`, for readers. Readers of this package retry when a file is missing; other programs
    that read the tables do not. `now` is the current time, UTC.

    Raises:
        InputError: `age` is negative.
    """
    if age < timedelta(0):
        raise InputError(f"age {shown(str(age))} is negative; expected 0 or more")
    before = now - age
    found = dict.fromkeys(_KINDS, Purged())
    searched = _noted(storage, "before")
    for files in lance_tables(storage):
        if searched is None or files.changed_at > searched:
            for kind, entries in zip(("versions", "index"), files.unneeded(storage, before, now), strict=True):
                found[kind] += _deleted(storage, entries, dry_run=dry_run)
    left = [*storage.partial(), *(entry for entry in storage.list("state") if entry.path.startswith(_LOOKS))]
    left = [entry for entry in left if entry.modified_at < now - AGE]
    found["partial"] = _deleted(storage, left, dry_run=dry_run)
    found["claims"] = _claims(storage, now, dry_run=dry_run)
    found["uploads"] = Purged(len(storage.abandoned_uploads(now - AGE, abort=not dry_run)))
    for folder in ("tables", "marts"):
        for name in storage.folders(folder):
            try:
                gone = tables.vacuum(f"{folder}/{name}", before, now, dry_run=dry_run)
            except (CommitConflictError, DamagedError) as error:
                _log.warning("%s/%s is not vacuumed: %s", folder, name, error)
                continue
            found = {kind: each + gone.get(kind, Purged()) for kind, each in found.items()}
    if not dry_run:
        looked = min(before, now - AGE)
        storage.write(_LOOKED, json.dumps({"at": now.isoformat(), "before": looked.isoformat()}).encode())
    return found


def last_vacuum(storage: Storage) -> datetime | None:
    """Return when a lake was last vacuumed, UTC, or None."""
    return _noted(storage, "at")


def unnamed_files(storage: Storage) -> list[FileInfo]:
    """Return files of any age that no table, mart or index version lists, and unfinished ones.

    They belong to running, killed or failed writers; :func:`vacuum` deletes those of the latter two. Tables with an
    unreadable log are skipped.
    """
    found = list(storage.partial())
    for folder in ("tables", "marts"):
        for name in storage.folders(folder):
            path = f"{folder}/{name}"
            files = [entry for entry in storage.list(path) if entry.path.endswith(".parquet")]
            try:
                table = newest(storage, path) if files else None
            except DamagedError:  # an unreadable log lists nothing
                continue
            if table is not None:
                # Files that the log lists as removed are not orphans: the next purge deletes them.
                removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
                known = {unquote(name).rpartition(f"{path}/")[2] for name in (*table.file_uris(), *removed)}
                files = [entry for entry in files if unquote(entry.path.removeprefix(f"{path}/")) not in known]
            found += [entry for entry in files if "/_delta_log/" not in entry.path]
    for lance in lance_tables(storage):
        found += lance.unneeded(storage, _NEVER, _EVER)[1]
    return found


def unread_indices(storage: Storage) -> list[FileInfo]:
    """Return files of indices, of any age, that no version of their table lists."""
    return [entry for lance in lance_tables(storage) for entry in lance.unread_indices(storage)]


def _deleted(storage: Storage, entries: list[FileInfo], *, dry_run: bool) -> Purged:
    if not dry_run:
        storage.delete(entry.path for entry in entries)
    return Purged(len(entries), sum(entry.size for entry in entries))


def _claims(storage: Storage, now: datetime, *, dry_run: bool) -> Purged:
    """Claim and release stale claims, because deleting another process's claim might delete a newer one."""
    found = Purged()
    for folder in _CLAIMS:
        claims = Leases(storage, folder, lambda: now)
        for entry in storage.list(folder):
            key = entry.path.removeprefix(f"{folder}/").removesuffix(".json")
            if entry.modified_at >= now - AGE or claims.is_taken(key):
                continue
            if not dry_run:
                if not claims.claim(key, _MOMENT):
                    continue
                claims.release(key)
            found += Purged(1, entry.size)
    return found


def _noted(storage: Storage, name: str) -> datetime | None:
    try:
        return datetime.fromisoformat(json.loads(storage.read(_LOOKED) or b"")[name])
    except (ValueError, TypeError, KeyError):
        return None

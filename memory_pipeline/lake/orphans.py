"""Deletes the files of a lake that nothing needs any more: those of old versions, and what killed processes left.

==============  =====================================================================================================
kind            what it is
==============  =====================================================================================================
replaced        data files that the newest version of a table or a mart no longer names
logs            entries of tables' logs before a checkpoint, which says all that they say
tables          data files of tables and marts that no version names
versions        old versions of Lance tables, with the files that only they name
index           files of Lance tables that no version names, and all of a table that was never finished
partial         files on a disk that were being written, and what a look at a server of S3 leaves
claims          claims whose time is over, of processes that are gone
uploads         uploads to S3 in parts that were not finished
==============  =====================================================================================================

Readers that began before may still use `replaced` and `versions`, which stay for an age that the caller sets. Logs, and
what was left behind, stay until they are an hour old, for writers at work.
What models answered and no run has landed yet (``calls/pending``) is not left behind: the next run lands it.
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

#: How long files of old versions stay, unless somebody says otherwise. What was left behind stays no shorter.
AGE = LONGEST_WRITE
#: What killed processes left behind; all other kinds are of old versions.
LEFT_BEHIND = ("tables", "index", "partial", "claims", "uploads")
_KINDS = ("replaced", "logs", "tables", "versions", "index", "partial", "claims", "uploads")
#: Before and after any file.
_NEVER, _EVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
#: When the last vacuum was, and the time from which on a Lance table must have changed to be looked through again.
_LOOKED = "state/vacuum.json"
_CLAIMS = ("calls/claims", "state/turns", "vectordb/_claims")
#: How long one may hold a claim that is taken away.
_MOMENT = timedelta(minutes=1)
#: What a look leaves that is killed half-way: see :mod:`~memory_pipeline.lake.files.s3_probe`.
_LOOKS = "state/created-twice-"


def vacuum(
    storage: Storage, tables: Tables, now: datetime, *, age: timedelta = AGE, dry_run: bool = False
) -> dict[str, Purged]:
    """Delete the files that nothing needs any more; return how many, and how many bytes, by kind.

    Safe to repeat, to interrupt and to run beside writers, readers and other calls.

    Args:
        storage: the lake's files.
        tables: its tables.
        now: the clock's time, UTC.
        age: how long ago a file was replaced, so that no reader uses it any more. Readers of this package look again
            when a file is gone; other programs that read the tables do not.
        dry_run: only count.

    Raises:
        InputError: `age` is negative.
    """
    if age < timedelta(0):
        raise InputError(f"age {shown(str(age))} is not accepted; expected 0 or more")
    before = now - age
    found = dict.fromkeys(_KINDS, Purged())
    found["versions"], found["index"] = _of_index(storage, before, now, dry_run=dry_run)
    found["partial"] = _deleted(storage, _partial(storage, now - AGE), dry_run=dry_run)
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
    """Return when a lake was last vacuumed, UTC; None if it never was."""
    return _noted(storage, "at")


def unnamed_files(storage: Storage, workspace_id: str | None = None) -> list[FileInfo]:
    """Return the files of tables, marts and the index that no table holds, however young, and unfinished ones.

    They are of processes that are at work, or were killed or overtaken; those go with :func:`vacuum`. Of a
    table whose log cannot be read none are named.

    Args:
        storage: the lake's files.
        workspace_id: whose index is looked through; everybody's if not given.
    """
    found = list(storage.partial())
    for folder in ("tables", "marts"):
        for name in storage.folders(folder):
            path = f"{folder}/{name}"
            files = [entry for entry in storage.list(path) if entry.path.endswith(".parquet")]
            try:
                table = newest(storage, path) if files else None
            except DamagedError:  # from a log that cannot be read nobody can tell
                continue
            if table is not None:
                # What the log says was removed is not left behind: the next purge takes it.
                removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
                known = {unquote(name).rpartition(f"{path}/")[2] for name in (*table.file_uris(), *removed)}
                files = [entry for entry in files if unquote(entry.path.removeprefix(f"{path}/")) not in known]
            found += [entry for entry in files if "/_delta_log/" not in entry.path]
    for lance in lance_tables(storage, workspace_id):
        found += lance.unneeded(storage, _NEVER, _EVER)[1]
    return found


def _deleted(storage: Storage, entries: list[FileInfo], *, dry_run: bool) -> Purged:
    if not dry_run:
        storage.delete(entry.path for entry in entries)
    return Purged(len(entries), sum(entry.size for entry in entries))


def _of_index(storage: Storage, before: datetime, now: datetime, *, dry_run: bool) -> tuple[Purged, Purged]:
    """Delete old versions of Lance tables, and files that no version names; return how much of either."""
    looked = _noted(storage, "before")
    versions, unnamed = Purged(), Purged()
    for files in lance_tables(storage):
        if looked is None or files.changed_at > looked:
            old, left = files.unneeded(storage, before, now)
            versions += _deleted(storage, old, dry_run=dry_run)
            unnamed += _deleted(storage, left, dry_run=dry_run)
    return versions, unnamed


def _partial(storage: Storage, before: datetime) -> list[FileInfo]:
    entries = [*storage.partial(), *(entry for entry in storage.list("state") if entry.path.startswith(_LOOKS))]
    return [entry for entry in entries if entry.modified_at < before]


def _claims(storage: Storage, now: datetime, *, dry_run: bool) -> Purged:
    """Take claims that are stale, and give them back: whoever deletes one of another may delete a new one instead."""
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
    """Return a time that the last vacuum noted."""
    try:
        return datetime.fromisoformat(json.loads(storage.read(_LOOKED) or b"")[name])
    except (ValueError, TypeError, KeyError):
        return None

"""Finds what killed processes left behind in a lake, and deletes it: files that nothing names and nothing will.

=========  ==========================================================================================================
kind       what it is
=========  ==========================================================================================================
tables     data files of tables and marts that no version names
index      files of tables of vectors that no version names, and all of a table that was never finished
partial    files on a disk that were being written, and what a look at a server of S3 leaves
claims     claims whose time is over, of processes that are gone
uploads    uploads to S3 in parts that were not finished
=========  ==========================================================================================================

All of it is left alone until it is an hour old, for whoever writes now. What models answered and no run has landed yet
(``calls/pending``) is not left behind: the next run lands it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import UUID

from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.claims import Claims
from memory_pipeline.lake.handles import newest
from memory_pipeline.lake.purging import Purged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.lake.storage import Entry, Storage
    from memory_pipeline.lake.tables import Tables

#: No write takes as long.
AGE = timedelta(hours=1)
#: Later than any file.
_EVER = datetime.max.replace(tzinfo=UTC)
#: When the tables of vectors were looked through: what has not changed since is not looked through again.
_LOOKED = "state/orphans.json"
_CLAIMS = ("calls/claims", "state/turns", "vectordb/_claims")
#: How long one may hold a claim that is taken away.
_MOMENT = timedelta(minutes=1)
#: What a look leaves that is killed half-way: see :mod:`~memory_pipeline.lake.creating`.
_LOOKS = "state/created-twice-"
_TABLE = re.compile(r"(vectordb/[^/]+/[^/]+\.lance)/(.+)")
_MANIFEST = re.compile(r"_versions/[^/]+\.manifest")
_NAMED = re.compile(r"data/(?P<data>[^/]+)|_transactions/(?P<transaction>[^/]+)|_indices/(?P<index>[^/]+)/.+")
_DELETIONS = re.compile(r"_deletions/\d+-(\d+)-(\d+)\.\w+")


def collect_orphans(storage: Storage, tables: Tables, now: datetime, *, dry_run: bool = False) -> dict[str, Purged]:
    """Delete what killed processes left behind more than an hour ago; return how much, by kind.

    Safe to repeat, to interrupt and to run beside writers and readers.

    Args:
        storage: the lake's files.
        tables: its tables.
        now: the clock's time, UTC.
        dry_run: only count.
    """
    before = now - AGE
    found = {
        "tables": Purged(),
        "index": _deleted(storage, list(_of_index(storage, before)), dry_run=dry_run),
        "partial": _deleted(storage, _partial(storage, before), dry_run=dry_run),
        "claims": _claims(storage, now, dry_run=dry_run),
        "uploads": Purged(len(storage.abandoned_uploads(before, abort=not dry_run))),
    }
    for folder in ("tables", "marts"):
        for name in storage.folders(folder):
            found["tables"] += tables.collect_orphans(f"{folder}/{name}", AGE, dry_run=dry_run)
    if not dry_run:
        storage.write(_LOOKED, json.dumps({"looked_at": now.isoformat()}).encode())
    return found


def unnamed_files(storage: Storage, workspace_id: str | None = None) -> list[Entry]:
    """Return the files of tables, marts and the index that no table holds, however young, and unfinished ones.

    They are of processes that are at work, or were killed or overtaken; those go with :func:`collect_orphans`. Of a
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
    for files in _index_tables(storage, workspace_id):
        found += _unread(storage, files, _EVER)
    return found


def _deleted(storage: Storage, entries: list[Entry], *, dry_run: bool) -> Purged:
    if not dry_run:
        storage.delete(entry.path for entry in entries)
    return Purged(len(entries), sum(entry.size for entry in entries))


def _of_index(storage: Storage, before: datetime) -> Iterator[Entry]:
    looked_at = _looked_at(storage)
    for files in _index_tables(storage):
        if looked_at is None or max(file.modified_at for file in files) > looked_at - AGE:
            yield from _unread(storage, files, before)


def _index_tables(storage: Storage, workspace_id: str | None = None) -> Iterator[list[Entry]]:
    """Yield the files of each table of vectors, of one workspace if it is given."""
    for name in storage.folders("vectordb"):
        if name.startswith("_") or workspace_id not in (None, name):
            continue
        entries = [entry for entry in storage.list(f"vectordb/{name}") if _TABLE.fullmatch(entry.path)]
        for _, group in groupby(entries, key=lambda entry: _parts(entry)[0]):
            yield list(group)


def _unread(storage: Storage, files: Iterable[Entry], before: datetime) -> Iterator[Entry]:
    """Yield the files of a table of vectors that no version names."""
    old: list[Entry] = []
    manifests: list[Entry] = []
    for file in files:
        (manifests if _MANIFEST.fullmatch(_parts(file)[1]) else old).append(file)
    old = [file for file in old if file.modified_at < before]
    if not old:
        return
    read = [storage.read(manifest.path) for manifest in manifests]
    if None in read:  # somebody takes versions away just now
        return
    versions = b"".join(data for data in read if data is not None)
    yield from (file for file in old if not _is_named(_parts(file)[1], versions, is_table=bool(manifests)))


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


def _parts(entry: Entry) -> tuple[str, str]:
    found = _TABLE.fullmatch(entry.path)
    assert found is not None  # noqa: S101 - others were left out
    return found[1], found[2]


def _partial(storage: Storage, before: datetime) -> list[Entry]:
    entries = [*storage.partial(), *(entry for entry in storage.list("state") if entry.path.startswith(_LOOKS))]
    return [entry for entry in entries if entry.modified_at < before]


def _claims(storage: Storage, now: datetime, *, dry_run: bool) -> Purged:
    """Take claims that are stale, and give them back: whoever deletes one of another may delete a new one instead."""
    found = Purged()
    for folder in _CLAIMS:
        claims = Claims(storage, folder, lambda: now)
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


def _looked_at(storage: Storage) -> datetime | None:
    try:
        return datetime.fromisoformat(json.loads(storage.read(_LOOKED) or b"")["looked_at"])
    except (ValueError, TypeError, KeyError):
        return None

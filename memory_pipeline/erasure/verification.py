"""Verify an erasure: search every file below the lake's root for the data that a receipt lists as removed.

The search covers unreferenced files too. It parses Parquet, JSON and YAML, reads all versions of the vector index's
tables, and searches the raw bytes of all files.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.domain.summaries import summary_id
from memory_pipeline.erasure.scanner import hex_of
from memory_pipeline.erasure.sessions import entries_of
from memory_pipeline.erasure.subject_matcher import SubjectMatcher
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.archived_rows import ARCHIVED
from memory_pipeline.lake.collections.collection import collections_of
from memory_pipeline.lake.index.lance_internals import holds_rows, is_manifest, is_named, table_of
from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine
from memory_pipeline.lake.index.scope_cache import CACHE, tables_in
from memory_pipeline.lake.orphans import unnamed_files, unread_indices
from memory_pipeline.lake.schemas import TOMBSTONES
from memory_pipeline.sessions.store import FILE
from memory_pipeline.steps.scopes import known_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from memory_pipeline.erasure.report import ErasureReport
    from memory_pipeline.lake import Lake


#: The end of a problem that only counts in purged tables. In others, writers leave deleted rows.
DELETED = "of its rows are deleted, but still on the disk"
_FAILURES = (RuntimeError, ValueError, OSError)


class LanceFolder:
    """The folder of a table of the index, at `path` below the root."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder, _, name = path.rpartition("/")
        self.name = name.removesuffix(".lance")
        self._files: list[str] = []
        self._manifests = b""

    def add(self, path: str, data: bytes) -> bool:
        """Add a file of the table. Return whether it holds rows, which reading the versions covers."""
        name = path.removeprefix(f"{self.path}/")
        if is_manifest(name):
            self._manifests += data
        if holds_rows(name):
            self._files.append(name)
        return holds_rows(name)

    def unread(self) -> list[str]:
        """Return the paths of data and index files that no version references."""
        unnamed = [name for name in self._files if not is_named(name, self._manifests, is_table=False)]
        return sorted(f"{self.path}/{name}" for name in unnamed)


def versions_of(databases: Databases, folder: LanceFolder, problems: list[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the version number and rows, without vectors, of every existing version of a table, in parts.

    Append descriptions of unreadable versions to `problems`.
    """
    databases.forget(folder.folder, folder.name)
    try:
        table = run_coroutine(databases.table(folder.folder, folder.name))
        known = [] if table is None else run_coroutine(table.list_versions())
    except _FAILURES:
        problems.append("it cannot be opened")
        return
    for version in known:
        number = int(version["version"])
        try:
            yield from ((number, rows) for rows in run_coroutine(_rows(table, number)))
        except _FAILURES:
            problems.append(f"version {number} cannot be read")
    # Rows that were deleted later are in this version or in one between.
    deleted = int(known[0].get("metadata", {}).get("total_deletion_file_rows", 0)) if known else 0
    if deleted:
        problems.append(f"{deleted} {DELETED}")


async def _rows(table: Any, version: int) -> list[pa.Table]:
    await table.checkout(version)
    columns = [field.name for field in await table.schema() if field.name != "vector"]
    return [pa.Table.from_batches([batch]) async for batch in await table.query().select(columns).to_batches()]


_ROWS_PER_BATCH = 20_000


@dataclass(frozen=True, slots=True)
class Remnant:
    """Data that should be gone. `file` is a path or a table's version in the index. `what` does not repeat the data."""

    file: str
    what: str
    count: int

    def __str__(self) -> str:
        return f"{self.file}: {self.what}" + (f", {self.count} times" if self.count > 1 else "")


@dataclass(slots=True)
class Verification:
    """The result of a verification.

    Attributes:
        places: the number of searched files by folder of the root; ``.`` is the root itself.
        bytes: the size of the searched files.
        findings: data that should be gone.
        unsearched: unreadable files that may hold data of the subject.
        beyond: descriptions of places that cannot be searched and may hold data of the subject.
        remedies: what to do about the findings.
    """

    places: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    findings: list[Remnant] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all files could be searched and nothing was found."""
        return not self.findings and not self.unsearched

    @property
    def files(self) -> int:
        """The number of searched files."""
        return self.places.total()


def verify(lake: Lake, receipt: ErasureReport, progress: Callable[[int, int], None] = lambda *_: None) -> Verification:
    """Search a lake for the data that a receipt lists as removed.

    Records after the receipt's cutoff are not findings, even if they mention the subject. `progress` is called now and
    then with the number of searched files and of all files.

    Raises:
        InputError: the lake lacks the receipt's tombstones, so the receipt is for another lake.
    """
    known = {tombstone.id for tombstone in lake.tombstones.all()}
    if not known.issuperset(receipt.tombstones):
        raise InputError(
            f"the receipt is of the lake at {shown(receipt.lake, 200)}, not of the one at {lake.storage.uri}; name the "
            "lake with --root"
        )
    matcher = _matcher(lake, receipt)
    result = Verification(beyond=old_versions(lake))
    files = _files(lake)
    tables: dict[str, LanceFolder] = {}
    for number, path in enumerate(files):
        if number % 100 == 0:
            progress(number, len(files))
        data = lake.storage.read(path)
        if data is None:  # deleted since it was listed
            continue
        result.places[path.partition("/")[0] if "/" in path else "."] += 1
        result.bytes += len(data)
        folder = table_of(path)
        if folder is not None:
            lance = tables.setdefault(folder, LanceFolder(folder))
            is_unread = matcher.is_within_reach(matcher.whose(folder)) and not lance.add(path, data)
            _note(result, path, matcher.in_path(path) + matcher.in_bytes(data, unreadable=is_unread))
        elif path.startswith(FILE):  # its rows are read below; others may have what looks like a name
            _note(result, path, matcher.in_bytes(data, unreadable=False))
        else:
            _note(result, path, _searched(matcher, path, data))
    for store, (_, entry) in entries_of(lake, receipt.subject, receipt.at):
        _note(result, store.database.place, Counter({f"an entry with the id {entry.id}": 1}))
    for path in _folders(lake, files):
        _note(result, f"{path}/", matcher.in_path(path))
    purged = {name for part in receipt.removed if part.place in ("index", "collections") for name in part.partitions}
    _search_other_archive(lake, matcher, result)
    databases = Databases(lake.storage)
    # An erasure deletes indices that no version reads, so a later one was made from rows without the subject.
    later = _indices_after_erasures(lake)
    for lance in tables.values():
        if matcher.is_within_reach(matcher.whose(lance.path)):
            is_purged = f"{lance.folder}/{lance.name}" in purged
            _search_table(lake, matcher, result, databases, lance, later, clean=is_purged)
    if not result.ok:
        result.remedies = _remedies(lake, result)
    progress(len(files), len(files))
    return result


def _matcher(lake: Lake, receipt: ErasureReport) -> SubjectMatcher:
    """Return what searches for remnants, without the ids that a subject has again if it writes after the cutoff."""
    scopes = known_scopes(lake) | lake.journal.pending_scopes() | {scope for scope, _, _ in collections_of(lake)}
    scopes |= lake.calls.scopes(receipt.at) | lake.access_log.scopes(receipt.at)  # it may have read alone
    for group, user_id, since in lake.members.all():  # also if nothing else is stored of them
        if since > receipt.at:
            scopes |= {group, lake.scope(group.workspace_id, group.agent_id, user_identity(user_id))}
    # A subject that comes back has the same key, and the same ids of summaries that were open at the cutoff.
    again = [scope for scope in scopes if receipt.subject.owns(scope)]
    periods = [lake.calendar.period(grain, receipt.at) for grain in SUMMARY_GRAINS]
    ids = set(receipt.ids) - {scope.key for scope in scopes}
    ids -= {hex_of(summary_id(scope, period)) for scope in again for period in periods}
    return SubjectMatcher(receipt.subject, receipt.at, ids, receipt.salt, receipt.contents, scopes)


def _remedies(lake: Lake, result: Verification) -> list[str]:
    unnamed = {entry.path for entry in unnamed_files(lake.storage)}
    places = [finding.file for finding in result.findings] + [
        problem.partition(": ")[0] for problem in result.unsearched
    ]
    offenders = set(places)
    remedies = []
    if offenders - unnamed:
        # It also compacts the index, which may hold rows that runs have replaced since.
        remedies.append("run `memory-pipeline forget` again")
    if young := len(offenders & unnamed):
        remedies.append(
            f"{young:,} of these files belong to no table, but to killed or running processes: "
            "`memory-pipeline expire` deletes them once they are an hour old"
        )
    return remedies


def old_versions(lake: Lake) -> list[str]:
    """Return a remark for each store of the lake that may keep versions of deleted or overwritten files."""
    remarks = []
    for storage in dict.fromkeys((lake.storage, lake.archived.storage)):
        is_versioned = storage.is_versioned()
        if is_versioned is not False:
            keeps = "keeps versions" if is_versioned else "does not let these keys see whether it keeps versions"
            remarks.append(
                f"the bucket of {storage.uri} {keeps} of files that were deleted or overwritten; forgotten data "
                "stays in them until a lifecycle rule or an administrator deletes noncurrent versions: see docs/s3.md"
            )
    return remarks


def _searched(matcher: SubjectMatcher, path: str, data: bytes) -> Counter[str]:
    if path.startswith(f"{CACHE}/"):
        tables = tables_in(data)
        read = None if tables is None else sum(map(matcher.in_rows, tables), Counter[str]())
    else:
        read = _in_parquet(matcher, data) if data[:4] == b"PAR1" else _in_text(matcher, data)
    return matcher.in_path(path) + matcher.in_bytes(data, unreadable=read is None) + (read or Counter())


def _in_parquet(matcher: SubjectMatcher, data: bytes) -> Counter[str] | None:
    found: Counter[str] = Counter()
    try:
        for batch in pq.ParquetFile(io.BytesIO(data)).iter_batches(_ROWS_PER_BATCH):
            found += matcher.in_rows(pa.Table.from_batches([batch]))
    except (OSError, pa.ArrowException):
        return None  # such as a truncated file
    return found


def _in_text(matcher: SubjectMatcher, data: bytes) -> Counter[str] | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    records = _records(text)
    if records is None:
        return matcher.in_text(text)
    found: Counter[str] = Counter()
    for record in records:
        found += matcher.in_text(record) if isinstance(record, str) else matcher.in_record(record)
    return found


def _records(text: str) -> Iterable[object] | None:
    """Return the JSON values of a text, with unreadable lines as strings; None if the text is not JSON."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    if not text.lstrip().startswith(("{", "[")):
        return None
    records: list[object] = []
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            records.append(line)
    return records


def _search_table(
    lake: Lake,
    matcher: SubjectMatcher,
    result: Verification,
    databases: Databases,
    lance: LanceFolder,
    later: Collection[str],
    *,
    clean: bool,
) -> None:
    """Search all versions and unreferenced files of a table. If `clean`, deleted rows count as unsearched.

    Of the unreferenced files in `later`, only the bytes are searched.
    """
    problems: list[str] = []
    for version, rows in versions_of(databases, lance, problems):
        _note(result, f"{lance.path} (version {version})", matcher.in_rows(rows, matcher.whose(lance.path)))
    for path in lance.unread():
        _note(result, path, matcher.in_bytes(lake.storage.read(path) or b"", unreadable=True))
        if path not in later:
            result.unsearched.append(f"{path}: no version reads it")
    result.unsearched += [f"{lance.path}: {problem}" for problem in problems if clean or not problem.endswith(DELETED)]


def _search_other_archive(lake: Lake, matcher: SubjectMatcher, result: Verification) -> None:
    """Search the archive, if it is outside of the lake."""
    storage = lake.archived.storage
    for entry in storage.list(ARCHIVED) if storage is not lake.storage else ():
        data = storage.read(entry.path) or b""
        result.places[ARCHIVED] += 1
        result.bytes += len(data)
        _note(result, storage.locate(entry.path), _searched(matcher, entry.path, data))


def _indices_after_erasures(lake: Lake) -> set[str]:
    """Return the files of indices that no version reads, and that were written after the last change of a tombstone."""
    changes = [entry.modified_at for entry in lake.storage.list(f"tables/{TOMBSTONES.name}")]
    return {entry.path for entry in unread_indices(lake.storage) if changes and entry.modified_at > max(changes)}


def _note(result: Verification, file: str, found: Counter[str]) -> None:
    result.findings += [Remnant(file, what, count) for what, count in found.items() if count > 0]


def _files(lake: Lake) -> list[str]:
    """Return all files below the root, including temporary files of writers, which storage does not list."""
    found = {entry.path for entry in lake.storage.list("")}
    if lake.storage.is_local:
        root = Path(lake.storage.uri)
        found |= {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return sorted(found)


def _folders(lake: Lake, files: list[str]) -> list[str]:
    """Return the folders without files. Other folders are searched as part of their files' paths."""
    if not lake.storage.is_local:
        return []
    root = Path(lake.storage.uri)
    known = {"/".join(parts[:end]) for path in files for parts in [path.split("/")] for end in range(1, len(parts))}
    folders = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir())
    return sorted(path for path in folders if path not in known)

"""Archives: the memory of an agent or a user as one zip file, to keep, to move and to read with other programs.

::

    manifest.json             format, ids, time zone, and of each file its rows and SHA-256
    tables/messages.parquet   rows as in the lake, exact; facts, summaries, graph_operations, memory_events, answers, …
    json/messages.jsonl       the same rows as JSON Lines, without vectors
    journal.jsonl             records that are not loaded yet
    grants.jsonl, corrections.jsonl, members.jsonl, sessions.jsonl

The key of a scope is made with :data:`SECRET` instead of a lake's secret, so that an archive tells nothing about a lake
and equal memories have equal files. The configuration is not included, and with it no reference to a key.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memory_pipeline.domain.access import AccessEvent
from memory_pipeline.domain.corrections import Correction
from memory_pipeline.domain.messages import recorded_scope, timestamp_of
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import Scope, label_of, optional_label, user_identity
from memory_pipeline.domain.sessions import Container, Entry, EntryKind, time_of
from memory_pipeline.errors import ConfigurationError, InputError, MemoryPipelineError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.schemas import FACTS, SUMMARIES, TABLES
from memory_pipeline.operating_system import create_private
from memory_pipeline.sessions.store import existing_stores, session_store
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline.transfer.copying import COPIED, CopySelection, copy_lake, pending_records, put_rows, selected_rows
from memory_pipeline.transfer.deriving import derive, models_without_requests
from memory_pipeline.transfer.renaming import copy_renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.transfer.copying import Progress
    from memory_pipeline.transfer.renaming import ScopeFor

FORMAT: Final = "memory-pipeline archive"
VERSION: Final = 1
#: The secret of the keys of scopes in archives.
SECRET: Final = "memory-pipeline archive"  # noqa: S105  # nosec B105  # it hides nothing
_BATCH: Final = 5_000
_LONGEST_MANIFEST: Final = 2**24
#: Reading a damaged zip raises one of these.
_UNREADABLE: Final = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
#: A larger file that is compressed more than this is a bomb.
_LARGE, _MAX_RATIO = 10 * 2**20, 1_000
_TABLES: Final = [spec.name for spec in COPIED]
#: The files that an archive may have.
_NAMES: Final = frozenset(
    [f"tables/{name}.parquet" for name in _TABLES]
    + [f"json/{name}.jsonl" for name in _TABLES]
    + [f"{name}.jsonl" for name in ("journal", "grants", "corrections", "members", "sessions")]
)


@dataclass(slots=True)
class ArchiveReport:
    """What was written to an archive, or read from one.

    Attributes:
        rows: number of rows and records, by table or kind.
        is_copy: of an import: whether it is under other ids, which all records have anew.
        differing: of an import under the same ids: number of facts and summaries that differ from those in the archive.
        not_included: what was left out, with the reason.
    """

    rows: dict[str, int] = field(default_factory=dict)
    is_copy: bool = False
    differing: int = 0
    not_included: list[str] = field(default_factory=list)


def export_archive(
    lake: Lake,
    path: Path,
    workspace_id: str,
    agent_id: str,
    user_id: str | None,
    now: datetime,
    progress: Progress = lambda *_: None,
) -> ArchiveReport:
    """Write the memory of a user, or of an agent with all its users and groups, to a zip file.

    Raises:
        InputError: there is no such memory, the users of the agent share one, or there is a file at `path`.
    """
    scopes = _scopes_of(lake, workspace_id, agent_id, user_id)
    selection = CopySelection(scopes)
    report = ArchiveReport(not_included=["collections of vectors, and the configuration"])
    if user_id is not None:
        report.not_included.append("the memory of the user's groups, and the agent's own memory")
    if path.exists() or not path.absolute().parent.is_dir():
        problem = "exists" if path.exists() else "is in no folder"
        raise InputError(f"{path} {problem}; name a new file")
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with (
        TemporaryDirectory() as folder,
        create_private(unfinished) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        named = Lake(Path(folder) / "keys", lake.calendar.timezone, secret=SECRET)
        named.ensure()
        files: dict[str, dict[str, object]] = {}
        for number, spec in enumerate(COPIED):
            progress(spec.name, number, len(COPIED))
            rows = _write_table(lake, named, spec.name, selection, Path(folder))
            for name in (f"tables/{spec.name}.parquet", f"json/{spec.name}.jsonl") if rows else ():
                files[name] = {"rows": rows, "sha256": _added(archive, name, Path(folder) / Path(name).name)}
            report.rows |= {spec.name: rows} if rows else {}
        for name, records in _records(lake, selection, scopes).items():
            listed = list(records)
            if listed:
                lines = Path(folder) / f"{name}.jsonl"
                _write_lines(lines, listed)
                files[lines.name] = {"rows": len(listed), "sha256": _added(archive, lines.name, lines)}
                report.rows[name] = len(listed)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "workspace_id": workspace_id,
            "agent_id": agent_id,
            "user_id": user_id,
            "timezone": lake.calendar.timezone,
            "start": lake.start.isoformat(),
            "exported_at": now.isoformat(),
            "not_included": report.not_included,
            "files": files,
        }
        archive.writestr("manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False))
    unfinished.replace(path)
    return report


def manifest_of(path: Path) -> dict[str, Any] | None:
    """Return the manifest of an archive; None if the file is none.

    Raises:
        InputError: a newer version of this package wrote it, or it is damaged.
    """
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("manifest.json").file_size > _LONGEST_MANIFEST:
                return None
            manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
    except (KeyError, ValueError, RecursionError, *_UNREADABLE):  # no archive of ours, or damaged
        return None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return None
    if manifest.get("version") != VERSION:
        raise InputError(
            f"{path} is an archive of version {shown(manifest.get('version'))}; this version of memory-pipeline reads "
            f"version {VERSION}: use a newer one"
        )
    try:
        Scope(manifest["workspace_id"], manifest["agent_id"])
        optional_label("user_id", manifest["user_id"])
        Calendar(manifest["timezone"])
        date.fromisoformat(manifest["start"])
        unknown = manifest["files"].keys() - _NAMES
        wrong = [one for one in manifest["files"].values() if not isinstance(one["sha256"], str)]
        wrong += [one for one in manifest["not_included"] if not isinstance(one, str)]
    except (MemoryPipelineError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} has a damaged manifest.json: {shown(str(error))}; export the memory again") from None
    if wrong:
        raise InputError(f"{path} has a damaged manifest.json; export the memory again")
    if unknown:
        raise InputError(f"{path} lists {shown(min(unknown))}, which no archive has; it is not imported")
    return manifest


def import_archive(
    path: Path,
    target: Lake,
    embedder: Embedder,
    now: datetime,
    *,
    workspace_id: str | None = None,
    agent_id: str | None = None,
    user_id: str | None = None,
    progress: Progress = lambda *_: None,
) -> ArchiveReport:
    """Add the memory in an archive to a lake. No model is asked. Safe to repeat and to interrupt.

    Under the ids of the archive, everything keeps its ids. With another workspace, agent or user it is a copy: records
    get new ids, and what is made from them is made again with the stored answers of models. Grants and costs are not
    copied then. So it is if the lake has another time zone, another ``per_user``, or has erased something.

    Raises:
        InputError: it is no archive, it is damaged, or it holds rows of others.
    """
    manifest = manifest_of(path)
    if manifest is None:
        raise InputError(f"{path} is no archive of memory-pipeline: it has no manifest.json of this format")
    if user_id is not None and manifest["user_id"] is None:
        raise InputError(f"{path} has the memory of a whole agent; leave out the user, or name another agent")
    given = Scope(workspace_id or manifest["workspace_id"], agent_id or manifest["agent_id"])
    owner = manifest["user_id"]

    before: dict[Scope, Scope] = {}

    def scope_for(scope: Scope, _: str | None) -> Scope:
        identity = scope.identity
        if user_id is not None and owner is not None and identity == user_identity(owner):
            identity = user_identity(user_id)
        new = target.new_scope(given.workspace_id, given.agent_id, identity)
        before[new] = scope
        return new

    target.ensure()
    with TemporaryDirectory() as folder:
        source, scopes = _unpacked(path, manifest, Path(folder))
        is_copy = (
            source.calendar.timezone != target.calendar.timezone
            or bool(target.tombstones.all())
            or any(scope_for(scope, None) != scope for scope in scopes)
        )
        report = ArchiveReport(is_copy=is_copy, not_included=list(manifest["not_included"]))
        if is_copy:
            copied = copy_renamed(source, target, CopySelection(), scope_for, progress, with_grants=False)
            report.not_included.append("grants, costs of models, receipts of reads, and uses of memories")
        else:
            copied = copy_lake(source, target, CopySelection(), progress)
        copied.counts["sessions"] = _import_sessions(Path(folder), source, target, scope_for, report)
        report.rows = {name: count for name, count in copied.counts.items() if count}
        models = models_without_requests(
            target, embedder, target.calls, now, vectors_of=source, formerly=lambda scope: before.get(scope, scope)
        )
        derive(target, models, now, copied.hours, progress)
        if not is_copy:
            report.differing = _differing(source, target)
    return report


def _scopes_of(lake: Lake, workspace_id: str, agent_id: str, user_id: str | None) -> frozenset[Scope]:
    """Return the scopes of a user, or of an agent with all its users and groups.

    Raises:
        InputError: there is no such memory, or the users of the agent share one.
    """
    agent = Scope(workspace_id, agent_id)
    known = known_scopes(lake, workspace_id) | lake.journal.pending_scopes()
    own = frozenset(scope for scope in known if scope.own == agent)
    if user_id is None:
        if not own:
            raise InputError(f"agent {agent} has no memory; `memory-pipeline agents` lists those that have")
        return own
    user = lake.scope(workspace_id, agent_id, user_identity(user_id))
    if user in own:
        return frozenset([user])
    if not lake.configuration().per_user(agent):
        raise InputError(
            f"the users of agent {agent} share one memory (per_user: false); export the agent, without user"
        )
    raise InputError(f"user {shown(user_id)} of agent {agent} has no memory; `memory-pipeline users` lists the others")


def _write_table(lake: Lake, named: Lake, name: str, selection: CopySelection, folder: Path) -> int:
    """Write the rows of a table to a Parquet file and to JSON Lines, if there are any. Return their number."""
    spec, count = TABLES[name], 0
    writer = None
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as lines:
        for part in selected_rows(lake, named, spec, selection):
            rows = part.sort_by([(column, "ascending") for column in (*spec.partition_by, *spec.order_by)])
            if writer is None:
                writer = pq.ParquetWriter(folder / f"{name}.parquet", spec.schema, compression="zstd")
            writer.write_table(rows)
            count += rows.num_rows
            for row in rows.drop_columns([one for one in ("vector",) if one in rows.column_names]).to_pylist():
                lines.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    if writer is not None:
        writer.close()
    return count


def _records(
    lake: Lake, selection: CopySelection, scopes: frozenset[Scope]
) -> dict[str, Iterable[Mapping[str, object]]]:
    """Return the records that are in no table, by name of their file in the archive."""
    entries = [entry for scope in scopes for entry in lake.journal.entries(scope)]
    owners = {(scope.workspace_id, scope.agent_id, scope.identity) for scope in scopes}
    members = ({**_owner(group), "user_id": user, "since": at.isoformat()} for group, user, at in lake.members.all()
               if selection.has(group))  # fmt: skip
    return {
        "journal": (record.to_record() for record in pending_records(lake, selection)),
        "grants": (event.to_record() for event in lake.access.among(entries)),
        "corrections": (one.to_record() for one in lake.corrections.among(entries)),
        "members": members,
        "sessions": (
            {**{name: getattr(container, name) for name in Container.__slots__}, **entry._asdict()}
            for store in existing_stores(lake)
            for container, entry in store.stored()
            if (container.workspace_id, container.agent_id, container.identity) in owners
        ),
    }


def _owner(scope: Scope) -> dict[str, str]:
    return {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id, "identity": scope.identity}


def _write_lines(file: Path, records: Iterable[Mapping[str, object]]) -> None:
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)


def _added(archive: zipfile.ZipFile, name: str, file: Path) -> str:
    """Add a file to an archive; return its SHA-256."""
    archive.write(file, name, zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED)
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


def _unpacked(path: Path, manifest: Mapping[str, Any], folder: Path) -> tuple[Lake, set[Scope]]:
    """Return a lake with the rows and records of an archive, and their scopes.

    Raises:
        InputError: a file is missing or damaged, or has rows of another agent or user.
    """
    lake = Lake(folder / "lake", manifest["timezone"], secret=SECRET)
    lake.ensure(datetime.combine(date.fromisoformat(manifest["start"]), time(12), UTC))
    scopes: set[Scope] = set()
    owner = Scope(manifest["workspace_id"], manifest["agent_id"])
    user = manifest["user_id"]

    def check(found: Iterable[Scope]) -> None:
        for scope in found:
            if scope.own != owner or (user is not None and scope.identity != user_identity(user)):
                raise InputError(f"{path} has rows of {scope}, which is not what its manifest says; it is not imported")
            if scope.key != lake.scope(owner.workspace_id, owner.agent_id, scope.identity).key:
                raise InputError(f"{path} has rows with a wrong key of {scope}; it is not imported")
            scopes.add(scope)

    with zipfile.ZipFile(path) as archive:
        for name, listed in manifest["files"].items():
            if not name.startswith("json/"):
                _extract(archive, path, name, str(listed["sha256"]), folder / Path(name).name)
    for spec in COPIED:
        file = folder / f"{spec.name}.parquet"
        if file.exists():
            try:
                for batch in pq.ParquetFile(file).iter_batches(_BATCH):
                    rows = pa.Table.from_batches([batch]).select(spec.schema.names).cast(spec.schema)
                    check(scopes_in(rows))
                    for part in _by_fixed(rows, spec.partition_by[:-1]):
                        put_rows(lake, spec, part)
            except (pa.ArrowException, KeyError, ValueError) as error:
                raise InputError(f"{path}: tables/{file.name} is damaged: {shown(str(error), 200)}") from None
    pending = [lake.journal.parsed(line) for line in _lines(folder / "journal.jsonl")]
    check(record.scope for record in pending)
    if pending:
        lake.journal.append(pending)
    for line in _lines(folder / "grants.jsonl"):
        event = AccessEvent.from_record(line, lake.scope)
        check([event.scope])
        lake.access.add(event)
    for line in _lines(folder / "corrections.jsonl"):
        correction = Correction.from_record(line, lake.scope)
        check([correction.scope])
        lake.corrections.add(correction)
    members = {}
    for line in _lines(folder / "members.jsonl"):
        group = recorded_scope(line, lake.scope)
        check([group])
        members[group, label_of("user_id", line.get("user_id"))] = timestamp_of("since", line.get("since"))
    lake.members.add_since(members)
    check(scope for scope, *_ in _sessions_in(folder, lake))
    return lake, scopes


def _extract(archive: zipfile.ZipFile, path: Path, name: str, expected: str, file: Path) -> None:
    """Write a file of an archive to `file`.

    Raises:
        InputError: it is missing, or its digest differs.
    """
    found = sha256()
    try:
        size = archive.getinfo(name)
        if size.file_size > _LARGE and size.file_size > _MAX_RATIO * max(size.compress_size, 1):
            raise InputError(f"{path}: {name} is compressed more than {_MAX_RATIO:,} times, as an attack would be")
        with archive.open(name) as source, file.open("wb") as target:
            while data := source.read(2**20):
                found.update(data)
                target.write(data)
    except (KeyError, *_UNREADABLE) as error:
        raise InputError(f"{path}: {name} cannot be read: {error}; export the memory again") from None
    if found.hexdigest() != expected:
        raise InputError(f"{path}: {name} has changed since the export: its digest differs; export the memory again")


def _by_fixed(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each value of the partition columns before the last one."""
    if not columns:
        yield rows
    else:
        for value in rows[columns[0]].unique():
            yield rows.filter(pc.equal(rows[columns[0]], value))


def _lines(file: Path) -> Iterator[dict[str, object]]:
    if file.exists():
        with file.open("rb") as lines:
            for line in lines:
                yield parse_json(line)


def _sessions_in(folder: Path, lake: Lake) -> Iterator[tuple[Scope, Container, Entry]]:
    """Yield the entries of sessions in an archive, each with its scope in a lake.

    Raises:
        InputError: a line is damaged.
    """
    for line in _lines(folder / "sessions.jsonl"):
        try:
            container = Container(**{name: line[name] for name in Container.__slots__})  # type: ignore[arg-type]
            entry = Entry(**{name: line[name] for name in Entry._fields})  # type: ignore[arg-type]
        except KeyError as error:
            raise InputError(f"sessions.jsonl is damaged: an entry has no {error}; export the memory again") from None
        yield lake.scope(container.workspace_id, container.agent_id, container.identity), container, entry


def _import_sessions(folder: Path, source: Lake, target: Lake, scope_for: ScopeFor, report: ArchiveReport) -> int:
    """Store the entries of sessions that are not there; return the number of all. Erased ones do not come back."""
    count, forgotten = 0, target.tombstones.forgotten()
    for scope, container, entry in _sessions_in(folder, source):
        new = scope_for(scope, None)
        if forgotten.reaches(new, time_of(entry.updated_at), user_id=new.user_id, texts=[entry.value]):
            continue
        try:
            store = session_store(target)
        except ConfigurationError as error:
            report.not_included.append(f"sessions, because {error}")
            return 0
        ids = new.workspace_id, new.agent_id, new.identity
        entries = store.entries(Container(*ids, EntryKind(container.kind), container.space, container.section))
        if entries.get(entry.key, entry.updated_at) is None:
            at = entry.expires_at, entry.updated_at
            entries.put(entry.key, entry.value, *at, entry.type, entry.accesses, entry.created_at)
        count += 1
    return count


def _differing(source: Lake, target: Lake) -> int:
    """Return the number of facts and summaries of `source` that are not equal in `target`."""
    count = 0
    for spec in (FACTS, SUMMARIES):
        for rows in selected_rows(source, target, spec, CopySelection()):
            fixed = {name: rows[name][0].as_py() for name in spec.partition_by[:-1]}
            keys = rows["period"].unique().to_pylist()
            stored = target.tables.read(
                spec, keys, columns=["id", "digest"], shard=None, scopes=set(rows["scope"].to_pylist()), **fixed
            )
            known = set(zip(stored["id"].to_pylist(), stored["digest"].to_pylist(), strict=True))
            count += len(set(zip(rows["id"].to_pylist(), rows["digest"].to_pylist(), strict=True)) - known)
    return count

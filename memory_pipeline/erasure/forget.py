"""Forget an agent, a conversation or a person: match, write the tombstone, remove, replay, and delete from disk.

First the lake notes what is erased, so that any run can finish the erasure. Then the tombstone is written. From then
on, runs skip matching records; a run that had already read some removes them at its end. The affected hours are written
to the tombstone before anything is removed, so an interrupted erasure can start over. The tombstone is done once a
search finds nothing, the marts are rebuilt and the bytes are deleted.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.domain.erasure import Forgotten, Tombstone, merged
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope, user_identity
from memory_pipeline.domain.subjects import Subject, SubjectKind
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.erasure.correct import blast_radius
from memory_pipeline.erasure.erasure_log import ErasureLog
from memory_pipeline.erasure.expired_sources import note_summaries, remark_expired, scrub_summaries
from memory_pipeline.erasure.memories import (
    enter_memories,
    find_changed_events,
    note_memories,
    remove_nights,
    replace_events,
)
from memory_pipeline.erasure.read_receipts import remove_receipts
from memory_pipeline.erasure.removal import (
    anonymize_calls,
    forget_items,
    remove_accesses,
    remove_answers,
    remove_members,
    remove_rows,
    remove_unread,
)
from memory_pipeline.erasure.report import ErasureReport
from memory_pipeline.erasure.scanner import ScanResult, SubjectScanner, counted, find
from memory_pipeline.erasure.sessions import PLACE, entries_of, remove_sessions
from memory_pipeline.erasure.verification import old_versions, verify
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.collections.collection import COLLECTIONS, collections_of
from memory_pipeline.lake.erasures import begin_erasure, begun_erasures, end_erasure, unfinished_erasures
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.layout import PROJECTIONS, key_in
from memory_pipeline.lake.orphans import unnamed_files, unread_indices
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, GRAPH_OPERATIONS, IS_FACT, MEMORY_EVENTS, MESSAGES, TABLES
from memory_pipeline.models.factory import stored_models
from memory_pipeline.steps.replay import replay, with_ancestors
from memory_pipeline.steps.scopes import groups_with, known_scopes, recompute_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.model_calls import Use
    from memory_pipeline.erasure.correct import BlastRadius
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

_log = logging.getLogger(__name__)

#: Maximum number of searches. Later ones find records that writers added during the earlier ones.
_ROUNDS = 5
#: Unreferenced files younger than this may belong to an active writer.
_ORPHANS = timedelta(hours=1)
_NOT_COVERED = (
    "rows of sessions in PostgreSQL's files and log until its vacuum, and in its backups",
    "previews and logs in Dagster's own storage, outside of the lake",
    "pools that several agents or all users share: values in them that do not name the person, or that the agent wrote",
    "backups of the lake, and versions and snapshots made by an object store or a file system",
    "items of agents' own collections that do not name the person, or belong to the conversation",
    "copies of memory outside of the lake: prompts, exports, results of SQL",
)


@dataclass(frozen=True, slots=True)
class ErasurePreview:
    """The data of a subject in the lake, before an erasure.

    Attributes:
        counts: rows, messages and records by place.
        hours: sorted keys of the hours of the messages.
        sample: ids of some of the messages, facts and memory events.
        radius: what rests on it; None if only the data was counted.
    """

    counts: dict[str, int]
    scopes: tuple[Scope, ...]
    hours: tuple[str, ...]
    sample: tuple[str, ...]
    radius: BlastRadius | None = None


def preview(
    lake: Lake,
    subject: Subject,
    now: datetime,
    *,
    sample: int = 10,
    only_counts: bool = False,
    is_shown: Callable[[Scope], bool] = lambda _: True,
) -> ErasurePreview:
    """Return the subject's data in the lake and, unless `only_counts`, what rests on it. Change nothing.

    `is_shown` returns whether a read of the memory of a scope may be told, by default all of the workspace.
    """
    found = find(lake, SubjectScanner(lake, subject, now), Forgotten(Tombstone.of(subject, now, secrets.token_hex(16))))
    ids = sorted(identifier for spec in (MESSAGES, FACTS, MEMORY_EVENTS) for identifier in found.ids(spec))
    counts = counted(found) + Counter({PLACE: sum(1 for _ in entries_of(lake, subject, now))})
    return ErasurePreview(
        dict(counts),
        tuple(sorted(found.scopes | {group for group, _ in found.memberships}, key=str)),
        tuple(sorted(found.hours)),
        tuple(ids[:sample]),
        None if only_counts else _radius(lake, found, is_shown),
    )


def _radius(lake: Lake, found: ScanResult, is_shown: Callable[[Scope], bool]) -> BlastRadius:
    keys = found.rows.get(GRAPH_OPERATIONS.name, {})
    columns, operations = ["id", "evidence_id"], found.ids(GRAPH_OPERATIONS)
    edits = lake.tables.read(GRAPH_OPERATIONS, [*keys], columns=columns, where=pc.field("is_edit")).to_pylist()
    roots = {identifier for spec in (MESSAGES, FACTS, MEMORY_EVENTS) for identifier in found.ids(spec)}
    roots |= {row["evidence_id"] for row in edits if row["id"] in operations} | found.pending_ids
    return blast_radius(lake, sorted(found.scopes, key=str), roots, is_shown)


def subject_of_source(lake: Lake, scope: Scope, source: str, user_id: str | None = None) -> Subject:
    """Return the subject for all that came to an agent from a source, such as the import ``import:chatgpt``.

    These are the conversations with messages or facts of the source, and memories and changes of the graph that were
    imported. With `user_id`, only those of that user's memory.

    Raises:
        InputError: an id is invalid.
    """
    subject = Subject.of_source(scope, source, (), user_id)
    identity = subject.identity
    is_own = (pc.field("workspace_id") == scope.workspace_id) & (pc.field("agent_id") == scope.agent_id)
    is_own &= pc.field("source") == source
    if identity is not None:
        is_own &= pc.field("identity") == identity
    found: set[str] = set()
    for spec in (MESSAGES, FACTS):
        found |= {*lake.tables.read(spec, columns=["conversation_id"], where=is_own)["conversation_id"].to_pylist()}
    for file in lake.journal.pending():
        owner = lake.journal.scope_of(file)
        if owner is not None and owner.own == scope and identity in (None, owner.identity):
            found |= {one.conversation_id for one in lake.journal.read(file).messages if one.source == source}
    for begun, _ in begun_erasures(lake.storage):  # one that was interrupted may have removed some of them
        if (begun.source, begun.agent_id, begun.user_id) == (source, scope.agent_id, user_id):
            found |= {*begun.conversations}
    return Subject.of_source(scope, source, found, user_id)


def is_known(lake: Lake, subject: Subject, now: datetime) -> bool:
    """Return whether the lake has a tombstone of a subject, or bytes that name it. Reads all files if it must."""
    tombstones = {one.id: one.salt for one in lake.tombstones.all() if one.workspace_id == subject.workspace_id}
    own = {one.id for salt in {*tombstones.values()} for one in Tombstone.of(subject, now, salt)}
    if own & tombstones.keys():
        return True
    return bool(
        verify(lake, ErasureReport(subject, now, lake.storage.uri, (), (), {}, (), "0" * 32, (), 0, 0)).findings
    )


def forget(
    lake: Lake,
    models: Models,
    subject: Subject,
    now: datetime,
    progress: Callable[[str], None] = lambda _: None,
    *,
    at: datetime | None = None,
) -> ErasureReport:
    """Remove a subject from the lake permanently, and recompute derived data. Return the receipt.

    Safe to repeat, to interrupt, and to run next to writers, readers and pipeline runs. `at` is the cutoff, by default
    `now`; later messages remain. `progress` is called with a description of each step. The receipt names the subject,
    so store it outside of the lake.

    Raises:
        LakeError: writers kept adding data of the subject. Everything found so far is removed; retry.
        CommitConflictError: other writers kept committing first; retry.
    """
    models = asking_nobody(lake, models, now)
    known = lake.tombstones.all()
    salt = next((one.salt for one in known if one.workspace_id == subject.workspace_id), secrets.token_hex(16))
    tombstones = merged(known, Tombstone.of(subject, at or now, salt))
    earlier = {one.id: one for one in known}
    is_resumed = any(one.id in earlier and not earlier[one.id].is_done for one in tombstones)
    at = max(one.forgotten_at for one in tombstones)
    tombstones = [replace(one, forgotten_at=at) for one in tombstones]
    begin_erasure(lake.storage, subject, at)
    lake.access_log.settle(now)  # the receipt counts rows of the table
    lake.read_receipts.settle()
    lake.tombstones.put(tombstones)
    forgotten, scanner, log = Forgotten(tombstones), SubjectScanner(lake, subject, at), ErasureLog()
    progress("removing sessions")
    remove_sessions(lake, subject, at, log)
    hours = {hour for one in tombstones for hour in one.hours} if is_resumed else set[str]()
    was_resumed = is_resumed

    for number in range(_ROUNDS):
        progress("searching")
        found = find(lake, scanner, forgotten)
        # If the sources have expired, only summaries may be of the agent or name the person.
        if not found and not hours and (number or subject.kind is SubjectKind.CONVERSATION):
            break
        resumed = _scopes(lake, subject) if is_resumed or subject.kind is SubjectKind.AGENT else set[Scope]()
        log.scopes |= found.scopes | resumed
        if subject.kind is not SubjectKind.AGENT:
            find_changed_events(lake, log.scopes, found, forgotten)
        hours |= found.hours
        tombstones = [replace(one, hours=tuple(sorted(hours))) for one in tombstones]
        lake.tombstones.put(tombstones)
        _remove(lake, models, scanner, found, resumed, hours, log, progress)
        hours, is_resumed = set(), False
    else:
        raise LakeError(
            f"writers keep adding data of {subject}; stop them and run the command again: it resumes where it stopped"
        )
    if subject.kind is not SubjectKind.AGENT:
        remark_expired(lake, scanner, log)
    is_unknown = was_resumed
    if not earlier.keys().isdisjoint(one.id for one in tombstones) and subject.kind is not SubjectKind.AGENT:
        # A concurrent run may have indexed rows that it had read earlier, and removed them at its end. Purge again.
        log.scopes |= _scopes(lake, subject)
        was_resumed = True
    remove_accesses(lake, subject, at, log)
    remove_receipts(lake, scanner, tombstones, log, is_resumed=is_unknown)
    progress("deleting files")
    _finish(lake, scanner, log, everywhere=was_resumed)
    lake.tombstones.put([replace(one, is_done=True, hours=()) for one in tombstones])
    purged = lake.tables.purge(TABLES["tombstones"], orphans=_ORPHANS)
    log.purge("tombstones", purged)
    end_erasure(lake.storage, subject)
    log.note(_erased_keys(lake, subject, log.scopes), ())
    mark_salt = secrets.token_hex(16)
    ids, contents = log.gone(lake, scanner, mark_salt)
    return ErasureReport(
        subject=subject,
        at=at,
        lake=lake.storage.uri,
        tombstones=tuple(sorted(one.id for one in tombstones)),
        removed=log.removed,
        remade={grain.value: tuple(sorted(keys)) for grain, keys in log.remade.items() if keys},
        ids=tuple(ids),
        salt=mark_salt,
        contents=tuple(contents),
        files=log.files,
        bytes=log.bytes,
        not_covered=(
            *log.remarks,
            *_configured(lake, subject),
            *_left_behind(lake),
            *old_versions(lake),
            *_NOT_COVERED,
        ),
    )


def finish_erasures(lake: Lake, models: Models, now: datetime) -> None:
    """Finish the erasures that have begun and are not complete, each with its own cutoff.

    Raises:
        LakeError: an erasure cannot be finished without the name of its subject.
    """
    if not unfinished_erasures(lake.storage, lake.tombstones):
        return
    for subject, at in list(begun_erasures(lake.storage)):
        forget(lake, models, subject, now, at=at)
        _log.warning("an interrupted erasure is finished; for a receipt, run `memory-pipeline forget` again")
    if left := unfinished_erasures(lake.storage, lake.tombstones):
        raise LakeError(
            f"an erasure is not finished ({left[0]}), and only its tombstone is known, which names nobody: run "
            "`memory-pipeline forget` again with the same subject"
        )


@dataclass(frozen=True, slots=True)
class _StoredVectors:
    """Stands for the embedder that made the index, and makes no vectors. The next run makes those that are missing."""

    name: str
    dimension: int

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        """Return no vectors."""
        del uses
        return np.full((len(texts), self.dimension), np.nan, np.float32)


def asking_nobody(lake: Lake, models: Models, now: datetime) -> Models:
    """Return models that need no server, no budget and no embedder, so that nothing holds up an erasure."""
    if models.store is not None:
        models = stored_models(lake.configuration(), models.store, lake.calendar.timezone, lambda: now)
    own = models.embedder.name, models.embedder.dimension
    known = [made_by for index in lake.indices.all() if index.is_complete and (made_by := index.embedder())]
    return models if not known or own in known else replace(models, embedder=_StoredVectors(*known[0]))


def _remove(
    lake: Lake,
    models: Models,
    scanner: SubjectScanner,
    found: ScanResult,
    resumed: Collection[Scope],
    hours: Collection[str],
    log: ErasureLog,
    progress: Callable[[str], None],
) -> None:
    """Remove the found data, and replay the periods and scopes that held it.

    Agents in `resumed` may hold data derived from rows that an interrupted run has already removed.
    """
    subject = scanner.subject
    progress(f"removing {sum(counted(found).values()):,} rows and records")
    remove_members(lake, scanner, found, log)
    scopes, durable = set(log.scopes), found.durable | set(resumed)
    memories = note_memories(lake, scopes, log)
    if subject.kind is SubjectKind.AGENT:
        facts = lake.graph_rows.read(scopes, ["id"], where=IS_FACT)["id"].to_pylist()
        log.note([*facts, *lake.events.read(scopes, ["id"])["id"].to_pylist()], ())
        log.take(GRAPH_FACTS.name, "rows", len(facts))
    replace_events(lake, found.changed, log)
    remove_unread(lake, found, log)
    # Remove derived data before its sources, so that an interrupted run can find it again.
    days = with_ancestors(lake.calendar, hours, {})[Grain.DAILY]
    scrubbed = scrub_summaries(lake, scanner, found.ids(FACTS), days, log)
    touched = with_ancestors(lake.calendar, hours, scrubbed)
    note_summaries(scanner, touched, log)
    remove_answers(lake, scanner, scopes, touched, log, durable)
    remove_nights(lake, durable, log)
    if subject.kind is not SubjectKind.CONVERSATION:
        anonymize_calls(lake, scanner, log)
    remove_rows(lake, scanner, found, log)
    progress(f"deriving {len(touched[Grain.WORKING]):,} hours and their summaries again")
    remade = replay(lake, models, touched, scopes)
    if subject.kind is SubjectKind.AGENT:
        recompute_scopes(lake, scopes, scanner.partitions)  # the scanner has looked for all rows of the agent
    else:
        recompute_scopes(lake, scopes | groups_with(lake, subject.user_ids))
    for grain, keys in remade.items():
        log.remade[grain] |= keys
    enter_memories(lake, scopes, memories, log)
    log.touch(touched)


def _finish(lake: Lake, scanner: SubjectScanner, log: ErasureLog, *, everywhere: bool) -> None:
    """Delete removed data from the disk: files, old versions, logs and folders. Rebuild the marts."""
    subject = scanner.subject
    unread = {entry.path for entry in unread_indices(lake.storage)}
    log.scopes |= _scopes(lake, subject) if subject.kind is SubjectKind.AGENT else set()
    before = _index_files(lake, log.scopes)
    if subject.kind is not SubjectKind.CONVERSATION:
        forget_items(lake, scanner, log)
    # An interrupted run may have removed all rows of an agent, whose tables are then unknown.
    purge_rows(lake, None if everywhere else log.scopes, log)
    _note_deleted(lake, before, log)
    if subject.kind is SubjectKind.AGENT:
        for folder in (COLLECTIONS, PROJECTIONS):  # a purge of a table does so
            lake.storage.prune(folder)
        if not any(scope.identity for scope in _scopes(lake, subject)):
            lake.forget_per_user(Scope(subject.workspace_id, subject.agent_id or ""))
    if unread:  # a writer that was about to commit one of these has done so by now
        lake.storage.delete(entry.path for entry in unread_indices(lake.storage) if entry.path in unread)
    _clear_journal(lake, subject, log.scopes)


def purge_rows(lake: Lake, scopes: Collection[Scope] | None, log: ErasureLog) -> None:
    """Delete removed rows of tables, of the index of scopes, or of all, from the disk. Rebuild the marts."""
    folders = {entry.path.split("/")[1] for entry in lake.storage.list("marts")}
    known = {model.name for model in models_of("marts")} if folders else set[str]()
    # Even if this attempt removed nothing: an earlier one may have been killed before this.
    for _ in Warehouse(lake).build_all(folders & known, full=True) if folders & known else ():
        pass
    for name in sorted(folders - known):
        log.remark(f"marts/{name}, which no model builds any more, was not rebuilt: delete it")
    for spec in TABLES.values():
        log.purge(spec.name, lake.tables.purge(spec, orphans=_ORPHANS))
    for name in sorted(folders & known):
        log.purge("marts", lake.tables.purge_path(f"marts/{name}", orphans=_ORPHANS))
    lake.indices.sweep()
    for index in lake.indices.all():
        index.purge(scopes)
    for projection in lake.projections.values():
        projection.purge(scopes)


def _clear_journal(lake: Lake, subject: Subject, scopes: Collection[Scope]) -> None:
    """Delete acknowledgements and unfinished files of the subject's own scopes in the journal."""
    folders = set(lake.storage.folders("journal/pending"))
    for scope in scopes:
        folder = folder_of(scope)
        if subject.owns(scope) and folder.rpartition("/")[2] in folders:
            lake.journal.delete_acknowledgements(folder)
            _remove_unfinished(lake, folder)
    lake.storage.prune("journal/pending")


def _remove_unfinished(lake: Lake, folder: str) -> None:
    """Delete old temporary files of killed writers in a folder."""
    if not lake.storage.is_local:
        return
    now = datetime.now(UTC)
    for path in Path(lake.storage.locate(folder)).glob(".*"):
        with suppress(FileNotFoundError):
            if now - datetime.fromtimestamp(path.stat().st_mtime, UTC) > _ORPHANS:
                path.unlink()


def _index_files(lake: Lake, scopes: Collection[Scope]) -> dict[str, int]:
    """Return the files of the index and of the scopes' collections, with their sizes in bytes."""
    keys = {scope.key for scope in scopes}
    folders = [f"{COLLECTIONS}/{name}" for name in lake.storage.folders(COLLECTIONS) if key_in(name) in keys]
    return {entry.path: entry.size for folder in (PROJECTIONS, *folders) for entry in lake.storage.list(folder)}


def _note_deleted(lake: Lake, before: Mapping[str, int], log: ErasureLog) -> None:
    """Add deleted files of the index to the log, by table."""
    left = {entry.path for folder in (PROJECTIONS, COLLECTIONS) for entry in lake.storage.list(folder)}
    deleted = before.keys() - left
    counts = Counter(path.partition(".lance/")[0] for path in deleted)
    log.take("index", "files", counts)
    log.files += len(deleted)
    log.bytes += sum(before[path] for path in deleted)


def _scopes(lake: Lake, subject: Subject) -> set[Scope]:
    """Return the scopes that may hold the subject: those of its agent, or of all agents of the workspace."""
    known = known_scopes(lake, subject.workspace_id) | lake.journal.pending_scopes()
    known |= {scope for scope, _, _ in collections_of(lake)}
    known |= set() if subject.agent_id is None else {Scope(subject.workspace_id, subject.agent_id)}
    found = {scope for scope in known if scope.workspace_id == subject.workspace_id}
    found = {scope for scope in found if subject.agent_id in (None, scope.agent_id)}
    agents = {scope.own for scope in found} if subject.user_ids and lake.exists else ()
    users = {
        lake.scope(agent.workspace_id, agent.agent_id, user_identity(user_id))
        for agent in agents
        for user_id in subject.user_ids
    }
    return found | users


def _erased_keys(lake: Lake, subject: Subject, scopes: Collection[Scope]) -> set[str]:
    """Return the keys of the scopes of users and groups that are gone. Files and folders are named after them."""
    left = known_scopes(lake, subject.workspace_id) | lake.journal.pending_scopes()
    for group, user_id, _ in lake.members.all():
        left |= {group, lake.scope(group.workspace_id, group.agent_id, user_identity(user_id))}
    return {scope.key for scope in scopes if scope.identity and subject.owns(scope) and scope not in left}


def _configured(lake: Lake, subject: Subject) -> list[str]:
    """Return a remark if the configuration names the subject. Only a person can decide how to edit it."""
    text = (lake.storage.read(CONFIGURATION) or b"").decode(errors="replace")
    names = subject.user_ids or subject.conversation_ids or tuple(filter(None, [subject.agent_id]))
    return [f"{CONFIGURATION}, which names it: edit it"] if Mentions(names).mentioned_in(text) else []


def _left_behind(lake: Lake) -> list[str]:
    """Return a remark on files outside of all tables. They may hold forgotten data and are deleted when old."""
    count = len(unnamed_files(lake.storage))
    if not count:
        return []
    text = (
        f"{count:,} files younger than an hour that belong to no table, of killed or running processes; "
        "`memory-pipeline expire` deletes them once they are an hour old"
    )
    return [text]

"""Forgets an agent, a conversation or a person: in which order things are removed, made again, and taken off the disk.

The tombstone comes first. From then on no run takes in what it matches, and a run that read it before finds the
tombstone when it is done, and removes it itself. What was found is written into the tombstone before anything is
removed, so that whoever is interrupted can start over; the tombstone is done when nothing is found any more and the
bytes are gone.
"""

from __future__ import annotations

import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.erasure import Forgotten, SubjectKind, Tombstone, merged
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.erasure.erasure_log import ErasureLog
from memory_pipeline.erasure.memories import (
    agents_with_memories,
    concerned,
    enter_memories,
    keep_again,
    note_memories,
    remove_memories,
    remove_nights,
    settle_events,
)
from memory_pipeline.erasure.recompute import (
    ancestors,
    enter_removal,
    note_summaries,
    recompute,
    remark_expired,
    scrub_summaries,
    sync_index,
)
from memory_pipeline.erasure.removal import forget_items, remove_agent, remove_answers, remove_rows, remove_unread
from memory_pipeline.erasure.report import ErasureReport
from memory_pipeline.erasure.scanner import ScanResult, SubjectScanner, counted, find
from memory_pipeline.erasure.verification import agent_of, old_versions
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.orphans import unnamed_files
from memory_pipeline.lake.schemas import FACTS, SUMMARIES, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from memory_pipeline.domain.erasure import Subject
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

#: How often the lake is searched again because writers brought more.
_ROUNDS = 5
#: Files that nothing refers to are taken for a writer's under way when they are younger.
_ORPHANS = timedelta(hours=1)
#: What no receipt covers.
_NOT_COVERED = (
    "previews and logs in Dagster's own storage, outside of the lake",
    "backups of the lake, and versions and snapshots that an object store or a file system keeps by itself",
    "items of agents' own collections that do not name the person, or belong to the conversation",
    "copies of memory that others have taken: prompts, exports, results of SQL",
)


@dataclass(frozen=True, slots=True)
class ErasurePreview:
    """What there is of a subject, before anything is done.

    Attributes:
        counts: rows, messages and records by place.
        scopes: the agents that hold any of it.
        hours: keys of the hours in which it was said, sorted.
        sample: ids of some of the messages or other rows.
    """

    counts: dict[str, int]
    scopes: tuple[Scope, ...]
    hours: tuple[str, ...]
    sample: tuple[str, ...]


def preview(lake: Lake, subject: Subject, now: datetime, *, sample: int = 10) -> ErasurePreview:
    """Say what there is of a subject; changes nothing."""
    found = find(lake, SubjectScanner(lake, subject, now), Forgotten(Tombstone.of(subject, now, secrets.token_hex(16))))
    ids = sorted(identifier for name in ("messages", "facts", "memory_events") for identifier in _ids(found, name))
    return ErasurePreview(
        dict(counted(found)),
        tuple(sorted(found.scopes, key=lambda scope: scope.agent_id)),
        tuple(sorted(found.hours)),
        tuple(ids[:sample]),
    )


def forget(
    lake: Lake,
    models: Models,
    subject: Subject,
    now: datetime,
    progress: Callable[[str], None] = lambda _: None,
) -> ErasureReport:
    """Remove a subject from a lake for good, and make again what was derived from it.

    Safe to repeat, to interrupt, and to run beside writers, readers and runs of the pipeline.

    Args:
        lake: where.
        models: what makes the rest again.
        subject: whom or what to forget.
        now: what was said up to then is forgotten.
        progress: told in words what is being done.

    Returns:
        What was removed. It names the subject, so it is to be kept outside of the lake.

    Raises:
        LakeError: writers brought more and more of it; what was found until then is removed. Safe to try again.
        CommitConflictError: other writers kept winning. Safe to try again.
        ConfigurationError: the models are not those that the lake was made with.
    """
    lake.index.check(models.embedder)
    known = lake.tombstones.all()
    salt = next((one.salt for one in known if one.workspace_id == subject.workspace_id), secrets.token_hex(16))
    tombstones = merged(known, Tombstone.of(subject, now, salt))
    earlier = {one.id: one for one in known}
    is_resumed = any(one.id in earlier and not earlier[one.id].is_done for one in tombstones)
    at = max(one.forgotten_at for one in tombstones)
    tombstones = [replace(one, forgotten_at=at) for one in tombstones]
    lake.tombstones.put(tombstones)
    forgotten, looker, account = Forgotten(tombstones), SubjectScanner(lake, subject, at), ErasureLog()
    hours = {hour for one in tombstones for hour in one.hours} if is_resumed else set[str]()

    for number in range(_ROUNDS):
        progress("searching")
        found = find(lake, looker, forgotten)
        # A person may be named in summaries alone, whose sources have expired.
        if not found and not hours and (number or subject.kind is not SubjectKind.PERSON):
            break
        hours |= found.hours
        tombstones = [replace(one, hours=tuple(sorted(hours))) for one in tombstones]
        lake.tombstones.put(tombstones)
        resumed = _agents(lake, subject) if is_resumed else set[Scope]()
        account.scopes |= found.scopes | resumed
        _remove(lake, models, looker, found, forgotten, resumed, hours, at, now, account, progress)
        hours, is_resumed = set(), False
    else:
        raise LakeError(
            f"writers bring more and more of {subject}; stop them, and run it again: it goes on where it was"
        )
    if subject.kind is not SubjectKind.AGENT:
        remark_expired(lake, looker, account)
    if not earlier.keys().isdisjoint(one.id for one in tombstones) and subject.kind is not SubjectKind.AGENT:
        # A run may have written into the index what it had read before, and taken it out when it was done.
        account.scopes |= _agents(lake, subject)
    progress("taking it off the disk")
    _finish(lake, looker, account, models.embedder.dimension)
    lake.tombstones.put([replace(one, is_done=True, hours=()) for one in tombstones])
    purged = lake.tables.purge(TABLES["tombstones"], orphans=_ORPHANS)
    account.purge("tombstones", purged)
    mark_salt = secrets.token_hex(16)
    ids, contents = account.gone(lake, looker, mark_salt)
    return ErasureReport(
        subject=subject,
        at=at,
        lake=lake.storage.uri,
        tombstones=tuple(sorted(one.id for one in tombstones)),
        removed=account.removed,
        remade={
            grain.value: tuple(sorted(period.key for period in periods)) for grain, periods in account.remade.items()
        },
        ids=tuple(ids),
        salt=mark_salt,
        contents=tuple(contents),
        files=account.files,
        bytes=account.bytes,
        not_covered=(
            *account.remarks,
            *_configured(lake, subject),
            *_left_behind(lake, subject.workspace_id),
            *old_versions(lake),
            *_NOT_COVERED,
        ),
    )


def _remove(
    lake: Lake,
    models: Models,
    looker: SubjectScanner,
    found: ScanResult,
    forgotten: Forgotten,
    resumed: Collection[Scope],
    hours: Collection[str],
    at: datetime,
    now: datetime,
    account: ErasureLog,
    progress: Callable[[str], None],
) -> None:
    """Remove what was found, and make again what was derived from it.

    The agents in `resumed` may lack what an interrupted run has removed, and hold what was derived from it.
    """
    subject = looker.subject
    progress(f"removing {sum(counted(found).values()):,} rows and records")
    if subject.kind is SubjectKind.AGENT and subject.scope is not None:
        remove_unread(lake, found, account)
        remove_answers(lake, looker, [subject.scope], {}, account)
        periods = ancestors(lake.calendar, hours, {})
        remove_memories(lake, subject.scope, found, account)
        for grain, keys in remove_agent(lake, looker, subject.scope, found, account).items():
            periods[grain] |= keys
        _remove_index(lake, subject.scope, account)
        enter_removal(lake, periods)
        keep_again(lake, models, [subject.scope], (), now, account)  # what it has said since
        return
    scopes = {*found.scopes, *resumed, *account.scopes}
    memories = note_memories(lake, scopes, account)
    durable = concerned(found) | set(resumed) | settle_events(lake, scopes, found, forgotten, account)
    remove_unread(lake, found, account)
    # What is derived goes before what it is derived from: until then it can be found, whoever interrupts this.
    days = ancestors(lake.calendar, hours, {})[Grain.DAILY]
    scrubbed = scrub_summaries(lake, looker, found.ids(TABLES["facts"]), days, at, account)
    touched = ancestors(lake.calendar, hours, scrubbed)
    note_summaries(looker, touched, account)
    remove_answers(lake, looker, scopes, touched, account, durable)
    remove_nights(lake, durable, account)
    remove_rows(lake, found, account)
    progress(f"making {len(touched[Grain.WORKING]):,} hours and what rolls up from them again")
    recompute(lake, models, touched, now, account)
    sync_index(lake, scopes, touched, models.embedder.dimension, account)
    keep_again(lake, models, scopes, touched[Grain.WORKING], now, account)
    enter_memories(lake, scopes, memories, account)
    account.touch(touched)


def _finish(lake: Lake, looker: SubjectScanner, account: ErasureLog, dimension: int) -> None:
    """Take what was removed off the disk: files, old versions and logs, marts that were made from it, and folders."""
    subject = looker.subject
    if subject.kind is SubjectKind.PERSON:
        forget_items(lake, looker, account)
    folders = {entry.path.split("/")[1] for entry in lake.storage.list("marts")}
    known = {model.name for model in models_of("marts")}
    if account.removed:
        for _ in Warehouse(lake).build_all(folders & known, full=True):
            pass
    for name in sorted(folders - known):
        account.remark(f"marts/{name} is made by no model any more, and was left as it is: delete it")
    for spec in TABLES.values():
        account.purge(spec.name, lake.tables.purge(spec, orphans=_ORPHANS))
    for name in sorted(folders & known):
        account.purge("marts", lake.tables.purge_path(f"marts/{name}", orphans=_ORPHANS))
    if subject.kind is not SubjectKind.AGENT:
        before = _index_files(lake, account.scopes)
        lake.index.purge(account.scopes)
        _note_gone(lake, before, account)
    elif subject.scope is not None:
        scope = subject.scope
        _remove_index(lake, scope, account)
        # What it has said since stays, and is found.
        since = {
            grain: {key for rows in looker.parts(spec, ["period"], **fixed) for key in rows["period"].to_pylist()}
            for grain in Grain
            for spec, fixed in [(FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})]
        }
        sync_index(lake, [scope], since, dimension, ErasureLog())
        lake.journal.delete_stale_marks(scope)
        _remove_unfinished(lake, f"journal/pending/{scope.workspace_id}/{scope.agent_id}")
        for folder in ("journal/pending", "vectordb", "tables"):
            lake.storage.prune(folder)


def _remove_unfinished(lake: Lake, folder: str) -> None:
    """Delete what writers that were killed have left of files in a folder, once it is old."""
    if not lake.storage.is_local:
        return
    now = datetime.now(UTC)
    for path in Path(lake.storage.locate(folder)).glob(".*"):
        with suppress(FileNotFoundError):
            if now - datetime.fromtimestamp(path.stat().st_mtime, UTC) > _ORPHANS:
                path.unlink()


def _remove_index(lake: Lake, scope: Scope, account: ErasureLog) -> None:
    before = _index_files(lake, [scope])
    lake.index.remove_agent(scope)
    _note_gone(lake, before, account)


def _index_files(lake: Lake, scopes: Collection[Scope]) -> dict[str, int]:
    """Return the files of agents' index and collections, with their bytes."""
    agents = {(scope.workspace_id, scope.agent_id) for scope in scopes}
    return {
        entry.path: entry.size
        for workspace_id in {scope.workspace_id for scope in scopes}
        for entry in lake.storage.list(f"vectordb/{workspace_id}")
        if (workspace_id, agent_of(entry.path)) in agents
    }


def _note_gone(lake: Lake, before: Mapping[str, int], account: ErasureLog) -> None:
    """Enter files of the index that are there no more, by table."""
    gone = before.keys() - lake.storage.sizes(before, "vectordb").keys()
    counts = Counter("/".join(path.split("/")[1:3]).removesuffix(".lance") for path in gone)
    account.take("index", "files", counts)
    account.files += len(gone)
    account.bytes += sum(before[path] for path in gone)


def _agents(lake: Lake, subject: Subject) -> set[Scope]:
    """Return the agents that may hold the subject: those that have an index, or durable memories."""
    indexed = {scope for scope in lake.index.agents(subject.workspace_id) if subject.agent_id in (None, scope.agent_id)}
    return indexed | agents_with_memories(lake, subject)


def _configured(lake: Lake, subject: Subject) -> list[str]:
    """Say so if the configuration names the subject: only a person can decide what it should say instead."""
    text = (lake.storage.read(CONFIGURATION) or b"").decode(errors="replace")
    names = subject.names or tuple(name for name in (subject.conversation_id or subject.agent_id,) if name)
    return [f"{CONFIGURATION}, which names it: edit it"] if Mentions(names).mentioned_in(text) else []


def _left_behind(lake: Lake, workspace_id: str) -> list[str]:
    """Say how many files no table holds: what they hold may have been forgotten since, and goes when they are old."""
    count = len(unnamed_files(lake.storage, workspace_id))
    if not count:
        return []
    text = (
        f"{count:,} files younger than an hour that belong to no table, of processes that were killed or are at work; "
        "`memory-pipeline expire` deletes them once they are an hour old"
    )
    return [text]


def _ids(found: ScanResult, name: str) -> list[str]:
    return [identifier for listed in found.rows.get(name, {}).values() for identifier in listed]

"""Rebuild a lake: write what it holds to a new one, with other settings that are fixed when a lake is created."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope, user_identity
from memory_pipeline.errors import InputError
from memory_pipeline.lake.collections.collection import COLLECTIONS
from memory_pipeline.lake.files.storage import MANIFEST, Storage
from memory_pipeline.lake.schemas import GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.sessions.saved import SAVED
from memory_pipeline.sessions.store import existing_stores, session_store
from memory_pipeline.settings import sessions_url
from memory_pipeline.steps.group import scopes_in
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline.transfer.copying import CopySelection, copy_lake
from memory_pipeline.transfer.deriving import derive, models_without_requests
from memory_pipeline.transfer.renaming import copy_renamed

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.transfer.copying import Progress

#: Says of a lake that it is being rebuilt from another one, or that it was.
_STATE: Final = "state/rebuilt.json"
_QUARANTINE: Final = "journal/quarantine"


@dataclass(slots=True)
class RebuildReport:
    """What a rebuild did.

    Attributes:
        copied: number of rows and records, by table or kind.
        renamed: agents whose users have a memory of their own now, or no longer.
        not_copied: what stayed behind, with the reason.
    """

    copied: dict[str, int] = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)
    not_copied: list[str] = field(default_factory=list)


def rebuild(
    source: Lake,
    uri: str,
    embedder: Embedder,
    now: datetime,
    *,
    old_uri: str | None = None,
    shards: int | None = None,
    configuration: Path | None = None,
    until: datetime | None = None,
    progress: Progress = lambda *_: None,
) -> RebuildReport:
    """Write all that a lake holds to a new lake at `uri`. No model is asked: rules stand in, and the next run asks.

    Continues where an interrupted call stopped. The old lake is only read. Writers should rest meanwhile: what they
    write after its copy is not in the new lake.

    Args:
        source: the old lake.
        uri: a folder or ``s3://bucket/prefix`` without a lake, or the one of an interrupted call.
        embedder: the embedder of the old lake.
        now: the current time.
        old_uri: the address of a lake of an older format, of which `source` has the records. They get new ids.
        shards: the number of shards of the new lake; by default that of the old one.
        configuration: the configuration of the new lake; by default that of the old one. Where it has another
            ``per_user``, records are written to the memory of their user, or of their agent.
        until: only what had been received by this time.
        progress: called with a label, a number and a total.

    Raises:
        InputError: there is another lake at `uri`, or it was rebuilt completely.
        PartitionsError: some periods cannot be derived; all others are complete.
    """
    report = RebuildReport()
    storage = Storage(uri)
    known = json.loads(storage.read(_STATE) or b"null")
    erased = digest(sorted((one, at.isoformat()) for one, at in source.tombstones.state()))
    state = {"from": old_uri or source.storage.uri, "until": until and until.isoformat(), "erased": erased}
    if known is None and storage.is_there(MANIFEST):
        raise InputError(f"there is a lake at {uri} already; name a new folder")
    if known and known["is_complete"]:
        raise InputError(f"the lake at {uri} is complete; use it, or name a new folder")
    if known and known | {"erased": erased} != state | {"is_complete": False}:
        raise InputError(f"the lake at {uri} is being rebuilt from {known['from']}; finish that, or name a new folder")
    if known and known["erased"] != erased:
        raise InputError(f"something was erased since this rebuild began; delete {uri} and begin again")
    storage.write(_STATE, json.dumps(state | {"is_complete": False}).encode())
    target = source.new_copy(uri, shards, with_agents=configuration is None)
    if configuration is not None:
        target.put_configuration(configuration)
    changed = {one.own for one in _scopes(source)} if old_uri else _changed(source, target)
    report.renamed = sorted(map(str, changed))
    same = None if not changed else frozenset(one for one in _scopes(source) if one.own not in changed)
    copied = copy_lake(source, target, CopySelection(same, until), progress)
    report.copied = dict(copied.counts)
    if changed:
        others = frozenset(one for one in _scopes(source) if one.own in changed)
        renamed = copy_renamed(source, target, CopySelection(others, until), _scope_in(target), progress)
        for name, count in renamed.counts.items():
            report.copied[name] = report.copied.get(name, 0) + count
        copied.hours |= renamed.hours
        report.not_copied.append(
            f"of {', '.join(report.renamed)}: facts and summaries whose messages have expired, receipts of reads, "
            "costs of models, and uses of memories, because their records have new ids"
        )
    if until is None:
        _copy_files(source, target, report)
    else:
        report.not_copied.append("sessions, collections of vectors and quarantined records, which have no history")
    models = models_without_requests(target, embedder, target.calls, now, vectors_of=source)
    derive(target, models, until or now, copied.hours, progress)
    target.storage.write(_STATE, json.dumps(state | {"is_complete": True}).encode())
    return report


def _scopes(lake: Lake) -> set[Scope]:
    """Return the scopes of loaded and of pending records."""
    rows = [lake.tables.read(spec, columns=SCOPE_COLUMNS) for spec in (MESSAGES, GRAPH_OPERATIONS, MEMORY_EVENTS)]
    return scopes_in(pa.concat_tables(rows)) | known_scopes(lake) | lake.journal.pending_scopes()


def _changed(source: Lake, target: Lake) -> set[Scope]:
    """Return the agents whose users have a memory of their own in one of the lakes alone."""
    old, new = source.configuration(), target.configuration()
    agents = {scope.own for scope in _scopes(source)}
    return {agent for agent in agents if old.per_user(agent) is not new.per_user(agent)}


def _scope_in(target: Lake) -> Any:
    def scope_for(scope: Scope, user_id: str | None) -> Scope:
        identity = scope.identity or ("" if user_id is None else user_identity(user_id))
        return target.new_scope(scope.workspace_id, scope.agent_id, identity)

    return scope_for


def _copy_files(source: Lake, target: Lake, report: RebuildReport) -> None:
    """Copy what is stored beside the tables."""
    for folder in (_QUARANTINE, SAVED, COLLECTIONS):
        for file in source.storage.list(folder):
            if (data := source.storage.read(file.path)) is not None:
                target.storage.write(file.path, data)
                report.copied[folder] = report.copied.get(folder, 0) + 1
    if sessions_url() is not None:
        return  # the new lake has the id of the old one, and with it the same sessions
    for store in existing_stores(source):
        if not target.storage.is_local:
            report.not_copied.append("sessions, because a bucket needs a database: set MEMORY_PIPELINE_SESSIONS")
            return
        copies = session_store(target)
        for container, entry in store.stored():
            copies.entries(container).put(
                entry.key, entry.value, entry.expires_at, entry.updated_at, entry.type, entry.accesses, entry.created_at
            )
            report.copied["sessions"] = report.copied.get("sessions", 0) + 1

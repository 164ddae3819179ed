"""Remove a subject from tables, journal, model answers and collections. A replay makes derived rows again."""

from __future__ import annotations

from collections import Counter
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.model_calls import Purpose
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope, user_identity
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.erasure.scanner import hex_of
from memory_pipeline.lake.access_log import USE
from memory_pipeline.lake.calls.pending_calls import PendingCalls
from memory_pipeline.lake.codec.codec import scope_columns, scopes_of
from memory_pipeline.lake.collections.collection import collections_of, drop_collections
from memory_pipeline.lake.index.lance_tables import Databases, run_coroutine
from memory_pipeline.lake.index.maintenance import SAME_ITEM, rewrite
from memory_pipeline.lake.schemas import (
    ACCESS_LOG,
    ANSWERS,
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    MODEL_CALLS,
)
from memory_pipeline.steps.group import scopes_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping
    from datetime import datetime

    from memory_pipeline.domain.subjects import Subject
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.erasure.scanner import ScanResult, SubjectScanner
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


#: The name of the agent or user in the calls of a forgotten one.
ERASED = "erased"
#: Length of the date with which the key of an hour begins; keys of other grains are not longer.
_DAY = len("2024-01-15")


def remove_unread(lake: Lake, found: ScanResult, log: ErasureLog) -> None:
    """Remove matching records from pending journal files and the quarantine, and grants from the journal.

    Other records of a file are written to a new file before the old one is deleted.
    """
    for file, remaining in found.files.items():
        lake.journal.set_aside(remaining.rejected)
        lake.journal.append([*remaining.messages, *remaining.edits, *remaining.events])
        lake.journal.acknowledge([file])
    log.take("journal", "messages, edits, events and broken lines in pending files", found.pending)
    lake.access.remove(found.access)
    log.note((event.id for event in found.access), ())
    log.take("journal", "grants, revokes and changes of teams", len(found.access))
    lake.corrections.remove(found.corrections)
    log.note((one.id for one in found.corrections), ())
    log.take("journal", "corrections", len(found.corrections))
    lake.storage.delete(found.set_aside)
    log.take("quarantine", "records", len(found.set_aside))


def remove_rows(lake: Lake, scanner: SubjectScanner, found: ScanResult, log: ErasureLog) -> None:
    """Remove memory events, graph operations, facts and messages: derived rows before their sources.

    An agent's marks of expiry go, too, and the rows of the archive.
    """
    remove_archived(lake, scanner, found, log)
    for spec in (MEMORY_EVENTS, GRAPH_OPERATIONS, FACTS, MESSAGES):
        keys = found.rows.get(spec.name)
        if keys:
            ids = found.ids(spec)
            log.take(spec.name, "rows", drop(lake, spec, list(keys), "id", ids))
            log.note(ids, ())
    log.note((), found.texts)
    subject = scanner.subject
    if subject.kind is SubjectKind.AGENT:
        where = {"workspace_id": subject.workspace_id, "agent_id": subject.agent_id}

        def is_own(rows: pa.Table) -> pa.ChunkedArray:
            return pc.and_(*(pc.equal(rows[name], value) for name, value in where.items()))

        log.take(EXPIRATIONS.name, "rows", lake.tables.drop_rows(EXPIRATIONS, None, is_own, list(where)))


def remove_archived(lake: Lake, scanner: SubjectScanner, found: ScanResult, log: ErasureLog) -> None:
    """Rewrite or delete files of the archive, first those of facts. Delete notes of what was restored to an owner."""
    counts: Counter[str] = Counter()
    for file, (scope, rows) in sorted(found.archived.items(), key=lambda item: item[0].spec is MESSAGES):
        lake.archived.replace(file, scope, rows)
        counts[file.period] += file.rows - rows.num_rows
    for ids in found.archived_ids.values():
        log.note(ids, ())
    log.take("archive", "messages and facts", counts)
    own = {scope.key for scope in found.scopes | log.scopes if scanner.subject.owns(scope)}
    lake.archived.delete(path for path, rows in lake.archived.restored() if rows.scope in own)


def remove_answers(
    lake: Lake,
    scanner: SubjectScanner,
    scopes: Collection[Scope],
    periods: Mapping[Grain, Collection[str]],
    log: ErasureLog,
    consolidated: Collection[Scope] = (),
) -> None:
    """Remove model answers for the given agents and periods, and all answers that name the person.

    Of an hour, the answers for the whole day: an answer about several hours is stored with the first one.
    If the subject is an agent, remove all of its answers. For agents in `consolidated`, also remove answers for
    consolidation from the first of the days on. Spending remains recorded.
    """
    lake.calls.settle()
    is_agent = scanner.subject.kind is SubjectKind.AGENT
    own, consolidated_own = (pa.array([scope.key for scope in some], pa.string()) for some in (scopes, consolidated))
    for grain in Grain:
        keys_of_grain = set(periods.get(grain, ()))
        removed: dict[str, list[str]] = {}
        columns = ["period", "key", "identity", "scope", "purpose", "answer"]
        for rows in scanner.parts(ANSWERS, columns, grain=grain.value):
            mask = pc.is_in(rows["scope"], own)
            if not is_agent:
                days = pa.array(sorted({key[:_DAY] for key in keys_of_grain}), pa.string())
                mask = pc.and_(mask, pc.is_in(pc.utf8_slice_codeunits(rows["period"], 0, _DAY), days))
                mask = pc.or_(mask, pa.chunked_array([pa.array(scanner.said(rows, ANSWERS))]))
                if grain is Grain.DAILY and keys_of_grain:
                    of_consolidation = pc.and_(
                        pc.is_in(rows["scope"], consolidated_own), pc.greater_equal(rows["period"], min(keys_of_grain))
                    )
                    of_consolidation = pc.and_(of_consolidation, pc.not_equal(rows["purpose"], Purpose.SUMMARY.value))
                    mask = pc.or_(mask, of_consolidation)
            for period, key in zip(*(rows.filter(mask)[name].to_pylist() for name in ("period", "key")), strict=True):
                removed.setdefault(period, []).append(key)
        if removed:
            keys = {key for listed in removed.values() for key in listed}
            log.take(ANSWERS.name, "rows", drop(lake, ANSWERS, list(removed), "key", keys, grain=grain.value))
    _remove_vectors(lake, scopes, None if is_agent else periods, log)


def drop(
    lake: Lake, spec: TableSpec, keys: list[str] | None, column: str, values: Collection[str], **fixed: str
) -> dict[str, int]:
    """Remove the rows of partitions, or of all, with one of the values in a column. Return their number by key."""
    targets = pa.array(sorted(values), pa.string())
    return lake.tables.drop_rows(spec, keys, lambda rows: pc.is_in(rows[column], targets), [column], **fixed)


def _remove_vectors(
    lake: Lake, scopes: Collection[Scope], periods: Mapping[Grain, Collection[str]] | None, log: ErasureLog
) -> None:
    """Delete pending vectors of rows that are not written yet."""
    pending = PendingCalls(lake.storage)
    paths = [
        entry.path
        for entry, call in pending.read(pending.list()).items()
        if call.answer is not None
        and call.answer.use.scope in scopes
        and (periods is None or call.answer.use.period.key in periods.get(call.answer.use.period.grain, ()))
    ]
    pending.delete(paths)
    log.take("calls", "pending answers", len(paths))


def anonymize_calls(lake: Lake, scanner: SubjectScanner, log: ErasureLog) -> None:
    """Replace the ids in the calls of an agent or a user. The rows remain, so that spending is still known."""
    subject = scanner.subject
    is_agent = subject.kind is SubjectKind.AGENT
    users = pa.array(map(user_identity, subject.user_ids), pa.string())

    def is_own(rows: pa.Table) -> pa.ChunkedArray:
        mask = pc.equal(rows["workspace_id"], subject.workspace_id)
        if subject.agent_id is not None:
            mask = pc.and_(mask, pc.equal(rows["agent_id"], subject.agent_id))
        return mask if is_agent else pc.and_(mask, pc.is_in(rows["identity"], users))

    def anonymous(scope: Scope) -> Scope:
        if is_agent:
            return Scope(scope.workspace_id, ERASED)
        return lake.scope(scope.workspace_id, scope.agent_id, user_identity(ERASED))

    def anonymized(old: pa.Table) -> pa.Table:
        replaced = {scope: anonymous(scope) for scope in scopes_in(old.filter(is_own(old)))}
        scopes = [replaced.get(scope, scope) for scope in scopes_of(old)]
        for name, values in scope_columns(scopes).items():
            place = old.schema.get_field_index(name)
            old = old.set_column(place, old.schema.field(place), pa.array(values, pa.string()))
        return old

    hours: Counter[str] = Counter()
    for rows in scanner.parts(MODEL_CALLS, ["hour", *SCOPE_COLUMNS]):
        hours.update(rows.filter(is_own(rows))["hour"].to_pylist())
    if hours:
        lake.tables.transform(MODEL_CALLS, hours, anonymized)
    log.take(MODEL_CALLS.name, f"rows that lost the {'agent' if is_agent else 'user'}'s name", hours)


def remove_accesses(lake: Lake, subject: Subject, at: datetime, log: ErasureLog) -> None:
    """Remove a subject's tokens, its rows until the cutoff `at` from the log of access, and ids of results from others.

    Rows of an agent are those in which it owns the memory, and those in which it asks. Other rows of the agents that
    held data of the subject may have returned it.
    """
    tokens = lake.tokens.remove(
        lambda one: one.created_at <= at and subject.owns_memory_of(one.workspace_id, one.agent_id, one.user_id)
    )
    log.take("config", "tokens of the service", tokens)
    lake.access_log.settle(at)
    agents = {scope.agent_id for scope in log.scopes}
    users = pa.array(map(user_identity, subject.user_ids), pa.string())

    def is_own(rows: pa.Table) -> pa.ChunkedArray:
        mask = pc.and_(pc.equal(rows["workspace_id"], subject.workspace_id), pc.less_equal(rows["called_at"], at))
        if subject.kind is SubjectKind.AGENT:
            owns, asks = (pc.equal(rows[name], subject.agent_id) for name in ("agent_id", "asking_agent"))
            return pc.and_(mask, pc.or_(owns, asks))
        if subject.agent_id is not None:
            mask = pc.and_(mask, pc.equal(rows["agent_id"], subject.agent_id))
        return pc.and_(mask, pc.is_in(rows["identity"], users))

    rows = lake.tables.read(ACCESS_LOG)
    log.note(rows.filter(is_own(rows))["id"].to_pylist(), ())
    columns = ["workspace_id", "agent_id", "identity", "asking_agent", "called_at"]
    log.take(ACCESS_LOG.name, "rows", lake.tables.drop_rows(ACCESS_LOG, None, is_own, columns))

    def without_ids(old: pa.Table) -> pa.Table:
        rows = old.to_pylist()
        for row in rows:
            row["grant_ids"] = [one for one in row["grant_ids"] if hex_of(one) not in log.ids]
            is_near = row["workspace_id"] == subject.workspace_id and row["agent_id"] in agents
            if is_near and row["operation"] != USE:
                row["result_ids"] = []
        rows = [row for row in rows if row["operation"] != USE or hex_of(row["result_ids"][0]) not in log.ids]
        return pa.Table.from_pylist(rows, schema=old.schema)

    if days := lake.tables.keys(ACCESS_LOG):
        lake.tables.transform(ACCESS_LOG, days, without_ids)


def remove_members(lake: Lake, scanner: SubjectScanner, found: ScanResult, log: ErasureLog) -> None:
    """Remove erased users from the members of groups: in the index of members, and in rows that remain."""
    users = frozenset(scanner.subject.user_ids)
    for spec in (MESSAGES, GRAPH_OPERATIONS, MEMORY_EVENTS):
        if not (keys := found.members.get(spec.name)):
            continue
        ids = pa.array(sorted(identifier for listed in keys.values() for identifier in listed), pa.string())

        def without(old: pa.Table, ids: pa.Array = ids) -> pa.Table:
            is_concerned = pc.is_in(old["id"], ids).to_pylist()
            members = [
                [user for user in listed if user not in users] if is_found else listed
                for listed, is_found in zip(old["users"].to_pylist(), is_concerned, strict=True)
            ]
            place = old.schema.get_field_index("users")
            return old.set_column(place, old.schema.field(place), pa.array(members, old.schema.field(place).type))

        lake.tables.transform(spec, list(keys), without)
        log.take(spec.name, "rows that lost a member of the group", {key: len(ids) for key, ids in keys.items()})
    for group, user_id in found.memberships:
        lake.members.remove(group, user_id)
        log.scopes.add(group)
    log.take("journal", "members of groups", len(found.memberships))
    lake.members.add_since({key: at for key, at in found.since.items() if key in found.memberships})
    lake.storage.prune("journal/members")


_COLUMNS = ("id", "content", "metadata")
_ITEMS_PER_COMMIT = 1_000


def forget_items(lake: Lake, scanner: SubjectScanner, log: ErasureLog) -> None:
    """Drop the collections of an agent or a user. Delete items that name the person from those of others."""
    subject = scanner.subject
    databases = Databases(lake.storage)
    owned = [each for each in collections_of(lake) if subject.owns(each[0])]
    drop_collections(lake, {scope for scope, _, _ in owned})
    log.take("collections", "tables", {f"{folder}/{name}": 1 for _, folder, names in owned for name in names})
    for scope, folder, names in collections_of(lake) if subject.kind is SubjectKind.PERSON else ():
        if scope.workspace_id == subject.workspace_id and subject.agent_id in (None, scope.agent_id):
            for name in names:
                count = run_coroutine(_forget(lake, databases, scanner, folder, name))
                log.take("collections", "items", {f"{folder}/{name}": count} if count else 0)


async def _forget(lake: Lake, databases: Databases, scanner: SubjectScanner, folder: str, name: str) -> int:
    async def read(table: Any) -> pa.Table:
        return await table.query().select(list(_COLUMNS)).to_arrow()

    rows = await databases.read(folder, name, read, None)
    if rows is None:
        return 0
    matches = np.any([scanner.mentioned(rows[column]) for column in _COLUMNS], axis=0)
    ids = rows.filter(pa.array(matches))["id"].to_pylist()

    def rewritten(table: Any) -> Awaitable[None]:
        return rewrite(table, lake.storage, f"{folder}/{name}.lance", SAME_ITEM, {})

    for start in range(0, len(ids), _ITEMS_PER_COMMIT):
        listed = ", ".join(f"'{identifier}'" for identifier in ids[start : start + _ITEMS_PER_COMMIT])
        await databases.edit(folder, name, methodcaller("delete", f"id IN ({listed})"), None)
    if ids:
        await databases.edit(folder, name, rewritten, None)
    return len(ids)

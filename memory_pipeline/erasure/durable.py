"""Durable memories of a subject: what they are folded from is removed, and their nights are made again from the rest.

What the upkeep decided may quote anybody: it merges contents, and gives its reasons in words. So it goes with what it
was decided about, and with the answers of models that it rests on, and is decided anew.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.durable.events import MemoryVerb
from memory_pipeline.domain.durable.fold import fold
from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.periods import FIRST_YEAR, Period
from memory_pipeline.domain.retention import Kept
from memory_pipeline.erasure.finding import Found
from memory_pipeline.erasure.removing import drop, remove_unread
from memory_pipeline.lake.expirations import Marks
from memory_pipeline.lake.memory_rows import rows_to_events
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, MESSAGES, UPKEEP, UPKEEP_EVENTS, owner_of
from memory_pipeline.steps.memories import refold
from memory_pipeline.steps.nights import UPKEEP_ASSET, pending_nights
from memory_pipeline.steps.upkeep import keep_up

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from memory_pipeline.domain.erasure import Subject
    from memory_pipeline.erasure.account import Account
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.selection import Models

_SCOPE = ("workspace_id", "agent_id")
_OF_AGENT = (MEMORIES, UPKEEP_EVENTS, MEMORY_EVENTS)


def agents_with_memories(lake: Lake, subject: Subject) -> set[Scope]:
    """Return the agents that may hold the subject and have durable memories, or events that make some."""
    rows = [lake.tables.keys(spec) for spec in _OF_AGENT]
    found = {Scope(*key.split("~")) for keys in rows for key in keys}
    return {
        scope
        for scope in found
        if scope.workspace_id == subject.workspace_id and subject.agent_id in (None, scope.agent_id)
    }


def concerned(found: Found) -> set[Scope]:
    """Return the agents whose durable memories, or whose nights, hold any of what was found."""
    keys = {key for spec in (MEMORY_EVENTS, UPKEEP_EVENTS) for key in found.rows.get(spec.name, ())}
    return {Scope(*key.split("~")) for key in keys}


def note_memories(lake: Lake, scopes: Collection[Scope], account: Account) -> dict[str, frozenset[str]]:
    """Enter what agents keep in the account, before any of it goes or is folded again; return its ids by owner."""
    rows = lake.tables.read(MEMORIES, [owner_of(scope) for scope in scopes], columns=["owner", "id", "content"])
    account.note(rows["id"].to_pylist(), rows["content"].to_pylist())
    return _ids_by_owner(rows)


def remove_nights(lake: Lake, scopes: Collection[Scope], account: Account) -> None:
    """Remove all that the upkeep of agents decided, and that they were ever kept: it begins with them anew."""
    owners = sorted(map(owner_of, scopes))
    rows = lake.tables.read(UPKEEP_EVENTS, owners, columns=["owner", "id"])
    account.note(rows["id"].to_pylist(), ())
    # First that they were kept: whoever is interrupted after that leaves agents that the next night keeps again.
    listed = pa.array(owners, pa.string())
    gone = lake.tables.drop_rows(UPKEEP, None, lambda kept: pc.is_in(kept["id"], listed), ["id"])
    account.take(UPKEEP.name, "rows", gone)
    lake.tables.remove(UPKEEP_EVENTS, owners)
    account.take(UPKEEP_EVENTS.name, "rows", {own: len(ids) for own, ids in _ids_by_owner(rows).items()})


def remove_memories(lake: Lake, scope: Scope, found: Found, account: Account) -> None:
    """Remove what an agent keeps, and all that it was made from."""
    owner = owner_of(scope)
    before = note_memories(lake, [scope], account)
    remove_nights(lake, [scope], account)
    lake.tables.remove(MEMORIES, [owner])
    account.take(MEMORIES.name, "rows", {own: len(ids) for own, ids in before.items()})
    account.note(found.ids(MEMORY_EVENTS), ())
    if found.rows.get(MEMORY_EVENTS.name):
        account.take(MEMORY_EVENTS.name, "rows", drop(lake, MEMORY_EVENTS, [owner], "id", found.ids(MEMORY_EVENTS)))


def remove_unattached(
    lake: Lake, scopes: Collection[Scope], before: dict[str, frozenset[str]], account: Account
) -> None:
    """Remove what agents did to memories that are no more, once the events that made these are removed.

    It has no effect on anything, and may repeat what the memory said.

    Args:
        lake: where.
        scopes: the agents.
        before: ids of the versions that there were, by owner.
        account: where to enter what is removed.
    """
    for scope in sorted(scopes, key=owner_of):
        owner = owner_of(scope)
        known = {identifier.partition("#")[0] for identifier in before.get(owner, ())}
        events = rows_to_events(lake.tables.read(MEMORY_EVENTS, [owner]))
        left = fold(events)
        lost = {identifier for identifier in known if left.resolved(identifier) not in left.newest}
        if not lost:
            continue
        ids = {event.id for event in events if event.memory_id in lost and event.verb is not MemoryVerb.REMEMBER}
        if ids:
            account.note(ids, (event.changes.content for event in events if event.id in ids))
            account.take(MEMORY_EVENTS.name, "rows", drop(lake, MEMORY_EVENTS, [owner], "id", ids))
        remove_unread(lake, _unread_of(lake, scope, lost), account)


def _unread_of(lake: Lake, scope: Scope, lost: Collection[str]) -> Found:
    """Return the pending files with what an agent did to memories that are no more."""
    found = Found()
    for file in lake.journal.pending(scope):
        held = lake.journal.read(file)
        stay = [event for event in held.events if event.verb is MemoryVerb.REMEMBER or event.memory_id not in lost]
        if len(stay) < len(held.events):
            found.files[file] = held._replace(events=stay)
            found.pending += len(held.events) - len(stay)
    return found


def keep_again(
    lake: Lake, models: Models, scopes: Collection[Scope], hours: Iterable[str], now: datetime, account: Account
) -> None:
    """Bring the memories of agents level with their events, and keep them up to the last night that was ever kept.

    Args:
        lake: where.
        models: what embeds and merges.
        scopes: the agents.
        hours: keys of the hours that were made again: an agent that says nothing in them any more was passed over.
        now: nights that end later are not made.
        account: where to enter what is removed.
    """
    _drop_unfounded(lake, scopes, sorted(hours), account)
    refold(lake, models.embedder, scopes)
    last, first_day = max(lake.ledger.entries(UPKEEP_ASSET), default=None), date(FIRST_YEAR, 1, 1)
    if last is not None:
        nights = {night for night in pending_nights(lake, first_day, now) if night.key <= last}
        keep_up(lake, models, nights | {Period(Grain.DAILY, last)}, first_day)


def enter_memories(lake: Lake, scopes: Collection[Scope], before: dict[str, frozenset[str]], account: Account) -> None:
    """Enter in the account which versions of memories are gone."""
    rows = lake.tables.read(MEMORIES, [owner_of(scope) for scope in scopes], columns=["owner", "id"])
    after = _ids_by_owner(rows)
    gone = {owner: len(ids - after.get(owner, frozenset())) for owner, ids in before.items()}
    account.take(MEMORIES.name, "rows", {owner: count for owner, count in gone.items() if count})


def _drop_unfounded(lake: Lake, scopes: Collection[Scope], hours: list[str], account: Account) -> None:
    """Drop events that rest on messages which are no more, though these have not expired."""
    said = lake.tables.read(MESSAGES, hours, columns=["id"])["id"].combine_chunks()
    marks = Marks.of(lake.tables)
    made_in = pa.array(hours, pa.string())

    def unfounded(events: pa.Table) -> pa.Array:
        derived = pc.and_(pc.is_in(events["period"], made_in), pc.invert(events["is_edit"]))
        gone = np.array(derived.to_numpy(zero_copy_only=False), np.bool_)
        for kept in Kept:
            if kept.grain is Grain.WORKING:
                gone &= ~marks.mask(events, kept)
        is_there = pc.is_in(pc.list_flatten(events["evidence"]), said).to_numpy(zero_copy_only=False)
        gone[pc.list_parent_indices(events["evidence"]).to_numpy()[is_there.astype(np.bool_)]] = False
        return pa.array(gone)

    columns = [*_SCOPE, "period", "is_edit", "evidence"]
    dropped = lake.tables.drop_rows(MEMORY_EVENTS, sorted(map(owner_of, scopes)), unfounded, columns)
    account.take(MEMORY_EVENTS.name, "rows", dropped)


def _ids_by_owner(rows: pa.Table) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for owner, identifier in zip(rows["owner"].to_pylist(), rows["id"].to_pylist(), strict=True):
        found.setdefault(owner, set()).add(identifier)
    return {owner: frozenset(ids) for owner, ids in found.items()}

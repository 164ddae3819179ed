"""Fold the events of many scopes into rows of memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.memories.events import MemoryVerb, key_of
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.lake.codec.memories import (
    STATE_COLUMNS,
    FoldState,
    events_digest,
    fold_states,
    memories_to_rows,
    rows_digest,
    rows_to_events,
    rows_to_memories,
    states_to_rows,
)
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.steps.embed import embedded, vectors_in
from memory_pipeline.steps.group import by_scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

VECTOR_COLUMNS = ("content", "vector", "embed_model")
#: The columns of ``memories`` that decide which of them events may change.
_MARKS = ("id", "version", "digest", "memory_id", "is_newest", "match_keys", "superseded_by", *STATE_COLUMNS)


def folded_rows(
    lake: Lake,
    embedder: Embedder,
    orders: Mapping[Scope, pa.Table],
    known: Sequence[pa.Table | None],
    vectors: dict[str, NDArray[np.float32]],
) -> pa.Table:
    """Return all rows of scopes: the fold of all of their events, and the state of the fold.

    `orders` has the scopes' events with the columns ``ORDER_COLUMNS``, in order. Vectors in `known` are reused.
    """
    by_agent: dict[Scope, list[MemoryEvent]] = {scope: [] for scope in orders}
    read = lake.events.read(list(orders))
    # Events that a concurrent run has added since are left to the next fold: the state does not name them.
    known_ids = pa.array([one for order in orders.values() for one in ids_of(order)], pa.string())
    for event in rows_to_events(read.filter(pc.is_in(read["id"], known_ids))):
        by_agent[event.scope].append(event)
    memories = {scope: fold_events(own) for scope, own in by_agent.items()}
    embed_missing(known, memories, embedder, vectors)
    rows = memories_to_rows(memories, vectors, embedder.name)
    rows_of = by_scope(rows)
    nothing = rows.slice(0, 0)
    return _with_states(rows, orders, {scope: digests_of(rows_of.get(scope, nothing)) for scope in orders})


def _with_states(rows: pa.Table, orders: Mapping[Scope, pa.Table], digests: Mapping[Scope, list[str]]) -> pa.Table:
    """Add the rows that say which events are folded. `digests` are those of all rows of each scope."""
    states = states_to_rows(
        {
            scope: FoldState(events_digest(ids_of(order)), rows_digest(own), order.num_rows, ids_of(order)[-1])
            for scope, own in digests.items()
            for order in [orders[scope]]
        }
    )
    return pa.concat_tables([states, rows.cast(states.schema)])


@dataclass(frozen=True, slots=True)
class LaterEvents:
    """Events of a scope that are later than all folded ones, and what the stored memories are.

    Attributes:
        ids: of the events, in order.
        matches: memory id by match key.
        successors: by memory id, the one that replaced it.
        digests: of the stored rows, by id.
    """

    ids: list[str]
    matches: dict[str, str]
    successors: dict[str, str]
    digests: dict[str, str]


def later_events(lake: Lake, scopes: Collection[Scope], orders: Mapping[Scope, pa.Table]) -> dict[Scope, LaterEvents]:
    """Return the scopes with only later events: their stored memories are the complete fold of all other events."""
    marks = lake.memory_rows.read(scopes, _MARKS)
    states = fold_states(marks.filter(pc.equal(marks["version"], 0)))
    stored = marks.filter(pc.greater(marks["version"], 0))
    stored_of, nothing = by_scope(stored), stored.slice(0, 0)
    found = {}
    for scope, state in states.items():
        if scope in orders and (later := _later(orders[scope], state, stored_of.get(scope, nothing))) is not None:
            found[scope] = later
    return found


def _later(order: pa.Table, state: FoldState, stored: pa.Table) -> LaterEvents | None:
    ids = ids_of(order)
    folded, new = ids[: state.count], ids[state.count :]
    if not new or len(folded) < state.count or folded[-1] != state.last or events_digest(folded) != state.events:
        return None
    if rows_digest(digests_of(stored)) != state.rows:  # the write of the stored rows was not completed
        return None
    # The id of a REMEMBER that matched another memory stands for that memory, which the stored rows do not say.
    before, after = order.slice(0, state.count), order.slice(state.count)
    remembered = before.filter(pc.equal(before["verb"], MemoryVerb.REMEMBER.value))
    aliases = set(remembered["memory_id"].to_pylist()) - set(stored["memory_id"].to_pylist())
    if not aliases.isdisjoint((*after["memory_id"].to_pylist(), *after["other_id"].to_pylist())):
        return None
    newest = stored.filter(stored["is_newest"])
    own, keys, into = (newest[name].to_pylist() for name in ("memory_id", "match_keys", "superseded_by"))
    return LaterEvents(
        new,
        {key: memory_id for memory_id, listed in zip(own, keys, strict=True) for key in listed},
        {memory_id: other for memory_id, other in zip(own, into, strict=True) if other is not None},
        dict(zip(ids_of(stored), digests_of(stored), strict=True)),
    )


def apply_events(
    lake: Lake,
    embedder: Embedder,
    orders: Mapping[Scope, pa.Table],
    later: Mapping[Scope, LaterEvents],
    known: pa.Table | None,
    vectors: dict[str, NDArray[np.float32]],
) -> pa.Table:
    """Apply later events to stored memories. Return the rows of the memories that they may change, and the states.

    Scopes that a concurrent run changes meanwhile are left out.
    """
    first = min(pc.min(orders[scope]["event_at"][-len(own.ids) :]).as_py() for scope, own in later.items())
    read = lake.events.read(list(later), where=f"event_at >= timestamp '{first:%Y-%m-%d %H:%M:%S.%f}'")
    new = pa.array([one for own in later.values() for one in own.ids], pa.string())
    events: dict[Scope, list[MemoryEvent]] = {scope: [] for scope in later}
    for event in rows_to_events(read.filter(pc.is_in(read["id"], new))):
        events[event.scope].append(event)
    named = {one for scope, own in events.items() for one in _named(own, later[scope])}
    rows = lake.memory_rows.read(list(later), where=f"version > 0 AND memory_id IN ({listed(named)})")
    rows_read, none = by_scope(rows), rows.slice(0, 0)
    stored = rows_to_memories(rows)
    memories = {}
    for scope, own in events.items():
        read_digests = dict(
            zip(*(rows_read.get(scope, none)[name].to_pylist() for name in ("id", "digest")), strict=True)
        )
        expected = {key: one for key, one in later[scope].digests.items() if key.rpartition("#")[0] in named}
        if len(own) == len(later[scope].ids) and read_digests == expected:
            base = stored.get(scope, Memories())
            base.matches = later[scope].matches
            memories[scope] = fold_events(own, base)
    embed_missing([rows.select(VECTOR_COLUMNS), known], memories, embedder, vectors)
    changed = memories_to_rows(memories, vectors, embedder.name)
    rows_of, nothing = by_scope(changed), changed.slice(0, 0)
    digests = {}
    for scope in memories:
        own = rows_of.get(scope, nothing)
        digests[scope] = list((later[scope].digests | dict(zip(ids_of(own), digests_of(own), strict=True))).values())
    return _with_states(changed, orders, digests)


def _named(events: Iterable[MemoryEvent], later: LaterEvents) -> set[str]:
    """Return the ids of the memories that events may read or change."""
    waiting = [one for event in events for one in (event.memory_id, event.other_id) if one is not None]
    remembered = (event for event in events if event.verb is MemoryVerb.REMEMBER)
    waiting += [known for event in remembered if (known := later.matches.get(key_of(event.changes))) is not None]
    named = set[str]()
    while waiting:
        one = waiting.pop()
        if one not in named:
            named.add(one)
            waiting += [later.successors[one]] if one in later.successors else []
    return named


def embed_missing(
    known: Sequence[pa.Table | None],
    memories: Mapping[Scope, Memories],
    embedder: Embedder,
    found: dict[str, NDArray[np.float32]],
) -> None:
    """Add the vectors of all contents to `found`, by content. Contents that fail are omitted."""
    contents = {
        memory.content: Use(scope, Calendar().hour(memory.changed_at))
        for scope, folded in memories.items()
        for memory in folded.newest.values()
    }
    for rows in known:
        if rows is not None:
            found |= vectors_in(rows.filter(pc.is_in(rows["content"], pa.array(list(contents), pa.string()))), embedder)
    found |= embedded({content: use for content, use in contents.items() if content not in found}, embedder)


def ids_of(rows: pa.Table) -> list[str]:
    """Return the ids of rows."""
    ids: list[str] = rows["id"].to_pylist()
    return ids


def digests_of(rows: pa.Table) -> list[str]:
    """Return the digests of rows."""
    digests: list[str] = rows["digest"].to_pylist()
    return digests

"""Fold the memory events of hours into durable memories.

Events come from facts, from the journal and from consolidation. The records (``memory_events`` and
``consolidation_events``) are partitioned by period. The projection ``events`` has both by scope, and ``memories`` their
fold, which readers see. Durable memories never expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, changed_by, fold_events
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.values import batched
from memory_pipeline.lake.codec.facts import rows_to_facts
from memory_pipeline.lake.codec.memories import (
    STATE_COLUMNS,
    FoldState,
    events_digest,
    events_projected,
    events_to_rows,
    fold_states,
    memories_to_rows,
    rows_digest,
    rows_to_events,
    rows_to_memories,
    states_to_rows,
)
from memory_pipeline.lake.index.filters import listed, quoted
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, FACTS, MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.steps.embed import embedded, vectors_in
from memory_pipeline.steps.folding import Fold, Folded, Synced, union
from memory_pipeline.steps.group import by_scope, scopes_in
from memory_pipeline.steps.memory_vectors import memory_vectors, sync_memory_vectors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.ledger import LedgerEntry
    from memory_pipeline.lake.tables.tombstones import ExpirationMarks
    from memory_pipeline.steps.results import PartitionResult

VECTOR_COLUMNS = ("content", "vector", "embed_model")
_DURABLE = pc.is_valid(pc.field("durable"))
#: Newest versions, and those that could not be embedded.
_NEWEST = "is_newest"
_WITHOUT_VECTOR = "is_newest AND embed_model IS NULL"
#: The columns that decide in which order the events of a scope are folded, and on which memories they bear.
_ORDER_COLUMNS = (
    "id", *SCOPE_COLUMNS, "event_at", "ordered_at", "is_consolidation", "turn", "place",
    "verb", "memory_id", "other_id",
)  # fmt: skip
_ORDER = [
    ("scope", "ascending"),
    ("placed_at", "ascending"),
    ("is_consolidation", "descending"),
    ("turn", "ascending"),
    ("place", "ascending"),
    ("id", "ascending"),
]
#: The columns of ``memories`` that decide which of them events may change.
_COMPARED = ("id", "version", "digest", "memory_id", "is_newest", "match_keys", "superseded_by", *STATE_COLUMNS)
#: Maximum number of events that are in memory at a time, unless one scope has more.
_EVENTS_AT_ONCE = 50_000


class MemoryFold(Fold):
    """Folds events into durable memories.

    Events that are later than all folded ones are applied to the stored memories that they may change. Vectors of
    stored memories and in `known` (content, vector, embed_model) are reused.
    """

    asset = MEMORIES_ASSET
    records = MEMORY_EVENTS
    evidence = "evidence"
    covered = "id"
    columns = ("id", *SCOPE_COLUMNS, "period", "digest")
    project = staticmethod(events_projected)

    def __init__(self, lake: Lake, embedder: Embedder | None = None) -> None:
        super().__init__(lake, lake.events, lake.memory_rows)
        self._embedder = embedder
        self._known: pa.Table | None = None
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def derived(self, keys: list[str], shard: int | None) -> tuple[pa.Table, pa.Table]:  # noqa: D102  # as in the base
        columns = ("period", *SCOPE_COLUMNS, "digest", "embed_model")
        facts = self.lake.tables.read(FACTS, keys, columns=columns, shard=shard)
        durable = self.lake.tables.read(FACTS, keys, where=_DURABLE, shard=shard)
        self._known = durable.select(VECTOR_COLUMNS)
        return facts, events_to_rows(memory_events_in(durable, self.lake.configuration()), are_edits=False)

    def kept(self, old: pa.Table, new: pa.Table, marks: ExpirationMarks) -> tuple[pa.Table, pa.Table]:  # noqa: ARG002
        """Drop events that were forgotten after the journal was read."""
        forgotten = self.lake.tombstones.forgotten()
        if not forgotten:
            return old, new
        stored = rows_to_events(old)
        redacted = {event.id: forgotten.taken(event) for event in stored}
        changed = [event.id for event in stored if redacted[event.id] != event]
        if not changed:
            return old, new
        others = [one for event in stored if (one := redacted[event.id]) is not None and one != event]
        unchanged = old.filter(pc.invert(pc.is_in(old["id"], pa.array(changed, pa.string()))))
        return union(unchanged, events_to_rows(others, are_edits=True)), new  # only edits have a note to be removed

    def outdated(  # noqa: D102  # as in the base
        self,
        scopes: set[Scope],  # noqa: ARG002
        entries: Mapping[str, LedgerEntry],
        shard: int | None,
    ) -> set[Scope]:
        if not any(entry.unfinished for entry in entries.values()):
            return set()
        return scopes_in(self.stored.scan(SCOPE_COLUMNS, _WITHOUT_VECTOR, shard))

    def unfinished(self, shard: int | None) -> dict[str, int]:
        """Return the number of memories without a vector, by the hour of their last change."""
        counts: dict[str, int] = {}
        for at in self.stored.scan(("changed_at",), _WITHOUT_VECTOR, shard)["changed_at"].to_pylist():
            key = hour_of(at).key
            counts[key] = counts.get(key, 0) + 1
        return counts

    def whole(self, scopes: list[Scope]) -> set[Scope]:
        """Return the scopes with memories that lack a vector of the embedder."""
        lacks = f"embed_model IS NULL OR embed_model != {quoted(self._model.name)}"
        return scopes_in(self.stored.read(scopes, SCOPE_COLUMNS, f"{_NEWEST} AND ({lacks})"))

    @property
    def _model(self) -> Embedder:
        assert self._embedder is not None  # noqa: S101  # nosec B101  # only to look for what is out of date, none is needed
        return self._embedder

    def folded(  # noqa: D102  # as in the base
        self,
        scopes: list[Scope],
        deltas: Mapping[Scope, pa.Table],  # noqa: ARG002  # the stored state tells which events are new
        whole: Collection[Scope],
    ) -> Iterator[Folded]:
        orders = by_scope(_in_order(self.sources.read(scopes, _ORDER_COLUMNS)))
        later = self._later_events([scope for scope in scopes if scope not in whole], orders)
        if later:
            rows = self._applied(orders, later)
            own = scopes_in(rows)
            yield rows, [scope for scope in later if scope in own], f"id IN ({listed(rows['id'].to_pylist())})"
        others = [scope for scope in scopes if scope not in later]
        for part in batched(others, lambda one: orders[one].num_rows if one in orders else 0, _EVENTS_AT_ONCE):
            stored = self.stored.read(part, VECTOR_COLUMNS, _NEWEST)
            yield self.rows_of({scope: orders[scope] for scope in part if scope in orders}, stored), part, "true"
            self._vectors.clear()

    def rows_of(self, orders: Mapping[Scope, pa.Table], stored: pa.Table | None = None) -> pa.Table:
        """Return all rows of scopes: the fold of all of their events, and the state of the fold.

        `orders` has the scopes' events with the columns `_ORDER_COLUMNS`, in order. Vectors in `stored` are reused.
        """
        by_agent: dict[Scope, list[MemoryEvent]] = {scope: [] for scope in orders}
        read = self.sources.read(list(orders))
        # Events that a concurrent run has added since are left to the next fold: the state does not name them.
        known_ids = pa.array([one for order in orders.values() for one in _ids(order)], pa.string())
        for event in rows_to_events(read.filter(pc.is_in(read["id"], known_ids))):
            by_agent[event.scope].append(event)
        memories = {scope: fold_events(own) for scope, own in by_agent.items()}
        rows = self._embedded([stored, self._known], memories)
        rows_of, nothing = by_scope(rows), rows.slice(0, 0)
        return _with_states(rows, orders, {scope: _digests(rows_of.get(scope, nothing)) for scope in orders})

    def refold(self, scopes: Iterable[Scope], changed: pa.Table | None = None) -> set[Scope]:  # noqa: D102  # as in the base
        scopes = {*scopes, *(() if changed is None else scopes_in(changed))}
        written = super().refold(scopes, changed)
        # Of all: a killed run may have written memories and not their vectors.
        sync_memory_vectors(self.lake, scopes)
        return written

    def _embedded(self, known: Sequence[pa.Table | None], memories: Mapping[Scope, Memories]) -> pa.Table:
        self._vectors |= memory_vectors(self.lake, self._model, memories)
        embed_missing(known, memories, self._model, self._vectors)
        return memories_to_rows(memories, self._vectors, self._model.name)

    def _later_events(self, scopes: Collection[Scope], orders: Mapping[Scope, pa.Table]) -> dict[Scope, _LaterEvents]:
        """Return the scopes with only later events: their stored memories are the complete fold of all other events."""
        compared = self.stored.read(scopes, _COMPARED)
        is_state = pc.equal(compared["version"], 0)
        stored = compared.filter(pc.invert(is_state))
        stored_of, nothing = by_scope(stored), stored.slice(0, 0)
        return {
            scope: later
            for scope, state in fold_states(compared.filter(is_state)).items()
            if scope in orders
            and (later := _LaterEvents.of(orders[scope], state, stored_of.get(scope, nothing))) is not None
        }

    def _applied(self, orders: Mapping[Scope, pa.Table], later: Mapping[Scope, _LaterEvents]) -> pa.Table:
        """Apply later events to stored memories. Return the rows of the memories that they may change, and the states.

        Scopes that a concurrent run changes meanwhile are left out.
        """
        first = min(pc.min(orders[scope]["event_at"][-len(own.ids) :]).as_py() for scope, own in later.items())
        read = self.sources.read(list(later), where=f"event_at >= timestamp '{first:%Y-%m-%d %H:%M:%S.%f}'")
        new = pa.array([one for own in later.values() for one in own.ids], pa.string())
        events: dict[Scope, list[MemoryEvent]] = {scope: [] for scope in later}
        for event in rows_to_events(read.filter(pc.is_in(read["id"], new))):
            events[event.scope].append(event)
        named = set[str]()
        for scope, own in events.items():
            named |= changed_by(own, later[scope].matches, later[scope].successors)
        rows = self.stored.read(list(later), where=f"version > 0 AND memory_id IN ({listed(named)})")
        rows_read, none = by_scope(rows), rows.slice(0, 0)
        stored = rows_to_memories(rows)
        memories = {}
        for scope, own in events.items():
            of_scope = rows_read.get(scope, none)
            expected = {key: one for key, one in later[scope].digests.items() if key.rpartition("#")[0] in named}
            is_same = dict(zip(_ids(of_scope), _digests(of_scope), strict=True)) == expected
            if len(own) == len(later[scope].ids) and is_same:
                base = stored.get(scope, Memories())
                base.matches = later[scope].matches
                memories[scope] = fold_events(own, base)
        changed = self._embedded([rows.select(VECTOR_COLUMNS), self._known], memories)
        rows_of, nothing = by_scope(changed), changed.slice(0, 0)
        digests = {}
        for scope in memories:
            of_scope = rows_of.get(scope, nothing)
            new_digests = dict(zip(_ids(of_scope), _digests(of_scope), strict=True))
            digests[scope] = list((later[scope].digests | new_digests).values())
        return _with_states(changed, orders, digests)


@dataclass(frozen=True, slots=True)
class _LaterEvents:
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

    @classmethod
    def of(cls, order: pa.Table, state: FoldState, stored: pa.Table) -> _LaterEvents | None:
        """Return the later events of a scope; None if the stored rows are not the fold of all others."""
        ids = _ids(order)
        folded, new = ids[: state.count], ids[state.count :]
        if not new or len(folded) < state.count or folded[-1] != state.last or events_digest(folded) != state.events:
            return None
        if rows_digest(_digests(stored)) != state.rows:  # the write of the stored rows was not completed
            return None
        # The id of a REMEMBER that matched another memory stands for that memory, which the stored rows do not say.
        before, after = order.slice(0, state.count), order.slice(state.count)
        remembered = before.filter(pc.equal(before["verb"], MemoryVerb.REMEMBER.value))
        aliases = set(remembered["memory_id"].to_pylist()) - set(stored["memory_id"].to_pylist())
        if not aliases.isdisjoint((*after["memory_id"].to_pylist(), *after["other_id"].to_pylist())):
            return None
        newest = stored.filter(stored["is_newest"])
        own, keys, into = (newest[name].to_pylist() for name in ("memory_id", "match_keys", "superseded_by"))
        return cls(
            new,
            {key: memory_id for memory_id, listed in zip(own, keys, strict=True) for key in listed},
            {memory_id: other for memory_id, other in zip(own, into, strict=True) if other is not None},
            dict(zip(_ids(stored), _digests(stored), strict=True)),
        )


def fold_memories(
    lake: Lake,
    embedder: Embedder,
    hours: list[Period],
    events: Iterable[MemoryEvent],
    shard: int | None = None,
    entries: Mapping[str, LedgerEntry] = MappingProxyType({}),
) -> list[PartitionResult]:
    """Update durable memories with the facts of `hours` and with `events` from the journal; see :meth:`Fold.fold`.

    Forgotten events are removed.
    """
    edits = events_to_rows(list(events), are_edits=True)
    return MemoryFold(lake, embedder).fold(hours, edits, shard, entries)


def project_events(lake: Lake, spec: TableSpec, keys: Collection[str]) -> Synced:
    """Sync the projection ``events`` with periods of a table of records; see :meth:`Fold.sync`."""
    return MemoryFold(lake).sync(spec, keys)


def sync_events(lake: Lake, scopes: Collection[Scope], hours: Collection[str] = ()) -> None:
    """Sync the events of scopes with their records, in all periods of which they have events, and in `hours`."""
    known = lake.events.read(scopes, ("period", "is_consolidation"))
    days = known.filter(known["is_consolidation"])["period"].to_pylist()
    hours = {*hours, *known.filter(pc.invert(known["is_consolidation"]))["period"].to_pylist()}
    for spec, keys in ((MEMORY_EVENTS, hours), (CONSOLIDATION_EVENTS, set(days))):
        project_events(lake, spec, keys)


def refold_memories(lake: Lake, embedder: Embedder, scopes: Iterable[Scope]) -> set[Scope]:
    """Fold the memories of scopes with changed events or missing vectors; see :meth:`Fold.refold`."""
    return MemoryFold(lake, embedder).refold(scopes)


def stale_scopes(lake: Lake, scopes: Collection[Scope]) -> set[Scope]:
    """Return the scopes with memories that are not the complete fold of their events."""
    return MemoryFold(lake).stale(scopes)


def folded_memories(lake: Lake, embedder: Embedder, where: pc.Expression) -> pa.Table:
    """Return the rows of the memories of scopes that meet a condition, folded from all of their events."""
    return MemoryFold(lake, embedder).rows_of(by_scope(_in_order(lake.events.scan(_ORDER_COLUMNS).filter(where))))


def _in_order(events: pa.Table) -> pa.Table:
    """Return events, with the columns `_ORDER_COLUMNS`, in the order of the fold in each scope."""
    placed = pc.coalesce(events["ordered_at"], events["event_at"])
    return events.append_column("placed_at", placed).sort_by(_ORDER).select(events.column_names)


def _with_states(rows: pa.Table, orders: Mapping[Scope, pa.Table], digests: Mapping[Scope, list[str]]) -> pa.Table:
    """Add the rows that say which events are folded. `digests` are those of all rows of each scope."""
    states = states_to_rows(
        {
            scope: FoldState(events_digest(_ids(order)), rows_digest(own), order.num_rows, _ids(order)[-1])
            for scope, own in digests.items()
            for order in [orders[scope]]
        }
    )
    return pa.concat_tables([states, rows.cast(states.schema)])


def embed_memories(lake: Lake, embedder: Embedder, hours: list[Period], events: Iterable[MemoryEvent]) -> None:
    """Embed the texts that :func:`fold_memories` would embed. Writes nothing."""
    keys = [hour.key for hour in hours]
    facts = lake.tables.read(FACTS, keys, where=_DURABLE)
    new = [*memory_events_in(facts, lake.configuration()), *events]
    by_agent: dict[Scope, list[MemoryEvent]] = {event.scope: [] for event in new}
    stored = lake.events.read(list(by_agent), where=f"is_edit OR period NOT IN ({listed(keys)})")
    for event in (*rows_to_events(stored), *new):
        by_agent[event.scope].append(event)
    memories = {scope: fold_events(own) for scope, own in by_agent.items()}
    known = lake.memory_rows.read(list(by_agent), VECTOR_COLUMNS, "is_newest")
    beside = memory_vectors(lake, embedder, by_agent)
    embed_missing([known, facts.select(VECTOR_COLUMNS)], memories, embedder, beside)


def embed_missing(
    known: Sequence[pa.Table | None],
    memories: Mapping[Scope, Memories],
    embedder: Embedder,
    found: dict[str, NDArray[np.float32]],
) -> None:
    """Add the vectors of all contents to `found`, by content. Contents that fail are omitted."""
    contents = {
        memory.content: Use(scope, hour_of(memory.changed_at))
        for scope, folded in memories.items()
        for memory in folded.newest.values()
    }
    for rows in known:
        if rows is not None:
            found |= vectors_in(rows.filter(pc.is_in(rows["content"], pa.array(list(contents), pa.string()))), embedder)
    found |= embedded({content: use for content, use in contents.items() if content not in found}, embedder)


def memory_events_in(facts: pa.Table, configuration: Configuration) -> list[MemoryEvent]:
    """Return the memory events derived from facts, under the settings of their agents."""
    return events_of(rows_to_facts(facts), configuration.memories)


def _ids(rows: pa.Table) -> list[str]:
    ids: list[str] = rows["id"].to_pylist()
    return ids


def _digests(rows: pa.Table) -> list[str]:
    digests: list[str] = rows["digest"].to_pylist()
    return digests

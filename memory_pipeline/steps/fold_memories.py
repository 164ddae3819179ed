"""Fold the memory events of hours into durable memories.

Events come from facts, from the journal and from consolidation. The records (``memory_events`` and
``consolidation_events``) are partitioned by period. The projection ``events`` has both by scope, and ``memories`` their
fold, which readers see. Only scopes with changed events are folded. Durable memories never expire.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.retention import WORKING_CLASSES
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.codec.facts import rows_to_facts
from memory_pipeline.lake.codec.memories import (
    IS_STATE,
    STATE_COLUMNS,
    events_digest,
    events_projected,
    events_to_rows,
    fold_states,
    rows_digest,
    rows_to_events,
)
from memory_pipeline.lake.index.filters import listed, quoted
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, FACTS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import agents_in, by_period, by_scope, scopes_in
from memory_pipeline.steps.memory_folding import (
    VECTOR_COLUMNS,
    apply_events,
    digests_of,
    embed_missing,
    folded_rows,
    ids_of,
    later_events,
)
from memory_pipeline.steps.results import PartitionResult, RowDigests, marks_of
from memory_pipeline.steps.sync_records import sync_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.ledger import LedgerEntry

_DURABLE = pc.is_valid(pc.field("durable"))
#: Newest versions, and those that could not be embedded.
_NEWEST = "is_newest"
_WITHOUT_VECTOR = "is_newest AND embed_model IS NULL"
#: The columns that decide which events of a scope are folded, and in which order.
ORDER_COLUMNS = (
    "id",
    *SCOPE_COLUMNS,
    "event_at",
    "ordered_at",
    "is_consolidation",
    "turn",
    "place",
    "verb",
    "memory_id",
    "other_id",
)
_ORDER = [
    ("scope", "ascending"),
    ("placed_at", "ascending"),
    ("is_consolidation", "descending"),
    ("turn", "ascending"),
    ("place", "ascending"),
    ("id", "ascending"),
]
#: Maximum number of scopes that are folded at a time.
_SCOPES_AT_ONCE = 2_000
#: Maximum number of events that are in memory at a time, unless one scope has more.
_EVENTS_AT_ONCE = 50_000
#: Maximum number of attempts if other runs keep writing events of the same scopes.
_ATTEMPTS = 10


def fold_memories(
    lake: Lake,
    embedder: Embedder,
    hours: list[Period],
    events: Iterable[MemoryEvent],
    shard: int | None = None,
    entries: Mapping[str, LedgerEntry] = MappingProxyType({}),
) -> list[PartitionResult]:
    """Update durable memories with the facts of `hours` and with `events` from the journal. Return one result per hour.

    Forgotten events are removed. With `shard`, all scopes are in it. `entries` are those of the last complete run, by
    hour. Safe to repeat, to interrupt and to run concurrently: the next run of the hours folds events that were written
    but not folded.
    """
    keys = [hour.key for hour in hours]
    edits = events_to_rows(list(events), are_edits=True)
    # From messages, since facts of an earlier run may be gone.
    messages = lake.tables.read(MESSAGES, keys, columns=("period", *SCOPE_COLUMNS, "id"), shard=shard)
    configuration, marks = lake.configuration(), ExpirationMarks.of(lake.tables)
    all_facts = FACTS.schema.empty_table()
    facts = FACTS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of events the attempt starts over with newer facts.
        nonlocal all_facts, facts
        all_facts = lake.tables.read(
            FACTS, keys, columns=("period", *SCOPE_COLUMNS, "digest", "embed_model"), shard=shard
        )
        facts = lake.tables.read(FACTS, keys, where=_DURABLE, shard=shard)
        derived = events_to_rows(memory_events_in(facts, configuration), are_edits=False)
        # Edits and events of expired messages, which cannot be derived again, stay.
        unchanged = old.filter(pc.or_(old["is_edit"], _has_lost_events(old, marks, messages["id"])))
        return _union(_without_forgotten(lake, unchanged), pa.concat_tables([derived, edits]))

    lake.tables.transform(MEMORY_EVENTS, keys, merged, shard=shard)
    rows, changed = project_events(lake, MEMORY_EVENTS, keys, shard)
    inputs = by_period(all_facts, hours)
    results = [
        PartitionResult(
            asset=MEMORIES_ASSET,
            period=hour,
            input_digest=marks_of(inputs[hour]).combined,
            output_digest=RowDigests(own["id"].to_pylist()).combined,
            rows=own.num_rows,
            agents=agents_in(own),
        )
        for hour, own in by_period(rows, hours).items()
    ]
    # A run may have been killed between writing the events of an hour and folding them.
    unsure = {
        part.period.key
        for part in results
        if (entry := entries.get(part.period.key)) is None
        or (entry.input_digest, entry.output_digest) != (part.input_digest, part.output_digest)
    }
    scopes = changed | scopes_in(edits)
    for table in (rows, messages):
        scopes |= scopes_in(table.filter(pc.is_in(table["period"], pa.array(unsure, pa.string()))))
    if any(entry.unfinished for entry in entries.values()):
        scopes |= scopes_in(lake.memory_rows.scan(SCOPE_COLUMNS, _WITHOUT_VECTOR, shard))
    changed |= refold_memories(lake, embedder, scopes, facts.select(VECTOR_COLUMNS))
    unfinished = _unfinished(lake, shard)
    return [
        replace(
            part,
            changed=not scopes_in(own).isdisjoint(changed),
            unfinished=unfinished.get(part.period.key, 0),
        )
        for part, own in zip(results, by_period(rows, hours).values(), strict=True)
    ]


def project_events(
    lake: Lake, spec: TableSpec, keys: Collection[str], shard: int | None = None
) -> tuple[pa.Table, set[Scope]]:
    """Sync the projection ``events`` with periods of a table of records. Return their rows and the changed scopes.

    Raises:
        CommitConflictError: the records kept changing.
    """
    rows, changed = sync_records(lake, spec, lake.events, events_projected, keys, shard)
    scopes = {scope for scope in scopes_in(rows) if scope.key in changed}
    gone = changed - {scope.key for scope in scopes}
    if gone:  # they lost all of their events in these periods
        scopes |= scopes_in(lake.memory_rows.scan(SCOPE_COLUMNS, f"{IS_STATE} AND scope IN ({listed(gone)})"))
    return rows, scopes


def in_order(events: pa.Table) -> pa.Table:
    """Return events, with the columns ``ORDER_COLUMNS``, in the order of the fold in each scope."""
    placed = pc.coalesce(events["ordered_at"], events["event_at"])
    return events.append_column("placed_at", placed).sort_by(_ORDER).select(events.column_names)


def sync_events(lake: Lake, scopes: Collection[Scope], hours: Collection[str] = ()) -> None:
    """Sync the events of scopes with their records, in all periods of which they have events, and in `hours`."""
    known = lake.events.read(scopes, ("period", "is_consolidation"))
    days = known.filter(known["is_consolidation"])["period"].to_pylist()
    hours = {*hours, *known.filter(pc.invert(known["is_consolidation"]))["period"].to_pylist()}
    for spec, keys in ((MEMORY_EVENTS, hours), (CONSOLIDATION_EVENTS, set(days))):
        project_events(lake, spec, keys)


def refold_memories(
    lake: Lake, embedder: Embedder, scopes: Iterable[Scope], known: pa.Table | None = None
) -> set[Scope]:
    """Fold the memories of scopes with changed events or missing vectors. Return the scopes with changed rows.

    Scopes are embedded and written many at a time. Vectors in `known` (content, vector, embed_model) are reused.

    Raises:
        CommitConflictError: concurrent runs kept writing events or memories of these scopes.
    """
    ordered = sorted(set(scopes), key=lambda scope: scope.key)  # so that a shard is written once
    changed: set[Scope] = set()
    for start in range(0, len(ordered), _SCOPES_AT_ONCE):
        changed |= _refold(lake, embedder, ordered[start : start + _SCOPES_AT_ONCE], known)
    return changed


def _refold(lake: Lake, embedder: Embedder, scopes: list[Scope], known: pa.Table | None) -> set[Scope]:
    lacks = f"embed_model IS NULL OR embed_model != {quoted(embedder.name)}"
    without_vector = scopes_in(lake.memory_rows.read(scopes, SCOPE_COLUMNS, f"is_newest AND ({lacks})"))
    changed: set[Scope] = set()
    vectors: dict[str, NDArray[np.float32]] = {}
    for _ in range(_ATTEMPTS):
        orders = by_scope(in_order(lake.events.read(scopes, ORDER_COLUMNS)))
        stale = _stale(lake, scopes, orders) | without_vector
        if not stale:
            return changed
        ordered = [scope for scope in scopes if scope in stale]
        later = later_events(lake, [scope for scope in ordered if scope not in without_vector], orders)
        whole = [scope for scope in ordered if scope not in later]
        written = set[str]()
        if later:
            rows = apply_events(lake, embedder, orders, later, known, vectors)
            ids = listed(rows["id"].to_pylist())
            written |= lake.memory_rows.replace(rows, list(later), f"id IN ({ids})")
        for part in _parts(whole, orders):
            events = {scope: orders[scope] for scope in part if scope in orders}
            stored = lake.memory_rows.read(part, VECTOR_COLUMNS, _NEWEST)
            written |= lake.memory_rows.replace(folded_rows(lake, embedder, events, [stored, known], vectors), part)
            vectors.clear()
        changed |= {scope for scope in ordered if scope.key in written}
        # Another run may have written events, or older memories, since the events were read: look again.
        without_vector = set()
    raise CommitConflictError(f"the memories of {scopes[0]} and others keep changing; run it again later")


def _parts(scopes: Sequence[Scope], orders: Mapping[Scope, pa.Table]) -> Iterator[list[Scope]]:
    """Cut scopes into parts with a limited number of events."""
    part: list[Scope] = []
    events = 0
    for scope in scopes:
        own = orders[scope].num_rows if scope in orders else 0
        if part and events + own > _EVENTS_AT_ONCE:
            yield part
            part, events = [], 0
        part.append(scope)
        events += own
    if part:
        yield part


def stale_scopes(lake: Lake, scopes: Collection[Scope]) -> set[Scope]:
    """Return the scopes with memories that are not the complete fold of their events."""
    orders = by_scope(lake.events.read(scopes, ("id", *SCOPE_COLUMNS)))
    return _stale(lake, scopes, orders)


def _stale(lake: Lake, scopes: Iterable[Scope], orders: Mapping[Scope, pa.Table]) -> set[Scope]:
    scopes = list(scopes)
    rows = lake.memory_rows.read(scopes, ("version", "digest", *STATE_COLUMNS))
    states = fold_states(rows.filter(pc.equal(rows["version"], 0)))
    digests = {scope: digests_of(own) for scope, own in by_scope(rows.filter(pc.greater(rows["version"], 0))).items()}
    stale = set()
    for scope in scopes:
        own, state = orders.get(scope), states.get(scope)
        expected = None if own is None else (events_digest(ids_of(own)), rows_digest(digests.get(scope, [])))
        found = None if state is None else (state.events, state.rows)
        if found != expected or (own is None and scope in digests):
            stale.add(scope)
    return stale


def _unfinished(lake: Lake, shard: int | None) -> dict[str, int]:
    """Return the number of memories without a vector, by the hour of their last change."""
    counts: dict[str, int] = {}
    for at in lake.memory_rows.scan(("changed_at",), _WITHOUT_VECTOR, shard)["changed_at"].to_pylist():
        key = Calendar().hour(at).key
        counts[key] = counts.get(key, 0) + 1
    return counts


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
    embed_missing([known, facts.select(VECTOR_COLUMNS)], memories, embedder, {})


def memory_events_in(facts: pa.Table, configuration: Configuration) -> list[MemoryEvent]:
    """Return the memory events derived from facts, under the settings of their agents."""
    return events_of(rows_to_facts(facts), configuration.memories)


def _without_forgotten(lake: Lake, events: pa.Table) -> pa.Table:
    """Drop events that were forgotten after the journal was read."""
    forgotten = lake.tombstones.forgotten()
    if not forgotten:
        return events
    stored = rows_to_events(events)
    redacted = {event.id: forgotten.taken(event) for event in stored}
    changed = pa.array([event.id for event in stored if redacted[event.id] != event], pa.string())
    if not len(changed):
        return events
    new = [one for event in stored if (one := redacted[event.id]) is not None and one != event]
    unchanged = events.filter(pc.invert(pc.is_in(events["id"], changed)))
    return _union(unchanged, events_to_rows(new, are_edits=True))  # only edits have a note that can be removed


def _has_lost_events(events: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.Array:
    """Return a mask of the events with expired messages, which cannot be derived again."""
    lost = np.zeros(events.num_rows, np.bool_)
    for retention_class in WORKING_CLASSES:
        lost |= marks.mask(events, retention_class)
    if lost.any():
        present = set(messages.to_pylist())
        evidence = events["evidence"].filter(pa.array(lost)).to_pylist()
        lost[lost] = [not present.issuperset(ids) for ids in evidence]
    return pa.array(lost)


def _union(rows: pa.Table, new: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, new.filter(pc.invert(pc.is_in(new["id"], rows["id"].combine_chunks())))])

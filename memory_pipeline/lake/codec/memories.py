"""Convert durable memories and their events to table rows and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.memories.events import Changes, MemoryEvent
from memory_pipeline.domain.memories.fold import Memories
from memory_pipeline.domain.memories.record import (
    DurableMemory,
    Header,
    MemoryClass,
    MemoryKind,
    SourceType,
)
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.lake.codec.codec import (
    Attribute,
    Codec,
    ids_digest,
    scope_columns,
    scope_of,
    scopes_of,
    states_in,
    with_digest,
)
from memory_pipeline.lake.schema_types import TIME
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, EVENTS, MEMORIES, MEMORY_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope


def _changes_to_json(event: MemoryEvent) -> str:
    return json.dumps(event.changes.to_record(), ensure_ascii=False, separators=(",", ":"))


_FORMS: dict[str, Callable[[Any], Any]] = {
    "kind": MemoryKind,
    "memory_class": MemoryClass,
    "source_type": SourceType,
}


def _changes(text: str) -> Changes:
    record = json.loads(text)
    record |= {name: form(record[name]) for name, form in _FORMS.items() if name in record}
    if "tags" in record:
        record["tags"] = tuple(record["tags"])
    return Changes(**record)


_EVENTS = Codec(
    MEMORY_EVENTS,
    MemoryEvent,
    columns={"period": attrgetter("hour.key"), "changes": _changes_to_json},
    given=["is_edit", "users"],
    attributes={"changes": _changes},
    unstored=["users"],
)
_CONSOLIDATION_EVENTS = Codec(
    CONSOLIDATION_EVENTS,
    MemoryEvent,
    columns={"changes": _changes_to_json},
    given=["period"],
    attributes={"changes": _changes},
    unstored=["received_at", "speaker", "ordered_at", "users"],
)
_MEMORIES = Codec(
    MEMORIES,
    DurableMemory,
    columns={"id": attrgetter("version_id"), "memory_id": attrgetter("id")},
    given=(*SCOPE_COLUMNS, "is_newest", "source_digest", "vector", "embed_model", "digest"),
    attributes={"id": Attribute(("memory_id",))},
)


_HEADERS = Codec(MEMORIES, Header, given=MEMORIES.schema.names, attributes={"id": Attribute(("memory_id",))})
#: The columns of a header, and those from which relevance is computed.
HEADER_COLUMNS = ("memory_id", *(name for name in Header.__dataclass_fields__ if name != "id"), "decay_rate")
#: A row of ``memories``, a mapping with :data:`HEADER_COLUMNS`, as a header.
row_to_header = _HEADERS.to_record
#: A row of ``memories``, a mapping with all columns of the record, as a version of a memory.
row_to_memory = _MEMORIES.to_record
#: A digest of event ids that does not depend on their order.
events_digest = ids_digest


def rows_to_events(rows: pa.Table) -> list[MemoryEvent]:
    """Return rows of ``memory_events``, ``consolidation_events`` or ``events`` as events, with users if they have them.

    They were validated when written.
    """
    events = (_EVENTS if "received_at" in rows.column_names else _CONSOLIDATION_EVENTS).to_records(rows)
    if "users" not in rows.column_names or not len(pc.list_flatten(rows["users"])):
        return events
    users = rows["users"].to_pylist()
    return [replace(event, users=tuple(members)) for event, members in zip(events, users, strict=True)]


def events_to_rows(events: Iterable[MemoryEvent], *, are_edits: bool) -> pa.Table:
    """Return events of any agents, except those of consolidation, as rows of ``memory_events``, each once."""
    unique = list({event.id: event for event in events}.values())
    return _EVENTS.to_rows(unique, is_edit=are_edits, users=[list(event.users) for event in unique])


def consolidation_to_rows(events: Iterable[MemoryEvent], nights: Mapping[datetime, Period]) -> pa.Table:
    """Return events as rows of ``consolidation_events``, each once. `nights` is their day by event time."""
    unique = list({event.id: event for event in events}.values())
    return _CONSOLIDATION_EVENTS.to_rows(unique, period=[nights[event.event_at].key for event in unique])


def events_projected(rows: pa.Table) -> pa.Table:
    """Return rows of ``memory_events`` or ``consolidation_events`` as rows of ``events``."""
    is_consolidation = "is_edit" not in rows.column_names
    computed = {
        "is_consolidation": pa.repeat(pa.scalar(is_consolidation), rows.num_rows),
        "is_edit": pa.repeat(pa.scalar(False), rows.num_rows),  # a value
        "speaker": pa.nulls(rows.num_rows, pa.string()),
        "received_at": pa.nulls(rows.num_rows, TIME),
        "ordered_at": pa.nulls(rows.num_rows, TIME),
        "digest": pa.repeat("", rows.num_rows),
    }
    columns = [rows[name] if name in rows.column_names else computed[name] for name in EVENTS.schema.names]
    return with_digest(pa.table(columns, schema=EVENTS.schema))


def memories_to_rows(
    memories: Mapping[Scope, Memories],
    vectors: Mapping[str, NDArray[np.float32]],
    embed_model: str | None = None,
) -> pa.Table:
    """Return all versions of all durable memories of scopes as rows of ``memories``, by scope in the given order.

    `vectors` are by content, from `embed_model`. Older versions are not searched and have no vector. A newest version
    without a vector has no embedder either.
    """
    scopes: list[Scope] = []
    versions: list[DurableMemory] = []
    is_newest: list[bool] = []
    for scope, folded in memories.items():
        own = [version for memory_id in folded.newest for version in folded.history(memory_id)]
        own.sort(key=lambda version: (version.id, version.version))
        versions += own
        scopes += [scope] * len(own)
        is_newest += [folded.newest[version.id] is version for version in own]
    found = [vectors.get(version.content) if newest else None
             for version, newest in zip(versions, is_newest, strict=True)]  # fmt: skip
    rows = _MEMORIES.to_rows(
        versions,
        **scope_columns(scopes),
        is_newest=is_newest,
        vector=vectors_to_lists(found),
        embed_model=[None if vector is None else embed_model for vector in found],
        digest="",
    )
    return with_digest(rows)


@dataclass(frozen=True, slots=True)
class FoldState:
    """State of the fold of a scope's memories, stored in the row of version 0.

    Attributes:
        events: digest of the ids of all folded events.
        rows: digest of the scope's rows, which shows whether a write was completed.
        count: number of folded events.
        last: id of the last one in their order.
    """

    events: str
    rows: str
    count: int
    last: str


def states_to_rows(states: Mapping[Scope, FoldState]) -> pa.Table:
    """Return fold states as rows of ``memories``; all columns that are not about the state are null."""
    scopes, own = list(states), list(states.values())
    columns = {
        "id": [f"{scope.key}#0" for scope in scopes],
        "memory_id": [scope.key for scope in scopes],
        "version": [0] * len(own),
        "is_newest": [False] * len(own),
        "access_count": [state.count for state in own],
        "event_id": [state.last for state in own],
        "source_digest": [f"{state.events} {state.rows}" for state in own],
        "digest": [""] * len(own),
    }
    return with_digest(states_in(MEMORIES.schema, scopes, columns))


#: The columns from which :func:`fold_states` reads.
STATE_COLUMNS = (*SCOPE_COLUMNS, "access_count", "event_id", "source_digest")
#: The condition on rows of ``memories`` that are versions of memories, and on those that are fold states.
IS_VERSION, IS_STATE = "version > 0", "version = 0"


def fold_states(rows: pa.Table) -> dict[Scope, FoldState]:
    """Return the fold states in rows of ``memories`` of version 0."""
    found = {}
    for row in rows.select(STATE_COLUMNS).to_pylist():
        events, _, own = row["source_digest"].partition(" ")
        scope = scope_of(*map(row.get, SCOPE_COLUMNS))
        found[scope] = FoldState(events, own, row["access_count"], row["event_id"])
    return found


#: A digest of the digests of rows of ``memories`` that does not depend on their order.
rows_digest = ids_digest


def vectors_to_lists(vectors: Sequence[NDArray[np.float32] | None]) -> pa.ListArray:
    """Return vectors as a column of lists; None becomes null."""
    missing = np.array([vector is None for vector in vectors], np.bool_)
    lengths = [0 if vector is None else len(vector) for vector in vectors]
    numbers = np.concatenate([np.empty(0, np.float32), *(vector for vector in vectors if vector is not None)])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numbers, pa.float32()), mask=pa.array(missing, pa.bool_()))


def rows_to_memories(rows: pa.Table) -> dict[Scope, Memories]:
    """Return rows of ``memories`` as memories by scope. Fold states are skipped.

    :attr:`Memories.last`, aliases and events without effect are not restored.
    """
    rows = rows.filter(pc.field("version") > 0)
    found: dict[Scope, Memories] = {}
    scopes = scopes_of(rows)
    listed = list(zip(scopes, _MEMORIES.to_records(rows), strict=True))
    for scope, version in sorted(listed, key=lambda each: (each[1].id, each[1].version)):
        memories = found.setdefault(scope, Memories())
        before = memories.newest.get(version.id)
        if before is not None:
            memories.earlier[version.id] = (*memories.earlier.get(version.id, ()), before)
        memories.newest[version.id] = version
    for memories in found.values():
        memories.matches = {key: own for own, newest in memories.newest.items() for key in newest.match_keys}
    return found

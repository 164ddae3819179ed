"""Convert durable memories and their events to table rows and back."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories
from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind, Status, Temperature
from memory_pipeline.lake.codec.codec import Attribute, Codec, ids_digest
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, UPKEEP_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period


def _changes_to_json(event: MemoryEvent) -> str:
    return json.dumps(event.changes.to_record(), ensure_ascii=False, separators=(",", ":"))


def _changes(text: str) -> Changes:
    record = json.loads(text)
    if "kind" in record:
        record["kind"] = MemoryKind(record["kind"])
    if "tags" in record:
        record["tags"] = tuple(record["tags"])
    return Changes(**record)


_EVENT: dict[str, Callable[[Any], object]] = {"verb": MemoryVerb, "changes": _changes}
_EVENTS = Codec(
    MEMORY_EVENTS,
    MemoryEvent,
    columns={"period": attrgetter("hour.key"), "changes": _changes_to_json},
    given=["is_edit"],
    attributes=_EVENT,
    unstored=["received_at"],
)
_UPKEEP_EVENTS = Codec(
    UPKEEP_EVENTS,
    MemoryEvent,
    columns={"changes": _changes_to_json},
    given=["night"],
    attributes=_EVENT,
    unstored=["received_at"],
)
_MEMORIES = Codec(
    MEMORIES,
    DurableMemory,
    columns={"id": attrgetter("version_id"), "memory_id": attrgetter("id")},
    given=("owner", "workspace_id", "agent_id", "is_newest", "source_digest", "vector", "embed_model"),
    attributes={
        "id": Attribute(("memory_id",)),
        "kind": MemoryKind,
        "temperature": Temperature,
        "status": Status,
    },
)


#: Rows of ``memory_events`` or ``upkeep_events`` as events. They were validated when written.
rows_to_events = _EVENTS.to_records
#: A row of ``memories``, a mapping with all columns of the record, as a version of a memory.
row_to_memory = _MEMORIES.to_record
#: A digest of event ids that does not depend on their order.
events_digest = ids_digest


def events_to_rows(events: Iterable[MemoryEvent], *, are_edits: bool) -> pa.Table:
    """Return events of any agents, except of the consolidation, as rows of ``memory_events``, each once."""
    return _EVENTS.to_rows(list({event.id: event for event in events}.values()), is_edit=are_edits)


def upkeep_to_rows(events: Iterable[MemoryEvent], nights: Mapping[datetime, Period]) -> pa.Table:
    """Return consolidation events as rows of ``upkeep_events``, each once. `nights` is their day by event time."""
    unique = list({event.id: event for event in events}.values())
    return _UPKEEP_EVENTS.to_rows(unique, night=[nights[event.event_at].key for event in unique])


def memories_to_rows(
    scope: Scope,
    memories: Memories,
    source_digest: str,
    vectors: Mapping[str, NDArray[np.float32]],
    embed_model: str | None = None,
) -> pa.Table:
    """Return all versions of all durable memories of an agent as rows of ``memories``.

    `source_digest` is :func:`events_digest` of their events. `vectors` are by content, from `embed_model`. Older
    versions are not searched and have no vector. A newest version without a vector has no embedder either.
    """
    versions = [version for own in memories.newest for version in memories.history(own)]
    versions.sort(key=lambda version: (version.id, version.version))
    is_newest = [memories.newest[version.id] is version for version in versions]
    found = [vectors.get(version.content) if newest else None
             for version, newest in zip(versions, is_newest, strict=True)]  # fmt: skip
    return _MEMORIES.to_rows(
        versions,
        owner=owner_of(scope),
        workspace_id=scope.workspace_id,
        agent_id=scope.agent_id,
        is_newest=is_newest,
        source_digest=source_digest,
        vector=vectors_to_lists(found),
        embed_model=[None if vector is None else embed_model for vector in found],
    )


def vectors_to_lists(vectors: Sequence[NDArray[np.float32] | None]) -> pa.ListArray:
    """Return vectors as a column of lists; None becomes null."""
    missing = np.array([vector is None for vector in vectors], np.bool_)
    lengths = [0 if vector is None else len(vector) for vector in vectors]
    numbers = np.concatenate([np.empty(0, np.float32), *(vector for vector in vectors if vector is not None)])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numbers, pa.float32()), mask=pa.array(missing, pa.bool_()))


def rows_to_memories(rows: pa.Table) -> Memories:
    """Return all rows of ``memories`` of one agent as memories.

    :attr:`Memories.last` and events without effect are not restored.
    """
    memories = Memories()
    for version in sorted(_MEMORIES.to_records(rows), key=lambda version: (version.id, version.version)):
        before = memories.newest.get(version.id)
        if before is not None:
            memories.earlier[version.id] = (*memories.earlier.get(version.id, ()), before)
        memories.newest[version.id] = version
    memories.matches = {key: own for own, newest in memories.newest.items() for key in newest.match_keys}
    return memories

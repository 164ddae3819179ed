"""Between durable memories, the events that make them, and the rows of their tables."""

from __future__ import annotations

import json
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories
from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind, Status, Temperature
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import MEMORIES, MEMORY_EVENTS, UPKEEP_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Period

_EVENT_COLUMNS = (
    "id", "workspace_id", "agent_id", "verb", "memory_id", "other_id", "changes", "editor", "reason", "evidence",
    "conversation_id", "turn", "place", "event_at",
)  # fmt: skip
#: Columns of a version that have another name, or another form, than the attribute of the record.
_FORMS: dict[str, type] = {"kind": MemoryKind, "temperature": Temperature, "status": Status}
_LISTS = ("merged_ids", "source_ids", "conversation_ids", "tags", "match_keys")
_MEMORY_COLUMNS = tuple("memory_id" if name == "id" else name for name in DurableMemory.__dataclass_fields__)


def events_to_rows(events: Iterable[MemoryEvent], *, are_edits: bool) -> pa.Table:
    """Return events of any agents as rows of ``memory_events``, each once.

    Args:
        events: of agents, or derived from conversations; none of the upkeep's.
        are_edits: whether agents made them themselves.
    """
    own = list({event.id: event for event in events}.values())
    columns = {
        "period": [event.hour.key for event in own],
        "is_edit": pa.array([are_edits] * len(own), pa.bool_()),
    }
    return _event_rows(own, columns, MEMORY_EVENTS.schema)


def upkeep_to_rows(events: Iterable[MemoryEvent], nights: Mapping[datetime, Period]) -> pa.Table:
    """Return the upkeep's events of any agents as rows of ``upkeep_events``, each once.

    Args:
        events: of the upkeep.
        nights: the day at the end of which events happened, by that instant.
    """
    own = list({event.id: event for event in events}.values())
    return _event_rows(own, {"night": [nights[event.event_at].key for event in own]}, UPKEEP_EVENTS.schema)


def _event_rows(events: Sequence[MemoryEvent], columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    made = {
        "owner": [owner_of(event.scope) for event in events],
        "workspace_id": [event.scope.workspace_id for event in events],
        "agent_id": [event.scope.agent_id for event in events],
        "verb": [event.verb.value for event in events],
        "changes": [
            json.dumps(event.changes.to_record(), ensure_ascii=False, separators=(",", ":")) for event in events
        ],
        **columns,
    }
    return pa.table(
        [
            pa.array(made[field.name] if field.name in made else [getattr(event, field.name) for event in events],
                     field.type)
            for field in schema
        ],
        schema=schema,
    )  # fmt: skip


def rows_to_events(rows: pa.Table) -> list[MemoryEvent]:
    """Return rows of ``memory_events`` or ``upkeep_events`` as events, in the rows' order.

    They were checked before they were written, and are not checked again.
    """
    scopes: dict[tuple[str, str], Scope] = {}
    found = []
    for row in zip(*(rows[name].to_pylist() for name in _EVENT_COLUMNS), strict=True):
        own, workspace_id, agent_id, verb, memory_id, other_id, changes, *_ = row
        editor, reason, evidence, conversation_id, turn, place, event_at = row[7:]
        scope = scopes.get((workspace_id, agent_id))
        if scope is None:
            scope = scopes[workspace_id, agent_id] = Scope(workspace_id, agent_id)
        found.append(
            MemoryEvent(
                own, scope, MemoryVerb(verb), memory_id, _changes(changes), event_at, turn, place, editor, reason,
                other_id, tuple(evidence), conversation_id,
            )
        )  # fmt: skip
    return found


def _changes(text: str) -> Changes:
    said = json.loads(text)
    if "kind" in said:
        said["kind"] = MemoryKind(said["kind"])
    if "tags" in said:
        said["tags"] = tuple(said["tags"])
    return Changes(**said)


def events_digest(ids: Sequence[str]) -> str:
    """Return a digest of ids of events, whatever their order.

    They end in hashes, so the sums of these will do, as four numbers of 64 bits each.
    """
    width = 32
    whole = np.frombuffer("".join(own[-width:] for own in ids).encode(), np.uint64).reshape(-1, width // 8)
    return digest(len(ids), whole.sum(axis=0, dtype=np.uint64).tolist())


def memories_to_rows(
    scope: Scope,
    memories: Memories,
    source_digest: str,
    vectors: Mapping[str, NDArray[np.float32]],
    embed_model: str | None = None,
) -> pa.Table:
    """Return all that an agent keeps as rows of ``memories``: each version of each memory.

    Args:
        scope: the agent.
        memories: what it keeps.
        source_digest: of the events that it was folded from; see :func:`events_digest`.
        vectors: of contents, by content. A newest version whose content has none has no embedder either; versions
            before it are history, which is not searched, and have none.
        embed_model: what made the vectors.
    """
    versions = [version for own in memories.newest for version in memories.history(own)]
    versions.sort(key=lambda version: (version.id, version.version))
    is_newest = [memories.newest[version.id] is version for version in versions]
    found = [vectors.get(version.content) if newest else None
             for version, newest in zip(versions, is_newest, strict=True)]  # fmt: skip
    common = {
        "owner": owner_of(scope),
        "workspace_id": scope.workspace_id,
        "agent_id": scope.agent_id,
        "source_digest": source_digest,
    }
    made: dict[str, Any] = {
        "id": [version.version_id for version in versions],
        "memory_id": [version.id for version in versions],
        "is_newest": is_newest,
        "vector": vectors_to_lists(found),
        "embed_model": [None if vector is None else embed_model for vector in found],
    }
    columns = []
    for field in MEMORIES.schema:
        if field.name in common:
            column = pa.repeat(pa.scalar(common[field.name], field.type), len(versions))
        elif field.name in made:
            column = pa.array(made[field.name], field.type)
        else:
            column = pa.array(list(map(attrgetter(field.name), versions)), field.type)
        columns.append(column)
    return pa.table(columns, schema=MEMORIES.schema)


def vectors_to_lists(vectors: Sequence[NDArray[np.float32] | None]) -> pa.ListArray:
    """Return vectors as a column of lists; one that is None is null."""
    missing = np.array([vector is None for vector in vectors], np.bool_)
    lengths = [0 if vector is None else len(vector) for vector in vectors]
    numbers = np.concatenate([np.empty(0, np.float32), *(vector for vector in vectors if vector is not None)])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numbers, pa.float32()), mask=pa.array(missing, pa.bool_()))


def rows_to_memories(rows: pa.Table) -> Memories:
    """Return all rows of ``memories`` of one agent as what it keeps.

    :attr:`Memories.last` and what events had no effect are not among the rows.
    """
    memories = Memories()
    columns = [_column(rows, name) for name in _MEMORY_COLUMNS]
    versions = [DurableMemory(*values) for values in zip(*columns, strict=True)]
    for version in sorted(versions, key=lambda version: (version.id, version.version)):
        before = memories.newest.get(version.id)
        if before is not None:
            memories.earlier[version.id] = (*memories.earlier.get(version.id, ()), before)
        memories.newest[version.id] = version
    memories.matches = {key: own for own, newest in memories.newest.items() for key in newest.match_keys}
    return memories


def row_to_memory(row: Mapping[str, Any]) -> DurableMemory:
    """Return a row of ``memories``, as a mapping with all columns of the record, as a version of a memory."""
    values = {("id" if name == "memory_id" else name): row[name] for name in _MEMORY_COLUMNS}
    values |= {name: form(values[name]) for name, form in _FORMS.items()}
    values |= {name: tuple(values[name]) for name in _LISTS}
    return DurableMemory(**values)


def _column(rows: pa.Table, name: str) -> list[Any]:
    if name in _LISTS:
        return _tuples(rows[name])
    values: list[Any] = rows[name].to_pylist()
    return list(map(_FORMS[name], values)) if name in _FORMS else values


def _tuples(column: pa.ChunkedArray) -> list[tuple[str, ...]]:
    """Return a column of lists of texts; several times faster than to_pylist() where most of them are short."""
    found = []
    for chunk in column.chunks:
        flat, offsets = chunk.flatten().to_pylist(), chunk.offsets.to_numpy() - chunk.offsets[0].as_py()
        found += [tuple(flat[start:end]) for start, end in pairwise(offsets.tolist())]
    return found

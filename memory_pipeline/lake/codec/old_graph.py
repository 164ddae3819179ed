"""Between operations and facts of the graph, and the rows of their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import Triple, name_key
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import GRAPH_FACTS, GRAPH_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.domain.conversations import Scope


def operations_to_rows(operations: Mapping[Scope, Iterable[Operation]], *, are_edits: bool) -> pa.Table:
    """Return the operations of agents as rows of ``graph_operations``, each once.

    Args:
        operations: of each agent.
        are_edits: whether agents made them themselves.
    """
    calendar = Calendar()
    rows = {}
    for scope, own in operations.items():
        owner = owner_of(scope)
        for operation in own:
            evidence_id = operation.message_ids[0]
            content = (operation.verb, operation.subject, operation.predicate, operation.object)
            sureness = (operation.confidence, operation.weight)
            order = (operation.event_at, operation.turn, operation.place)
            identifier = digest(owner, evidence_id, *content, *sureness, *order)
            rows[identifier] = {
                "owner": owner,
                "period": calendar.hour(operation.event_at).key,
                "id": identifier,
                "workspace_id": scope.workspace_id,
                "agent_id": scope.agent_id,
                "verb": operation.verb.value,
                "subject_id": name_key(operation.subject),
                "subject": operation.subject,
                "predicate": operation.predicate,
                "object": operation.object,
                "confidence": operation.confidence,
                "weight": operation.weight,
                "evidence_id": evidence_id,
                "is_edit": are_edits,
                "conversation_id": operation.conversation_id,
                "turn": operation.turn,
                "place": operation.place,
                "event_at": operation.event_at,
            }
    return pa.Table.from_pylist(list(rows.values()), schema=GRAPH_OPERATIONS.schema)


def operations_digest(rows: pa.Table) -> str:
    """Return a digest of rows of ``graph_operations``, whatever their order.

    Their ids are hashes, so their sums will do, as four numbers of 64 bits each; a sort of a million takes a second.
    """
    ids = rows["id"].combine_chunks()
    width = 32
    whole = np.frombuffer("".join(ids.to_pylist()).encode(), np.uint64).reshape(-1, width // 8)
    return digest(rows.num_rows, whole.sum(axis=0, dtype=np.uint64).tolist())


def rows_to_operations(rows: pa.Table) -> list[Operation]:
    """Return rows of ``graph_operations`` as operations, in the rows' order."""
    names = (
        "verb", "subject", "predicate", "object", "confidence", "evidence_id", "event_at", "weight", "conversation_id",
        "turn", "place",
    )  # fmt: skip
    return [
        Operation(Verb(verb), subject, predicate, value, confidence, (evidence_id,), *others)
        for verb, subject, predicate, value, confidence, evidence_id, *others in zip(
            *(rows[name].to_pylist() for name in names), strict=True
        )
    ]


def triples_to_rows(scope: Scope, triples: Sequence[Triple], source_digest: str) -> pa.Table:
    """Return an agent's triples as rows of ``graph_facts``; `source_digest` tells what they were made from."""
    common = {
        "owner": owner_of(scope),
        "workspace_id": scope.workspace_id,
        "agent_id": scope.agent_id,
        "source_digest": source_digest,
    }
    derived = {"source_hour": [triple.id.split(":", 2)[1] for triple in triples]}  # an id names its hour
    columns = [
        pa.repeat(common[field.name], len(triples))
        if field.name in common
        else pa.array(derived.get(field.name) or [getattr(triple, field.name) for triple in triples], field.type)
        for field in GRAPH_FACTS.schema
    ]
    return pa.table(columns, schema=GRAPH_FACTS.schema)


def rows_to_triples(rows: pa.Table) -> list[Triple]:
    """Return rows of ``graph_facts`` as triples, in the rows' order."""
    names = list(Triple.__dataclass_fields__)
    return [
        Triple(**{**row, "evidence": tuple(row["evidence"])})  # its names are the columns'
        for row in rows.select(names).to_pylist()
    ]

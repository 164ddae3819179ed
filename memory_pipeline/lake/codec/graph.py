"""Convert operations and facts of the graph to table rows and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import Triple, name_key
from memory_pipeline.domain.identity import digest
from memory_pipeline.lake.codec.codec import Attribute, Codec, hour_key, ids_digest
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import GRAPH_FACTS, GRAPH_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.conversations import Scope

_SCOPE = ("owner", "workspace_id", "agent_id")
_OPERATIONS = Codec(
    GRAPH_OPERATIONS,
    Operation,
    columns={
        "period": lambda one: hour_key(one.event_at),
        "subject_id": lambda one: name_key(one.subject),
        "evidence_id": lambda one: one.message_ids[0],
    },
    given=(*_SCOPE, "id", "is_edit"),
    attributes={"verb": Verb, "message_ids": Attribute(("evidence_id",), lambda own: (own,))},
)
_TRIPLES = Codec(
    GRAPH_FACTS,
    Triple,
    columns={"source_hour": lambda triple: triple.id.split(":", 2)[1]},  # an id contains its hour
    given=(*_SCOPE, "source_digest"),
)


rows_to_operations, rows_to_triples = _OPERATIONS.to_records, _TRIPLES.to_records


def operations_to_rows(operations: Mapping[Scope, Iterable[Operation]], *, are_edits: bool) -> pa.Table:
    """Return operations of agents, or edits by them, as rows of ``graph_operations``, each once."""
    found = {}
    for scope, own in operations.items():
        owner = owner_of(scope)
        for one in own:
            content = (one.verb, one.subject, one.predicate, one.object, one.confidence, one.weight)
            order = (one.event_at, one.turn, one.place)
            found[digest(owner, one.message_ids[0], *content, *order)] = scope, one
    scopes = [scope for scope, _ in found.values()]
    return _OPERATIONS.to_rows(
        [one for _, one in found.values()],
        owner=list(map(owner_of, scopes)),
        workspace_id=[scope.workspace_id for scope in scopes],
        agent_id=[scope.agent_id for scope in scopes],
        id=list(found),
        is_edit=are_edits,
    )


def operations_digest(rows: pa.Table) -> str:
    """Return a digest of rows of ``graph_operations`` that does not depend on their order."""
    return ids_digest(rows["id"].to_pylist())


def triples_to_rows(scope: Scope, triples: Sequence[Triple], source_digest: str) -> pa.Table:
    """Return an agent's triples as rows of ``graph_facts``. `source_digest` is that of its operations."""
    return _TRIPLES.to_rows(
        triples,
        owner=owner_of(scope),
        workspace_id=scope.workspace_id,
        agent_id=scope.agent_id,
        source_digest=source_digest,
    )

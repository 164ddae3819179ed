"""Convert operations and facts of the graph to table rows and back."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.domain.graph.operations import Operation
from memory_pipeline.domain.graph.triples import Triple, name_key
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.lake.codec.codec import Attribute, Codec, scope_columns, states_in, with_digest
from memory_pipeline.lake.schemas import GRAPH_FACTS, GRAPH_OPERATIONS, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.domain.scopes import Scope

_OPERATIONS = Codec(
    GRAPH_OPERATIONS,
    Operation,
    columns={
        "period": lambda one: hour_of(one.event_at).key,
        "subject_id": lambda one: name_key(one.subject),
        "evidence_id": lambda one: one.message_ids[0],
    },
    given=(*SCOPE_COLUMNS, "id", "is_edit", "users"),
    attributes={"message_ids": Attribute(("evidence_id",), lambda own: (own,))},
)
_TRIPLES = Codec(
    GRAPH_FACTS,
    Triple,
    columns={"source_hour": lambda triple: triple.id.split(":", 2)[1]},  # an id contains its hour
    given=(*SCOPE_COLUMNS, "source_digest", "digest"),
)


rows_to_operations, rows_to_triples = _OPERATIONS.to_records, _TRIPLES.to_records


def operations_to_rows(
    operations: Mapping[Scope, Iterable[Operation]],
    *,
    are_edits: bool,
    members: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> pa.Table:
    """Return operations of scopes, or edits by agents, as rows of ``graph_operations``, each once.

    `members` are the users of groups by the id of the edit.
    """
    found = {}
    for scope, own in operations.items():
        for one in own:
            content = (one.verb, one.subject, one.predicate, one.object, one.confidence, one.weight)
            order = (one.event_at, one.turn, one.place)
            found[digest(*scope.ids, one.message_ids[0], *content, *order)] = scope, one
    return _OPERATIONS.to_rows(
        [one for _, one in found.values()],
        **scope_columns([scope for scope, _ in found.values()]),
        id=list(found),
        is_edit=are_edits,
        users=[list(members.get(one.message_ids[0], ())) for _, one in found.values()],
    )


def operations_to_project(rows: pa.Table) -> pa.Table:
    """Return rows of ``graph_operations`` as rows of the projection by scope."""
    empty = pa.repeat("", rows.num_rows)
    return with_digest(rows.append_column(OPERATIONS.schema.field("digest"), empty).select(OPERATIONS.schema.names))


def triples_to_rows(triples: Mapping[Scope, Sequence[Triple]]) -> pa.Table:
    """Return triples of scopes as rows of ``graph_facts``."""
    listed = [(scope, triple) for scope, own in triples.items() for triple in own]
    rows = _TRIPLES.to_rows(
        [triple for _, triple in listed], **scope_columns([scope for scope, _ in listed]), digest=""
    )
    return with_digest(rows)


def states_to_rows(states: Mapping[Scope, str]) -> pa.Table:
    """Return the states of scopes' graphs as rows of ``graph_facts``."""
    scopes, found = list(states), list(states.values())
    return states_in(
        GRAPH_FACTS.schema, scopes, {"id": [scope.key for scope in scopes], "source_digest": found, "digest": found}
    )

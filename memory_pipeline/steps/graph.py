"""Operations to the graph: what hours say of an agent's world, folded with all that was said before.

Operations come from the facts of conversations and from edits. They are kept by agent (``graph_operations``), so that
the fold of one (``graph_facts``) never reads hours. Only agents that said something in the hours are looked at, and
only those whose operations have changed are folded again; all of them in one commit of each table.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import digest, digest_of_all
from memory_pipeline.domain.triples import fold
from memory_pipeline.lake.graph_rows import operations_to_rows, rows_to_operations, triples_to_rows
from memory_pipeline.lake.ledger import GRAPH_ASSET
from memory_pipeline.lake.rows import row_operations
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, GRAPH_OPERATIONS, owner_of
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.made import Made, content_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.edits import Edit
    from memory_pipeline.domain.operations import Operation
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake

_COLUMNS = (
    "period", "workspace_id", "agent_id", "conversation_id", "message_ids", "event_at", "operations", "digest",
    "embed_model",
)  # fmt: skip


def fold_hours(lake: Lake, hours: list[Period], edits: Iterable[Edit]) -> list[Made]:
    """Bring the graph level with the facts of `hours` and with `edits`; return what each hour adds to it."""
    keys = [hour.key for hour in hours]
    own: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for edit in edits:
        own[edit.scope] += edit.operations
    edited = operations_to_rows(own, are_edits=True)
    facts = lake.tables.read(FACTS, keys, columns=_COLUMNS)
    scopes = {owner_of(scope): scope for scope in [*_scopes(facts), *own]}

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits operations in between makes this start over, with newer facts.
        nonlocal facts
        facts = lake.tables.read(FACTS, keys, columns=_COLUMNS)
        said = operations_to_rows(_said(facts), are_edits=False)
        said = said.filter(pc.is_in(said["owner"], pa.array(list(scopes), pa.string())))
        kept = old.filter(pc.or_(old["is_edit"], pc.invert(pc.is_in(old["period"], pa.array(keys, pa.string())))))
        new = edited.filter(pc.invert(pc.is_in(edited["id"], kept["id"].combine_chunks())))
        return pa.concat_tables([kept, said, new])

    result = lake.tables.transform(GRAPH_OPERATIONS, scopes, merged)
    refold(lake, list(scopes.values()), result.rows)
    of_hours = by_period(result.rows, hours)
    inputs = by_period(facts, hours)
    return [
        Made(
            asset=GRAPH_ASSET,
            period=hour,
            input_digest=content_digest(inputs[hour]),
            output_digest=digest_of_all(rows["id"].to_pylist()),
            rows=rows.num_rows,
            agents=agents_in(rows),
            changed=not result.changed.isdisjoint(rows["owner"].to_pylist()),
        )
        for hour, rows in of_hours.items()
    ]


def refold(lake: Lake, scopes: Sequence[Scope], operations: pa.Table) -> frozenset[str]:
    """Fold the operations of those agents anew whose graph was not made from them; return whose rows changed.

    Args:
        lake: where.
        scopes: the agents.
        operations: theirs, as rows of ``graph_operations``.
    """
    configuration = lake.configuration()
    by_owner = {owner_of(scope): scope for scope in scopes}
    made_from = _made_from(lake, by_owner)
    wanted = _digests(configuration, by_owner, operations)
    stale = {owner: scope for owner, scope in by_owner.items() if made_from.get(owner) != wanted.get(owner)}
    if not stale:
        return frozenset()

    def folded(old: pa.Table) -> pa.Table:
        del old
        # Read inside the attempt, as above: of two runs the last one to commit has seen the operations of both.
        present = lake.tables.read(GRAPH_OPERATIONS, stale)
        digests = _digests(configuration, stale, present)
        parts = [
            triples_to_rows(
                scope,
                fold(scope, rows_to_operations(_of(present, owner)), configuration.vocabulary(scope)),
                digests.get(owner, ""),
            )
            for owner, scope in stale.items()
        ]
        return pa.concat_tables(parts)

    return lake.tables.transform(GRAPH_FACTS, stale, folded).changed


def _scopes(facts: pa.Table) -> set[Scope]:
    return {Scope(*ids) for ids in zip(facts["workspace_id"].to_pylist(), facts["agent_id"].to_pylist(), strict=True)}


def _said(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations that facts carry, of each agent."""
    said: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        said[Scope(row["workspace_id"], row["agent_id"])] += row_operations(row)
    return said


def _made_from(lake: Lake, owners: Iterable[str]) -> dict[str, str]:
    """Return the source digest of each agent that has a graph."""
    rows = lake.tables.read(GRAPH_FACTS, list(owners), columns=("owner", "source_digest"))
    return dict(zip(rows["owner"].to_pylist(), rows["source_digest"].to_pylist(), strict=True))


def _digests(configuration: Configuration, owners: Mapping[str, Scope], operations: pa.Table) -> dict[str, str]:
    """Return the digest of what each agent's graph is to be made from; none for an agent without operations."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for owner, identifier in zip(operations["owner"].to_pylist(), operations["id"].to_pylist(), strict=True):
        found[owner].append(identifier)
    return {
        owner: digest(configuration.vocabulary(owners[owner]).digest, digest_of_all(identifiers))
        for owner, identifiers in found.items()
        if owner in owners
    }


def _of(rows: pa.Table, owner: str) -> pa.Table:
    return rows.filter(pc.equal(rows["owner"], owner))

"""Operations to the graph: what hours say of an agent's world, folded with all that was said before.

Operations come from the facts of conversations and from edits. They are kept by agent (``graph_operations``), so that
the fold of one (``graph_facts``) never reads hours. Only agents that said something in the hours are looked at, and
only those whose operations have changed are folded again; all of them in one commit of each table.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.graph.triples import fold
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import Kept
from memory_pipeline.graph.state import names_of, refold_changed
from memory_pipeline.lake.codec.facts import row_operations
from memory_pipeline.lake.codec.graph import (
    operations_digest,
    operations_to_rows,
    rows_to_operations,
    triples_to_rows,
)
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, GRAPH_OPERATIONS, MESSAGES
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET
from memory_pipeline.lake.tables.tombstones import Marks
from memory_pipeline.steps.digests import Digests, marks_of
from memory_pipeline.steps.group import agents_in, by_period, by_scope, scopes_in
from memory_pipeline.steps.made import Made
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.graph.state import Groups
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share

_COLUMNS = (
    "period", "workspace_id", "agent_id", "conversation_id", "message_ids", "turn", "event_at", "operations", "digest",
    "embed_model",
)  # fmt: skip


def fold_hours(
    lake: Lake, hours: list[Period], edits: Iterable[Edit], also: Iterable[Scope] = (), share: Share = EVERYBODY
) -> list[Made]:
    """Bring the graph level with the facts of `hours` and with `edits`; return what each hour adds to it.

    Args:
        lake: where.
        hours: the partitions.
        edits: of agents, in these hours.
        also: agents that said something in them before, and may have said nothing now.
        share: of whom `edits` and `also` are, and whose facts are read.
    """
    keys = [hour.key for hour in hours]
    own: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for edit in edits:
        own[edit.scope] += edit.operations
    edited = operations_to_rows(own, are_edits=True)
    facts = FACTS.schema.empty_table().select(_COLUMNS)
    # By messages: what an hour said before may be no fact any more.
    spoke = lake.tables.read(MESSAGES, keys, columns=("workspace_id", "agent_id", "id"), where=share.where)
    marks = Marks.of(lake.tables)
    scopes = {owner_of(scope): scope for scope in [*scopes_in(spoke), *own, *also]}

    before = GRAPH_OPERATIONS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits operations in between makes this start over, with newer facts.
        nonlocal facts, before
        before = old
        facts = lake.tables.read(FACTS, keys, columns=_COLUMNS, where=share.where)
        said = operations_to_rows(said_in(facts), are_edits=False)
        said = said.filter(pc.is_in(said["owner"], pa.array(list(scopes), pa.string())))
        stays = pc.or_(old["is_edit"], pc.invert(pc.is_in(old["period"], pa.array(keys, pa.string()))))
        kept = old.filter(pc.or_(stays, _has_lost(old, marks, spoke["id"])))
        new = pa.concat_tables([said, edited])
        new = new.filter(pa.array(~marks.mask(new, Kept.GRAPH)))
        return pa.concat_tables([kept, new.filter(pc.invert(pc.is_in(new["id"], kept["id"].combine_chunks())))])

    result = lake.tables.transform(GRAPH_OPERATIONS, scopes, merged)
    refold(lake, list(scopes.values()), before, result.rows)
    said = result.rows.filter(pc.is_in(result.rows["period"], pa.array(keys, pa.string())))
    of_hours = by_period(said, hours)
    inputs = by_period(facts, hours)
    return [
        Made(
            asset=GRAPH_ASSET,
            period=hour,
            input_digest=found.combined,
            output_digest=made.combined,
            rows=rows.num_rows,
            agents=agents_in(rows),
            changed=not result.changed.isdisjoint(rows["owner"].to_pylist()),
            inputs=found,
            outputs=made,
        )
        for hour, rows in of_hours.items()
        for found, made in [(marks_of(inputs[hour]), Digests(rows["id"]))]
    ]


def refold(lake: Lake, scopes: Sequence[Scope], before: pa.Table, after: pa.Table) -> frozenset[str]:
    """Bring the graphs of agents level with their operations; return whose rows changed.

    Where a graph was made from the operations before, what has changed is folded again, else everything.

    Args:
        lake: where.
        scopes: the agents.
        before: their operations as they were, rows of ``graph_operations``.
        after: their operations as they are.
    """
    configuration = lake.configuration()
    vocabularies = {owner_of(scope): configuration.vocabulary(scope) for scope in scopes}
    made_from, unsound = _made_from(lake, vocabularies, after)
    wanted = _digests(after, vocabularies)
    stale = {
        owner: scope
        for scope in scopes
        for owner in [owner_of(scope)]
        if made_from.get(owner) != wanted.get(owner) or owner in unsound
    }
    if not stale:
        return frozenset()
    old_operations = _by_owner(before)
    came_from = _digests(before, vocabularies)

    def folded(old: pa.Table) -> pa.Table:
        # Read inside the attempt, as above: of two runs the last one to commit has seen the operations of both.
        present = _by_owner(lake.tables.read(GRAPH_OPERATIONS, stale))
        graphs = _by_owner(old)
        digests = {owner: _digest(vocabularies[owner], rows) for owner, rows in present.items()}
        parts = [GRAPH_FACTS.schema.empty_table()]
        for owner, operations in present.items():
            graph, vocabulary = graphs.get(owner), vocabularies[owner]
            is_level = graph is not None and graph["source_digest"][0].as_py() == came_from.get(owner)
            if graph is not None and is_level and owner not in unsound:
                rows = _with_changes(stale[owner], vocabulary, graph, old_operations[owner], operations)
            else:
                triples = fold(stale[owner], rows_to_operations(operations), vocabulary)
                rows = triples_to_rows(stale[owner], triples, "")
            made = pa.repeat(digests[owner], rows.num_rows)
            parts.append(rows.set_column(rows.schema.get_field_index("source_digest"), "source_digest", made))
        return pa.concat_tables(part.cast(GRAPH_FACTS.schema) for part in parts)

    return lake.tables.transform(GRAPH_FACTS, stale, folded, remade=stale).changed


def _with_changes(scope: Scope, vocabulary: Vocabulary, graph: pa.Table, before: pa.Table, after: pa.Table) -> pa.Table:
    """Return a graph that was made from the operations before as it is made from those after."""
    changed = pa.concat_tables([_without(after, before), _without(before, after)])

    def stored(where: pc.Expression) -> list[Operation]:
        return rows_to_operations(after.filter(where))

    def touching(identifiers: set[str]) -> Groups:
        some = pa.array(sorted(identifiers), pa.string())
        found = graph.filter(pc.or_(pc.is_in(graph["source_id"], some), pc.is_in(graph["target_id"], some)))
        return set(zip(found["source_id"].to_pylist(), found["label"].to_pylist(), strict=True))

    names = names_of(lambda where: rows_to_operations(before.filter(where)), vocabulary)
    rows, replaced, _ = refold_changed(scope, vocabulary, names, rows_to_operations(changed), stored, touching)
    groups = pa.array(sorted(f"{source_id}\n{label}" for source_id, label in replaced), pa.string())
    own = pc.binary_join_element_wise(graph["source_id"], graph["label"], "\n")
    return pa.concat_tables([graph.filter(pc.invert(pc.is_in(own, groups))), rows])


def _has_lost(operations: pa.Table, marks: Marks, messages: pa.ChunkedArray) -> pa.ChunkedArray:
    """Tell of each operation whether what was said has expired, or the fact that was found in it."""
    lost = np.zeros(operations.num_rows, np.bool_)
    for kept in Kept:
        if kept.grain is Grain.WORKING:
            lost |= marks.mask(operations, kept)
    is_there = pc.is_in(operations["evidence_id"], messages.combine_chunks())
    return pc.and_not(pa.chunked_array([pa.array(lost)]), is_there)


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["id"], others["id"].combine_chunks())))


def _by_owner(rows: pa.Table) -> dict[str, pa.Table]:
    return {owner_of(scope): part for scope, part in by_scope(rows).items()}


def said_in(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations that facts carry, of each agent."""
    said: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        said[Scope(row["workspace_id"], row["agent_id"])] += row_operations(row)
    return said


def _made_from(lake: Lake, owners: Iterable[str], operations: pa.Table) -> tuple[dict[str, str], set[str]]:
    """Return the source digest of each agent that has a graph, and the agents whose graph rests on something else too.

    Args:
        lake: where.
        owners: the agents.
        operations: that their graphs are to be made from.
    """
    columns = ("owner", "source_digest", "evidence")
    rows = lake.tables.read_sound(GRAPH_FACTS, list(owners), columns=columns)
    is_known = pc.is_in(pc.list_flatten(rows["evidence"]), operations["evidence_id"].combine_chunks())
    unsound = rows["owner"].take(pc.list_parent_indices(rows["evidence"]).filter(pc.invert(is_known)))
    made_from = dict(zip(rows["owner"].to_pylist(), rows["source_digest"].to_pylist(), strict=True))
    return made_from, set(unsound.unique().to_pylist())


def _digests(operations: pa.Table, vocabularies: Mapping[str, Vocabulary]) -> dict[str, str]:
    """Return the digest of what each agent's graph is made from; none for an agent without operations."""
    return {owner: _digest(vocabularies[owner], rows) for owner, rows in _by_owner(operations).items()}


def _digest(vocabulary: Vocabulary, operations: pa.Table) -> str:
    return digest(vocabulary.digest, operations_digest(operations))

"""Fold the operations of hours into the graph of each scope.

Operations come from facts and from edits. Their records are by hour (``graph_operations``). The projection
``operations`` has the same rows by scope, and ``graph`` their fold, which readers see. A run writes the records of its
hours, syncs the operations by scope, and folds the scopes that changed: one read and one write for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.errors import CommitConflictError
from memory_pipeline.graph.state import names_of, refold_changed
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.codec.facts import OPERATION_COLUMNS, row_operations
from memory_pipeline.lake.codec.graph import (
    fold_state,
    operations_to_project,
    operations_to_rows,
    rows_to_operations,
    states_to_rows,
    triples_to_rows,
)
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MESSAGES, OPERATIONS
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import agents_in, by_period, by_scope, scopes_in
from memory_pipeline.steps.results import NO_ROWS, PartitionResult, RowDigests, marks_of
from memory_pipeline.steps.sync_records import conditions_on, sync_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.graph.triples import Triple, Vocabulary
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.graph.state import Groups
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import LedgerEntry


_COLUMNS = (
    "period", *SCOPE_COLUMNS, *OPERATION_COLUMNS, "digest", "embed_model",
)  # fmt: skip
#: Maximum number of attempts if concurrent runs keep changing the same rows.
_ATTEMPTS = 5
#: Maximum number of scopes that are folded at a time.
_SCOPES_AT_ONCE = 2_000
_NOTHING = OPERATIONS.schema.empty_table()


class Synced(NamedTuple):
    """Rows of the projection ``operations``, before and after it was synced with the records of some hours."""

    before: pa.Table
    after: pa.Table

    @property
    def changed(self) -> pa.Table:
        """The rows that were added or removed."""
        return pa.concat_tables([_without(self.after, self.before), _without(self.before, self.after)])


def fold_graph(
    lake: Lake,
    hours: list[Period],
    edits: Iterable[Edit],
    shard: int | None = None,
    entries: Mapping[str, LedgerEntry] = MappingProxyType({}),
) -> list[PartitionResult]:
    """Update the graph with the facts of `hours` and with `edits` from the journal. Return one result per hour.

    With `shard`, all scopes are in it. `entries` are those of the last complete run, by hour. Safe to repeat and to
    interrupt: the next run of the hours folds operations that were written but not folded.
    """
    keys = [hour.key for hour in hours]
    edited: defaultdict[Scope, list[Operation]] = defaultdict(list)
    edits = list(edits)
    for edit in edits:
        edited[edit.scope] += edit.operations
    edited_rows = operations_to_rows(edited, are_edits=True, members={edit.id: edit.users for edit in edits})
    # From messages, since facts of an earlier run may be gone.
    messages = lake.tables.read(MESSAGES, keys, columns=("period", *SCOPE_COLUMNS, "id"), shard=shard)
    marks = ExpirationMarks.of(lake.tables)
    facts = FACTS.schema.empty_table().select(_COLUMNS)

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of operations the attempt starts over with newer facts.
        nonlocal facts
        facts = lake.tables.read(FACTS, keys, columns=_COLUMNS, shard=shard)
        new = pa.concat_tables([operations_to_rows(operations_in(facts), are_edits=False), edited_rows])
        new = new.filter(pa.array(~marks.mask(new, RetentionClass.GRAPH)))
        # Edits and rows that cannot be derived again stay.
        kept = old.filter(pc.or_(old["is_edit"], _has_lost_operations(old, marks, messages["id"])))
        ids = kept["id"].combine_chunks()
        return pa.concat_tables([kept, new.filter(pc.invert(pc.is_in(new["id"], ids)))])

    rewritten = lake.tables.transform(GRAPH_OPERATIONS, keys, merged, shard=shard)
    synced = sync_operations(lake, keys, shard)
    changed = synced.changed
    before, after = by_period(synced.before, hours), by_period(synced.after, hours)
    # An earlier run of these hours may have synced the operations and not folded them.
    folded = {
        hour
        for hour, rows in before.items()
        if RowDigests(rows["id"].to_pylist()).combined
        == (entries[hour.key].output_digest if hour.key in entries else NO_ROWS)
    }
    unsure = pa.array([hour.key for hour in hours if hour not in folded], pa.string())
    suspects = {*scopes_in(changed), *edited}
    suspects |= _with_other_vocabulary(lake, {*scopes_in(messages), *edited})
    for rows in (messages, synced.before, synced.after) if len(unsure) else ():
        suspects |= scopes_in(rows.filter(pc.is_in(rows["period"], unsure)))
    written = refold_graph(lake, suspects, changed)
    return [
        PartitionResult(
            asset=GRAPH_ASSET,
            period=hour,
            input_digest=marks_of(rows).combined,
            output_digest=RowDigests(after[hour]["id"].to_pylist()).combined,
            rows=after[hour].num_rows,
            agents=agents_in(after[hour]),
            changed=hour.key in rewritten or not written.isdisjoint(after[hour]["scope"].to_pylist()),
        )
        for hour, rows in by_period(facts, hours).items()
    ]


def operations_in(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations in facts, by scope."""
    operations: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        operations[scope_of(*map(row.get, SCOPE_COLUMNS))] += row_operations(row)
    return operations


def _has_lost_operations(operations: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.ChunkedArray:
    lost = np.zeros(operations.num_rows, np.bool_)
    for retention_class in RetentionClass:
        if retention_class.grain is Grain.WORKING:
            lost |= marks.mask(operations, retention_class)
    is_present = pc.is_in(operations["evidence_id"], messages.combine_chunks())
    return pc.and_not(pa.chunked_array([pa.array(lost)]), is_present)


# Sync the operations by scope with their records.


def sync_operations(lake: Lake, keys: Iterable[str], shard: int | None = None) -> Synced:
    """Sync the operations by scope with the records of some hours, of one shard or of all. Write only rows that differ.

    Raises:
        CommitConflictError: the records kept changing.
    """
    before = [lake.operations.scan(where=where, shard=shard) for _, where in conditions_on(keys)]
    after, _ = sync_records(lake, GRAPH_OPERATIONS, lake.operations, operations_to_project, keys, shard)
    return Synced(pa.concat_tables([_NOTHING, *(rows.cast(_NOTHING.schema) for rows in before)]), after)


# Fold scopes.


def refold_graph(lake: Lake, scopes: Iterable[Scope], changed: pa.Table = _NOTHING) -> set[str]:
    """Fold the graphs of scopes that are not up to date. Return the keys of the scopes with changed rows.

    Only the facts on which operations in `changed` bear are folded again, if the stored graph is the fold of all
    others.

    Args:
        lake: where.
        scopes: those that may be out of date.
        changed: operations that were added to the projection, or removed from it, just now.

    Raises:
        CommitConflictError: the operations kept changing.
    """
    ordered = sorted(set(scopes), key=lambda scope: scope.key)
    return {
        key
        for start in range(0, len(ordered), _SCOPES_AT_ONCE)
        for key in _refold(lake, set(ordered[start : start + _SCOPES_AT_ONCE]), changed)
    }


def _refold(lake: Lake, scopes: set[Scope], changed: pa.Table) -> set[str]:
    configuration = lake.configuration()
    vocabularies = {scope: configuration.vocabulary(scope) for scope in scopes}
    deltas = by_scope(changed)
    waiting = {*(scopes & deltas.keys()), *_out_of_date(lake, vocabularies, scopes - deltas.keys())}
    written: set[str] = set()
    for _ in range(_ATTEMPTS):
        if not waiting:
            return written
        operations = by_scope(lake.operations.read(waiting).cast(_NOTHING.schema))
        graphs = by_scope(lake.graph_rows.read(waiting))
        rows = _folded(lake.graph_rows.schema, vocabularies, operations, graphs, deltas)
        written |= lake.graph_rows.replace(rows, waiting)
        # A concurrent run may have added operations and folded them before this one overwrote its graph.
        now = _digests(lake.operations.read(waiting, ["scope", "digest"]))
        waiting = {
            scope
            for scope in waiting
            if set(now.get(scope.key, ())) != set(operations.get(scope, _NOTHING)["digest"].to_pylist())
        }
        deltas = {}
    if not waiting:
        return written
    raise CommitConflictError(f"the graphs of {len(waiting):,} agents keep changing; run it again later")


def _folded(
    schema: pa.Schema,
    vocabularies: Mapping[Scope, Vocabulary],
    operations: Mapping[Scope, pa.Table],
    graphs: Mapping[Scope, pa.Table],
    deltas: Mapping[Scope, pa.Table],
) -> pa.Table:
    """Return all rows of the graphs of the scopes with operations."""
    kept: dict[Scope, pa.Table] = {}
    triples: dict[Scope, list[Triple]] = {}
    for scope, own in operations.items():
        vocabulary, graph, delta = vocabularies[scope], graphs.get(scope), deltas.get(scope)
        if graph is not None and delta is not None:
            before = pa.concat_tables([_without(own, delta), _without(delta, own)])
            facts = graph.filter(pc.is_null(graph["source_digest"]))
            if _state_in(graph) == fold_state(vocabulary, *(rows["digest"].to_pylist() for rows in (before, facts))):
                kept[scope], triples[scope] = _with_changes(scope, vocabulary, facts, before, own)
                continue
        triples[scope] = fold_operations(scope, rows_to_operations(own), vocabulary)
    new = triples_to_rows(triples).cast(schema)
    digests = defaultdict(list, _digests(new))
    for scope, rows in kept.items():
        digests[scope.key] += rows["digest"].to_pylist()
    states = {
        scope: fold_state(vocabularies[scope], own["digest"].to_pylist(), digests[scope.key])
        for scope, own in operations.items()
    }
    return pa.concat_tables([*kept.values(), new, states_to_rows(states).cast(schema)])


def _with_changes(
    scope: Scope, vocabulary: Vocabulary, graph: pa.Table, before: pa.Table, after: pa.Table
) -> tuple[pa.Table, list[Triple]]:
    """Update a graph that was folded from `before` to `after`. Return the rows that stay, and the new facts."""
    changed = pa.concat_tables([_without(after, before), _without(before, after)])

    def stored(where: pc.Expression) -> list[Operation]:
        return rows_to_operations(after.filter(where))

    def touching(identifiers: set[str]) -> Groups:
        ids = pa.array(sorted(identifiers), pa.string())
        found = graph.filter(pc.or_(pc.is_in(graph["source_id"], ids), pc.is_in(graph["target_id"], ids)))
        return set(zip(found["source_id"].to_pylist(), found["label"].to_pylist(), strict=True))

    names = names_of(lambda where: rows_to_operations(before.filter(where)), vocabulary)
    refolded = refold_changed(scope, vocabulary, names, rows_to_operations(changed), stored, touching)
    groups = pa.array(sorted(f"{source_id}\n{label}" for source_id, label in refolded.replaced), pa.string())
    group_of_row = pc.binary_join_element_wise(graph["source_id"], graph["label"], "\n")
    return graph.filter(pc.invert(pc.is_in(group_of_row, groups))), refolded.triples


def _out_of_date(lake: Lake, vocabularies: Mapping[Scope, Vocabulary], scopes: Collection[Scope]) -> set[Scope]:
    """Return the scopes with a graph that is not the fold of their operations. Reads digests only."""
    if not scopes:
        return set()
    operations = _digests(lake.operations.read(scopes, ["scope", "digest"]))
    graphs = lake.graph_rows.read(scopes, ["scope", "digest", "source_digest"])
    facts = _digests(graphs.filter(pc.is_null(graphs["source_digest"])))
    states = graphs.filter(pc.is_valid(graphs["source_digest"]))
    stored = dict(zip(states["scope"].to_pylist(), states["source_digest"].to_pylist(), strict=True))
    return {
        scope
        for scope in scopes
        for own, held in [(operations.get(scope.key, []), facts.get(scope.key, []))]
        if stored.get(scope.key) != (fold_state(vocabularies[scope], own, held) if own else None) or (held and not own)
    }


def stale_scopes(lake: Lake) -> set[Scope]:
    """Return all scopes with a graph that is not the fold of their operations. Reads digests only."""
    configuration = lake.configuration()
    scopes = {scope for rows in (lake.operations, lake.graph_rows) for scope in scopes_in(rows.scan(SCOPE_COLUMNS))}
    return _out_of_date(lake, {scope: configuration.vocabulary(scope) for scope in scopes}, scopes)


def _with_other_vocabulary(lake: Lake, scopes: Iterable[Scope]) -> set[Scope]:
    """Return the scopes with a graph that was folded with another vocabulary."""
    configuration = lake.configuration()
    by_vocabulary: defaultdict[str, list[Scope]] = defaultdict(list)
    for scope in scopes:
        by_vocabulary[configuration.vocabulary(scope).digest].append(scope)
    found: set[Scope] = set()
    for vocabulary, own in by_vocabulary.items():
        found |= scopes_in(lake.graph_rows.read(own, SCOPE_COLUMNS, where=f"source_digest NOT LIKE '{vocabulary} %'"))
    return found


def _state_in(graph: pa.Table) -> str | None:
    states = graph["source_digest"].drop_null().to_pylist()
    return states[0] if states else None


def _digests(rows: pa.Table) -> dict[str, list[str]]:
    """Return the digests of rows by scope."""
    groups = pl.DataFrame(pl.from_arrow(rows.select(["scope", "digest"]))).group_by("scope").agg("digest")
    return dict(groups.iter_rows())


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["digest"], others["digest"].combine_chunks())))


def mend_graph(lake: Lake) -> None:
    """Sync all operations by scope with their records, and fold the graphs that are not up to date."""
    known = lake.operations.scan(["period"])["period"].unique().to_pylist()
    sync_operations(lake, {*lake.tables.keys(GRAPH_OPERATIONS), *known})
    refold_graph(lake, stale_scopes(lake))


def folded_graphs(lake: Lake, where: pc.Expression) -> pa.Table:
    """Return the rows of the graphs of scopes that meet a condition, folded from all of their operations."""
    operations = by_scope(lake.operations.scan().cast(_NOTHING.schema).filter(where))
    configuration = lake.configuration()
    vocabularies = {scope: configuration.vocabulary(scope) for scope in operations}
    return _folded(lake.graph_rows.schema, vocabularies, operations, {}, {})

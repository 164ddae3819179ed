"""Fold the operations of hours into the graph of each scope.

Operations come from facts and from edits. Their records are by hour (``graph_operations``). The projection
``operations`` has the same rows by scope, and ``graph`` their fold, which readers see.
"""

from __future__ import annotations

from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.graph.state import names_of, refold_changed
from memory_pipeline.lake.codec.codec import fold_state, scope_of
from memory_pipeline.lake.codec.facts import OPERATION_COLUMNS, row_operations
from memory_pipeline.lake.codec.graph import (
    operations_to_project,
    operations_to_rows,
    rows_to_operations,
    states_to_rows,
    triples_to_rows,
)
from memory_pipeline.lake.index.filters import listed
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, OPERATIONS
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET
from memory_pipeline.steps.folding import Fold, Folded, Synced, values_by_scope, without
from memory_pipeline.steps.group import by_scope, scopes_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.graph.triples import Triple
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.graph.state import Groups
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.tables.ledger import LedgerEntry
    from memory_pipeline.lake.tables.tombstones import ExpirationMarks
    from memory_pipeline.steps.results import PartitionResult

_COLUMNS = ("period", *SCOPE_COLUMNS, *OPERATION_COLUMNS, "digest", "embed_model")
#: Up to this many changed rows are listed in a condition.
_FEW = 10_000
_NOTHING = OPERATIONS.schema.empty_table()


class GraphFold(Fold):
    """Folds operations into graphs.

    Only the facts on which changed operations bear are folded again, if the stored graph is the fold of all others.
    """

    asset = GRAPH_ASSET
    records = GRAPH_OPERATIONS
    evidence = "evidence_id"
    covered = "digest"
    columns = tuple(OPERATIONS.schema.names)
    project = staticmethod(operations_to_project)

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake, lake.operations, lake.graph_rows)
        self._configuration = lake.configuration()

    def method(self, scope: Scope) -> str:  # noqa: D102  # here and below: as in the base
        return self._configuration.vocabulary(scope).digest

    def derived(self, keys: list[str], shard: int | None) -> tuple[pa.Table, pa.Table]:  # noqa: D102
        facts = self.lake.tables.read(FACTS, keys, columns=_COLUMNS, shard=shard)
        return facts, operations_to_rows(operations_in(facts), are_edits=False)

    def kept(self, old: pa.Table, new: pa.Table, marks: ExpirationMarks) -> tuple[pa.Table, pa.Table]:  # noqa: D102
        return old, new.filter(pa.array(~marks.mask(new, RetentionClass.GRAPH)))

    def outdated(  # noqa: D102
        self,
        scopes: set[Scope],
        entries: Mapping[str, LedgerEntry],  # noqa: ARG002
        shard: int | None,  # noqa: ARG002
    ) -> set[Scope]:
        by_vocabulary: defaultdict[str, list[Scope]] = defaultdict(list)
        for scope in scopes:
            by_vocabulary[self.method(scope)].append(scope)
        found: set[Scope] = set()
        for vocabulary, own in by_vocabulary.items():
            found |= scopes_in(self.stored.read(own, SCOPE_COLUMNS, f"source_digest NOT LIKE '{vocabulary} %'"))
        return found

    def folded(  # noqa: D102
        self,
        scopes: list[Scope],
        deltas: Mapping[Scope, pa.Table],
        whole: Collection[Scope],  # noqa: ARG002
    ) -> Iterator[Folded]:
        operations = by_scope(self.sources.read(scopes).cast(_NOTHING.schema))
        stored = self.stored.read(scopes).cast(self.stored.schema)
        rows = self.rows_of(operations, by_scope(stored), deltas)
        ids = {one for one, _ in _states(rows) ^ _states(stored)}
        if len(ids) > _FEW:
            yield rows, scopes, "true"
            return
        # A year of facts changes by a few: the others are not compared again.
        new = rows.filter(pc.is_in(rows["id"], pa.array(sorted(ids), pa.string())))
        yield new, scopes, f"id IN ({listed(ids)})"

    def rows_of(
        self, operations: Mapping[Scope, pa.Table], graphs: Mapping[Scope, pa.Table], deltas: Mapping[Scope, pa.Table]
    ) -> pa.Table:
        """Return all rows of the graphs of scopes; `graphs` are the stored ones."""
        unchanged: dict[Scope, pa.Table] = {}
        triples: dict[Scope, list[Triple]] = {}
        for scope, own in operations.items():
            graph, delta = graphs.get(scope), deltas.get(scope)
            if graph is not None and delta is not None:
                before = pa.concat_tables([without(own, delta), without(delta, own)])
                is_fact = pc.is_null(graph["source_digest"])
                facts, states = graph.filter(is_fact), graph["source_digest"].drop_null().to_pylist()
                folded = (rows["digest"].to_pylist() for rows in (before, facts))
                if states == [fold_state(self.method(scope), *folded)]:
                    unchanged[scope], triples[scope] = self._with_changes(scope, facts, before, own)
                    continue
            vocabulary = self._configuration.vocabulary(scope)
            triples[scope] = fold_operations(scope, rows_to_operations(own), vocabulary)
        new = triples_to_rows(triples).cast(self.stored.schema)
        digests = defaultdict(list, values_by_scope(new, "digest"))
        for scope, rows in unchanged.items():
            digests[scope.key] += rows["digest"].to_pylist()
        states = {
            scope: fold_state(self.method(scope), own["digest"].to_pylist(), digests[scope.key])
            for scope, own in operations.items()
        }
        return pa.concat_tables([*unchanged.values(), new, states_to_rows(states).cast(self.stored.schema)])

    def _with_changes(
        self, scope: Scope, graph: pa.Table, before: pa.Table, after: pa.Table
    ) -> tuple[pa.Table, list[Triple]]:
        """Update a graph that was folded from `before` to `after`. Return the rows that stay, and the new facts."""
        vocabulary = self._configuration.vocabulary(scope)
        changed = pa.concat_tables([without(after, before), without(before, after)])

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


def fold_graph(
    lake: Lake,
    hours: list[Period],
    edits: Iterable[Edit],
    shard: int | None = None,
    entries: Mapping[str, LedgerEntry] = MappingProxyType({}),
) -> list[PartitionResult]:
    """Update the graph with the facts of `hours` and with `edits` from the journal; see :meth:`Fold.fold`."""
    edits = list(edits)
    edited: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for edit in edits:
        edited[edit.scope] += edit.operations
    rows = operations_to_rows(edited, are_edits=True, members={edit.id: edit.users for edit in edits})
    return GraphFold(lake).fold(hours, rows, shard, entries)


def operations_in(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations in facts, by scope."""
    operations: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        operations[scope_of(*map(row.get, SCOPE_COLUMNS))] += row_operations(row)
    return operations


def sync_operations(lake: Lake, keys: Iterable[str]) -> Synced:
    """Sync the operations by scope with the records of some hours; see :meth:`Fold.sync`."""
    return GraphFold(lake).sync(GRAPH_OPERATIONS, keys)


def refold_graph(lake: Lake, scopes: Iterable[Scope], changed: pa.Table = _NOTHING) -> set[Scope]:
    """Fold the graphs of scopes that are not up to date; see :meth:`Fold.refold`."""
    return GraphFold(lake).refold(scopes, changed)


def stale_scopes(lake: Lake) -> set[Scope]:
    """Return all scopes with a graph that is not the fold of their operations."""
    return GraphFold(lake).stale_scopes()


def folded_graphs(lake: Lake, where: pc.Expression) -> pa.Table:
    """Return the rows of the graphs of scopes that meet a condition, folded from all of their operations."""
    return GraphFold(lake).rows_of(by_scope(lake.operations.scan().cast(_NOTHING.schema).filter(where)), {}, {})


def _states(rows: pa.Table) -> set[tuple[str, str]]:
    return set(zip(rows["id"].to_pylist(), rows["digest"].to_pylist(), strict=True))

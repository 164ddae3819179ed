"""Folds again what some operations change, and no more: the facts on the sources and labels that they speak of.

Facts on one source and label depend on the operations on these, and on the aliases, alone. So the pipeline, when an
hour brings some operations, and the reader, when the journal's tail does, ask for those alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import ALIASES, Names, fold
from memory_pipeline.lake.codec.graph import triples_to_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.graph.triples import Vocabulary

#: Sources and labels, as ids.
Groups = set[tuple[str, str]]


class Refolded(NamedTuple):
    """Facts in place of all that there were on some sources and labels, and the aliases that hold now."""

    rows: pa.Table
    replaced: Groups
    names: Names


def refold_changed(
    scope: Scope,
    vocabulary: Vocabulary,
    before: Names,
    changed: Collection[Operation],
    stored: Callable[[pc.Expression], list[Operation]],
    touching: Callable[[set[str]], Groups],
) -> Refolded:
    """Return what becomes of a graph when some of its operations change.

    Args:
        scope: whose graph.
        vocabulary: the agent's.
        before: the aliases that held.
        changed: operations that have come or gone.
        stored: returns those of all present operations that fulfil a condition on rows of ``graph_operations``.
        touching: returns the sources and labels of all facts, before, that have one of some ids at either end.
    """
    names, groups = before, Groups()
    if any(operation.predicate in ALIASES for operation in changed):
        names = names_of(stored, vocabulary)
        groups = touching(_renamed(before, names))
    for operation in changed:
        groups |= {(known.key(operation.subject), operation.predicate) for known in (before, names)}
    # What an alias brought together may come apart again.
    resolved = {(names.key(name), label) for source_id, label in groups for name in before.all_of([source_id])}
    sources = {source_id for source_id, _ in groups | resolved}
    spelt = pa.array(sorted(before.all_of(sources) | names.all_of(sources)), pa.string())
    labels = pa.array(sorted({label for _, label in groups}), pa.string())
    own = [
        operation
        for operation in stored(pc.field("subject_id").isin(spelt) & pc.field("predicate").isin(labels))
        if (names.key(operation.subject), operation.predicate) in resolved
    ]
    triples = fold(scope, own, vocabulary, names)
    return Refolded(triples_to_rows(scope, triples, ""), groups | resolved, names)


def names_of(stored: Callable[[pc.Expression], list[Operation]], vocabulary: Vocabulary) -> Names:
    """Return the aliases that follow from all present operations; see :func:`refold_changed` for `stored`."""
    return Names.of(stored(pc.field("predicate").isin(sorted(ALIASES))), vocabulary)


def _renamed(before: Names, after: Names) -> set[str]:
    """Return the ids that another set of aliases makes out of things, or into things."""
    old, new = before.aliases, after.aliases
    changed = {alias for alias in old.keys() | new.keys() if old.get(alias) != new.get(alias)}
    return changed | {old[alias] for alias in changed & old.keys()} | {new[alias] for alias in changed & new.keys()}

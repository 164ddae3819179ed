"""The graph of a scope in memory: the table, overlaid with pending changes; and the graphs of several scopes as one."""

from __future__ import annotations

import json
import threading
from functools import cached_property, partial
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.attributes import labels_of_attributes
from memory_pipeline.domain.graph.triples import ALIASES, Names, fold_operations, name_key
from memory_pipeline.domain.identity import MESSAGE, Reference
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.graph.snapshot import Codes, GraphSnapshot, Layer
from memory_pipeline.lake.codec.graph import rows_to_operations, triples_to_rows
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.index.rows_of_scope import RowsOfScope
from memory_pipeline.lake.schemas import FACTS, GRAPH_FACTS, IS_FACT
from memory_pipeline.overlay import Overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.graph.triples import Triple, Vocabulary
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.overlay import PendingFile, PendingJournal


#: Sources and labels, as ids.
Groups = set[tuple[str, str]]


class Refolded(NamedTuple):
    """Facts that replace all facts on some sources and labels, and the new aliases."""

    triples: list[Triple]
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
    """Return the changes of a graph after the operations `changed` were added or removed.

    Facts on one source and label depend only on the operations on these, and on the aliases. So only those that changed
    operations affect are folded again: by the pipeline for an hour, by the reader for pending journal entries.

    `before` are the previous aliases. `stored` returns the present operations that match a condition on rows of
    ``graph_operations``. `touching` returns the sources and labels of all previous facts with one of some ids at either
    end.
    """
    names, groups = before, Groups()
    if any(operation.predicate in ALIASES for operation in changed):
        names = names_of(stored, vocabulary)
        groups = touching(_renamed(before, names))
    for operation in changed:
        groups |= {(known.key(operation.subject), operation.predicate) for known in (before, names)}
    # Names that an alias joined may separate again.
    resolved = {(names.key(name), label) for source_id, label in groups for name in before.all_of([source_id])}
    sources = {source_id for source_id, _ in groups | resolved}
    spellings = pa.array(sorted(before.all_of(sources) | names.all_of(sources)), pa.string())
    labels = pa.array(sorted({label for _, label in groups}), pa.string())
    operations = [
        operation
        for operation in stored(pc.field("subject_id").isin(spellings) & pc.field("predicate").isin(labels))
        if (names.key(operation.subject), operation.predicate) in resolved
    ]
    return Refolded(fold_operations(scope, operations, vocabulary, names), groups | resolved, names)


def names_of(stored: Callable[[pc.Expression], list[Operation]], vocabulary: Vocabulary) -> Names:
    """Return the aliases that follow from all present operations; `stored` as in :func:`refold_changed`."""
    return Names.of(stored(pc.field("predicate").isin(sorted(ALIASES))), vocabulary)


def _renamed(before: Names, after: Names) -> set[str]:
    """Return the ids that gain or lose names when aliases change."""
    old, new = before.aliases, after.aliases
    changed = {alias for alias in old.keys() | new.keys() if old.get(alias) != new.get(alias)}
    return changed | {old[alias] for alias in changed & old.keys()} | {new[alias] for alias in changed & new.keys()}


_UNREAD = {*SCOPE_COLUMNS, "source_digest", "digest"}
_SCHEMA = pa.schema([field for field in GRAPH_FACTS.schema if field.name not in _UNREAD])
_PLACE_COLUMNS = ("id", "subject_id", "predicate", "evidence_id", "event_at", "ordered_at")
_IS_ALIAS = f"predicate IN ({', '.join(map(quoted, sorted(ALIASES)))})"


class _StoredGraph(NamedTuple):
    """The committed facts, and the operations on aliases."""

    rows: pa.Table
    graph: GraphSnapshot
    aliases: list[Operation]


class GraphOverlay(Overlay[_StoredGraph, "list[Operation]", GraphSnapshot]):
    """The newest :class:`GraphSnapshot` of a scope; `is_worth` as for its memories."""

    user_id: str | None = None  # only a joined graph is read for a user

    def __init__(
        self, lake: Lake, scope: Scope, pending: PendingJournal, is_worth: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(pending)
        self._lake = lake
        self._scope = scope
        self._facts = RowsOfScope(lake.graph_rows, scope, _SCHEMA.names, IS_FACT, is_worth)
        self._aliases = RowsOfScope(lake.operations, scope, lake.operations.schema.names, _IS_ALIAS, is_worth)
        self._places = RowsOfScope(lake.operations, scope, _PLACE_COLUMNS)
        #: The version of the facts, the hours that were read, and the labels of their messages.
        self._labels: tuple[int, set[str], dict[str, tuple[str, ...]]] = (-1, set(), {})

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The agent's configured vocabulary."""
        return self._lake.configuration().vocabulary(self._scope)

    def placed_from(self, at: datetime, subject: str, predicate: str) -> dict[str, datetime]:
        """Return the place of each operation on a subject and a predicate that comes at or after `at`, by its source.

        Clocks differ, so the writer of a new edit may have seen such operations.
        """
        pending = [one for operations in self._pending().values() for one in operations]
        found = [one for one in pending if one.predicate == predicate and one.placed_at >= at]
        rows = self._places.read()
        rows = rows.append_column("placed_at", pc.coalesce(rows["ordered_at"], rows["event_at"]))
        is_ahead = pc.greater_equal(rows["placed_at"], pa.scalar(at, rows["placed_at"].type))
        rows = rows.filter(pc.and_(is_ahead, pc.equal(rows["predicate"], predicate)))
        if not found and not rows.num_rows:
            return {}
        aliases = rows_to_operations(self._lake.operations.read([self._scope], where=_IS_ALIAS))
        names = Names.of([*aliases, *pending], self.vocabulary)
        source_id = names.key(subject)
        columns = (rows[name].to_pylist() for name in ("subject_id", "evidence_id", "placed_at"))
        places = {source: place for name, source, place in zip(*columns, strict=True) if names.key(name) == source_id}
        return places | {one.message_ids[0]: one.placed_at for one in found if names.key(one.subject) == source_id}

    def labels(self, evidence: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the labels of messages by their ids; see :mod:`memory_pipeline.domain.attributes`.

        They are those of the facts that were read from the messages. Only the hours of the messages are read, once.
        """
        files = {} if self._journal is None else self._journal.files()
        found: dict[str, tuple[str, ...]] = {}
        for file in files.values():
            found |= {one: _labels_in(fact.source, fact.metadata) for fact in file.facts for one in fact.message_ids}
            found |= {} if file.rows is None else _labels_of(file.rows)
        version = self._lake.tables.version(FACTS)
        if version != self._labels[0]:
            self._labels = (version, set(), {})
        _, read, stored = self._labels
        hours = {Reference.parse(one).period.key for one in evidence if one.startswith(MESSAGE)} - read
        if hours and version >= 0:
            is_own = pc.field("scope") == self._scope.key
            stored |= _labels_of(self._lake.tables.read(FACTS, hours, columns=_LABELLED, where=is_own))
        read |= hours
        return {one: found.get(one) or stored.get(one, ()) for one in evidence}

    def _stored(self, known: _StoredGraph | None) -> _StoredGraph:
        rows = self._facts.read()
        if known is not None and known.rows is rows:
            return known
        aliases = rows_to_operations(self._aliases.read())
        names = Names.of(aliases, self.vocabulary)
        return _StoredGraph(rows, GraphSnapshot(rows.cast(_SCHEMA), names, identity=self._scope.identity), aliases)

    def _recorded(self, files: Sequence[PendingFile]) -> list[list[Operation]]:
        return [file.operations for file in files]

    def _fold(self, base: _StoredGraph, pending: Mapping[str, list[Operation]]) -> GraphSnapshot:
        if not pending:
            return base.graph

        changed = [operation for operations in pending.values() for operation in operations]
        committed: list[pa.Table] = []
        replaced: list[Operation] = []
        if edited := self._edited_in(pending):
            rows = self._lake.operations.read([self._scope])
            is_replaced = pc.is_in(rows["evidence_id"], pa.array(sorted(edited), pa.string()))
            committed.append(rows.filter(pc.invert(is_replaced)))
            replaced = rows_to_operations(rows.filter(is_replaced))

        def stored(where: pc.Expression) -> list[Operation]:
            if not committed:
                committed.append(self._lake.operations.read([self._scope]))
            return [*rows_to_operations(committed[0].filter(where)), *changed]

        # Pending operations may be committed before the facts that follow from them.
        ids = {operation.message_ids[:1] for operation in (*changed, *replaced)}
        before = Names.of((one for one in base.aliases if one.message_ids[:1] not in ids), self.vocabulary)
        touching = partial(_touching, base.graph)
        new = refold_changed(self._scope, self.vocabulary, before, [*changed, *replaced], stored, touching)
        rows = triples_to_rows({self._scope: new.triples})
        return GraphSnapshot(rows.select(_SCHEMA.names), new.names, base.graph, new.replaced, self._scope.identity)


_LABELLED = ("message_ids", "source", "metadata")


def _labels_of(facts: pa.Table) -> dict[str, tuple[str, ...]]:
    facts = facts.filter(pc.or_(facts["source"].is_valid(), facts["metadata"].is_valid()))
    rows = zip(*(facts[name].to_pylist() for name in _LABELLED), strict=True)
    return {one: _labels_in(source, metadata) for ids, source, metadata in rows for one in ids}


def _labels_in(source: str | None, metadata: str | None) -> tuple[str, ...]:
    return labels_of_attributes(source, json.loads(metadata) if metadata else None)


def _touching(graph: GraphSnapshot, identifiers: Collection[str]) -> Groups:
    """Return the sources and labels of all facts with one of some ids at either end."""
    codes = [code for code in map(graph.codes.get, identifiers) if code is not None]
    groups: Groups = set()
    for layer, rows in graph.around(np.array(codes, np.int64), only_holding=False):
        found = layer.rows.select(["source_id", "label"]).take(pa.array(rows))
        groups.update(zip(found["source_id"].to_pylist(), found["label"].to_pylist(), strict=True))
    return groups


_USER = "User"


class _Joined(NamedTuple):
    """A layer of one scope, and the same layer with common codes, in which some ids are replaced by others."""

    source: Layer
    renamed: Mapping[str, str]
    layer: Layer


class JoinedSnapshot(GraphSnapshot):
    """All facts of several graphs. `hidden` is as in :class:`GraphSnapshot`."""

    def __init__(
        self, layers: list[Layer], hidden: list[NDArray[np.int64]], names: Names, vocabulary: Vocabulary
    ) -> None:
        self.codes = layers[-1].codes
        self.layers = layers
        self.hidden = hidden
        self.names = names
        self.holds_one = vocabulary.holds_one


class JoinedGraphs:
    """The newest graph of the scopes that `scopes` returns. Safe to use from several threads.

    To the reader of a user, the entities ``user:ID`` and ``User`` are one, shown as ``User``. So is ``ID``, unless a
    graph has another entity of this name.
    """

    def __init__(self, scopes: Callable[[], Sequence[GraphOverlay]], user_id: str | None = None) -> None:
        self._scopes = scopes
        self.user_id = user_id
        self._user = None if user_id is None else name_key(f"user:{user_id}")
        self._own_name = None if user_id is None else name_key(user_id)
        self._parts: list[GraphSnapshot] = []
        self._joined: list[_Joined] = []
        self._top: GraphSnapshot | None = None
        self._lock = threading.Lock()

    def snapshot(self) -> GraphSnapshot:
        """Return the newest graph; the same object as before if nothing has changed."""
        overlays = self._scopes()
        parts = [overlay.snapshot() for overlay in overlays]
        if len(parts) == 1 and (self._user is None or parts[0].codes.get(self._user) is None):
            return parts[0]
        with self._lock:
            is_same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
            if self._top is None or not is_same:
                self._parts, self._top = parts, self._join(parts, overlays[0].vocabulary)
            return self._top

    def labels(self, evidence: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the labels of messages, as :meth:`GraphOverlay.labels` does."""
        found: dict[str, tuple[str, ...]] = dict.fromkeys(evidence, ())
        for overlay in self._scopes():
            found |= {one: labels for one, labels in overlay.labels(evidence).items() if labels}
        return found

    def _join(self, parts: Sequence[GraphSnapshot], vocabulary: Vocabulary) -> JoinedSnapshot:
        claims = [(alias, name) for part in parts for alias, name in part.names.aliases.items()]
        if self._user is not None and self._own_name is not None:
            claims.append((self._user, name_key(_USER)))
            if all(part.codes.get(self._own_name) is None for part in parts):
                claims.append((self._own_name, name_key(_USER)))
        names = Names.claimed(claims)
        # Committed layers, large ones first, come before pending ones. So a change lays out few facts again.
        parts = sorted(parts, key=lambda part: -len(part.layers[0]))
        order = [(part, 0) for part in parts]
        order += [(part, place) for part in parts for place in range(1, len(part.layers))]
        joined: list[_Joined] = []
        codes: Codes | None = None
        known = iter(self._joined)
        for part, place in order:
            source, renamed = part.layers[place], _other_ids(part, names)
            before = next(known, None)
            if before is None or before.source is not source or before.renamed != renamed:
                known = iter(())  # the codes of all layers above differ, too
                layer = source
                if codes is not None or renamed:
                    layer = Layer(self._rows(source.rows, renamed), Codes(codes), source.identity)
                before = _Joined(source, renamed, layer)
            joined.append(before)
            codes = before.layer.codes
        self._joined = joined
        hidden = [part.hidden[place] for part, place in order]
        return JoinedSnapshot([one.layer for one in joined], hidden, names, vocabulary)

    def _rows(self, rows: pa.Table, renamed: Mapping[str, str]) -> pa.Table:
        """Return facts with other ids of their ends, and with the reader's user as ``User``."""
        if not renamed:
            return rows
        for end in ("source", "target"):
            ids = rows[f"{end}_id"].combine_chunks().dictionary_encode()
            others = pa.array([renamed.get(one, one) for one in ids.dictionary.to_pylist()], pa.string())
            columns = {f"{end}_id": others.take(ids.indices)}
            if self._user in renamed:
                columns[end] = pc.if_else(pc.equal(rows[f"{end}_id"], self._user), _USER, rows[end])
            for name, column in columns.items():
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
        return rows


def _other_ids(part: GraphSnapshot, names: Names) -> dict[str, str]:
    """Return the ids of a graph that are other ids in the joined one."""
    own = part.names.aliases
    return {
        alias: name
        for alias, name in names.aliases.items()
        if own.get(alias) != name and part.codes.get(alias) is not None
    }

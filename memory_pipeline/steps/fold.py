"""Fold the events of hours into durable memories, and their operations into the graph.

Events come from facts and from the journal. They are partitioned by agent (``memory_events``), as are the events of
consolidation (``upkeep_events``). Readers see the fold of both (``memories``). A run reads only agents with data in its
hours and folds only those with changed events, with one commit per table. Durable memories never expire.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.graph.triples import fold_operations
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.domain.retention import WORKING_CLASSES, RetentionClass
from memory_pipeline.graph.state import names_of, refold_changed
from memory_pipeline.lake.codec.facts import row_operations, rows_to_facts
from memory_pipeline.lake.codec.graph import (
    operations_digest,
    operations_to_rows,
    rows_to_operations,
    triples_to_rows,
)
from memory_pipeline.lake.codec.memories import events_digest, events_to_rows, memories_to_rows, rows_to_events
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    UPKEEP_EVENTS,
)
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import agents_in, by_period, by_scope, scopes_in
from memory_pipeline.steps.results import PartitionResult, RowDigests, marks_of
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.graph.state import Groups
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share


_AGENT = ("workspace_id", "agent_id")
_VECTOR = ("content", "vector", "embed_model")
_DURABLE = pc.is_valid(pc.field("durable"))
#: Memories that could not be embedded.
_WITHOUT_VECTOR = pc.field("is_newest") & pc.field("embed_model").is_null()


def fold_memories(
    lake: Lake,
    embedder: Embedder,
    hours: list[Period],
    events: Iterable[MemoryEvent],
    also: Iterable[Scope] = (),
    share: Share = EVERYBODY,
) -> list[PartitionResult]:
    """Update durable memories with the facts of `hours` and with `events` from the journal. Return one result per hour.

    Forgotten events are removed. Agents in `also` had rows in these hours and may have none now. Safe to repeat and to
    interrupt: the next run of the hours folds events that were written but not folded.
    """
    keys = [hour.key for hour in hours]
    edits = events_to_rows(list(events), are_edits=True)
    # From messages, since facts of an earlier run may be gone.
    messages = lake.tables.read(MESSAGES, keys, columns=(*_AGENT, "id"), where=share.where)
    waiting = share.of(_waiting(lake, hours))
    scopes = {owner_of(scope): scope for scope in [*scopes_in(messages), *scopes_in(edits), *also, *waiting]}
    owners = pa.array(list(scopes), pa.string())
    hour_keys = pa.array(keys, pa.string())
    configuration, marks = lake.configuration(), ExpirationMarks.of(lake.tables)
    all_facts = FACTS.schema.empty_table()
    facts = FACTS.schema.empty_table()
    before = MEMORY_EVENTS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of events the attempt starts over with newer facts.
        nonlocal all_facts, facts, before
        before = old
        all_facts = lake.tables.read(
            FACTS, keys, columns=("period", *_AGENT, "digest", "embed_model"), where=share.where
        )
        facts = lake.tables.read(FACTS, keys, where=_DURABLE if share.where is None else share.where & _DURABLE)
        derived = events_to_rows(memory_events_in(facts, configuration), are_edits=False)
        new = pa.concat_tables([derived.filter(pc.is_in(derived["owner"], owners)), edits])
        unchanged = _rows_to_keep(old, hour_keys, _has_lost_events(old, marks, messages["id"]))
        return _union(_without_forgotten(lake, unchanged, hour_keys), new)

    result = lake.tables.transform(MEMORY_EVENTS, scopes, merged)
    refold_memories(lake, embedder, list(scopes.values()), facts.select(_VECTOR))
    rows = result.rows.filter(pc.is_in(result.rows["period"], hour_keys))
    return _results_of_hours(
        MEMORIES_ASSET,
        by_period(all_facts, hours),
        by_period(rows, hours),
        result.changed,
        unfinished=_unfinished(lake, scopes),
        before=by_period(before, hours),
    )


def refold_memories(
    lake: Lake, embedder: Embedder, scopes: Collection[Scope], known: pa.Table | None = None
) -> frozenset[str]:
    """Refold the memories of agents with changed events or vectors. Return the owners that changed.

    Includes the events of consolidation. All agents are embedded in one batch and written in one commit. Vectors in
    `known` (content, vector, embed_model) are reused.
    """
    owners = {owner_of(scope): scope for scope in scopes}
    new_digests = _memory_digests(lake, owners)
    columns = ("owner", "is_newest", "source_digest", "embed_model")
    stored = lake.tables.read_sound(MEMORIES, owners, columns=columns)
    old_digests = dict(zip(stored["owner"].to_pylist(), stored["source_digest"].to_pylist(), strict=True))
    missing = stored.filter(pc.and_(stored["is_newest"], _lacks_vector(stored, embedder)))
    stale = {owner: scope for owner, scope in owners.items() if old_digests.get(owner) != new_digests.get(owner)}
    stale |= {owner: owners[owner] for owner in pc.unique(missing["owner"]).to_pylist()}
    if not stale:
        return frozenset()

    vectors: dict[str, NDArray[np.float32]] = {}

    def fold(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the events of both.
        events = {spec: lake.tables.read(spec, stale) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)}
        digests = _digests_of([rows.select(("owner", "id")) for rows in events.values()])
        by_agent: dict[Scope, list[MemoryEvent]] = {}
        for rows in events.values():
            for event in rows_to_events(rows):
                by_agent.setdefault(event.scope, []).append(event)
        memories = {scope: fold_events(its_events) for scope, its_events in by_agent.items()}
        _embed([old.select(_VECTOR), *([] if known is None else [known])], memories, embedder, vectors)
        parts = [MEMORIES.schema.empty_table()]
        parts += [
            memories_to_rows(scope, folded, digests[owner_of(scope)], vectors, embedder.name)
            for scope, folded in memories.items()
        ]
        return pa.concat_tables(parts)

    return lake.tables.transform(MEMORIES, stale, fold, remade=stale).changed


def _embed(
    known: Sequence[pa.Table],
    memories: Mapping[Scope, Memories],
    embedder: Embedder,
    found: dict[str, NDArray[np.float32]],
) -> None:
    """Add the vectors of all contents to `found`, by content. Contents that fail are omitted."""
    contents = {
        memory.content: Use(scope, Calendar().hour(memory.changed_at))
        for scope, folded in memories.items()
        for memory in folded.newest.values()
    }
    for rows in known:
        usable = rows.filter(
            pc.and_(
                pc.fill_null(pc.equal(rows["embed_model"], embedder.name), fill_value=False),
                pc.is_in(rows["content"], pa.array(list(contents), pa.string())),
            )
        )
        if usable.num_rows:
            numbers = usable["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            found |= zip(usable["content"].to_pylist(), numbers.reshape(usable.num_rows, -1), strict=True)
    missing = {content: use for content, use in contents.items() if content not in found}
    if missing:
        texts = list(missing)
        vectors = embedder.embed(texts, list(missing.values()))
        found |= {text: vector for text, vector in zip(texts, vectors, strict=True) if not np.isnan(vector[0])}


def _memory_digests(lake: Lake, owners: Collection[str]) -> dict[str, str]:
    return _digests_of(
        [lake.tables.read(spec, owners, columns=("owner", "id")) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)]
    )


def _digests_of(tables: Sequence[pa.Table]) -> dict[str, str]:
    ids: dict[str, list[str]] = {}
    for rows in tables:
        for owner, event_id in zip(*(rows[name].to_pylist() for name in ("owner", "id")), strict=True):
            ids.setdefault(owner, []).append(event_id)
    return {owner: events_digest(its_ids) for owner, its_ids in ids.items()}


def _waiting(lake: Lake, hours: list[Period]) -> set[Scope]:
    entries = lake.ledger.entries(MEMORIES_ASSET, hours)
    if not any(entry.unfinished for entry in entries.values()):
        return set()
    return scopes_in(lake.tables.read_sound(MEMORIES, columns=_AGENT, where=_WITHOUT_VECTOR))


def _unfinished(lake: Lake, owners: Collection[str]) -> dict[str, int]:
    """Return the number of memories without a vector, by the hour of their last change."""
    counts: dict[str, int] = {}
    for at in lake.tables.read(MEMORIES, owners, columns=("changed_at",), where=_WITHOUT_VECTOR)[
        "changed_at"
    ].to_pylist():
        key = Calendar().hour(at).key
        counts[key] = counts.get(key, 0) + 1
    return counts


def memory_events_in(facts: pa.Table, configuration: Configuration) -> list[MemoryEvent]:
    """Return the memory events derived from facts, under the settings of their agents."""
    return events_of(rows_to_facts(facts), configuration.memories)


def _without_forgotten(lake: Lake, events: pa.Table, hours: pa.Array) -> pa.Table:
    """Drop events of these hours that were forgotten after the journal was read."""
    forgotten = lake.tombstones.forgotten()
    if not forgotten:
        return events
    of_hours = rows_to_events(events.filter(pc.is_in(events["period"], hours)))
    redacted = {event.id: forgotten.taken(event) for event in of_hours}
    changed = pa.array([event.id for event in of_hours if redacted[event.id] != event], pa.string())
    if not len(changed):
        return events
    new = [one for event in of_hours if (one := redacted[event.id]) is not None and one != event]
    unchanged = events.filter(pc.invert(pc.is_in(events["id"], changed)))
    return _union(unchanged, events_to_rows(new, are_edits=True))  # only edits have a note that can be removed


def _has_lost_events(events: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.Array:
    """Return a mask of the events with expired messages, which cannot be derived again."""
    lost = np.zeros(events.num_rows, np.bool_)
    for retention_class in WORKING_CLASSES:
        lost |= marks.mask(events, retention_class)
    if lost.any():
        present = set(messages.to_pylist())
        evidence = events["evidence"].filter(pa.array(lost)).to_pylist()
        lost[lost] = [not present.issuperset(ids) for ids in evidence]
    return pa.array(lost)


def _lacks_vector(memories: pa.Table, embedder: Embedder) -> pa.ChunkedArray:
    return pc.fill_null(pc.not_equal(memories["embed_model"], embedder.name), fill_value=True)


# Graph operations come from facts and from edits. They are partitioned by agent (``graph_operations``), so folding a
# graph (``graph_facts``) never reads hours. As with memories, only agents with changes are folded.


_COLUMNS = (
    "period", "workspace_id", "agent_id", "conversation_id", "message_ids", "turn", "event_at", "operations", "digest",
    "embed_model",
)  # fmt: skip


def fold_graph(
    lake: Lake, hours: list[Period], edits: Iterable[Edit], also: Iterable[Scope] = (), share: Share = EVERYBODY
) -> list[PartitionResult]:
    """Update the graph as :func:`fold_memories` updates memories, with `edits` from the journal."""
    keys = [hour.key for hour in hours]
    edited: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for edit in edits:
        edited[edit.scope] += edit.operations
    edited_rows = operations_to_rows(edited, are_edits=True)
    hour_keys = pa.array(keys, pa.string())
    facts = FACTS.schema.empty_table().select(_COLUMNS)
    # From messages, since facts of an earlier run may be gone.
    messages = lake.tables.read(MESSAGES, keys, columns=("workspace_id", "agent_id", "id"), where=share.where)
    marks = ExpirationMarks.of(lake.tables)
    scopes = {owner_of(scope): scope for scope in [*scopes_in(messages), *edited, *also]}
    before = GRAPH_OPERATIONS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of operations the attempt starts over with newer facts.
        nonlocal facts, before
        before = old
        facts = lake.tables.read(FACTS, keys, columns=_COLUMNS, where=share.where)
        derived = operations_to_rows(operations_in(facts), are_edits=False)
        derived = derived.filter(pc.is_in(derived["owner"], pa.array(list(scopes), pa.string())))
        new = pa.concat_tables([derived, edited_rows])
        new = new.filter(pa.array(~marks.mask(new, RetentionClass.GRAPH)))
        return _union(_rows_to_keep(old, hour_keys, _has_lost_operations(old, marks, messages["id"])), new)

    result = lake.tables.transform(GRAPH_OPERATIONS, scopes, merged)
    refold_graph(lake, list(scopes.values()), before, result.rows)
    rows = result.rows.filter(pc.is_in(result.rows["period"], hour_keys))
    return _results_of_hours(GRAPH_ASSET, by_period(facts, hours), by_period(rows, hours), result.changed)


def refold_graph(lake: Lake, scopes: Sequence[Scope], before: pa.Table, after: pa.Table) -> frozenset[str]:
    """Refold the graphs of agents whose operations changed. Return the owners whose rows changed.

    `before` and `after` are rows of ``graph_operations``. Folds only the changes if the stored graph was folded from
    `before`, else everything.
    """
    configuration = lake.configuration()
    vocabularies = {owner_of(scope): configuration.vocabulary(scope) for scope in scopes}
    old_digests, unsound = _stored_digests(lake, vocabularies, after)
    new_digests = _graph_digests(after, vocabularies)
    stale = {
        owner: scope
        for scope in scopes
        for owner in [owner_of(scope)]
        if old_digests.get(owner) != new_digests.get(owner) or owner in unsound
    }
    if not stale:
        return frozenset()
    old_operations = _by_owner(before)
    digests_before = _graph_digests(before, vocabularies)

    def fold(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the operations of both.
        present = _by_owner(lake.tables.read(GRAPH_OPERATIONS, stale))
        graphs = _by_owner(old)
        digests = {owner: _digest(vocabularies[owner], rows) for owner, rows in present.items()}
        parts = [GRAPH_FACTS.schema.empty_table()]
        for owner, operations in present.items():
            graph, vocabulary = graphs.get(owner), vocabularies[owner]
            is_current = graph is not None and graph["source_digest"][0].as_py() == digests_before.get(owner)
            if graph is not None and is_current and owner not in unsound:
                rows = _with_changes(stale[owner], vocabulary, graph, old_operations[owner], operations)
            else:
                triples = fold_operations(stale[owner], rows_to_operations(operations), vocabulary)
                rows = triples_to_rows(stale[owner], triples, "")
            column = pa.repeat(digests[owner], rows.num_rows)
            parts.append(rows.set_column(rows.schema.get_field_index("source_digest"), "source_digest", column))
        return pa.concat_tables(part.cast(GRAPH_FACTS.schema) for part in parts)

    return lake.tables.transform(GRAPH_FACTS, stale, fold, remade=stale).changed


def _with_changes(scope: Scope, vocabulary: Vocabulary, graph: pa.Table, before: pa.Table, after: pa.Table) -> pa.Table:
    """Update a graph that was folded from `before` to `after`."""
    changed = pa.concat_tables([_without(after, before), _without(before, after)])

    def stored(where: pc.Expression) -> list[Operation]:
        return rows_to_operations(after.filter(where))

    def touching(identifiers: set[str]) -> Groups:
        ids = pa.array(sorted(identifiers), pa.string())
        found = graph.filter(pc.or_(pc.is_in(graph["source_id"], ids), pc.is_in(graph["target_id"], ids)))
        return set(zip(found["source_id"].to_pylist(), found["label"].to_pylist(), strict=True))

    names = names_of(lambda where: rows_to_operations(before.filter(where)), vocabulary)
    rows, replaced, _ = refold_changed(scope, vocabulary, names, rows_to_operations(changed), stored, touching)
    groups = pa.array(sorted(f"{source_id}\n{label}" for source_id, label in replaced), pa.string())
    group_of_row = pc.binary_join_element_wise(graph["source_id"], graph["label"], "\n")
    return pa.concat_tables([graph.filter(pc.invert(pc.is_in(group_of_row, groups))), rows])


def _has_lost_operations(operations: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.ChunkedArray:
    lost = np.zeros(operations.num_rows, np.bool_)
    for retention_class in RetentionClass:
        if retention_class.grain is Grain.WORKING:
            lost |= marks.mask(operations, retention_class)
    is_present = pc.is_in(operations["evidence_id"], messages.combine_chunks())
    return pc.and_not(pa.chunked_array([pa.array(lost)]), is_present)


def _rows_to_keep(old: pa.Table, hours: pa.Array, lost: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows that a run of `hours` keeps: edits, other hours, and rows that cannot be derived again."""
    is_kept = pc.or_(old["is_edit"], pc.invert(pc.is_in(old["period"], hours)))
    return old.filter(pc.or_(is_kept, lost))


def _union(rows: pa.Table, new: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, _without(new, rows)])


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["id"], others["id"].combine_chunks())))


def _by_owner(rows: pa.Table) -> dict[str, pa.Table]:
    return {owner_of(scope): part for scope, part in by_scope(rows).items()}


def operations_in(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations in facts, by agent."""
    operations: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        operations[Scope(row["workspace_id"], row["agent_id"])] += row_operations(row)
    return operations


def _stored_digests(lake: Lake, owners: Iterable[str], operations: pa.Table) -> tuple[dict[str, str], set[str]]:
    """Return the source digest of each stored graph, and the agents whose graph cites evidence outside `operations`."""
    columns = ("owner", "source_digest", "evidence")
    rows = lake.tables.read_sound(GRAPH_FACTS, list(owners), columns=columns)
    is_known = pc.is_in(pc.list_flatten(rows["evidence"]), operations["evidence_id"].combine_chunks())
    unsound = rows["owner"].take(pc.list_parent_indices(rows["evidence"]).filter(pc.invert(is_known)))
    digests = dict(zip(rows["owner"].to_pylist(), rows["source_digest"].to_pylist(), strict=True))
    return digests, set(unsound.unique().to_pylist())


def _graph_digests(operations: pa.Table, vocabularies: Mapping[str, Vocabulary]) -> dict[str, str]:
    return {owner: _digest(vocabularies[owner], rows) for owner, rows in _by_owner(operations).items()}


def _digest(vocabulary: Vocabulary, operations: pa.Table) -> str:
    return digest(vocabulary.digest, operations_digest(operations))


def _results_of_hours(
    asset: str,
    inputs: Mapping[Period, pa.Table],
    outputs: Mapping[Period, pa.Table],
    changed: Collection[str],
    *,
    unfinished: Mapping[str, int] | None = None,
    before: Mapping[Period, pa.Table] | None = None,
) -> list[PartitionResult]:
    """Return one result per hour. `inputs` are facts; `outputs` are graph operations or memory events."""
    return [
        PartitionResult(
            asset=asset,
            period=hour,
            input_digest=input_digests.combined,
            output_digest=output_digests.combined,
            rows=rows.num_rows,
            agents=agents_in(rows),
            changed=not set(rows["owner"].to_pylist()).isdisjoint(changed),
            unfinished=(unfinished or {}).get(hour.key, 0),
            inputs=input_digests,
            outputs=output_digests,
            before=None if before is None else RowDigests(before[hour]["id"]),
        )
        for hour, rows in outputs.items()
        for input_digests, output_digests in [(marks_of(inputs[hour]), RowDigests(rows["id"]))]
    ]

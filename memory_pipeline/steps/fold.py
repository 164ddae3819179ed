"""Fold the events of hours into durable memories, and their operations into the graph.

Events come from facts and from the journal. They are partitioned by agent (``memory_events``), as are the events of
consolidation (``upkeep_events``); readers see the fold of both (``memories``). A run reads only agents that have
messages, facts or journal entries in its hours and folds only those whose events changed, with one commit per table.
Durable memories do not expire, even after the conversations they come from have.
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
#: Facts that carry durable memories.
_DURABLE = pc.is_valid(pc.field("durable"))
#: Memories that could not be embedded.
_LACKING = pc.field("is_newest") & pc.field("embed_model").is_null()


def fold_memories(
    lake: Lake,
    embedder: Embedder,
    hours: list[Period],
    events: Iterable[MemoryEvent],
    also: Iterable[Scope] = (),
    share: Share = EVERYBODY,
) -> list[PartitionResult]:
    """Update durable memories with the facts of `hours` and with `events` from the journal. Return one result per hour.

    Removes what has been forgotten since. Agents in `also` had rows in these hours and may have none now. Safe to
    repeat and to interrupt: the next run of the hours folds events that were written but not folded.
    """
    keys = [hour.key for hour in hours]
    edits = list(events)
    edited = events_to_rows(edits, are_edits=True)
    # From messages, since facts of an earlier run may be gone.
    spoke = lake.tables.read(MESSAGES, keys, columns=(*_AGENT, "id"), where=share.where)
    waiting = share.of(_waiting(lake, hours))
    scopes = {owner_of(scope): scope for scope in [*scopes_in(spoke), *scopes_in(edited), *also, *waiting]}
    owners = pa.array(list(scopes), pa.string())
    made_in = pa.array(keys, pa.string())
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
        said = events_to_rows(memory_events_in(facts, configuration), are_edits=False)
        new = pa.concat_tables([said.filter(pc.is_in(said["owner"], owners)), edited])
        kept = _lasting(old, made_in, _has_lost_events(old, marks, spoke["id"]))
        return _joined(_without_forgotten(lake, kept, made_in), new)

    result = lake.tables.transform(MEMORY_EVENTS, scopes, merged)
    refold_memories(lake, embedder, list(scopes.values()), facts.select(_VECTOR))
    said = result.rows.filter(pc.is_in(result.rows["period"], made_in))
    return _results_of_hours(
        MEMORIES_ASSET,
        by_period(all_facts, hours),
        by_period(said, hours),
        result.changed,
        unfinished=_unfinished(lake, scopes),
        before=by_period(before, hours),
    )


def refold_memories(
    lake: Lake, embedder: Embedder, scopes: Collection[Scope], known: pa.Table | None = None
) -> frozenset[str]:
    """Refold the memories of agents with changed events or vectors. Return the owners that changed.

    The events of consolidation count too. All agents are written in one commit and embedded in one batch. Vectors in
    `known`, rows with content, vector and embed_model, are reused.
    """
    owners = {owner_of(scope): scope for scope in scopes}
    wanted = _memory_digests(lake, owners)
    columns = ("owner", "is_newest", "source_digest", "embed_model")
    held = lake.tables.read_sound(MEMORIES, owners, columns=columns)
    made_from = dict(zip(held["owner"].to_pylist(), held["source_digest"].to_pylist(), strict=True))
    lacking = held.filter(pc.and_(held["is_newest"], _has_none(held, embedder)))
    stale = {owner: scope for owner, scope in owners.items() if made_from.get(owner) != wanted.get(owner)}
    stale |= {owner: owners[owner] for owner in pc.unique(lacking["owner"]).to_pylist()}
    if not stale:
        return frozenset()

    vectors: dict[str, NDArray[np.float32]] = {}

    def folded(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the events of both.
        events = {spec: lake.tables.read(spec, stale) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)}
        digests = _digests_of([rows.select(("owner", "id")) for rows in events.values()])
        own: dict[Scope, list[MemoryEvent]] = {}
        for rows in events.values():
            for event in rows_to_events(rows):
                own.setdefault(event.scope, []).append(event)
        memories = {scope: fold_events(said) for scope, said in own.items()}
        _embed([old.select(_VECTOR), *([] if known is None else [known])], memories, embedder, vectors)
        parts = [MEMORIES.schema.empty_table()]
        parts += [
            memories_to_rows(scope, kept, digests[owner_of(scope)], vectors, embedder.name)
            for scope, kept in memories.items()
        ]
        return pa.concat_tables(parts)

    return lake.tables.transform(MEMORIES, stale, folded, remade=stale).changed


def _embed(
    known: Sequence[pa.Table],
    memories: Mapping[Scope, Memories],
    embedder: Embedder,
    found: dict[str, NDArray[np.float32]],
) -> None:
    """Add the vectors of all contents to `found`, by content. Contents that fail are omitted."""
    wanted = {
        memory.content: Use(scope, Calendar().hour(memory.changed_at))
        for scope, kept in memories.items()
        for memory in kept.newest.values()
    }
    for rows in known:
        own = rows.filter(
            pc.and_(
                pc.fill_null(pc.equal(rows["embed_model"], embedder.name), fill_value=False),
                pc.is_in(rows["content"], pa.array(list(wanted), pa.string())),
            )
        )
        if own.num_rows:
            numbers = own["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            found |= zip(own["content"].to_pylist(), numbers.reshape(own.num_rows, -1), strict=True)
    missing = {content: use for content, use in wanted.items() if content not in found}
    if missing:
        texts = list(missing)
        made = embedder.embed(texts, list(missing.values()))
        found |= {text: vector for text, vector in zip(texts, made, strict=True) if not np.isnan(vector[0])}


def _memory_digests(lake: Lake, owners: Collection[str]) -> dict[str, str]:
    return _digests_of(
        [lake.tables.read(spec, owners, columns=("owner", "id")) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)]
    )


def _digests_of(tables: Sequence[pa.Table]) -> dict[str, str]:
    ids: dict[str, list[str]] = {}
    for rows in tables:
        for owner, own in zip(*(rows[name].to_pylist() for name in ("owner", "id")), strict=True):
            ids.setdefault(owner, []).append(own)
    return {owner: events_digest(own) for owner, own in ids.items()}


def _waiting(lake: Lake, hours: list[Period]) -> set[Scope]:
    entries = lake.ledger.entries(MEMORIES_ASSET, hours)
    if not any(entry.unfinished for entry in entries.values()):
        return set()
    return scopes_in(lake.tables.read_sound(MEMORIES, columns=_AGENT, where=_LACKING))


def _unfinished(lake: Lake, owners: Collection[str]) -> dict[str, int]:
    """Return the number of memories without a vector, by the hour of their last change."""
    found: dict[str, int] = {}
    for at in lake.tables.read(MEMORIES, owners, columns=("changed_at",), where=_LACKING)["changed_at"].to_pylist():
        key = Calendar().hour(at).key
        found[key] = found.get(key, 0) + 1
    return found


def memory_events_in(facts: pa.Table, configuration: Configuration) -> list[MemoryEvent]:
    """Return the memory events that facts carry, under the settings of their agents."""
    return events_of(rows_to_facts(facts), configuration.memories)


def _without_forgotten(lake: Lake, events: pa.Table, hours: pa.Array) -> pa.Table:
    """Drop events of these hours that were forgotten after the journal was read."""
    forgotten = lake.tombstones.forgotten()
    if not forgotten:
        return events
    made = rows_to_events(events.filter(pc.is_in(events["period"], hours)))
    taken = {event.id: forgotten.taken(event) for event in made}
    changed = pa.array([event.id for event in made if taken[event.id] != event], pa.string())
    if not len(changed):
        return events
    own = [one for event in made if (one := taken[event.id]) is not None and one != event]
    kept = events.filter(pc.invert(pc.is_in(events["id"], changed)))
    noteless = events_to_rows(own, are_edits=True)  # derived events have no note
    return _joined(kept, noteless)


def _has_lost_events(events: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.Array:
    """Return a mask of the events whose messages have expired, so that they cannot be derived again."""
    lost = np.zeros(events.num_rows, np.bool_)
    for kept in WORKING_CLASSES:
        lost |= marks.mask(events, kept)
    if lost.any():
        there = set(messages.to_pylist())
        evidence = events["evidence"].filter(pa.array(lost)).to_pylist()
        lost[lost] = [not there.issuperset(own) for own in evidence]
    return pa.array(lost)


def _has_none(memories: pa.Table, embedder: Embedder) -> pa.ChunkedArray:
    """Return a mask of the memories that have no vector by this embedder."""
    return pc.fill_null(pc.not_equal(memories["embed_model"], embedder.name), fill_value=True)


# Graph.
#
# Operations come from facts and from edits. They are partitioned by agent (``graph_operations``), so folding a graph
# (``graph_facts``) never reads hours. As with memories, only agents with changes are folded.


_COLUMNS = (
    "period", "workspace_id", "agent_id", "conversation_id", "message_ids", "turn", "event_at", "operations", "digest",
    "embed_model",
)  # fmt: skip


def fold_graph(
    lake: Lake, hours: list[Period], edits: Iterable[Edit], also: Iterable[Scope] = (), share: Share = EVERYBODY
) -> list[PartitionResult]:
    """Update the graph with the facts of `hours` and with `edits` from the journal. Return one result per hour.

    Agents in `also` had rows in these hours and may have none now.
    """
    keys = [hour.key for hour in hours]
    own: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for edit in edits:
        own[edit.scope] += edit.operations
    edited = operations_to_rows(own, are_edits=True)
    made_in = pa.array(keys, pa.string())
    facts = FACTS.schema.empty_table().select(_COLUMNS)
    # From messages, since facts of an earlier run may be gone.
    spoke = lake.tables.read(MESSAGES, keys, columns=("workspace_id", "agent_id", "id"), where=share.where)
    marks = ExpirationMarks.of(lake.tables)
    scopes = {owner_of(scope): scope for scope in [*scopes_in(spoke), *own, *also]}

    before = GRAPH_OPERATIONS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of operations the attempt starts over with newer facts.
        nonlocal facts, before
        before = old
        facts = lake.tables.read(FACTS, keys, columns=_COLUMNS, where=share.where)
        said = operations_to_rows(operations_in(facts), are_edits=False)
        said = said.filter(pc.is_in(said["owner"], pa.array(list(scopes), pa.string())))
        new = pa.concat_tables([said, edited])
        new = new.filter(pa.array(~marks.mask(new, RetentionClass.GRAPH)))
        return _joined(_lasting(old, made_in, _has_lost_operations(old, marks, spoke["id"])), new)

    result = lake.tables.transform(GRAPH_OPERATIONS, scopes, merged)
    refold_graph(lake, list(scopes.values()), before, result.rows)
    said = result.rows.filter(pc.is_in(result.rows["period"], made_in))
    return _results_of_hours(GRAPH_ASSET, by_period(facts, hours), by_period(said, hours), result.changed)


def refold_graph(lake: Lake, scopes: Sequence[Scope], before: pa.Table, after: pa.Table) -> frozenset[str]:
    """Refold the graphs of agents whose operations changed. Return the owners whose rows changed.

    Folds only the changes if the stored graph was folded from `before`, else everything. Both `before` and `after` are
    rows of ``graph_operations``.
    """
    configuration = lake.configuration()
    vocabularies = {owner_of(scope): configuration.vocabulary(scope) for scope in scopes}
    made_from, unsound = _made_from(lake, vocabularies, after)
    wanted = _graph_digests(after, vocabularies)
    stale = {
        owner: scope
        for scope in scopes
        for owner in [owner_of(scope)]
        if made_from.get(owner) != wanted.get(owner) or owner in unsound
    }
    if not stale:
        return frozenset()
    old_operations = _by_owner(before)
    came_from = _graph_digests(before, vocabularies)

    def folded(old: pa.Table) -> pa.Table:
        # Read inside the attempt: of two concurrent runs, the last to commit has read the operations of both.
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
                triples = fold_operations(stale[owner], rows_to_operations(operations), vocabulary)
                rows = triples_to_rows(stale[owner], triples, "")
            made = pa.repeat(digests[owner], rows.num_rows)
            parts.append(rows.set_column(rows.schema.get_field_index("source_digest"), "source_digest", made))
        return pa.concat_tables(part.cast(GRAPH_FACTS.schema) for part in parts)

    return lake.tables.transform(GRAPH_FACTS, stale, folded, remade=stale).changed


def _with_changes(scope: Scope, vocabulary: Vocabulary, graph: pa.Table, before: pa.Table, after: pa.Table) -> pa.Table:
    """Update a graph that was folded from `before` to `after`."""
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


def _has_lost_operations(operations: pa.Table, marks: ExpirationMarks, messages: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the operations whose messages or facts have expired."""
    lost = np.zeros(operations.num_rows, np.bool_)
    for kept in RetentionClass:
        if kept.grain is Grain.WORKING:
            lost |= marks.mask(operations, kept)
    is_there = pc.is_in(operations["evidence_id"], messages.combine_chunks())
    return pc.and_not(pa.chunked_array([pa.array(lost)]), is_there)


def _lasting(old: pa.Table, hours: pa.Array, lost: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows that a run of `hours` keeps: edits, other hours, and rows that cannot be derived again."""
    stays = pc.or_(old["is_edit"], pc.invert(pc.is_in(old["period"], hours)))
    return old.filter(pc.or_(stays, lost))


def _joined(kept: pa.Table, new: pa.Table) -> pa.Table:
    return pa.concat_tables([kept, _without(new, kept)])


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["id"], others["id"].combine_chunks())))


def _by_owner(rows: pa.Table) -> dict[str, pa.Table]:
    return {owner_of(scope): part for scope, part in by_scope(rows).items()}


def operations_in(facts: pa.Table) -> Mapping[Scope, list[Operation]]:
    """Return the operations in facts, by agent."""
    said: defaultdict[Scope, list[Operation]] = defaultdict(list)
    for row in facts.filter(pc.list_value_length(pc.field("operations")) > 0).to_pylist():
        said[Scope(row["workspace_id"], row["agent_id"])] += row_operations(row)
    return said


def _made_from(lake: Lake, owners: Iterable[str], operations: pa.Table) -> tuple[dict[str, str], set[str]]:
    """Return the source digest of each stored graph, and the agents whose graph cites evidence outside `operations`."""
    columns = ("owner", "source_digest", "evidence")
    rows = lake.tables.read_sound(GRAPH_FACTS, list(owners), columns=columns)
    is_known = pc.is_in(pc.list_flatten(rows["evidence"]), operations["evidence_id"].combine_chunks())
    unsound = rows["owner"].take(pc.list_parent_indices(rows["evidence"]).filter(pc.invert(is_known)))
    made_from = dict(zip(rows["owner"].to_pylist(), rows["source_digest"].to_pylist(), strict=True))
    return made_from, set(unsound.unique().to_pylist())


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
    """Return one result per hour for an asset that is partitioned by agent: graph operations or memory events.

    `inputs` are facts. `outputs` need the columns ``id`` and ``owner``. `unfinished` counts rows that wait for a model,
    by the hour's key.
    """
    return [
        PartitionResult(
            asset=asset,
            period=hour,
            input_digest=read.combined,
            output_digest=made.combined,
            rows=rows.num_rows,
            agents=agents_in(rows),
            changed=not set(rows["owner"].to_pylist()).isdisjoint(changed),
            unfinished=(unfinished or {}).get(hour.key, 0),
            inputs=read,
            outputs=made,
            before=None if before is None else RowDigests(before[hour]["id"]),
        )
        for hour, rows in outputs.items()
        for read, made in [(marks_of(inputs[hour]), RowDigests(rows["id"]))]
    ]

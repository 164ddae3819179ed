"""What rests on messages: facts, graph facts, memories, lines of summaries, and what models were handed of them.

The other way round, from an item to its messages, is :mod:`memory_pipeline.reader.lineage`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake.codec.facts import rows_to_facts
from memory_pipeline.lake.read_receipts import scopes_in
from memory_pipeline.lake.schemas import FACTS, IS_FACT, SUMMARIES
from memory_pipeline.memories.state import MemoryOverlay
from memory_pipeline.overlay import PendingJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_FACT: Final = ["id", "kind", "content", "message_ids", "extraction_method", "model", "fallback"]


@dataclass(frozen=True, slots=True)
class LearnedItem:
    """What was made of a message.

    Attributes:
        id: its id, which :meth:`MemoryReader.expand` accepts.
        what: ``turn`` for the message as it was said, ``fact``, ``graph``, ``memory``, or the grain of a summary, which
            has a line that rests on the message.
        content: its text.
        used_at: when this memory was last handed to a model, UTC; None if it was not, or is no durable memory.
    """

    id: str
    what: str
    content: str
    used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PastContext:
    """A read that handed items to a model.

    Attributes:
        receipt_id: for :meth:`Memory.receipt`.
        at: when the read began, UTC.
        agent_id: the agent that read.
        operation: ``context``, ``inject_knowledge`` or ``recall``.
        conversation_id: the conversation for which it was read, if one was given.
        texts: the items that were asked about, as they were handed over.
    """

    receipt_id: str
    at: datetime
    agent_id: str
    operation: str
    conversation_id: str | None
    texts: tuple[str, ...]


def facts_on(lake: Lake, scopes: Sequence[Scope], roots: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the loaded facts that rest on messages, or are among `roots` themselves, by root."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ids, keys = frozenset(roots), [scope.key for scope in scopes]
    hours = sorted({Reference.parse(one).period.key for one in ids})
    where = pc.field("scope").isin(keys)
    for row in lake.tables.read(FACTS, hours, columns=_FACT, where=where, scopes=keys).to_pylist():
        for one in ids.intersection((row["id"], *row["message_ids"])):
            found[one].append(row)
    return found


def rest_on(lake: Lake, scopes: Sequence[Scope], roots: Collection[str]) -> dict[str, list[LearnedItem]]:
    """Return everything that rests on roots, by root: the ids of messages, facts, memory events and edits of the graph.

    A fact rests on itself.
    """
    facts = facts_on(lake, scopes, roots)
    found = made_of(lake, scopes, roots, facts)
    for root, rows in facts.items():
        found[root] = [*(_fact(row["id"], row["kind"], row["content"]) for row in rows), *found[root]]
    for scope in scopes:
        for root, items in pending_on(lake, scope, roots).items():
            found[root] += items
    return found


def _fact(identifier: str, kind: str, content: str) -> LearnedItem:
    return LearnedItem(identifier, "turn" if kind == FactKind.TURN else "fact", content)


def pending_on(lake: Lake, scope: Scope, roots: Collection[str]) -> dict[str, list[LearnedItem]]:
    """Return what readers find of pending messages, memory events and edits of a scope, by root.

    The rules read them; the pipeline, perhaps with a model, reads them again.
    """
    found: dict[str, list[LearnedItem]] = defaultdict(list)
    ids, pending = frozenset(roots), PendingJournal(lake, scope)
    files = pending.files()
    if not files:
        return found
    for file in files.values():
        for fact in file.facts if file.rows is None else rows_to_facts(file.rows):
            for one in ids.intersection(fact.message_ids):
                found[one].append(_fact(fact.id, fact.kind, fact.content))
    graph = GraphOverlay(lake, scope, pending).snapshot().history
    evidence = graph["evidence"].combine_chunks()
    cites = pc.is_in(evidence.flatten(), pa.array(sorted(ids), pa.string()))
    for row in graph.take(pc.unique(pc.list_parent_indices(evidence).filter(cites))).to_pylist():
        for one in ids.intersection(row["evidence"]):
            found[one].append(_graph_fact(row))
    for memory in MemoryOverlay(lake, scope, pending).snapshot().above.newest.values():
        for one in ids.intersection(memory.source_ids):
            found[one].append(LearnedItem(memory.id, "memory", memory.content))
    return found


def _graph_fact(row: dict[str, Any]) -> LearnedItem:
    return LearnedItem(row["id"], "graph", f"{row['source']} {row['label']} {row['target']}")


def made_of(
    lake: Lake, scopes: Sequence[Scope], roots: Collection[str], facts: dict[str, list[dict[str, Any]]]
) -> dict[str, list[LearnedItem]]:
    """Return graph facts, memories and lines of summaries that rest on roots, by root; `facts` are those on them."""
    found: dict[str, list[LearnedItem]] = defaultdict(list)
    if not lake.exists:
        return found
    ids = frozenset(roots)
    graph = lake.graph_rows.read(scopes, ["id", "source", "label", "target", "evidence"], IS_FACT).to_pylist()
    for row in graph:
        for one in ids.intersection(row["evidence"]):
            found[one].append(_graph_fact(row))
    used = {one.memory_id: one.at for one in sorted(lake.access_log.uses(scopes), key=lambda one: one.at)}
    columns = ["memory_id", "content", "source_ids"]
    for row in lake.memory_rows.read(scopes, columns, "is_newest").to_pylist():
        for one in ids.intersection(row["source_ids"] or ()):
            identifier = row["memory_id"]
            found[one].append(LearnedItem(identifier, "memory", row["content"], used.get(identifier)))
    # The points of a grain cite the facts, or the points of the next finer grain.
    sources: dict[str, set[str]] = defaultdict(set)
    for root, listed in facts.items():
        for row in listed:
            sources[row["id"]].add(root)
    keys, hours = [scope.key for scope in scopes], {Reference.parse(one).period for one in ids}
    where = pc.field("scope").isin(keys)
    columns = ["id", "key_points"]
    for grain in SUMMARY_GRAINS:
        periods = sorted({lake.calendar.ancestor(hour, grain).key for hour in hours})
        cited: dict[str, set[str]] = defaultdict(set)
        rows = lake.tables.read(SUMMARIES, periods, columns=columns, where=where, scopes=keys, grain=grain.value)
        for row in rows.to_pylist():
            for number, point in enumerate(row["key_points"]):
                rests_on = {one for source in point["source_ids"] for one in sources.get(source, ())}
                for one in rests_on:
                    found[one].append(LearnedItem(f"{row['id']}#{number}", str(grain), point["sentence"]))
                cited[f"{row['id']}#{number}"] |= rests_on
        sources = cited
    return found


def contexts_with(
    lake: Lake, workspace_id: str, ids: Iterable[str], is_shown: Callable[[Scope], bool]
) -> tuple[PastContext, ...]:
    """Return the reads that handed over something with one of the ids, or made of it, oldest first.

    `is_shown` returns whether a read of the memory of a scope may be told.
    """
    known = frozenset(ids)
    # An item may be a summary as a whole.
    wanted = known | {one.partition("#")[0] for one in known}

    def is_wanted(item: dict[str, Any]) -> bool:
        return item["id"] in wanted or not known.isdisjoint(item["sources"] or ())

    found = [
        PastContext(
            row["id"],
            row["called_at"],
            row["asking_agent"],
            row["operation"],
            row["conversation_id"],
            tuple(item["content"] for item in items if item["content"]),
        )
        for row, items in lake.read_receipts.with_items(workspace_id, is_wanted)
        if is_shown(scopes_in(row)[0])
    ]
    return tuple(sorted(found, key=lambda one: one.receipt_id))

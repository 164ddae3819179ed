"""Decide what to hide in any form, and what to show with a warning.

The same statement is stored in several forms: a message, a fact, a point of a summary, a durable memory, a graph fact.
A statement that was shown before is hidden in all forms. A revoked statement is hidden where an item says only that, in
the same words. A statement about one moment gets a warning in all forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.identity import MEMORY
from memory_pipeline.domain.memories.decay import warning
from memory_pipeline.domain.memories.record import DurableMemory, MemoryKind, Status, match_key
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.codec.memories import row_to_memory
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.memories.queries import until_of
from memory_pipeline.memories.ranker import resolved_in
from memory_pipeline.overlay import Derived
from memory_pipeline.reader.packing.items import DURABLE, GRAPH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.graph import GraphFact
    from memory_pipeline.memories.snapshot import MemorySnapshot
    from memory_pipeline.memories.state import MemoryOverlay
    from memory_pipeline.reader.packing.items import Recalled


class Statement(NamedTuple):
    """A statement in one form.

    Attributes:
        grain: a grain, ``durable`` or ``graph``.
        words: keys that are equal in all forms of the statement.
        sources: ids of its messages; empty for a point.
        is_whole: whether it is a whole message.
    """

    grain: str
    words: frozenset[object]
    sources: frozenset[str]
    is_whole: bool = False

    @classmethod
    def of(cls, grain: str, content: str, source_ids: Iterable[str], kind: str | None) -> Statement:
        """Return a statement from a fact of a conversation or a point of a summary."""
        is_fact = grain == Grain.WORKING
        sources = frozenset(source_ids) if is_fact else frozenset[str]()
        return cls(grain, frozenset([_key(content)]), sources, is_fact and kind == FactKind.TURN)

    @classmethod
    def of_memory(cls, memory: DurableMemory) -> Statement:
        """Return a statement from a durable memory."""
        words = {_key(memory.content), _triple(memory.subject, memory.predicate, memory.object)}
        return cls(DURABLE, frozenset(words - {None}), frozenset(memory.source_ids))

    @classmethod
    def of_fact(cls, fact: GraphFact) -> Statement:
        """Return a statement from a graph fact."""
        words = {_key(f"{fact.source} {fact.label} {fact.target}"), _triple(fact.source, fact.label, fact.target)}
        return cls(GRAPH, frozenset(words - {None}), frozenset(fact.evidence))


def _key(content: str) -> object:
    return match_key(MemoryKind.FACT, content)


def _triple(subject: str | None, predicate: str | None, value: str | None) -> object:
    return (name_key(subject), predicate, name_key(value)) if subject and predicate and value else None


@dataclass(frozen=True, slots=True)
class SuppressionRules:
    """Rules for the answer to one question.

    Attributes:
        revoked: messages of revoked statements, by the statement's words.
        snapshots: active memories that describe the state of one moment.
        now: the time from which ages count; None for no warnings.
    """

    shown: Sequence[Statement] = ()
    revoked: Mapping[object, Sequence[frozenset[str]]] = field(default_factory=dict)
    snapshots: Sequence[DurableMemory] = ()
    now: datetime | None = None

    def hides(self, statement: Statement) -> bool:
        """Return whether to hide a statement."""
        return self._was_shown(statement) or (statement.grain != DURABLE and self._was_revoked(statement))

    def hides_memory(self, memory: DurableMemory) -> bool:
        """Return whether to hide a durable memory."""
        return bool(self.shown) and self.hides(Statement.of_memory(memory))

    def hides_fact(self, fact: GraphFact) -> bool:
        """Return whether to hide a graph fact."""
        return bool(self.shown or self.revoked) and self.hides(Statement.of_fact(fact))

    def visible(self, items: Iterable[Recalled]) -> list[Recalled]:
        """Return the facts and points to show, with their warnings."""
        shown = []
        for item in items:
            statement = Statement.of(item.grain, item.content, item.source_ids, item.kind)
            if not self.hides(statement):
                shown.append(self._warned(item, statement))
        return shown

    def _was_shown(self, statement: Statement) -> bool:
        if any(not statement.words.isdisjoint(one.words) for one in self.shown):
            return True
        if not statement.sources:
            return False
        if statement.sources <= frozenset[str]().union(*(one.sources for one in self.shown if one.is_whole)):
            return True
        # A shown graph fact hides neither: it says less than its message.
        return (statement.is_whole or statement.grain == GRAPH) and any(
            statement.sources <= one.sources for one in self.shown if one.grain not in (statement.grain, GRAPH)
        )

    def _was_revoked(self, statement: Statement) -> bool:
        revocations = [sources for words in statement.words for sources in self.revoked.get(words, ())]
        return any(statement.sources <= sources for sources in revocations)

    def _warned(self, item: Recalled, statement: Statement) -> Recalled:
        if self.now is None:
            return item
        for memory in self.snapshots:
            snapshot = Statement.of_memory(memory)
            is_same = not snapshot.words.isdisjoint(statement.words)
            if is_same or (statement.is_whole and not snapshot.sources.isdisjoint(statement.sources)):
                return replace(item, warning=warning(memory, self.now))
        return item


def joined_rules(parts: Sequence[SuppressionRules], shown: Iterable[Statement]) -> SuppressionRules:
    """Return the rules of several scopes as one, with more statements that were shown before."""
    revoked = parts[0].revoked
    if len(parts) > 1:
        words = {each for part in parts for each in part.revoked}
        revoked = {each: [sources for part in parts for sources in part.revoked.get(each, ())] for each in words}
    return SuppressionRules(
        (*shown, *(one for part in parts for one in part.shown)),
        revoked,
        [memory for part in parts for memory in part.snapshots],
        parts[0].now,
    )


class SuppressionIndex:
    """Finds the statements to hide because of one scope. Safe to use from several threads."""

    def __init__(self, state: MemoryOverlay) -> None:
        self._state = state
        self._found = Derived(self._read, state.is_of)

    def of(self, exclude: Collection[str], now: datetime | None, at: datetime) -> SuppressionRules:
        """Return the rules for one question.

        An id in `exclude` of a memory includes its versions. Ignore everything after `now`; ages count from `at`.
        """
        until = until_of(now, self._state.calendar)
        snapshot, (revoked, snapshots) = self._found.of(lambda: self._state.snapshot(until))
        shown_ids = {resolved_in(snapshot, one) for one in exclude if one.startswith(f"{MEMORY}:")}
        memories = snapshot.load(shown_ids, alone=True)
        return SuppressionRules([*map(Statement.of_memory, memories.values())], revoked, snapshots, at)

    def _read(self, snapshot: MemorySnapshot) -> tuple[dict[object, list[frozenset[str]]], list[DurableMemory]]:
        rows = snapshot.rows
        found = list(snapshot.above.newest.values())
        if len(rows):
            # Headers show which contents to read; for most agents, none.
            is_snapshot = rows.equal("status", Status.ACTIVE.value) & rows.flagged("is_point_in_time")
            mask = snapshot.visible & (rows.equal("status", Status.DEPRECATED.value) | is_snapshot)
            ids = rows.table["memory_id"].filter(pa.array(mask)).to_pylist()
            found += rows.memories(ids, alone=True).values()
        revoked = [memory for memory in found if memory.status is Status.DEPRECATED]
        snapshots = [memory for memory in found if memory.is_active and memory.is_point_in_time]
        by_words: dict[object, list[frozenset[str]]] = {}
        for memory in (*revoked, *self._before(snapshot, revoked)):
            statement = Statement.of_memory(memory)
            for words in statement.words:
                by_words.setdefault(words, []).append(statement.sources)
        return by_words, sorted(snapshots, key=lambda memory: memory.id)

    def _before(self, snapshot: MemorySnapshot, revoked: Iterable[DurableMemory]) -> list[DurableMemory]:
        """Return earlier versions of revoked memories, and all versions of memories merged into them."""
        ids = {one for memory in revoked for one in (memory.id, *memory.merged_ids)}
        if not ids:
            return []
        found = [one for memory_id in ids for one in snapshot.above.earlier.get(memory_id, ())]
        found += [one for memory_id in ids if (one := snapshot.above.newest.get(memory_id)) is not None]
        if len(snapshot.rows):
            rows = self._state.rows(f"memory_id IN ({', '.join(map(quoted, sorted(ids)))})")
            found += map(row_to_memory, rows.to_pylist())
        return found

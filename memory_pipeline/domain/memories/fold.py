"""Fold events into durable memories, in the order of event time.

``fold_events`` is a pure function of the set of events: order of arrival and duplicates do not change the result. The
pipeline folds the stored events; readers continue with the pending ones.

- REMEMBER creates a memory, or a new version of a memory with the same match key (:func:`match_key`), or of the active
  one that it names, because both say nearly the same. Of these texts the longer one stays.
- UPDATE changes the content. Both reactivate a revoked, superseded or archived memory.
- FORGET revokes a memory: it stays in the history, and no search returns it.
- BOOST and REDUCE change the importance, CONFIRM the confidence. A confirmed observation becomes a fact with the same
  id.
- DEACTIVATE archives a memory, REACTIVATE brings it back.
- ACCESS counts a use. LINK and UNLINK change no memory (:mod:`memory_pipeline.domain.memories.links`).
- PROMOTE, MERGE, SUPERSEDE, COOL, KEEP, ARCHIVE, HEAT and CHILL belong to the consolidation. They ignore
  inactive memories and unknown ids: after late, edited or erased conversations they may be outdated until their days
  are recomputed.

The id of a merged memory resolves to the memory that it was merged into. The id of a REMEMBER that matched a known
memory resolves to that memory, too: a late event can change which of two was the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.authority import authority_of
from memory_pipeline.domain.identity import MEMORY, make_id
from memory_pipeline.domain.memories.events import CONVERSATION, STEP, Changes, MemoryEvent, MemoryVerb, key_of
from memory_pipeline.domain.memories.record import (
    CONFIDENCE,
    DECAY_RATE,
    IMPORTANCE,
    MAX_SOURCES,
    DurableMemory,
    MemoryClass,
    MemoryKind,
    SourceType,
    Status,
    Temperature,
    one_line_summary,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

#: The fields of memories that events set.
_SET = tuple(name for name in DurableMemory.__dataclass_fields__ if name in Changes.__dataclass_fields__)
_FIGURES = ("importance", "confidence", "decay_rate")
#: Those of which a later statement replaces an earlier one; the others have rules of their own.
_RULED = {"kind", "title", "hook", "content", "tags", "source_type", "context", *_FIGURES}
_TERMS = tuple(name for name in _SET if name not in _RULED)
#: What a new memory has unless its event says otherwise.
_ABSENT: dict[str, Any] = {
    **dict.fromkeys(_SET),
    "kind": MemoryKind.FACT,
    "importance": IMPORTANCE,
    "confidence": CONFIDENCE,
    "decay_rate": DECAY_RATE,
    "is_point_in_time": False,
    "memory_class": MemoryClass.FACTUAL,
    "tags": (),
}
_DIGITS = 6


@dataclass(slots=True)
class Memories:
    """The durable memories of one agent.

    Attributes:
        newest: newest version of each memory, by id.
        earlier: previous versions by id, oldest first, each as it was when the next one was created.
        matches: memory id by match key.
        aliases: memory id by the id of a REMEMBER event that matched it.
        ignored: reason by id of an event without effect, such as an unknown memory.
        last: :attr:`MemoryEvent.order` of the last event.
    """

    newest: dict[str, DurableMemory] = field(default_factory=dict)
    earlier: dict[str, tuple[DurableMemory, ...]] = field(default_factory=dict)
    matches: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    last: tuple[datetime, bool, int, int, str] | None = None

    def copy(self) -> Memories:
        """Return an independent copy."""
        return Memories(
            dict(self.newest), dict(self.earlier), dict(self.matches), dict(self.aliases), dict(self.ignored), self.last
        )

    def resolved(self, memory_id: str) -> str:
        """Return the current id of a memory: its own, or that of the memory that it was merged into."""
        if memory_id not in self.newest:
            memory_id = self.aliases.get(memory_id, memory_id)
        seen = set[str]()
        while (memory := self.newest.get(memory_id)) is not None and memory_id not in seen:
            seen.add(memory_id)
            into = memory.superseded_by
            if into is None or into not in self.newest or memory_id not in self.newest[into].merged_ids:
                break
            memory_id = into
        return memory_id

    def find(self, changes: Changes) -> DurableMemory | None:
        """Return the memory with the match key of `changes`, or None."""
        known = self.matches.get(key_of(changes))
        return None if known is None else self.newest[known]

    def memory_id_for(self, event: MemoryEvent, key: str | None = None) -> str:
        """Return the id of the memory that a REMEMBER creates or updates; `key` is its match key, if it is known."""
        known = self.matches.get(key or key_of(event.changes))
        if known is not None:
            return known
        similar = self.similar_to(event)
        if similar is not None:
            return similar.id
        before = self.newest.get(event.memory_id)
        if before is None or not before.is_active:
            return event.memory_id
        # A memory of this hour had the same words and was updated to other words. It stays beside the new one.
        return make_id(MEMORY, event.hour, event.memory_id, event.id)

    def similar_to(self, event: MemoryEvent) -> DurableMemory | None:
        """Return the active memory that a REMEMBER names as one that says nearly the same, or None."""
        memory = None if event.other_id is None else self.newest.get(self.resolved(event.other_id))
        return memory if memory is not None and memory.is_active else None

    def history(self, memory_id: str) -> tuple[DurableMemory, ...]:
        """Return all versions of a memory, oldest first; empty if the id is unknown."""
        newest = self.newest.get(memory_id)
        return () if newest is None else (*self.earlier.get(memory_id, ()), newest)


def fold_events(events: Iterable[MemoryEvent], known: Memories | None = None) -> Memories:
    """Fold events, in any order, into memories.

    `known` is the result for earlier events; it is not changed. No new event may precede its last one.
    """
    memories = Memories() if known is None else known.copy()
    for event in sorted({event.id: event for event in events}.values(), key=lambda event: event.order):
        apply(memories, event)
    return memories


def changed_by(
    events: Iterable[MemoryEvent],
    matches: Mapping[str, str],
    successors: Mapping[str, str],
    aliases: Callable[[str], str] = str,
) -> set[str]:
    """Return the ids of the memories that events may read or change.

    `matches` is the memory by match key, `successors` the memory that replaced a memory, by its id. `aliases` returns
    the memory that the id of a REMEMBER stands for.
    """
    waiting: list[str | None] = []
    for event in events:
        known = matches.get(key_of(event.changes)) if event.verb is MemoryVerb.REMEMBER else None
        waiting += [event.memory_id, event.other_id, known]
    found = set[str]()
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.add(one)
            waiting += [successors.get(one), aliases(one)]
    return found


def apply_use(memories: Memories, memory_id: str, count: int, at: datetime) -> None:
    """Count uses of a memory, the last one at `at`, UTC. An unknown memory is ignored."""
    memory = memories.newest.get(memories.resolved(memory_id))
    if memory is not None:
        _put(memories, used(memory, count, at))


def apply(memories: Memories, event: MemoryEvent) -> None:
    """Apply one event to `memories`, later than all those applied before."""
    memories.last = event.order
    if event.verb is MemoryVerb.REMEMBER:
        _remember(memories, event)
        return
    memory_id = memories.resolved(event.memory_id)
    memory = memories.newest.get(memory_id)
    if memory is None:
        memories.ignored[event.id] = f"{event.memory_id} is not known"
        return
    _APPLIED[event.verb](memories, memory, event)


def _remember(memories: Memories, event: MemoryEvent) -> None:
    changes = event.changes
    key = key_of(changes)
    memory_id = memories.memory_id_for(event, key)
    if memory_id != event.memory_id:
        memories.aliases[event.memory_id] = memory_id
    if memories.matches.get(key) == memory_id or memories.similar_to(event) is not None:
        _repeat(memories, memories.newest[memory_id], event)
        return
    content = changes.content or ""
    fields = {name: value for name in _SET if (value := getattr(changes, name)) is not None}
    fields["content"] = content
    fields["title"] = changes.title or title_of(content)
    fields["hook"] = changes.hook or one_line_summary(content)
    fields["source_type"] = _source_of(event)
    memory = DurableMemory(
        id=memory_id,
        version=1,
        **{**_ABSENT, **fields},
        access_count=0,
        last_accessed_at=None,
        temperature=Temperature.WARM,
        status=Status.ACTIVE,
        status_reason=None,
        superseded_by=None,
        merged_ids=(),
        source_ids=_newest((), event.evidence or (event.id,)),
        conversation_ids=_newest((), [event.conversation_id] if event.conversation_id else []),
        editor=event.editor,
        event_id=event.id,
        match_keys=(key,),
        created_at=event.event_at,
        updated_at=event.event_at,
        changed_at=event.event_at,
    )
    before = memories.newest.get(memory.id)
    if before is not None:
        # A memory of this hour has the same id, is inactive, and has other match keys by now.
        memory = replace(memory, version=before.version + 1, created_at=before.created_at)
        memories.earlier[memory.id] = (*memories.earlier.get(memory.id, ()), before)
        _unmatch(memories, before)
    _put(memories, memory)


def _source_of(event: MemoryEvent) -> SourceType:
    return event.changes.source_type or (SourceType.USER if event.editor == CONVERSATION else SourceType.AGENT)


def _may_instruct(source: SourceType) -> bool:
    return authority_of(source, "", "").may_instruct


def _repeat(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    """Create a version with the event's evidence, and with its content unless the memory says more.

    Who may not instruct changes no words of who may, unless a key names the memory, which is then theirs. If who may
    instruct repeats what another said, it is theirs.
    """
    changes = event.changes
    source, known = _source_of(event), memory.source_type
    is_sufficient = _may_instruct(source) or not _may_instruct(known) or changes.key is not None
    is_same = key_of(memory) == key_of(changes)
    is_similar = event.other_id is not None and len(changes.content or "") >= len(memory.content)
    repeated = _restated(memory, changes) if (is_same or is_similar) and is_sufficient else memory
    repeated = replace(
        repeated,
        source_type=source if is_sufficient and _may_instruct(source) is not _may_instruct(known) else known,
        importance=memory.importance if changes.importance is None else max(memory.importance, changes.importance),
        confidence=memory.confidence if changes.confidence is None else max(memory.confidence, changes.confidence),
        decay_rate=memory.decay_rate if changes.decay_rate is None else changes.decay_rate,
        tags=tuple(sorted({*memory.tags, *(changes.tags or ())})),
        source_ids=_newest(memory.source_ids, event.evidence or (event.id,)),
        conversation_ids=_newest(memory.conversation_ids, [event.conversation_id] if event.conversation_id else []),
        match_keys=_with(memory.match_keys, [key_of(changes)]),
    )
    _next_version(memories, memory, _revived(repeated), event)


def _restated(memory: DurableMemory, changes: Changes) -> DurableMemory:
    content = changes.content or memory.content
    is_changed = content != memory.content
    terms = {name: value for name in _TERMS if (value := getattr(changes, name)) is not None}
    return replace(
        memory,
        content=content,
        title=changes.title or (title_of(content) if is_changed else memory.title),
        hook=changes.hook or (one_line_summary(content) if is_changed else memory.hook),
        **terms,
    )


def _update(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    changes = event.changes
    updated = _restated(memory, changes)
    if changes.content is not None and changes.content != memory.content:
        # A triple that is not set with the new text may contradict it.
        triple = {name: getattr(changes, name) for name in ("subject", "predicate", "object")}
        updated = replace(updated, **triple)
    updated = replace(
        updated,
        kind=changes.kind or memory.kind,
        source_type=changes.source_type or memory.source_type,
        outcome_success=None if changes.memory_class is MemoryClass.FACTUAL else updated.outcome_success,
        tags=memory.tags if changes.tags is None else changes.tags,
        source_ids=_newest(memory.source_ids, event.evidence or (event.id,)),
        **{name: value for name in _FIGURES if (value := getattr(changes, name)) is not None},
    )
    cleared: dict[str, Any] = dict.fromkeys(changes.cleared or ())
    updated = replace(updated, **cleared)
    if key_of(updated) != key_of(memory):
        _unmatch(memories, memory)
        updated = replace(updated, match_keys=(key_of(updated),))
    _next_version(memories, memory, _revived(updated), event)


def _forget(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    reason = event.reason or f"forgotten by {event.editor}"
    _set_status(memories, memory, event, Status.DEPRECATED, Temperature.COLD, reason)


def _boost(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    amount = STEP if event.changes.amount is None else event.changes.amount
    amount = -amount if event.verb is MemoryVerb.REDUCE else amount
    _put(memories, replace(memory, importance=_rounded_share(memory.importance + amount)))


def _confirm(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    confirmed = replace(_revived(memory), confidence=_rounded_share(memory.confidence + STEP))
    if memory.kind is MemoryKind.OBSERVATION:
        _promoted(memories, confirmed, event, updated_at=event.event_at)
    else:
        changed = memory.changed_at if memory.is_recalled else event.event_at
        _put(memories, replace(confirmed, updated_at=event.event_at, changed_at=changed))


def _access(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    _put(memories, used(memory, 1, event.event_at))


def used(memory: DurableMemory, count: int, at: datetime) -> DurableMemory:
    """Return a memory after some more uses, the last one at `at`, UTC."""
    last = at if memory.last_accessed_at is None else max(memory.last_accessed_at, at)
    return replace(memory, access_count=memory.access_count + count, last_accessed_at=last)


def _promote(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    if memory.kind is not MemoryKind.OBSERVATION or not _may_change(memories, memory, event):
        return
    _promoted(memories, memory, event, updated_at=memory.updated_at)


def _promoted(memories: Memories, memory: DurableMemory, event: MemoryEvent, updated_at: datetime) -> None:
    """Turn an observation into a fact that keeps its match keys."""
    fact = replace(memory, kind=MemoryKind.FACT, updated_at=updated_at)
    fact = replace(fact, match_keys=_with(memory.match_keys, [key_of(fact)]), status_reason=event.reason)
    before = memories.newest[memory.id]
    _next_version(memories, before, fact, event, updated_at=updated_at)


def _merge(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    other = _other(memories, memory, event)
    if other is None or not (_may_change(memories, memory, event) and _may_change(memories, other, event)):
        return
    accessed = [at for at in (memory.last_accessed_at, other.last_accessed_at) if at is not None]
    _unmatch(memories, other)
    merged = replace(
        _restated(memory, event.changes),
        subject=memory.subject or other.subject,
        predicate=memory.predicate or other.predicate,
        object=memory.object or other.object,
        importance=max(memory.importance, other.importance),
        confidence=max(memory.confidence, other.confidence),
        access_count=memory.access_count + other.access_count,
        last_accessed_at=max(accessed, default=None),
        is_point_in_time=memory.is_point_in_time and other.is_point_in_time,
        merged_ids=_with(memory.merged_ids, [*other.merged_ids, other.id]),
        source_ids=_newest(other.source_ids, memory.source_ids),
        conversation_ids=_newest(other.conversation_ids, memory.conversation_ids),
        tags=tuple(sorted({*memory.tags, *other.tags})),
        source_type=memory.source_type if _may_instruct(other.source_type) else other.source_type,
        match_keys=_with(memory.match_keys, other.match_keys),
        status_reason=event.reason,
    )
    merged = replace(merged, match_keys=_with(merged.match_keys, [key_of(merged)]))
    loser = replace(other, superseded_by=memory.id, match_keys=())
    _set_status(memories, loser, event, Status.SUPERSEDED, Temperature.COLD, event.reason)
    _next_version(memories, memory, merged, event, updated_at=max(memory.updated_at, other.updated_at))


def _supersede(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    winner = _other(memories, memory, event)
    if winner is None or not _may_change(memories, memory, event):
        return
    loser = replace(memory, superseded_by=winner.id)
    _set_status(memories, loser, event, Status.SUPERSEDED, Temperature.COLD, event.reason)


def _cool(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    if _may_change(memories, memory, event):
        _set_status(memories, memory, event, memory.status, Temperature.COLD, event.reason)


def _archive(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    if _may_change(memories, memory, event):
        _set_status(memories, memory, event, Status.ARCHIVED, Temperature.COLD, event.reason)


def _reactivate(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    if memory.status is Status.ARCHIVED:
        _set_status(memories, memory, event, Status.ACTIVE, Temperature.WARM, None)


def _keep(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    _put(memories, replace(memory, reviewed_at=event.event_at))


def _heat(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> None:
    temperature = Temperature.HOT if event.verb is MemoryVerb.HEAT else Temperature.WARM
    if memory.is_recalled:
        _put(memories, replace(memory, temperature=temperature))


def _may_change(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> bool:
    """Return whether the consolidation may change a memory; if not, record the reason."""
    if not memory.is_active:
        memories.ignored[event.id] = f"{memory.id} is {memory.status} already"
    return memory.is_active


def _other(memories: Memories, memory: DurableMemory, event: MemoryEvent) -> DurableMemory | None:
    """Return the other memory of an event; None if it is unknown, or merged with this one."""
    other = memories.newest.get(memories.resolved(event.other_id or ""))
    if other is None:
        memories.ignored[event.id] = f"{event.other_id} is not known"
    elif other.id == memory.id:
        memories.ignored[event.id] = f"{event.other_id} is {memory.id} already"
        return None
    return other


def _set_status(
    memories: Memories,
    memory: DurableMemory,
    event: MemoryEvent,
    status: Status,
    temperature: Temperature,
    reason: str | None,
) -> None:
    _put(
        memories,
        replace(memory, status=status, temperature=temperature, status_reason=reason, changed_at=event.event_at),
    )


def _revived(memory: DurableMemory) -> DurableMemory:
    """Return the memory as active and warm, unless it is already recalled."""
    if memory.is_recalled:
        return memory
    return replace(memory, status=Status.ACTIVE, temperature=Temperature.WARM, status_reason=None, superseded_by=None)


def _next_version(
    memories: Memories,
    before: DurableMemory,
    after: DurableMemory,
    event: MemoryEvent,
    updated_at: datetime | None = None,
) -> None:
    memories.earlier[before.id] = (*memories.earlier.get(before.id, ()), before)
    _put(
        memories,
        replace(
            after,
            version=before.version + 1,
            editor=event.editor,
            event_id=event.id,
            updated_at=event.event_at if updated_at is None else updated_at,
            changed_at=event.event_at,
        ),
    )


def _put(memories: Memories, memory: DurableMemory) -> None:
    # After an update two memories may share a match key. The first one keeps it.
    keys = tuple(key for key in memory.match_keys if memories.matches.setdefault(key, memory.id) == memory.id)
    memories.newest[memory.id] = memory if keys == memory.match_keys else replace(memory, match_keys=keys)


def _unmatch(memories: Memories, memory: DurableMemory) -> None:
    for key in memory.match_keys:
        if memories.matches.get(key) == memory.id:
            del memories.matches[key]


def _rounded_share(value: float) -> float:
    """Clip a value to 0 to 1 and round it, so that 0.1 + 0.2 is 0.3."""
    return min(max(round(value, _DIGITS), 0.0), 1.0)


def _with(known: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))


def _newest(known: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    return _with(known, new)[-MAX_SOURCES:]


_APPLIED: dict[MemoryVerb, Callable[[Memories, DurableMemory, MemoryEvent], None]] = {
    MemoryVerb.UPDATE: _update,
    MemoryVerb.FORGET: _forget,
    MemoryVerb.BOOST: _boost,
    MemoryVerb.REDUCE: _boost,
    MemoryVerb.CONFIRM: _confirm,
    MemoryVerb.ACCESS: _access,
    MemoryVerb.LINK: lambda *_: None,
    MemoryVerb.UNLINK: lambda *_: None,
    MemoryVerb.DEACTIVATE: _archive,
    MemoryVerb.REACTIVATE: _reactivate,
    MemoryVerb.PROMOTE: _promote,
    MemoryVerb.MERGE: _merge,
    MemoryVerb.SUPERSEDE: _supersede,
    MemoryVerb.COOL: _cool,
    MemoryVerb.KEEP: _keep,
    MemoryVerb.ARCHIVE: _archive,
    MemoryVerb.HEAT: _heat,
    MemoryVerb.CHILL: _heat,
}

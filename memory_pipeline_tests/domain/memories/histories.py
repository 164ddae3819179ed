"""Factories of events, and random histories with many events of few memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import (
    CONSOLIDATION,
    CONVERSATION,
    Changes,
    MemoryEvent,
    MemoryVerb,
    new_memory_id,
)
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.links import LINKING
from memory_pipeline.domain.scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.memories.record import DurableMemory

ACME = Scope("acme", "support")
NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)

_OPEN = [verb for verb in MemoryVerb if verb.is_open and verb is not MemoryVerb.REMEMBER]
_CONSOLIDATION = [verb for verb in MemoryVerb if not verb.is_open]
_CONTENTS = ["Anna likes tea.", "anna likes TEA", "Anna likes coffee.", "Always be brief."]
_OUTCOMES: list[dict[str, Any]] = [{}, {"outcome_success": False}, {"memory_class": "factual"}]
_KINDS = ["fact", "observation", "instruction"]


def at(hours: float) -> datetime:
    """Return the time `hours` after noon."""
    return NOON + timedelta(hours=hours)


def remember(
    content: str, hours: float = 0, *, scope: Scope = ACME, turn: int = 0, place: int = 0, editor: str = "agent",
    evidence: Sequence[str] = (), conversation: str | None = None, **changes: Any,
) -> MemoryEvent:  # fmt: skip
    """Return an event that remembers a content."""
    return MemoryEvent.of(
        scope, MemoryVerb.REMEMBER, at(hours), Changes.of({"content": content, **changes}), turn=turn, place=place,
        editor=editor, evidence=evidence, conversation_id=conversation, received_at=at(hours),
    )  # fmt: skip


def do(
    verb: MemoryVerb | str, memory: MemoryEvent | str, hours: float, *, scope: Scope = ACME,
    other: MemoryEvent | str | None = None, reason: str | None = None, turn: int = 0, place: int = 0, **changes: Any,
) -> MemoryEvent:  # fmt: skip
    """Return another event about a memory, given by its id or by the event that created it."""
    verb = MemoryVerb(verb)
    return MemoryEvent.of(
        scope, verb, at(hours), Changes.of(changes), memory_id=_id(memory), reason=reason, turn=turn, place=place,
        other_id=None if other is None else _id(other), editor="agent" if verb.is_open else CONSOLIDATION,
        received_at=at(hours) if verb.is_open else None,
    )  # fmt: skip


def newest(*events: MemoryEvent) -> dict[str, DurableMemory]:
    return fold_events(events).newest


def only(*events: MemoryEvent) -> DurableMemory:
    """Return the only memory of a fold."""
    [memory] = fold_events(events).newest.values()
    return memory


def stored(memories: Memories) -> Memories:
    """Return the part of the memories that is stored in rows."""
    return Memories(memories.newest, memories.earlier, memories.matches)


def _id(memory: MemoryEvent | str) -> str:
    return memory if isinstance(memory, str) else memory.memory_id


@st.composite
def histories(draw: st.DrawFn, *, with_consolidation: bool = True) -> list[MemoryEvent]:
    """Draw events about a few memories within two days. They refer to each other, and some to unknown memories."""
    events: list[MemoryEvent] = []
    ids = [new_memory_id(ACME, Changes.of({"content": "never said"}), NOON)]
    verbs = [MemoryVerb.REMEMBER] * 5 + _OPEN + (_CONSOLIDATION if with_consolidation else [])
    for _ in range(draw(st.integers(0, 14))):
        verb = draw(st.sampled_from(verbs))
        if verb is MemoryVerb.REMEMBER:
            event = draw(_said())
        elif verb.is_open:
            one, other = draw(st.sampled_from(ids)), None
            if verb in LINKING:
                others = [each for each in ids if each != one]
                if not others:
                    continue
                other = draw(st.sampled_from(others))
            event = do(verb, one, draw(st.integers(0, 47)), other=other, **draw(_changes(verb)))
        else:
            event = do(
                verb, draw(st.sampled_from(ids)), draw(st.sampled_from([12, 36])), other=draw(st.sampled_from(ids)),
                reason="so it is", turn=draw(st.integers(1, 5)), place=draw(st.integers(0, 3)),
                **(draw(_changes(verb)) if verb is MemoryVerb.MERGE else {}),
            )  # fmt: skip
        events.append(event)
        ids.append(event.memory_id)
    return events


@st.composite
def _said(draw: st.DrawFn) -> MemoryEvent:
    hours = draw(st.sampled_from([0, 0.25, 0.5, 1, 12, 30]))
    preference: dict[str, Any]
    spoken: dict[str, Any]
    if draw(st.integers(0, 4)) == 0:
        preference = {"user_id": draw(st.sampled_from(["anna", "omar"])), "key": "drink", "kind": "preference"}
        value = draw(st.sampled_from(['"tea"', '"coffee"']))
        return remember(f"Drinks {value}.", hours, value=value, **preference)
    if draw(st.integers(0, 4)) == 0:
        entry: dict[str, Any] = {
            "context": draw(st.sampled_from(["board", "notes"])),
            "key": draw(st.sampled_from([None, "drink"])),
        }
        return remember(draw(st.sampled_from(_CONTENTS)), hours, **entry)
    spoken = {"conversation": "c1", "evidence": [f"m{draw(st.integers(0, 3))}"], "editor": CONVERSATION}
    return remember(
        draw(st.sampled_from(_CONTENTS)), hours, kind=draw(st.sampled_from(_KINDS)), place=draw(st.integers(0, 2)),
        importance=draw(st.sampled_from([None, 0.0, 0.3, 1.0])), tags=draw(st.sampled_from([None, ["a"], ["b", "c"]])),
        outcome_success=draw(st.sampled_from([None, None, True, False])),
        **(spoken if draw(st.booleans()) else {}),
    )  # fmt: skip


def _changes(verb: MemoryVerb) -> st.SearchStrategy[dict[str, Any]]:
    if verb in (MemoryVerb.BOOST, MemoryVerb.REDUCE):
        return st.sampled_from([{}, {"amount": 0.7}])
    if verb in LINKING:
        weights: list[dict[str, float]] = [{"weight": 0.0}, {"weight": 0.5}, {}] if verb is MemoryVerb.LINK else [{}]
        return st.tuples(st.sampled_from(["supports", "caused"]), st.sampled_from(weights)).map(
            lambda drawn: {"relation": drawn[0], **drawn[1]}
        )
    if verb not in (MemoryVerb.UPDATE, MemoryVerb.MERGE):
        return st.just({})
    return st.fixed_dictionaries(
        {}, optional={"content": st.sampled_from(_CONTENTS), "importance": st.sampled_from([0.1, 0.9])}
    ).flatmap(
        lambda said: st.just(said) if verb is MemoryVerb.MERGE else st.tuples(
            st.sampled_from(_KINDS), st.sampled_from(_OUTCOMES)
        ).map(lambda drawn: {**said, "kind": drawn[0], **drawn[1]})
    )  # fmt: skip

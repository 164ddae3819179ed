"""Links between durable memories: typed, weighted relationships, as LINK and UNLINK events say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.memories.events import MemoryVerb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from memory_pipeline.domain.memories.events import MemoryEvent

LINKING = (MemoryVerb.LINK, MemoryVerb.UNLINK)


@dataclass(frozen=True, slots=True)
class Link:
    """A directed relationship between two memories.

    Attributes:
        relation: in snake_case, such as ``supports``.
        weight: strength, 0 to 1.
        linked_at: when it was last stated, UTC.
    """

    source_id: str
    target_id: str
    relation: str
    weight: float
    editor: str
    linked_at: datetime


def fold_links(
    events: Iterable[MemoryEvent], resolved: Callable[[str], str], is_linked: Callable[[str], bool]
) -> list[Link]:
    """Fold events, in any order, into the links in force, strongest first.

    Args:
        events: LINK and UNLINK events; others are ignored. Of those with the same ends and relation, the last counts.
        resolved: returns the current id of a memory. The links of a merged memory are those of the survivor.
        is_linked: returns whether a memory may have links: it is known, and not revoked.
    """
    last: dict[tuple[str, str, str], MemoryEvent] = {}
    for event in sorted(events, key=lambda event: event.order):
        if event.verb in LINKING and event.other_id is not None and event.changes.relation is not None:
            last[resolved(event.memory_id), resolved(event.other_id), event.changes.relation] = event
    found = [
        Link(source, target, relation, 1.0 if (weight := event.changes.weight) is None else weight, event.editor,
             event.event_at)
        for (source, target, relation), event in last.items()
        if event.verb is MemoryVerb.LINK and source != target and is_linked(source) and is_linked(target)
    ]  # fmt: skip
    return sorted(found, key=lambda link: (-link.weight, link.source_id, link.target_id, link.relation))

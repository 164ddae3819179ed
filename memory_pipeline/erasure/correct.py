"""What rests on messages that are corrected or erased, and how it is made again.

Exactly their hours are made again, the periods above, and what is folded from them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import Reference
from memory_pipeline.erasure.erasure_log import ErasureLog
from memory_pipeline.erasure.memories import remove_nights
from memory_pipeline.errors import counted
from memory_pipeline.reader.dependents import contexts_with, rest_on
from memory_pipeline.steps.replay import replay, with_ancestors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.corrections import Correction
    from memory_pipeline.domain.periods import Grain
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
from memory_pipeline.reader.dependents import LearnedItem, PastContext

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """What rests on messages.

    Attributes:
        rests_on: facts, graph facts, durable memories and lines of summaries that rest on them. They are made again,
            and some may stay as they are.
        partitions: keys of the hours and periods that are made again, by grain.
        handed_over: the reads that handed any of it to a model, oldest first, as long as their receipts are kept.
    """

    rests_on: tuple[LearnedItem, ...]
    partitions: Mapping[str, tuple[str, ...]]
    handed_over: tuple[PastContext, ...]

    def lines(self, most: int | None = None) -> Iterator[str]:
        """Yield it as lines for people, with at most so many items, keys and reads of each sort."""
        yield f"rests on these messages: {len(self.rests_on):,}"
        yield from _some([f"{one.what}: {one.content}  {one.id}" for one in self.rests_on], most)
        read = [
            f"{one.at:%Y-%m-%d %H:%M}  {one.operation} of {one.agent_id}"
            + (f" for {one.conversation_id}" if one.conversation_id else "")
            + f": {counted(len(one.texts), 'item')}  {one.receipt_id}"
            for one in self.handed_over
        ]
        yield f"handed to a model: {len(read):,}"
        yield from _some(read, most)
        keys = [f"{grain} {' '.join(_shortened(keys, most))}" for grain, keys in self.partitions.items() if keys]
        yield f"made again: {', '.join(keys) or 'nothing'}"


def _some(lines: Sequence[str], most: int | None) -> Iterator[str]:
    yield from (f"  {' '.join(line.split())}" for line in lines[:most])
    if most is not None and len(lines) > most:
        yield f"  … and {len(lines) - most:,} more"


def _shortened(keys: Sequence[str], most: int | None) -> Sequence[str]:
    return keys if most is None or len(keys) <= most else [*keys[:most], f"… and {len(keys) - most:,} more"]


def blast_radius(
    lake: Lake, scopes: Sequence[Scope], roots: Collection[str], is_shown: Callable[[Scope], bool]
) -> BlastRadius:
    """Return what rests on messages of scopes, or on their facts, memory events and edits of the graph.

    `is_shown` returns whether a read of the memory of a scope may be told.
    """
    items = {one.id: one for listed in rest_on(lake, scopes, roots).values() for one in listed}
    partitions = {grain.value: tuple(sorted(keys)) for grain, keys in periods_of(lake, roots).items()}
    read = contexts_with(lake, scopes[0].workspace_id, {*roots, *items}, is_shown) if scopes else ()
    return BlastRadius(tuple(items.values()), partitions, read)


def periods_of(lake: Lake, ids: Iterable[str]) -> dict[Grain, set[str]]:
    """Return the keys of the hours of messages, facts, memory events or edits, and of the periods above, by grain."""
    return with_ancestors(lake.calendar, {Reference.parse(one).period.key for one in ids}, {})


def make_again(lake: Lake, models: Models, corrections: Iterable[Correction]) -> dict[Grain, set[str]]:
    """Make again what rests on the messages of corrections; return the keys of the periods, by grain.

    Consolidation starts over for their scopes. Pending messages stay pending: readers see corrections of them at once.

    Raises:
        PartitionsError: some periods cannot be derived; all others are complete, and the next run tries again.
    """
    listed = list(corrections)
    scopes = {one.scope for one in listed}
    remove_nights(lake, scopes, ErasureLog())
    made = replay(lake, models, periods_of(lake, (each for one in listed for each in one.message_ids)), scopes)
    for one in listed:
        lake.corrections.finish(one)
    return made


def finish_corrections(lake: Lake, models: Models) -> None:
    """Make again what rests on corrections whose process was interrupted."""
    unfinished = lake.corrections.unfinished()
    make_again(lake, models, unfinished)
    _log.warning("%d interrupted corrections are complete", len(unfinished))

"""Make again what rests on corrected messages: exactly their hours, the periods above, and what is folded from them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import Reference
from memory_pipeline.erasure.erasure_log import ErasureLog
from memory_pipeline.erasure.memories import remove_nights
from memory_pipeline.steps.replay import replay, with_ancestors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.corrections import Correction
    from memory_pipeline.domain.periods import Grain
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

_log = logging.getLogger(__name__)


def periods_of(lake: Lake, message_ids: Iterable[str]) -> dict[Grain, set[str]]:
    """Return the keys of the hours of messages, and of the periods above, by grain."""
    return with_ancestors(lake.calendar, {Reference.parse(one).period.key for one in message_ids}, {})


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

"""Finish erasures whose process was killed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memory_pipeline.erasure.forget import forget
from memory_pipeline.errors import LakeError
from memory_pipeline.lake.erasures import begun_erasures, unfinished_erasures

if TYPE_CHECKING:
    from datetime import datetime

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

_log = logging.getLogger(__name__)


def finish_erasures(lake: Lake, models: Models, now: datetime) -> None:
    """Finish the erasures that have begun and are not complete, each with its own cutoff.

    Raises:
        LakeError: an erasure cannot be finished without the name of its subject.
    """
    if not unfinished_erasures(lake.storage, lake.tombstones):
        return
    for subject, at in list(begun_erasures(lake.storage)):
        forget(lake, models, subject, now, at=at)
        _log.warning("an interrupted erasure is finished; for a receipt, run `memory-pipeline forget` again")
    if left := unfinished_erasures(lake.storage, lake.tombstones):
        raise LakeError(
            f"an erasure is not finished ({left[0]}), and only its tombstone is known, which names nobody: run "
            "`memory-pipeline forget` again with the same subject"
        )

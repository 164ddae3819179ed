"""The asset of promotion: short-term entries of sessions become durable memories."""

# No `from __future__ import annotations` in this module: Dagster reads the context's annotation at run time.

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg

from memory_pipeline.defs.partition_keys import Group, Partitions
from memory_pipeline.defs.resources import AGENTS_POOL, LakeResource
from memory_pipeline.steps.promotion import PROMOTION_ASSET, promote

#: Its data version, always the same, because days are pending by their memory events.
PROMOTION_VERSION: Final = "1"
_DESCRIPTION = (
    "Expired short-term entries of sessions with three accesses or more become durable memories: their events are "
    "written to the journal, and the day's consolidation reads them from there. Other expired entries of sessions and "
    "pools are deleted.\n\n*Metadata:* `promoted` entries; `refused`: entries that durable memory does not accept; "
    "`expired`: deleted entries; `left_entries` and `left_bytes`: all entries of sessions and pools that are left in "
    "the database."
)


def promotion_asset(partitions: Partitions) -> dg.AssetsDefinition:
    """Return the asset of promotion."""

    @dg.asset(
        key=partitions.asset(PROMOTION_ASSET),
        group_name=Group.MEMORIES.value,
        owners=["team:memory"],
        kinds={"sql"},
        description=_DESCRIPTION,
        pool=partitions.pool(AGENTS_POOL),  # one at a time
    )
    def session_promotions(memory: LakeResource) -> dg.MaterializeResult[Any]:
        done = promote(memory.lake, datetime.now(UTC))
        figures = {name: value for name, value in asdict(done).items() if name != "reasons"}  # these name people's keys
        return dg.MaterializeResult(metadata=figures, data_version=dg.DataVersion(PROMOTION_VERSION))

    return session_promotions

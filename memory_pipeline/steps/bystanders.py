"""Bystanders: agents that noted something in an hour once, and say and do nothing when the hour is made again.

What they noted is in the table, and no longer in the journal, so that the step, which looks at whom an hour concerns,
passes over them. The ledger counts them all the same, however often an hour was made: nights follow from what it says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import NOTHING
from memory_pipeline.lake.schemas import MEMORY_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.steps.digests import Digests
from memory_pipeline.steps.group import agents_in, by_period

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.made import Made

_COLUMNS = ("workspace_id", "agent_id", "period", "id")


def with_bystanders(lake: Lake, made: Sequence[Made]) -> list[Made]:
    """Return what was made of hours, of durable memories with what agents noted that the step has not looked at.

    The table is read only where the ledger says of an hour something else than the step has found there: only then may
    there be such agents.

    Args:
        lake: where; its ledger is as it was before the hours were made.
        made: what all agents' steps have made.
    """
    parts = {part.period: part for part in made if part.asset == MEMORIES_ASSET}
    entries = lake.ledger.entries(MEMORIES_ASSET, list(parts))
    lacking = [
        period
        for period, part in parts.items()
        if period.key in entries
        and entries[period.key].output_digest not in (NOTHING, (part.before or Digests()).combined)
    ]
    if not lacking:
        return list(made)
    keys = pa.array([period.key for period in lacking], pa.string())
    rows = lake.tables.read(MEMORY_EVENTS, columns=_COLUMNS, where=pc.field("period").isin(keys))
    whole: dict[Period, Made] = {}
    for period, own in by_period(rows, lacking).items():
        outputs = Digests(own["id"])
        whole[period] = replace(
            parts[period],
            rows=own.num_rows,
            agents=agents_in(own),
            outputs=outputs,
            output_digest=outputs.combined,
        )
    return [whole.get(part.period, part) if part.asset == MEMORIES_ASSET else part for part in made]

"""Tables to vector index: the projection that readers search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.grains import Grain
from memory_pipeline.lake.rows import facts_to_index, summaries_to_index
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.steps.group import agents_in, by_period, by_scope
from memory_pipeline.steps.made import Made, content_digest, index_asset

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake


def index_periods(lake: Lake, grain: Grain, periods: list[Period]) -> list[Made]:
    """Bring a grain's index level with its table; return what each period holds.

    Only agents whose rows differ are written, one commit each.
    """
    keys = [period.key for period in periods]
    if grain is Grain.WORKING:
        rows, projected = lake.tables.read(FACTS, keys), facts_to_index
    else:
        rows, projected = lake.tables.read(SUMMARIES, keys, grain=grain.value), summaries_to_index
    written = lake.index.replace(grain, periods, {scope: projected(part) for scope, part in by_scope(rows).items()})
    return [
        Made(
            asset=index_asset(grain),
            period=period,
            input_digest=content_digest(part),
            output_digest=content_digest(part),
            rows=part.num_rows,
            agents=agents_in(part),
            changed=period.key in written,
        )
        for period, part in by_period(rows, periods).items()
    ]

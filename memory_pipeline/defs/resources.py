"""The lake as a Dagster resource, and the pools that limit concurrent runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import dagster as dg
from pydantic import PrivateAttr

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, configured_models


class LakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # generic only in its own value
    """The lake at `root`. A process shares one object, to reuse its open handles."""

    root: str
    timezone: str | None = None
    _lake: Lake | None = PrivateAttr(default=None)

    @property
    def lake(self) -> Lake:
        """The lake, opened on first use."""
        if self._lake is None:
            self._lake = Lake(self.root, self.timezone)
        return self._lake

    def models(self) -> Models:
        """Return the models of the lake's current configuration, so that a change needs no restart."""
        lake = self.lake
        return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))


# Without pools, concurrent runs are still correct: a conflicting commit is retried. Pools avoid these retries, and runs
# wait in the queue instead of as processes. Limits that can be raised: docs/decisions/0017-pools-and-writers.md.


#: For hours, consolidation and retention, which write the same tables.
AGENTS_POOL: Final = f"memory_{Grain.WORKING}"
MARTS_POOL: Final = "memory_marts"


def pool_of(grain: Grain) -> str:
    """Return the pool of a grain's op."""
    return f"memory_{grain}"


#: All pools.
POOLS: Final = frozenset([*map(pool_of, Grain), MARTS_POOL])

"""Resources: the lake, the models that its configuration names, and the pools that runs wait in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import dagster as dg
from pydantic import PrivateAttr

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import Models, configured_models


class LakeResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # generic only in its own value
    """The lake at an address. One object serves a process, so that its handles stay warm."""

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
        """Return the models of the lake's configuration, as it is now: a change of it needs no restart."""
        lake = self.lake
        return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))


# Dagster's pools: which runs wait for which. A pool stands for the tables that its ops write.
#
# Nothing is lost or doubled without them, since every commit is checked and begun again where another was first. They
# keep runs from beginning again, and let them wait in the queue rather than as processes. Why these, and which limits
# may be raised: docs/decisions/0017-pools-and-writers.md.


#: Of hours, and of whatever else writes what hours write: nights of upkeep, and retention.
AGENTS_POOL: Final = f"memory_{Grain.WORKING}"
#: Of the marts.
MARTS_POOL: Final = "memory_marts"


def pool_of(grain: Grain) -> str:
    """Return the pool of the op that makes a grain."""
    return f"memory_{grain}"


#: What each pool protects; there are no others.
POOLS: Final[Mapping[str, str]] = {
    AGENTS_POOL: "messages, facts, graph, durable memories, and the index of hours",
    **{pool_of(grain): f"{grain} summaries and their index" for grain in Grain if grain is not Grain.WORKING},
    MARTS_POOL: "the tables below marts/",
}

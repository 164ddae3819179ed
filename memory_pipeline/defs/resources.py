"""Resources: the lake that assets and sensors work on, and the models that its configuration names."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
from pydantic import PrivateAttr

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

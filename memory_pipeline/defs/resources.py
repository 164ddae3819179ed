"""Resources: the lake that assets and sensors work on."""

from __future__ import annotations

import dagster as dg
from pydantic import PrivateAttr

from memory_pipeline.lake import Lake


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

"""Where a service tells that it runs: the file that the hooks of coding agents on the same machine read."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from memory_pipeline.coding_agents.hook import SERVICE
from memory_pipeline.errors import MemoryPipelineError

if TYPE_CHECKING:
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

_log = logging.getLogger(__name__)


class Announcement:
    """A file in the lake's folder with the address of a service, and the agent of requests without a token.

    Of two services of one lake, the hooks use the one that started last. A file that a killed service leaves behind
    names a process that no longer runs. It names no person: nothing in it has to be erased. A lake in a bucket has
    none; its hooks need MEMORY_PIPELINE_URL.
    """

    def __init__(self, lake: Lake, default: Scope, host: str, port: int) -> None:
        self._lake = lake
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        record = {"url": url, "pid": os.getpid(), "workspace": default.workspace_id, "agent": default.agent_id}
        self._data = json.dumps(record).encode()

    def write(self) -> None:
        """Write the file. The lake is created if it does not exist; one that cannot be written is served without."""
        if not self._lake.storage.is_local:
            return
        try:
            self._lake.ensure()
            self._lake.storage.write(SERVICE, self._data)
        except (MemoryPipelineError, OSError) as error:
            _log.warning("the hooks of coding agents do not find this service: %s", error)

    def withdraw(self) -> None:
        """Delete the file, unless another service has written it since."""
        if self._lake.storage.is_local and self._lake.storage.read(SERVICE) == self._data:
            self._lake.storage.delete([SERVICE])

"""Which table a scope's rows are in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake.storage import Storage


COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def collections_of(storage: Storage, workspace_id: str) -> Iterator[tuple[Scope, str]]:
    """Yield the tables of a workspace that hold collections: whose, and the name."""
    for folder in storage.folders(f"vectordb/{workspace_id}"):
        table, _, kind = folder.rpartition(".")
        agent_id, _, name = table.removeprefix("_").rpartition(".")
        if kind == "lance" and table.startswith("_") and COLLECTION_NAME.fullmatch(name):
            yield Scope(workspace_id, agent_id), table

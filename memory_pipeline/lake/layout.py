"""The tables and partitions that hold a scope's rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.lake.files.storage import Storage


COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_INDEX_TABLE = re.compile(
    r"vectordb/[^/]+/(?:_(?P<collector>[^/]+)\.[A-Za-z0-9_-]+|(?P<agent>[^/]+)__[a-z]+)\.lance(?=/|$)"
)


def collections_of(storage: Storage, workspace_id: str) -> Iterator[tuple[Scope, str]]:
    """Yield the owner and the table name of each collection in a workspace."""
    for folder in storage.folders(f"vectordb/{workspace_id}"):
        table, _, kind = folder.rpartition(".")
        agent_id, _, name = table.removeprefix("_").rpartition(".")
        if kind == "lance" and table.startswith("_") and COLLECTION_NAME.fullmatch(name):
            yield Scope(workspace_id, agent_id), table


def table_name(scope: Scope, grain: Grain) -> str:
    """Return the name of an agent's index table of a grain."""
    return f"{scope.agent_id}__{grain}"


def index_tables(storage: Storage, workspace_id: str) -> Iterable[tuple[Scope, str]]:
    """Yield the owner and name of each index table in a workspace."""
    for folder in storage.folders(f"vectordb/{workspace_id}"):
        name, _, kind = folder.rpartition(".")
        agent_id, _, grain = name.rpartition("__")
        if kind == "lance" and grain in set(Grain) and not name.startswith("_"):
            yield Scope(workspace_id, agent_id), name


def agent_of(path: str) -> str | None:
    """Return the id of the agent that owns a table, or a file of it, or None if the path does not name one."""
    known = _INDEX_TABLE.match(path)
    return known["collector"] or known["agent"] if known else None


def owner_of(scope: Scope) -> str:
    """Return the name of an agent's partition. No id contains a tilde, and every file system accepts one."""
    return f"{scope.workspace_id}~{scope.agent_id}"

"""Agents' own collections of vectors: items that name a person, in their id, content or metadata."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import Databases, EventLoop, persistent
from memory_pipeline.lake.index.maintenance import renew

if TYPE_CHECKING:
    from memory_pipeline.erasure.account import Account
    from memory_pipeline.erasure.finding import Looker
    from memory_pipeline.lake import Lake

_TABLE = re.compile(r"vectordb/(?P<workspace>[^/]+)/(?P<name>_(?P<agent>[^/]+)\.[A-Za-z0-9_-]+)\.lance/.*")
_COLUMNS = ("id", "content", "metadata")
#: Under which an item that is written anew is still the one that was read.
_SAME = "target.content = source.content AND target.metadata = source.metadata"
#: Items that are deleted in one commit.
_AT_ONCE = 1_000


def forget_items(lake: Lake, looker: Looker, account: Account) -> None:
    """Delete the items of all collections within reach that name the person, and take them off the disk."""
    subject = looker.subject
    paths = (entry.path for entry in lake.storage.list(f"vectordb/{subject.workspace_id}"))
    found = {match["name"]: match["agent"] for path in paths if (match := _TABLE.fullmatch(path))}
    loop, databases = EventLoop(), Databases(lake.storage)
    for name, agent in sorted(found.items()):
        if subject.agent_id in (None, agent):
            count = loop.run(_forget(lake, databases, looker, subject.workspace_id, name))
            account.take("collections", "items", {f"{subject.workspace_id}/{name}": count} if count else 0)


async def _forget(lake: Lake, databases: Databases, looker: Looker, workspace_id: str, name: str) -> int:
    async def read(table: Any) -> pa.Table:
        return await table.query().select(list(_COLUMNS)).to_arrow()

    rows = await databases.read(workspace_id, name, read, None)
    if rows is None:
        return 0
    matches = np.any([looker.mentioned(rows[column]) for column in _COLUMNS], axis=0)
    ids = rows.filter(pa.array(matches))["id"].to_pylist()
    where = (workspace_id, name)

    async def delete(listed: str) -> None:
        table: Any = await databases.table(*where)
        if table is not None:
            await table.delete(f"id IN ({listed})")

    async def write_anew() -> None:
        table: Any = await databases.table(*where)
        if table is not None:
            await renew(table, lake.storage, f"vectordb/{workspace_id}/{name}.lance", _SAME, {})

    for start in range(0, len(ids), _AT_ONCE):
        listed = ", ".join(f"'{identifier}'" for identifier in ids[start : start + _AT_ONCE])  # ids hold no quotes
        await persistent(partial(delete, listed), lambda: databases.forget(*where))
    if ids:
        await persistent(write_anew, lambda: databases.forget(*where))
    return len(ids)

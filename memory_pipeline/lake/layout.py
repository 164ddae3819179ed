"""Which table a scope's rows are in.

A **shard** holds the rows of many scopes: those whose key, a hash, is in its range. A scope with many rows has an index
table of its own beside its shard's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.domain.scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.lake.files.storage import Storage


#: The folder of the Lance tables that are derived from the records, and can be rebuilt from them.
PROJECTIONS = "projections"
#: Number of shards of a new lake. A lake records its own.
SHARDS = 16
MOST_SHARDS = 1_000
COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_COLLECTION = re.compile(r"vectordb/[^/]+/_(?P<agent>[^/]+)\.[A-Za-z0-9_-]+\.lance(?=/|$)")
#: A table of a projection: its name, its shard, and the scope that it holds if it is not all of the shard.
_TABLE = re.compile(r"(?P<projection>[a-z]+)-(?P<shard>[0-9]{3})(?:-(?P<scope>[0-9a-f]{32}))?")
#: A scope's key is compared by this many of its hexadecimal digits.
_DIGITS = 8


def shard_of(key: str, shards: int) -> int:
    """Return the shard of a scope's key: each shard has an equal range of keys, so sorted keys are sorted by shard."""
    return int(key[:_DIGITS], 16) * shards >> 4 * _DIGITS


def keys_of_shard(shard: int, shards: int) -> tuple[str, str]:
    """Return the range of keys of a shard, as texts: the lowest, and one above the highest."""
    first, last = (-(-(number << 4 * _DIGITS) // shards) for number in (shard, shard + 1))
    return f"{first:0{_DIGITS}x}", f"{last:0{_DIGITS}x}" if shard + 1 < shards else "g"


def shard_table(projection: str, shard: int) -> str:
    """Return the name of a projection's table of a shard."""
    return f"{projection}-{shard:03d}"


def scope_table(projection: str, key: str, shards: int) -> str:
    """Return the name of the table of a scope with many rows, by the scope's key."""
    return f"{projection}-{shard_of(key, shards):03d}-{key}"


def tables_of(storage: Storage, projection: str) -> set[str]:
    """Return the names of a projection's existing tables."""
    names = (folder.removesuffix(".lance") for folder in storage.folders(PROJECTIONS))
    return {name for name in names if (own := _TABLE.fullmatch(name)) and own["projection"] == projection}


def scope_in(name: str) -> str | None:
    """Return the key of the only scope in a table, or None for the table of a shard."""
    own = _TABLE.fullmatch(name)
    return own["scope"] if own else None


def shard_in(name: str) -> int:
    """Return the shard of a projection's table."""
    return int(name.split("-")[1])


def collections_of(storage: Storage, workspace_id: str) -> Iterator[tuple[Scope, str]]:
    """Yield the owner and the table name of each collection in a workspace."""
    for folder in storage.folders(f"vectordb/{workspace_id}"):
        table, _, kind = folder.rpartition(".")
        agent_id, _, name = table.removeprefix("_").rpartition(".")
        if kind == "lance" and table.startswith("_") and COLLECTION_NAME.fullmatch(name):
            yield Scope(workspace_id, agent_id), table


def agent_of(path: str) -> str | None:
    """Return the id of the agent that owns a collection, or a file of it, or None if the path does not say."""
    known = _COLLECTION.match(path)
    return known["agent"] if known else None

"""Names of folders and tables, and which table a scope's rows are in.

A **shard** holds the rows of many scopes: those whose key, a hash, is in its range. A scope with many rows has an index
table of its own beside its shard's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.files.storage import Storage


#: The folder of the Lance tables that are derived from the records, and can be rebuilt from them.
PROJECTIONS = "projections"
#: Number of shards of a new lake. A lake records its own.
SHARDS = 16
MOST_SHARDS = 1_000
#: A table of a projection: its name, its shard, and the scope that it holds if it is not all of the shard.
_TABLE = re.compile(r"(?P<projection>[a-z]+)-(?P<shard>[0-9]{3})(?:-(?P<scope>[0-9a-f]{32}))?")
#: A name by :func:`path_name`; the characters that it replaces, and the longest part of a text in it.
_NAME = re.compile(r"(?:.+-)?(?P<key>[0-9a-f]{32})")
_UNSAFE, _MAX_PREFIX = re.compile(r"[^a-z0-9_-]+"), 60
#: A scope's key is compared by this many of its hexadecimal digits.
_DIGITS = 8


def path_name(text: str, key: str) -> str:
    """Return a name for a file or folder: the beginning of a text, to be read by people, and a key.

    Every file system accepts it. Names with different keys also differ where case is ignored.
    """
    prefix = _UNSAFE.sub("-", text.lower())[:_MAX_PREFIX].strip("-")
    return f"{prefix}-{key}" if prefix else key


def folder_name(scope: Scope) -> str:
    """Return the name of a folder of a scope. It names workspace and agent, but no user."""
    return path_name(f"{scope.workspace_id}.{scope.agent_id}", scope.key)


def key_in(name: str) -> str | None:
    """Return the key in a name by :func:`path_name`, or None."""
    match = _NAME.fullmatch(name)
    return match and match["key"]


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

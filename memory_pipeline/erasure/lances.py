"""Tables of the vector index as they lie on the disk: every version that can be opened, and what no version reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from memory_pipeline.lake.index.lance_tables import Databases, EventLoop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.erasure.sought import Whose
    from memory_pipeline.lake.files.storage import Storage

_DATA = re.compile(r"data/(?P<name>[^/]+\.lance)")
_INDEX = re.compile(r"_indices/(?P<name>[^/]+)/.*")
#: How a problem ends that only matters where the table was purged: other writers leave deleted rows, too.
DELETED = "rows of it are deleted, and still on the disk"
_FAILURES = (RuntimeError, ValueError, OSError)
_MANIFEST = re.compile(r"_versions/[^/]+\.manifest")
_TABLE = re.compile(r"vectordb/[^/]+/(?:_(?P<collector>[^/]+)\.[A-Za-z0-9_-]+|(?P<agent>[^/]+)__[a-z]+)\.lance(?=/|$)")


class LanceFolder:
    """One table's folder.

    Args:
        workspace_id: whose database it is in.
        name: the table's name.
    """

    def __init__(self, workspace_id: str, name: str) -> None:
        self.workspace_id = workspace_id
        self.name = name
        self._files: dict[str, list[str]] = {}  # paths, by the name that a version has for them
        self._manifests = b""

    @property
    def path(self) -> str:
        """Where it is below the root."""
        return f"vectordb/{self.workspace_id}/{self.name}.lance"

    @property
    def whose(self) -> Whose:
        """The workspace and the agent that the table is of, as far as its name tells."""
        return self.workspace_id, agent_of(self.path)

    def add(self, path: str, data: bytes) -> bool:
        """Take notice of a file of the table; tell whether a version may read it, so that it need not be searched."""
        own = path.partition(f"/{self.name}.lance/")[2]
        found = _DATA.fullmatch(own) or _INDEX.fullmatch(own)
        if found is not None:
            self._files.setdefault(found["name"], []).append(path)
        elif _MANIFEST.fullmatch(own):
            self._manifests += data
        return found is not None

    def unread(self) -> list[str]:
        """Return the paths of data and indices that no version reads."""
        return sorted(path for name, paths in self._files.items() if not self._reads(name) for path in paths)

    def _reads(self, name: str) -> bool:
        if name.encode() in self._manifests:
            return True
        try:
            return UUID(name).bytes in self._manifests  # as indices are named
        except ValueError:
            return False


class LanceReader:
    """Reads tables of the index in all versions that are there."""

    def __init__(self, storage: Storage) -> None:
        self._loop = EventLoop()
        self._databases = Databases(storage)

    def versions(self, folder: LanceFolder, problems: list[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of every version of a table, without vectors, in parts.

        Args:
            folder: the table's.
            problems: to which is added what cannot be read, in words.
        """
        self._databases.forget(folder.workspace_id, folder.name)
        try:
            table = self._loop.run(self._databases.table(folder.workspace_id, folder.name))
            known = [] if table is None else self._loop.run(table.list_versions())
        except _FAILURES:
            problems.append("it cannot be opened")
            return
        for version in known:
            number = int(version["version"])
            try:
                yield from ((number, rows) for rows in self._loop.run(_rows(table, number)))
            except _FAILURES:
                problems.append(f"version {number} cannot be read")
        deleted = int(known[-1].get("metadata", {}).get("total_deletion_file_rows", 0)) if known else 0
        if deleted:
            problems.append(f"{deleted} {DELETED}")


def agent_of(path: str) -> str | None:
    """Return the id of the agent that a table, or a file of it, is of, as far as its path tells."""
    known = _TABLE.match(path)
    return known["collector"] or known["agent"] if known else None


async def _rows(table: Any, version: int) -> list[pa.Table]:
    await table.checkout(version)
    columns = [field.name for field in await table.schema() if field.name != "vector"]
    return [pa.Table.from_batches([batch]) async for batch in await table.query().select(columns).to_batches()]

"""The indices of a lake: one for each embedder, with equal rows and different vectors.

Runs, erasures and retention write to all of them; a reader uses the one of its embedder. The first index has the tables
``index-…``. Another one is built beside it, and is used once it is complete. ``projections/_embedder.json`` and
``state/embedders/….json`` say which embedder made them. Dropped indices stay listed: nobody takes them for new ones.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import ConfigurationError, InputError, shown
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.index.embedder_file import EMBEDDER, EMBEDDERS
from memory_pipeline.lake.index.lance_tables import Databases
from memory_pipeline.lake.index.vector_index import FIRST, VectorIndex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.files.storage import Storage

#: For so many seconds, a process assumes that the indices are the same. If a table is missing, it looks again.
_TRUSTED = 10.0
#: Digits of a digest as letters: names of projections have no digits.
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


class Indices:
    """The indices of a lake. Safe to use from several threads and processes.

    Args:
        storage: the lake's files.
        shards: the lake's number of shards.
    """

    def __init__(self, storage: Storage, shards: int) -> None:
        self._storage = storage
        self._shards = shards
        self._databases = Databases(storage)
        self._opened: dict[str, VectorIndex] = {}
        self._trusted: dict[tuple[str, int], tuple[VectorIndex, float]] = {}
        self._any: tuple[VectorIndex, float] | None = None

    def all(self) -> list[VectorIndex]:
        """Return the indices that are not dropped, complete or not; the first one even before it has rows."""
        return [one for one in self._listed() if (one.look() or one.name == FIRST) and not one.is_dropped]

    @property
    def are_many(self) -> bool:
        """Whether the lake has, or had, vectors of several embedders."""
        return len(self._listed()) > 1

    def _listed(self) -> list[VectorIndex]:
        names = self._storage.names(EMBEDDERS)
        return [self._open(name) for name in (FIRST, *(name.removesuffix(".json") for name in names))]

    @property
    def any(self) -> VectorIndex:
        """A complete index, for reads without vectors. It is the first one, unless that was dropped."""
        if self._any is None or monotonic() >= self._any[1]:
            first = self._open(FIRST)
            first.look()
            others = self.all() if first.is_dropped else []
            index = next((one for one in others if one.is_complete), first)
            self._any = index, monotonic() + _TRUSTED
        return self._any[0]

    def of(self, embedder: Embedder) -> VectorIndex:
        """Return the index of an embedder; the first one if the lake has none yet.

        Raises:
            ConfigurationError: the lake has only indices of other embedders, or this one is not complete.
        """
        key = embedder.name, embedder.dimension
        known = self._trusted.get(key)
        if known is not None and monotonic() < known[1]:
            return known[0]
        index, first = self.find(embedder), self._open(FIRST)
        if index is None and first.refresh():
            index = self.find(embedder)  # another process may have made it meanwhile
            if index is None:
                raise ConfigurationError(self._refusal(embedder))
        if index is None:
            index = first
        elif not index.is_complete:
            raise ConfigurationError(
                f"the vectors of {shown(index.described)} are not complete yet in the lake at {self._storage.uri}; "
                "`memory-pipeline reembed --to MODEL` continues where it was; until then, keep the embedder before it"
            )
        index.check(embedder)
        self._trusted[key] = index, monotonic() + _TRUSTED
        return index

    def adopt(self, embedder: Embedder) -> VectorIndex:
        """Return the index of an embedder, and record in a lake without vectors that this one makes them.

        Raises:
            ConfigurationError: the lake has only indices of other embedders.
        """
        index = self.of(embedder)
        if index.embedder() is None:
            index.adopt(embedder)
        return index

    def begin(self, embedder: Embedder, settings: Mapping[str, Any] | None = None) -> VectorIndex:
        """Return the index of an embedder, and create it if there is none; it is then not complete.

        `settings` are those of the embedder in the configuration, for going back to it later.
        """
        index = self.find(embedder)
        if index is None and not self._open(FIRST).refresh():
            index = self.adopt(embedder)
        if index is None:
            index = self._open(_name_of(embedder))
            made_by = {"model": embedder.name, "dimension": embedder.dimension}
            index.describe({**made_by, "is_complete": False, "is_dropped": False})
        if settings is not None:
            index.describe({"settings": dict(settings)})
        index.check(embedder)
        return index

    def sweep(self) -> None:
        """Delete the tables of dropped indices that a killed process, or a run at that moment, has left."""
        for index in self._listed():
            if index.look() and index.is_dropped:
                index.drop()

    def find(self, embedder: Embedder) -> VectorIndex | None:
        """Return the index that an embedder made, complete or not; None without one."""
        for name in (FIRST, _name_of(embedder)):
            index = self._open(name)
            if index.refresh() and not index.is_dropped and index.embedder() == (embedder.name, embedder.dimension):
                return index
        return None

    def _open(self, name: str) -> VectorIndex:
        if name not in self._opened:
            self._opened[name] = VectorIndex(self._storage, self._shards, name, self._databases)
        return self._opened[name]

    def _refusal(self, embedder: Embedder) -> str:
        made = ", ".join(shown(index.described) for index in self.all()) or "an embedder whose index was dropped"
        mine = {"model": embedder.name, "dimension": embedder.dimension}
        return (
            f"the vectors of the lake at {self._storage.uri} were made with {made} and cannot be compared with those "
            f"of {shown(mine)}; set `embedding` in the lake's config/workspaces.yaml back, or open the reader with the "
            "first embedder; or, to change it, run `memory-pipeline reembed --to MODEL`, which makes new vectors while "
            "the old ones are in use"
        )

    def damaged(self) -> dict[str, str]:
        """Return the files that name an embedder and cannot be read, with the reasons."""
        found = {}
        for path in (EMBEDDER, *(f"{EMBEDDERS}/{name}" for name in self._storage.names(EMBEDDERS))):
            data = self._storage.read(path)
            try:
                parse_json(b"{}" if data is None else data)
            except InputError as error:
                found[path] = str(error)
        return found


def _name_of(embedder: Embedder) -> str:
    """Return the name of the index of an embedder beside the first one."""
    return FIRST + digest("embedder", embedder.name, embedder.dimension)[:8].translate(_LETTERS)

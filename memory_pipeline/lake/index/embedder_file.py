"""What is known of an index: which embedder makes its vectors, and whether it is complete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.errors import ConfigurationError, DamagedError, InputError, shown
from memory_pipeline.lake.files.storage_errors import REMEDY
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.layout import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake.files.storage import Storage

#: The file of the first index. It is stored with the vectors, so that deleting the folder forgets both.
EMBEDDER: Final = f"{PROJECTIONS}/_embedder.json"
#: The folder of the files of other indices.
EMBEDDERS: Final = "state/embedders"


class EmbedderFile:
    """The file that names the embedder of an index. Other processes may change it."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._files = storage
        self._path = path
        self._description: dict[str, Any] | None = None
        self._checked: Embedder | None = None

    def check(self, embedder: Embedder) -> None:
        """Refuse an embedder other than the one that made the stored vectors: they are not comparable.

        Raises:
            ConfigurationError: the index was built with another model or dimension.
        """
        made_by = self.embedder()
        if made_by not in (None, (embedder.name, embedder.dimension)):
            raise ConfigurationError(
                f"the vectors of {self._path} were made with {shown(self.described)} and cannot be compared "
                f"with those of {shown(_described(embedder))}"
            )
        self._checked = embedder

    def refresh(self) -> bool:
        """Read again what is known of the index. Return whether it was ever made.

        Raises:
            DamagedError: the file cannot be read.
        """
        data = self._files.read(self._path)
        try:
            self._description = None if data is None else parse_json(data)
        except InputError as error:
            raise DamagedError(f"{self._path} cannot be read: {error}; {REMEDY}") from None
        return data is not None

    def look(self) -> bool:
        """Do as :meth:`refresh`. If the file cannot be read, nothing is known of the index: a repair must go on."""
        try:
            return self.refresh()
        except DamagedError:
            self._description = {}
            return True

    def describe(self, what: Mapping[str, object]) -> None:
        """Change what is known of the index."""
        self.refresh()
        self._description = {**(self._description or {}), **what}
        self._files.write(self._path, json.dumps(self._description).encode())

    def _known(self) -> dict[str, Any]:
        if self._description is None:
            self.refresh()
        return self._description or {}

    def embedder(self) -> tuple[str, int] | None:
        """Return the name and the dimension of the embedder that made the vectors; None before the first run."""
        known = self._known()
        return (str(known["model"]), int(known["dimension"])) if "model" in known else None

    @property
    def described(self) -> dict[str, object]:
        """The embedder that made the vectors, as messages show it."""
        return {name: value for name, value in self._known().items() if name in ("model", "dimension")}

    @property
    def settings(self) -> dict[str, Any] | None:
        """The settings of the embedder in the configuration, if they are known."""
        return self._known().get("settings")

    @property
    def is_complete(self) -> bool:
        """Whether readers may use it: another index than the first is built beside it."""
        return self.embedder() is not None and bool(self._known().get("is_complete", True))

    @property
    def is_dropped(self) -> bool:
        """Whether it was dropped. No process may write to it any more."""
        return bool(self._known().get("is_dropped"))

    @property
    def erased(self) -> str | None:
        """A digest of the tombstones of which no row was left when it was last made equal to the tables."""
        return self._known().get("erased")

    @property
    def has_memories(self) -> bool:
        """Whether it has vectors of durable memories, too, because the lake has had several embedders."""
        return bool(self._known().get("has_memories"))

    def adopt(self, embedder: Embedder) -> None:
        """Store which embedder makes the vectors, unless one is stored.

        Raises:
            ConfigurationError: the index was built with another model or dimension.
        """
        self.check(embedder)
        if self._description is None:
            self._files.create(self._path, json.dumps(_described(embedder)).encode())
            self.check(embedder)  # another process may have been faster

    @property
    def made_by(self) -> str | None:
        """The name of the embedder that made the vectors, or None."""
        embedder = self.embedder()
        return None if embedder is None else embedder[0]


def _described(embedder: Embedder) -> dict[str, object]:
    return {"model": embedder.name, "dimension": embedder.dimension}

"""Memory as it stood at an earlier time, by what had been received then."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Never

from memory_pipeline.domain.access import AccessLevel, decide
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.journal import Journal
from memory_pipeline.transfer.copying import CopySelection, copy_lake
from memory_pipeline.transfer.deriving import derive, models_without_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope

_PREFIX: Final = "memory-pipeline-as-of-"


class _ReadOnlyStorage(Storage):
    """Files of a copy: caches may be written, and records may not."""

    def __init__(self, uri: str, at: datetime) -> None:
        super().__init__(uri)
        self._at = at

    def write(self, path: str, data: bytes) -> None:
        """Write a file of a cache."""
        self._check(path)
        super().write(path, data)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Create a file of a cache, unless there is one."""
        if self.is_there(path):
            return False
        self._check(path)
        return super().create(path, data, durable=durable)

    def _check(self, path: str) -> None:
        if path.startswith(("journal/", "config/", "state/")):
            raise _refusal(self._at)


def _refusal(at: datetime) -> InputError:
    return InputError(
        f"this is memory as of {at:%Y-%m-%d %H:%M} UTC, which cannot be changed and has no sessions; use the memory "
        "itself"
    )


class PastLake(Lake):
    """A copy of a lake that can only be read. It deletes its temporary folder with itself."""

    def __init__(self, folder: TemporaryDirectory[str], at: datetime) -> None:
        super().__init__(folder.name)
        self._folder = folder
        self.storage = _ReadOnlyStorage(folder.name, at)
        self.journal = Journal(self.storage, self.scope)


class NoSessions:
    """In place of the sessions of a lake: memory of the past has none."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def __getattr__(self, name: str) -> Never:
        """Refuse any use.

        Raises:
            InputError: always.
        """
        raise _refusal(self._at)


def lake_as_of(lake: Lake, scopes: Sequence[Scope], embedder: Embedder, at: datetime) -> PastLake:
    """Return a copy of scopes of a lake as they stood at a time, UTC.

    Whatever had been received by then is copied: messages, edits of the graph, changes of durable memories, grants and
    corrections. The rest is made from it with stored answers of models.
    """
    folder = TemporaryDirectory(prefix=_PREFIX)
    copy = lake.new_copy(folder.name)
    # A past grant that was revoked since opens nothing.
    others = {event.scope for event in lake.access.among(lake.journal.entries())}
    granting = {one for one in others if decide(scopes[0], AccessLevel.READ, one, lake.access.state(one)).is_allowed}
    selection = CopySelection(frozenset([*scopes, *granting]), at)
    copy_lake(lake, copy, selection)
    models = models_without_requests(
        copy, embedder, lake.calls, at, vectors_of=lake, selection=selection, summaries_wait=True
    )
    derive(copy, models, at)
    return PastLake(folder, at)

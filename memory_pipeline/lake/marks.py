"""Tells whether a commit that seemed to fail was made: its answer may have been lost on the way.

A request that creates a file only if there is none, done and sent again because nobody had answered, is refused: its
own first time came before. So what a writer takes for another's commit may be its own. Each call that commits marks
its commits, and looks for the mark in the log where one failed. On a local disk answers are not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ulid import ULID

from memory_pipeline.lake.troubles import BEGINNINGS, in_words, is_final

if TYPE_CHECKING:
    from memory_pipeline.lake.storage import Storage

_Result = TypeVar("_Result")


class Mark(Generic[_Result]):
    """The mark of one call, which commits once, however often it tries.

    Args:
        storage: the lake's files.
        path: of the table, below the root.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._value = str(ULID())
        # Versions after it may be of this call; None before it has tried to commit, and always on a disk.
        self._since: int | None = None
        self._result: _Result | None = None
        self._troubles = 0

    @property
    def metadata(self) -> dict[str, str]:
        """What a commit is marked by."""
        return {"memory_pipeline.mark": self._value}

    def expect(self, version: int, result: _Result) -> None:
        """Note what a commit that is tried from now on comes to, on top of a version; -1 where there is no table."""
        if not self._storage.is_local:
            self._since = version if self._since is None else self._since
            self._result = result

    def made(self) -> _Result | None:
        """Return what this call has committed; None if it has not. No version is looked at twice."""
        if self._since is None:
            return None
        mark = self._value.encode()
        while (commit := self._storage.read(f"{self._path}/_delta_log/{self._since + 1:020}.json")) is not None:
            if mark in commit:
                return self._result
            self._since += 1
        return None

    def note(self, error: Exception) -> None:
        """Note that a request failed, of which nobody knows whether it was done.

        Raises:
            LakeError: it was sent often enough.
        """
        self._troubles += 1
        if is_final(error) or self._troubles == BEGINNINGS:
            raise in_words(error, f"table {self._path}") from error

"""The newest state of a scope: stored rows, overlaid with journal entries that the pipeline has not yet processed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from memory_pipeline.overlay.pending import ByFile
from memory_pipeline.overlay.reads import found_once, look_again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memory_pipeline.overlay.pending import PendingFile, PendingJournal

_Source = TypeVar("_Source")
_Value = TypeVar("_Value")
_Base = TypeVar("_Base")
_Record = TypeVar("_Record")
_Top = TypeVar("_Top")

#: Most attempts to read rows that change meanwhile. To use all of them takes a commit every few milliseconds.
_ATTEMPTS = 10


class Derived(Generic[_Source, _Value]):
    """The value of the newest source, computed again when that is another object. Safe to use from several threads.

    `compute` may read stored rows. `is_current` returns whether they are still those of a source; if they changed
    meanwhile, the value of a newer source is computed.
    """

    def __init__(self, compute: Callable[[_Source], _Value], is_current: Callable[[_Source], bool]) -> None:
        self._compute = compute
        self._is_current = is_current
        self._known: tuple[_Source, _Value] | None = None
        self._lock = threading.Lock()

    def of(self, newest: Callable[[], _Source]) -> tuple[_Source, _Value]:
        """Return the newest source, and its value.

        Raises:
            RuntimeError: the stored rows changed during every attempt.
        """
        for _ in range(_ATTEMPTS):
            source = newest()
            with self._lock:
                known = self._known
                if known is None or known[0] is not source:
                    known = source, self._compute(source)
                    if not self._is_current(source):
                        continue
                    self._known = known
                return known
        raise RuntimeError(f"the memory changed {_ATTEMPTS} times while it was read; retry later")

    def forget(self) -> None:
        """Free the memory of the value."""
        self._known = None


class Sources(NamedTuple, Generic[_Base, _Record]):
    """The stored rows, and the pending records by file."""

    base: _Base
    pending: Mapping[str, _Record]


class Overlay(ABC, Generic[_Base, _Record, _Top]):
    """The newest state of one scope: stored rows, overlaid with pending records. Safe to use from several threads.

    Pending records are read before the stored rows: records committed in between are then found in both, and count
    once. The state is computed only when pending records or rows of the scope have changed. `pending` is the journal of
    the scope; None for rows that it does not add to.
    """

    def __init__(self, pending: PendingJournal | None) -> None:
        self._journal = pending
        self._records = ByFile(self._recorded)
        #: The messages with a later text, by the name of the pending file.
        self._edited: dict[str, frozenset[str]] = {}
        self._base: _Base | None = None
        self._sources: Sources[_Base, _Record] | None = None
        self._top: Derived[Sources[_Base, _Record], _Top] = Derived(lambda one: self._fold(*one), self._is_current)
        self._lock = threading.Lock()

    @abstractmethod
    def _stored(self, known: _Base | None) -> _Base:
        """Return the stored rows of the scope: `known` itself if they are unchanged."""

    @abstractmethod
    def _recorded(self, files: Sequence[PendingFile]) -> Sequence[_Record]:
        """Return the records of new pending files, one for each. Empty ones are ignored."""

    @abstractmethod
    def _fold(self, base: _Base, pending: Mapping[str, _Record]) -> _Top:
        """Return the state. If stored rows change meanwhile, this is called again."""

    def snapshot(self) -> _Top:
        """Return the newest state; the same object as before if nothing has changed."""
        return self._current()[1]

    def _current(self) -> tuple[Sources[_Base, _Record], _Top]:
        return found_once(self, self._newest)

    def _newest(self) -> tuple[Sources[_Base, _Record], _Top]:
        pending = self._pending()
        return self._top.of(lambda: self._read(pending))

    def _pending(self) -> dict[str, _Record]:
        files = {} if self._journal is None else self._journal.files()
        self._edited |= {name: frozenset(file.texts) for name, file in files.items() if file.texts}
        return {name: one for name, one in self._records.of(files).items() if one or name in self._edited}

    def _edited_in(self, pending: Mapping[str, _Record]) -> frozenset[str]:
        """Return the ids of the messages with a later text in pending files: stored rows of them no longer count."""
        return frozenset[str]().union(*(self._edited.get(name, ()) for name in pending))

    def _read(self, pending: Mapping[str, _Record]) -> Sources[_Base, _Record]:
        base, known = self._refreshed(), self._sources
        if known is None or known.base is not base or known.pending.keys() != pending.keys():
            known = self._sources = Sources(base, pending)
        return known

    def _refreshed(self) -> _Base:
        with self._lock:
            self._base = self._stored(self._base)
            return self._base

    def _is_current(self, sources: Sources[_Base, _Record]) -> bool:
        return self._is_newest(self._refreshed() is sources.base)

    def _is_newest(self, is_newest: bool) -> bool:
        """Return `is_newest`. If it is false, the next snapshot is newer, also within the same :func:`one_read`."""
        if not is_newest:
            look_again(self)
        return is_newest

    def drop(self) -> None:
        """Free the memory of the stored rows."""
        with self._lock:
            self._base = self._sources = None
            self._top.forget()

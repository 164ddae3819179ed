"""The newest state of a scope: stored rows, overlaid with journal entries that the pipeline has not yet processed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from memory_pipeline.domain.identity import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.graph.operations import Edit, Operation
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.messages import TextEdit
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.files.storage import FileInfo
    from memory_pipeline.lake.journal import JournalFile

#: What was found within :func:`one_read`, by whom; None outside of it.
_FOUND: ContextVar[dict[object, Any] | None] = ContextVar("memory_pipeline_found", default=None)

_NOTHING: Any = object()

_Found = TypeVar("_Found")
_File = TypeVar("_File")
_Source = TypeVar("_Source")
_Value = TypeVar("_Value")
_Base = TypeVar("_Base")
_Record = TypeVar("_Record")
_Top = TypeVar("_Top")

#: Most attempts to read rows that change meanwhile. To use all of them takes a commit every few milliseconds.
_ATTEMPTS = 10


@contextmanager
def one_read() -> Iterator[None]:
    """Look for changes only once for all reads inside, also in threads with a copy of the context."""
    if _FOUND.get() is not None:
        yield
        return
    token = _FOUND.set({})
    try:
        yield
    finally:
        _FOUND.reset(token)


def found_once(key: object, look: Callable[[], _Found]) -> _Found:
    """Return what `look` returns, or has returned within the same :func:`one_read`."""
    found = _FOUND.get()
    if found is None:
        return look()
    value: _Found = found.get(key, _NOTHING)
    if value is _NOTHING:
        value = found[key] = look()
    return value


def journal_entries(lake: Lake, scope: Scope) -> list[FileInfo]:
    """Return the files in a scope's folder of the journal, listed once within the same :func:`one_read`."""
    return found_once((lake, scope.key), lambda: lake.journal.entries(scope))


@dataclass(frozen=True, slots=True)
class PendingFile:
    """Contents of one journal file: facts of its messages, edits of the graph, and events of durable memories.

    `texts` are the later texts of messages, by their ids: what was derived from earlier texts no longer counts.
    """

    facts: tuple[Fact, ...]
    edits: tuple[Edit, ...]
    events: tuple[MemoryEvent, ...] = ()
    texts: Mapping[str, TextEdit] = field(default_factory=dict)

    @property
    def operations(self) -> list[Operation]:
        """All changes of the graph that the file contains."""
        extracted = [operation for fact in self.facts for operation in fact.placed_operations]
        return [*extracted, *(operation for edit in self.edits for operation in edit.operations)]


class _ByFile(Generic[_File, _Record]):
    """Records of pending files, by the files' names; each is made once. Safe to use from several threads."""

    def __init__(self, make: Callable[[Sequence[_File]], Sequence[_Record]]) -> None:
        self._make = make
        self._known: dict[str, _Record] = {}
        self._lock = threading.Lock()

    def of(self, files: Mapping[str, _File]) -> dict[str, _Record]:
        with self._lock:
            new = [name for name in files if name not in self._known]
            made = self._make([files[name] for name in new]) if new else ()
            known = self._known | dict(zip(new, made, strict=True))
            self._known = {name: known[name] for name in files}
            return self._known


class PendingJournal:
    """Reads an agent's pending files. Each is extracted once, and again when some of its hours are acknowledged.

    No model is called. Safe to use from several threads.
    """

    def __init__(self, lake: Lake, scope: Scope) -> None:
        self._lake = lake
        self._scope = scope
        self._files = _ByFile(self._extracted)

    def files(self) -> Mapping[str, PendingFile]:
        """Return the pending contents of each file, by a name that changes when more of the file is acknowledged.

        They are empty if nothing in the file is memorable, or if it was acknowledged after it was listed.
        """
        return found_once(self, self._newest)

    def _newest(self) -> Mapping[str, PendingFile]:
        files = self._lake.journal.pending(self._scope, journal_entries(self._lake, self._scope))
        return _without_earlier_texts(
            self._files.of({f"{file.path} {len(file.pending_hours)}": file for file in files})
        )

    def _extracted(self, files: Sequence[JournalFile]) -> list[PendingFile]:
        # Imported late: the rules compile many patterns.
        from memory_pipeline.models.deterministic.extraction import DeterministicExtractor

        extractor = DeterministicExtractor(self._lake.calendar.timezone)
        forgotten = self._lake.tombstones.forgotten()
        found = []
        for file in files:
            contents = self._lake.journal.read(file, file.pending_hours)
            messages = forgotten.filter(contents.messages)
            facts = extractor.facts_of(messages)
            edits, events = forgotten.filter(contents.edits), forgotten.filter(contents.events)
            texts = {message.id: message.edits[-1] for message in messages if message.edits}
            found.append(PendingFile(tuple(facts), tuple(edits), tuple(events), texts))
        return found


def _without_earlier_texts(files: Mapping[str, PendingFile]) -> Mapping[str, PendingFile]:
    """Leave out the facts of texts that a later one in another file replaces. The name of a changed file changes."""
    latest: dict[str, TextEdit] = {}
    for file in files.values():
        for message_id, text in file.texts.items():
            known = latest.get(message_id, text)
            latest[message_id] = max(known, text, key=lambda one: (one.received_at, one.content))
    if not latest:
        return files
    found: dict[str, PendingFile] = {}
    for name, file in files.items():
        replaced = {one for one, text in latest.items() if file.texts.get(one) != text}
        facts = tuple(fact for fact in file.facts if replaced.isdisjoint(fact.message_ids))
        is_changed = len(facts) < len(file.facts)
        cited = sorted({one for fact in file.facts for one in replaced.intersection(fact.message_ids)})
        found[f"{name} {digest(cited)}" if is_changed else name] = replace(file, facts=facts) if is_changed else file
    return found


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
        self._records = _ByFile(self._recorded)
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
        found = _FOUND.get()
        if found is not None and not is_newest:
            found.pop(self, None)
        return is_newest

    def drop(self) -> None:
        """Free the memory of the stored rows."""
        with self._lock:
            self._base = self._sources = None
            self._top.forget()

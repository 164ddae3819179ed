"""The events of access, as files of the journal: who shares memory with whom.

::

    journal/pending/{scope}/{id}.access.json    a grant, a revoke, or a change of a team

A file stays in the folder of the scope that it is about. Readers list this folder at each read, so a grant or a revoke
takes effect at the next read of each process, and the check needs no request of its own. A file never changes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memory_pipeline.domain.access import AccessEvent, fold_access
from memory_pipeline.errors import InputError, LakeError
from memory_pipeline.lake.files.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.access import AccessState
    from memory_pipeline.domain.scopes import Scope, ScopeOf
    from memory_pipeline.lake.files.storage import FileInfo, Storage
    from memory_pipeline.lake.journal import Journal

_ENDING = ".access.json"
#: Events that are kept in memory.
_MOST_KNOWN = 10_000


class AccessEvents:
    """Adds, reads and removes the events of access. Safe to use from several threads and processes.

    `scope_of` returns the lake's scopes of users.
    """

    def __init__(self, storage: Storage, journal: Journal, scope_of: ScopeOf) -> None:
        self._storage = storage
        self._journal = journal
        self._scope_of = scope_of
        self._known: dict[str, AccessEvent] = {}

    def add(self, event: AccessEvent) -> str:
        """Write an event durably; return its id. The same event is written once."""
        data = (json.dumps(event.to_record(), ensure_ascii=False) + "\n").encode()
        self._storage.create(self._journal.path_in(event.scope, f"{event.id}{_ENDING}"), data)
        return event.id

    def of(self, scope: Scope) -> list[AccessEvent]:
        """Return the events of a scope, in any order."""
        return self.among(self._journal.entries(scope))

    def among(self, entries: Iterable[FileInfo]) -> list[AccessEvent]:
        """Return the events among the files of folders of the journal.

        Raises:
            LakeError: a file is damaged. It may be a revoke, so it is not ignored.
        """
        found = (self._read(path) for path in paths_among(entries))
        return [event for event in found if event is not None]

    def damaged(self) -> dict[str, str]:
        """Return the files that are no valid events, with the reasons."""
        found = {}
        for path in paths_among(self._journal.entries()):
            try:
                self._read(path)
            except LakeError as error:
                found[path] = str(error).partition(f"{path} is ")[2]
        return found

    def state(self, target: Scope) -> AccessState:
        """Return the grants of a scope in force now, and the teams of its agent.

        Raises:
            LakeError: as for :meth:`among`.
        """
        return fold_access(self.deciding(target))

    def deciding(self, target: Scope) -> list[AccessEvent]:
        """Return the events that decide about a scope: its own, and those of its agent, which keeps the teams.

        Raises:
            LakeError: as for :meth:`among`.
        """
        return [event for scope in {target.own, target} for event in self.of(scope)]

    def remove(self, events: Iterable[AccessEvent]) -> None:
        """Delete events, because an agent or a user was erased."""
        self._storage.delete([self._journal.path_in(event.scope, f"{event.id}{_ENDING}") for event in events])
        self._known.clear()

    def _read(self, path: str) -> AccessEvent | None:
        if (known := self._known.get(path)) is not None:
            return known
        data = self._storage.read(path)
        if data is None:  # removed in the meantime
            return None
        try:
            event = AccessEvent.from_record(parse_json(data), self._scope_of)
            # A file that was copied or written by hand must not open another memory.
            if self._journal.path_in(event.scope, f"{event.id}{_ENDING}") != path:
                raise InputError(f"it is about {event.scope} and has the id {event.id}")
        except InputError as error:
            raise LakeError(
                f"{self._storage.locate(path)} is not a valid grant or revoke: {error}; restore or delete the file"
            ) from None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[path] = event
        return event


def paths_among(entries: Iterable[FileInfo]) -> tuple[str, ...]:
    """Return the paths of events of access among files of the journal. Equal paths are equal events."""
    return tuple(entry.path for entry in entries if entry.path.endswith(_ENDING))

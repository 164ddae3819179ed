"""The corrections of a lake, as files of the journal.

::

    journal/pending/{scope}/{id}.correction.json    a correction, or the undoing of one
    journal/pending/{scope}/{id}.corrected          what rests on its messages was made again

A file stays in the folder of its scope. Readers and runs list this folder anyway, so a correction takes effect at the
next read of each process. A file never changes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.corrections import Correction, Corrections
from memory_pipeline.errors import InputError, LakeError
from memory_pipeline.lake.files.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.scopes import ScopeOf
    from memory_pipeline.lake.files.storage import FileInfo, Storage
    from memory_pipeline.lake.journal import Journal

_ENDING: Final = ".correction.json"
_DONE: Final = ".corrected"


class CorrectionFiles:
    """Adds, reads and removes corrections. Safe to use from several threads and processes."""

    def __init__(self, storage: Storage, journal: Journal, scope_of: ScopeOf) -> None:
        self._storage = storage
        self._journal = journal
        self._scope_of = scope_of
        self._known: dict[str, Correction] = {}
        self._in_force: tuple[tuple[str, ...], Corrections] = (), Corrections()

    def add(self, correction: Correction) -> None:
        """Write a correction durably. The same one is written once."""
        data = (json.dumps(correction.to_record(), ensure_ascii=False) + "\n").encode()
        self._storage.create(self._path(correction, _ENDING), data)

    def finish(self, correction: Correction) -> None:
        """Note that what rests on its messages was made again."""
        self._storage.create(self._path(correction, _DONE), b"")

    def unfinished(self) -> list[Correction]:
        """Return the corrections after which not everything was made again."""
        entries = self._journal.entries()
        done = {entry.path.removesuffix(_DONE) for entry in entries if entry.path.endswith(_DONE)}
        return self.among(entry for entry in entries if entry.path.removesuffix(_ENDING) not in done)

    def among(self, entries: Iterable[FileInfo]) -> list[Correction]:
        """Return the corrections among the files of folders of the journal.

        Raises:
            LakeError: a file is damaged. It withdraws something, so it is not ignored.
        """
        found = (self._read(path) for path in paths_among(entries))
        return [one for one in found if one is not None]

    def damaged(self) -> dict[str, str]:
        """Return the files that are no valid corrections, with the reasons."""
        found = {}
        for path in paths_among(self._journal.entries()):
            try:
                self._read(path)
            except LakeError as error:
                found[path] = str(error).partition(f"{path} is ")[2]
        return found

    def in_force(self, entries: Iterable[FileInfo]) -> Corrections:
        """Return those among the files of folders of the journal that are not undone. See :meth:`among`."""
        paths = paths_among(entries)
        if paths != self._in_force[0]:
            self._in_force = paths, Corrections(one for path in paths if (one := self._read(path)) is not None)
        return self._in_force[1]

    def remove(self, corrections: Iterable[Correction]) -> None:
        """Delete corrections, because what they are about was erased."""
        listed = list(corrections)
        self._storage.delete([self._path(one, ending) for one in listed for ending in (_ENDING, _DONE)])
        self._known.clear()

    def _path(self, correction: Correction, ending: str) -> str:
        return self._journal.path_in(correction.scope, f"{correction.id}{ending}")

    def _read(self, path: str) -> Correction | None:
        if (known := self._known.get(path)) is not None:
            return known
        data = self._storage.read(path)
        if data is None:  # removed in the meantime
            return None
        try:
            correction = Correction.from_record(parse_json(data), self._scope_of)
            # A file that was copied or written by hand must not change another memory.
            if self._path(correction, _ENDING) != path:
                raise InputError(f"it is about {correction.scope} and has the id {correction.id}")
        except InputError as error:
            raise LakeError(
                f"{self._storage.locate(path)} is not a valid correction: {error}; restore or delete the file"
            ) from None
        self._known[path] = correction
        return correction


def paths_among(entries: Iterable[FileInfo]) -> tuple[str, ...]:
    """Return the paths of corrections among files of the journal. Equal paths are equal corrections."""
    return tuple(entry.path for entry in entries if entry.path.endswith(_ENDING))

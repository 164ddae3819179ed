"""Files of a lake beside its tables and projections: which are damaged, and what repair does with them.

====================  ===============================================================================================
damaged               repair
====================  ===============================================================================================
members of a group    written again from the other of the two lists, if that is sound
embedder of the index written again
model answers         deleted, and asked for again; those that are not in the tables yet
journal               its unreadable records are quarantined
quarantine, sessions  deleted: what they held is lost
grants, collections,  none: restore them from a backup, or delete them
configuration
====================  ===============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake.collections.collection import damaged_collections
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.sessions.saved import damaged_copies
from memory_pipeline.sessions.store import FILE, damaged_database, discard_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memory_pipeline.lake import Lake

_DELETED = ("answer", "embedder", "quarantine", "saved session")
#: What repair removes although it is lost.
DISCARDED = ("journal", "quarantine", "saved session", "sessions")
_LEFT = "restore it from a backup, or delete it"


class DamagedFile(NamedTuple):
    """A damaged file, or table of a collection. `loss` is empty if it can be written again."""

    name: str
    path: str
    why: str
    loss: str = ""


def damaged_small_files(lake: Lake) -> Iterator[DamagedFile]:
    """Yield the damaged files. Reads all of them and writes nothing."""
    losses = {"journal": "the unreadable records", "quarantine": "the record"}
    for path, why in lake.journal.damaged().items():
        name = "quarantine" if path.startswith("journal/quarantine/") else "journal"
        yield DamagedFile(name, path, why, losses[name])
    for path, why in lake.access.damaged().items():
        yield DamagedFile("grant", path, why, f"a grant or a revoke; {_LEFT}")
    recoverable = lake.members.recoverable()
    for path, why in lake.members.damaged().items():
        yield DamagedFile("member", path, why, "" if path in recoverable else f"a membership; {_LEFT}")
    for path, why in lake.calls.damaged().items():
        yield DamagedFile("answer", path, f"{why}; the model is asked again, and the cost is not counted")
    for path, why in lake.index.damaged().items():
        yield DamagedFile("embedder", path, why)
    for path, why in damaged_copies(lake.storage).items():
        yield DamagedFile("saved session", path, why, "the copy of a session")
    if fault := damaged_database(lake):
        yield DamagedFile("sessions", FILE, fault, "the sessions and pools of all agents")
    for path, why in damaged_collections(lake).items():
        yield DamagedFile("collection", path, why, f"items of a collection; {_LEFT}")
    try:
        lake.configuration()
        fault = "it is empty" if lake.storage.read(CONFIGURATION) == b"" else ""
    except ConfigurationError as error:
        fault = str(error)
    if fault:
        yield DamagedFile("configuration", CONFIGURATION, fault, "settings; store them with `config --put FILE`")


def mend_small_files(lake: Lake, found: Iterable[tuple[str, str]]) -> None:
    """Mend or discard damaged files, given their names and paths. The next run sets aside records of the journal."""
    found = list(found)
    names = {name for name, _ in found}
    lake.storage.delete(path for name, path in found if name in _DELETED)
    if "member" in names:
        lake.members.mend()
    if "sessions" in names:
        discard_database(lake)

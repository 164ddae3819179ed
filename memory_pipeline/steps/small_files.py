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

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake.collections.collection import damaged_collections
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.sessions.saved import damaged_copies
from memory_pipeline.sessions.store import FILE, damaged_database, discard_database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memory_pipeline.lake import Lake

_DELETED = ("answer", "embedder", "quarantine", "saved session")
#: What repair removes although it is lost.
_DISCARDED = ("journal", "quarantine", "saved session", "sessions")
_LEFT = "restore it from a backup, or delete it"


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a lake that is lost or cannot be read.

    Attributes:
        kind: "file" or "log" of a table, "partition" missing from the log, "index", "projection", "mart", an "erasure"
            that is not finished, or "small" for a file of :mod:`memory_pipeline.steps.small_files`.
        path: relative to the root.
        key: the partition.
        rows: number of rows it held, 0 if unknown.
        loss: the data that cannot be recovered; empty if everything can.
    """

    kind: str
    name: str
    path: str
    why: str
    key: str = ""
    grain: str = ""
    rows: int = 0
    loss: str = ""

    @property
    def is_left_alone(self) -> bool:
        """Whether repair leaves the file as it is, so that it can be restored from a backup.

        Lost facts and summaries are dropped: until then nothing that reads their period works, for any agent.
        """
        return bool(self.loss) and self.name not in (FACTS.name, SUMMARIES.name, *_DISCARDED)


def damaged_small_files(lake: Lake) -> Iterator[Damage]:
    """Yield the damaged files. Reads all of them and writes nothing."""
    losses = {"journal": "the unreadable records", "quarantine": "the record"}
    for path, why in lake.journal.damaged().items():
        name = "quarantine" if path.startswith("journal/quarantine/") else "journal"
        yield _small(name, path, why, losses[name])
    for path, why in lake.access.damaged().items():
        yield _small("grant", path, why, f"a grant or a revoke; {_LEFT}")
    for path, why in lake.corrections.damaged().items():
        yield _small("correction", path, why, f"a correction; {_LEFT}")
    for path, (why, copy) in lake.members.damaged().items():
        yield _small("member", path, why, f"a membership; {_LEFT}" if copy is None else "")
    for path, why in lake.calls.damaged().items():
        yield _small("answer", path, f"{why}; the model is asked again, and the cost is not counted")
    for path, why in lake.indices.damaged().items():
        yield _small("embedder", path, why)
    for path, why in damaged_copies(lake.storage).items():
        yield _small("saved session", path, why, "the copy of a session")
    if fault := damaged_database(lake):
        yield _small("sessions", FILE, fault, "the sessions and pools of all agents")
    for path, why in damaged_collections(lake).items():
        yield _small("collection", path, why, f"items of a collection; {_LEFT}")
    try:
        lake.configuration()
        fault = "it is empty" if lake.storage.read(CONFIGURATION) == b"" else ""
    except ConfigurationError as error:
        fault = str(error)
    if fault:
        yield _small("configuration", CONFIGURATION, fault, "settings; store them with `config --put FILE`")


def _small(name: str, path: str, why: str, loss: str = "") -> Damage:
    return Damage("small", name, path, why, loss=loss)


def mend_small_files(lake: Lake, found: Sequence[Damage]) -> None:
    """Mend or discard damaged files. The next run sets aside records of the journal."""
    names = {damage.name for damage in found}
    lake.storage.delete(damage.path for damage in found if damage.name in _DELETED)
    if "member" in names:
        lake.members.mend()
    if "sessions" in names:
        discard_database(lake)

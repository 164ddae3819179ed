"""What goes from an agent's index table, and how it is put to lancedb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.lance import FTS, BTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.lake.files.storage import Storage

#: The indices that every table has. That of the content is made last: where it is, the others are.
INDICES = {"period": BTree(), "ends_at": BTree(), "content": FTS(with_position=True)}
#: Holds an empty file for each index table.
_ROSTER = "state/index"
#: A row is the same as long as its digest and its vector's embedder are.
SAME = (
    "target.digest = source.digest AND (target.embed_model = source.embed_model "
    "OR (target.embed_model IS NULL AND source.embed_model IS NULL))"
)


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows of an agent's table that go.

    Attributes:
        through: key of the last period of which they are.
        kinds: of a working table, the kinds of facts that they are; all if None.
    """

    through: str
    kinds: frozenset[str] | None = None


def condition(cuts: Sequence[Cut]) -> str:
    """Return the SQL condition that selects what goes; of no cuts, nothing."""
    return " OR ".join(map(_sql, cuts)) or "false"


def roster_path(workspace_id: str, name: str) -> str:
    """Return where it is noted that an index table was made: apart from it, so that its loss is seen."""
    return f"{_ROSTER}/{workspace_id}/{name}"


def noted_tables(storage: Storage) -> set[tuple[Scope, Grain]]:
    """Return the index tables that were made and not dropped since, whether they are there or not."""
    found = set()
    for entry in storage.list(_ROSTER):
        _, workspace_id, name = entry.path.rsplit("/", 2)
        agent_id, _, grain = name.rpartition("__")
        found.add((Scope(workspace_id, agent_id), Grain(grain)))
    return found


def _sql(cut: Cut) -> str:
    period = f"period <= {_quoted(cut.through)}"
    if cut.kinds is None:
        return f"({period})"
    return f"({period} AND kind IN ({', '.join(map(_quoted, sorted(cut.kinds)))}))" if cut.kinds else "false"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""The retention class of each row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import WORKING_CLASSES, RetentionClass
from memory_pipeline.lake.schemas import FACTS, MESSAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {
    RetentionClass.CONVERSATIONS: frozenset([FactKind.TURN]),
    RetentionClass.PREFERENCES: frozenset([FactKind.PREFERENCE, FactKind.INSTRUCTION]),
}
KINDS[RetentionClass.FACTS] = (
    frozenset(FactKind) - KINDS[RetentionClass.CONVERSATIONS] - KINDS[RetentionClass.PREFERENCES]
)


def classes_in(place: str) -> tuple[RetentionClass, ...]:
    """Return the classes of the rows of a place of the archive: ``messages``, ``facts`` or a grain of summaries."""
    if place == MESSAGES.name:
        return (RetentionClass.CONVERSATIONS,)
    return WORKING_CLASSES if place == FACTS.name else (RetentionClass(Grain(place).value),)


def class_of(classes: Sequence[RetentionClass], rows: pa.Table) -> pa.Array:
    """Return the class of each row of a table with rows of some classes."""
    if len(classes) == 1:
        return pa.repeat(classes[0].value, rows.num_rows)
    names = {kind.value: name.value for name, kinds in KINDS.items() for kind in kinds}
    kinds = rows["kind"].combine_chunks().dictionary_encode()
    return pa.array([names[kind] for kind in kinds.dictionary.to_pylist()], pa.string()).take(kinds.indices)

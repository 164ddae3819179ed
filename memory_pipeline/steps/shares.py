"""Shares: ranges of scopes that are processed one after the other, so that memory is bounded.

A range has an open lower end and touches the next one, so that a scope added meanwhile is in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from memory_pipeline.lake.tables.partitions import PartialUpdate
from memory_pipeline.steps.freeing import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


@dataclass(frozen=True, slots=True)
class Share:
    """The scopes with keys after `above` and up to `through`; None leaves an end open."""

    above: str | None = None
    through: str | None = None

    def __contains__(self, scope: Scope) -> bool:
        """Return whether a scope is in the range."""
        after_first = self.above is None or scope.key > self.above
        return after_first and (self.through is None or scope.key <= self.through)

    @property
    def where(self) -> pc.Expression | None:
        """The condition on rows, or None if all rows meet it."""
        conditions = []
        if self.above is not None:
            conditions.append(pc.field("scope") > self.above)
        if self.through is not None:
            conditions.append(pc.field("scope") <= self.through)
        return None if not conditions else conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]

    def of(self, scopes: Iterable[Scope]) -> set[Scope]:
        """Return the given scopes that are in the range."""
        return {scope for scope in scopes if scope in self}


#: All scopes.
EVERYBODY = Share()
WHOLE: Sequence[Share] = (EVERYBODY,)


def cut(weights: Mapping[Scope, int], most: int) -> list[Share]:
    """Cut scopes into shares of at most the weight `most`, unless one scope alone weighs more."""
    bounds: list[str] = []
    weight = 0
    before: str | None = None
    for key, own in sorted((scope.key, own) for scope, own in weights.items()):
        if before is not None and weight + own > most:
            bounds.append(before)
            weight = 0
        weight += own
        before = key
    return [Share(above, through) for above, through in zip([None, *bounds], [*bounds, None], strict=True)]


def replace_in_shares(
    lake: Lake,
    spec: TableSpec,
    keys: Collection[str],
    shares: Sequence[Share],
    change: Callable[[Share, pa.Table], pa.Table],
    remade: Collection[str] = (),
    **fixed: str,
) -> frozenset[str]:
    """Replace partitions, in one commit, by what `change` makes of each share's rows; return those that changed.

    Args:
        lake: where.
        spec: the table.
        keys: of the partitions.
        shares: in order; together everybody.
        change: as :meth:`~memory_pipeline.lake.tables.tables.Tables.transform` takes it, for one share.
        remade: likewise.
        fixed: the value of each partition column before the last.
    """
    if len(shares) == 1:
        return lake.tables.transform(spec, keys, lambda old: change(shares[0], old), remade=remade, **fixed).changed

    def changed(number: int, old: pa.Table) -> pa.Table:
        give_back()  # what the share before took
        return change(shares[number], old)

    parts = PartialUpdate([each for share in shares if (each := share.where) is not None], changed)
    return lake.tables.transform_parts(spec, keys, parts, remade=remade, **fixed)

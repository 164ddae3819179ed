"""Shares: ranges of agents that are worked on one after the other, so that what is in memory at a time is bounded.

Ranges are open to both sides and touch each other: whoever comes while they are worked on lies in one of them.
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

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Share:
    """The agents above one and up to another, in the order of workspaces and agents; a bound that is None is none."""

    above: Scope | None = None
    through: Scope | None = None

    def __contains__(self, scope: Scope) -> bool:
        """Tell whether an agent is one of these."""
        after_first = self.above is None or _key(scope) > _key(self.above)
        return after_first and (self.through is None or _key(scope) <= _key(self.through))

    @property
    def where(self) -> pc.Expression | None:
        """The condition on rows; None where all of them meet it."""
        conditions = []
        if self.above is not None:
            conditions.append(~_up_to(self.above))
        if self.through is not None:
            conditions.append(_up_to(self.through))
        return None if not conditions else conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]

    def of(self, scopes: Iterable[Scope]) -> set[Scope]:
        """Return those of the agents that are among these."""
        return {scope for scope in scopes if scope in self}


#: All agents.
EVERYBODY = Share()
WHOLE: Sequence[Share] = (EVERYBODY,)


def cut(weights: Mapping[Scope, int], most: int) -> list[Share]:
    """Cut agents into shares that weigh no more than `most`, unless one agent alone does.

    Args:
        weights: of each agent.
        most: of a share.
    """
    bounds: list[Scope] = []
    weight = 0
    before: Scope | None = None
    for scope in sorted(weights, key=_key):
        if before is not None and weight + weights[scope] > most:
            bounds.append(before)
            weight = 0
        weight += weights[scope]
        before = scope
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


def _key(scope: Scope) -> _Key:
    return scope.workspace_id, scope.agent_id


def _up_to(scope: Scope) -> pc.Expression:
    workspace_id, agent_id = pc.field("workspace_id"), pc.field("agent_id")
    same = (workspace_id == scope.workspace_id) & (agent_id <= scope.agent_id)
    return (workspace_id < scope.workspace_id) | same

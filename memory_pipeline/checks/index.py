"""Whether the index holds what the tables hold: no more, no less, and as it stands there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import polars as pl

from memory_pipeline.checks.check import REMEMBERED, Offences, Scan
from memory_pipeline.domain.conversations import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from memory_pipeline.checks.check import Look
    from memory_pipeline.domain.periods import Grain

#: An agent's index is a table of its own, which takes some milliseconds to open. Of more agents than this every n-th
#: is looked at, another n-th each day, so that all have been looked at after n days.
MOST_AGENTS = 500
_THREADS = 8
_MARKS = ["period", "id", "digest", "embed_model"]
_AGENT = ["workspace_id", "agent_id"]


def is_level(grain: Grain) -> Scan:
    """Find agents' periods whose rows in the index are not those of the table: missing, left over, or outdated."""

    def see(_: Look, part: pl.DataFrame) -> pl.DataFrame:
        return part

    def conclude(look: Look, seen: list[pl.DataFrame]) -> Offences:
        rows = pl.concat([pl.DataFrame(schema=dict.fromkeys([*_AGENT, *_MARKS], pl.String)), *seen])
        by_agent = rows.partition_by(_AGENT, as_dict=True, include_key=False)
        scopes = sorted(_scopes(look, by_agent), key=lambda scope: (scope.workspace_id, scope.agent_id))
        every = max(1, -(-len(scopes) // MOST_AGENTS))
        looked_at = scopes[look.now.toordinal() % every :: every]
        nothing = rows.clear().select(_MARKS)

        def differing(scope: Scope) -> list[str]:
            wanted = by_agent.get((scope.workspace_id, scope.agent_id), nothing)
            return _differing(wanted, look.lake.index.scan(scope, grain, _MARKS), look.keys(grain))

        with ThreadPoolExecutor(_THREADS) as pool:
            differences = list(pool.map(differing, looked_at))
        names = (
            f"{scope.workspace_id}/{scope.agent_id} {period}"
            for scope, periods in zip(looked_at, differences, strict=True)
            for period in periods
        )
        return Offences.of(names, {"rows": len(rows), "agents": len(scopes), "agents_looked_at": len(looked_at)})

    return Scan(REMEMBERED[grain], (*_AGENT, *_MARKS), see, conclude)


def _differing(wanted: pl.DataFrame, indexed: pa.Table, keys: list[str] | None) -> list[str]:
    """Return the periods in which rows differ; a row that stands twice differs from one that stands once."""
    found = pl.DataFrame(pl.from_arrow(indexed)).select(_MARKS)
    if keys is not None:
        found = found.filter(pl.col("period").is_in(keys))
    both = pl.concat([wanted.with_columns(n=pl.lit(1)), found.with_columns(n=pl.lit(-1))])
    uneven = both.group_by(_MARKS).agg(pl.sum("n")).filter(pl.col("n") != 0)
    return sorted(uneven["period"].unique().to_list())


def _scopes(look: Look, rows: Iterable[tuple[Any, ...]]) -> set[Scope]:
    """Return whose index is to be looked at: everybody who has rows in the table or anything in the index."""
    return {*look.lake.index.scopes(), *(Scope(*key) for key in rows)}

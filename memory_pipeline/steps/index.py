"""Tables to vector index: the projection that readers search."""

from __future__ import annotations

import logging
from dataclasses import astuple
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import CommitConflictError, DamagedError
from memory_pipeline.lake.index.index_rows import facts_to_index, summaries_to_index
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.steps.digests import marks_of
from memory_pipeline.steps.group import agents_in, by_period, by_scope
from memory_pipeline.steps.made import Made, content_digest
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    import pyarrow as pa

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share


_log = logging.getLogger(__name__)

#: Index tables that a run opens, to see whether it can.
_OPENED = 500
#: Agents whose rows are read at once, and held in memory, to restore their index tables.
_RESTORED = 100
#: The columns that tell whether rows have changed.
_MARKS = ("digest", "embed_model")
#: How often the index is written again because the table changed meanwhile.
_ATTEMPTS = 5


def index_periods(
    lake: Lake,
    grain: Grain,
    periods: list[Period],
    dimension: int,
    also: Iterable[Scope] = (),
    share: Share = EVERYBODY,
) -> list[Made]:
    """Bring a grain's index, of vectors of `dimension` numbers, level with its table; return what each period holds.

    Only agents whose rows differ are written, one commit each; those in `also` even if they have none left. Another run
    may replace the rows while they are indexed, and its newer index might be overwritten; so the table is looked at
    again afterwards.

    Args:
        lake: where.
        grain: of the periods.
        periods: the partitions.
        dimension: numbers in a vector.
        also: agents that had rows in them before, and may have none now.
        share: of whom `also` are, and whose tables are brought level.

    Raises:
        CommitConflictError: the rows changed again and again; what is in the journal stays there.
    """
    written: set[str] = set()
    seen = set(also)
    for _ in range(_ATTEMPTS):
        rows = _read(lake, grain, periods, share)
        projected = facts_to_index if grain is Grain.WORKING else summaries_to_index
        of_agents = by_scope(rows)
        # One whose rows vanished since the last attempt is written, too.
        seen |= of_agents.keys()
        parts = {scope: of_agents.get(scope, rows.slice(0, 0)) for scope in seen}
        agents = {scope: projected(part, dimension) for scope, part in parts.items()}
        try:
            written |= lake.index.replace(grain, periods, agents)
        except DamagedError:
            restore_tables(lake, [(scope, grain) for scope in agents if lake.index.is_damaged(scope, grain)], dimension)
            written |= lake.index.replace(grain, periods, agents)
        if content_digest(_read(lake, grain, periods, share, columns=_MARKS)) == content_digest(rows):
            break
    else:
        raise CommitConflictError(f"{grain} rows of {periods[0]} to {periods[-1]} keep changing; run it again later")
    return [
        Made(
            asset=index_asset(grain),
            period=period,
            input_digest=marks.combined,
            output_digest=marks.combined,  # a projection holds what its table holds
            rows=part.num_rows,
            agents=agents_in(part),
            changed=period.key in written,
            inputs=marks,
            outputs=marks,
        )
        for period, part in by_period(rows, periods).items()
        for marks in [marks_of(part)]
    ]


def mend_index(lake: Lake, embedder: Embedder, now: datetime) -> list[tuple[Scope, Grain]]:
    """Make index tables that are lost or cannot be opened again; return which.

    All that are lost are found by their names. To open one takes a millisecond, so of many tables every n-th is opened,
    another n-th each day.
    """
    tables = sorted(lake.index.tables(), key=str)
    if not tables:
        return []
    lake.index.adopt(embedder)
    every = -(-len(tables) // _OPENED)
    opened = set(tables[now.toordinal() % every :: every])
    present = lake.index.present()

    def is_damaged(scope: Scope, grain: Grain) -> bool:
        if (scope, grain) not in present:
            return True
        return (scope, grain) in opened and lake.index.is_damaged(scope, grain, thoroughly=False)

    damaged = [each for each in tables if is_damaged(*each)]
    restore_tables(lake, damaged, embedder.dimension)
    return damaged


def restore_tables(lake: Lake, tables: Iterable[tuple[Scope, Grain]], dimension: int) -> None:
    """Make the index tables of agents again, from all of their rows.

    Vectors of another embedder than the index's are left out with their rows, until their periods are made again.

    Args:
        lake: where.
        tables: which.
        dimension: numbers in a vector.
    """
    by_grain: dict[Grain, list[Scope]] = {}
    for scope, grain in tables:
        _log.warning("index: the %s table of %s/%s is damaged or lost, it is made again", grain, *astuple(scope))
        by_grain.setdefault(grain, []).append(scope)
    comparable = pc.field("embed_model").is_null() | (pc.field("embed_model") == lake.index.made_by)
    for grain, scopes in by_grain.items():
        spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
        projected = facts_to_index if grain is Grain.WORKING else summaries_to_index
        for start in range(0, len(scopes), _RESTORED):
            batch = scopes[start : start + _RESTORED]
            own = pc.field("agent_id").isin(sorted({scope.agent_id for scope in batch}))
            rows = lake.tables.read_sound(spec, where=own & comparable, **fixed)
            of_scope = by_scope(rows)
            for scope in batch:
                lake.index.restore(scope, grain, projected(of_scope.get(scope, rows.slice(0, 0)), dimension))


def _read(
    lake: Lake, grain: Grain, periods: list[Period], share: Share, columns: Collection[str] | None = None
) -> pa.Table:
    keys = [period.key for period in periods]
    if grain is Grain.WORKING:
        return lake.tables.read(FACTS, keys, columns=columns, where=share.where)
    return lake.tables.read(SUMMARIES, keys, columns=columns, where=share.where, grain=grain.value)

"""Write facts and summaries, with their vectors, to the search index."""

from __future__ import annotations

import logging
from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import CommitConflictError, DamagedError
from memory_pipeline.lake.index.index_rows import facts_to_index, summaries_to_index
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.lake.tables.ledger import index_asset
from memory_pipeline.steps.group import agents_in, by_period, by_scope
from memory_pipeline.steps.results import PartitionResult, content_digest, marks_of
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share


_log = logging.getLogger(__name__)

#: Number of index tables that a run opens, different ones each day. Opening one takes a millisecond.
_OPENED = 500
#: Number of agents that are restored at a time, to limit memory.
_RESTORED = 100
_MARKS = ("digest", "embed_model")
#: Maximum number of attempts if the table keeps changing.
_ATTEMPTS = 5


def index_periods(
    lake: Lake,
    grain: Grain,
    periods: list[Period],
    dimension: int,
    also: Iterable[Scope] = (),
    share: Share = EVERYBODY,
) -> list[PartitionResult]:
    """Sync a grain's index with its table. Return one result per period.

    Only agents with changed rows are written, with one commit each. Agents in `also` had rows in these periods and may
    have none now. The table is read again afterwards, because a concurrent run may have replaced rows.

    Raises:
        CommitConflictError: the rows kept changing; the journal files are not acknowledged.
    """
    written: set[str] = set()
    affected = set(also)
    for _ in range(_ATTEMPTS):
        rows = _read(lake, grain, periods, share)
        to_index = facts_to_index if grain is Grain.WORKING else summaries_to_index
        of_agents = by_scope(rows)
        # Include agents that lost their rows since the last attempt.
        affected |= of_agents.keys()
        parts = {scope: of_agents.get(scope, rows.slice(0, 0)) for scope in affected}
        agents = {scope: to_index(part, dimension) for scope, part in parts.items()}
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
        PartitionResult(
            asset=index_asset(grain),
            period=period,
            input_digest=marks.combined,
            output_digest=marks.combined,  # the index has the same rows as its table
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
    """Restore index tables that are missing or cannot be opened. Return them."""
    tables = sorted(lake.index.tables(), key=str)
    if not tables:
        return []
    lake.index.adopt(embedder)
    step = -(-len(tables) // _OPENED)
    opened = set(tables[now.toordinal() % step :: step])
    present = lake.index.present()

    def is_damaged(scope: Scope, grain: Grain) -> bool:
        if (scope, grain) not in present:
            return True
        return (scope, grain) in opened and lake.index.is_damaged(scope, grain, thoroughly=False)

    damaged = [each for each in tables if is_damaged(*each)]
    restore_tables(lake, damaged, embedder.dimension)
    return damaged


def restore_tables(lake: Lake, tables: Iterable[tuple[Scope, Grain]], dimension: int) -> None:
    """Rebuild index tables from the rows. Rows with vectors by another embedder are omitted until recomputed."""
    by_grain: dict[Grain, list[Scope]] = {}
    for scope, grain in tables:
        _log.warning("index: the %s table of %s/%s is missing or damaged; rebuilding it", grain, *astuple(scope))
        by_grain.setdefault(grain, []).append(scope)
    comparable = pc.field("embed_model").is_null() | (pc.field("embed_model") == lake.index.made_by)
    for grain, scopes in by_grain.items():
        spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
        to_index = facts_to_index if grain is Grain.WORKING else summaries_to_index
        for start in range(0, len(scopes), _RESTORED):
            batch = scopes[start : start + _RESTORED]
            of_agents = pc.field("agent_id").isin(sorted({scope.agent_id for scope in batch}))
            rows = lake.tables.read_sound(spec, where=of_agents & comparable, **fixed)
            of_scope = by_scope(rows)
            for scope in batch:
                lake.index.restore(scope, grain, to_index(of_scope.get(scope, rows.slice(0, 0)), dimension))


def _read(
    lake: Lake, grain: Grain, periods: list[Period], share: Share, columns: Collection[str] | None = None
) -> pa.Table:
    keys = [period.key for period in periods]
    if grain is Grain.WORKING:
        return lake.tables.read(FACTS, keys, columns=columns, where=share.where)
    return lake.tables.read(SUMMARIES, keys, columns=columns, where=share.where, grain=grain.value)


def with_vectors(rows: pa.Table, old: pa.Table, periods: list[Period], embedder: Embedder) -> pa.Table:
    """Add a vector to each row of ``facts`` or ``summaries``, keeping the order.

    Texts with a vector by this embedder in `rows` or `old` are not embedded again; all others are embedded in one
    batch. If embedding fails, the row's vector and embed_model are null.
    """
    known = _known(old, embedder) | _known(rows, embedder)
    contents = rows["content"].to_pylist()
    missing = {content: place for place, content in reversed(list(enumerate(contents))) if content not in known}
    if missing:
        by_key = {period.key: period for period in periods}
        to_embed = rows.take(pa.array(sorted(missing.values())))
        uses = [
            Use(Scope(workspace_id, agent_id), by_key[period])
            for workspace_id, agent_id, period in zip(
                *(to_embed[name].to_pylist() for name in ("workspace_id", "agent_id", "period")), strict=True
            )
        ]
        texts = to_embed["content"].to_pylist()
        vectors = embedder.embed(texts, uses)
        known |= {text: vector for text, vector in zip(texts, vectors, strict=True) if not np.isnan(vector[0])}
    found = [known.get(content) for content in contents]
    names = [None if vector is None else embedder.name for vector in found]
    columns = {"vector": _lists(found), "embed_model": pa.array(names, pa.string())}
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows


def _lists(vectors: Sequence[NDArray[np.float32] | None]) -> pa.ListArray:
    missing = np.array([vector is None for vector in vectors], np.bool_)
    lengths = [0 if vector is None else len(vector) for vector in vectors]
    numbers = np.concatenate([np.empty(0, np.float32), *(vector for vector in vectors if vector is not None)])
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(numbers, pa.float32()), mask=pa.array(missing))


def _known(rows: pa.Table, embedder: Embedder) -> dict[str, NDArray[np.float32]]:
    models = rows["embed_model"].to_pylist()
    places = [place for place, model in enumerate(models) if model == embedder.name]
    if not places:
        return {}
    embedded = rows.select(["content", "vector"]).take(pa.array(places)).combine_chunks()
    vectors = embedded["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False).reshape(len(places), -1)
    return dict(zip(embedded["content"].to_pylist(), vectors, strict=True))

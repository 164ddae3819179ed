"""Keep the projection ``scopes``: agents, users and groups with their first and last activity, and groups' members.

A run lowers the first time of a scope or raises the last. Expired rows leave both unchanged. Erasure and repair
recompute them from the records.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import SUMMARY_GRAINS, hour_of
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.index.filters import listed, quoted
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES, SCOPES, SUMMARIES
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import scopes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

_ROW = (*SCOPE_COLUMNS, "first_at", "last_at")
#: The tables with activity, and their column of its time.
_ACTIVITY = ((MESSAGES, "sent_at"), (GRAPH_OPERATIONS, "event_at"), (MEMORY_EVENTS, "event_at"))


def known_scopes(lake: Lake, workspace_id: str | None = None) -> set[Scope]:
    """Return the scopes with loaded records, of one workspace or of all. Others may be pending in the journal."""
    where = None if workspace_id is None else f"workspace_id = {quoted(workspace_id)}"
    return scopes_in(lake.scopes.scan(SCOPE_COLUMNS, where))


def groups_with(lake: Lake, users: Collection[str]) -> set[Scope]:
    """Return the known groups with one of the users among their members."""
    if not users:
        return set()
    rows = lake.scopes.scan((*SCOPE_COLUMNS, "users"))
    has_one = [not {*listed}.isdisjoint(users) for listed in rows["users"].to_pylist()]
    return scopes_in(rows.filter(pa.array(has_one, pa.bool_())))


def enter_scopes(lake: Lake, hours: Iterable[Period], shard: int | None = None) -> None:
    """Enter the scopes with messages, edits or events in hours, of one shard or of all. Write only changed rows."""
    keys = [hour.key for hour in hours]
    active = _united(
        _times(lake.tables.read(spec, keys, columns=(*SCOPE_COLUMNS, at), shard=shard), at) for spec, at in _ACTIVITY
    )

    if _changed(lake, active).num_rows:
        with lake.scopes.alone():  # a concurrent run may change the same rows
            rows = _changed(lake, active)
            lake.scopes.replace(rows, scopes_in(rows))


def recompute_scopes(
    lake: Lake, scopes: Collection[Scope], hours: Callable[[TableSpec], Collection[str] | None] = lambda _: None
) -> None:
    """Recompute scopes from the records. Drop those without records.

    `hours` returns the partitions of a table that may have records of the scopes; None means all.
    """
    with lake.scopes.alone():
        lake.scopes.replace(recorded_scopes(lake, scopes=[scope.key for scope in scopes], hours=hours), scopes)


def drop_expired_scopes(lake: Lake) -> None:
    """Drop the scopes of which expiry has left nothing: no message, fact, summary, operation or memory event."""
    marks = ExpirationMarks.of(lake.tables)
    if not marks.latest([RetentionClass.CONVERSATIONS]):
        return
    with lake.scopes.alone():
        rows = lake.scopes.scan((*SCOPE_COLUMNS, "last_at")).to_pylist()
        last = {scope_of(*map(row.get, SCOPE_COLUMNS)): hour_of(row["last_at"]).key for row in rows}
        silent = [
            scope for scope, key in last.items() if key <= (marks.through(scope, RetentionClass.CONVERSATIONS) or "")
        ]
        found = (rows.read(silent, ("scope",))["scope"] for rows in (lake.index, lake.operations, lake.events))
        left = {key for column in found for key in column.unique().to_pylist()}
        gone = [scope for scope in silent if scope.key not in left]
        if gone:
            lake.scopes.delete(f"scope IN ({listed(scope.key for scope in gone)})", gone)


def _changed(lake: Lake, active: pl.DataFrame) -> pa.Table:
    """Return the rows that differ from the stored ones once `active` is entered."""
    scopes = [Scope(*ids) for ids in active.select(SCOPE_COLUMNS).iter_rows()]
    stored = lake.scopes.read(scopes, (*_ROW, "digest"))
    rows = _to_rows(lake, _united([active, pl.DataFrame(pl.from_arrow(stored.select(_ROW)))]))
    return rows.filter(pc.invert(pc.is_in(_state(rows), _state(stored))))


def _state(rows: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(rows["scope"], rows["digest"], " ").combine_chunks()


def recorded_scopes(
    lake: Lake,
    where: pc.Expression | None = None,
    scopes: Collection[str] | None = None,
    hours: Callable[[TableSpec], Collection[str] | None] = lambda _: None,
) -> pa.Table:
    """Return the rows of scopes from all of their records; see :func:`recompute_scopes`."""
    read = partial(lake.tables.read, damaged="skip", where=where, scopes=scopes)
    parts = []
    for spec, at in (*_ACTIVITY, (FACTS, "event_at")):
        parts.append(_times(read(spec, hours(spec), columns=(*SCOPE_COLUMNS, at)), at))
    for grain in SUMMARY_GRAINS:
        # Summaries outlive their facts.
        rows = read(SUMMARIES, columns=(*SCOPE_COLUMNS, "key_points"), grain=grain.value)
        points = pl.DataFrame(pl.from_arrow(rows)).explode("key_points").unnest("key_points").drop_nulls("event_at")
        parts.append(_united([points.select(*SCOPE_COLUMNS, first_at="event_at", last_at="event_at")]))
    return _to_rows(lake, _united(parts))


def _times(rows: pa.Table, at: str) -> pl.DataFrame:
    times = pl.DataFrame(pl.from_arrow(rows))
    return _united([times.select(*SCOPE_COLUMNS, first_at=at, last_at=at)])


def _united(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by(SCOPE_COLUMNS).agg(pl.min("first_at"), pl.max("last_at"))


def _to_rows(lake: Lake, scopes: pl.DataFrame) -> pa.Table:
    members = [
        lake.members.users_of(scope) if scope.is_group else ()
        for scope in (Scope(*ids) for ids in scopes.select(SCOPE_COLUMNS).iter_rows())
    ]
    users = pl.Series(members, dtype=pl.List(pl.String))
    instants = pl.concat_str(pl.col("first_at", "last_at").cast(pl.Int64), separator=" ")
    states = pl.concat_str(instants, pl.lit(" "), pl.lit(users).list.join("\n"))
    rows = scopes.with_columns(id="scope", users=users, digest=states).select(SCOPES.schema.names)
    return rows.to_arrow().cast(SCOPES.schema)

"""Retention: plan which rows have expired, mark them, delete them and vacuum their files.

Nothing expires before its parent was computed from it (:func:`held_back`). Marks are written first, so that rows
deleted by an interrupted run do not count as pending. The index is changed before its table, since a repeated run reads
the table to find the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.retention import WORKING_CLASSES, Expiry, RetentionClass, plan_expiry
from memory_pipeline.lake.index.filters import quoted
from memory_pipeline.lake.index.vector_index import DeleteFilter
from memory_pipeline.lake.schemas import (
    ANSWERS,
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    LEDGER,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks, raise_marks
from memory_pipeline.steps.fold_graph import refold_graph, sync_operations
from memory_pipeline.steps.results import Expiration, Expired
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import drop_expired_scopes, known_scopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


_KINDS = {
    RetentionClass.CONVERSATIONS: frozenset([FactKind.TURN]),
    RetentionClass.PREFERENCES: frozenset([FactKind.PREFERENCE, FactKind.INSTRUCTION]),
}
_KINDS[RetentionClass.FACTS] = (
    frozenset(FactKind) - _KINDS[RetentionClass.CONVERSATIONS] - _KINDS[RetentionClass.PREFERENCES]
)
_GROUP = ["workspace_id", "agent_id", "period", "kept"]


class Inventory:
    """The rows of all tables, counted by agent, period and class, and which of them have expired."""

    def __init__(self, lake: Lake, held: Mapping[Grain, Period], now: datetime) -> None:
        self._lake = lake
        configuration = lake.configuration()
        # The workspaces are known only after reading, so read up to the last boundary of all.
        latest: dict[RetentionClass, str] = {}
        for expiry in plan_expiry(configuration.retentions(), {}, held, lake.calendar, now):
            latest[expiry.kept] = max(latest.get(expiry.kept, ""), expiry.through.key)
        self._counted = {
            "": _count(lake, latest, MESSAGES, (RetentionClass.CONVERSATIONS,)),
            "facts": _count(lake, latest, FACTS, WORKING_CLASSES),
            "graph": _count(lake, latest, GRAPH_OPERATIONS, (RetentionClass.GRAPH,)),
        }
        for grain in SUMMARY_GRAINS:
            classes = (RetentionClass(grain.value),)
            self._counted[grain] = _count(lake, latest, SUMMARIES, classes, grain=grain.value)
        workspaces = {name for counted in self._counted.values() for name in counted["workspace_id"].unique()}
        # Held-back periods of configured workspaces are reported even if nothing expires.
        retentions = configuration.retentions()
        retentions |= {workspace_id: configuration.retention(workspace_id) for workspace_id in workspaces}
        before: dict[str, dict[RetentionClass, Period]] = defaultdict(dict)
        for scope, name, key in ExpirationMarks.of(lake.tables):
            retention_class, of_workspace = RetentionClass(name), before[scope.workspace_id]
            if retention_class not in of_workspace or of_workspace[retention_class].key < key:
                of_workspace[retention_class] = Period(retention_class.period_grain, key)
        self.plan = plan_expiry(retentions, before, held, lake.calendar, now)
        self.through = {(each.workspace_id, each.kept): each.through.key for each in self.plan}
        limits = pl.DataFrame(
            [(*key, through) for key, through in self.through.items()],
            schema={"workspace_id": pl.String, "kept": pl.String, "through": pl.String},
            orient="row",
        )
        self._expired = {
            name: counted.join(limits, on=["workspace_id", "kept"]).filter(pl.col("period") <= pl.col("through"))
            for name, counted in self._counted.items()
        }

    def of(self, expiry: Expiry) -> Expired:
        """Return the expired rows of a workspace and class."""
        rows = pl.concat(self._expired.values()).filter(
            (pl.col("workspace_id") == expiry.workspace_id) & (pl.col("kept") == expiry.kept.value)
        )
        if rows.is_empty():
            return Expired(expiry)
        first = Period(expiry.kept.period_grain, str(rows["period"].min()))
        return Expired(expiry, int(rows["rows"].sum()), rows["period"].n_unique(), rows["agent_id"].n_unique(), first)

    def marks(self) -> dict[tuple[str, str, RetentionClass], str]:
        """Return the expiry boundary of each agent and class with expired rows."""
        expired = pl.concat(self._expired.values()).select("workspace_id", "agent_id", "kept", "through").unique()
        return {
            (workspace, agent, RetentionClass(name)): through for workspace, agent, name, through in expired.iter_rows()
        }

    def cuts(self, grain: Grain) -> dict[str, list[DeleteFilter]]:
        """Return the filters to delete from the index rows of a grain, by workspace."""
        expired = self._expired["facts" if grain is Grain.WORKING else grain]
        cuts: dict[str, list[DeleteFilter]] = defaultdict(list)
        for workspace, name, through in expired.select("workspace_id", "kept", "through").unique().iter_rows():
            cuts[workspace].append(DeleteFilter(through, _KINDS.get(RetentionClass(name))))
        return cuts

    def periods(self) -> dict[str, dict[Period, int]]:
        """Return by asset the number of rows that each partition loses."""
        counts = {}
        for name, asset, grain in self._assets():
            lost = self._expired[name].group_by("period").agg(pl.col("rows").sum()).sort("period")
            counts[asset] = {Period(grain, period): rows for period, rows in lost.iter_rows()}
        return counts

    def keys(self, name: str) -> list[str]:
        """Return the partitions of a table that lose rows."""
        return sorted(self._expired[name]["period"].unique())

    def note_in_ledger(self) -> None:
        """Record in the ledger how many rows remain, so that partial partitions do not count as complete."""
        remaining: dict[tuple[str, str], int] = {}
        for name, asset, _ in self._assets():
            total = self._counted[name].group_by("period").agg(pl.col("rows").sum().alias("total"))
            expired = self._expired[name].group_by("period").agg(pl.col("rows").sum())
            left = expired.join(total, on="period").select("period", pl.col("total") - pl.col("rows"))
            remaining |= {(asset, period): rows for period, rows in left.iter_rows()}
        self._lake.ledger.note_expired(remaining)

    def _assets(self) -> Iterable[tuple[str, str, Grain]]:
        yield "", MESSAGES_ASSET, Grain.WORKING
        yield "facts", table_asset(Grain.WORKING), Grain.WORKING
        for grain in SUMMARY_GRAINS:
            yield grain, table_asset(grain), grain

    def has_expired(self, rows: pa.Table, classes: pa.Array) -> pa.Array:
        """Return a mask of the expired rows, given the class of each."""
        limits = pa.array(
            [
                self.through.get((workspace, RetentionClass(name)), "")
                for workspace, name in zip(rows["workspace_id"].to_pylist(), classes.to_pylist(), strict=True)
            ],
            pa.string(),
        )
        return pc.less_equal(rows["period"].combine_chunks(), limits)


def class_of(rows: pa.Table, classes: tuple[RetentionClass, ...]) -> pa.Array:
    """Return the class of each row of a table that holds `classes`."""
    if len(classes) == 1:
        return pa.repeat(classes[0].value, rows.num_rows)
    names = {kind.value: name.value for name, kinds in _KINDS.items() for kind in kinds}
    kinds = rows["kind"].combine_chunks().dictionary_encode()
    return pa.array([names[kind] for kind in kinds.dictionary.to_pylist()], pa.string()).take(kinds.indices)


def _count(
    lake: Lake, latest: Mapping[RetentionClass, str], spec: TableSpec, classes: tuple[RetentionClass, ...], **fixed: str
) -> pl.DataFrame:
    """Count the rows of a table that holds `classes`, up to the last boundary of these, by agent, period and class."""
    through = max(latest.get(each, "") for each in classes)
    keys = [key for key in lake.tables.keys(spec, **fixed) if key <= through]
    columns = ["period", "workspace_id", "agent_id", *(["kind"] if spec is FACTS else [])]
    rows = lake.tables.read(spec, keys, columns=columns, shard=None, **fixed)
    frame = pl.DataFrame(pl.from_arrow(rows.append_column("kept", class_of(rows, classes))))
    return frame.group_by(_GROUP).agg(pl.len().cast(pl.Int64).alias("rows"))


def expire(
    lake: Lake, start: date, now: datetime, *, dry_run: bool = False, grace: timedelta = timedelta()
) -> Expiration:
    """Delete the rows that have expired as of `now` under the lake's configuration.

    Safe to repeat, to interrupt and to run concurrently. Replaced files stay for `grace`, for other programs that read
    the tables.

    Raises:
        ConfigurationError: the lake's configuration is invalid.
    """
    started = time.perf_counter()
    held = held_back(lake, start, now)
    inventory = Inventory(lake, held, now)
    expired = [inventory.of(expiry) for expiry in inventory.plan]
    # An earlier run may have been interrupted, or may have left files for its grace period.
    marks = ExpirationMarks.of(lake.tables)
    if dry_run or not (marks or any(each.rows for each in expired)):
        return Expiration(expired, seconds=time.perf_counter() - started)
    raise_marks(lake.tables, inventory.marks(), now)
    inventory.note_in_ledger()
    _drop_answers(lake, inventory)
    for grain in reversed(SUMMARY_GRAINS):
        lake.index.remove(grain, inventory.cuts(grain))
        _drop(lake, SUMMARIES, inventory, (RetentionClass(grain.value),), grain=grain.value)
    lake.index.remove(Grain.WORKING, inventory.cuts(Grain.WORKING))
    _drop(lake, FACTS, inventory, WORKING_CLASSES)
    _drop(lake, MESSAGES, inventory, (RetentionClass.CONVERSATIONS,))
    _expire_operations(lake, inventory)
    drop_expired_scopes(lake)
    changed = (MESSAGES, FACTS, SUMMARIES, ANSWERS, GRAPH_OPERATIONS, LEDGER, EXPIRATIONS)
    purged = [lake.tables.purge(spec, grace=grace) for spec in changed]
    return Expiration(
        expired,
        inventory.periods(),
        files=sum(each.files for each in purged),
        bytes=sum(each.bytes for each in purged),
        seconds=time.perf_counter() - started,
    )


def held_back(lake: Lake, start: date, now: datetime) -> dict[Grain, Period]:
    """Return, by grain, the first period that may not expire yet because it is pending or its parent is not current."""
    waiting: dict[Grain, list[Period]] = {}
    for grain in Grain:
        status = grain_status(lake, grain, start, now)
        waiting[grain] = [*status.pending, *status.open]
    held: dict[Grain, Period] = {}
    for grain in Grain:
        needed = list(waiting[grain])
        if grain.coarser is not None and waiting[grain.coarser]:
            parent = min(waiting[grain.coarser], key=lambda period: period.key)
            needed += lake.calendar.sources(parent)
        if needed and grain is not Grain.YEARLY:
            held[grain] = min(needed, key=lambda period: period.key)
    return held


def _drop(lake: Lake, spec: TableSpec, inventory: Inventory, classes: tuple[RetentionClass, ...], **fixed: str) -> None:
    name = fixed.get("grain") or ("facts" if spec is FACTS else "")
    keys = inventory.keys(name)
    if not keys:
        return

    def has_expired(rows: pa.Table) -> pa.Array:
        return inventory.has_expired(rows, class_of(rows, classes))

    columns = ["period", "workspace_id", *(["kind"] if spec is FACTS else [])]
    lake.tables.drop_rows(spec, keys, has_expired, columns, **fixed)


def _drop_answers(lake: Lake, inventory: Inventory) -> None:
    """Delete the stored model answers of expired periods. Their cost stays on record."""
    for grain in Grain:
        expiring = RetentionClass.FACTS if grain is Grain.WORKING else RetentionClass(grain.value)
        latest = max((through for (_, each), through in inventory.through.items() if each is expiring), default="")
        keys = [key for key in lake.tables.keys(ANSWERS, grain=grain.value) if key <= latest]
        if keys:
            lake.tables.drop_rows(
                ANSWERS,
                keys,
                lambda rows, name=expiring.value: inventory.has_expired(rows, pa.repeat(name, rows.num_rows)),  # type: ignore[misc]
                ["period", "workspace_id"],
                grain=grain.value,
            )


def _expire_operations(lake: Lake, inventory: Inventory) -> None:
    marks = ExpirationMarks.of(lake.tables)
    latest = marks.latest([RetentionClass.GRAPH])
    if not latest:
        return

    def has_expired(rows: pa.Table) -> pa.Array:
        return pa.array(marks.mask(rows, RetentionClass.GRAPH))

    columns = ["workspace_id", "agent_id", "period"]
    hours = inventory.keys("graph")
    if hours:
        lake.tables.drop_rows(GRAPH_OPERATIONS, hours, has_expired, columns)
    # An earlier run may have been interrupted here.
    projected = lake.operations.scan(columns, where=f"period <= {quoted(latest)}")
    synced = {*hours, *projected.filter(has_expired(projected))["period"].to_pylist()}
    scopes = {scope for scope in known_scopes(lake) if marks.through(scope, RetentionClass.GRAPH)}
    refold_graph(lake, scopes, sync_operations(lake, synced).changed)
    if synced:
        for projection in lake.projections.values():
            projection.purge(scopes)

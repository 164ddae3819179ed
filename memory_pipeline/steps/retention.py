"""Retention: plan which rows have expired, mark them, delete them and vacuum their files.

Nothing expires before its parent was computed from it (:func:`held_back`). Marks are written first, so that rows
deleted by an interrupted run do not count as pending. The index is changed before its table, since a repeated run reads
the table to find the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.retention import WORKING_CLASSES, Expiry, RetentionClass, plan_expiry
from memory_pipeline.lake.index.filters import listed, quoted
from memory_pipeline.lake.layout import PROJECTIONS
from memory_pipeline.lake.schemas import (
    ANSWERS,
    EXPIRATIONS,
    FACTS,
    GRAPH_OPERATIONS,
    LEDGER,
    MESSAGES,
    READ_RECEIPTS,
    SUMMARIES,
    table_of,
)
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MESSAGES_ASSET, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks, raise_marks
from memory_pipeline.steps.fold_graph import refold_graph, sync_operations
from memory_pipeline.steps.results import Expiration, Expired, ExpiredShare
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import drop_expired_scopes, known_scopes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from memory_pipeline.domain.retention import Retention
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


_KINDS = {
    RetentionClass.CONVERSATIONS: frozenset([FactKind.TURN]),
    RetentionClass.PREFERENCES: frozenset([FactKind.PREFERENCE, FactKind.INSTRUCTION]),
}
_KINDS[RetentionClass.FACTS] = (
    frozenset(FactKind) - _KINDS[RetentionClass.CONVERSATIONS] - _KINDS[RetentionClass.PREFERENCES]
)
#: The files of the search index.
_INDEX_FILES = f"{PROJECTIONS}/index"
_GROUP = ["workspace_id", "agent_id", "period", "kept"]


@dataclass(frozen=True, slots=True, eq=False)
class Expiring:
    """A table, or one grain of it, whose rows expire.

    Attributes:
        asset: of the rows; model answers expire with the rows that were made from them.
        classes: of the rows.
        grain: of the periods.
        fixed: the values of the other partition columns.
    """

    asset: str
    spec: TableSpec
    classes: tuple[RetentionClass, ...]
    grain: Grain = Grain.WORKING
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns that decide which rows have expired."""
        return ["period", "workspace_id", *(["kind"] if len(self.classes) > 1 else [])]

    def class_of(self, rows: pa.Table) -> pa.Array:
        """Return the class of each row."""
        if len(self.classes) == 1:
            return pa.repeat(self.classes[0].value, rows.num_rows)
        names = {kind.value: name.value for name, kinds in _KINDS.items() for kind in kinds}
        kinds = rows["kind"].combine_chunks().dictionary_encode()
        return pa.array([names[kind] for kind in kinds.dictionary.to_pylist()], pa.string()).take(kinds.indices)


_OF_MESSAGES = Expiring(MESSAGES_ASSET, MESSAGES, (RetentionClass.CONVERSATIONS,))
_OF_GRAIN = {
    grain: Expiring(
        table_asset(grain), spec, WORKING_CLASSES if spec is FACTS else (RetentionClass(grain.value),), grain, fixed
    )
    for grain in Grain
    for spec, fixed in [table_of(grain)]
}
_OF_GRAPH = Expiring(GRAPH_ASSET, GRAPH_OPERATIONS, (RetentionClass.GRAPH,))
_ROWS = (_OF_MESSAGES, *_OF_GRAIN.values(), _OF_GRAPH)
_ANSWERS = tuple(
    Expiring(
        each.asset, ANSWERS, (RetentionClass.FACTS,) if each.spec is FACTS else each.classes, grain, {"grain": grain}
    )
    for grain, each in _OF_GRAIN.items()
)


class Inventory:
    """The rows of all tables, counted by agent, period and class, and which of them have expired.

    With `retention`, those that would have if all workspaces had it.
    """

    def __init__(
        self, lake: Lake, held: Mapping[Grain, Period], now: datetime, retention: Retention | None = None
    ) -> None:
        self._lake = lake
        configuration = lake.configuration()
        configured = configuration.retentions()
        if retention is not None:
            configured = dict.fromkeys(configured, retention)
        # The workspaces are known only after reading, so read up to the last boundary of all.
        latest: dict[RetentionClass, str] = {}
        for expiry in plan_expiry(configured, {}, held, lake.calendar, now):
            latest[expiry.kept] = max(latest.get(expiry.kept, ""), expiry.through.key)
        self._counted = {each: _count(lake, latest, each) for each in (*_ROWS, *_ANSWERS)}
        workspaces = {name for each in _ROWS for name in self._counted[each]["workspace_id"].unique()}
        # Held-back periods of configured workspaces are reported even if nothing expires.
        retentions = configured | {name: retention or configuration.retention(name) for name in workspaces}
        before: dict[str, dict[RetentionClass, Period]] = defaultdict(dict)
        for scope, name, key in ExpirationMarks.of(lake.tables):
            retention_class, of_workspace = RetentionClass(name), before[scope.workspace_id]
            if retention_class not in of_workspace or of_workspace[retention_class].key < key:
                of_workspace[retention_class] = Period(retention_class.period_grain, key)
        self.plan = plan_expiry(retentions, before, held, lake.calendar, now)
        self._through = {(each.workspace_id, each.kept): each.through.key for each in self.plan}
        limits = pl.DataFrame(
            [(*key, through) for key, through in self._through.items()],
            schema={"workspace_id": pl.String, "kept": pl.String, "through": pl.String},
            orient="row",
        )
        self._expired = {
            each: counted.join(limits, on=["workspace_id", "kept"]).filter(pl.col("period") <= pl.col("through"))
            for each, counted in self._counted.items()
        }

    def of(self, expiry: Expiry) -> Expired:
        """Return the expired rows of a workspace and class."""
        rows = pl.concat(self._expired[each] for each in _ROWS).filter(
            (pl.col("workspace_id") == expiry.workspace_id) & (pl.col("kept") == expiry.kept.value)
        )
        if rows.is_empty():
            return Expired(expiry)
        first = Period(expiry.kept.period_grain, str(rows["period"].min()))
        return Expired(expiry, int(rows["rows"].sum()), rows["period"].n_unique(), rows["agent_id"].n_unique(), first)

    def of_asset(self, asset: str) -> pl.DataFrame:
        """Return the numbers (`rows`) of an asset's expired rows and answers, by agent, period and class (`kept`)."""
        return pl.concat(expired for each, expired in self._expired.items() if each.asset == asset)

    def marks(self) -> dict[tuple[str, str, RetentionClass], str]:
        """Return the expiry boundary of each agent and class with expired rows."""
        rows = pl.concat(self._expired[each] for each in _ROWS)
        expired = rows.select("workspace_id", "agent_id", "kept", "through").unique()
        return {
            (workspace, agent, RetentionClass(name)): through for workspace, agent, name, through in expired.iter_rows()
        }

    def periods(self) -> dict[str, dict[Period, int]]:
        """Return by asset the number of rows that each partition loses."""
        counts = {}
        for each in (_OF_MESSAGES, *_OF_GRAIN.values()):
            lost = self._expired[each].group_by("period").agg(pl.col("rows").sum()).sort("period")
            counts[each.asset] = {Period(each.grain, period): rows for period, rows in lost.iter_rows()}
        return counts

    def note_in_ledger(self) -> None:
        """Record in the ledger how many rows remain, so that partial partitions do not count as complete."""
        remaining: dict[tuple[str, str], int] = {}
        for each in (_OF_MESSAGES, *_OF_GRAIN.values()):
            total = self._counted[each].group_by("period").agg(pl.col("rows").sum().alias("total"))
            expired = self._expired[each].group_by("period").agg(pl.col("rows").sum())
            left = expired.join(total, on="period").select("period", pl.col("total") - pl.col("rows"))
            remaining |= {(each.asset, period): rows for period, rows in left.iter_rows()}
        self._lake.ledger.note_expired(remaining)

    def drop(self, each: Expiring) -> list[str]:
        """Delete the expired rows of a table, from the index first. Return the keys of their partitions."""
        if each in _OF_GRAIN.values():
            limited = ["workspace_id", "kept", "through"]
            cuts = [
                f"workspace_id = {quoted(workspace)} AND period <= {quoted(through)}"
                + (f" AND kind IN ({listed(kinds)})" if kinds else "")
                for workspace, name, through in self._expired[each].select(limited).unique().iter_rows()
                for kinds in [_KINDS.get(RetentionClass(name))]
            ]
            if cuts:
                for index in self._lake.indices.all():
                    index.delete(f"grain = '{each.grain}' AND (({') OR ('.join(cuts)}))")
        keys = sorted(self._expired[each]["period"].unique())
        if keys:
            self._lake.tables.drop_rows(each.spec, keys, partial(self._has_expired, each), each.columns, **each.fixed)
        return keys

    def kept(self, grain: Grain, columns: Sequence[str]) -> pa.Table:
        """Return the facts or summaries of a grain that have not expired."""
        each = _OF_GRAIN[grain]
        rows = self._lake.tables.read(each.spec, columns=[*{*columns, *each.columns}], shard=None, **each.fixed)
        return rows.filter(pc.invert(self._has_expired(each, rows)))

    def sizes(self) -> list[ExpiredShare]:
        """Return what expires of each table and workspace, coarse to fine, with its share of the files."""
        index = sum(file.size for file in self._lake.storage.list(PROJECTIONS) if file.path.startswith(_INDEX_FILES))
        indexed = sum(self._counts(each)[0] for each in _OF_GRAIN.values())
        found = []
        for each in (*reversed(_OF_GRAIN.values()), _OF_MESSAGES, _OF_GRAPH, *_ANSWERS):
            rows, size = self._counts(each)
            by_workspace = self._expired[each].group_by("workspace_id").agg(pl.col("rows").sum()).sort("workspace_id")
            for workspace_id, expired in by_workspace.iter_rows():
                found.append(ExpiredShare(each.spec.name, each.grain, workspace_id, expired, size * expired // rows))
                if each in _OF_GRAIN.values():
                    found.append(ExpiredShare("index", each.grain, workspace_id, expired, index * expired // indexed))
        return found

    def _counts(self, each: Expiring) -> tuple[int, int]:
        """Return the number of all rows of a table, and the size of its files in bytes."""
        tables = self._lake.tables
        return sum(tables.counts(each.spec, **each.fixed).values()), sum(tables.sizes(each.spec, **each.fixed).values())

    def _has_expired(self, each: Expiring, rows: pa.Table) -> pa.Array:
        names = zip(rows["workspace_id"].to_pylist(), each.class_of(rows).to_pylist(), strict=True)
        limits = [self._through.get((workspace, RetentionClass(name)), "") for workspace, name in names]
        return pc.less_equal(rows["period"].combine_chunks(), pa.array(limits, pa.string()))


def _count(lake: Lake, latest: Mapping[RetentionClass, str], each: Expiring) -> pl.DataFrame:
    """Count the rows of a table, up to the last boundary of its classes, by agent, period and class."""
    through = max(latest.get(kept, "") for kept in each.classes)
    keys = [key for key in lake.tables.keys(each.spec, **each.fixed) if key <= through]
    rows = lake.tables.read(each.spec, keys, columns=[*each.columns, "agent_id"], shard=None, **each.fixed)
    frame = pl.DataFrame(pl.from_arrow(rows.append_column("kept", each.class_of(rows))))
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
    # Coarse rows first: without its sources, a summary would look stale.
    for each in (*_ANSWERS, *reversed(_OF_GRAIN.values()), _OF_MESSAGES):
        inventory.drop(each)
    _expire_operations(lake, inventory)
    drop_expired_scopes(lake)
    lake.read_receipts.settle(now)
    lake.read_receipts.drop_expired_items()
    changed = (MESSAGES, FACTS, SUMMARIES, ANSWERS, GRAPH_OPERATIONS, LEDGER, EXPIRATIONS, READ_RECEIPTS)
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


def _expire_operations(lake: Lake, inventory: Inventory) -> None:
    marks = ExpirationMarks.of(lake.tables)
    latest = marks.latest([RetentionClass.GRAPH])
    if not latest:
        return

    def has_expired(rows: pa.Table) -> pa.Array:
        return pa.array(marks.mask(rows, RetentionClass.GRAPH))

    hours = inventory.drop(_OF_GRAPH)
    # An earlier run may have been interrupted here.
    projected = lake.operations.scan(["workspace_id", "agent_id", "period"], where=f"period <= {quoted(latest)}")
    synced = {*hours, *projected.filter(has_expired(projected))["period"].to_pylist()}
    scopes = {scope for scope in known_scopes(lake) if marks.through(scope, RetentionClass.GRAPH)}
    refold_graph(lake, scopes, sync_operations(lake, synced).changed)
    if synced:
        for projection in lake.projections.values():
            projection.purge(scopes)

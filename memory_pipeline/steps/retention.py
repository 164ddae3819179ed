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

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.retention import WORKING_CLASSES, Expiry, RetentionClass, plan_expiry
from memory_pipeline.lake.archived_rows import place_of, states_of
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
from memory_pipeline.steps.archiving import archive_rows
from memory_pipeline.steps.fold_graph import refold_graph, sync_operations
from memory_pipeline.steps.group import by_period
from memory_pipeline.steps.results import Expiration, Expired, ExpiredShare
from memory_pipeline.steps.retention_classes import KINDS, class_of
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import drop_expired_scopes, known_scopes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date, datetime

    from memory_pipeline.domain.retention import Retention
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


#: Rows of so many periods are archived at once.
_PERIODS_AT_ONCE = 100
#: The files of the search index.
_INDEX_FILES = f"{PROJECTIONS}/index"
_GROUP = ["workspace_id", "agent_id", "period", "kept", "is_restored"]


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

    @property
    def place(self) -> str:
        """The name of the rows in the archive."""
        return place_of(self.spec, self.grain)


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
        self._now = now
        self._restored = _restored(lake, now)
        self._saved: dict[str, pa.Array] = {}
        self._counted = {each: self._count(latest, each) for each in (*_ROWS, *_ANSWERS)}
        workspaces = {name for each in _ROWS for name in self._counted[each]["workspace_id"].unique()}
        # Held-back periods of configured workspaces are reported even if nothing expires.
        retentions = configured | {name: retention or configuration.retention(name) for name in workspaces}
        before: dict[str, dict[RetentionClass, Period]] = defaultdict(dict)
        for scope, name, key in ExpirationMarks.of(lake.tables):
            retention_class, of_workspace = RetentionClass(name), before[scope.workspace_id]
            if retention_class not in of_workspace or of_workspace[retention_class].key < key:
                of_workspace[retention_class] = Period(retention_class.period_grain, key)
        self.plan = plan_expiry(retentions, before, held, lake.calendar, now)
        self._archived = {(name, kept) for name in workspaces for kept in retentions[name].archived}
        self._through = {(each.workspace_id, each.kept): each.through.key for each in self.plan}
        limits = pl.DataFrame(
            [(*key, through) for key, through in self._through.items()],
            schema={"workspace_id": pl.String, "kept": pl.String, "through": pl.String},
            orient="row",
        )
        self._expired = {
            each: counted.join(limits, on=["workspace_id", "kept"])
            .filter((pl.col("period") <= pl.col("through")) & ~pl.col("is_restored"))
            .drop("is_restored")
            for each, counted in self._counted.items()
        }

    def of(self, expiry: Expiry) -> Expired:
        """Return the expired rows of a workspace and class."""
        rows = pl.concat(self._expired[each] for each in _ROWS).filter(
            (pl.col("workspace_id") == expiry.workspace_id) & (pl.col("kept") == expiry.kept.value)
        )
        is_archived = (expiry.workspace_id, expiry.kept) in self._archived
        if rows.is_empty():
            return Expired(expiry, is_archived=is_archived)
        first = Period(expiry.kept.period_grain, str(rows["period"].min()))
        return Expired(
            expiry, int(rows["rows"].sum()), rows["period"].n_unique(), rows["agent_id"].n_unique(), first, is_archived
        )

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

    def archive(self) -> None:
        """Add the expired rows that are to be archived to the archive. Only these rows of their classes are dropped.

        Raises:
            LakeError: an erasure is not finished.
        """

        def parts() -> Iterator[tuple[str, str, pa.Table]]:
            classes = pl.DataFrame(
                list(self._archived), schema={"workspace_id": pl.String, "kept": pl.String}, orient="row"
            )
            for each in (_OF_MESSAGES, *_OF_GRAIN.values()):
                keys = sorted(self._expired[each].join(classes, on=["workspace_id", "kept"])["period"].unique())
                for start in range(0, len(keys), _PERIODS_AT_ONCE):
                    some = keys[start : start + _PERIODS_AT_ONCE]
                    rows = self._lake.tables.read(each.spec, some, shard=None, **each.fixed)
                    rows = rows.filter(pc.and_(self._has_expired(each, rows), self._is_archived(each, rows)))
                    for period, own in by_period(rows, [Period(each.grain, key) for key in some]).items():
                        yield each.place, period.key, own

        if self._archived:
            # What arrives later, in any of these tables, is not dropped.
            nothing = pa.array([], pa.string())
            places = [each.place for each in (_OF_MESSAGES, *_OF_GRAIN.values())]
            self._saved = dict.fromkeys(places, nothing) | archive_rows(self._lake, parts())
            # A restore that began meanwhile noted its rows before it put them back.
            self._restored = _restored(self._lake, self._now)

    def drop(self, each: Expiring) -> list[str]:
        """Delete the expired rows of a table, from the index first. Return the keys of their partitions."""
        if each in _OF_GRAIN.values():
            limited = ["workspace_id", "kept", "through"]
            cuts = [
                f"workspace_id = {quoted(workspace)} AND period <= {quoted(through)}"
                + (f" AND kind IN ({listed(kinds)})" if kinds else "")
                for workspace, name, through in self._expired[each].select(limited).unique().iter_rows()
                for kinds in [KINDS.get(RetentionClass(name))]
            ]
            kept = [
                f" AND NOT (scope = {quoted(scope)} AND period IN ({listed(periods)}))"
                for scope, periods in self._restored_periods(each.place).items()
            ]
            if cuts:
                for index in self._lake.indices.all():
                    index.delete(f"grain = '{each.grain}' AND (({') OR ('.join(cuts)})){''.join(kept)}")
        keys = sorted(self._expired[each]["period"].unique())
        if keys:
            self._lake.tables.drop_rows(each.spec, keys, partial(self._goes, each), self._columns(each), **each.fixed)
        return keys

    def kept(self, grain: Grain, columns: Sequence[str]) -> pa.Table:
        """Return the facts or summaries of a grain that have not expired."""
        each = _OF_GRAIN[grain]
        rows = self._lake.tables.read(each.spec, columns=[*{*columns, *self._columns(each)}], shard=None, **each.fixed)
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

    def _columns(self, each: Expiring) -> list[str]:
        """Return the columns that decide which rows go."""
        found = [*each.columns, *(["scope"] if self._restored.get(each.place) else [])]
        if self._saved.get(each.place) is not None:
            found += ["id", "edits" if each.spec is MESSAGES else "digest"]
        return found

    def _goes(self, each: Expiring, rows: pa.Table) -> pa.Array:
        """Return which rows are dropped: of those to archive, only what is in the archive."""
        has_expired = self._has_expired(each, rows)
        saved = self._saved.get(each.place)
        if saved is None:
            return has_expired
        is_saved = pc.or_(pc.is_in(states_of(rows), saved), pc.invert(self._is_archived(each, rows)))
        return pc.and_(has_expired, is_saved)

    def _has_expired(self, each: Expiring, rows: pa.Table) -> pa.Array:
        names = zip(rows["workspace_id"].to_pylist(), class_of(each.classes, rows).to_pylist(), strict=True)
        limits = [self._through.get((workspace, RetentionClass(name)), "") for workspace, name in names]
        is_old = pc.less_equal(rows["period"].combine_chunks(), pa.array(limits, pa.string()))
        return pc.and_(is_old, pc.invert(self._is_restored(each, rows)))

    def _is_archived(self, each: Expiring, rows: pa.Table) -> pa.Array:
        names = zip(rows["workspace_id"].to_pylist(), class_of(each.classes, rows).to_pylist(), strict=True)
        return pa.array([(workspace, RetentionClass(name)) in self._archived for workspace, name in names], pa.bool_())

    def _is_restored(self, each: Expiring, rows: pa.Table) -> pa.Array:
        restored = self._restored.get(each.place)
        if not restored:
            return pa.repeat(pa.scalar(False), rows.num_rows)  # a value of the array
        names = zip(
            rows["scope"].to_pylist(), class_of(each.classes, rows).to_pylist(), rows["period"].to_pylist(), strict=True
        )
        return pa.array([name in restored for name in names], pa.bool_())

    def _restored_periods(self, place: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for scope, _, period in self._restored.get(place, ()):
            found[scope].add(period)
        return found

    def _count(self, latest: Mapping[RetentionClass, str], each: Expiring) -> pl.DataFrame:
        """Count the rows of a table, up to the last boundary of its classes, by agent, period and class."""
        tables, through = self._lake.tables, max(latest.get(kept, "") for kept in each.classes)
        keys = [key for key in tables.keys(each.spec, **each.fixed) if key <= through]
        columns = [*self._columns(each), "agent_id"]
        rows = tables.read(each.spec, keys, columns=columns, shard=None, **each.fixed)
        rows = rows.append_column("kept", class_of(each.classes, rows))
        frame = pl.DataFrame(pl.from_arrow(rows.append_column("is_restored", self._is_restored(each, rows))))
        return frame.group_by(_GROUP).agg(pl.len().cast(pl.Int64).alias("rows"))


def _restored(lake: Lake, now: datetime) -> dict[str, set[tuple[str, str, str]]]:
    """Return the scope, class and period of restored rows that are not to expire yet, by place."""
    found: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for _, rows in lake.archived.restored():
        for place, classes in rows.periods.items() if rows.until > now else ():
            found[place] |= {(rows.scope, kept, period) for kept, periods in classes.items() for period in periods}
    return found


def expire(
    lake: Lake, start: date, now: datetime, *, dry_run: bool = False, grace: timedelta = timedelta()
) -> Expiration:
    """Delete the rows that have expired as of `now` under the lake's configuration, or move them to the archive.

    Safe to repeat, to interrupt and to run concurrently. Replaced files stay for `grace`, for other programs that read
    the tables.

    Raises:
        ConfigurationError: the lake's configuration is invalid.
        LakeError: rows are to be archived, and an erasure is not finished.
    """
    started = time.perf_counter()
    held = held_back(lake, start, now)
    inventory = Inventory(lake, held, now)
    expired = [inventory.of(expiry) for expiry in inventory.plan]
    # An earlier run may have been interrupted, or may have left files for its grace period.
    marks = ExpirationMarks.of(lake.tables)
    if dry_run or not (marks or any(each.rows for each in expired)):
        return Expiration(expired, seconds=time.perf_counter() - started)
    inventory.archive()
    raise_marks(lake.tables, inventory.marks(), now)
    inventory.note_in_ledger()
    # Coarse rows first: without its sources, a summary would look stale.
    for each in (*_ANSWERS, *reversed(_OF_GRAIN.values()), _OF_MESSAGES):
        inventory.drop(each)
    _expire_operations(lake, inventory)
    drop_expired_scopes(lake)
    lake.archived.delete(path for path, rows in lake.archived.restored() if rows.until <= now)
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

"""Retention: plan which rows have expired, mark them, delete them and vacuum their files.

Nothing expires before its parent was computed from it (:func:`held_back`). The mark is written before the deletion, so
that rows deleted by an interrupted run are not taken for pending ones. The index is changed before its table, since the
table shows a repeated run what is left to do. Each table takes one or two commits, whatever the number of agents.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.retention import WORKING_CLASSES, Expiry, RetentionClass, plan_expiry
from memory_pipeline.lake.index.vector_index import DeleteFilter
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import (
    ANSWERS,
    EXPIRATIONS,
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    LEDGER,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks, raise_marks
from memory_pipeline.steps.fold import refold_graph
from memory_pipeline.steps.results import Expiration, Expired
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


#: The kinds of facts in each retention class of working memory.
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
        # Which workspaces exist is known only after reading, so read up to the farthest boundary of any workspace.
        reach: dict[RetentionClass, str] = {}
        for expiry in plan_expiry(configuration.retentions(), {}, held, lake.calendar, now):
            reach[expiry.kept] = max(reach.get(expiry.kept, ""), expiry.through.key)
        self._counted = {"": _count_working(lake, reach, MESSAGES), "facts": _count_working(lake, reach, FACTS)}
        for grain in SUMMARY_GRAINS:
            self._counted[grain] = _count_summaries(lake, reach, grain)
        self._counted["graph"] = _count_operations(lake, reach)
        workspaces = {name for counted in self._counted.values() for name in counted["workspace_id"].unique()}
        # Include all configured workspaces, and "" for the others: held-back periods are reported even if nothing
        # expires.
        retentions = configuration.retentions()
        retentions |= {workspace_id: configuration.retention(workspace_id) for workspace_id in workspaces}
        before: dict[str, dict[RetentionClass, Period]] = defaultdict(dict)
        for scope, name, key in ExpirationMarks.of(lake.tables):
            kept = RetentionClass(name)
            if kept not in before[scope.workspace_id] or before[scope.workspace_id][kept].key < key:
                before[scope.workspace_id][kept] = Period(kept.period_grain, key)
        self.plan = plan_expiry(retentions, before, held, lake.calendar, now)
        self.through = {(each.workspace_id, each.kept): each.through.key for each in self.plan}
        limits = pl.DataFrame(
            [(*key, through) for key, through in self.through.items()],
            schema={"workspace_id": pl.String, "kept": pl.String, "through": pl.String},
            orient="row",
        )
        self._going = {
            name: counted.join(limits, on=["workspace_id", "kept"]).filter(pl.col("period") <= pl.col("through"))
            for name, counted in self._counted.items()
        }

    def of(self, expiry: Expiry) -> Expired:
        """Return the expired rows of a workspace and class."""
        rows = pl.concat(self._going.values()).filter(
            (pl.col("workspace_id") == expiry.workspace_id) & (pl.col("kept") == expiry.kept.value)
        )
        if rows.is_empty():
            return Expired(expiry)
        first = Period(expiry.kept.period_grain, str(rows["period"].min()))
        return Expired(expiry, int(rows["rows"].sum()), rows["period"].n_unique(), rows["agent_id"].n_unique(), first)

    def marks(self) -> dict[tuple[str, str, RetentionClass], str]:
        """Return the expiry boundary of each agent and class with expired rows."""
        gone = pl.concat(self._going.values()).select("workspace_id", "agent_id", "kept", "through").unique()
        return {
            (workspace, agent, RetentionClass(kept)): through for workspace, agent, kept, through in gone.iter_rows()
        }

    def cuts(self, grain: Grain) -> dict[Scope, list[DeleteFilter]]:
        """Return the filters to delete from each agent's index table of a grain."""
        going = self._going["facts" if grain is Grain.WORKING else grain]
        cuts: dict[Scope, list[DeleteFilter]] = defaultdict(list)
        for workspace, agent, name, through in (
            going.select("workspace_id", "agent_id", "kept", "through").unique().iter_rows()
        ):
            kinds = _KINDS.get(RetentionClass(name))
            cuts[Scope(workspace, agent)].append(DeleteFilter(through, kinds))
        return cuts

    def periods(self) -> dict[str, dict[Period, int]]:
        """Return by asset the partitions that lose rows, and how many."""
        found = {}
        for name, asset, grain in self._assets():
            lost = self._going[name].group_by("period").agg(pl.col("rows").sum()).sort("period")
            found[asset] = {Period(grain, period): rows for period, rows in lost.iter_rows()}
        return found

    def keys(self, name: str) -> list[str]:
        """Return the partitions of a table that lose rows."""
        return sorted(self._going[name]["period"].unique())

    def owners(self) -> dict[Scope, str]:
        """Return the agents whose graph loses operations, and up to which hour."""
        gone = self._going["graph"].select("workspace_id", "agent_id", "through").unique()
        return {Scope(workspace, agent): through for workspace, agent, through in gone.iter_rows()}

    def note_in_ledger(self) -> None:
        """Record in the ledger how many rows have expired, so that partial partitions are not taken for complete."""
        remaining: dict[tuple[str, str], int] = {}
        for name, asset, _ in self._assets():
            total = self._counted[name].group_by("period").agg(pl.col("rows").sum().alias("total"))
            gone = self._going[name].group_by("period").agg(pl.col("rows").sum())
            left = gone.join(total, on="period").select("period", pl.col("total") - pl.col("rows"))
            remaining |= {(asset, period): rows for period, rows in left.iter_rows()}
        self._lake.ledger.note_expired(remaining)

    def _assets(self) -> Iterable[tuple[str, str, Grain]]:
        yield "", MESSAGES_ASSET, Grain.WORKING
        yield "facts", table_asset(Grain.WORKING), Grain.WORKING
        for grain in SUMMARY_GRAINS:
            yield grain, table_asset(grain), grain

    def is_gone(self, rows: pa.Table, kept: pa.Array) -> pa.Array:
        """Return a mask of the expired rows, given the class of each."""
        limits = pa.array(
            [
                self.through.get((workspace, RetentionClass(name)), "")
                for workspace, name in zip(rows["workspace_id"].to_pylist(), kept.to_pylist(), strict=True)
            ],
            pa.string(),
        )
        return pc.less_equal(rows["period"].combine_chunks(), limits)


def class_of(rows: pa.Table, classes: tuple[RetentionClass, ...]) -> pa.Array:
    """Return the class of each row of a table that holds `classes`."""
    if len(classes) == 1:
        return pa.repeat(classes[0].value, rows.num_rows)
    names = {kind.value: kept.value for kept, kinds in _KINDS.items() for kind in kinds}
    return pa.array([names[kind] for kind in rows["kind"].to_pylist()], pa.string())


def _counted(rows: pa.Table, kept: pl.Expr) -> pl.DataFrame:
    frame = pl.DataFrame(pl.from_arrow(rows)).with_columns(kept.alias("kept"))
    return frame.group_by(_GROUP).agg(pl.len().cast(pl.Int64).alias("rows"))


def _count_working(lake: Lake, reach: Mapping[RetentionClass, str], spec: TableSpec) -> pl.DataFrame:
    classes = WORKING_CLASSES if spec is FACTS else (RetentionClass.CONVERSATIONS,)
    through = max((reach.get(kept, "") for kept in classes), default="")
    keys = [key for key in lake.tables.keys(spec) if key <= through]
    columns = ["period", "workspace_id", "agent_id", *(["kind"] if spec is FACTS else [])]
    rows = lake.tables.read(spec, keys, columns=columns)
    if spec is MESSAGES:
        return _counted(rows, pl.lit(RetentionClass.CONVERSATIONS.value))
    names = {kind.value: kept.value for kept, kinds in _KINDS.items() for kind in kinds}
    return _counted(rows, pl.col("kind").replace_strict(names, return_dtype=pl.String))


def _count_summaries(lake: Lake, reach: Mapping[RetentionClass, str], grain: Grain) -> pl.DataFrame:
    kept = RetentionClass(grain.value)
    keys = [key for key in lake.tables.keys(SUMMARIES, grain=grain.value) if key <= reach.get(kept, "")]
    columns = ["period", "workspace_id", "agent_id"]
    return _counted(lake.tables.read(SUMMARIES, keys, columns=columns, grain=grain.value), pl.lit(kept.value))


def _count_operations(lake: Lake, reach: Mapping[RetentionClass, str]) -> pl.DataFrame:
    through = reach.get(RetentionClass.GRAPH, "")
    columns = ["period", "workspace_id", "agent_id"]
    keys: list[str] | None = None if through else []
    rows = lake.tables.read(GRAPH_OPERATIONS, keys, columns=columns, where=pc.field("period") <= through)
    return _counted(rows, pl.lit(RetentionClass.GRAPH.value))


def expire(
    lake: Lake, start: date, now: datetime, *, dry_run: bool = False, grace: timedelta = timedelta()
) -> Expiration:
    """Delete the rows that have expired as of `now` under the lake's configuration.

    Safe to repeat, to interrupt and to run beside writers, readers and other runs. Replaced files stay for `grace`, for
    other programs that read the tables; readers of this package need none.

    Raises:
        ConfigurationError: the lake's configuration is invalid.
    """
    started = time.perf_counter()
    held = held_back(lake, start, now)
    inventory = Inventory(lake, held, now)
    expired = [inventory.of(expiry) for expiry in inventory.plan]
    marks = ExpirationMarks.of(
        lake.tables
    )  # marks of an earlier run that was interrupted or kept files for its grace period
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
    _forget_operations(lake, inventory, marks)
    changed = (MESSAGES, FACTS, SUMMARIES, ANSWERS, GRAPH_OPERATIONS, GRAPH_FACTS, LEDGER, EXPIRATIONS)
    purged = [lake.tables.purge(spec, grace=grace) for spec in changed]
    return Expiration(
        expired,
        inventory.periods(),
        files=sum(each.files for each in purged),
        bytes=sum(each.bytes for each in purged),
        seconds=time.perf_counter() - started,
    )


def held_back(lake: Lake, start: date, now: datetime) -> dict[Grain, Period]:
    """Return, by grain, the first period that may not expire yet because its parent is not current.

    Pending periods are held back too, until their parent is computed from them.
    """
    waiting: dict[Grain, list[Period]] = {}
    for grain in Grain:
        status = grain_status(lake, grain, start, now)
        waiting[grain] = [*status.pending, *status.open]
    held: dict[Grain, Period] = {}
    for grain in Grain:
        own = list(waiting[grain])
        if grain.coarser is not None and waiting[grain.coarser]:
            parent = min(waiting[grain.coarser], key=lambda period: period.key)
            own += lake.calendar.children(parent)
        if own and grain is not Grain.YEARLY:
            held[grain] = min(own, key=lambda period: period.key)
    return held


def _drop(lake: Lake, spec: TableSpec, inventory: Inventory, classes: tuple[RetentionClass, ...], **fixed: str) -> None:
    name = fixed.get("grain") or ("facts" if spec is FACTS else "")
    keys = inventory.keys(name)
    if not keys:
        return

    def gone(rows: pa.Table) -> pa.Array:
        return inventory.is_gone(rows, class_of(rows, classes))

    columns = ["period", "workspace_id", *(["kind"] if spec is FACTS else [])]
    lake.tables.drop_rows(spec, keys, gone, columns, **fixed)


def _drop_answers(lake: Lake, inventory: Inventory) -> None:
    """Delete the stored model answers of expired periods. Their cost stays on record."""
    for grain in Grain:
        kept = RetentionClass.FACTS if grain is Grain.WORKING else RetentionClass(grain.value)
        reach = max((through for (_, each), through in inventory.through.items() if each is kept), default="")
        keys = [key for key in lake.tables.keys(ANSWERS, grain=grain.value) if key <= reach]
        if keys:
            lake.tables.drop_rows(
                ANSWERS,
                keys,
                lambda rows, kept=kept: inventory.is_gone(rows, pa.repeat(kept.value, rows.num_rows)),  # type: ignore[misc]
                ["period", "workspace_id"],
                grain=grain.value,
            )


def _forget_operations(lake: Lake, inventory: Inventory, marks: ExpirationMarks) -> None:
    """Delete expired operations of the graph, and refold the rest."""
    owners = {scope: through for scope, kept, through in marks if kept == RetentionClass.GRAPH} | inventory.owners()
    if not owners:
        return
    limits = {owner_of(scope): through for scope, through in owners.items()}
    before = GRAPH_OPERATIONS.schema.empty_table()

    def left(old: pa.Table) -> pa.Table:
        nonlocal before
        before = old
        through = pa.array([limits[owner] for owner in old["owner"].to_pylist()], pa.string())
        return old.filter(pc.greater(old["period"].combine_chunks(), through))

    result = lake.tables.transform(GRAPH_OPERATIONS, limits, left)
    refold_graph(lake, list(owners), before, result.rows)

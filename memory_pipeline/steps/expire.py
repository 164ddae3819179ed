"""Retention: what has expired is planned first, then marked, then deleted, so that its bytes leave the disk.

Nothing expires before its parent was made from it (:func:`held_back`). The mark comes before the deletion, so that an
interrupted run is repeated and never mistaken for memory that was not made; the index before its table, since the table
tells a repeated run what is left to do. Each table is changed in one or two commits, whatever the number of agents.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.retention import WORKING_CLASSES, Kept
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
from memory_pipeline.lake.tables.tombstones import Marks, raise_marks
from memory_pipeline.steps.graph import refold
from memory_pipeline.steps.made import Expiration
from memory_pipeline.steps.plan import grain_status
from memory_pipeline.steps.survey import Survey, class_of

if TYPE_CHECKING:
    from datetime import date, datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec


def expire(
    lake: Lake, start: date, now: datetime, *, dry_run: bool = False, grace: timedelta = timedelta()
) -> Expiration:
    """Delete what has expired as of `now` under the lake's configuration.

    Safe to repeat, to interrupt and to run beside writers, readers and other runs.

    Args:
        lake: where.
        start: first day of the memory.
        now: an aware time.
        dry_run: only say what would go.
        grace: how long files stay that were replaced, for other programs that read the tables; readers of this package
            need none.

    Raises:
        ConfigurationError: the lake's configuration is not accepted.
    """
    started = time.perf_counter()
    held = held_back(lake, start, now)
    survey = Survey(lake, held, now)
    expired = [survey.of(expiry) for expiry in survey.plan]
    marks = Marks.of(lake.tables)  # an earlier run may have been interrupted, or have left files for a while
    if dry_run or not (marks or any(each.rows for each in expired)):
        return Expiration(expired, seconds=time.perf_counter() - started)
    raise_marks(lake.tables, survey.marks(), now)
    survey.note_in_ledger()
    _drop_answers(lake, survey)
    for grain in reversed(SUMMARY_GRAINS):
        lake.index.remove(grain, survey.cuts(grain))
        _drop(lake, SUMMARIES, survey, (Kept(grain.value),), grain=grain.value)
    lake.index.remove(Grain.WORKING, survey.cuts(Grain.WORKING))
    _drop(lake, FACTS, survey, WORKING_CLASSES)
    _drop(lake, MESSAGES, survey, (Kept.CONVERSATIONS,))
    _forget_operations(lake, survey, marks)
    changed = (MESSAGES, FACTS, SUMMARIES, ANSWERS, GRAPH_OPERATIONS, GRAPH_FACTS, LEDGER, EXPIRATIONS)
    purged = [lake.tables.purge(spec, grace=grace) for spec in changed]
    return Expiration(
        expired,
        survey.periods(),
        files=sum(each.files for each in purged),
        bytes=sum(each.bytes for each in purged),
        seconds=time.perf_counter() - started,
    )


def held_back(lake: Lake, start: date, now: datetime) -> dict[Grain, Period]:
    """Return of each grain the first period that may not expire yet: its parent was not made from it as it is.

    What is pending itself is held, too: its parent is made from it once it is made.
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


def _drop(lake: Lake, spec: TableSpec, survey: Survey, classes: tuple[Kept, ...], **fixed: str) -> None:
    """Delete the rows of a table that have expired."""
    name = fixed.get("grain") or ("facts" if spec is FACTS else "")
    keys = survey.keys(name)
    if not keys:
        return

    def gone(rows: pa.Table) -> pa.Array:
        return survey.is_gone(rows, class_of(rows, classes))

    columns = ["period", "workspace_id", *(["kind"] if spec is FACTS else [])]
    lake.tables.drop_rows(spec, keys, gone, columns, **fixed)


def _drop_answers(lake: Lake, survey: Survey) -> None:
    """Delete what models answered about periods that have expired; what was spent on it stays known."""
    for grain in Grain:
        kept = Kept.FACTS if grain is Grain.WORKING else Kept(grain.value)
        reach = max((through for (_, each), through in survey.through.items() if each is kept), default="")
        keys = [key for key in lake.tables.keys(ANSWERS, grain=grain.value) if key <= reach]
        if keys:
            lake.tables.drop_rows(
                ANSWERS,
                keys,
                lambda rows, kept=kept: survey.is_gone(rows, pa.repeat(kept.value, rows.num_rows)),  # type: ignore[misc]
                ["period", "workspace_id"],
                grain=grain.value,
            )


def _forget_operations(lake: Lake, survey: Survey, marks: Marks) -> None:
    """Delete expired operations of the graph, and fold what is left."""
    owners = {scope: through for scope, kept, through in marks if kept == Kept.GRAPH} | survey.owners()
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
    refold(lake, list(owners), before, result.rows)

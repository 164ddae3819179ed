"""Process what is pending in one lake: all grains from fine to coarse, then consolidation, then the marts."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from memory_pipeline.domain.model_calls import Usage
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError, LakeError, PartitionsError
from memory_pipeline.lake.erasures import unfinished_erasures
from memory_pipeline.lake.tables.ledger import table_asset
from memory_pipeline.steps.consolidation.days import days_between, pending_days
from memory_pipeline.steps.promotion import Promotion, promote
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.results import RunResult
from memory_pipeline.steps.scheduling.planner import grain_status, periods_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.consolidation.report import ConsolidationReport

_Result = TypeVar("_Result")

_MOMENT = timedelta(microseconds=1)


class Runner(Protocol):
    """Runs the steps: directly, or as runs of Dagster. Errors of single partitions are returned, others raised."""

    def grain(self, grain: Grain, periods: list[Period]) -> tuple[RunResult, list[Exception]]:
        """Materialize periods of a grain."""
        ...

    def consolidation(self, days: Sequence[Period]) -> ConsolidationReport:
        """Consolidate durable memories as of the ends of days."""
        ...

    def marts(self) -> list[Exception]:
        """Build all marts."""
        ...


class DirectRunner:
    """Runs the steps in this process, without Dagster."""

    def __init__(self, lake: Lake, models: Models) -> None:
        self._lake = lake
        self._models = models

    def grain(self, grain: Grain, periods: list[Period]) -> tuple[RunResult, list[Exception]]:
        """Materialize periods of a grain."""
        from memory_pipeline.steps.materialize import materialize  # imports Polars, which an idle run does without

        parts, errors = [], list[Exception]()
        try:
            for part in materialize(self._lake, self._models, grain, periods):
                parts.append(part)  # noqa: PERF402  # the parts before an error count
        except PartitionsError as error:
            errors.append(error)
        rows = [part for part in parts if part.asset == table_asset(grain)]
        used = sum((part.usage for part in rows), Usage())
        usage = {"calls": used.calls, "tokens_in": used.tokens_in, "tokens_out": used.tokens_out}
        sums = {name: sum(getattr(part, name) for part in rows) for name in ("rows", "fallbacks", "unfinished")}
        refused = sum((part.refused for part in rows), Counter[str]())
        changed, expired = (sum(getattr(part, name) for part in parts) for name in ("changed", "expired"))
        cost = used.cost or 0.0
        done = RunResult(grain, periods, changed, **sums, **usage, cost_usd=cost, refused=refused, expired=expired)
        return done, errors

    def consolidation(self, days: Sequence[Period]) -> ConsolidationReport:
        """Consolidate durable memories as of the ends of days."""
        from memory_pipeline.steps.consolidation.consolidate import consolidate

        return consolidate(self._lake, self._models, days, self._lake.start)

    def marts(self) -> list[Exception]:
        """Build all marts."""
        from memory_pipeline.analytics import Warehouse, models_of

        try:
            list(Warehouse(self._lake).build_all([model.name for model in models_of("marts")]))
        except PartitionsError as error:
            return [error]
        return []


def run_all(
    lake: Lake,
    models: Models,
    now: datetime,
    between: tuple[datetime, datetime] | None = None,
    runner: Runner | None = None,
    *,
    builds_marts: bool = True,
) -> Iterator[Grain | RunResult | ConsolidationReport | Promotion]:
    """Process the periods that are pending as of `now`, or all closed periods that overlap `between`.

    An erasure that was interrupted is finished first. Unless `between` is given, expired short-term entries of sessions
    that were used then become durable memories.

    Yields the promotion if an entry was promoted or refused; each grain before it runs and its result afterwards; then
    the report of consolidation if a day was pending.

    Damaged or invalid partitions are skipped with the coarser ones above them. All others and the marts still run, and
    the first such error is raised at the end. Other errors are raised at once. Finished partitions stay. Without
    `builds_marts`, the marts stay stale until a run builds them.

    Raises:
        QualityError: rows of some partitions are invalid.
        DamagedError: some partitions or their sources cannot be read.
        UnexpectedError: the code fails on the input of some partitions.
        LakeError: the database of sessions cannot be reached, or an erasure cannot be finished.
        ConfigurationError: its address is not set.
    """
    runner = runner or DirectRunner(lake, models)
    errors: list[Exception] = []
    failed: set[Period] = set()

    def attempted(work: Callable[[], _Result]) -> Iterator[_Result]:
        try:
            yield work()
        except PartitionsError as error:
            errors.append(error)

    restore_projections(lake, models.embedder)
    lake.copy_manifest()
    yield from _prepared(lake, models, now, errors, promotes=between is None)
    with lake.tables.holding():  # a grain reads what the finer one wrote
        for grain in Grain:
            yield grain
            if between is None:
                periods = grain_status(lake, grain, lake.start, now).pending
            else:
                periods = periods_in(lake, grain, *between, now)
            above = {lake.calendar.ancestor(period, grain) for period in failed}
            periods = [period for period in periods if period not in above]
            result = RunResult(grain, periods, 0, 0)
            if periods:
                result, raised = runner.grain(grain, periods)
                failed |= {period for period in periods if any(period.key in _keys_of(error) for error in raised)}
                errors += raised
            yield result
    if between is None:
        days = pending_days(lake, lake.start, now)
    else:
        first, last = (lake.calendar.day_of(moment) for moment in (between[0], between[1] - _MOMENT))
        days = days_between(lake, first, last, now)
    if days:
        yield from attempted(lambda: runner.consolidation(days))
    list(attempted(lambda: lake.access_log.settle(now)))
    list(attempted(lambda: lake.read_receipts.settle(now)))
    list(attempted(lake.calls.settle))  # calls of readers, also where no period is due
    if builds_marts and _has_stale_marts(lake):
        errors += runner.marts()
    if errors:
        raise errors[0]


def _has_stale_marts(lake: Lake) -> bool:
    from memory_pipeline.analytics import stale_marts  # imports DuckDB

    return bool(stale_marts(lake))


def _prepared(
    lake: Lake, models: Models, now: datetime, errors: list[Exception], *, promotes: bool
) -> Iterator[Promotion]:
    """Finish interrupted erasures and corrections, then promote short-term entries.

    Errors are added to `errors`: all else can do without.
    """

    def finish(now: datetime) -> None:  # what it imports, imports Polars
        if unfinished_erasures(lake.storage, lake.tombstones):
            from memory_pipeline.erasure.forget import finish_erasures

            finish_erasures(lake, models, now)
        if lake.exists and lake.corrections.unfinished():
            from memory_pipeline.erasure.correct import finish_corrections

            finish_corrections(lake, models)

    preparations: list[Callable[[datetime], object]] = [finish]
    if promotes:
        preparations.append(partial(promote, lake))
    for prepare in preparations:
        try:
            done = prepare(now)
        except (LakeError, ConfigurationError) as error:
            errors.append(error)
        else:
            if isinstance(done, Promotion) and (done.promoted or done.refused):
                yield done


def _keys_of(error: Exception) -> Collection[str]:
    return error.keys if isinstance(error, PartitionsError) else ()

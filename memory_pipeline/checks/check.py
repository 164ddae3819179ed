"""The types of checks and their findings, and the scan that runs several checks in one pass over the files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from memory_pipeline.domain.identity import EVENT
from memory_pipeline.domain.periods import FIRST_YEAR, SUMMARY_GRAINS, Grain
from memory_pipeline.domain.scopes import SCOPE_COLUMNS
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import one_line, shown
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.files.disk import disk_error
from memory_pipeline.lake.schemas import (
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    IS_FACT,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    table_of,
)
from memory_pipeline.lake.tables.ledger import (
    CONSOLIDATION_ASSET,
    GRAPH_ASSET,
    MEMORIES_ASSET,
    MESSAGES_ASSET,
    table_asset,
)
from memory_pipeline.steps.retention import Inventory, held_back

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow.compute as pc

    from memory_pipeline.analytics import Warehouse
    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.tombstones import ExpirationMarks


#: Expired rows may stay this long, because `memory-pipeline expire` runs daily.
_RETENTION_GRACE = timedelta(days=1)
#: Compressed bytes of files read at once. In memory their columns take several times as much.
_PART_BYTES = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The location of an asset's rows.

    Attributes:
        what: the prefix of the rows' ids, if any.
        fixed: the values of all partition columns but the last.
        period: the column with a row's period. If it is empty, the rows have no period and are always checked.
    """

    asset: str
    what: str | None
    grain: Grain
    spec: TableSpec
    fixed: Mapping[str, str] = field(default_factory=dict)
    period: str = "period"

    @property
    def is_by_period(self) -> bool:
        """Whether each partition is a period. Partitions of durable memories are agents; projections have none."""
        return self.spec.partition_by[-1:] == ("period",)


MESSAGE_ROWS = Place(MESSAGES_ASSET, "message", Grain.WORKING, MESSAGES)
ROWS_OF_GRAIN = {grain: Place(table_asset(grain), grain.value, grain, *table_of(grain)) for grain in Grain}
FACT_ROWS = ROWS_OF_GRAIN[Grain.WORKING]
SUMMARY_ROWS = {grain: ROWS_OF_GRAIN[grain] for grain in SUMMARY_GRAINS}
GRAPH_ROWS = Place(GRAPH_ASSET, "graph", Grain.WORKING, GRAPH_FACTS, period="source_hour")
OPERATION_ROWS = Place(GRAPH_ASSET, None, Grain.WORKING, GRAPH_OPERATIONS)
MEMORY_ROWS = Place(MEMORIES_ASSET, None, Grain.WORKING, MEMORIES, period="")
EVENT_ROWS = Place(MEMORIES_ASSET, EVENT, Grain.WORKING, MEMORY_EVENTS)
CONSOLIDATION_ROWS = Place(CONSOLIDATION_ASSET, None, Grain.DAILY, CONSOLIDATION_EVENTS)
CHECKPOINT_ROWS = Place(CONSOLIDATION_ASSET, None, Grain.DAILY, CONSOLIDATION, period="")

PLACES = (
    MESSAGE_ROWS, *ROWS_OF_GRAIN.values(), GRAPH_ROWS, OPERATION_ROWS, MEMORY_ROWS, EVENT_ROWS, CONSOLIDATION_ROWS,
    CHECKPOINT_ROWS,
)  # fmt: skip


def parts_of(
    context: CheckContext,
    place: Place,
    columns: Collection[str],
    keys: Collection[str] | None = None,
    where: pc.Expression | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the checked rows of a place, some whole partitions at a time, by key; at least one part, maybe empty.

    `keys` replace the context's.
    """
    lake = context.lake
    if not place.spec.partition_by:
        yield _projected(context, place, columns)
        return
    sizes = lake.tables.sizes(place.spec, **place.fixed)
    selected = context.keys(place.grain) if keys is None and place.is_by_period else keys
    listed = sorted(sizes if selected is None else sizes.keys() & set(selected))
    for batch in [*batched(listed, sizes.__getitem__, _PART_BYTES)] or [[]]:
        rows = lake.tables.read(place.spec, batch, columns=columns, where=where, shard=None, **place.fixed)
        yield pl.DataFrame(pl.from_arrow(rows))


def _projected(context: CheckContext, place: Place, columns: Collection[str]) -> pl.DataFrame:
    """Return the checked rows of a projection."""
    names = [*columns, *({place.period} - {"", *columns})]
    frame = pl.DataFrame(pl.from_arrow(context.lake.projections[place.spec.name].scan(names, where=IS_FACT)))
    periods = context.keys(place.grain)
    return frame if periods is None or not place.period else frame.filter(pl.col(place.period).is_in(periods))


def scope_names(rows: pl.DataFrame, *columns: str) -> list[str]:
    """Return the names of offenders: the scope, then the given columns, as in ``acme/support 2024-01-15``."""
    count = len(SCOPE_COLUMNS)
    return [
        " ".join([str(scope_of(*values[:count])), *map(str, values[count:])])
        for values in rows.select(*SCOPE_COLUMNS, *columns).iter_rows()
    ]


SAMPLE = 5
#: Remedies of several checks.
RECOMPUTE = "recompute the partitions with `memory-pipeline repair` or `memory-pipeline run --from … --to …`"
CONSOLIDATE = "run `memory-pipeline consolidate`"
PENDING = "compute pending periods with `memory-pipeline run` (`memory-pipeline status` lists them)"
AGAIN = "run `memory-pipeline run`; if the check still fails, run `memory-pipeline repair`"


class Severity(StrEnum):
    """The severity of a failed check."""

    #: Memory is wrong or incomplete.
    ERROR = "error"
    #: Memory is correct, but needs attention.
    WARNING = "warning"


class CheckContext:
    """The lake, time and periods that checks share. Reads common data once and writes nothing.

    `now` is timezone-aware. `periods` may be of any grains; None checks everything. Checks without periods (such as
    budgets and the journal) always check everything.
    """

    def __init__(self, lake: Lake, now: datetime, periods: Iterable[Period] | None = None) -> None:
        self.lake = lake
        self.now = now
        self._keys: dict[Grain, list[str]] | None = None
        if periods is not None:
            self._keys = {grain: [] for grain in Grain}
            for period in sorted(set(periods), key=lambda period: period.key):
                self._keys[period.grain].append(period.key)

    def keys(self, grain: Grain) -> list[str] | None:
        """Return the sorted keys of the periods to check; None means all."""
        return None if self._keys is None else self._keys[grain]

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration of workspaces and agents."""
        return self.lake.configuration()

    @cached_property
    def marks(self) -> ExpirationMarks:
        """The last expired period of each workspace and retention class."""
        from memory_pipeline.lake.tables.tombstones import ExpirationMarks

        return ExpirationMarks.of(self.lake.tables)

    @cached_property
    def overdue(self) -> Inventory:
        """The rows that should have expired more than a day ago."""
        held = held_back(self.lake, date(FIRST_YEAR, 1, 1), self.now)
        return Inventory(self.lake, held, self.now - _RETENTION_GRACE)

    @cached_property
    def warehouse(self) -> Warehouse:
        """The models of ``dbt_like_sql`` over the lake."""
        from memory_pipeline.analytics import Warehouse

        return Warehouse(self.lake)


@dataclass(frozen=True, slots=True)
class Offences:
    """The rows, agents or periods that violate a check.

    Attributes:
        sample: names of the first :data:`SAMPLE` offenders: ids, scopes and periods, never message text.
        numbers: counts and measurements for plots.
    """

    count: int = 0
    sample: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], numbers: Mapping[str, float] | None = None) -> Offences:
        """Count offenders, given one name each."""
        listed = list(names)
        return cls(len(listed), tuple(listed[:SAMPLE]), numbers or {})


def total(_: CheckContext, seen: Sequence[Offences]) -> Offences:
    """Return the sum of the offenders and of the numbers of parts."""
    numbers: Counter[str] = Counter()
    for part in seen:
        numbers.update(part.numbers)
    sample = tuple(name for part in seen for name in part.sample)
    return Offences(sum(part.count for part in seen), sample[:SAMPLE], dict(numbers))


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A check that reads all rows of one place, in parts. Scans of the same place share one pass over its files.

    Attributes:
        see: returns a partial result for a frame of some whole partitions; offences, for :func:`total`.
        conclude: combines the partial results.
        keys: returns partition keys that replace those of the context; None means all.
    """

    place: Place
    columns: tuple[str, ...]
    see: Callable[[CheckContext, pl.DataFrame], Any]
    conclude: Callable[[CheckContext, list[Any]], Offences] = total
    keys: Callable[[CheckContext], list[str] | None] | None = None

    def partitions(self, context: CheckContext) -> tuple[str, ...] | None:
        """Return the partition keys that replace those of the context, or None."""
        keys = self.keys(context) if self.keys else None
        return None if keys is None else tuple(keys)


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A condition that an asset's rows must meet.

    Attributes:
        name: in snake_case; unique among the checks of the asset.
        blocks: whether a failure makes downstream assets wrong too. Dagster then skips them in the same run. Conditions
            on a single partition are enforced before it is written, by :mod:`memory_pipeline.steps.validation`.
        description: the condition, in one or two sentences.
        remedy: what to do if the check fails.
        run: a scan, or a function that returns the offenders.
    """

    name: str
    asset: str
    severity: Severity
    blocks: bool
    description: str
    remedy: str
    run: Scan | Callable[[CheckContext], Offences]

    def found(self, offences: Offences) -> Finding:
        """Return the finding for these offenders."""
        return Finding(self, offences.count == 0, offences.count, offences.sample, offences.numbers)

    def failed(self, error: Exception) -> Finding:
        """Return the finding of a check that raised an error. It counts as a failure: the rows may be wrong."""
        reason = str(disk_error(error) or f"{type(error).__name__}: {shown(one_line(error), 200)}")
        return Finding(self, passed=False, offenders=0, trouble=f"the check failed to run: {reason}")


def check(
    name: str,
    asset: str,
    remedy: str,
    *,
    severity: Severity = Severity.ERROR,
    blocks: bool = False,
    description: str = "",
    place: Place | None = None,
    columns: Iterable[str] = (),
    conclude: Callable[[CheckContext, list[Any]], Offences] = total,
    keys: Callable[[CheckContext], list[str] | None] | None = None,
) -> Callable[[Callable[..., Any]], Check]:
    """Make a check of a function that returns offenders, or, with a `place`, of the function that a :class:`Scan` sees.

    The docstring of the function is the description, unless one is given.
    """

    def made(run: Callable[..., Any]) -> Check:
        text = " ".join((description or run.__doc__ or "").split())
        scan = None if place is None else Scan(place, tuple(columns), run, conclude, keys)
        return Check(name, asset, severity, blocks, text, remedy, scan or run)

    return made


#: The remedy of a check that could not run.
_RERUN = "look for damage with `memory-pipeline repair --dry-run`, then run the check again"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        passed: whether the check ran and found no offenders.
        offenders, sample, numbers: as in :class:`Offences`.
        trouble: the reason why the check could not run, if any.
    """

    check: Check
    passed: bool
    offenders: int
    sample: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    trouble: str | None = None

    @property
    def remedy(self) -> str:
        """What to do about the finding."""
        return self.check.remedy if self.trouble is None else _RERUN

    @property
    def is_error(self) -> bool:
        """Whether memory is or may be wrong. A check that could not run counts, whatever its severity."""
        return not self.passed and (self.check.severity is Severity.ERROR or self.trouble is not None)


#: Attempts of a check if retention or a removal deletes a file while the check reads it.
_ATTEMPTS = 3


def run_checks(context: CheckContext, checks: Iterable[Check]) -> Iterator[Finding]:
    """Yield the findings in the order of the checks.

    A check that raises an error has failed; the others still run. Checks that scan the same rows share one pass over
    the files, because opening files takes most of the time.
    """
    listed = list(checks)
    found: dict[Check, Finding] = {}
    with context.lake.tables.holding():
        for check in listed:
            if check not in found:
                if isinstance(check.run, Scan):
                    found |= _scan(context, _sharing(context, check.run, (one for one in listed if one not in found)))
                else:
                    found[check] = _run(context, check, check.run)
            yield found[check]


def _run(context: CheckContext, check: Check, run: Callable[[CheckContext], Offences]) -> Finding:
    error: Exception
    for _ in range(_ATTEMPTS):
        try:
            return check.found(run(context))
        except FileNotFoundError as gone:
            error = gone
        # A fault that another check reports, such as a column of the wrong type, may make this one raise.
        except Exception as other:  # noqa: BLE001
            return check.failed(other)
    return check.failed(error)


def _sharing(context: CheckContext, scan: Scan, checks: Iterable[Check]) -> dict[Check, Scan]:
    keys = scan.partitions(context)
    return {
        check: check.run
        for check in checks
        if isinstance(check.run, Scan) and check.run.place is scan.place and check.run.partitions(context) == keys
    }


def _scan(context: CheckContext, scans: dict[Check, Scan]) -> dict[Check, Finding]:
    first = next(iter(scans.values()))
    columns = {column for scan in scans.values() for column in scan.columns}
    seen: dict[Check, list[Any]] = {check: [] for check in scans}
    found: dict[Check, Finding] = {}
    try:
        for part in parts_of(context, first.place, columns, first.partitions(context)):
            for check, scan in scans.items():
                if check not in found:
                    try:
                        seen[check].append(scan.see(context, part.select(scan.columns)))
                    except Exception as error:  # noqa: BLE001
                        found[check] = check.failed(error)
    except Exception as error:  # noqa: BLE001
        if len(scans) == 1:
            return {check: check.failed(error) for check in scans}
        # One of the columns cannot be read. Scan again, one check at a time: most do not need that column.
        return {check: found for one, scan in scans.items() for check, found in _scan(context, {one: scan}).items()}
    for check, scan in scans.items():
        if check not in found:
            found[check] = _run(context, check, lambda _, scan=scan, check=check: scan.conclude(context, seen[check]))  # type: ignore[misc]
    return found

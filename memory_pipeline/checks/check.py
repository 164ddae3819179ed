"""Checks: what a check is, where rows are found, how they are scanned, and what a finding is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import polars as pl

from memory_pipeline.domain.identity import EVENT
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.errors import shown
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_FACTS,
    GRAPH_OPERATIONS,
    MEMORIES,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
    UPKEEP,
    UPKEEP_EVENTS,
)
from memory_pipeline.lake.tables.ledger import GRAPH_ASSET, MEMORIES_ASSET, MESSAGES_ASSET, table_asset
from memory_pipeline.steps.consolidation.days import UPKEEP_ASSET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow.compute as pc

    from memory_pipeline.analytics import Warehouse
    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.tombstones import ExpirationMarks


# Where the rows of an asset lie, and how checks read them: whole partitions, as many at a time as fit in memory.


#: Files of so many bytes are read at once; compressed, so their columns take several times as much.
_PART_BYTES = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where rows lie.

    Attributes:
        asset: the asset that holds them.
        what: what their ids begin with; None where ids say nothing.
        grain: of the periods that they lie in.
        spec: the table.
        fixed: the values of its partition columns before the last.
        period: the column that names a row's period; empty where rows are of none, and are always looked at.
    """

    asset: str
    what: str | None
    grain: Grain
    spec: TableSpec
    fixed: Mapping[str, str] = field(default_factory=dict)
    period: str = "period"

    @property
    def is_by_period(self) -> bool:
        """Tell whether a partition is a period; those of the graph and of durable memories are agents."""
        return self.spec.partition_by[-1] == "period"


SAID = Place(MESSAGES_ASSET, "message", Grain.WORKING, MESSAGES)
FOUND = Place(table_asset(Grain.WORKING), "working", Grain.WORKING, FACTS)
SUMMARIZED = {
    grain: Place(table_asset(grain), grain.value, grain, SUMMARIES, {"grain": grain.value}) for grain in SUMMARY_GRAINS
}
KNOWN = Place(GRAPH_ASSET, "graph", Grain.WORKING, GRAPH_FACTS, period="source_hour")
OPERATIONS = Place(GRAPH_ASSET, None, Grain.WORKING, GRAPH_OPERATIONS)
#: Durable memories, what they are folded from, what their upkeep decided, and how far it has come.
DURABLE = Place(MEMORIES_ASSET, None, Grain.WORKING, MEMORIES, period="")
HAPPENED = Place(MEMORIES_ASSET, EVENT, Grain.WORKING, MEMORY_EVENTS)
DECIDED = Place(UPKEEP_ASSET, None, Grain.DAILY, UPKEEP_EVENTS, period="night")
KEPT_UP = Place(UPKEEP_ASSET, None, Grain.DAILY, UPKEEP, period="")

#: The rows that a grain consists of.
REMEMBERED = {Grain.WORKING: FOUND, **SUMMARIZED}


def parts_of(
    context: CheckContext,
    place: Place,
    columns: Collection[str],
    keys: Collection[str] | None = None,
    where: pc.Expression | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows at a place that are looked at, some whole partitions at a time, in the partitions' order.

    Args:
        context: says which periods are looked at.
        place: where.
        columns: those that are wanted.
        keys: partitions to read instead of those that are looked at.
        where: a condition on the rows.
    """
    lake = context.lake
    sizes = lake.tables.sizes(place.spec, **place.fixed)
    wanted = context.keys(place.grain) if keys is None and place.is_by_period else keys
    present = sorted(sizes if wanted is None else sizes.keys() & set(wanted))
    own = {place.period} - {""} if keys is None and not place.is_by_period else set()
    names = {*columns, *own}
    batch: list[str] = []
    size = 0
    for key in present:
        batch.append(key)
        size += sizes[key]
        if size >= _PART_BYTES:
            yield _frame(context, place, batch, names, where)
            batch, size = [], 0
    if batch:
        yield _frame(context, place, batch, names, where)


def _frame(
    context: CheckContext, place: Place, keys: list[str], columns: Collection[str], where: pc.Expression | None
) -> pl.DataFrame:
    rows = context.lake.tables.read(place.spec, keys, columns=columns, where=where, **place.fixed)
    frame = pl.DataFrame(pl.from_arrow(rows))
    periods = context.keys(place.grain)
    if periods is not None and not place.is_by_period and place.period in columns:
        frame = frame.filter(pl.col(place.period).is_in(periods))
    return frame


def agent_names(rows: pl.DataFrame, *columns: str) -> list[str]:
    """Return how offenders are named: ``acme/support 2024-01-15``; the named columns follow the agent."""
    return [
        " ".join([f"{workspace_id}/{agent_id}", *map(str, rest)])
        for workspace_id, agent_id, *rest in rows.select("workspace_id", "agent_id", *columns).iter_rows()
    ]


#: How many offenders are named.
SAMPLE = 5


class Severity(StrEnum):
    """How bad a finding is."""

    #: Memory is wrong, or has a hole.
    ERROR = "error"
    #: Memory is right, and somebody should look.
    WARNING = "warning"


class CheckContext:
    """One look at a lake: what checks have in common, read once.

    Args:
        lake: what is looked at; nothing is written.
        now: as of when; aware.
        periods: look at these alone, of whatever grains; None looks at everything. Checks that know no periods (of
            budgets, of the journal) look at everything anyway.
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
        """Return the names of the periods of a grain that are looked at, sorted; None for all that there are."""
        return None if self._keys is None else self._keys[grain]

    @cached_property
    def configuration(self) -> Configuration:
        """What is set for workspaces and agents."""
        return self.lake.configuration()

    @cached_property
    def marks(self) -> ExpirationMarks:
        """Up to where memory has expired."""
        from memory_pipeline.lake.tables.tombstones import ExpirationMarks

        return ExpirationMarks.of(self.lake.tables)

    @cached_property
    def warehouse(self) -> Warehouse:
        """The models of ``dbt_like_sql`` over the lake."""
        from memory_pipeline.analytics import Warehouse

        return Warehouse(self.lake)


@dataclass(frozen=True, slots=True)
class Offences:
    """What a check found.

    Attributes:
        count: how many offenders there are; 0 where all is well.
        sample: some of them, the first :data:`SAMPLE`: ids, agents and periods, never anything that was said.
        numbers: what was counted and measured, for plots.
    """

    count: int = 0
    sample: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], numbers: Mapping[str, float] | None = None) -> Offences:
        """Count offenders that are named one by one."""
        listed = list(names)
        return cls(len(listed), tuple(listed[:SAMPLE]), numbers or {})


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A look at all rows of one place, part by part; checks that scan the same place share one pass over its files.

    Attributes:
        place: where the rows lie.
        columns: those that are wanted.
        see: gets some whole partitions, and returns what is to be known of them.
        conclude: gets all that was seen.
        keys: the partitions to look at, where they are not those of the look; None for all.
    """

    place: Place
    columns: tuple[str, ...]
    see: Callable[[CheckContext, pl.DataFrame], Any]
    conclude: Callable[[CheckContext, list[Any]], Offences]
    keys: Callable[[CheckContext], list[str] | None] | None = None

    def partitions(self, context: CheckContext) -> tuple[str, ...] | None:
        """Return the partitions to look at, if they are not those of the look, or not all of these."""
        keys = self.keys(context) if self.keys else None
        return None if keys is None else tuple(keys)


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Something that must hold for what an asset holds.

    Attributes:
        name: in snake_case; unique among the checks of the asset.
        asset: the asset's name, as in Dagster.
        severity: how bad it is if it does not hold.
        blocks: whether what is made from the asset is wrong too if it does not hold. Dagster then makes nothing from it
            in the same run. The step that makes a partition refuses by itself what can be told from the partition:
            :mod:`memory_pipeline.steps.validation`.
        description: what holds, in one sentence or two.
        remedy: what to do where it does not.
        run: looks.
    """

    name: str
    asset: str
    severity: Severity
    blocks: bool
    description: str
    remedy: str
    run: Scan | Callable[[CheckContext], Offences]

    def found(self, offences: Offences) -> Finding:
        """Return what it found."""
        return Finding(self, offences.count == 0, offences.count, offences.sample, offences.numbers)

    def failed(self, error: Exception) -> Finding:
        """Return that it could not be run. That counts as a failure: what is not known to be right may be wrong."""
        reason = f"{type(error).__name__}: {shown(str(error).partition(chr(10))[0], 200)}"
        return Finding(self, passed=False, offenders=0, trouble=f"it cannot be run; {reason}")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: which.
        passed: whether all is well.
        offenders, sample, numbers: as in :class:`Offences`.
        trouble: why the check could not be run, if it could not.
    """

    check: Check
    passed: bool
    offenders: int
    sample: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    trouble: str | None = None

    @property
    def is_error(self) -> bool:
        """Tell whether memory is wrong, or may be: a check of whatever severity that could not be run counts too."""
        return not self.passed and (self.check.severity is Severity.ERROR or self.trouble is not None)


# Runs checks: those that scan the same rows in one pass over the files, since opening files is what takes the time.


#: How often a check is begun again because retention or a removal took away what it was reading.
_ATTEMPTS = 3


def run_checks(context: CheckContext, checks: Iterable[Check]) -> Iterator[Finding]:
    """Yield what checks find, in their order. One that cannot be run has failed, and keeps no other from being run."""
    listed = list(checks)
    found: dict[Check, Finding] = {}
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
        # What another check finds wrong, a column of another type, say, may keep this one from being run.
        except Exception as other:  # noqa: BLE001
            return check.failed(other)
    return check.failed(error)


def _sharing(context: CheckContext, scan: Scan, checks: Iterable[Check]) -> dict[Check, Scan]:
    """Return the checks that scan the same partitions of the same place."""
    keys = scan.partitions(context)
    return {
        check: check.run
        for check in checks
        if isinstance(check.run, Scan) and check.run.place is scan.place and check.run.partitions(context) == keys
    }


def _scan(context: CheckContext, scans: dict[Check, Scan]) -> dict[Check, Finding]:
    """Scan one place for several checks."""
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
        # A column that one of them wants cannot be read; the others do without it.
        return {check: found for one, scan in scans.items() for check, found in _scan(context, {one: scan}).items()}
    for check, scan in scans.items():
        if check not in found:
            found[check] = _run(context, check, partial(_conclude, scan, seen[check]))
    return found


def _conclude(scan: Scan, seen: list[Any], context: CheckContext) -> Offences:
    return scan.conclude(context, seen)

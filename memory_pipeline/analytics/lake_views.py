"""The sources of SQL models: the lake's tables, and small tables that are derived without reading rows.

Tables that are partitioned by period can be read by the month. A month consists of the partitions that determine its
rows: its days and their hours, the summaries of periods that begin in it, and the finer summaries that these come from,
wherever they begin.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from memory_pipeline.domain.identity import NOTHING, digest, digest_of_all
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.retention import FOREVER, Unit
from memory_pipeline.lake.schemas import (
    FACTS,
    GRAPH_FACTS,
    IS_FACT,
    MEMORIES,
    MESSAGES,
    MODEL_CALLS,
    SCOPES,
    SUMMARIES,
    TABLES,
)
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from memory_pipeline.domain.retention import Duration
    from memory_pipeline.lake import Lake

_TIME = pa.timestamp("us", tz="UTC")
_PERIODS = pa.schema(
    {
        "grain": pa.string(),
        "period": pa.string(),
        "parent": pa.string(),
        "month": pa.string(),
        "starts_at": _TIME,
        "ends_at": _TIME,
        "ends_on": pa.date32(),
        "closes_at": _TIME,
    }
)
_FILES = pa.schema({"asset": pa.string(), "period": pa.string(), "bytes": pa.int64()})
_RETENTION = pa.schema(
    {
        "workspace_id": pa.string(),
        "kept": pa.string(),
        "duration": pa.string(),
        "hours": pa.int64(),
        "days": pa.int64(),
        "months": pa.int64(),
    }
)

SOURCES: Mapping[str, pa.Schema] = {
    **{name: spec.schema for name, spec in TABLES.items()},
    GRAPH_FACTS.name: GRAPH_FACTS.schema,
    MEMORIES.name: MEMORIES.schema,
    SCOPES.name: SCOPES.schema,
    **{f"archived_{spec.name}": spec.schema for spec in (MESSAGES, FACTS, SUMMARIES)},
    "periods": _PERIODS,
    "files": _FILES,
    "retention": _RETENTION,
}
#: The sources that are rows of the archive, by name.
_ARCHIVED = {f"archived_{spec.name}": spec for spec in (MESSAGES, FACTS, SUMMARIES)}
#: The sources that are tables by scope, with the condition on the rows to read.
PROJECTED = {GRAPH_FACTS.name: IS_FACT, MEMORIES.name: IS_FACT, SCOPES.name: None}
#: The sources that incremental marts may read, since they can be read by the month.
MONTHLY = frozenset([MESSAGES.name, FACTS.name, SUMMARIES.name, MODEL_CALLS.name, "periods"])
#: The tables that define which periods exist.
_OF_PERIODS = (MESSAGES.name, FACTS.name, SUMMARIES.name)
#: Sources that are derived from the names and sizes of other tables' partitions.
DERIVED: Mapping[str, tuple[str, ...]] = {"periods": _OF_PERIODS, "files": _OF_PERIODS}
_DAYS = {Unit.DAYS: 1, Unit.WEEKS: 7}
_MONTHS = {Unit.MONTHS: 1, Unit.QUARTERS: 3, Unit.YEARS: 12}


class LakeViews:
    """The tables of a lake. Each is opened once, so that many queries see the same version."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._versions: dict[str, int] = {}
        self._tables: dict[str, tuple[ds.Dataset, dict[str, dict[str, str]]]] = {}
        self._by_month: dict[str, dict[str, set[str]]] = {}
        self._facts_of: dict[Period, dict[str, object]] = {}
        self._projected: dict[str, pa.Table] = {}

    def version(self, name: str) -> int:
        """Return a version of a table that is at most as new as the rows that are read; -1 if it was never written.

        That of a table by scope is a digest.
        """
        if name not in self._versions and name in PROJECTED:
            self._versions[name] = int(digest(self._lake.projections[name].manifests()), 16)
        elif name not in self._versions:
            self._versions[name] = self._lake.tables.version(TABLES[name])
        return self._versions[name]

    def read(self, name: str, months: Collection[str] | None = None) -> ds.Dataset | pa.Table:
        """Return a table of :data:`SOURCES`, or some months of it, such as 2024-01, if it is in :data:`MONTHLY`."""
        if name == "periods":
            return self._periods(months)
        if name == "files":
            return self._files()
        if name == "retention":
            return self.retention
        if name in PROJECTED:
            return self._of_projection(name)
        if name in _ARCHIVED:
            return self._lake.archived.dataset(_ARCHIVED[name])
        return _part(self._open(name)[0], None if months is None else self._paths(name, months))

    def months(self, names: Collection[str]) -> dict[str, str]:
        """Return a digest of the sources of each month of tables in :data:`MONTHLY`. Reads no rows."""
        paths: dict[str, set[str]] = defaultdict(set)
        for name in names:
            if name != "periods":  # derived from the other tables
                for month, found in self._monthly(name).items():
                    paths[month] |= found
        return {month: digest_of_all(found) for month, found in sorted(paths.items())}

    def state(self, name: str) -> str:
        """Return a digest that changes whenever the rows of a table change. Reads few rows or none."""
        if name in DERIVED:
            return digest_of_all(path for table in DERIVED[name] for path in self._open(table)[1])
        if name in TABLES:
            return digest_of_all(self._open(name)[1])
        if name in _ARCHIVED:
            return digest_of_all(file.path for file in self._lake.archived.files() if file.spec is _ARCHIVED[name])
        if name in PROJECTED:
            return digest_of_all(self._lake.projections[name].scan(("digest",), PROJECTED[name])["digest"].to_pylist())
        rows = self.read(name)
        return digest(*rows.to_pylist()) if isinstance(rows, pa.Table) else NOTHING

    @cached_property
    def retention(self) -> pa.Table:
        """The configured retention, by workspace and class."""
        rows = [
            {"workspace_id": workspace_id, "kept": kept.value, **_duration(duration)}
            for workspace_id, retention in self._lake.configuration().retentions().items()
            for kept, duration in retention.durations.items()
        ]
        return pa.Table.from_pylist(rows, schema=_RETENTION)

    def _of_projection(self, name: str) -> pa.Table:
        if name not in self._projected:
            self._projected[name] = self._lake.projections[name].scan(where=PROJECTED[name])
        return self._projected[name]

    def _open(self, name: str) -> tuple[ds.Dataset, dict[str, dict[str, str]]]:
        """Return a table's dataset, and the partition of each file by path."""
        if name not in self._tables:
            self.version(name)  # pinned first: the rows may be newer than this version, never older
            dataset = self._lake.tables.dataset(TABLES[name])
            files = {file.path: ds.get_partition_keys(file.partition_expression) for file in _files(dataset)}
            self._tables[name] = dataset, files
        return self._tables[name]

    def _paths(self, name: str, months: Collection[str]) -> set[str]:
        monthly = self._monthly(name)
        return {path for month in months for path in monthly.get(month, ())}

    def _monthly(self, name: str) -> dict[str, set[str]]:
        if name not in self._by_month:
            found: dict[str, set[str]] = defaultdict(set)
            for path, keys in self._open(name)[1].items():
                for month in self._months_of(name, keys):
                    found[month].add(path)
            self._by_month[name] = found
        return self._by_month[name]

    def _months_of(self, name: str, keys: Mapping[str, str]) -> set[str]:
        if name == MODEL_CALLS.name:
            return {keys["hour"][: len("2024-01")]}
        period = Period(Grain(keys.get("grain", Grain.WORKING)), keys["period"])
        described = self._described(period)
        parent = described["parent"]
        if period.grain is Grain.WORKING or parent is None:
            return {str(described["month"])}
        return {str(described["month"]), str(self._described(Period(_coarser(period.grain), str(parent)))["month"])}

    def _described(self, period: Period) -> dict[str, object]:
        if period not in self._facts_of:
            calendar = self._lake.calendar
            parent = calendar.parent(period)
            first = parent if period.grain is Grain.WORKING and parent else period
            starts_at, ends_at = calendar.bounds(period)
            self._facts_of[period] = {
                "grain": period.grain.value,
                "period": period.key,
                "parent": parent.key if parent else None,
                "month": f"{first.first_day:%Y-%m}",
                "starts_at": starts_at,
                "ends_at": ends_at,
                "ends_on": calendar.day_of(ends_at) if period.grain is Grain.WORKING else period.end_day,
                "closes_at": calendar.closes_at(period),
            }
        return self._facts_of[period]

    def _periods(self, months: Collection[str] | None) -> pa.Table:
        found: dict[Period, None] = {}
        for name in _OF_PERIODS:
            files = self._open(name)[1]
            for path in files if months is None else self._paths(name, months):
                keys = files[path]
                period: Period | None = Period(Grain(keys.get("grain", Grain.WORKING)), keys["period"])
                while period is not None and period not in found:
                    found[period] = None
                    period = self._lake.calendar.parent(period)
        rows = [self._described(period) for period in sorted(found, key=lambda each: (each.grain.rank, each.key))]
        return pa.Table.from_pylist(rows, schema=_PERIODS)

    def _files(self) -> pa.Table:
        tables = self._lake.tables
        sizes = {MESSAGES_ASSET: tables.sizes(MESSAGES), table_asset(Grain.WORKING): tables.sizes(FACTS)}
        sizes |= {table_asset(grain): tables.sizes(SUMMARIES, grain=grain.value) for grain in SUMMARY_GRAINS}
        rows = [
            {"asset": asset, "period": period, "bytes": size}
            for asset, of in sizes.items()
            for period, size in sorted(of.items())
        ]
        return pa.Table.from_pylist(rows, schema=_FILES)


def _coarser(grain: Grain) -> Grain:
    coarser = grain.coarser
    return grain if coarser is None else coarser


def _duration(duration: Duration | None) -> dict[str, object]:
    if duration is None:
        return {"duration": FOREVER}
    count, unit = duration.count, duration.unit
    return {
        "duration": str(duration),
        "hours": count if unit is Unit.HOURS else None,
        "days": count * _DAYS[unit] if unit in _DAYS else None,
        "months": count * _MONTHS[unit] if unit in _MONTHS else None,
    }


def _files(dataset: ds.Dataset) -> Iterator[ds.Fragment]:
    if isinstance(dataset, ds.FileSystemDataset):
        yield from dataset.get_fragments()


def _part(dataset: ds.Dataset, paths: Collection[str] | None) -> ds.Dataset:
    """Return a new dataset of some files, or of all.

    A dataset keeps the footers of the files that it has read, some 100 KB each. A new one frees them.
    """
    files = [
        dataset.format.make_fragment(file.path, dataset.filesystem, file.partition_expression)
        for file in _files(dataset)
        if paths is None or file.path in paths
    ]
    if not files:
        return ds.dataset(dataset.schema.empty_table())
    return ds.FileSystemDataset(files, dataset.schema, dataset.format, dataset.filesystem)

"""Housekeeping of the lake's files: compact small files and delete unreferenced ones.

It deletes no rows; :mod:`~memory_pipeline.steps.retention` and :mod:`memory_pipeline.erasure` do. Each partition of a
Delta table is one file, so only Lance tables are compacted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from memory_pipeline.lake.collections.collection import compact_collection
from memory_pipeline.lake.index.lance_internals import lance_tables
from memory_pipeline.lake.index.lance_tables import COMPACT_EVERY
from memory_pipeline.lake.layout import PROJECTIONS
from memory_pipeline.lake.orphans import AGE, LEFT_BEHIND, last_vacuum, vacuum
from memory_pipeline.lake.tables.vacuum import Purged
from memory_pipeline.steps.indices import every_index

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from memory_pipeline.lake import Lake

#: How often a run outside Dagster deletes unreferenced files.
_EVERY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of housekeeping.

    Attributes:
        compacted: number of compacted Lance tables.
        old_versions: deleted files of old versions, by kind; see :mod:`memory_pipeline.lake.orphans`.
        left_behind: deleted files of killed processes, by kind.
    """

    compacted: int
    bytes_written: int
    old_versions: Mapping[str, Purged]
    left_behind: Mapping[str, Purged]
    seconds: float

    @property
    def gone(self) -> Purged:
        """All deleted files."""
        return sum((*self.old_versions.values(), *self.left_behind.values()), Purged())


def clean_files(lake: Lake, now: datetime, *, age: timedelta = AGE, dry_run: bool = False) -> Cleaned:
    """Compact small files, and delete files of old versions and of killed processes.

    Safe to repeat, to interrupt and to run concurrently. Only files that were replaced at least `age` ago are deleted,
    since readers and writers may still use newer ones. A dry run counts them.

    Raises:
        InputError: `age` is negative.
    """
    started = time.perf_counter()
    compacted = written = 0
    if not dry_run:
        lake.indices.sweep()
        indices = every_index(lake)
        for index in indices:
            index.forget_stale()
        for merged, rewritten in [each.compact() for each in (*indices, *lake.projections.values())]:
            compacted, written = compacted + merged, written + rewritten
        for table in lance_tables(lake.storage):
            if not table.path.startswith(PROJECTIONS) and table.data_files >= COMPACT_EVERY:
                merged = compact_collection(lake.storage, table.path)
                compacted, written = compacted + bool(merged), written + merged
    found = vacuum(lake.storage, lake.tables, now, age=age, dry_run=dry_run)
    return Cleaned(
        compacted,
        written,
        {kind: gone for kind, gone in found.items() if kind not in LEFT_BEHIND},
        {kind: found[kind] for kind in LEFT_BEHIND},
        time.perf_counter() - started,
    )


def clean_daily(lake: Lake, now: datetime) -> Cleaned | None:
    """Call :func:`clean_files`, and return its result, if the last time is a day ago, or there was none.

    Pass `now` by the clock, whatever time a run is told: other processes may use the lake.
    """
    last = last_vacuum(lake.storage)
    return clean_files(lake, now) if last is None or now - last >= _EVERY else None

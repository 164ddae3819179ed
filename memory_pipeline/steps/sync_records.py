"""Sync a projection by scope with the records of some periods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from memory_pipeline.errors import CommitConflictError
from memory_pipeline.lake.index.filters import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.scoped_rows import ScopedRows
    from memory_pipeline.lake.schema_types import TableSpec

#: Maximum number of attempts if concurrent runs keep changing the records.
_ATTEMPTS = 10
#: Periods that are listed in a condition.
_PERIODS_AT_ONCE = 1_000


def conditions_on(keys: Iterable[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the keys of periods in batches, each with the condition that selects its rows in a projection."""
    ordered = sorted(keys)
    for start in range(0, len(ordered), _PERIODS_AT_ONCE):
        batch = ordered[start : start + _PERIODS_AT_ONCE]
        yield batch, f"period IN ({listed(batch)})"


def sync_records(
    lake: Lake,
    spec: TableSpec,
    projection: ScopedRows,
    projected: Callable[[pa.Table], pa.Table],
    keys: Iterable[str],
    shard: int | None = None,
) -> tuple[pa.Table, set[str]]:
    """Make the rows of periods in a projection equal to their records. Write only rows that differ.

    Returns:
        The projected rows, and the keys of the scopes in which something was written.

    Raises:
        CommitConflictError: the records kept changing.
    """
    parts, changed = [projected(spec.schema.empty_table())], set[str]()
    for batch, within in conditions_on(keys):
        for _ in range(_ATTEMPTS):
            state = lake.tables.state(spec, batch, shard)
            rows = projected(lake.tables.read(spec, batch, shard=shard))
            changed |= projection.replace(rows, None, within, shard)
            # A concurrent run may have written newer rows, and synced them before this one overwrote them.
            if lake.tables.state(spec, batch, shard) == state:
                break
        else:
            raise CommitConflictError(f"{spec.name} of {batch[0]} to {batch[-1]} keep changing; run it again later")
        parts.append(rows)
    return pa.concat_tables(parts), changed

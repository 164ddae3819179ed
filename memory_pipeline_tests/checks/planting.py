"""Run one check, and plant faults in tables for it to find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline.lake.codec.codec import with_digest
from memory_pipeline.lake.index.lance_tables import run_coroutine
from memory_pipeline_tests.building import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from memory_pipeline.checks import Finding
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.scoped_rows import ScopedRows
    from memory_pipeline.lake.schema_types import TableSpec


def context(
    lake: Lake, asset: str, name: str, *, now: datetime = NOW, periods: Iterable[Period] | None = None
) -> Finding:
    """Return the finding of one check."""
    [check] = [check for check in checks_of(asset) if check.name == name]
    [finding] = run_checks(CheckContext(lake, now, periods), [check])
    assert finding.trouble is None, finding.trouble
    assert finding.passed == (finding.offenders == 0)
    return finding


def plant(
    lake: Lake, spec: TableSpec, key: str | None, change: Callable[[list[dict[str, Any]]], Any], **fixed: str
) -> None:
    """Change the rows of one partition, of the whole table if `key` is None, or of a projection."""
    if not spec.partition_by:
        plant_in_projection(lake.projections[spec.name], change)
        return

    def changed(old: pa.Table) -> pa.Table:
        rows = old.to_pylist()
        change(rows)
        return pa.Table.from_pylist(rows, schema=old.schema)

    keys = lake.tables.keys(spec, **fixed) if key is None else [key]
    assert lake.tables.transform(spec, keys, changed, shard=None, **fixed)


def plant_in_projection(projection: ScopedRows, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the rows of a projection, past its key."""
    stored = projection.scan().sort_by("id")
    has_states = "source_digest" in stored.column_names
    states = stored.filter(pc.is_valid(stored["source_digest"])) if has_states else stored.slice(0, 0)
    rows = (stored.filter(pc.is_null(stored["source_digest"])) if has_states else stored).to_pylist()
    change(rows)
    changed = pa.concat_tables([with_digest(pa.Table.from_pylist(rows, schema=stored.schema)), states])
    names = pa.array([projection.roster.name_of(key) for key in changed["scope"].to_pylist()])
    for name in projection.roster.present():
        own = changed.filter(pc.equal(names, name))

        async def write(table: Any, own: pa.Table = own) -> None:
            await table.delete("true")
            await table.add(own)

        run_coroutine(projection._databases.edit("projections", name, write, None))

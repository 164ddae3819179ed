"""Run one check, and plant faults in tables for it to find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline_tests.building import NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from memory_pipeline.checks import Finding
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
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


def plant(lake: Lake, spec: TableSpec, key: str, change: Callable[[list[dict[str, Any]]], Any], **fixed: str) -> None:
    """Change the rows of one partition."""

    def changed(old: pa.Table) -> pa.Table:
        rows = old.to_pylist()
        change(rows)
        return pa.Table.from_pylist(rows, schema=spec.schema)

    assert lake.tables.transform(spec, [key], changed, **fixed).changed

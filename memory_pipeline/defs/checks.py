"""The checks of :mod:`memory_pipeline.checks` as asset checks: run from the UI, by a schedule, and with marts.

A check looks at all that an asset holds, and its status in the UI says so. A run that makes partitions says nothing of
the others: it reports partition by partition and gives checks no input, so Dagster leaves them out of it. What it makes
is looked at then and there (:mod:`memory_pipeline.steps.guard`).
"""

# No `from __future__ import annotations` in here: Dagster reads annotations of resources as they stand.

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import dagster as dg

from memory_pipeline.checks import Check, Finding, Look, all_checks, run_checks
from memory_pipeline.defs.resources import LakeResource

#: After the summaries of the day, the week and the month, and what has expired.
_AT_FIVE = "0 5 * * *"


def asset_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of all assets, those of an asset together."""
    ordered = sorted(all_checks(), key=lambda check: check.asset)
    return [_checks_of(asset, list(checks)) for asset, checks in groupby(ordered, lambda check: check.asset)]


def checks_schedule(timezone: str) -> dg.ScheduleDefinition:
    """Return the schedule that runs all checks daily, at five in the morning of a zone."""
    return dg.ScheduleDefinition(
        name="checks_schedule",
        job=dg.define_asset_job(
            "check_memory",
            selection=dg.AssetSelection.all_asset_checks(),
            description="Looks at all that memory holds. A run that fails has found something that is wrong.",
        ),
        cron_schedule=_AT_FIVE,
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Runs all checks, each day at 05:00.",
    )


def _checks_of(asset: str, checks: list[Check]) -> dg.AssetChecksDefinition:
    key = dg.AssetKey(asset)
    by_key = {dg.AssetCheckKey(key, check.name): check for check in checks}

    @dg.multi_asset_check(
        name=f"check_{asset}",
        specs=[
            dg.AssetCheckSpec(
                check.name,
                asset=key,
                description=f"{check.description} If it fails: {check.remedy}.",
                blocking=check.blocks,
                metadata={"severity": check.severity.value},
            )
            for check in checks
        ],
        description=f"Looks at what {asset} holds.",
        can_subset=True,
    )
    def look_at(context: dg.AssetCheckExecutionContext, memory: LakeResource) -> Iterator[dg.AssetCheckResult]:
        look = Look(memory.lake, datetime.now(UTC))
        chosen = [check for check_key, check in by_key.items() if check_key in context.selected_asset_check_keys]
        for finding in run_checks(look, chosen):
            yield _result(dg.AssetCheckKey(key, finding.check.name), finding)

    return look_at


def _result(key: dg.AssetCheckKey, finding: Finding) -> dg.AssetCheckResult:
    check = finding.check
    metadata: dict[str, Any] = {"offenders": finding.offenders, **finding.numbers}
    if finding.sample:
        metadata["sample"] = dg.MetadataValue.json(list(finding.sample))
    if not finding.passed:
        metadata["remedy"] = check.remedy
    return dg.AssetCheckResult(
        passed=finding.passed,
        asset_key=key.asset_key,
        check_name=key.name,
        metadata=metadata,
        severity=dg.AssetCheckSeverity.ERROR if finding.is_error else dg.AssetCheckSeverity.WARN,
        description=None if finding.passed else finding.trouble or f"{finding.offenders:,} offenders; {check.remedy}",
    )

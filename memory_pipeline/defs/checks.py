"""The checks of :mod:`memory_pipeline.checks` as asset checks: run from the UI, by a schedule, and with marts.

A check looks at all that an asset holds, and its status in the UI says so. A run that makes partitions says nothing of
the others: it reports partition by partition and gives checks no input, so Dagster leaves them out of it. What it makes
is looked at then and there (:mod:`memory_pipeline.steps.validation`).

The checks of hours are on an asset of their own, ``working_memory``, which has no partitions. When an asset is
backfilled, Dagster plans its checks too, even if the run leaves them out, and stores a row for each check and partition
before the run starts. For a year of hours these were 228,000 rows, 480 MB and 50 CPU seconds on SQLite.
"""

# No `from __future__ import annotations` in here: Dagster reads annotations of resources as they stand.

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import dagster as dg

from memory_pipeline.checks import Check, Finding, Look, all_checks, run_checks
from memory_pipeline.defs.resources import LakeResource

#: After the summaries of the day, the week and the month, and what has expired.
_AT_FIVE = "0 5 * * *"
#: The asset that has the checks of all assets of hours.
WORKING_MEMORY: Final = "working_memory"


def working_memory(hourly: Collection[dg.AssetKey]) -> dg.AssetSpec:
    """Return the asset that has the checks of hours; nothing makes it.

    Args:
        hourly: the assets whose partitions are hours.
    """
    return dg.AssetSpec(
        WORKING_MEMORY,
        deps=hourly,
        group_name="1_working",
        description="All hours together, with the checks of messages, facts, graph, durable memories and index.",
        owners=["team:memory"],
        kinds={"deltalake", "lancedb"},
    )


def check_key(check: Check, hourly: Collection[dg.AssetKey]) -> dg.AssetCheckKey:
    """Return the key of a check, whose name starts with the asset's where another asset has it."""
    asset = dg.AssetKey(check.asset)
    if asset in hourly:
        return dg.AssetCheckKey(dg.AssetKey(WORKING_MEMORY), f"{check.asset}_{check.name}")
    return dg.AssetCheckKey(asset, check.name)


def asset_checks(hourly: Collection[dg.AssetKey]) -> list[dg.AssetChecksDefinition]:
    """Return the checks of all assets, those of an asset together.

    Args:
        hourly: the assets whose partitions are hours.
    """
    keyed = sorted(((check_key(check, hourly), check) for check in all_checks()), key=lambda pair: pair[0].asset_key)
    return [_checks_of(asset, dict(pairs)) for asset, pairs in groupby(keyed, lambda pair: pair[0].asset_key)]


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


def _checks_of(asset: dg.AssetKey, checks: dict[dg.AssetCheckKey, Check]) -> dg.AssetChecksDefinition:
    name = asset.to_user_string()

    @dg.multi_asset_check(
        name=f"check_{name}",
        specs=[
            dg.AssetCheckSpec(
                key.name,
                asset=asset,
                description=f"{check.description} If it fails: {check.remedy}.",
                blocking=check.blocks,
                metadata={"severity": check.severity.value},
            )
            for key, check in checks.items()
        ],
        description=f"Looks at what {name} holds.",
        can_subset=True,
    )
    def look_at(context: dg.AssetCheckExecutionContext, memory: LakeResource) -> Iterator[dg.AssetCheckResult]:
        look = Look(memory.lake, datetime.now(UTC))
        chosen = {check: key for key, check in checks.items() if key in context.selected_asset_check_keys}
        for finding in run_checks(look, list(chosen)):
            yield _result(chosen[finding.check], finding)

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

"""The command `check`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import cli, lake_of, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError, counted, shown
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.checks import Check, Finding
    from memory_pipeline.lake import Lake


@command(cli)
def check(
    root: str | None,
    as_json: bool,
    asset: str | None = None,
    first: datetime | None = None,
    last: datetime | None = None,
    now: datetime | None = None,
) -> None:
    """Check the integrity of the lake. Runs Dagster's asset checks without Dagster and writes nothing.

    Each check prints one line: "ok"; "warning" if memory is correct but needs attention; or "FAILED" if memory is
    wrong or incomplete. A warning or failure is followed by some offenders (ids, agents and periods, never content)
    and by what to do.

    --from and --to limit the checks to closed periods that overlap these days. Budgets, the journal and the tests of
    dbt_like_sql are always checked completely.

    \b
    Exit code: 0 all checks passed, or there are only warnings
               1 a check failed
               2 invalid arguments, or the lake does not exist

    Args:
        asset: run only the checks of this asset, e.g. messages or daily_summaries.
        first: first day to check.
        last: last day to check (included).
        now: the current time.
    """
    from memory_pipeline.checks import CheckContext, checks_of, run_checks

    settings = settings_of(root)
    lake = lake_of(settings)
    chosen = checks_of(asset)
    if not chosen:
        accepted = ", ".join(dict.fromkeys(each.asset for each in checks_of()))
        raise InputError(f"--asset {shown(asset)} has no checks; accepted: {accepted}")
    moment = now or datetime.now(UTC)
    look = CheckContext(lake, moment, _periods(lake, first, last, moment))
    findings: list[Finding] = []
    with progress(quiet=as_json) as bar:
        bar.show("checks", 0, len(chosen))
        for finding in run_checks(look, chosen):
            findings.append(finding)
            if not as_json:
                bar.echo("\n".join(_lines(finding)))
            bar.show("checks", len(findings), len(chosen))
    if as_json:
        click.echo(to_json([_record(finding) for finding in findings]))
    else:
        click.echo(_verdict(findings))
    if any(finding.is_error for finding in findings):
        sys.exit(1)


def _periods(lake: Lake, since: datetime | None, until: datetime | None, now: datetime) -> list[Period] | None:
    from memory_pipeline.steps.scheduling.planner import periods_in

    if (since is None) != (until is None):
        raise InputError("--from and --to go together; give both, or neither to check everything")
    if since is None or until is None:
        return None
    first, last = since.date(), until.date()
    if last < first:
        raise InputError(f"--to {last} is before --from {first}; give a later --to")
    begins, ends = (
        lake.calendar.bounds(Period.containing(Grain.DAILY, day))[0] for day in (first, last + timedelta(days=1))
    )
    return [period for grain in Grain for period in periods_in(lake, grain, begins, ends, now)]


def _lines(finding: Finding) -> Iterator[str]:
    """Yield the result of a check, then its offenders and the remedy if it did not pass."""
    each = finding.check
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in finding.numbers.items())
    if finding.passed:
        yield f"{_coloured(finding)} {each.asset:<20} {each.name:<17} {numbers}".rstrip()
        return
    found = finding.trouble or counted(finding.offenders, "offender")
    yield f"{_coloured(finding)} {plain(f'{each.asset:<20} {each.name:<17} {found}')}"
    for name in finding.sample:
        yield plain(f"           {name}")
    if finding.offenders > len(finding.sample) > 0:
        yield f"           … and {finding.offenders - len(finding.sample):,} more"
    yield f"         to do: {finding.remedy}"


def _word(finding: Finding) -> str:
    if finding.passed:
        return "ok"
    return "FAILED" if finding.is_error else "warning"


def _coloured(finding: Finding) -> str:
    colour = "green" if finding.passed else "red" if finding.is_error else "yellow"
    return click.style(f"{_word(finding):<8}", fg=colour)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _verdict(findings: list[Finding]) -> str:
    failed = sum(finding.is_error for finding in findings)
    passed = sum(finding.passed for finding in findings)
    return (
        f"{passed} of {len(findings)} checks passed, {len(findings) - passed - failed} with a warning, {failed} failed"
    )


def _record(finding: Finding) -> dict[str, object]:
    each: Check = finding.check
    return {
        "asset": each.asset,
        "check": each.name,
        "result": _word(finding).lower(),
        "severity": each.severity,
        "blocks": each.blocks,
        "offenders": finding.offenders,
        "sample": finding.sample,
        "numbers": finding.numbers,
        "trouble": finding.trouble,
        "description": each.description,
        "remedy": finding.remedy,
    }

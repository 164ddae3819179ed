"""The commands `check` and `repair`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import cli, lake_of, models_of, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError, LakeError, counted, shown
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_pipeline.checks import Check, Finding
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.settings import Settings
    from memory_pipeline.steps.small_files import Damage


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


@command(cli)
def repair(root: str | None, as_json: bool, dry_run: bool = False, now: datetime | None = None) -> None:
    """Rebuild damaged files from the remaining records.

    Reads the whole lake. Rebuilds missing and unreadable files, lost index tables, and partitions that fail
    `memory-pipeline check`, with the same rows. Restores a lost or changed lake.json, or its copy. Messages and other
    source records cannot be rebuilt: their files are listed as lost and left alone. Restore them from a backup and run
    `repair` again. Facts and summaries whose sources have expired are listed as lost too, and their file is dropped: to
    restore it, look with --dry-run first.

    Safe to repeat and to interrupt.

    \b
    Exit code: 0 no damage is left
               1 something is lost or still damaged, or a step failed; with --dry-run, something is damaged
               2 invalid arguments, or the lake does not exist

    Args:
        dry_run: print the damage and what would be rebuilt; change nothing.
        now: the current time.
    """
    from memory_pipeline.lake.files.storage import MANIFEST, Storage
    from memory_pipeline.lake.lake import manifest_damage, restore_manifest
    from memory_pipeline.steps.repair import find_damage
    from memory_pipeline.steps.small_files import Damage

    settings = settings_of(root)
    storage = Storage(settings.root)
    damage = manifest_damage(storage)
    found = [Damage("manifest", MANIFEST, MANIFEST, damage)] if damage else []
    if damage and not dry_run:
        restore_manifest(storage)
    if not (damage and dry_run):  # with a wrong manifest, nothing else can be judged
        found += find_damage(lake_of(settings))
    if not as_json:
        click.echo("\n".join(_damage_lines(found, "would be rebuilt" if dry_run else "rebuilding")))
    left, errors = found, list[str]()
    if not dry_run:
        with progress(quiet=as_json):
            lake = lake_of(settings)
            errors = _repaired(lake, settings, models_of(lake), now or datetime.now(UTC), found)
        left = find_damage(lake_of(settings))
        if not as_json:
            click.echo(
                "\n".join([*_damage_lines(left, "still damaged"), *(plain(f"failed: {each}") for each in errors)])
            )
    if as_json:
        records = {"found": [asdict(each) for each in found], "left": [asdict(each) for each in left]}
        click.echo(to_json({"dry_run": dry_run, **records, "not_made": errors}))
    if left or errors or any(each.loss for each in found):
        sys.exit(1)


def _repaired(lake: Lake, settings: Settings, models: Models, now: datetime, found: Sequence[Damage]) -> list[str]:
    """Rebuild the damage, run what is pending, recompute what fails its checks. Return the errors."""
    from memory_pipeline.checks import CheckContext, all_checks, run_checks
    from memory_pipeline.in_process import run_all
    from memory_pipeline.lake.tables.ledger import index_asset, table_asset
    from memory_pipeline.steps.repair import repair as rebuild
    from memory_pipeline.steps.replay import replay
    from memory_pipeline.steps.scopes import known_scopes

    errors: list[str] = []
    with _noted(errors):
        rebuild(lake, models, found)
    with _noted(errors):
        _exhaust(run_all(lake, settings, models, now))
    checks = [check for check in all_checks() if check.name in _FIXED_BY_RECOMPUTING]
    failing = {finding.check.asset for finding in run_checks(CheckContext(lake, now), checks) if finding.is_error}
    if failing:
        # All periods: recomputing a correct one changes nothing.
        periods = {
            grain: lake.ledger.entries(table_asset(grain)).keys()
            for grain in Grain
            if failing & {table_asset(grain), index_asset(grain), *(_OF_HOURS if grain is Grain.WORKING else ())}
        }
        with _noted(errors):
            replay(lake, models, periods, known_scopes(lake))
        with _noted(errors):
            _exhaust(run_all(lake, settings, models, now))
    return list(dict.fromkeys(errors))


@contextmanager
def _noted(errors: list[str]) -> Iterator[None]:
    """Collect an error of the lake and continue: later steps may still succeed."""
    try:
        yield
    except LakeError as error:
        errors.append(str(error))


def _exhaust(events: Iterable[object]) -> None:
    for _ in events:
        pass


#: Checks that recomputing partitions can fix.
_FIXED_BY_RECOMPUTING = frozenset(
    {"unique_ids", "unique_operation_ids", "orphaned_sources", "index_level", "graph_level", "empty_summaries"}
)
#: Assets computed with the hours, besides facts and their index.
_OF_HOURS = ("graph_facts", "durable_memories")


def _damage_lines(found: Sequence[Damage], becomes: str) -> list[str]:
    if not found:
        return ["nothing is damaged"]
    return [
        plain(
            f"{'LOST' if each.loss else becomes:<17} {each.path}: {each.why}" + (f" ({each.loss})" if each.loss else "")
        )
        for each in found
    ]

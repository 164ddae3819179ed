"""The command that rebuilds what is damaged."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import cli, common, lake_of, models_of, now_option, settings_of, show_progress
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import LakeError
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.settings import Settings
    from memory_pipeline.steps.repair import Damage


@cli.command()
@click.option("--dry-run", is_flag=True, help="Print what is damaged and what would become of it; change nothing.")
@now_option
@common
def repair(dry_run: bool, now: datetime | None, root: str | None, as_json: bool) -> None:
    """Rebuild what is damaged from the records that are left.

    Reads the whole lake. Files that are missing or cannot be read, lost index tables and partitions that do not pass
    `memory-pipeline check` are made again, with the rows that they held. Records that nothing can be made from, such as
    messages, are named and left as they are: put their files back from a copy of the lake, and repair it again.

    Safe to repeat and to interrupt.

    \b
    Exit code: 0 nothing is damaged any more
               1 something is lost, or, with --dry-run, something is damaged
               2 the command was not understood, or there is no lake
    """
    from memory_pipeline.steps.repair import find_damage

    settings = settings_of(root)
    lake = lake_of(settings)
    found = find_damage(lake)
    if not as_json:
        click.echo("\n".join(_lines(found, "would be rebuilt" if dry_run else "is rebuilt")))
    left, errors = found, list[str]()
    if not dry_run:
        show_progress(quiet=as_json)
        errors = _repaired(lake, settings, models_of(lake), now or datetime.now(UTC), found)
        left = find_damage(lake_of(settings))
        if not as_json:
            click.echo("\n".join([*_lines(left, "is still damaged"), *(plain(f"not made: {each}") for each in errors)]))
    if as_json:
        records = {"found": [asdict(each) for each in found], "left": [asdict(each) for each in left]}
        click.echo(to_json({"dry_run": dry_run, **records, "not_made": errors}))
    if left or errors:
        sys.exit(1)


def _repaired(lake: Lake, settings: Settings, models: Models, now: datetime, found: Sequence[Damage]) -> list[str]:
    """Rebuild what was found, make what is pending then and what does not pass its checks; return what failed."""
    from memory_pipeline.checks import CheckContext, all_checks, run_checks
    from memory_pipeline.defs.in_process import run_all
    from memory_pipeline.lake.tables.ledger import index_asset, table_asset
    from memory_pipeline.steps.materialize import materialize
    from memory_pipeline.steps.repair import repair as rebuild

    errors: list[str] = []
    with _noted(errors):
        rebuild(lake, models, lake.start, found)
    with _noted(errors):
        _exhaust(run_all(lake, settings, models, now))
    checks = [check for check in all_checks() if check.name in _MADE_AGAIN]
    failing = {finding.check.asset for finding in run_checks(CheckContext(lake, now), checks) if finding.is_error}
    for grain in Grain:
        if failing & {table_asset(grain), index_asset(grain), *(_OF_HOURS if grain is Grain.WORKING else ())}:
            # All of them: to make again what is right changes nothing.
            periods = [Period(grain, key) for key in lake.ledger.entries(table_asset(grain))]
            with _noted(errors):
                _exhaust(materialize(lake, models, grain, periods))
    if failing:
        with _noted(errors):
            _exhaust(run_all(lake, settings, models, now))
    return list(dict.fromkeys(errors))


@contextmanager
def _noted(errors: list[str]) -> Iterator[None]:
    """Note an error of the lake, and go on: what comes next may still be made."""
    try:
        yield
    except LakeError as error:
        errors.append(str(error))


def _exhaust(events: Iterable[object]) -> None:
    for _ in events:
        pass


#: Checks of what making partitions again puts right.
_MADE_AGAIN = frozenset({"unique_ids", "unique_operation_ids", "orphaned_sources", "index_level", "empty_summaries"})
#: What is made with the hours, beside facts and their index.
_OF_HOURS = ("graph_facts", "durable_memories")


def _lines(found: Sequence[Damage], becomes: str) -> list[str]:
    if not found:
        return ["nothing is damaged"]
    return [
        plain(
            f"{'LOST' if each.loss else becomes:<17} {each.path}: {each.why}" + (f" ({each.loss})" if each.loss else "")
        )
        for each in found
    ]

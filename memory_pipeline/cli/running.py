"""Commands that make memory, and say what is made."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.options import Time, common, lake_of, models_of, now_option, settings_of, show_progress
from memory_pipeline.cli.root import cli
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import estimate_lines, housekeeping_lines, run_line, status_lines, to_json, upkeep_line
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake


@cli.command()
@click.option("--from", "since", type=Time(), metavar="DATE", help="First day to make again, with all above it.")
@click.option("--to", "until", type=Time(), metavar="DATE", help="Last day to make again (included).")
@click.option("--estimate", is_flag=True, help="Say what models would be asked and what it would cost; make nothing.")
@now_option
@common
def run(
    since: datetime | None,
    until: datetime | None,
    estimate: bool,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Make what is pending, through Dagster, in this process.

    Without --from and --to: the hours of pending journal files, and every closed day, week, month, quarter and year
    whose sources are new or have changed; then the nights of upkeep of durable memories. With them: all of that range
    again. A period that has not closed is left for later. Once a day it ends with what `memory-pipeline vacuum` does.
    Running it twice changes nothing; interrupting it loses nothing. Runs are kept in the Dagster instance of
    DAGSTER_HOME, if that is set.

    Models are those of config/workspaces.yaml in the lake (`memory-pipeline config`). What a model did not do, because
    it failed or a budget is spent, is done by rules, or waits, and is tried again by the next run. --estimate counts
    the questions exactly, as long as answers are not so long that they must be cut into chunks; tokens, cost, and the
    requests for embeddings, which depend on how many facts are found, are estimates.
    """
    from memory_pipeline.defs.runs import run_all
    from memory_pipeline.steps.consolidation.report import Upkept
    from memory_pipeline.steps.results import GrainRun

    settings = settings_of(root)
    lake = lake_of(settings)
    if (since is None) != (until is None):
        raise InputError("--from and --to go together; give both, or neither for what is pending")
    between = None
    if since is not None and until is not None:
        if since.date() < lake.start:
            raise InputError(
                f"--from {since.date()} is before the first day of this memory, {lake.start}; "
                "give a later one, or set MEMORY_PIPELINE_START to an earlier one"
            )
        between = _days(lake, since.date(), until.date())
    show_progress(quiet=as_json)
    if estimate:
        _estimate(settings, now or datetime.now(UTC), between, as_json=as_json)
        return
    models = models_of(lake)
    done: list[GrainRun] = []
    started = time.monotonic()
    for event in run_all(lake, settings, models, now or datetime.now(UTC), between):
        if isinstance(event, GrainRun):
            done.append(event)
            if not as_json:
                click.echo(run_line(event, time.monotonic() - started))
        elif isinstance(event, Upkept):
            if not as_json:
                click.echo(upkeep_line(event))
        else:
            started = time.monotonic()
    lines = _clean_daily(lake)
    if as_json:
        click.echo(to_json(done))
    elif lines:
        click.echo("\n".join(lines))


def _clean_daily(lake: Lake) -> list[str]:
    """Delete files that nothing needs, if a day has passed since that was last done; return what went, in lines."""
    from memory_pipeline.steps.housekeeping import clean_files, is_due

    now = datetime.now(UTC)  # by the clock, whatever --now says: others may use the lake
    return [*housekeeping_lines(clean_files(lake, now), dry_run=False)] if is_due(lake, now) else []


def _estimate(settings: Settings, now: datetime, between: tuple[datetime, datetime] | None, *, as_json: bool) -> None:
    from memory_pipeline.models.factory import rehearsing_models
    from memory_pipeline.steps.dry_run import RehearsalLake, rehearse

    lake = RehearsalLake(settings.root, settings.timezone, settings.start)
    models, asker = rehearsing_models(
        lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC)
    )
    for grain, periods in rehearse(lake, models, lake.start, now, between):
        if not as_json:
            click.echo(f"{grain:<10} {len(periods):>6,} periods looked at", err=True)
    ordered = sorted(asker.expected.items(), key=lambda item: item[0].order)
    expected = [{**asdict(what), **asdict(usage)} for what, usage in ordered]
    click.echo(to_json(expected) if as_json else "\n".join(estimate_lines(expected)))


def _days(lake: Lake, first: date, last: date) -> tuple[datetime, datetime]:
    from memory_pipeline.domain.periods import Period

    if last < first:
        raise InputError(f"--to {last} is before --from {first}")
    return (
        lake.calendar.bounds(Period.containing(Grain.DAILY, first))[0],
        lake.calendar.bounds(Period.containing(Grain.DAILY, last + timedelta(days=1)))[0],
    )


@cli.command()
@now_option
@common
def status(now: datetime | None, root: str | None, as_json: bool) -> None:
    """Say for each grain what is there, what is pending (to be made) and what of it is missing (never made).

    Open periods have material and have not closed yet. Coarser grains show as pending once the finer are made. Of the
    upkeep of durable memories, periods are nights, and rows what they did.
    """
    from memory_pipeline.steps.consolidation.days import night_status
    from memory_pipeline.steps.scheduling.planner import grain_status

    settings = settings_of(root)
    lake = lake_of(settings)
    nights = night_status(lake, lake.start, now or datetime.now(UTC))
    statuses = [grain_status(lake, grain, lake.start, now or datetime.now(UTC)) for grain in Grain]
    quarantined = lake.journal.quarantined()
    if as_json:
        files = [file.path for file in lake.journal.pending()]
        click.echo(to_json({"grains": statuses, "upkeep": nights, "journal_files": files, "quarantined": quarantined}))
    else:
        click.echo("\n".join(status_lines(statuses, [rejection.reason for rejection in quarantined], nights)))


@cli.command()
@common
def demo(root: str | None, as_json: bool) -> None:
    """Show all of it on a year of conversations that comes with the package. Default root: ./demo-lake."""
    from memory_pipeline.demo import show_demo

    settings = Settings.from_environment()
    show_progress(quiet=as_json)
    show_demo(replace(settings, root=root or "./demo-lake"), as_json=as_json)

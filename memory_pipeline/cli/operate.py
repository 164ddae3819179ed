"""Commands that run the pipeline: run, status, upkeep, config and demo."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import Time, cli, common, lake_of, models_of, now_option, settings_of, show_progress
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError, shown
from memory_pipeline.rendering import (
    estimate_lines,
    housekeeping_lines,
    run_line,
    status_lines,
    to_json,
    unloaded_lines,
    upkeep_line,
    upkeep_lines,
)
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.consolidation.report import ConsolidationReport


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
    from memory_pipeline.defs.in_process import run_all
    from memory_pipeline.steps.consolidation.report import ConsolidationReport
    from memory_pipeline.steps.results import RunResult

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
    done: list[RunResult] = []
    started = time.monotonic()
    for event in run_all(lake, settings, models, now or datetime.now(UTC), between):
        if isinstance(event, RunResult):
            done.append(event)
            if not as_json:
                click.echo(run_line(event, time.monotonic() - started))
        elif isinstance(event, ConsolidationReport):
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
    from memory_pipeline.steps.dry_run import DryRunLake, dry_run

    lake = DryRunLake(settings.root, settings.timezone, settings.start)
    models, asker = rehearsing_models(
        lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC)
    )
    for grain, periods in dry_run(lake, models, lake.start, now, between):
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


# The command that keeps durable memories in order, and shows what it would do.


@cli.command()
@click.option("--dry-run", is_flag=True, help="Print what would be done and why, and change nothing.")
@click.option("--from", "since", type=Time(), metavar="DATE", help="First night to make again: that after this day.")
@click.option("--to", "until", type=Time(), metavar="DATE", help="Last night to make again (included).")
@click.option("--workspace", "workspace_id", help="Only agents of this workspace.")
@click.option("--agent", "agent_id", help="Only this agent of the workspace.")
@now_option
@common
def upkeep(
    dry_run: bool,
    since: datetime | None,
    until: datetime | None,
    workspace_id: str | None,
    agent_id: str | None,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Keep durable memories true and small: what a night does, for each night that was not made yet.

    \b
    A night looks at each agent as of the end of the day, in five passes:
      promotion       an observation that three conversations tell becomes a fact
      duplicates      two memories that say the same become one; nothing that only one says is lost
      contradictions  of two values for what has one, the surer and then the newer stays
      staleness       what nobody has said for long goes cold; what has faded is archived
      hot index       the most important ones are chosen, up to two caps

    Nothing is deleted: what loses is kept, names what took its place, and can be found by archive search. Instructions,
    rules and preferences never grow stale. Each change is an event with its reason (`memory-pipeline memories
    explain`).

    \b
        memory-pipeline upkeep --dry-run                     what the pending nights would do, and why
        memory-pipeline upkeep                               do it
        memory-pipeline upkeep --dry-run --now 2027-01-01    what will have been done by then
        memory-pipeline upkeep --from 2024-01-01 --to 2024-12-31    a year again, by the rules and models of today

    A night is a function of what was remembered and of its day: made again, in whatever order, it does the same, and
    what comes late makes its night and those after it again. `memory-pipeline run` makes pending nights after the
    hours, and Dagster does (`memory_upkeep_nightly`). What no run has loaded yet a night does not see: run
    `memory-pipeline run` first. With --workspace or --agent nights stay pending for the others.
    Where a model helps, --dry-run asks it too; its answers are kept, and the run that follows asks nothing again.
    """
    from memory_pipeline.steps.consolidation.consolidate import consolidate
    from memory_pipeline.steps.consolidation.days import nights_between, pending_nights
    from memory_pipeline.steps.scheduling.planner import journal_hours

    if (since is None) != (until is None):
        raise InputError("--from and --to go together; give both, or neither for what is pending")
    if agent_id is not None and workspace_id is None:
        raise InputError("--agent needs --workspace; agents of two workspaces may have one name")
    settings = settings_of(root)
    lake = lake_of(settings)
    moment = now or datetime.now(UTC)
    if since is None or until is None:
        nights = pending_nights(lake, lake.start, moment)
    else:
        _check(since.date(), until.date(), lake.start)
        nights = nights_between(lake, since.date(), until.date(), moment)
        if not nights:
            raise InputError(f"--from {since.date()}: that day has not ended; its night can be made afterwards")
    scopes = None if workspace_id is None else _scopes(lake, workspace_id, agent_id)
    unloaded = list(journal_hours(lake, lake.start, moment, scopes))
    show_progress(quiet=as_json or dry_run)
    done = consolidate(
        lake, models_of(lake), nights, lake.start, scopes=scopes, dry_run=dry_run, explain=True
    )  # fmt: skip
    if as_json:
        click.echo(to_json({**_record(done, dry_run), "unloaded_hours": unloaded}))
        return
    lines = [*upkeep_lines(done, dry_run=dry_run), *unloaded_lines(unloaded, lake.calendar, moment)]
    click.echo("\n".join(lines))


def _check(first: date, last: date, start: date) -> None:
    if last < first:
        raise InputError(f"--to {last} is before --from {first}")
    if first < start:
        raise InputError(
            f"--from {first} is before the first day of this memory, {start}; "
            "set MEMORY_PIPELINE_START to an earlier one"
        )


def _scopes(lake: Lake, workspace_id: str, agent_id: str | None) -> list[Scope]:
    """Return the agents that are meant.

    Raises:
        InputError: there are none.
    """
    from memory_pipeline.lake.schemas import MEMORY_EVENTS

    Scope(workspace_id, agent_id or workspace_id)  # what no id may hold is refused
    owners = {Scope(*owner.split("~")) for owner in lake.tables.keys(MEMORY_EVENTS)}
    owners |= {file.scope for file in lake.journal.pending()}
    of_workspace = sorted((one for one in owners if one.workspace_id == workspace_id), key=lambda one: one.agent_id)
    if not of_workspace:
        raise InputError(f"--workspace {shown(workspace_id)}: no agent of it keeps durable memories")
    if agent_id is None:
        return of_workspace
    if Scope(workspace_id, agent_id) not in owners:
        known = shown(", ".join(one.agent_id for one in of_workspace))
        raise InputError(
            f"--agent {shown(agent_id)} of workspace {workspace_id} keeps no durable memories; those that do: {known}"
        )
    return [Scope(workspace_id, agent_id)]


def _record(done: ConsolidationReport, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "nights": [night for night in done.nights if night.agents or night.changed],
        "nights_made": len(done.nights),
        "agents": done.agents,
        "changes": done.changes,
        "hot": [{**asdict(scope), "lines": lines} for scope, lines in done.hot.items()],
        "seconds": round(done.seconds, 3),
    }


# The command that shows and replaces what is configured.


@cli.command()
@click.option("--workspace", "workspace_id", help="Show what holds for this workspace's agent.")
@click.option("--agent", "agent_id", help="The agent.")
@click.option("--put", "file", type=click.Path(path_type=Path), help="Check FILE and make it the lake's configuration.")
@click.option("--example", is_flag=True, help="Print a configuration to start from, with every key explained.")
@common
def config(
    workspace_id: str | None, agent_id: str | None, file: Path | None, example: bool, root: str | None, as_json: bool
) -> None:
    """Show, check or replace config/workspaces.yaml of the lake: models, prompts, keys and budgets.

    Without options the file is checked and shown. With --workspace and --agent: what holds for that agent, after
    everything it inherits. Keys of providers are named by where they are found (env:NAME, file:/path), never written.
    """
    from memory_pipeline.configuration import EXAMPLE
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.lake.lake import CONFIGURATION

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    lake = lake_of(settings_of(root), must_exist=file is None)
    if file is not None:
        lake.put_configuration(file)
        click.echo(to_json({"written": lake.storage.locate(CONFIGURATION)}) if as_json else f"{file} is in use now")
        return
    configuration = lake.configuration()
    if (workspace_id is None) != (agent_id is None):
        raise InputError("--workspace and --agent go together; give both, or neither for the file as it is")
    if workspace_id is not None and agent_id is not None:
        click.echo(to_json(configuration.describe(Scope(workspace_id, agent_id))))
        return
    text = (lake.storage.read(CONFIGURATION) or b"").decode()
    if as_json:
        click.echo(to_json({"source": configuration.source, "text": text, "uses_models": configuration.uses_models}))
    else:
        missing = f"# {configuration.source} does not exist: all is deterministic; --example shows what can be set"
        click.echo(text or missing, nl=not text.endswith("\n"))

"""Commands that run the pipeline: run, status, consolidate, config and demo."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    cli,
    echo_table,
    json_option,
    lake_of,
    models_of,
    root_option,
    settings_of,
)
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, counted, shown
from memory_pipeline.rendering import (
    WITHOUT_A_MODEL,
    consolidation_line,
    consolidation_lines,
    estimate_lines,
    housekeeping_lines,
    promotion_lines,
    run_line,
    status_lines,
    to_json,
    unloaded_lines,
)
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.consolidation.report import ConsolidationReport


@command(cli)
def run(
    root: str | None,
    as_json: bool,
    first: datetime | None = None,
    last: datetime | None = None,
    fresh: bool = False,
    estimate: bool = False,
    now: datetime | None = None,
) -> None:
    """Process pending data, in this process.

    Loads the hours in the journal, summarizes every closed day, week, month, quarter and year with new or changed
    sources, and consolidates durable memories. With --from and --to it recomputes that range instead. Open periods
    wait until they close. Once a day it also runs `memory-pipeline vacuum`. Safe to repeat and to interrupt. If
    DAGSTER_HOME is set, the steps are runs of Dagster, which `dagster dev` shows.

    The lake's config/workspaces.yaml names the models (`memory-pipeline config`). If a model fails or a budget is
    spent, rules take over or the data waits; the next run retries. --estimate counts completion calls exactly unless
    answers are so long that they are split; tokens, cost and embedding calls, which depend on the number of facts, are
    estimates.

    Args:
        first: first day to recompute, with all coarser grains.
        last: last day to recompute (included).
        fresh: with --from and --to: ask models again, also for what they have answered, and store the new answers.
        estimate: print expected model calls and their cost; change nothing.
        now: the current time.
    """
    from memory_pipeline.in_process import run_all
    from memory_pipeline.steps.consolidation.report import ConsolidationReport
    from memory_pipeline.steps.housekeeping import clean_daily
    from memory_pipeline.steps.promotion import Promotion
    from memory_pipeline.steps.results import RunResult

    settings = settings_of(root)
    lake = lake_of(settings)
    between = _between(lake, first, last)
    if fresh and (between is None or estimate):
        raise InputError("--fresh needs --from and --to, and does not go together with --estimate")
    if estimate:
        _estimate(settings, now or datetime.now(UTC), between, as_json=as_json)
        return
    models = models_of(lake, is_fresh=fresh)
    done: list[RunResult | Promotion] = []
    started = time.monotonic()
    with progress(quiet=as_json) as bar:
        for event in run_all(lake, settings, models, now or datetime.now(UTC), between):
            if isinstance(event, ConsolidationReport):
                line = consolidation_line(event)
            elif isinstance(event, Promotion):
                done.append(event)
                line = "\n".join(promotion_lines(event))
            elif isinstance(event, RunResult):
                done.append(event)
                line = run_line(event, time.monotonic() - started)
            else:
                started = time.monotonic()
                bar.show(str(event))
                continue
            if not as_json:
                bar.echo(line)
    cleaned = clean_daily(lake, datetime.now(UTC))
    if as_json:
        click.echo(to_json(done))
    elif cleaned is not None:
        for line in housekeeping_lines(cleaned, dry_run=False):
            click.echo(line)


def _estimate(settings: Settings, now: datetime, between: tuple[datetime, datetime] | None, *, as_json: bool) -> None:
    from memory_pipeline.models.factory import dry_run_models
    from memory_pipeline.steps.dry_run import DryRunLake, dry_run

    lake = DryRunLake(settings.root, settings.timezone, settings.start)
    models, executor = dry_run_models(
        lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC)
    )
    for grain, periods in dry_run(lake, models, lake.start, now, between):
        if not as_json:
            click.echo(f"{grain:<13} {len(periods):>6,} periods checked", err=True)
    expected = executor.expected_records()
    click.echo(to_json(expected) if as_json else "\n".join(estimate_lines(expected)))


def _between(lake: Lake, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime] | None:
    from memory_pipeline.domain.periods import Period

    if (since is None) != (until is None):
        raise InputError("--from and --to go together; give both, or neither to process pending days")
    if since is None or until is None:
        return None
    first, last = since.date(), until.date()
    _check(first, last, lake.start)
    return (
        lake.calendar.bounds(Period.containing(Grain.DAILY, first))[0],
        lake.calendar.bounds(Period.containing(Grain.DAILY, last + timedelta(days=1)))[0],
    )


@command(cli)
def status(root: str | None, as_json: bool, now: datetime | None = None) -> None:
    """Count the periods of each grain.

    Existing periods have rows. Pending periods are due; missing ones are pending and were never computed; open ones
    have data but have not ended. A coarser grain becomes pending once the finer one is computed. The line
    "consolidation" counts days as periods, and changes of memories as rows. Facts that an earlier version of the
    built-in rules made stay valid; they are counted, with the command that makes them anew. Marts that were built and
    are behind their tables are named.

    Args:
        now: the current time.
    """
    from memory_pipeline.analytics import stale_marts
    from memory_pipeline.models.deterministic.extraction import FAMILY, RULES
    from memory_pipeline.steps.consolidation.days import consolidation_status
    from memory_pipeline.steps.scheduling.planner import grain_status, older_facts

    settings = settings_of(root)
    lake = lake_of(settings)
    nights = consolidation_status(lake, lake.start, now or datetime.now(UTC))
    statuses = [grain_status(lake, grain, lake.start, now or datetime.now(UTC)) for grain in Grain]
    quarantined = lake.journal.quarantined()
    older = older_facts(lake, FAMILY, RULES)
    archived = lake.archived.totals()
    stale = [model.name for model in stale_marts(lake)] if lake.storage.has("marts") else []
    if as_json:
        files = [file.path for file in lake.journal.pending()]
        click.echo(
            to_json(
                {
                    "grains": statuses,
                    "consolidation": nights,
                    "journal_files": files,
                    "quarantined": quarantined,
                    "older_facts": older,
                    "stale_marts": stale,
                    "archived": archived,
                }
            )
        )
    else:
        echo_table(status_lines(statuses, [rejection.reason for rejection in quarantined], nights, older))
        for place, numbers in archived.items():
            rows, size = counted(numbers["rows"], "row"), counted(numbers["bytes"], "byte")
            click.echo(f"archived: {rows} of {place}, {size}; `memory-pipeline restore` brings them back")
        if stale:
            click.echo(f"behind their tables: marts {', '.join(stale)}; `memory-pipeline run` builds them")
        if not lake.configuration().uses_models:
            click.echo(WITHOUT_A_MODEL)


@cli.command()
@root_option("default: ./demo-lake")
@json_option
def demo(root: str | None, as_json: bool) -> None:
    """Run the whole pipeline on a sample year of conversations."""
    from memory_pipeline.demo import show_demo

    settings = Settings.from_environment()
    with progress(quiet=as_json, has_bar=False):
        show_demo(replace(settings, root=root or "./demo-lake"), as_json=as_json)


@command(cli, name="consolidate")
def consolidate_memories(
    root: str | None,
    as_json: bool,
    dry_run: bool = False,
    first: datetime | None = None,
    last: datetime | None = None,
    workspace: str | None = None,
    agent: str | None = None,
    now: datetime | None = None,
) -> None:
    """Consolidate durable memories. Merges duplicates, resolves contradictions and archives stale memories.

    \b
    Processes each pending day, as of its end, in five passes:
      promotion       an observation from three conversations becomes a fact
      duplicates      merge memories that say the same; no detail is lost
      contradictions  if only one of two values can be true, keep the more confident, then the newer
      staleness       memories not mentioned for long turn cold; faded ones are archived
      hot index       choose the most important memories, within two limits

    Nothing is deleted: a superseded memory names its successor, and archive search finds it. Instructions, rules, and
    what tells identity, home, work, family or health never become stale. Each change is an event with a reason
    (`memory-pipeline memories explain`).

    \b
        memory-pipeline consolidate --dry-run                     preview the pending days, with reasons
        memory-pipeline consolidate                               consolidate them
        memory-pipeline consolidate --dry-run --now 2027-01-01    preview all changes up to that day
        memory-pipeline consolidate --from 2024-01-01 --to 2024-12-31    recompute a year with the current rules

    The result depends only on the memories and the day: repeating days, in any order, gives the same result. Late data
    makes its day and all later days pending again. Data still in the journal is not seen: run `memory-pipeline run`
    first, which also consolidates pending days. Dagster does so every night (`memory_consolidation_nightly`). With
    --workspace or --agent, the days stay pending for all other agents. If a model is configured, --dry-run calls it
    too; its answers are cached for the run that follows.

    Args:
        dry_run: print the changes and their reasons; change nothing.
        first: first day to consolidate again.
        last: last day to consolidate again (included).
        workspace: only agents of this workspace.
        agent: only this agent.
        now: the current time.
    """
    from memory_pipeline.steps.consolidation.consolidate import consolidate
    from memory_pipeline.steps.consolidation.days import days_between, pending_days
    from memory_pipeline.steps.scheduling.planner import journal_hours

    if (first is None) != (last is None):
        raise InputError("--from and --to go together; give both, or neither to process pending days")
    if agent is not None and workspace is None:
        raise InputError("--agent needs --workspace; agent ids are unique only within a workspace")
    lake = lake_of(settings_of(root))
    moment = now or datetime.now(UTC)
    if first is None or last is None:
        nights = pending_days(lake, lake.start, moment)
    else:
        _check(first.date(), last.date(), lake.start)
        nights = days_between(lake, first.date(), last.date(), moment)
        if not nights:
            raise InputError(f"--from {first.date()} has not ended yet; give an earlier day")
    scopes = None if workspace is None else _scopes(lake, workspace, agent)
    unloaded = list(journal_hours(lake, lake.start, moment, scopes))
    with progress(quiet=as_json or dry_run):
        done = consolidate(lake, models_of(lake), nights, lake.start, scopes=scopes, dry_run=dry_run, explain=True)
    if as_json:
        click.echo(to_json({**_record(done, dry_run), "unloaded_hours": unloaded}))
        return
    lines = [*consolidation_lines(done, dry_run=dry_run), *unloaded_lines(unloaded, lake.calendar, moment)]
    click.echo("\n".join(lines))


def _check(first: date, last: date, start: date) -> None:
    if last < first:
        raise InputError(f"--to {last} is before --from {first}; give a later --to")
    if first < start:
        raise InputError(
            f"--from {first} is before the first day of this memory, {start}; "
            "give a later day, or set MEMORY_PIPELINE_START to an earlier one"
        )


def _scopes(lake: Lake, workspace_id: str, agent_id: str | None) -> list[Scope]:
    """Return the selected agents, which may be pending in the journal.

    Raises:
        InputError: no agent matches.
    """
    from memory_pipeline.steps.scopes import known_scopes

    Scope(workspace_id, agent_id or workspace_id)  # validates both ids
    scopes = known_scopes(lake, workspace_id)
    scopes |= {scope for scope in lake.journal.pending_scopes() if scope.workspace_id == workspace_id}
    of_workspace = sorted(scopes, key=lambda one: one.ids)
    if not of_workspace:
        raise InputError(f"--workspace {shown(workspace_id)} has no agent; check the name")
    if agent_id is None:
        return of_workspace
    of_agent = [one for one in of_workspace if one.agent_id == agent_id]
    if not of_agent:
        known = shown(", ".join(dict.fromkeys(one.agent_id for one in of_workspace)))
        raise InputError(f"--agent {shown(agent_id)} of workspace {workspace_id} is unknown; accepted: {known}")
    return of_agent


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


@command(cli)
def config(
    root: str | None,
    as_json: bool,
    workspace: str | None = None,
    agent: str | None = None,
    put: Path | None = None,
    example: bool = False,
) -> None:
    """Show, validate or replace the lake's configuration.

    The file config/workspaces.yaml sets models, prompts, keys and budgets. Without options, validate and print it. With
    --workspace and --agent, print that agent's settings including inherited ones. API keys are references (env:NAME,
    file:/path), never literal values.

    Args:
        workspace: with --agent: show the effective settings of that agent.
        agent: the agent.
        put: validate this file and store it as the configuration.
        example: print an example configuration that explains every key.
    """
    from memory_pipeline.configuration import EXAMPLE
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.lake import CONFIGURATION

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    lake = lake_of(settings_of(root), must_exist=put is None)
    if put is not None:
        lake.put_configuration(put)
        click.echo(to_json({"written": lake.storage.locate(CONFIGURATION)}) if as_json else f"{put} is now in use")
        return
    configuration = lake.configuration()
    if (workspace is None) != (agent is None):
        raise InputError("--workspace and --agent go together; give both, or neither to print the file")
    if workspace is not None and agent is not None:
        click.echo(to_json(configuration.describe(Scope(workspace, agent))))
        return
    text = (lake.storage.read(CONFIGURATION) or b"").decode()
    if as_json:
        click.echo(to_json({"source": configuration.source, "text": text, "uses_models": configuration.uses_models}))
    else:
        missing = f"# {configuration.source} does not exist: deterministic models are used; --example prints a template"
        click.echo(text or missing, nl=not text.endswith("\n"))

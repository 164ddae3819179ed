"""The command that keeps durable memories in order, and shows what it would do."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.options import Time, common, lake_of, models_of, now_option, settings_of, show_progress
from memory_pipeline.cli.root import cli
from memory_pipeline.domain.conversations import Scope
from memory_pipeline.errors import InputError, shown
from memory_pipeline.rendering import to_json, unloaded_lines, upkeep_lines

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.consolidation.report import Upkept


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
    from memory_pipeline.steps.consolidation.consolidate import keep_up
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
    done = keep_up(
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


def _record(done: Upkept, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "nights": [night for night in done.nights if night.agents or night.changed],
        "nights_made": len(done.nights),
        "agents": done.agents,
        "changes": done.changes,
        "hot": [{**asdict(scope), "lines": lines} for scope, lines in done.hot.items()],
        "seconds": round(done.seconds, 3),
    }

"""Commands for Dagster's history of a lake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memory_pipeline.cli.common import cli, common, echo, lake_of, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.errors import ConfigurationError, counted, require

if TYPE_CHECKING:
    import dagster as dg

    from memory_pipeline.defs.partition_keys import Partitions
    from memory_pipeline.lake import Lake


@cli.group()
def dagster() -> None:
    """Show a lake in a new Dagster, and prune Dagster's history. DAGSTER_HOME names the instance."""


def _opened(root: str | None) -> tuple[Lake, dg.DagsterInstance, Partitions]:
    require("pipeline", "dagster")
    if not os.environ.get("DAGSTER_HOME"):
        raise ConfigurationError("DAGSTER_HOME is not set; set it to the folder of the Dagster instance")
    import dagster as dg

    from memory_pipeline.defs.partition_keys import Partitions

    settings = settings_of(root)
    lake = lake_of(settings)
    return lake, dg.DagsterInstance.get(), Partitions(lake.start, lake.calendar, settings.location)


@dagster.command()
@common
def report(root: str | None, as_json: bool) -> None:
    """Report what the lake has to Dagster, so that a new instance shows it.

    Each partition becomes a materialization without a run, with its rows and its data version. What Dagster knows
    already is not reported again.
    """
    from memory_pipeline.defs.history import report_lake

    lake, instance, partitions = _opened(root)
    with instance, progress(quiet=as_json, has_bar=False):
        count = report_lake(lake, instance, partitions)
    echo({"reported": count}, [f"{counted(count, 'partition')} reported"], as_json=as_json)


@command(dagster)
def prune(root: str | None, as_json: bool, days: int = 30) -> None:
    """Delete finished runs of the grains that are older than some days, with their events.

    Partitions of which only these runs told are reported again, so that none looks missing. The files of SQLite shrink.

    Args:
        days: days of history that are kept.
    """
    from memory_pipeline.defs.history import prune_history

    lake, instance, partitions = _opened(root)
    with instance, progress(quiet=as_json, has_bar=False):
        done = prune_history(lake, instance, partitions, days)
    line = f"{counted(done.runs, 'run')} deleted, {counted(done.reported, 'partition')} reported again"
    echo(done._asdict(), [line], as_json=as_json)

"""Commands that read memory: by search, by lineage, by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.options import common, lake_of, now_option, reader_of, scope_options, settings_of
from memory_pipeline.cli.root import cli
from memory_pipeline.domain.grains import Grain
from memory_pipeline.rendering import hit_lines, to_json

if TYPE_CHECKING:
    from datetime import datetime


@cli.command()
@click.argument("query", required=False)
@scope_options
@click.option(
    "--grain",
    default="working",
    show_default=True,
    type=click.Choice([grain.value for grain in Grain]),
    help="What to search.",
)
@click.option("--min-days-ago", default=0.0, show_default=True, help="Age of the newest memory wanted.")
@click.option("--max-days-ago", default=365.0, show_default=True, help="Age of the oldest memory wanted.")
@click.option("--max-results", default=10, show_default=True, help="1 to 100.")
@click.option("--full", is_flag=True, help="Show summaries whole.")
@now_option
@common
def search(
    query: str | None,
    workspace_id: str,
    agent_id: str,
    grain: str,
    min_days_ago: float,
    max_days_ago: float,
    max_results: int,
    full: bool,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Search an agent's memory for QUERY, or show the newest of it.

    A summary's age counts from the end of its period. What was written a moment ago is found too.
    """
    reader = reader_of(lake_of(settings_of(root)), workspace_id, agent_id)
    hits = reader.search_memory(grain, min_days_ago, max_days_ago, max_results, query, now=now)
    if as_json:
        click.echo(to_json(hits))
    elif hits:
        click.echo("\n".join(hit_lines(hits, None if full else query, lines=None if full else 5)))
    else:
        click.echo(
            f"nothing in {grain} memory of {workspace_id}/{agent_id}, {min_days_ago:g} to {max_days_ago:g} days ago; "
            "--max-days-ago widens the range, `memory-pipeline status` tells what there is",
            err=True,
        )


@cli.command()
@click.argument("id")
@scope_options
@common
def expand(id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:  # noqa: A002
    """Walk from a summary or a fact (its ID, as search prints it) down to the messages that it rests on.

    ID#3 follows the summary's point 3 alone; points count from 0.
    """
    node = reader_of(lake_of(settings_of(root)), workspace_id, agent_id).expand(id)
    click.echo(to_json(node) if as_json else "\n".join(node.lines()))


@cli.command()
@click.argument("model", required=False)
@click.option("--show", is_flag=True, help="Print the SQL instead of running it.")
@common
def sql(model: str | None, show: bool, root: str | None, as_json: bool) -> None:
    """Run a MODEL of dbt_like_sql over the lake and print its rows; without one, list them."""
    from memory_pipeline.analytics import Warehouse, models_of

    if model is None:
        listed = [{"folder": m.folder, "name": m.name, "description": m.description} for m in models_of()]
        lines = (f"{m['folder']:<8} {m['name']:<40} {m['description'].splitlines()[0]}" for m in listed)
        click.echo(to_json(listed) if as_json else "\n".join(lines))
        return
    warehouse = Warehouse(lake_of(settings_of(root)))
    if show:
        click.echo(warehouse.model(model).sql)
        return
    rows = warehouse.query(model)
    if as_json:
        click.echo(to_json(rows.to_pylist()))
    else:
        import polars as pl

        with pl.Config(tbl_rows=50, tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True):
            click.echo(str(pl.from_arrow(rows)))
        click.echo(f"{rows.num_rows:,} rows")

"""The commands `graph …`, which read and change an agent's graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    Time,
    cli,
    common,
    echo_table,
    echo_written,
    now_option,
    required_writer_options,
    scope_options,
    writer_options,
)
from memory_pipeline.errors import counted
from memory_pipeline.rendering import plain, table_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.cli.common import AgentMemory
    from memory_pipeline.graph import Facts


@cli.group()
def graph() -> None:
    """Read or change an agent's graph. A fact is a subject, predicate and object with its validity in time."""


_LIMIT = click.option("--limit", default=50, show_default=True, help="Maximum number of results.")


@graph.command()
@click.argument("name")
@scope_options
@click.option("--at", type=Time(), metavar="TIME", help="Facts that held at this time, as known today.")
@_LIMIT
@common
def facts(name: str, agent: AgentMemory, at: datetime | None, limit: int, as_json: bool) -> None:
    """Show the current facts about NAME, newest first. Ignores case and follows aliases."""
    _show(agent.reader().graph.facts_about(name, at=at, limit=limit), name, as_json=as_json)


@graph.command()
@click.argument("subject")
@click.argument("predicate", required=False)
@scope_options
@_LIMIT
@common
def history(subject: str, predicate: str | None, agent: AgentMemory, limit: int, as_json: bool) -> None:
    """Show all facts about SUBJECT, current and ended. Sorted by when they began."""
    _show(agent.reader().graph.history(subject, predicate, limit=limit), subject, as_json=as_json)


@graph.command()
@click.argument("query")
@scope_options
@click.option("--speaker", help='Name of the speaker, to resolve "I".')
@click.option("--hops", default=1, show_default=True, help="Distance from the entities in QUERY, 0 to 3.")
@_LIMIT
@now_option
@common
def about(query: str, agent: AgentMemory, as_json: bool, **options: Any) -> None:
    """Show the facts most relevant to the entities in QUERY."""
    _show(agent.reader().graph.search(query, **options), "the entities in the query", as_json=as_json)


@graph.command()
@click.argument("name")
@scope_options
@click.option("--depth", default=1, show_default=True, help="Maximum distance, 1 to 6.")
@_LIMIT
@common
def neighbors(name: str, agent: AgentMemory, depth: int, limit: int, as_json: bool) -> None:
    """Show the entities that facts connect to NAME, nearest first."""
    found = agent.reader().graph.neighbors(name, depth, limit=limit)
    if as_json:
        click.echo(to_json({"total": found.total, "neighbors": found}))
        return
    for neighbor in found:
        click.echo(plain(f"{neighbor.distance}  {neighbor.name}"))
    _echo_rest(found, found.total, name)


@graph.command()
@click.argument("statement")
@scope_options
@click.option("--max-rows", default=100, show_default=True, help="Maximum number of rows.")
@click.option("--max-seconds", default=5.0, show_default=True, help="Time limit in seconds.")
@common
def query(
    statement: str,
    agent: AgentMemory,
    max_rows: int,
    max_seconds: float,
    as_json: bool,
) -> None:
    """Run one SELECT on the graph, in DuckDB's SQL.

    The tables are facts (current facts), history (current and ended facts) and entities. The statement can read
    nothing else and change nothing.
    """
    answer = agent.reader().graph.query(statement, max_rows=max_rows, max_seconds=max_seconds)
    if as_json:
        click.echo(to_json({"columns": answer.columns, "rows": answer.rows, "is_cut": answer.is_cut}))
        return
    echo_table(table_lines(answer.columns, answer.rows))
    if answer.is_cut:
        click.echo("… more rows; raise --max-rows to see them", err=True)


@graph.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@scope_options
@common
def export(file: Path, agent: AgentMemory, as_json: bool) -> None:
    """Write all facts, current and ended, to a Parquet FILE."""
    rows = agent.reader().graph.export(file)
    click.echo(to_json({"file": str(file), "rows": rows}) if as_json else f"{counted(rows, 'fact')} written to {file}")


_CONFIDENCE = click.option("--confidence", default=1.0, show_default=True, help="Confidence, 0 to 1.")
_WEIGHT = click.option("--weight", type=float, help="Strength of the relationship, 0 to 1.")


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object")
@writer_options
@_CONFIDENCE
@_WEIGHT
@now_option
@common
def insert(**options: Any) -> None:
    """Insert the fact SUBJECT PREDICATE OBJECT. A single-valued predicate replaces its previous object."""
    _change("INSERT", **options)


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object")
@click.option("--replaces", metavar="OBJECT", help="The object to replace, for a multi-valued predicate.")
@writer_options
@_CONFIDENCE
@_WEIGHT
@now_option
@common
def update(**options: Any) -> None:
    """Replace the object of SUBJECT and PREDICATE with OBJECT."""
    _change("UPDATE", **options)


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object", required=False)
@required_writer_options
@now_option
@common
def delete(**options: Any) -> None:
    """End the fact SUBJECT PREDICATE OBJECT. Without OBJECT, end all facts of SUBJECT and PREDICATE.

    Ended facts stay in the history.
    """
    _change("DELETE", **options)


def _change(verb: str, *, agent: AgentMemory, as_json: bool, now: datetime | None, **change: Any) -> None:
    [identifier] = agent.writer().graph.apply([{"edit": verb, **change}], now=now)
    echo_written(identifier, as_json=as_json)


def _show(found: Facts, what: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"total": found.total, "facts": found}))
        return
    for fact in found:
        click.echo(plain(fact.line))
    _echo_rest(found, found.total, what)


def _echo_rest(found: Sequence[object], total: int, what: str) -> None:
    if not found:
        click.echo(f"the graph has no facts about {what}", err=True)
    elif total > len(found):
        click.echo(f"… of {total:,}; raise --limit to see more", err=True)

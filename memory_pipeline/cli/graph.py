"""Commands on an agent's graph: what it knows, and changing that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import Time, cli, common, lake_of, now_option, reader_of, scope_options, settings_of
from memory_pipeline.rendering import plain, table_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.graph import Facts, Graph


@cli.group()
def graph() -> None:
    """Ask or change what an agent knows: facts as subject, predicate, object, and for how long they held."""


def _graph(root: str | None, workspace_id: str, agent_id: str) -> Graph:
    return reader_of(lake_of(settings_of(root)), workspace_id, agent_id).graph


_LIMIT = click.option("--limit", default=50, show_default=True, help="Most results.")


@graph.command()
@click.argument("name")
@scope_options
@click.option("--at", type=Time(), metavar="TIME", help="What held then, as far as it is known now.")
@_LIMIT
@common
def facts(
    name: str, workspace_id: str, agent_id: str, at: datetime | None, limit: int, root: str | None, as_json: bool
) -> None:
    """Show the facts about NAME that hold, newest first. Case does not matter, aliases are followed."""
    _show(_graph(root, workspace_id, agent_id).facts_about(name, at=at, limit=limit), name, as_json=as_json)


@graph.command()
@click.argument("subject")
@click.argument("predicate", required=False)
@scope_options
@_LIMIT
@common
def history(
    subject: str, predicate: str | None, workspace_id: str, agent_id: str, limit: int, root: str | None, as_json: bool
) -> None:
    """Show all facts with a SUBJECT, those too that have ended, in the order in which they began."""
    _show(_graph(root, workspace_id, agent_id).history(subject, predicate, limit=limit), subject, as_json=as_json)


@graph.command()
@click.argument("text")
@scope_options
@click.option("--speaker", help='Who says it: what "I" means.')
@click.option("--hops", default=1, show_default=True, help="How far around what it names, 0 to 3.")
@_LIMIT
@now_option
@common
def about(text: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool, **options: Any) -> None:
    """Show the facts that fit a TEXT best, of the people, places and things that it names."""
    _show(_graph(root, workspace_id, agent_id).search(text, **options), "what it names", as_json=as_json)


@graph.command()
@click.argument("name")
@scope_options
@click.option("--depth", default=1, show_default=True, help="Steps, 1 to 6.")
@_LIMIT
@common
def neighbors(
    name: str, workspace_id: str, agent_id: str, depth: int, limit: int, root: str | None, as_json: bool
) -> None:
    """Show what facts lead to from NAME, nearest first."""
    found = _graph(root, workspace_id, agent_id).neighbors(name, depth, limit=limit)
    if as_json:
        click.echo(to_json({"total": found.total, "neighbors": found}))
        return
    for neighbor in found:
        click.echo(plain(f"{neighbor.distance}  {neighbor.name}"))
    _tell_rest(found, found.total, name)


@graph.command()
@click.argument("statement")
@scope_options
@click.option("--max-rows", default=100, show_default=True, help="Most rows.")
@click.option("--max-seconds", default=5.0, show_default=True, help="How long it may take.")
@common
def query(
    statement: str,
    workspace_id: str,
    agent_id: str,
    max_rows: int,
    max_seconds: float,
    root: str | None,
    as_json: bool,
) -> None:
    """Run one SELECT in DuckDB's SQL over the tables facts (what holds), history (what held too) and entities.

    It can read nothing else and change nothing.
    """
    answer = _graph(root, workspace_id, agent_id).query(statement, max_rows=max_rows, max_seconds=max_seconds)
    if as_json:
        click.echo(to_json({"columns": answer.columns, "rows": answer.rows, "is_cut": answer.is_cut}))
        return
    click.echo("\n".join(table_lines(answer.columns, answer.rows)))
    if answer.is_cut:
        click.echo("… and more; --max-rows shows them", err=True)


@graph.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@scope_options
@common
def export(file: Path, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:
    """Write all facts, those too that have ended, to FILE in Parquet."""
    rows = _graph(root, workspace_id, agent_id).export(file)
    click.echo(to_json({"file": str(file), "rows": rows}) if as_json else f"{rows:,} facts written to {file}")


_CONFIDENCE = click.option("--confidence", default=1.0, show_default=True, help="0 to 1, how sure it is.")
_WEIGHT = click.option("--weight", type=float, help="0 to 1, how strong the relationship is.")


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object")
@scope_options
@_CONFIDENCE
@_WEIGHT
@now_option
@common
def insert(**options: Any) -> None:
    """Assert SUBJECT PREDICATE OBJECT. Where the predicate holds one object at a time, it replaces the one before."""
    _change("INSERT", **options)


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object")
@click.option("--replaces", metavar="OBJECT", help="What it takes the place of, where the predicate holds many.")
@scope_options
@_CONFIDENCE
@_WEIGHT
@now_option
@common
def update(**options: Any) -> None:
    """Assert SUBJECT PREDICATE OBJECT in place of another object."""
    _change("UPDATE", **options)


@graph.command()
@click.argument("subject")
@click.argument("predicate")
@click.argument("object", required=False)
@scope_options
@now_option
@common
def delete(**options: Any) -> None:
    """Say that SUBJECT PREDICATE OBJECT holds no longer; without OBJECT, all that SUBJECT has for PREDICATE.

    What held before stays in the history.
    """
    _change("DELETE", **options)


def _change(
    verb: str,
    *,
    workspace_id: str,
    agent_id: str,
    root: str | None,
    as_json: bool,
    now: datetime | None,
    **change: Any,
) -> None:
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.writer import MemoryWriter

    settings = settings_of(root)
    lake = lake_of(settings, must_exist=False)
    writer = MemoryWriter(lake, Scope(workspace_id, agent_id))
    [identifier] = writer.graph.apply([{"edit": verb, **change}], now=now)
    click.echo(to_json({"id": identifier}) if as_json else f"written: {identifier}")


def _show(found: Facts, what: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json({"total": found.total, "facts": found}))
        return
    for fact in found:
        click.echo(plain(fact.line))
    _tell_rest(found, found.total, what)


def _tell_rest(found: Sequence[object], total: int, what: str) -> None:
    if not found:
        click.echo(f"the graph knows nothing about {what}", err=True)
    elif total > len(found):
        click.echo(f"… of {total:,}; --limit shows more", err=True)

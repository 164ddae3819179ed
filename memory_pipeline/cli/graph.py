"""The commands `graph …`, which read and change an agent's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    AgentMemory,
    cli,
    common,
    echo,
    echo_table,
    required_writer_options,
    scope_options,
    writer_options,
)
from memory_pipeline.cli.verbs import VerbCommand, identified, verb, written
from memory_pipeline.errors import counted
from memory_pipeline.rendering import table_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.graph import Facts, Graph
    from memory_pipeline.graph.graph import Neighbors
    from memory_pipeline.graph.writer import GraphWriter


@cli.group()
def graph() -> None:
    """Read or change an agent's graph. A fact is a subject, predicate and object with its validity in time."""


def _graph(agent: AgentMemory) -> Graph:
    return agent.reader().graph


def _writer(agent: AgentMemory) -> GraphWriter:
    return agent.writer().graph


def _lines(found: Facts) -> Iterator[str]:
    return (f"{fact.line}, said by {fact.said_by}" for fact in found)


def _record(found: Facts) -> dict[str, object]:
    return {"total": found.total, "facts": found}


def _rest(found: Facts | Neighbors) -> str:
    if not found:
        return "the graph has no such facts"
    return f"… of {found.total:,}; raise --limit to see more" if found.total > len(found) else ""


def _verb(method: str, **attributes: Any) -> None:
    attributes = {"shows": _lines, "record": _record, **attributes}
    verb(graph, f"graph.graph:Graph.{method}", _graph, note=_rest, defaults={"limit": 50}, **attributes)


_verb("facts_about", name="facts")
_verb("history", arguments={"predicate"})
_verb("search", name="about", without={"names"})
_verb(
    "neighbors",
    shows=lambda found: (f"{one.distance}  {one.name}" for one in found),
    record=lambda found: {"total": found.total, "neighbors": found},
)


@graph.command(cls=VerbCommand, method="graph.graph:Graph.query")
@scope_options
@common
def query(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Run one SELECT on the graph, in DuckDB's SQL.

    The tables are facts (current facts), history (current and ended facts) and entities. neighbors('Anna', 2) and
    paths('Anna', 'Ben', 4) are tables too: the entities within 2 steps of Anna, and the paths of at most 4 steps
    between two entities, shortest first. The statement can read nothing else and change nothing.
    """
    answer = _graph(agent).query(**given)
    if as_json:
        click.echo(to_json({"columns": answer.columns, "rows": answer.rows, "is_cut": answer.is_cut}))
        return
    echo_table(table_lines(answer.columns, answer.rows))
    if answer.is_cut:
        click.echo("… more rows; raise --max-rows to see them", err=True)


@graph.command(cls=VerbCommand, method="graph.graph:Graph.export")
@scope_options
@common
def export(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Write all facts, current and ended, to a Parquet FILE."""
    rows, file = _graph(agent).export(**given), given["file"]
    echo({"file": str(file), "rows": rows}, [f"{counted(rows, 'fact')} written to {file}"], as_json=as_json)


for _name in ("insert", "update"):
    verb(graph, f"graph.writer:GraphWriter.{_name}", _writer, written, record=identified, options=writer_options)
verb(
    graph, "graph.writer:GraphWriter.delete", _writer, written, record=identified, options=required_writer_options,
    arguments={"object"},
)  # fmt: skip

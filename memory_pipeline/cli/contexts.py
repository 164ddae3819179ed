"""The commands `contexts …`: named containers of durable memories, with snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    behalf_option,
    cli,
    common,
    echo_table,
    echo_written,
    json_or_text,
    now_option,
    writer_options,
)
from memory_pipeline.domain.memories.record import ContextType
from memory_pipeline.errors import InputError, counted, shown
from memory_pipeline.rendering import plain, table_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.cli.common import AgentMemory, Command
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories.contexts import Context, Contexts


@cli.group()
def contexts() -> None:
    """Read or change an agent's contexts: named containers of durable memories, with snapshots.

    A context belongs to the user, to the group, or to the agent itself. Its entries are durable memories: `memories
    list` and `memories search` find them alone with --context, and `memories history` shows their versions.
    """


def _options(command: Command) -> Any:
    return writer_options(behalf_option(common(command)))


_NAME = click.argument("name")
_LABEL = click.argument("label")


@contexts.command("list")
@now_option
@_options
def list_(agent: AgentMemory, as_json: bool, now: datetime | None) -> None:
    """List all contexts by name, archived ones too."""
    _show(_of(agent).list(now=now), as_json=as_json)


@contexts.command()
@_NAME
@click.option(
    "--type",
    type=click.Choice([one.value for one in ContextType]),
    default=ContextType.AGENT_MEMORY.value,
    show_default=True,
    help="Its purpose.",
)
@click.option("--description", help="A sentence about its contents.")
@now_option
@_options
def create(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Create a context. One that exists stays as it is."""
    made = agent.granted_writer().contexts.create(**given)
    click.echo(to_json(made) if as_json else plain(f"context {made.name}: {made.type}"))


@contexts.command()
@_NAME
@click.argument("key")
@click.argument("text")
@click.option("--value", metavar="JSON", help="A value, parsed as JSON, or else taken as text. An earlier one stays.")
@now_option
@_options
def put(agent: AgentMemory, as_json: bool, value: str | None, **given: Any) -> None:
    """Write the entry with a KEY: a new one, or its next version. Searches read TEXT."""
    parsed = None if value is None else json_or_text(value)
    echo_written(_of(agent).put(value=parsed, **given), as_json=as_json)


@contexts.command()
@_NAME
@click.argument("key")
@_options
def get(name: str, key: str, agent: AgentMemory, as_json: bool) -> None:
    """Show the newest version of the entry with a KEY. --json prints its value and all other fields."""
    found = _of(agent).get(name, key)
    if found is None:
        raise InputError(
            f"context {shown(name)} has no entry {shown(key)}, or is archived; list contexts with `memory-pipeline "
            "contexts list`, and entries with `memory-pipeline contexts entries NAME`"
        )
    click.echo(to_json(found) if as_json else plain(found.content))


@contexts.command()
@_NAME
@click.argument("key")
@now_option
@_options
def remove(name: str, key: str, agent: AgentMemory, as_json: bool, now: datetime | None) -> None:
    """Revoke the entry with a KEY. Its history stays."""
    was_there = _of(agent).remove(name, key, now=now)
    click.echo(to_json({"removed": was_there}) if as_json else "removed" if was_there else "there was no such entry")


@contexts.command()
@_NAME
@now_option
@_options
def entries(name: str, agent: AgentMemory, as_json: bool, now: datetime | None) -> None:
    """List the entries of a context by key; none of an archived context."""
    _show_entries(_of(agent).entries(name, now=now), as_json=as_json)


@contexts.command()
@_NAME
@click.argument("query")
@click.option("--max-results", default=5, show_default=True, help="Maximum number of results, 1 to 100.")
@_options
def search(name: str, query: str, max_results: int, agent: AgentMemory, as_json: bool) -> None:
    """Show the entries of a context that fit QUERY best."""
    found = _of(agent).search(name, query, max_results)
    _show_entries([one.memory for one in found], as_json=as_json)


@contexts.command()
@_NAME
@_LABEL
@now_option
@_options
def snapshot(name: str, label: str, agent: AgentMemory, as_json: bool, now: datetime | None) -> None:
    """Name the present state of a context, to restore it later."""
    _of(agent).snapshot(name, label, now=now)
    click.echo(to_json({"name": name, "label": label}) if as_json else plain(f"{name} has the snapshot {label}"))


@contexts.command()
@_NAME
@_options
def snapshots(name: str, agent: AgentMemory, as_json: bool) -> None:
    """List the snapshots of a context, with their times."""
    found = _of(agent).snapshots(name)
    if as_json:
        click.echo(to_json(found))
        return
    for label, at in found.items():
        click.echo(plain(f"{at:%Y-%m-%d %H:%M}  {label}"))
    if not found:
        click.echo("it has no snapshots", err=True)


@contexts.command()
@_NAME
@_LABEL
@now_option
@_options
def restore(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Bring the entries of a context back to what they were at a snapshot.

    It writes new versions, and revokes entries that are newer. The history keeps all.
    """
    _say(_of(agent).restore(**given), "restored", as_json=as_json)


@contexts.command()
@_NAME
@now_option
@_options
def archive(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Take the entries of a context out of all searches but that of the archive. Nothing can be put into it."""
    _say(_of(agent).archive(**given), "archived", as_json=as_json)


@contexts.command()
@_NAME
@now_option
@_options
def unarchive(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Bring the entries of an archived context back."""
    _say(_of(agent).unarchive(**given), "unarchived", as_json=as_json)


def _of(agent: AgentMemory) -> Contexts:
    agent.lake()  # it must exist
    return agent.granted_writer().contexts


def _show(found: list[Context], *, as_json: bool) -> None:
    if as_json or not found:
        click.echo(to_json(found) if as_json else "there are no contexts", err=not as_json)
        return
    columns = ["name", "type", "archived", "created", "description"]
    rows = [
        [one.name, one.type, one.is_archived, f"{one.created_at:%Y-%m-%d}", " ".join(one.description.split())]
        for one in found
    ]
    echo_table(table_lines(columns, rows))


def _show_entries(found: Sequence[DurableMemory], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(found))
        return
    for one in found:
        click.echo(plain(f"{one.key or one.id}: {' '.join(one.content.split())}"))
    if not found:
        click.echo("there are no such entries", err=True)


def _say(count: int, what: str, *, as_json: bool) -> None:
    click.echo(to_json({what: count}) if as_json else f"{what}: {counted(count, 'entry')}")

"""The commands `memories …` that read an agent's durable memories, and the filters of all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import agent_options, cli, common, now_option, reading_behalf_option, scope_options
from memory_pipeline.domain.memories.record import MemoryClass, MemoryKind, SourceType, Status
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.cli.common import AgentMemory, Command
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory

KINDS = click.Choice([kind.value for kind in MemoryKind])


def class_option(text: str) -> Callable[[Command], Command]:
    """Return the option --class."""
    return click.option("--class", "memory_class", type=click.Choice([one.value for one in MemoryClass]), help=text)


def outcome_option(text: str) -> Callable[[Command], Command]:
    """Return the option --outcome, a boolean."""
    outcomes = {"succeeded": True, "failed": False}
    return click.option(
        "--outcome",
        "outcome_success",
        type=click.Choice([*outcomes]),
        callback=lambda _context, _parameter, value: outcomes.get(value),
        help=text,
    )


def source_option(text: str) -> Callable[[Command], Command]:
    """Return the option --source-type."""
    return click.option("--source-type", type=click.Choice([one.value for one in SourceType]), help=text)


@cli.group()
def memories() -> None:
    """Read or change an agent's durable memories. Kinds are fact, rule, instruction, preference and others.

    Durable memories outlive conversations and never expire. Changed, forgotten and merged versions stay available
    (`history`), with reasons (`explain`). `memory-pipeline consolidate` consolidates them once a day.
    """


_LIMIT = click.option("--limit", default=50, show_default=True, help="Maximum number of results.")


def filter_options(command: Command) -> Command:
    """Add the options that filter memories by what they say."""
    for option in (
        click.option("--preferences-of", "owner", metavar="USER", help="Preferences of this user."),
        click.option("--tag", help="Memories with this tag."),
        click.option("--object", "object", metavar="NAME", help="Facts with this object."),
        click.option("--predicate", metavar="NAME", help="Facts with this predicate, e.g. lives_in."),
        click.option("--subject", metavar="NAME", help="Facts about this subject; ignores case."),
        click.option("--kind", type=KINDS, help="Memories of this kind."),
    ):
        command = option(command)
    return command


def _origin_options(command: Command) -> Command:
    """Add the options that filter memories by how they came about."""
    for option in (
        click.option("--context", metavar="NAME", help="Entries of this context; see `memory-pipeline contexts`."),
        source_option("Memories that a user, a system, a tool, a workflow or an agent made."),
        outcome_option("Experiences that ended so."),
        class_option("Facts, or attempts with their outcome."),
    ):
        command = option(command)
    return command


@memories.command("list")
@filter_options
@_origin_options
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in Status), "any"]),
    default=Status.ACTIVE.value,
    show_default=True,
    help="Memories with this status: active, superseded (replaced), deprecated (forgotten), archived (faded), or any.",
)
@click.option("--review", is_flag=True, help="Memories to review: old, not used, unimportant (context rot of 0.7).")
@_LIMIT
@now_option
@scope_options
@common
def list_(agent: AgentMemory, as_json: bool, status: str, owner: str | None, **filters: Any) -> None:
    """Show memories that match all given filters, newest first."""
    lake = agent.lake()
    known = agent.reader(lake).memories
    found = known.list(status=None if status == "any" else status, user_id=owner, **filters)
    _show(found, as_json=as_json)
    if not found and agent.is_unknown(lake):
        click.echo(f"{agent} has no memory at all: the user is unknown; see `memory-pipeline users`", err=True)


@memories.command()
@click.argument("subject")
@_LIMIT
@scope_options
@common
def about(subject: str, agent: AgentMemory, limit: int, as_json: bool) -> None:
    """Show the active facts about SUBJECT, newest first. Ignores case."""
    _show(agent.reader().memories.about(subject, limit=limit), as_json=as_json)


@memories.command()
@click.argument("id")
@now_option
@scope_options
@common
def show(
    id: str,  # noqa: A002  # its name
    agent: AgentMemory,
    as_json: bool,
    now: datetime | None,
) -> None:
    """Show all fields of one memory of any status. ID#2 is its second version."""
    memory = agent.reader().memories.get(id, now=now)
    if memory is None:
        raise _unknown(id)
    click.echo(to_json(memory) if as_json else plain("\n".join(_all_lines(memory))))


@memories.command()
@click.argument("id")
@scope_options
@common
def history(id: str, agent: AgentMemory, as_json: bool) -> None:  # noqa: A002  # as above
    """Show all versions of a memory. Oldest first, each with its editor."""
    found = agent.reader().memories.history(id)
    if not found:
        raise _unknown(id)
    if as_json:
        click.echo(to_json(found))
        return
    for memory in found:
        head = f"{memory.version:3}. {memory.updated_at:%Y-%m-%d %H:%M} by {memory.editor}, {memory.kind}"
        click.echo(plain(f"{head}: {_one_line(memory.content)}"))
    click.echo(f"     {_status(found[-1])}")


@memories.command()
@click.argument("id")
@scope_options
@common
def explain(id: str, agent: AgentMemory, as_json: bool) -> None:  # noqa: A002  # as above
    """Show all changes of a memory. Oldest first, each with its editor and reason."""
    found = agent.reader().memories.explain(id)
    if not found:
        raise _unknown(id)
    if as_json:
        click.echo(to_json(found))
        return
    for line in map(_event_line, found):
        click.echo(plain(line))


@memories.command()
@click.argument("id")
@now_option
@scope_options
@common
def links(
    id: str,  # noqa: A002  # as above
    agent: AgentMemory,
    as_json: bool,
    now: datetime | None,
) -> None:
    """Show the links from and to a memory, strongest first. Those of a merged memory are the survivor's."""
    known = agent.reader().memories
    found = known.links(id, now=now)
    if not found and known.get(id, now=now) is None:
        raise _unknown(id)
    if as_json:
        click.echo(to_json(found))
        return
    for link in found:
        ends = f"{link.source_id} {link.relation} {link.target_id}"
        click.echo(plain(f"{ends}, weight {link.weight:g}, {link.linked_at:%Y-%m-%d} by {link.editor}"))
    if not found:
        click.echo("it has no links", err=True)


@memories.command()
@click.argument("query")
@_origin_options
@click.option("--archive", is_flag=True, help="Search stale, archived and superseded memories instead.")
@click.option("--max-results", default=5, show_default=True, help="Maximum number of results.")
@click.option("--hops", default=0, show_default=True, help="Show graph facts up to this distance from each, 0 to 3.")
@now_option
@scope_options
@common
def search(
    query: str,
    agent: AgentMemory,
    archive: bool,
    max_results: int,
    hops: int,
    now: datetime | None,
    as_json: bool,
    **origin: Any,
) -> None:
    """Show the memories most relevant to QUERY. A warning marks one that may be out of date."""
    known = agent.reader().memories
    if archive:
        found = known.search_archive(query, max_results, now=now, **origin)
    else:
        found = known.search(query, max_results, hops=hops, now=now, **origin)
    if as_json:
        click.echo(to_json(found))
        return
    for one in found:
        click.echo(plain("\n".join(_lines(one.memory, f", score {one.score:.2f}"))))
        if one.warning:
            click.echo(f"    warning: {one.warning}")
        for fact in one.facts:
            click.echo(plain(f"    {_one_line(fact.line)}"))
    if not found:
        click.echo("no memory matches", err=True)


@memories.command()
@now_option
@scope_options
@common
def hot(agent: AgentMemory, as_json: bool, now: datetime | None) -> None:
    """Show the hot index. These lines are for every system prompt; the last consolidation chose them."""
    index = agent.reader().memories.hot_index(now=now)
    if as_json:
        click.echo(to_json(index))
    elif not index:
        click.echo("the hot index is empty; fill it with `memory-pipeline consolidate`", err=True)
    else:
        for entry in index:
            click.echo(plain(str(entry)))


@memories.command()
@click.argument("user_id", metavar="USER")
@agent_options
@reading_behalf_option
@common
def preferences(agent: AgentMemory, as_json: bool) -> None:
    """Show all preferences of a USER, with their values as JSON."""
    user_id = agent.user_id or ""
    found = agent.reader().memories.preferences(user_id)
    if as_json:
        click.echo(to_json(found))
        return
    for key, value in found.items():
        click.echo(plain(f"{key} = {json.dumps(value, ensure_ascii=False)}"))
    if not found:
        click.echo(f"no preferences are set for {plain(user_id)}", err=True)


def _show(found: Sequence[DurableMemory], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(found))
        return
    for memory in found:
        click.echo(plain("\n".join(_lines(memory))))
    if not found:
        click.echo("no memory matches", err=True)


def _lines(memory: DurableMemory, more: str = "") -> Iterator[str]:
    yield f"[{memory.updated_at:%Y-%m-%d}] {_one_line(memory.content)}"
    yield f"    {memory.kind}, version {memory.version}, {_status(memory)}{more}, id {memory.id}"


def _unknown(memory_id: str) -> Exception:
    from memory_pipeline.errors import InputError, shown

    return InputError(
        f"this agent has no memory with id {shown(memory_id)}; list ids with `memory-pipeline memories list`"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _status(memory: DurableMemory) -> str:
    """Return a memory's status, temperature and reason in one line."""
    status = memory.temperature.value if memory.is_active else f"{memory.status}, {memory.temperature}"
    why = f" ({_one_line(memory.status_reason)})" if memory.status_reason else ""
    return f"{status}{why}"


def _all_lines(memory: DurableMemory) -> Iterator[str]:
    yield memory.content
    yield ""
    for name in memory.__dataclass_fields__:
        value = getattr(memory, name)
        if name == "content" or value is None or value == ():
            continue
        text = value.isoformat() if hasattr(value, "isoformat") else value
        yield f"{name + ':':18}{', '.join(value) if isinstance(value, tuple) else text}"


def _event_line(event: MemoryEvent) -> str:
    changes = ", ".join(f"{name}={_one_line(str(value))}" for name, value in event.changes.to_record().items())
    other = f" {event.other_id}" if event.other_id else ""
    why = f": {_one_line(event.reason)}" if event.reason else ""
    head = f"{event.event_at:%Y-%m-%d %H:%M} {event.verb}{other} by {event.editor}{why}"
    return f"{head}\n    {changes}" if changes else head

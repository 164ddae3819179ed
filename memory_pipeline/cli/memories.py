"""The commands `memories …`, which read and change an agent's durable memories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    agent_options,
    behalf_option,
    cli,
    common,
    now_option,
    required_writer_options,
    scope_options,
    writer_options,
)
from memory_pipeline.domain.json_text import RepeatedKeyError, read_json
from memory_pipeline.domain.memories.events import AGENT, STEP
from memory_pipeline.domain.memories.record import MemoryKind, Status
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.cli.common import AgentMemory
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory

_KINDS = click.Choice([kind.value for kind in MemoryKind])


@cli.group()
def memories() -> None:
    """Read or change an agent's durable memories. Kinds are fact, rule, instruction, preference and others.

    Durable memories outlive conversations and never expire. Changed, forgotten and merged versions stay available
    (`history`), with reasons (`explain`). `memory-pipeline consolidate` consolidates them once a day.
    """


_LIMIT = click.option("--limit", default=50, show_default=True, help="Maximum number of results.")


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter memories."""
    for option in (
        click.option("--preferences-of", "owner", metavar="USER", help="Preferences of this user."),
        click.option("--tag", help="Memories with this tag."),
        click.option("--object", "object", metavar="NAME", help="Facts with this object."),
        click.option("--predicate", metavar="NAME", help="Facts with this predicate, e.g. lives_in."),
        click.option("--subject", metavar="NAME", help="Facts about this subject; ignores case."),
        click.option("--kind", type=_KINDS, help="Memories of this kind."),
    ):
        command = option(command)
    return command


@memories.command("list")
@_filters
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in Status), "any"]),
    default=Status.ACTIVE.value,
    show_default=True,
    help="Memories with this status: active, superseded (replaced), deprecated (forgotten), archived (faded), or any.",
)
@_LIMIT
@now_option
@scope_options
@common
def list_(agent: AgentMemory, as_json: bool, status: str, owner: str | None, **filters: Any) -> None:
    """Show memories that match all given filters, newest first."""
    known = agent.reader().memories
    _show(known.list(status=None if status == "any" else status, user_id=owner, **filters), as_json=as_json)


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
@click.argument("query")
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
) -> None:
    """Show the memories most relevant to QUERY. A warning marks one that may be out of date."""
    known = agent.reader().memories
    if archive:
        found = known.search_archive(query, max_results, now=now)
    else:
        found = known.search(query, max_results, hops=hops, now=now)
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


def _attributes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that set a memory's attributes besides its content."""
    for option in (
        click.option("--editor", default=AGENT, show_default=True, help="Editor of the change."),
        click.option("--tag", "tags", multiple=True, help="A tag; may be repeated."),
        click.option(
            "--point-in-time/--lasting",
            "is_point_in_time",
            default=None,
            help="The memory describes a passing state, or one that lasts.",
        ),
        click.option("--decay-rate", type=float, help="Loss of relevance per day without use."),
        click.option("--confidence", type=float, help="Confidence, 0 to 1."),
        click.option("--importance", type=float, help="Importance, 0 to 1."),
        click.option("--object", "object", metavar="NAME", help="Object of a fact."),
        click.option("--predicate", metavar="NAME", help="Predicate of a fact, e.g. lives_in."),
        click.option("--subject", metavar="NAME", help="Subject of a fact."),
        click.option("--hook", help="Its line in the hot index, at most 120 characters."),
        click.option("--title", help="Title."),
    ):
        command = option(command)
    return command


@memories.command()
@click.argument("content")
@click.option("--kind", type=_KINDS, default=MemoryKind.FACT.value, show_default=True, help="Kind of memory.")
@_attributes
@now_option
@writer_options
@behalf_option
@common
def remember(
    content: str,
    agent: AgentMemory,
    as_json: bool,
    tags: Sequence[str],
    **attributes: Any,
) -> None:
    """Store CONTENT as a durable memory. Write a self-contained sentence, with names and dates.

    If a memory with the same words exists, it gets a new version instead.
    """
    memory_id = agent.granted_writer().remember(content, tags=list(tags) or None, **attributes)
    _echo_written(memory_id, as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--content", help="New content.")
@click.option("--kind", type=_KINDS, help="Kind of memory.")
@_attributes
@click.option("--reason", help="Reason, shown by `explain`.")
@now_option
@writer_options
@behalf_option
@common
def update(
    id: str,  # noqa: A002  # as above
    agent: AgentMemory,
    as_json: bool,
    tags: Sequence[str],
    **attributes: Any,
) -> None:
    """Write a new version of a memory. Options not given keep their values. Old versions stay in the history."""
    memory_id = agent.granted_writer().update(id, tags=list(tags) or None, **attributes)
    _echo_written(memory_id, as_json=as_json)


@memories.command()
@click.argument("id", required=False)
@_filters
@click.option("--key", help="Preferences with this key.")
@click.option("--reason", help="Reason, shown by `explain`.")
@now_option
@required_writer_options
@behalf_option
@common
def forget(agent: AgentMemory, as_json: bool, owner: str | None, **filters: Any) -> None:
    """Revoke one memory, or all that match every filter.

    Revoked memories stay in the history. Memory search no longer finds them, and recall omits messages with the same
    words. Other searches of conversations still find these messages; to erase them from disk, use
    `memory-pipeline forget`.
    """
    count = agent.granted_writer().forget(filters.pop("id"), user_id=owner, **filters)
    click.echo(to_json({"forgotten": count}) if as_json else f"forgotten: {count:,}")


_AMOUNT = click.option("--amount", default=STEP, show_default=True, help="Amount, 0 to 1.")


@memories.command()
@click.argument("id")
@_AMOUNT
@now_option
@writer_options
@behalf_option
@common
def boost(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Raise a memory's importance, up to 1."""
    _echo_written(agent.granted_writer().boost(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@_AMOUNT
@now_option
@writer_options
@behalf_option
@common
def reduce(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Lower a memory's importance, down to 0."""
    _echo_written(agent.granted_writer().reduce(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--reason", help="Reason, shown by `explain`.")
@now_option
@writer_options
@behalf_option
@common
def confirm(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Confirm that a memory still holds. An observation becomes a fact with the same id."""
    _echo_written(agent.granted_writer().confirm(**given), as_json=as_json)


@memories.command()
@click.argument("user_id", metavar="USER")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--delete", is_flag=True, help="Delete the preference.")
@now_option
@agent_options
@common
def prefer(key: str, value: str | None, agent: AgentMemory, delete: bool, now: datetime | None, as_json: bool) -> None:
    """Set or delete a preference of a USER. VALUE is parsed as JSON, or else taken as text. It never expires.

    \b
    memory-pipeline memories prefer u17 language Portuguese --workspace acme --agent support
    memory-pipeline memories prefer u17 opening '{"from": 9, "days": ["Mon", "Tue"]}' …
    """
    if (value is None) is not delete:
        raise click.UsageError("give either VALUE or --delete")
    writer, user_id = agent.writer(), agent.user_id or ""
    if delete:
        is_gone = writer.delete_preference(user_id, key, now=now)
        click.echo(to_json({"deleted": is_gone}) if as_json else "deleted" if is_gone else "no such preference was set")
        return
    _echo_written(writer.set_preference(user_id, key, _value(value or ""), now=now), as_json=as_json)


def _value(text: str) -> object:
    """Parse a text as JSON. Return the text itself if it is not JSON.

    Raises:
        InputError: a JSON object repeats a key.
    """
    try:
        return read_json(text)
    except RepeatedKeyError:
        raise
    except (ValueError, RecursionError):
        return text


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


def _echo_written(memory_id: str, *, as_json: bool) -> None:
    click.echo(to_json({"id": memory_id}) if as_json else f"written: {memory_id}")


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

"""Commands on what an agent keeps for good: its durable memories, and changing them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import cli, common, lake_of, now_option, reader_of, scope_options, settings_of
from memory_pipeline.domain.json_text import RepeatedKeyError, read_json
from memory_pipeline.domain.memories.events import AGENT, STEP
from memory_pipeline.domain.memories.record import MemoryKind, Status
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.writer import MemoryWriter

_KINDS = click.Choice([kind.value for kind in MemoryKind])


@cli.group()
def memories() -> None:
    """Ask or change what an agent keeps for good: facts, rules, instructions, preferences and what else has a kind.

    They outlive every conversation and every retention plan. What is changed, forgotten or merged stays in the history
    (history), with the reason (explain). `memory-pipeline upkeep` keeps them true and few, every night.
    """


def _reader(root: str | None, workspace_id: str, agent_id: str) -> MemoryReader:
    return reader_of(lake_of(settings_of(root)), workspace_id, agent_id)


def _writer(root: str | None, workspace_id: str, agent_id: str) -> MemoryWriter:
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.writer import MemoryWriter

    settings = settings_of(root)
    return MemoryWriter(lake_of(settings, must_exist=False), Scope(workspace_id, agent_id))


_LIMIT = click.option("--limit", default=50, show_default=True, help="Most results.")


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what memories can be told apart by."""
    for option in (
        click.option("--user", "user_id", help="Preferences of this user."),
        click.option("--tag", help="With this label."),
        click.option("--object", "object", metavar="NAME", help="Facts with this object."),
        click.option("--predicate", metavar="NAME", help="Facts with this predicate, as lives_in."),
        click.option("--subject", metavar="NAME", help="Facts about this one, in any case."),
        click.option("--kind", type=_KINDS, help="Of this kind."),
    ):
        command = option(command)
    return command


# --- asking ----------------------------------------------------------------------------------------------------------


@memories.command("list")
@_filters
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in Status), "any"]),
    default=Status.ACTIVE.value,
    show_default=True,
    help="Those that count, that another took the place of, that were forgotten, that had faded; or any.",
)
@_LIMIT
@now_option
@scope_options
@common
def list_(workspace_id: str, agent_id: str, root: str | None, as_json: bool, status: str, **filters: Any) -> None:
    """Show memories, newest first; with options, only those for which all of them hold."""
    found = _reader(root, workspace_id, agent_id).memories.list(status=None if status == "any" else status, **filters)
    _show(found, as_json=as_json)


@memories.command()
@click.argument("subject")
@_LIMIT
@scope_options
@common
def about(subject: str, workspace_id: str, agent_id: str, limit: int, root: str | None, as_json: bool) -> None:
    """Show the facts about SUBJECT that count, newest first. Case does not matter."""
    _show(_reader(root, workspace_id, agent_id).memories.about(subject, limit=limit), as_json=as_json)


@memories.command()
@click.argument("id")
@now_option
@scope_options
@common
def show(
    id: str,  # noqa: A002  # its name
    workspace_id: str,
    agent_id: str,
    root: str | None,
    as_json: bool,
    now: datetime | None,
) -> None:
    """Show all of one memory, whatever its status; with #n after the ID, its n-th version."""
    memory = _reader(root, workspace_id, agent_id).memories.get(id, now=now)
    if memory is None:
        raise _nothing(id)
    click.echo(to_json(memory) if as_json else plain("\n".join(_all_lines(memory))))


@memories.command()
@click.argument("id")
@scope_options
@common
def history(id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:  # noqa: A002  # as above
    """Show all versions of a memory, oldest first, each with its editor."""
    found = _reader(root, workspace_id, agent_id).memories.history(id)
    if not found:
        raise _nothing(id)
    if as_json:
        click.echo(to_json(found))
        return
    for memory in found:
        head = f"{memory.version:3}. {memory.updated_at:%Y-%m-%d %H:%M} by {memory.editor}, {memory.kind}"
        click.echo(plain(f"{head}: {_one_line(memory.content)}"))
    click.echo(f"     {_standing(found[-1])}")


@memories.command()
@click.argument("id")
@scope_options
@common
def explain(id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:  # noqa: A002  # as above
    """Show what made a memory what it is: every event, oldest first, with who did it and why."""
    found = _reader(root, workspace_id, agent_id).memories.explain(id)
    if not found:
        raise _nothing(id)
    if as_json:
        click.echo(to_json(found))
        return
    for line in map(_event_line, found):
        click.echo(plain(line))


@memories.command()
@click.argument("text")
@click.option("--archive", is_flag=True, help="Search what was put away instead: stale, faded or contradicted.")
@click.option("--max-results", default=5, show_default=True, help="Most results.")
@click.option("--hops", default=0, show_default=True, help="Show facts of the graph so far around each, 0 to 3.")
@now_option
@scope_options
@common
def search(
    text: str,
    workspace_id: str,
    agent_id: str,
    archive: bool,
    max_results: int,
    hops: int,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Show the memories that fit a TEXT best, with a warning where one may be out of date."""
    known = _reader(root, workspace_id, agent_id).memories
    if archive:
        found = known.search_archive(text, max_results, now=now)
    else:
        found = known.search(text, max_results, hops=hops, now=now)
    if as_json:
        click.echo(to_json(found))
        return
    for one in found:
        click.echo(plain("\n".join(_lines(one.memory, f", score {one.score:.2f}"))))
        if one.warning:
            click.echo(f"    take care: {one.warning}")
        for fact in one.facts:
            click.echo(plain(f"    {_one_line(fact.line)}"))
    if not found:
        click.echo("nothing is kept that fits", err=True)


@memories.command()
@now_option
@scope_options
@common
def hot(workspace_id: str, agent_id: str, root: str | None, as_json: bool, now: datetime | None) -> None:
    """Show the hot index: the few lines that go into every prompt, as the last upkeep has chosen them."""
    index = _reader(root, workspace_id, agent_id).memories.hot_index(now=now)
    if as_json:
        click.echo(to_json(index))
    elif not index:
        click.echo("the hot index is empty; `memory-pipeline upkeep` fills it, every night", err=True)
    else:
        for entry in index:
            click.echo(plain(str(entry)))


@memories.command()
@click.argument("user_id", metavar="USER")
@scope_options
@common
def preferences(user_id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:
    """Show what a USER wants: all preferences that are set, with their values as JSON."""
    found = _reader(root, workspace_id, agent_id).memories.preferences(user_id)
    if as_json:
        click.echo(to_json(found))
        return
    for key, value in found.items():
        click.echo(plain(f"{key} = {json.dumps(value, ensure_ascii=False)}"))
    if not found:
        click.echo(f"no preferences are set for {plain(user_id)}", err=True)


# --- changing --------------------------------------------------------------------------------------------------------


def _said(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what can be said of a memory beside its content."""
    for option in (
        click.option("--editor", default=AGENT, show_default=True, help="Who says so."),
        click.option("--tag", "tags", multiple=True, help="A label; may be given more than once."),
        click.option(
            "--point-in-time/--lasting",
            "is_point_in_time",
            default=None,
            help="Whether it says how things stand at this moment, which is soon no longer so.",
        ),
        click.option("--decay-rate", type=float, help="How fast its relevance fades, per day without use."),
        click.option("--confidence", type=float, help="0 to 1, how sure it is."),
        click.option("--importance", type=float, help="0 to 1, how much it matters."),
        click.option("--object", "object", metavar="NAME", help="Its object."),
        click.option("--predicate", metavar="NAME", help="Its predicate, as lives_in."),
        click.option("--subject", metavar="NAME", help="Its subject, if it is a fact of three terms."),
        click.option("--hook", help="A line of at most 120 characters for the hot index."),
        click.option("--title", help="What it is about."),
    ):
        command = option(command)
    return command


@memories.command()
@click.argument("content")
@click.option("--kind", type=_KINDS, default=MemoryKind.FACT.value, show_default=True, help="What sort of thing it is.")
@_said
@now_option
@scope_options
@common
def remember(
    content: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool, tags: Sequence[str], **said: Any
) -> None:
    """Keep CONTENT for good: a sentence that can be understood by itself, with names and dates.

    What is known already by the same words gets a further version instead.
    """
    made = _writer(root, workspace_id, agent_id).remember(content, tags=list(tags) or None, **said)
    _tell(made, as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--content", help="What it says from now on.")
@click.option("--kind", type=_KINDS, help="What sort of thing it is.")
@_said
@click.option("--reason", help="Why, for `explain`.")
@now_option
@scope_options
@common
def update(
    id: str,  # noqa: A002  # as above
    workspace_id: str,
    agent_id: str,
    root: str | None,
    as_json: bool,
    tags: Sequence[str],
    **said: Any,
) -> None:
    """Make a further version of a memory; what is not given stays as it is. What it was stays in its history."""
    _tell(_writer(root, workspace_id, agent_id).update(id, tags=list(tags) or None, **said), as_json=as_json)


@memories.command()
@click.argument("id", required=False)
@_filters
@click.option("--key", help="Preferences of this name.")
@click.option("--reason", help="Why, for `explain`.")
@now_option
@scope_options
@common
def forget(workspace_id: str, agent_id: str, root: str | None, as_json: bool, **filters: Any) -> None:
    """Revoke one memory by its ID, or all for which every option holds.

    They stay in the history, and are no longer kept for good: no search of memories finds them, nor does recall find
    what was said in the same words. Other searches of conversations do; `memory-pipeline forget` removes somebody's
    words from them, and off the disk.
    """
    count = _writer(root, workspace_id, agent_id).forget(filters.pop("id"), **filters)
    click.echo(to_json({"forgotten": count}) if as_json else f"forgotten: {count:,}")


_AMOUNT = click.option("--amount", default=STEP, show_default=True, help="By how much, 0 to 1.")


@memories.command()
@click.argument("id")
@_AMOUNT
@now_option
@scope_options
@common
def boost(workspace_id: str, agent_id: str, root: str | None, as_json: bool, **given: Any) -> None:
    """Make a memory more important, up to 1."""
    _tell(_writer(root, workspace_id, agent_id).boost(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@_AMOUNT
@now_option
@scope_options
@common
def reduce(workspace_id: str, agent_id: str, root: str | None, as_json: bool, **given: Any) -> None:
    """Make a memory less important, down to 0."""
    _tell(_writer(root, workspace_id, agent_id).reduce(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--reason", help="Why, for `explain`.")
@now_option
@scope_options
@common
def confirm(workspace_id: str, agent_id: str, root: str | None, as_json: bool, **given: Any) -> None:
    """Say that a memory is still so. An observation becomes a fact, and stays the same memory."""
    _tell(_writer(root, workspace_id, agent_id).confirm(**given), as_json=as_json)


@memories.command()
@click.argument("user_id", metavar="USER")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--delete", is_flag=True, help="Delete it instead.")
@now_option
@scope_options
@common
def prefer(
    user_id: str,
    key: str,
    value: str | None,
    workspace_id: str,
    agent_id: str,
    delete: bool,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Set preference KEY of a USER to VALUE: JSON, or else a text. It holds until it is set anew or deleted.

    \b
    memory-pipeline memories prefer u17 language Portuguese --workspace acme --agent support
    memory-pipeline memories prefer u17 opening '{"from": 9, "days": ["Mon", "Tue"]}' …
    """
    if (value is None) is not delete:
        raise click.UsageError("give a VALUE, or --delete")
    writer = _writer(root, workspace_id, agent_id)
    if delete:
        is_gone = writer.delete_preference(user_id, key, now=now)
        click.echo(to_json({"deleted": is_gone}) if as_json else "deleted" if is_gone else "it was not set")
        return
    _tell(writer.set_preference(user_id, key, _value(value or ""), now=now), as_json=as_json)


def _value(text: str) -> object:
    """Return the JSON that a text is; the text itself if it is none.

    Raises:
        InputError: it is JSON in which a key stands twice.
    """
    try:
        return read_json(text)
    except RepeatedKeyError:
        raise
    except (ValueError, RecursionError):
        return text


# --- showing ---------------------------------------------------------------------------------------------------------


def _show(found: Sequence[DurableMemory], *, as_json: bool) -> None:
    if as_json:
        click.echo(to_json(found))
        return
    for memory in found:
        click.echo(plain("\n".join(_lines(memory))))
    if not found:
        click.echo("nothing is kept that fits", err=True)


def _lines(memory: DurableMemory, more: str = "") -> Iterator[str]:
    yield f"[{memory.updated_at:%Y-%m-%d}] {_one_line(memory.content)}"
    yield f"    {memory.kind}, version {memory.version}, {_standing(memory)}{more}, id {memory.id}"


def _tell(memory_id: str, *, as_json: bool) -> None:
    click.echo(to_json({"id": memory_id}) if as_json else f"written: {memory_id}")


def _nothing(memory_id: str) -> Exception:
    from memory_pipeline.errors import InputError, shown

    return InputError(f"this agent keeps no memory by the id {shown(memory_id)}; `memories list` shows the ids")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _standing(memory: DurableMemory) -> str:
    """Say how a memory stands: its status, its temperature, and why."""
    stands = memory.temperature.value if memory.is_active else f"{memory.status}, {memory.temperature}"
    why = f" ({_one_line(memory.status_reason)})" if memory.status_reason else ""
    return f"{stands}{why}"


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
    said = ", ".join(f"{name}={_one_line(str(value))}" for name, value in event.changes.to_record().items())
    other = f" {event.other_id}" if event.other_id else ""
    why = f": {_one_line(event.reason)}" if event.reason else ""
    head = f"{event.event_at:%Y-%m-%d %H:%M} {event.verb}{other} by {event.editor}{why}"
    return f"{head}\n    {said}" if said else head

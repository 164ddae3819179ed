"""The commands `memories …` that change an agent's durable memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    agent_options,
    behalf_option,
    common,
    echo_written,
    json_or_text,
    now_option,
    required_writer_options,
    writer_options,
)
from memory_pipeline.cli.memories import KINDS, class_option, filter_options, memories, outcome_option, source_option
from memory_pipeline.domain.memories.events import AGENT, STEP
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.rendering import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from memory_pipeline.cli.common import AgentMemory, Command


def _attributes(command: Command) -> Command:
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
        outcome_option("How an experience ended. [default: unknown]"),
        class_option("A fact, or an attempt with its outcome. [default: experiential with an outcome, else factual]"),
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
@click.option("--kind", type=KINDS, default=MemoryKind.FACT.value, show_default=True, help="Kind of memory.")
@_attributes
@source_option("Origin of the memory. [default: agent]")
@click.option("--context", metavar="NAME", help="The context of which it becomes an entry.")
@click.option("--key", help="Key of the entry. The next text with that key is its next version.")
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
    echo_written(memory_id, as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--content", help="New content.")
@click.option("--kind", type=KINDS, help="Kind of memory.")
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
    echo_written(memory_id, as_json=as_json)


@memories.command()
@click.argument("id", required=False)
@filter_options
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


def _change_options(command: Command) -> Any:
    return now_option(writer_options(behalf_option(common(command))))


_AMOUNT = click.option("--amount", default=STEP, show_default=True, help="Amount, 0 to 1.")


@memories.command()
@click.argument("id")
@_AMOUNT
@_change_options
def boost(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Raise a memory's importance, up to 1."""
    echo_written(agent.granted_writer().boost(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@_AMOUNT
@_change_options
def reduce(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Lower a memory's importance, down to 0."""
    echo_written(agent.granted_writer().reduce(**given), as_json=as_json)


@memories.command()
@click.argument("id")
@click.option("--reason", help="Reason, shown by `explain`.")
@_change_options
def confirm(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Confirm that a memory still holds. An observation becomes a fact with the same id."""
    echo_written(agent.granted_writer().confirm(**given), as_json=as_json)


@memories.command()
@click.argument("source_id", metavar="SOURCE")
@click.argument("target_id", metavar="TARGET")
@click.argument("relation")
@click.option("--weight", default=1.0, show_default=True, help="Strength of the relationship, 0 to 1.")
@_change_options
def link(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Link the memory SOURCE to TARGET, or change the weight of the link. RELATION is a name such as caused_by."""
    echo_written(agent.granted_writer().link(**given), as_json=as_json)


@memories.command()
@click.argument("source_id", metavar="SOURCE")
@click.argument("target_id", metavar="TARGET")
@click.argument("relation")
@_change_options
def unlink(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Remove the link of RELATION from the memory SOURCE to TARGET, if there is one."""
    echo_written(agent.granted_writer().unlink(**given), as_json=as_json)


@memories.command()
@click.argument("user_id", metavar="USER")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--delete", is_flag=True, help="Delete the preference.")
@now_option
@agent_options
@behalf_option
@common
def prefer(key: str, value: str | None, agent: AgentMemory, delete: bool, now: datetime | None, as_json: bool) -> None:
    """Set or delete a preference of a USER. VALUE is parsed as JSON, or else taken as text. It never expires.

    \b
    memory-pipeline memories prefer u17 language Portuguese --workspace acme --agent support
    memory-pipeline memories prefer u17 opening '{"from": 9, "days": ["Mon", "Tue"]}' …
    """
    if (value is None) is not delete:
        raise click.UsageError("give either VALUE or --delete")
    writer, user_id = agent.granted_writer(), agent.user_id or ""
    if delete:
        is_gone = writer.delete_preference(user_id, key, now=now)
        click.echo(to_json({"deleted": is_gone}) if as_json else "deleted" if is_gone else "no such preference was set")
        return
    echo_written(writer.set_preference(user_id, key, json_or_text(value or ""), now=now), as_json=as_json)

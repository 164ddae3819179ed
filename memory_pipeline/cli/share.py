"""The commands `share`, `unshare`, `shares` and `team`: memory that agents of a workspace share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import behalf_option, cli, common, echo_table, id_option, required_agent_options
from memory_pipeline.domain.access import AccessLevel
from memory_pipeline.rendering import plain, table_lines, to_json

if TYPE_CHECKING:
    from memory_pipeline.cli.common import AgentMemory
    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.writer import GrantedWriter, MemoryWriter

_team = click.option("--team", metavar="NAME", help="A team of agents, in place of TO.")
_to = click.argument("to", metavar="[TO]", required=False)
_context = click.option("--context", metavar="NAME", help="One context, in place of the whole memory.")
_user = id_option("--user", "user_id", "The user whose memory is shared. [default: the agent's own memory]")


@cli.command()
@_to
@_team
@_context
@required_agent_options
@_user
@behalf_option
@common
@click.option(
    "--level",
    type=click.Choice([level.value for level in AccessLevel]),
    default=AccessLevel.READ.value,
    show_default=True,
    help="read; write, to change durable memories too; or admin, to share the memory with others too.",
)
def share(to: str | None, team: str | None, context: str | None, level: str, agent: AgentMemory, as_json: bool) -> None:
    """Let the agent TO of the same workspace use an agent's memory, or one context of it.

    Without --user that is the agent's own memory, and that of no user. It takes effect at the next read or write, also
    in processes that are running.
    """
    _own(agent).share_with_agent(to, agent.user_id, level, team=team, context=context)
    who, what = to or f"team {team}", "the memory" if context is None else f"context {context}"
    record: dict[str, object] = {"to": to, "team": team, "context": context, "level": level}
    _say(as_json, record, f"{who} has access to {what} of {agent}: {level}")


@cli.command()
@_to
@_team
@_context
@required_agent_options
@_user
@behalf_option
@common
def unshare(to: str | None, team: str | None, context: str | None, agent: AgentMemory, as_json: bool) -> None:
    """Take back what `share` gave to the agent TO. It takes effect at the next read or write."""
    had = _own(agent).revoke(to, agent.user_id, team=team, context=context)
    who = to or f"team {team}"
    grants = [] if agent.on_behalf_of else agent.granted_writer().grants()
    left = ["the memory" if one.context is None else f"context {one.context}"
            for one in grants if (one.to_agent, one.to_team) == (to, team)]  # fmt: skip
    record: dict[str, object] = {"to": to, "team": team, "context": context, "had_access": had, "left": left}
    text = "revoked" if had else f"{who} had no such grant"
    _say(as_json, record, f"{text}; {who} still has access to: {', '.join(left)}" if left else text)


@cli.command()
@required_agent_options
@_user
@behalf_option
@common
@click.option("--history", is_flag=True, help="All grants, revokes and changes of teams, oldest first.")
@click.option("--context", metavar="NAME", help="Only the grants of one context: its members.")
def shares(history: bool, context: str | None, agent: AgentMemory, as_json: bool) -> None:
    """List with whom an agent shares its own memory and its contexts, or with --user those of the user."""
    agent.lake()  # it must exist
    writer = agent.granted_writer()
    found = writer.access_history(context=context) if history else writer.grants(context=context)
    rows = [_row(one) for one in found]
    if as_json or not rows:
        what = "the memory" if context is None else f"context {context}"
        click.echo(to_json(rows) if as_json else plain(f"{what} of {agent} is shared with nobody"), err=not as_json)
        return
    echo_table(table_lines(list(rows[0]), [list(row.values()) for row in rows]))


@cli.group()
def team() -> None:
    """Change the teams of an agent: other agents that get the access it gives to the team."""


@team.command()
@click.argument("team")
@click.argument("member")
@required_agent_options
@common
def add(team: str, member: str, agent: AgentMemory, as_json: bool) -> None:
    """Add the agent MEMBER to a TEAM of the agent."""
    _own(agent).add_to_team(team, member)
    _say(as_json, {"team": team, "member": member}, "added")


@team.command("remove")
@click.argument("team")
@click.argument("member")
@required_agent_options
@common
def remove_from(team: str, member: str, agent: AgentMemory, as_json: bool) -> None:
    """Remove the agent MEMBER from a TEAM of the agent."""
    was = _own(agent).remove_from_team(team, member)
    _say(as_json, {"team": team, "member": member, "was_member": was}, "removed" if was else "it was not a member")


def _own(agent: AgentMemory) -> MemoryWriter | GrantedWriter:
    """Return the writer of the agent's own memory."""
    agent.lake()  # it must exist
    return replace(agent, user_id=None).granted_writer()


def _row(event: AccessEvent) -> dict[str, object]:
    record = event.to_record()
    names = ("access", "to_agent", "to_team", "context", "level", "timestamp", "by_agent")
    return {name: record.get(name) or "" for name in names}


def _say(as_json: bool, record: dict[str, object], text: str) -> None:
    click.echo(to_json(record) if as_json else plain(text))

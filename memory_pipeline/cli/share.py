"""The commands `share`, `unshare`, `shares` and `team`: memory that agents of a workspace share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import behalf_option, cli, common, echo, echo_rows, id_option, required_agent_options
from memory_pipeline.cli.verbs import command
from memory_pipeline.domain.access import AccessLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.cli.common import AgentMemory
    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.writer import GrantedWriter, MemoryWriter

_user = id_option("--user", "user_id", "The user whose memory is shared. [default: the agent's own memory]")


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return required_agent_options(_user(behalf_option(common(function))))


@command(cli, _options, arguments={"to"})
def share(
    agent: AgentMemory,
    as_json: bool,
    to: str | None = None,
    team: str | None = None,
    context: str | None = None,
    level: AccessLevel | str = AccessLevel.READ,
) -> None:
    """Let the agent TO of the same workspace use an agent's memory, or one context of it.

    Without --user that is the agent's own memory, and that of no user. It takes effect at the next read or write, also
    in processes that are running.

    Args:
        to: the other agent.
        team: a team of agents, in place of TO.
        context: one context, in place of the whole memory.
        level: read; write, to change durable memories too; or admin, to share the memory with others too.
    """
    _own(agent).grant(to, agent.user_id, level, team=team, context=context)
    who, what = to or f"team {team}", "the memory" if context is None else f"context {context}"
    record: dict[str, object] = {"to": to, "team": team, "context": context, "level": level}
    echo(record, [f"{who} has access to {what} of {agent}: {level}"], as_json=as_json)


@command(cli, _options, arguments={"to"})
def unshare(
    agent: AgentMemory, as_json: bool, to: str | None = None, team: str | None = None, context: str | None = None
) -> None:
    """Take back what `share` gave to the agent TO. It takes effect at the next read or write.

    Args:
        to: the other agent.
        team: a team of agents, in place of TO.
        context: one context, in place of the whole memory.
    """
    had = _own(agent).revoke(to, agent.user_id, team=team, context=context)
    who = to or f"team {team}"
    grants = [] if agent.on_behalf_of else agent.granted_writer().grants()
    left = ["the memory" if one.context is None else f"context {one.context}"
            for one in grants if (one.to_agent, one.to_team) == (to, team)]  # fmt: skip
    record: dict[str, object] = {"to": to, "team": team, "context": context, "had_access": had, "left": left}
    text = "revoked" if had else f"{who} had no such grant"
    echo(record, [f"{text}; {who} still has access to: {', '.join(left)}" if left else text], as_json=as_json)


@command(cli, _options)
def shares(agent: AgentMemory, as_json: bool, history: bool = False, context: str | None = None) -> None:
    """List with whom an agent shares its own memory and its contexts, or with --user those of the user.

    Args:
        history: all grants, revokes and changes of teams, oldest first.
        context: only the grants of one context: its members.
    """
    agent.lake()  # it must exist
    writer = agent.granted_writer()
    found = writer.access_history(context=context) if history else writer.grants(context=context)
    what = "the memory" if context is None else f"context {context}"
    nothing = f"{what} of {agent} is shared with nobody"
    echo_rows([_row(one) for one in found], as_json=as_json, nothing=nothing)


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
    echo({"team": team, "member": member}, ["added"], as_json=as_json)


@team.command("remove")
@click.argument("team")
@click.argument("member")
@required_agent_options
@common
def remove_from(team: str, member: str, agent: AgentMemory, as_json: bool) -> None:
    """Remove the agent MEMBER from a TEAM of the agent."""
    was = _own(agent).remove_from_team(team, member)
    record = {"team": team, "member": member, "was_member": was}
    echo(record, ["removed" if was else "it was not a member"], as_json=as_json)


def _own(agent: AgentMemory) -> MemoryWriter | GrantedWriter:
    """Return the writer of the agent's own memory."""
    agent.lake()  # it must exist
    return replace(agent, user_id=None).granted_writer()


def _row(event: AccessEvent) -> dict[str, object]:
    record = event.to_record()
    names = ("access", "to_agent", "to_team", "context", "level", "timestamp", "by_agent")
    return {name: record.get(name) or "" for name in names}

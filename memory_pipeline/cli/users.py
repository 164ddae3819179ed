"""The commands `agents`, `users` and `members`: whose memory the lake holds."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    agent_options,
    cli,
    common,
    echo,
    echo_rows,
    lake_of,
    required_agent_options,
    settings_of,
)
from memory_pipeline.cli.verbs import command
from memory_pipeline.errors import InputError, shown
from memory_pipeline.rendering import to_json

if TYPE_CHECKING:
    from memory_pipeline.cli.common import AgentMemory


@command(cli)
def agents(root: str | None, as_json: bool, workspace: str | None = None) -> None:
    """List all agents of the lake.

    With the number of their users and groups, and their first and last activity. Times of records that the pipeline
    has not processed yet are rounded to the hour.

    Args:
        workspace: only agents of this workspace.
    """
    from memory_pipeline.reader.activity import activities, users_of

    lake = lake_of(settings_of(root))
    known = [one for one in activities(lake) if workspace in {None, one.scope.workspace_id}]
    rows = []
    for own, group in groupby(known, key=lambda one: one.scope.own):
        scopes = list(group)
        rows.append(
            {
                "workspace_id": own.workspace_id,
                "agent_id": own.agent_id,
                "users": len({user for one in scopes for user in users_of(lake, one.scope)}),
                "groups": sum(one.scope.is_group for one in scopes),
                "first_at": min(one.first_at for one in scopes),
                "last_at": max(one.last_at for one in scopes),
            }
        )
    echo_rows(rows, as_json=as_json, nothing="there is no agent")


@cli.command()
@agent_options
@common
def users(agent: AgentMemory, as_json: bool) -> None:
    """List the users and groups of an agent.

    With the members of the groups, and the first and last activity of each. A user without activity has only been
    in groups. The users of an agent with `per_user: false`, who share one memory, are not listed. Times of records
    that the pipeline has not processed yet are rounded to the hour.
    """
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.reader.activity import activities, users_of

    lake = agent.lake()
    known = activities(lake, Scope(agent.workspace_id, agent.agent_id))
    groups: list[dict[str, Any]] = [
        {"group": scope.identity, "users": users_of(lake, scope), "first_at": first_at, "last_at": last_at}
        for scope, first_at, last_at in known
        if scope.is_group
    ]
    silent = {user: (None, None) for group in groups for user in group["users"]}
    active = {scope.user_id: (first_at, last_at) for scope, first_at, last_at in known if scope.user_id is not None}
    times = sorted({**silent, **active}.items())
    found = [{"user_id": user, "first_at": first_at, "last_at": last_at} for user, (first_at, last_at) in times]
    if as_json:
        click.echo(to_json({"users": found, "groups": groups}))
        return
    unknown = "" if known else ": the agent is unknown, `memory-pipeline agents` lists all"
    echo_rows(found, as_json=False, nothing=f"{agent} has no user{unknown}")
    if groups:
        click.echo()
        echo_rows(groups, as_json=False, nothing="")


@cli.group()
def members() -> None:
    """Change the members of groups."""


@members.command()
@click.argument("user")
@click.option(
    "--group",
    "identity",
    metavar="ID",
    required=True,
    help="The group, as `memory-pipeline users` lists it.",
)
@required_agent_options
@common
def remove(user: str, identity: str, agent: AgentMemory, as_json: bool) -> None:
    """Remove a USER from a group.

    The user no longer sees the memory of the group. The group keeps what the user said. A later conversation of the
    group that names the user adds it again.
    """
    lake = agent.lake()
    if not identity.startswith(("group:", "users:")):
        identity = f"group:{identity}"
    group = lake.scope(agent.workspace_id, agent.agent_id, identity)
    if not lake.members.remove(group, user):
        known = ", ".join(map(shown, lake.members.users_of(group)))
        accepted = f"accepted: {known}" if known else "it has no members"
        raise InputError(f"user {shown(user)} is not a member of {shown(identity)}; {accepted}")
    left = lake.members.users_of(group)
    echo({"users": left}, [f"removed; members: {', '.join(left) or 'none'}"], as_json=as_json)

"""The commands `sessions …`: what is in the sessions and pools of agents."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import click

from memory_pipeline.cli.common import (
    AgentMemory,
    agent_options,
    cli,
    common,
    echo,
    echo_rows,
    id_option,
    lake_of,
    required_agent_options,
    settings_of,
)
from memory_pipeline.cli.verbs import command, verb
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.domain.sessions import time_of
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_pipeline.sessions.store import SessionStore, SessionUsage, StoredEntry

_user = id_option("--user", "user_id", "The user of the session. [default: sessions without a user]")


@cli.group()
def sessions() -> None:
    """Read or clear the sessions and pools of agents, in the lake's folder or in MEMORY_PIPELINE_SESSIONS.

    Expired entries that the daily job has not deleted yet are shown too.
    """


@sessions.command("list")
@agent_options
@common
def list_(agent: AgentMemory, as_json: bool) -> None:
    """List the sessions of an agent, for all users, and the pools that it shares with other agents."""
    found: dict[tuple[str, str, str], list[StoredEntry]] = {}
    for _, one in _stored(agent):
        key = (one.container.kind.value, one.container.space, one.container.identity)
        found.setdefault(key, []).append(one)
    rows = [
        {
            "kind": kind,
            "name": name,
            "identity": identity,
            "entries": len(entries),
            "bytes": sum(len(one.entry.value.encode()) for one in entries),
            "updated_at": time_of(max(one.entry.updated_at for one in entries)).isoformat(timespec="seconds"),
        }
        for (kind, name, identity), entries in sorted(found.items())
    ]
    echo_rows(rows, as_json=as_json, nothing="this agent has no sessions and no pools")


@sessions.command()
@click.argument("session")
@agent_options
@_user
@common
def show(session: str, agent: AgentMemory, as_json: bool) -> None:
    """Show the entries of a SESSION: its values, scratch pad and short-term entries."""
    rows = [
        {
            "part": one.container.section or one.container.kind.value,
            "key": one.entry.key,
            "value": json.loads(one.entry.value) if as_json else one.entry.value,
            "version": one.entry.version,
            "accesses": one.entry.accesses,
            "expires_at": None if one.entry.expires_at is None else time_of(one.entry.expires_at).isoformat(),
        }
        for _, one in _of_session(agent, session)
    ]
    echo_rows(rows, as_json=as_json, nothing="there is no such session")


@sessions.command()
@click.argument("session")
@required_agent_options
@_user
@common
def clear(session: str, agent: AgentMemory, as_json: bool) -> None:
    """Delete all entries of a SESSION, its short-term entries too. Saved copies stay."""
    count = sum(store.delete([one.entry]) for store, one in [*_of_session(agent, session)])
    echo({"deleted": count}, [f"deleted: {count:,}"], as_json=as_json)


def _verb(method: str, shows: Callable[[Any], Iterable[str]], **attributes: Any) -> None:
    options = attributes.pop("options", agent_options)
    verb(
        sessions,
        f"client.memory:Memory.{method}",
        AgentMemory.memory,
        shows,
        options=lambda one: options(_user(one)),
        **attributes,
    )


_verb(
    "read",
    lambda found: [f"{found.tier}: {to_json(found.value)}"],
    record=lambda found: found._asdict(),
    unknown="no tier has the key {key}",
)
_verb("write", lambda _: ["written"], record=lambda _: {"written": True})
_verb(
    "consolidate",
    lambda done: [f"promoted: {done.promoted:,}", *(f"refused: {reason}" for reason in done.reasons)],
    record=asdict,
)
_verb(
    "share_with_agent",
    lambda version: [f"shared; version {version}"],
    record=lambda version: {"version": version},
    name="share",
)
_verb("retrieve_shared", lambda value: [to_json(value)], name="retrieve", without={"default"})


@command(sessions)
def stats(
    root: str | None,
    as_json: bool,
    workspace: str | None = None,
    agent: str | None = None,
    limit: Annotated[int, Within(1, 10_000)] = 50,
) -> None:
    """Show what sessions and pools take in each database, with the agents and users who have most.

    A row has the entries of an agent for a user, the bytes of their values, the accesses that count for promotion, and
    the last write. Without an agent it has pools that agents share; without an identity, entries of no user. Totals
    count all rows.

    Args:
        workspace: only agents of this workspace.
        agent: only this agent.
        limit: maximum number of rows.
    """
    from memory_pipeline.sessions.store import existing_stores

    if agent is not None and workspace is None:
        raise InputError("--agent needs --workspace; agent ids are unique only within a workspace")
    found: list[dict[str, Any]] = [
        {
            "database": store.database.place,
            **_usage_row(store.usage(workspace, agent)),
            "users": [
                {"workspace_id": ids[0], "agent_id": ids[1], "identity": ids[2], **_usage_row(usage)}
                for ids, usage in store.largest(workspace, agent, limit).items()
            ],
        }
        for store in existing_stores(lake_of(settings_of(root)))
    ]
    if as_json or not found:
        click.echo(to_json(found) if as_json else "this lake has no sessions and no pools", err=not as_json)
        return
    for one in found:
        total = ", ".join(f"{name} {one[name]:,}" for name in ("entries", "bytes", "accesses"))
        click.echo(plain(f"{one['database']}: {total}"))
        echo_rows(one["users"], as_json=as_json, nothing="no entry matches")
        if sum(row["entries"] for row in one["users"]) < one["entries"]:
            click.echo("… more rows; raise --limit to see them", err=True)


def _usage_row(usage: SessionUsage) -> dict[str, object]:
    at = time_of(usage.updated_at).isoformat(timespec="seconds") if usage.entries else None
    return {**usage._asdict(), "updated_at": at}


def _stored(agent: AgentMemory) -> Iterator[tuple[SessionStore, StoredEntry]]:
    from memory_pipeline.sessions.store import existing_stores

    for store in existing_stores(agent.lake()):
        for one in store.stored(agent.workspace_id):
            if one.container.agent_id in {"", agent.agent_id}:
                yield store, one


def _of_session(agent: AgentMemory, session: str) -> Iterator[tuple[SessionStore, StoredEntry]]:
    identity = "" if agent.user_id is None else user_identity(agent.user_id)
    for store, one in _stored(agent):
        is_session = not one.container.kind.is_pool and one.container.space == session
        if is_session and one.container.identity == identity:
            yield store, one

"""Commands that serve memory to agents."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    AgentMemory,
    Time,
    agent_options,
    cli,
    common,
    echo,
    echo_rows,
    lake_of,
    required_agent_options,
    root_option,
    settings_of,
    timezone_option,
    user_option,
)
from memory_pipeline.cli.verbs import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return agent_options(user_option(timezone_option(root_option()(function))))


@command(cli, _options)
def mcp(agent: AgentMemory, allow_writing: bool = False, max_tokens: int = 2_000) -> None:
    """Serve one agent's memory to an MCP client. The transport is standard input and output.

    Start a server for each user: --user decides whose memory the tools read and write, and no tool call can change it.
    Without --user they read and write the agent's own memory only.

    Tools: search_memories, recall_memory, list_memories, search_archive, get_memory, graph_facts, list_summaries; with
    --allow-writing also add_memory, update_memory, delete_memory, remember_fact and forget_fact, and, if
    memory-pipeline[run] is installed, correct. Resources: memory://hot-index, and summaries
    such as memory://summaries/weekly/2024-W03. Configuration of a client:

    \b
    {"mcpServers": {"memory": {"command": "memory-pipeline",
                               "args": ["mcp", "--root", "/data/lake", "--workspace", "acme", "--agent", "support",
                                        "--user", "u17"]}}}

    The server exits when the client disconnects. It logs to standard error.

    Args:
        allow_writing: let the client change memories and the graph.
        max_tokens: token budget of one answer, at 4 bytes a token; at least 200.
    """
    from memory_pipeline.tools.mcp import MemoryServer
    from memory_pipeline.tools.tool import Access

    lake = agent.lake(must_exist=not allow_writing)
    writer = agent.writer(lake) if allow_writing else None
    # A correction makes summaries again, as a run does.
    memory = agent.memory(lake) if allow_writing and find_spec("polars") else None
    access = Access(agent.reader(lake), writer, max_tokens=max_tokens, memory=memory)
    from importlib.metadata import version

    server = MemoryServer(access, version("memory-pipeline"))
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="memory-pipeline: %(message)s")
    # A blocked read of standard input cannot be interrupted otherwise. Nothing is lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not server.serve():
        # Python would wait for the thread of a call that no client waits for.
        sys.stderr.flush()
        os._exit(0)


def _served(function: Callable[..., Any]) -> Callable[..., Any]:
    return agent_options(root_option()(function))


@command(cli, _served)
def serve(
    agent: AgentMemory,
    host: str = "127.0.0.1",
    port: int = 8765,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    rate: float = 100,
    max_bytes: int = 4_194_304,
    origin: Sequence[str] = (),
    auto_run: bool = False,
    quiet: bool = False,
) -> None:
    """Serve the lake over HTTP: REST under /v1 (see /docs), MCP at /mcp, /health/live, /health/ready and /metrics.

    Clients send a token (see `memory-pipeline tokens create`), which opens the memory of one agent or user. Without any
    token in the lake, the service answers this machine alone, for the agent of --workspace and --agent; the header
    X-Memory-User names the user. Each request is logged to standard output as a line of JSON, without texts.

    \b
    memory-pipeline serve
    curl localhost:8765/v1/memories -H 'X-Memory-User: anna' --json '{"messages": "I moved to Porto."}'
    curl localhost:8765/v1/search -H 'X-Memory-User: anna' --json '{"query": "Where does Anna live?"}'

    Args:
        host: the address to listen on; 0.0.0.0 for all, which needs tokens.
        port: the port.
        tls_certificate: a file with the certificate chain, for HTTPS.
        tls_key: a file with the private key.
        rate: requests a second of one token; twice as many at once. 0 for no limit.
        max_bytes: size of a request's body.
        origin: a web page that may call the service (CORS), such as https://app.example.org.
        auto_run: run the pipeline for users with 1,000 or more pending entries; for a lake without Dagster.
        quiet: log no requests.
    """
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.service.server import serve as listen

    lake = agent.lake(must_exist=False)
    default = Scope(agent.workspace_id, agent.agent_id)
    listen(
        lake, default, host, port, partial(click.echo, err=True),
        certificate=tls_certificate, key=tls_key, rate=rate, max_bytes=max_bytes,
        origins=tuple(origin), auto_run=auto_run, logs=not quiet,
    )  # fmt: skip


def _of_root(function: Callable[..., Any]) -> Callable[..., Any]:
    return root_option()(function)


@command(cli, _of_root)
def ui(root: str | None, port: int = 8766, allow_corrections: bool = False) -> None:
    """Show the memory of the lake in a browser, on this machine alone.

    Agents and users, the calendar from years to messages, searches with their reasons, the graph, durable memories with
    their history, conversations with what was learned from them, cost and delays. It changes nothing, unless
    corrections are allowed.

    Args:
        port: the port.
        allow_corrections: let the pages correct statements and forget memories. A correction shows its plan first.
    """
    from memory_pipeline.errors import require

    require("ui", "fastapi")
    require("ui", "jinja2")
    from memory_pipeline.explorer.app import Explorer
    from memory_pipeline.service.server import listen

    lake = lake_of(settings_of(root))
    click.echo(f"open http://localhost:{port}", err=True)
    listen(Explorer(lake, allows_corrections=allow_corrections).app(), "127.0.0.1", port)


@cli.group()
def tokens() -> None:
    """Make, list and revoke the tokens of the service."""


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    user = click.option("--user", "user_id", metavar="ID", help="The user. [default: the agent's own memory]")
    many = click.option("--many-users", is_flag=True, help="For a trusted backend: each request names its user.")
    level = click.option(
        "--level", type=click.Choice(["read", "write", "admin"]), default="write", show_default=True,
        help="read: search. write: also add and change. admin: also erase, roll back and run.",
    )  # fmt: skip
    expires = click.option(
        "--expires", "expires_at", type=Time(), metavar="TIME", help="When it ends. [default: never]"
    )
    name = click.option("--name", default="", metavar="TEXT", help="A note, shown by `tokens list`.")
    return required_agent_options(user(many(level(expires(name(common(function)))))))


@tokens.command()
@_named
def create(
    agent: AgentMemory, many_users: bool, level: str, expires_at: datetime | None, name: str, as_json: bool
) -> None:
    """Make a token, and print it once. The lake keeps only its digest."""
    from datetime import UTC, datetime

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.tokens import ServiceToken

    lake = agent.lake(must_exist=False)
    lake.ensure()
    token, text = ServiceToken.new(
        Scope(agent.workspace_id, agent.agent_id), level, datetime.now(UTC), user_id=agent.user_id,
        is_for_many_users=many_users, name=name, expires_at=expires_at,
    )  # fmt: skip
    lake.tokens.add(token)
    record = {"id": token.id, "token": text}
    note = f"id {token.id}, {token.level} for {token.users}; it is not shown again"
    echo(record, [text], as_json=as_json, note=note)


@tokens.command(name="list")
@common
def list_tokens(root: str | None, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    rows = [
        {
            "id": one.id, "name": one.name, "level": str(one.level),
            "workspace": one.workspace_id, "agent": one.agent_id, "users": one.users,
            "created_at": one.created_at, "expires_at": one.expires_at,
        }
        for one in lake_of(settings_of(root)).tokens.all()
    ]  # fmt: skip
    echo_rows(rows, as_json=as_json, nothing="no tokens; make one with `memory-pipeline tokens create`")


@tokens.command()
@click.argument("id")
@common
def revoke(root: str | None, as_json: bool, id: str) -> None:  # noqa: A002  # as in the library
    """Revoke the token with this ID. A service that runs refuses it within five seconds."""
    lake_of(settings_of(root)).tokens.revoke(id)
    echo({"revoked": id}, [f"revoked: {id}"], as_json=as_json)

"""Commands that serve memory to agents."""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib.metadata import version

import click

from memory_pipeline.cli.common import AgentMemory, agent_options, cli, root_option, timezone_option, user_option


@cli.command()
@agent_options
@user_option
@timezone_option
@click.option("--allow-writing", is_flag=True, help="Let the client change memories and the graph.")
@click.option(
    "--max-tokens",
    default=2_000,
    show_default=True,
    help="Token budget of one answer, at 4 bytes a token; at least 200.",
)
@root_option()
def mcp(agent: AgentMemory, allow_writing: bool, max_tokens: int) -> None:
    """Serve one agent's memory to an MCP client. The transport is standard input and output.

    Start a server for each user: --user decides whose memory the tools read and write, and no tool call can change it.
    Without --user they read and write the agent's own memory only.

    Tools: search_memory, recall_memory, search_archive, get_memory, graph_facts, list_summaries; with --allow-writing
    also remember, update_memory, forget, remember_fact and forget_fact. Resources: memory://hot-index, and summaries
    such as memory://summaries/weekly/2024-W03. Configuration of a client:

    \b
    {"mcpServers": {"memory": {"command": "memory-pipeline",
                               "args": ["mcp", "--root", "/data/lake", "--workspace", "acme", "--agent", "support",
                                        "--user", "u17"]}}}

    The server exits when the client disconnects. It logs to standard error.
    """
    from memory_pipeline.tools.mcp import MemoryServer
    from memory_pipeline.tools.tool import Access

    lake = agent.lake(must_exist=not allow_writing)
    writer = agent.writer(lake) if allow_writing else None
    access = Access(agent.reader(lake), writer, max_tokens=max_tokens)
    server = MemoryServer(access, version("memory-pipeline"))
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="memory-pipeline: %(message)s")
    # A blocked read of standard input cannot be interrupted otherwise. Nothing is lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not server.serve():
        # Python would wait for the thread of a call that no client waits for.
        sys.stderr.flush()
        os._exit(0)

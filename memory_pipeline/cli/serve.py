"""Commands that serve memory to agents."""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from memory_pipeline.cli.common import AgentMemory, agent_options, cli, root_option, timezone_option, user_option
from memory_pipeline.cli.verbs import command

if TYPE_CHECKING:
    from collections.abc import Callable


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return agent_options(user_option(timezone_option(root_option()(function))))


@command(cli, _options)
def mcp(agent: AgentMemory, allow_writing: bool = False, max_tokens: int = 2_000) -> None:
    """Serve one agent's memory to an MCP client. The transport is standard input and output.

    Start a server for each user: --user decides whose memory the tools read and write, and no tool call can change it.
    Without --user they read and write the agent's own memory only.

    Tools: search_memory, recall_memory, search_archive, get_memory, graph_facts, list_summaries; with --allow-writing
    also remember, update_memory, forget, remember_fact and forget_fact, and, if memory-pipeline[run] is installed,
    correct. Resources: memory://hot-index, and summaries
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

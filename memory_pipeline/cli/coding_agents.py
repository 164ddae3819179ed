"""The command that installs the plugin for a coding agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import agent_options, cli, id_option, root_option, settings_of

if TYPE_CHECKING:
    from memory_pipeline.cli.common import AgentMemory

_AFTER = {
    "claude-code": "Start Claude Code anew; /plugin lists memory-pipeline, and /hooks its hooks.",
    "codex": "Start Codex anew, and trust the hooks: enter /hooks.",
    "cursor": "Reload the window of Cursor; Customize lists memory-pipeline.",
}


@cli.command()
@click.argument("client", type=click.Choice([*_AFTER]))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Change it without asking.")
@click.option("--undo", is_flag=True, help="Take the plugin away. Files that nobody changed since are as before.")
@agent_options
@id_option("--user", "user_id", "The user whose memory it is. [default: the agent's own memory]")
@click.option("--url", metavar="URL", help="The address of a service that serves the memory, in place of --root.")
@root_option()
def install(agent: AgentMemory, client: str, dry_run: bool, yes: bool, undo: bool, url: str | None) -> None:
    """Install memory for a coding agent: claude-code, codex or cursor.

    The plugin has hooks, which recall what fits a prompt and remember what is said, the MCP server `memory`, and a
    skill. The command shows what it changes, asks, and keeps a backup. Repeat it to change an option. It needs
    memory-pipeline[mcp,sessions].

    A hook takes 1 s of CPU time, and 0.1 s while `memory-pipeline serve` runs for the same lake and agent. With --url,
    hooks and model use a service alone. If it needs a token, set MEMORY_PIPELINE_TOKEN for this command and the agent.
    """
    from memory_pipeline.coding_agents.installing import apply, installation, removal
    from memory_pipeline.coding_agents.plugin import TOKEN, CodingAgent, Target

    home, kind = Path.home(), CodingAgent(client)
    root, needs_token = settings_of(agent.root).root, TOKEN in os.environ
    target = Target(root, agent.workspace_id, agent.agent_id, agent.user_id, url, needs_token)
    changes = removal(kind, home) if undo else installation(kind, target, home)
    if not changes:
        click.echo("nothing to change")
        return
    for change in changes:
        click.echo("\n".join(change.lines))
    if dry_run:
        return
    if not yes:
        click.confirm(f"change {len(changes)} files?", abort=True)
    apply(kind, changes, home, is_removal=undo)
    click.echo("removed" if undo else f"installed. {_AFTER[client]}")

"""The command that shows and replaces what is configured."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.cli.options import common, lake_of, settings_of
from memory_pipeline.cli.root import cli
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import to_json


@cli.command()
@click.option("--workspace", "workspace_id", help="Show what holds for this workspace's agent.")
@click.option("--agent", "agent_id", help="The agent.")
@click.option("--put", "file", type=click.Path(path_type=Path), help="Check FILE and make it the lake's configuration.")
@click.option("--example", is_flag=True, help="Print a configuration to start from, with every key explained.")
@common
def config(
    workspace_id: str | None, agent_id: str | None, file: Path | None, example: bool, root: str | None, as_json: bool
) -> None:
    """Show, check or replace config/workspaces.yaml of the lake: models, prompts, keys and budgets.

    Without options the file is checked and shown. With --workspace and --agent: what holds for that agent, after
    everything it inherits. Keys of providers are named by where they are found (env:NAME, file:/path), never written.
    """
    from memory_pipeline.configuration import EXAMPLE
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.lake.lake import CONFIGURATION

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    lake = lake_of(settings_of(root), must_exist=file is None)
    if file is not None:
        lake.put_configuration(file)
        click.echo(to_json({"written": lake.storage.locate(CONFIGURATION)}) if as_json else f"{file} is in use now")
        return
    configuration = lake.configuration()
    if (workspace_id is None) != (agent_id is None):
        raise InputError("--workspace and --agent go together; give both, or neither for the file as it is")
    if workspace_id is not None and agent_id is not None:
        click.echo(to_json(configuration.describe(Scope(workspace_id, agent_id))))
        return
    text = (lake.storage.read(CONFIGURATION) or b"").decode()
    if as_json:
        click.echo(to_json({"source": configuration.source, "text": text, "uses_models": configuration.uses_models}))
    else:
        missing = f"# {configuration.source} does not exist: all is deterministic; --example shows what can be set"
        click.echo(text or missing, nl=not text.endswith("\n"))

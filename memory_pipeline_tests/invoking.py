"""Run commands of the command line and read their JSON."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from memory_pipeline.cli import cli
from memory_pipeline.errors import MemoryPipelineError


def call(*arguments: str) -> Result:
    """Run a command. The result has a refusal as its exception; other errors are raised."""
    result = CliRunner().invoke(cli, arguments)
    if result.exception and not isinstance(result.exception, SystemExit | MemoryPipelineError):
        raise result.exception
    return result


def read(*arguments: str) -> Any:
    """Run a command that must succeed. Return its JSON."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)

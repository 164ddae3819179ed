"""The command line: `memory-pipeline --help`."""

from __future__ import annotations

import sys

import click

from memory_pipeline.cli import check, erase, evaluate, graph, memories, operate, read, repair, serve, sql, users, write
from memory_pipeline.cli.common import cli
from memory_pipeline.errors import MemoryPipelineError

__all__ = [
    "check",
    "cli",
    "erase",
    "evaluate",
    "graph",
    "main",
    "memories",
    "operate",
    "read",
    "repair",
    "serve",
    "sql",
    "users",
    "write",
]


def main() -> None:
    """Run the command line. Errors of this package and of the disk print one line and exit with code 2."""
    try:
        cli(standalone_mode=True)
    except Exception as error:
        from memory_pipeline.lake.files.disk import disk_error

        known = error if isinstance(error, MemoryPipelineError) else disk_error(error)
        if known is None:
            raise
        click.echo(f"memory-pipeline: {known}", err=True)
        sys.exit(2)

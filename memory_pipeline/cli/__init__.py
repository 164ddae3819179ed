"""The command line: `memory-pipeline --help`."""

from __future__ import annotations

import json
import os
import sys

import click

from memory_pipeline.cli import (  # noqa: F401  # each module adds its commands
    check,
    coding_agents,
    contexts,
    dagster,
    erase,
    evaluate,
    expiring,
    graph,
    importing,
    memories,
    operate,
    read,
    reembed,
    serve,
    sessions,
    share,
    sql,
    transfer,
    users,
    write,
)
from memory_pipeline.cli.common import cli
from memory_pipeline.errors import MemoryPipelineError, one_line, shown
from memory_pipeline.operating_system import separate_errors
from memory_pipeline.settings import wants_no_colour

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line.

    Errors print one line and exit with code 2. With --json, all errors print one line of JSON on standard error; the
    exit codes are the same. PYTHONDEVMODE=1 prints the traceback of a bug.
    """
    if not sys.flags.dev_mode:
        separate_errors()
    as_json = "--json" in sys.argv
    color = False if wants_no_colour() else None
    try:
        # Click would print its own errors as text.
        sys.exit(cli.main(standalone_mode=not as_json, color=color))
    except click.ClickException as error:
        _print_error(type(error).__name__, error.format_message())
        sys.exit(error.exit_code)
    except click.Abort:
        _print_error("Abort", "the command was interrupted")
        sys.exit(1)
    except BrokenPipeError:  # the reader has what it wants, as in `… --json | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except BaseException as error:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise
        from memory_pipeline.lake.files.disk import disk_error

        known = error if isinstance(error, MemoryPipelineError) else disk_error(error)
        if known is None:
            if sys.flags.dev_mode:
                raise
            what = f"{type(error).__name__}: {one_line(error)}"
            known = MemoryPipelineError(
                f"{shown(what, 300)[1:-1]}; this is a bug; PYTHONDEVMODE=1 prints the traceback"
            )
        if as_json:
            _print_error(type(known).__name__, str(known))
        else:
            click.echo(f"{click.style('memory-pipeline:', fg='red', bold=True)} {known}", err=True, color=color)
        sys.exit(2)


def _print_error(kind: str, message: str) -> None:
    click.echo(json.dumps({"error": {"type": kind, "message": message}}), err=True)

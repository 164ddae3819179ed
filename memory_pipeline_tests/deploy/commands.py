"""Check command lines against the installed programs without running them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from click.testing import CliRunner

if TYPE_CHECKING:
    import click

#: Module and name of each program's click command.
_PROGRAMS = {
    "memory-pipeline": ("memory_pipeline.cli", "cli"),
    "dagster": ("dagster._cli", "cli"),
    "dagster-daemon": ("dagster._daemon.cli", "cli"),
    "dagster-webserver": ("dagster_webserver.cli", "cli"),
    "celery": ("celery.bin.celery", "celery"),
}


def fault_of(words: list[str]) -> str | None:
    """Return the error of a command line of this package, Dagster or Celery, or None.

    Options are parsed before ``--help`` ends the program; their values are not checked.
    """
    module, name = _PROGRAMS[words[0]]
    program: click.Command = getattr(import_module(module), name)
    result = CliRunner().invoke(program, [*words[1:], "--help"])
    if result.exit_code == 0 and "Usage" in result.output:
        return None
    return result.output[-500:] or repr(result.exception)

"""Says whether a command line is one that the installed programs take, without running it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from click.testing import CliRunner

if TYPE_CHECKING:
    import click

#: Where the commands of the image's programs are defined: module and name.
_PROGRAMS = {
    "dagster": ("dagster._cli", "cli"),
    "dagster-daemon": ("dagster._daemon.cli", "cli"),
    "dagster-webserver": ("dagster_webserver.cli", "cli"),
    "celery": ("celery.bin.celery", "celery"),
}


def fault_of(words: list[str]) -> str | None:
    """Return what is wrong with a command line of Dagster or Celery; None if nothing is.

    Every option is parsed before ``--help`` ends the matter; values of options are not looked at.
    """
    module, name = _PROGRAMS[words[0]]
    program: click.Command = getattr(import_module(module), name)
    result = CliRunner().invoke(program, [*words[1:], "--help"])
    if result.exit_code == 0 and "Usage" in result.output:
        return None
    return result.output[-500:] or repr(result.exception)

"""The command group, shared options, and how commands open the lake, its models and a reader."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memory_pipeline.domain.periods import FIRST_YEAR, LAST_YEAR
from memory_pipeline.errors import InputError
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader


Command = TypeVar("Command", bound="Callable[..., Any]")

FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))


class Time(click.ParamType[datetime]):
    """A time with its zone, or a date (midnight UTC)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read a time; without a zone it is UTC."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2024-01-15T08:30:00+00:00 or 2024-01-15", param, ctx)
        if not FIRST_YEAR < moment.year < LAST_YEAR:
            self.fail(f"{value!r} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Day(click.ParamType[date]):
    """A date, meaning the whole day, or a time with its zone."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Read a date, or a time."""
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value) if len(value) <= len("2024-01-15") else datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a date such as 2024-01-15, or a time such as 2024-01-15T08:30+00:00", param, ctx
            )


def common(command: Command) -> Command:
    """Add what every command takes: the lake, and JSON output."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)
    return click.option(
        "--root",
        metavar="URI",
        help="The lake: a folder, or s3://bucket/prefix. [env MEMORY_PIPELINE_ROOT; default ./memory-lake]",
    )(command)


def now_option(command: Command) -> Command:
    """Add --now."""
    return click.option(
        "--now", type=Time(), metavar="TIME", help="Act as of this time instead of the clock's, as 2025-01-31T12:00Z."
    )(command)


def scope_options(command: Command) -> Command:
    """Add --workspace and --agent, which must be given."""
    command = click.option("--agent", "agent_id", required=True, help="Whose memory: the agent's id.")(command)
    return click.option("--workspace", "workspace_id", required=True, help="The agent's workspace.")(command)


def settings_of(root: str | None) -> Settings:
    """Return the environment's settings, with `root` if it is given."""
    settings = Settings.from_environment()
    return replace(settings, root=root or settings.root)


def lake_of(settings: Settings, *, must_exist: bool = True) -> Lake:
    """Open the lake.

    Raises:
        InputError: there is none, and there must be one.
    """
    from memory_pipeline.lake import Lake

    lake = Lake(settings.root, settings.timezone, settings.start)
    if must_exist and not lake.exists:
        raise InputError(
            f"there is no memory lake at {lake.storage.uri}; name it with --root or MEMORY_PIPELINE_ROOT, "
            "or fill it with `memory-pipeline ingest FILE`"
        )
    return lake


def models_of(lake: Lake) -> Models:
    """Return the models of the lake's configuration."""
    from memory_pipeline.models.factory import configured_models

    return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))


def reader_of(lake: Lake, workspace_id: str, agent_id: str) -> MemoryReader:
    """Open an agent's memory."""
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.models.factory import reading_embedder
    from memory_pipeline.reader import MemoryReader

    embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
    return MemoryReader(lake, Scope(workspace_id, agent_id), embedder)


def show_progress(*, quiet: bool) -> None:
    """Print a line for each batch that is made; nothing of other libraries."""
    log = logging.getLogger("memory_pipeline")
    if not quiet and not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("  %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


# The command that all others belong to.


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Long-term memory for AI agents, as a data pipeline.

    Conversations go into a journal (ingest), become facts and daily to yearly summaries (run), and are found again
    (search, recall, inject, expand), as a graph of what is known, too (graph), and by other programs (mcp). What is
    kept for good (memories) is put in order every night (upkeep). Try `memory-pipeline demo`.

    \b
    Settings: MEMORY_PIPELINE_ROOT      the lake, if --root is not given
              MEMORY_PIPELINE_START     first day of the memory, default: the lake's
              MEMORY_PIPELINE_TIMEZONE  the zone in which days begin, default UTC
    """

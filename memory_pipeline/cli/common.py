"""The command group, shared options, and helpers that open the lake, its models and a reader."""

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
        """Parse a time. Without a zone it is UTC."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a date or time; expected 2024-01-15 or 2024-01-15T08:30+00:00", param, ctx)
        if not FIRST_YEAR < moment.year < LAST_YEAR:
            self.fail(f"{value!r} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Day(click.ParamType[date]):
    """A date, meaning the whole day, or a time with its zone."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Parse a date or a time."""
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value) if len(value) <= len("2024-01-15") else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a date or time; expected 2024-01-15 or 2024-01-15T08:30+00:00", param, ctx)


def root_option(default: str = "env MEMORY_PIPELINE_ROOT; default ./memory-lake") -> Callable[[Command], Command]:
    """Add --root. `default` describes the lake without it."""
    return click.option("--root", metavar="URI", help=f"The lake: a folder, or s3://bucket/prefix. [{default}]")


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def common(command: Command) -> Command:
    """Add --root and --json."""
    return root_option()(json_option(command))


def now_option(command: Command) -> Command:
    """Add --now."""
    return click.option(
        "--now", type=Time(), metavar="TIME", help="Use this time instead of the current one, e.g. 2025-01-31T12:00Z."
    )(command)


def scope_options(command: Command) -> Command:
    """Add the required options --workspace and --agent."""
    command = click.option("--agent", "agent_id", required=True, help="Id of the agent.")(command)
    return click.option("--workspace", "workspace_id", required=True, help="Workspace of the agent.")(command)


def settings_of(root: str | None) -> Settings:
    """Return the settings of the environment. `root` takes precedence if given."""
    settings = Settings.from_environment()
    return replace(settings, root=root or settings.root)


def lake_of(settings: Settings, *, must_exist: bool = True) -> Lake:
    """Open the lake.

    Raises:
        InputError: the lake does not exist, and `must_exist` is set.
    """
    from memory_pipeline.lake import Lake

    lake = Lake(settings.root, settings.timezone, settings.start)
    if must_exist and not lake.exists:
        raise InputError(
            f"there is no memory lake at {lake.storage.uri}; set --root or MEMORY_PIPELINE_ROOT, "
            "or create it with `memory-pipeline ingest FILE`"
        )
    return lake


def models_of(lake: Lake) -> Models:
    """Return the models that the lake's configuration names."""
    from memory_pipeline.models.factory import configured_models

    return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))


def reader_of(lake: Lake, workspace_id: str, agent_id: str) -> MemoryReader:
    """Open a reader of one agent's memory."""
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.factory import reading_embedder
    from memory_pipeline.reader import MemoryReader

    embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
    return MemoryReader(lake, Scope(workspace_id, agent_id), embedder)


def show_progress(*, quiet: bool) -> None:
    """Print this package's log, a line per batch, to standard error. Logs of other libraries stay hidden."""
    log = logging.getLogger("memory_pipeline")
    if not quiet and not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("  %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Long-term memory for AI agents, as a data pipeline.

    `ingest` appends conversations to a journal. `run` turns them into facts, summaries (daily to yearly), a graph and
    durable memories, and consolidates the durable memories once a day (`consolidate`). Read them with `search`,
    `recall`, `inject`, `expand`, `graph` and `memories`, or serve them to an MCP client with `mcp`. Start with
    `memory-pipeline demo`.

    \b
    Environment: MEMORY_PIPELINE_ROOT      the lake, if --root is not given
                 MEMORY_PIPELINE_START     first day of the memory (default: the lake's)
                 MEMORY_PIPELINE_TIMEZONE  time zone in which days begin (default: UTC)
    """

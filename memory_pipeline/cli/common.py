"""The command group, shared options, and helpers that open the lake, its models and a reader."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memory_pipeline.domain.periods import FIRST_YEAR, LAST_YEAR
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import plain
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.writer import MemoryWriter


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


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """The memory that a command reads or changes: of an agent, and of a user if one is given.

    `timezone` is the reader's, by default the agent's or the lake's.
    """

    root: str | None
    workspace_id: str
    agent_id: str
    user_id: str | None
    timezone: str | None = None

    def __str__(self) -> str:
        """Return the ids: ``acme/support for user u17``."""
        user = "" if self.user_id is None else f" for user {plain(self.user_id)}"
        return f"{self.workspace_id}/{self.agent_id}{user}"

    def lake(self, *, must_exist: bool = True) -> Lake:
        """Open the lake; see :func:`lake_of`."""
        return lake_of(settings_of(self.root), must_exist=must_exist)

    def reader(self, lake: Lake | None = None) -> MemoryReader:
        """Open a reader."""
        from memory_pipeline.domain.scopes import Scope
        from memory_pipeline.models.factory import reading_embedder
        from memory_pipeline.reader import MemoryReader

        lake = lake or self.lake()
        embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
        scope = Scope(self.workspace_id, self.agent_id)
        zone = self.timezone or lake.timezone_of(scope)
        return MemoryReader(lake, scope, embedder, user_id=self.user_id, timezone=zone)

    def writer(self, lake: Lake | None = None) -> MemoryWriter:
        """Open a writer, of the user's memory or else of the agent's own."""
        from memory_pipeline.domain.conversations import audience_in
        from memory_pipeline.writer import MemoryWriter

        lake = lake or self.lake(must_exist=False)
        audience = audience_in({"user_id": self.user_id, "users": None, "group_id": None}, ())
        scope = lake.new_scope(self.workspace_id, self.agent_id, audience.identity)
        return MemoryWriter(lake, scope, user_id=self.user_id)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the required options --workspace and --agent, of which the command gets an :class:`AgentMemory`.

    If the command has a parameter `user_id`, it is the user; `timezone` is the reader's time zone.
    """

    @wraps(command)
    def with_agent(
        *,
        root: str | None,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        timezone: str | None = None,
        **options: Any,
    ) -> Any:
        return command(agent=AgentMemory(root, workspace_id, agent_id, user_id, timezone), **options)

    given = click.option("--agent", "agent_id", required=True, help="Id of the agent.")(with_agent)
    return click.option("--workspace", "workspace_id", required=True, help="Workspace of the agent.")(given)


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`agent_options`, and --user."""
    user = click.option(
        "--user",
        "user_id",
        metavar="ID",
        help="Id of a user. Reads the memory of the user, of the user's groups and of the agent; changes the user's. "
        "[default: the agent's own memory]",
    )
    return agent_options(user(command))


def reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`scope_options`, and --timezone."""
    zone = click.option(
        "--timezone",
        metavar="NAME",
        help="Time zone of those who read, such as Asia/Tokyo: days are shown in it, and --since, --until and "
        "'yesterday' in a question are meant in it. [default: the agent's, or the lake's]",
    )
    return scope_options(zone(command))


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

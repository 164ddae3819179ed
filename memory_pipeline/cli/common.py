"""The command group, shared options, and helpers that open the lake, its models and a reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from memory_pipeline.domain.json_text import RepeatedKeyError, read_json
from memory_pipeline.domain.periods import FIRST_YEAR, LAST_YEAR
from memory_pipeline.errors import InputError, shown
from memory_pipeline.rendering import plain, table_lines, to_json
from memory_pipeline.settings import Settings
from memory_pipeline.telemetry import configure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memory_pipeline.client.memory import Memory
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.writer import GrantedWriter, MemoryWriter


Command = TypeVar("Command", bound="Callable[..., Any]")

#: The workspace and the agent without --workspace and --agent, as in `memory_pipeline.Memory`.
DEFAULT_ID = "default"

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


def root_option(default: str = "env var: MEMORY_PIPELINE_ROOT; default: ./memory-lake") -> Callable[[Command], Command]:
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


def id_option(flag: str, name: str, text: str, **attributes: Any) -> Callable[[Command], Command]:
    """Return the option of an id, which the environment may give too: --agent by MEMORY_PIPELINE_AGENT."""
    variable = f"MEMORY_PIPELINE_{flag.removeprefix('--').upper()}"
    return click.option(flag, name, metavar="ID", envvar=variable, show_envvar=True, help=text, **attributes)


def is_from_environment(name: str) -> bool:
    """Return whether a parameter of the current command has its value from the environment."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.ENVIRONMENT


def given_ids() -> dict[str, str]:
    """Return the workspace and the agent that the current command names, without defaults."""
    context = click.get_current_context()
    names = ("workspace_id", "agent_id")
    return {name: context.params[name] for name in names
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """The memory that a command reads or changes: of an agent, and of a user or a group if one is given.

    `users` are the members of a group; without them, those of the stored group with `group_id`. `timezone` is the
    reader's, by default the agent's or the lake's. `on_behalf_of` is another agent, which needs a grant.
    """

    root: str | None
    workspace_id: str
    agent_id: str
    user_id: str | None = None
    timezone: str | None = None
    users: tuple[str, ...] = ()
    group_id: str | None = None
    on_behalf_of: str | None = None

    def __str__(self) -> str:
        """Return the ids: ``acme/support for user u17``."""
        user = "" if self.user_id is None else f" for user {plain(self.user_id)}"
        return f"{self.workspace_id}/{self.agent_id}{user}"

    def lake(self, *, must_exist: bool = True) -> Lake:
        """Open the lake; see :func:`lake_of`."""
        return lake_of(settings_of(self.root), must_exist=must_exist)

    def is_unknown(self, lake: Lake) -> bool:
        """Return whether a user is named who has no memory, and is in no group."""
        from memory_pipeline.domain.scopes import Scope
        from memory_pipeline.reader.activity import activities, users_of

        known = activities(lake, Scope(self.workspace_id, self.agent_id)) if self.user_id is not None else ()
        users = {user for scope, *_ in known for user in (scope.user_id, *users_of(lake, scope))}
        return self.user_id is not None and self.user_id not in users

    def reader(self, lake: Lake | None = None) -> MemoryReader:
        """Open a reader, or that of the agent on whose behalf the command reads."""
        from memory_pipeline.domain.scopes import Scope
        from memory_pipeline.models.factory import reading_embedder
        from memory_pipeline.reader import MemoryReader

        lake = lake or self.lake()
        embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
        scope = Scope(self.workspace_id, self.agent_id)
        asking = scope if self.on_behalf_of is None else Scope(self.workspace_id, self.on_behalf_of)
        zone = self.timezone or lake.timezone_of(asking)
        if asking != scope:
            return MemoryReader(lake, asking, embedder, timezone=zone).of_agent(self.agent_id, self.user_id)
        return MemoryReader(lake, scope, embedder, user_id=self.user_id, timezone=zone)

    def writer(self, lake: Lake | None = None) -> MemoryWriter:
        """Open a writer, of the memory of the user or the group, or else of the agent's own."""
        from memory_pipeline.domain.conversations import audience_in
        from memory_pipeline.writer import MemoryWriter

        lake = lake or self.lake(must_exist=False)
        audience = audience_in(self.audience_fields(lake), ())
        scope = lake.new_scope(self.workspace_id, self.agent_id, audience.identity)
        return MemoryWriter(lake, scope, users=audience.users if scope.is_group else (), user_id=self.user_id)

    def memory(self, lake: Lake | None = None) -> Memory:
        """Open the memory of the user or the agent, by default in an existing lake."""
        from memory_pipeline.client.memory import Memory

        if lake is None:
            self.lake()  # it must exist
        root = settings_of(self.root).root
        return Memory(root, user_id=self.user_id, agent_id=self.agent_id, workspace_id=self.workspace_id)

    def granted_writer(self) -> MemoryWriter | GrantedWriter:
        """Open a writer, or that of the agent on whose behalf the command changes memory or grants.

        Raises:
            InputError: the memory is of a group, which cannot be shared.
        """
        if self.on_behalf_of is None:
            return self.writer()
        if self.users or self.group_id is not None:
            raise InputError("--on-behalf-of does not go together with --users and --group; no grant opens a group")
        asking = replace(self, agent_id=self.on_behalf_of, user_id=None, on_behalf_of=None)
        return asking.writer(self.lake()).of_agent(self.agent_id, self.user_id)

    def audience_fields(self, lake: Lake) -> dict[str, object]:
        """Return the fields of a conversation that name the user or the group.

        Raises:
            InputError: the group is unknown and has no members, or one member.
        """
        users = list(self.users) or None
        group_id = None if self.group_id is None else self.group_id.removeprefix("group:")  # as `users` lists it
        if group_id is not None and users is None and self.user_id is None:
            if lake.exists:
                group = lake.scope(self.workspace_id, self.agent_id, f"group:{group_id}")
                users = list(lake.members.users_of(group)) or None
            if users is None:
                raise InputError(f"--group {shown(group_id)} has no members yet; name them with --users")
        elif group_id is None and len(self.users) == 1:
            raise InputError(
                f"--users {shown(self.users[0])} is one user; repeat --users for each member, or give --user"
            )
        return {"user_id": self.user_id, "users": users, "group_id": group_id}


behalf_option = click.option(
    "--on-behalf-of",
    metavar="ID",
    help="The agent that reads or changes it, if it is another one of the workspace. It needs a grant; see `share`.",
)

reading_behalf_option = click.option(
    "--on-behalf-of",
    metavar="ID",
    help="The agent that reads, if it is another one of the workspace. It needs a grant (see `share`), and never reads "
    "the memory of groups.",
)


def agent_options(
    command: Callable[..., Any],
    *,
    required: bool = False,
    workspace: str = "The agent's workspace.",
    agent: str = "The agent.",
) -> Callable[..., Any]:
    """Add the options --workspace and --agent, of which the command gets an :class:`AgentMemory`.

    Both have the defaults of :class:`memory_pipeline.Memory`, unless they are `required`; `workspace` and `agent` are
    their help. If the command has parameters `user_id`, `users` and `group_id`, they are the user and the group;
    `timezone` is the reader's time zone.
    """

    @wraps(command)
    def with_agent(
        *,
        root: str | None,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        timezone: str | None = None,
        users: tuple[str, ...] = (),
        group_id: str | None = None,
        on_behalf_of: str | None = None,
        **options: Any,
    ) -> Any:
        if (users or group_id is not None) and is_from_environment("user_id"):
            user_id = None
        memory = AgentMemory(root, workspace_id, agent_id, user_id, timezone, users, group_id, on_behalf_of)
        return command(agent=memory, **options)

    attributes: dict[str, Any] = {"required": True} if required else {"default": DEFAULT_ID, "show_default": True}
    given = id_option("--agent", "agent_id", agent, **attributes)(with_agent)
    return id_option("--workspace", "workspace_id", workspace, **attributes)(given)


user_option = id_option(
    "--user",
    "user_id",
    "Read the memory of this user, of the user's groups and of the agent. [default: the agent's own memory]",
)

timezone_option = click.option(
    "--timezone",
    metavar="NAME",
    help="Time zone of those who read, such as Asia/Tokyo: days are shown in it, and --since, --until and "
    "'yesterday' in a question are meant in it. [default: the agent's, or the lake's]",
)


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`agent_options`, --user, and --on-behalf-of for the agent that reads."""
    return agent_options(user_option(reading_behalf_option(command)))


def writer_options(command: Callable[..., Any], *, required: bool = False) -> Callable[..., Any]:
    """Add the options of :func:`agent_options`, and --user, --users and --group for the memory that is changed."""
    group = click.option(
        "--group", "group_id", metavar="ID", help="Change the memory of this group. Without --users, it must exist."
    )(command)
    users = click.option(
        "--users", multiple=True, metavar="ID", help="Change the memory of the group of these users; repeat for each."
    )(group)
    user = id_option("--user", "user_id", "Change the memory of this user. [default: the agent's own memory]")
    return agent_options(user(users), required=required)


def changer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`writer_options`, and --on-behalf-of for the agent that changes the memory."""
    return writer_options(behalf_option(command))


#: For commands that delete: they never take the default agent.
required_agent_options = partial(agent_options, required=True)
required_writer_options = partial(writer_options, required=True)


def deleter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`changer_options`, for commands that delete."""
    return required_writer_options(behalf_option(command))


def reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of :func:`scope_options`, and --timezone."""
    return scope_options(timezone_option(command))


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


def models_of(lake: Lake, *, is_fresh: bool = False) -> Models:
    """Return the models that the lake's configuration names; see :func:`configured_models`."""
    from memory_pipeline.models.factory import configured_models

    clock = partial(datetime.now, UTC)
    return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, clock, is_fresh=is_fresh)


class Json(click.ParamType[object]):
    """A value as JSON. What is not JSON is a text."""

    name = "json"

    def convert(self, value: Any, param: object, ctx: object) -> object:  # noqa: ARG002  # as in the base class
        """Parse a value. Raise InputError if a JSON object repeats a key."""
        try:
            return read_json(value)
        except RepeatedKeyError:
            raise
        except (ValueError, RecursionError):
            return value


def echo(record: object, lines: Iterable[str], *, as_json: bool, note: str = "") -> None:
    """Print a result: as JSON, or its lines for people with a note on standard error."""
    if as_json:
        click.echo(to_json(record))
        return
    text = "\n".join(lines)
    if text:
        click.echo(plain(text))
    if note:
        click.echo(plain(note), err=True)


def echo_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, nothing: str) -> None:
    """Print records with the same keys: as JSON, or as a table."""
    if as_json or not rows:
        click.echo(to_json(rows) if as_json else plain(nothing), err=not as_json)
        return
    cells = [[", ".join(value) if isinstance(value, tuple) else value for value in row.values()] for row in rows]
    echo_table(table_lines(list(rows[0]), cells))


def echo_table(lines: Iterable[str]) -> None:
    """Print a table, of which the first line is the head."""
    for number, line in enumerate(lines):
        click.echo(line if number else click.style(line, bold=True))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Long-term memory for AI agents, as a data pipeline.

    `ingest` appends conversations to a journal. `run` turns them into facts, summaries (daily to yearly), a graph and
    durable memories, and consolidates the durable memories once a day (`consolidate`). Read them with `search`,
    `recall`, `inject`, `expand`, `graph` and `memories`, or serve them to an MCP client with `mcp`. `memories remember`
    stores a durable memory, `memories forget` revokes one, and `forget` erases all that is stored of someone. Start
    with `memory-pipeline demo`.

    \b
    Environment: MEMORY_PIPELINE_ROOT       the lake, if --root is not given
                 MEMORY_PIPELINE_WORKSPACE  the agent's workspace, if --workspace is not given
                 MEMORY_PIPELINE_AGENT      the agent, if --agent is not given
                 MEMORY_PIPELINE_USER       the user, if --user is not given
                 MEMORY_PIPELINE_START      first day of the memory (default: the lake's)
                 MEMORY_PIPELINE_TIMEZONE   time zone in which days begin (default: UTC)
                 NO_COLOR                   print no colour

    With --json, an error is one line of JSON on standard error, and standard output stays empty:
    {"error": {"type": "InputError", "message": "..."}}. The exit code is the same as without --json.
    """
    configure("memory-pipeline")

"""Tools: parameters with JSON schemas, access to memory, and calls that always return a text."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Protocol

from memory_pipeline.domain.memories.record import SourceType
from memory_pipeline.domain.scopes import MAX_ID
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.parameters import Parameter, arguments_of, parameters_of, prose_of
from memory_pipeline.reader.all_users import AllUsersReader
from memory_pipeline.writer import GrantedWriter, MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.reader.dependents import LearnedItem


#: Default and minimum token budget of one answer, at 4 bytes a token.
DEFAULT_TOKENS, LEAST_TOKENS = 2_000, 200

#: Tokens of the name of another agent in an answer.
_NAME_TOKENS = 40

#: The argument with which a model names another agent. Which agent asks is never an argument.
_AGENT = Parameter("agent", "string", "", least=1, most=MAX_ID)
_READS, _CHANGES = (
    replace(_AGENT, description=f"Another agent, to {what}; leave out for your own memory.")
    for what in ("look into the memory that it shares with you", "change the memory that it lets you change")
)

#: Names that tools had before. They are accepted until the next version, and not listed.
_FORMER = {"search_memory": "search_memories", "remember": "add_memory", "forget": "delete_memory"}

_log = logging.getLogger(__name__)


class _Radius(Protocol):
    @property
    def rests_on(self) -> Sequence[LearnedItem]: ...


class _Plan(Protocol):
    @property
    def id(self) -> str | None: ...

    @property
    def identity(self) -> str: ...

    @property
    def quotes(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def radius(self) -> _Radius: ...


class CorrectableMemory(Protocol):
    """What a tool uses of a :class:`~memory_pipeline.Memory`, which tools do not import, because it needs Polars."""

    @property
    def reader(self) -> MemoryReader:
        """Return its reader."""

    def correct(
        self,
        id: str,  # noqa: A002  # as in the memory
        text: str | None = None,
        *,
        words: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        now: When | None = None,
    ) -> _Plan:
        """See :meth:`memory_pipeline.Memory.correct`."""


@dataclass(frozen=True, slots=True)
class Access:
    """The memory that tools access: of an agent, or of the user of its reader.

    An argument of a call may name another agent to read from or to write to, if that one allows it. None changes who
    asks.

    Attributes:
        writer: writer of the same agent and user; None for read-only access.
        now: time of all calls, or a function that returns it; None for the current time.
        max_tokens: token budget of one answer.
        said_by: who says what is written. The assistant's words never instruct; a host that asks its user before each
            call may pass ``user``.
        memory: the memory of the same agent and user, if what was said can be withdrawn.
    """

    reader: MemoryReader
    writer: MemoryWriter | GrantedWriter | None = None
    now: When | Callable[[], When] | None = None
    max_tokens: int = DEFAULT_TOKENS
    said_by: SourceType = SourceType.ASSISTANT
    memory: CorrectableMemory | None = None

    def __post_init__(self) -> None:
        count_of("max_tokens", self.max_tokens, LEAST_TOKENS, 1_000_000)
        refuse_all_users(self.reader)
        if self.writer is not None:
            _check_same(self.reader, self.writer)
        if self.memory is not None and self.memory.reader.scopes != self.reader.scopes:
            raise InputError(
                f"the memory is of {self.memory.reader.scope}, the reader of {self.reader.scope}; open both for the "
                "same agent and user"
            )

    def of_agent(self, agent_id: str, *, writes: bool = False) -> Access:
        """Return access to what another agent shares with this one: its own memory, and that of the reader's user.

        If it `writes`, to the memory of the reader's user, or else to the agent's own. Its answers leave room for the
        agent's name.

        Raises:
            InputError: the id is invalid.
        """
        reader, writer = self.reader.of_agent(agent_id, self.reader.user_id), None
        if writes and isinstance(self.writer, MemoryWriter):
            writer = self.writer.of_agent(agent_id, self.reader.user_id)
        return Access(reader, writer, self.now, max(LEAST_TOKENS, self.max_tokens - _NAME_TOKENS), self.said_by)

    def clock(self) -> datetime:
        """Return the time of a call."""
        if self.now is None:
            return datetime.now(UTC)
        return self.reader.calendar.moment("now", self.now() if callable(self.now) else self.now)


def refuse_all_users(reader: object) -> None:
    """Raise InputError if a reader is of all users: a model answers one of them."""
    if isinstance(reader, AllUsersReader):
        raise InputError("a reader of all users is not for a model; open the reader with one user_id, or without users")


def _check_same(reader: MemoryReader, writer: MemoryWriter | GrantedWriter) -> None:
    """Raise InputError if a reader and a writer are of different agents or users."""
    users = writer.users
    is_for_same = reader.user_id in users if users else reader.user_id is None
    if writer.scope.own == reader.scope.own and is_for_same:
        return
    mine, other = reader.scope.own, writer.scope.own
    raise InputError(
        f"the writer is for {other} and {_users(users)}, the reader for {mine} and "
        f"{_users([] if reader.user_id is None else [reader.user_id])}; open both for the same agent and user"
    )


def _users(users: Sequence[str]) -> str:
    return f"user {shown(', '.join(users))}" if users else "no user"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call.

    Attributes:
        name: name as a function and at an MCP server.
        title: for users.
        description: for models.
        run: returns the answer, with stored text marked as data.
        effect: whether a call changes nothing, adds to memory, or removes from it.
    """

    name: str
    title: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str]
    effect: Literal["none", "adds", "removes"] = "none"


def tool(
    title: str, effect: Literal["none", "adds", "removes"] = "none", *, is_of_any_agent: bool = True
) -> Callable[[Callable[..., str]], Tool]:
    """Return a decorator that makes a tool of a function: its name, docstring and parameters are those of the tool.

    A model may name another agent, unless the tool is only for its own memory.
    """

    def declared(run: Callable[..., str]) -> Tool:
        other = [_READS if effect == "none" else _CHANGES] if is_of_any_agent else []
        parameters = (*parameters_of(run), *other)
        return Tool(run.__name__, title, " ".join(prose_of(run).split()), parameters, run, effect)

    return declared


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The text of an answer, and whether it is an error."""

    text: str
    is_error: bool = False


def writer_of(access: Access) -> MemoryWriter | GrantedWriter:
    """Return the writer. Raise InputError if access is read-only."""
    if access.writer is None:
        raise InputError("this memory is read-only")
    return access.writer


def perform(access: Access, tools: Mapping[str, Tool], name: object, arguments: object) -> ToolResult:
    """Call a tool by the name and arguments that a model wrote. Never raises: errors are returned as text."""
    try:
        tool = tools.get(_FORMER.get(name, name)) if isinstance(name, str) else None
        if tool is None:
            return _error(f"tool {shown(name)} is unknown; accepted: {_names(tools)}")
        given = arguments_of(tool.parameters, arguments)
        agent = given.pop(_AGENT.name, None)
        if agent is None:
            text = tool.run(access, **given)
        else:
            writes = tool.effect != "none"
            text = tool.run(access.of_agent(agent, writes=writes), **given)
            text = f"{'In' if writes else 'From'} the memory of agent {shown(agent)}:\n{text}"
        return ToolResult(text.encode(errors="replace").decode())
    except InputError as error:
        return _error(str(error))
    except Exception:  # noqa: BLE001  # the model always gets a text
        _log.exception("a tool of memory failed: %s", shown(name))
        return ToolResult("Error: internal memory error; continue without it.", True)


def _names(tools: Iterable[str]) -> str:
    return ", ".join(tools)


def _error(why: str) -> ToolResult:
    return ToolResult(f"Error: {why.encode(errors='replace').decode()}", True)

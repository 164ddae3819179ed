"""Tools: parameters with JSON schemas, access to memory, and calls that always return a text."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from memory_pipeline.domain.json_text import read_json
from memory_pipeline.domain.scopes import MAX_ID
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.reader.all_users import AllUsersReader
from memory_pipeline.writer import GrantedWriter, MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader


# Models write arguments loosely: numbers in quotes, null for missing values, names in capitals. Unambiguous values are
# accepted; others are errors that name the remedy.

#: Longest arguments of one call, in characters.
MAX_ARGUMENTS = 200_000

_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool.

    Attributes:
        kind: type in JSON schema.
        default: value if it is missing.
        least, most: bounds of a number, or of a text's length in characters.
        choices: accepted texts; empty if all are accepted.
    """

    name: str
    kind: Literal["string", "integer", "number", "boolean"]
    description: str
    default: object = None
    is_required: bool = False
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the JSON schema. In OpenAI's `strict` mode, optional values may be null and lengths are left out."""
        is_nullable = strict and not self.is_required
        described: dict[str, Any] = {
            "type": [self.kind, "null"] if is_nullable else self.kind,
            "description": self.description,
        }
        if self.choices:
            described["enum"] = [*self.choices, *([None] if is_nullable else [])]
        elif self.kind in {"integer", "number"}:
            described |= {"minimum": self.least, "maximum": self.most}
        elif self.kind == "string" and not strict:
            described |= {"minLength": self.least} if self.least else {}
            described["maxLength"] = self.most
        if not strict and not self.is_required and self.default is not None:
            described["default"] = self.default
        return described

    def read(self, value: object) -> Any:
        """Validate and convert a value. Raise InputError if it is invalid."""
        if self.kind == "string":
            return self._text(value)
        if self.kind == "boolean":
            truth = _TRUTH.get(value.strip().casefold()) if isinstance(value, str) else value
            if not isinstance(truth, bool):
                raise InputError(f"{self.name} {shown(value)} is not accepted; expected true or false")
            return truth
        number = _number(value)
        if number is None or not self.least <= number <= self.most or (self.kind == "integer" and number % 1):
            expected = "a whole number" if self.kind == "integer" else "a number"
            raise InputError(f"{self.name} {shown(value)} is not accepted; expected {expected} {self._range}")
        return int(number) if self.kind == "integer" else number

    def _text(self, value: object) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
            value = str(value)
        if not isinstance(value, str):
            raise InputError(f"{self.name} {shown(value)} is not a text")
        if self.choices:
            word = value.strip().casefold()
            if word not in self.choices:
                raise InputError(f"{self.name} {shown(value)} is unknown; accepted: {', '.join(self.choices)}")
            return word
        if len(value) > self.most:
            raise InputError(f"{self.name} has {len(value):,} characters; at most {self.most:,} are accepted")
        if self.least and not value.strip():
            raise InputError(f"{self.name} is blank; expected a text of at most {self.most:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{self.name} {shown(value)} is not valid Unicode text") from None
        return value

    @property
    def _range(self) -> str:
        return f"from {self.least:,} to {self.most:,}"


def schema_of(parameters: Sequence[Parameter], *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, an object. In `strict` mode all arguments are required."""
    return {
        "type": "object",
        "properties": {parameter.name: parameter.schema(strict=strict) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if strict or parameter.is_required],
        "additionalProperties": False,
    }


def arguments_of(parameters: Sequence[Parameter], given: object) -> dict[str, Any]:
    """Return all arguments of a call, validated, with defaults. `given` is a mapping, or JSON of one.

    Null counts as missing. Raise InputError if an argument is unknown, missing or invalid.
    """
    accepted = ", ".join(parameter.name for parameter in parameters)
    arguments = {name: value for name, value in _object(given).items() if value is not None}
    known = {parameter.name: parameter for parameter in parameters}
    for name in arguments:
        if name not in known:
            raise InputError(f"argument {shown(name)} is unknown; accepted: {accepted}")
    for parameter in parameters:
        if parameter.is_required and parameter.name not in arguments:
            raise InputError(f"argument {parameter.name} is missing; accepted: {accepted}")
    return {
        parameter.name: parameter.read(arguments[parameter.name]) if parameter.name in arguments else parameter.default
        for parameter in parameters
    }


def _object(given: object) -> Mapping[object, object]:
    if isinstance(given, str | bytes):
        if len(given) > MAX_ARGUMENTS:
            raise InputError(f"the arguments have {len(given):,} characters; at most {MAX_ARGUMENTS:,} are accepted")
        try:
            given = read_json(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            why = "they are nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
            raise InputError(f"the arguments are not valid JSON: {why}; expected an object") from None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"the arguments must be an object, not {shown(given)}")
    return given


def _number(value: object) -> float | None:
    if isinstance(value, str) and len(value) <= 30:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An int may be too large for a float.
    return value if isinstance(value, int) or math.isfinite(value) else None


#: Default and minimum token budget of one answer, at 4 bytes a token.
DEFAULT_TOKENS, LEAST_TOKENS = 2_000, 200

#: Tokens of the name of another agent in an answer.
_NAME_TOKENS = 40

#: The argument with which a model reads the memory of another agent. Which agent asks is never an argument.
OTHER_AGENT = Parameter(
    "agent",
    "string",
    "Another agent, to look into the memory that it shares with you; leave out for your own memory.",
    least=1,
    most=MAX_ID,
)

#: The argument with which a model changes the memory of another agent.
OTHER_OWNER = replace(
    OTHER_AGENT,
    description="Another agent, to change the memory that it lets you change; leave out for your own memory.",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """The memory that tools access: of an agent, or of the user of its reader.

    An argument of a call may name another agent to read from or to write to, if that one allows it. None changes who
    asks.

    Attributes:
        writer: writer of the same agent and user; None for read-only access.
        now: time of all calls, or a function that returns it; None for the current time.
        max_tokens: token budget of one answer.
    """

    reader: MemoryReader
    writer: MemoryWriter | GrantedWriter | None = None
    now: When | Callable[[], When] | None = None
    max_tokens: int = DEFAULT_TOKENS

    def __post_init__(self) -> None:
        count_of("max_tokens", self.max_tokens, LEAST_TOKENS, 1_000_000)
        refuse_all_users(self.reader)
        if self.writer is not None:
            _check_same(self.reader, self.writer)

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
        return Access(reader, writer, self.now, max(LEAST_TOKENS, self.max_tokens - _NAME_TOKENS))

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
        tool = tools.get(name) if isinstance(name, str) else None
        if tool is None:
            return _error(f"tool {shown(name)} is unknown; accepted: {_names(tools)}")
        given = arguments_of(tool.parameters, arguments)
        agent = given.pop(OTHER_AGENT.name, None)
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

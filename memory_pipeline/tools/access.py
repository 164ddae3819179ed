"""What a tool is, what it works on, and what comes of a call: a text, whatever happens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from memory_pipeline.errors import InputError, shown
from memory_pipeline.tools.parameters import Parameter, arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.writer import MemoryWriter

#: What the text of one answer may take, at 4 bytes a token, and the least that can be asked for.
DEFAULT_TOKENS, LEAST_TOKENS = 2_000, 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """What tools work on.

    Attributes:
        reader: whose memory.
        writer: of the same agent; None where nothing may be written.
        now: the time of all calls, or what tells it; None for the clock.
        max_tokens: what the text of one answer may take.
    """

    reader: MemoryReader
    writer: MemoryWriter | None = None
    now: When | Callable[[], When] | None = None
    max_tokens: int = DEFAULT_TOKENS

    def __post_init__(self) -> None:
        """Refuse what no call could work with."""
        tokens = self.max_tokens
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not LEAST_TOKENS <= tokens <= 1_000_000:
            raise InputError(f"max_tokens {shown(tokens)} is not accepted; expected {LEAST_TOKENS} to 1,000,000")
        if self.writer is not None and self.writer.scope != self.reader.scope:
            mine, other = self.reader.scope, self.writer.scope
            raise InputError(
                f"the writer is for {other.workspace_id}/{other.agent_id}, the reader for "
                f"{mine.workspace_id}/{mine.agent_id}; tools serve one agent"
            )

    def clock(self) -> datetime:
        """Return the time of a call."""
        if self.now is None:
            return datetime.now(UTC)
        return self.reader.calendar.moment("now", self.now() if callable(self.now) else self.now)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may call.

    Attributes:
        name: as functions have it.
        served_as: its name at an MCP server; None where there is no such tool.
        title: for people.
        description: for models.
        parameters: what it takes.
        run: makes the answer; stored text in it is marked.
        effect: what a call changes: nothing, or it adds to memory, or takes from it.
    """

    name: str | None
    served_as: str
    title: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str]
    effect: Literal["none", "adds", "removes"] = "none"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call says to the model, and whether it says that something is wrong."""

    text: str
    is_error: bool = False


def writer_of(access: Access) -> MemoryWriter:
    """Return what writes.

    Raises:
        InputError: nothing may be written.
    """
    if access.writer is None:
        raise InputError("this memory is read-only")
    return access.writer


def perform(access: Access, tools: Mapping[str, Tool], name: object, arguments: object) -> Outcome:
    """Call a tool. Never raises: whatever is wrong is said to the model, without anything of the insides.

    Args:
        access: what it works on.
        tools: by the names that the model knows.
        name: which.
        arguments: a mapping, or its JSON.
    """
    try:
        tool = tools.get(name) if isinstance(name, str) else None
        if tool is None:
            return _wrong(f"there is no tool {shown(name)}; there are: {_names(tools)}")
        text = tool.run(access, **arguments_of(tool.parameters, arguments))
        return Outcome(text.encode(errors="replace").decode())
    except InputError as error:
        return _wrong(str(error))
    except Exception:  # noqa: BLE001  # whatever it is, the model gets a text
        _log.exception("a tool of memory failed: %s", shown(name))
        return Outcome("Error: memory could not do this because of a fault of its own; go on without it.", True)


def _names(tools: Iterable[str]) -> str:
    return ", ".join(tools)


def _wrong(why: str) -> Outcome:
    return Outcome(f"Error: {why.encode(errors='replace').decode()}", True)

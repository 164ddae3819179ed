"""Memory as functions for a model, in the format of OpenAI and LiteLLM.

In an agent::

    tools = memory_tools(reader)
    reply = litellm.completion(model, messages, tools=tools.functions).choices[0].message
    messages.append(reply)
    messages += [tools.dispatch(call) for call in reply.tool_calls or []]

Each call returns a text: stored text marked as data, or an error that says what to change. Calls never raise. Answers
are bounded, say what they leave out, and contain the ids for ``get_memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from memory_pipeline.domain.authority import authority_of
from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.domain.memories.record import SourceType
from memory_pipeline.domain.values import one_of
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within, schema_of
from memory_pipeline.tools.correcting_tools import correct
from memory_pipeline.tools.memory_tools import add_memory, delete_memory, update_memory
from memory_pipeline.tools.read_tools import reading_tools
from memory_pipeline.tools.tool import (
    DEFAULT_TOKENS,
    Access,
    Tool,
    ToolResult,
    perform,
    tool,
    writer_of,
)
from memory_pipeline.writer import GrantedWriter, MemoryWriter

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.tools.tool import CorrectableMemory

Term = Annotated[str, Within(1, MAX_TERM)]


@tool("Add a fact to the graph", "adds", is_of_any_agent=False)
def remember_fact(
    access: Access,
    *,
    subject: Term,
    predicate: Term,
    object: Term,  # noqa: A002  # the term's own name
    replaces: Term | None = None,
    confidence: Annotated[float, Within(0, 1)] = 1,
) -> str:
    """Remember a plain fact as subject, predicate and object: Anna, lives_in, Porto. Where the predicate holds one
    value at a time, the new one takes the place of the old, which is kept as history.

    Args:
        subject: Whom or what it is about: a name; User for the user, Agent for yourself.
        predicate: The relation, in snake_case: lives_in, works_at, likes, has_sister.
        object: Its value: a name, a place, a number.
        replaces: The object that is no longer so, if the fact takes its place.
        confidence: How sure it is, 0 to 1.
    """
    is_update = replaces is not None and replaces.strip() != ""
    change = {"edit": "UPDATE", "replaces": replaces} if is_update else {"edit": "INSERT"}
    _edit(access, change | {"subject": subject, "predicate": predicate, "object": object, "confidence": confidence})
    return "The fact is remembered; graph_facts finds it at once."


@tool("End a fact of the graph", "removes", is_of_any_agent=False)
def forget_fact(access: Access, *, subject: Term, predicate: Term, object: Term | None = None) -> str:  # noqa: A002
    """Say that a fact no longer holds. It is kept as history. Without an object, all facts of subject and predicate
    end.

    Args:
        subject: Whom or what it is about: a name; User for the user, Agent for yourself.
        predicate: The relation, in snake_case: lives_in, works_at, likes, has_sister.
        object: Its value; leave out for all.
    """
    _edit(access, {"edit": "DELETE", "subject": subject, "predicate": predicate, "object": object})
    return "The fact no longer holds; graph_facts shows it with include_history."


def _edit(access: Access, change: Mapping[str, object]) -> None:
    writer = writer_of(access)
    if not isinstance(writer, MemoryWriter):
        raise InputError("the graph of another agent can only be read")
    origin = authority_of(access.said_by, "", "").value
    writer.graph.apply([{**change, "origin": origin}], now=access.clock())


WRITING_TOOLS: Final = (add_memory, update_memory, delete_memory, remember_fact, forget_fact)


class MemoryTools:
    """The functions of one agent's memory. Thread-safe.

    Attributes:
        functions: schemas for the argument ``tools`` of a chat completion.
    """

    def __init__(self, access: Access, *, strict: bool = False) -> None:
        self._access = access
        self._tools = {tool.name: tool for tool in tools_of(access)}
        self.functions = [_function(tool, strict=strict) for tool in self._tools.values()]

    def call(self, name: str, arguments: str | Mapping[str, object] | None = None) -> str:
        """Call a function and return a text for the model. Never raises.

        Args:
            name: name of a function in :attr:`functions`.
            arguments: a mapping, or JSON as the model wrote it.
        """
        return self.outcome(name, arguments).text

    def outcome(self, name: str, arguments: str | Mapping[str, object] | None = None) -> ToolResult:
        """Call a function like :meth:`call`. Return the text, and whether it is an error."""
        return perform(self._access, self._tools, name, arguments)

    def dispatch(self, tool_call: object) -> dict[str, Any]:
        """Run one of the ``tool_calls`` of a reply, an object or a dict. Return the tool message. Never raises."""
        function = _part(tool_call, "function")
        name, identifier = _part(function, "name"), _part(tool_call, "id")
        outcome = perform(self._access, self._tools, name, _part(function, "arguments"))
        return {
            "role": "tool",
            "tool_call_id": identifier if isinstance(identifier, str) else "",
            "name": name if isinstance(name, str) else "",
            "content": outcome.text,
        }


def memory_tools(
    reader: MemoryReader,
    writer: MemoryWriter | GrantedWriter | None = None,
    *,
    now: When | Callable[[], When] | None = None,
    max_tokens: int = DEFAULT_TOKENS,
    strict: bool = False,
    said_by: SourceType | str = SourceType.ASSISTANT,
    memory: CorrectableMemory | None = None,
) -> MemoryTools:
    """Return functions that read an agent's memory and, with a writer, change it.

    Open both with a `user_id` for a conversation with that user. The functions then read the memory of the user, of the
    user's groups and of the agent, and change that of the user. A model may name another agent to read from or to write
    to, if that one allows it; no argument of a model changes who asks.

    Args:
        reader: reads the memory.
        writer: writer of the same agent and user; without it the functions are read-only.
        now: time of all calls, or a function that returns it; by default the current time.
        max_tokens: token budget of one answer, at 4 bytes a token; at least 200.
        strict: return schemas for OpenAI's strict mode, in which all arguments are required and may be null.
        said_by: who says what the functions write. What an assistant says never instructs. A program that asks its user
            before each call may pass ``user``.
        memory: the :class:`~memory_pipeline.Memory` of the same agent and user: with a writer, this adds ``correct``,
            which withdraws what was said in conversations. It shows a plan first. Needs ``memory-pipeline[run]``.

    Raises:
        InputError: reader, writer and memory are of different agents or users, or `max_tokens` or `said_by` is not
            accepted.
    """
    source = one_of(SourceType, "said_by", said_by)
    return MemoryTools(Access(reader, writer, now, max_tokens, source, memory), strict=strict)


def tools_of(access: Access) -> list[Tool]:
    """Return the reading tools, with a writer the writing tools, and with a memory that of corrections."""
    writing = () if access.writer is None else WRITING_TOOLS if access.memory is None else (*WRITING_TOOLS, correct)
    return [*reading_tools(access.max_tokens), *writing]


def _function(tool: Tool, *, strict: bool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schema_of(tool.parameters, strict=strict),
    }
    return {"type": "function", "function": {**function, "strict": True} if strict else function}


def _part(of: object, name: str) -> object:
    if isinstance(of, Mapping):
        return of.get(name)
    return getattr(of, name, None)
